"""How a machine is admitted: it presents a one-time token to the credential's holder and gets certificates.

The applicant opens TLS without a certificate of its own. First it checks the other side: its certificate, whose key TLS
has proven, must be signed by the network with the fingerprint in the join line. Only then does it send the token, the
keys to admit, and a signature by each key. The answer is a certificate for each key, or one line with the reason for a
refusal.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from quillcast.core.errors import Malformed, RemoteError, Unreachable
from quillcast.core.messages import Number, decoded
from quillcast.live.admission.authority import Authority
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.admission.keyring import MEMBERS_MAX, Keyring
from quillcast.live.transport import addresses, hello
from quillcast.live.transport.certificates import authority_key, read_member
from quillcast.live.transport.framing import FRAME_BYTES_MAX, FrameReader, FrameType, frame
from quillcast.live.transport.hello import Hello, Identity, RefusedThere
from quillcast.live.transport.tls import TlsTransport, applicant_context
from quillcast.protocol.security.members import Unadmitted, check_claim, check_clocks, check_lifetime, fingerprint

_STATEMENT = b"quillcast admission 1\0"


class Application(msgspec.Struct, frozen=True, array_like=True):
    """A request to admit keys. Each key signs the nonce of the receiver's hello and itself."""

    token: str
    network: str
    clock_ns: Number
    keys: list[bytes]
    signatures: list[bytes]


class Admitted(msgspec.Struct, frozen=True, array_like=True):
    """The network's certificate, and one certificate for each key, in the order of the request."""

    authority: bytes
    certificates: list[bytes]


class Admissions:
    """Decides on applications, at the peer that holds the network's credential."""

    def __init__(self, network: str, authority: Authority, keyring: Keyring, wall_ns: Callable[[], int]) -> None:
        self.network, self.authority, self.keyring, self.wall_ns = network, authority, keyring, wall_ns

    def admit(self, mine: Hello, content: bytes) -> bytes:
        """Answer an application. Raises `Unadmitted`; the token then stays valid unless it is the cause."""
        application = decoded(_APPLICATIONS, content, "application for admission")
        now_ns = self.wall_ns()
        if application.network != self.network:
            raise Unadmitted("network", f"it wants to join {application.network!r}, and this is {self.network!r}")
        check_clocks(now_ns, application.clock_ns)
        if not 0 < len(application.keys) <= MEMBERS_MAX:
            raise Unadmitted(
                "token", f"it requests {len(application.keys)} identities; a token allows 1 to {MEMBERS_MAX}"
            )
        for key, signature in zip(application.keys, application.signatures, strict=False):
            _verify(key, signature, mine)
        if len(application.signatures) != len(application.keys):
            raise Malformed("an application has one signature for each key")
        attributes = self.keyring.use_token(application.token, now_ns)
        certificates = [self.authority.admit(key, now_ns, attributes=attributes) for key in application.keys]
        return msgspec.msgpack.encode(Admitted(self.authority.certificate, certificates))


async def apply(
    line: JoinLine, identities: Sequence[Identity], *, wall_ns: Callable[[], int], timeout_s: float
) -> Admitted:
    """Get these identities admitted with the line's token. Raises `Unreachable` with the reason."""
    host, port = addresses.parse(line.address)
    loop = asyncio.get_running_loop()
    applicant = Applicant(line, identities, wall_ns(), loop.create_future())
    try:
        async with asyncio.timeout(timeout_s):
            context = applicant_context()
            await loop.create_connection(lambda: TlsTransport(applicant, context), host, port)
            return await applicant.answer
    except (OSError, RemoteError) as problem:
        raise Unreachable(f"cannot join through {line.address}: {addresses.why(problem)}") from problem
    finally:
        applicant.close()


class Applicant:
    """The applicant's end of the connection. `answer` is the result."""

    opened_here = True
    transport: TlsTransport | None = None

    def __init__(
        self, line: JoinLine, identities: Sequence[Identity], clock_ns: int, answer: "asyncio.Future[Admitted]"
    ) -> None:
        self._line, self._identities, self._clock_ns, self.answer = line, identities, clock_ns, answer
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._authority_key = b""
        self.closing = False

    def made(self, transport: TlsTransport, /) -> None:
        """The connection has its transport."""
        self.transport = transport

    def connection_lost(self, problem: Exception | None) -> None:
        self._fail(problem or ConnectionResetError("it closed the connection"))

    def pause_writing(self) -> None:
        """Ignored: there is little to write."""

    def resume_writing(self) -> None:
        """Ignored: there is little to write."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        try:
            for type_, content in self._reader.frames(count):
                self._frame(type_, bytes(content))
                if self.closing:
                    break
        except RemoteError as problem:
            self.refuse(problem)

    def refuse(self, problem: RemoteError) -> None:
        """Reject the other side: tell it the reason, and fail here."""
        if self.closing:
            return
        if self.transport is not None and not isinstance(problem, RefusedThere):
            self.transport.write([frame(FrameType.REFUSED, str(problem).encode())])
        self._fail(problem)
        self.close()

    def close(self) -> None:
        """Close the connection when everything is sent."""
        if not self.closing and self.transport is not None:
            self.closing = True
            self.transport.close()

    def _frame(self, type_: FrameType, content: bytes) -> None:
        match type_:
            case FrameType.HELLO if not self._authority_key:
                self._greeted(hello.decode(content))
            case FrameType.ADMITTED if self._authority_key:
                self._admitted(decoded(_ANSWERS, content, "admission"))
            case FrameType.REFUSED:
                raise RefusedThere(content)
            case _:
                raise Malformed(f"a {type_.name} frame came out of turn")

    def _greeted(self, theirs: Hello) -> None:
        """Their hello arrived: apply, if they are of the network in the join line."""
        assert self.transport is not None
        found, certificate = fingerprint(theirs.authority_key), self.transport.certificate
        if found != self._line.fingerprint:
            raise Unadmitted(
                "fingerprint",
                f"its fingerprint is {found}, not {self._line.fingerprint}: it belongs to another network, or someone "
                "is intercepting the connection",
            )
        if certificate is None:
            raise Unadmitted("certificate", "it shows no certificate")
        member = read_member(certificate, theirs.authority_key)
        check_claim(member, theirs.public_key, theirs.issuer_nonce)
        check_clocks(self._clock_ns, theirs.clock_ns)
        check_lifetime(member, self._clock_ns)
        self._authority_key = theirs.authority_key
        keys = [identity.public_key for identity in self._identities]
        signatures = [identity.sign(_statement(identity.public_key, theirs)) for identity in self._identities]
        application = Application(self._line.token, self._line.network, self._clock_ns, keys, signatures)
        self.transport.write([frame(FrameType.APPLY, msgspec.msgpack.encode(application))])

    def _admitted(self, answer: Admitted) -> None:
        """Certificates arrived: they must be of this network and for our keys."""
        if fingerprint(authority_key(answer.authority)) != self._line.fingerprint:
            raise Unadmitted("certificate", "it answers with the certificate of another network")
        keys = [read_member(certificate, self._authority_key).public_key for certificate in answer.certificates]
        if keys != [identity.public_key for identity in self._identities]:
            raise Unadmitted("certificate", "it answers with certificates for other keys")
        if not self.answer.done():
            self.answer.set_result(answer)

    def _fail(self, problem: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(problem)
            self.answer.exception()  # there may be no waiter


def _verify(key: bytes, signature: bytes, mine: Hello) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _statement(key, mine))
    except (InvalidSignature, ValueError) as problem:
        raise Unadmitted("identity", "it did not prove that it has the keys that it wants admitted") from problem


def _statement(key: bytes, verifier: Hello) -> bytes:
    return _STATEMENT + verifier.nonce + key


_APPLICATIONS = msgspec.msgpack.Decoder(Application)
_ANSWERS = msgspec.msgpack.Decoder(Admitted)
