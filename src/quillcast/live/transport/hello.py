"""The hello of a link: protocol version, network, and proof of the key that determines the nodeId.

Both sides send `Hello` at once, each with its own nonce. A side that accepts the other's hello answers with a proof: an
Ed25519 signature over the other's nonce, its own, and both nodeIds, its own first. So a proof is valid for one link,
one direction and one moment. A link is up when both proofs are verified.

In a network with a credential, all this goes through TLS, and the hello must match the certificate: the same key, and
the nonce that the issuer drew for it (`live.transport.tls`, `protocol.security.members`).
"""

import secrets

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from quillcast.core.errors import Malformed
from quillcast.core.ids import NodeId, short
from quillcast.core.messages import Contact, Number, decoded
from quillcast.live.transport.certificates import secret_pem
from quillcast.protocol.security.members import Unadmitted, member_id

PROTOCOL_VERSION = 1
NONCE_BYTES = 32
REASON_BYTES_MAX = 300  # of a refusal, as sent and as shown

_MAGIC = b"quillcast"
_VERSION_AT = len(_MAGIC)
_BODY_AT = _VERSION_AT + 2
_PROOF = b"quillcast link proof 1\0"


class HelloRefused(Unadmitted):
    """The other side is not the wanted peer; `why` is one word for counters."""


class RefusedThere(Unadmitted):
    """The other side refused this peer and said why. Only the printable characters of its reason are shown."""

    def __init__(self, reason: bytes) -> None:
        words = "".join(c for c in reason.decode(errors="replace")[:REASON_BYTES_MAX] if c.isprintable())
        super().__init__("there", f'it refused this peer: "{words}"')
        self.words = words


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a peer. The receiver checks version and network, and answers with a proof."""

    network: str
    public_key: bytes
    address: str
    nonce: bytes
    incarnation: bytes
    window_bytes: int
    issuer_nonce: bytes = b""
    """The nonce that the network's credential added to the key to make the nodeId; empty without a credential."""
    authority_key: bytes = b""
    """The network's public key, for peers that know only its fingerprint."""
    clock_ns: Number = 0
    """This peer's wall clock, nanoseconds since 1970 UTC; 0 in a network without a credential."""
    shared_memory: bytes = b""
    """Place of the incarnation in shared memory, to test access; or empty (`live.transport.shared_memory`)."""

    @property
    def contact(self) -> Contact:
        """The peer that this hello names as its sender."""
        return Contact(member_id(self.public_key, self.issuer_nonce), self.address)


class Identity:
    """The Ed25519 key of a peer, and the nodeId derived from it and the issuer's nonce (docs/design.md, section 3)."""

    def __init__(self, key: Ed25519PrivateKey, issuer_nonce: bytes = b"") -> None:
        self._key, self.issuer_nonce = key, issuer_nonce
        self.public_key = key.public_key().public_bytes_raw()
        self.node_id: NodeId = member_id(self.public_key, issuer_nonce)

    @classmethod
    def new(cls) -> "Identity":
        """A new identity, from the system's random source."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def of_secret(cls, secret: bytes, issuer_nonce: bytes = b"") -> "Identity":
        """The identity with these 32 secret bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(secret), issuer_nonce)

    @property
    def secret(self) -> bytes:
        """The 32 bytes to store."""
        return self._key.private_bytes_raw()

    @property
    def pem(self) -> bytes:
        """The secret in the format of OpenSSL."""
        return secret_pem(self._key)

    def sign(self, statement: bytes) -> bytes:
        """Sign a statement with this identity."""
        return self._key.sign(statement)

    def prove(self, mine: Hello, theirs: Hello) -> bytes:
        """Make the proof that answers `theirs`."""
        return self.sign(_statement(mine, theirs))


def nonce() -> bytes:
    """Random bytes, unique to one link."""
    return secrets.token_bytes(NONCE_BYTES)


def encode(hello: Hello, version: int = PROTOCOL_VERSION) -> bytes:
    """Encode a hello as a frame's content. Magic and version come first, so that they survive changes of the rest."""
    return _MAGIC + version.to_bytes(2, "little") + msgspec.msgpack.encode(hello)


def decode(content: bytes) -> Hello:
    """Decode a hello. Raises `HelloRefused` if it is invalid or of another version."""
    if not content.startswith(_MAGIC):
        raise HelloRefused("not_quillcast", "it is not a quillcast peer")
    version = int.from_bytes(content[_VERSION_AT:_BODY_AT], "little")
    if version != PROTOCOL_VERSION:
        raise HelloRefused(
            "version", f"it speaks version {version} of the protocol, this peer version {PROTOCOL_VERSION}"
        )
    try:
        return decoded(_DECODER, content[_BODY_AT:], "hello")
    except Malformed as problem:
        raise HelloRefused("not_quillcast", f"its hello is malformed ({problem})") from problem


def check(mine: Hello, theirs: Hello, wanted: bytes | None) -> None:
    """Raise `HelloRefused` unless `theirs` is of this network and of the `wanted` peer (None: any)."""
    if theirs.network != mine.network:
        raise HelloRefused(
            "network",
            f"it belongs to the network {theirs.network!r}, this peer to {mine.network!r}; choose one with --network",
        )
    if len(theirs.nonce) != NONCE_BYTES:
        raise HelloRefused("not_quillcast", f"its nonce has {len(theirs.nonce)} bytes instead of {NONCE_BYTES}")
    if bool(theirs.authority_key) != bool(mine.authority_key):
        raise HelloRefused("network", "only one of the two belongs to a network with a credential")
    found = theirs.contact.node_id
    if wanted is not None and found != wanted:
        raise HelloRefused("identity", f"it is now the peer {short(found)}, and {short(wanted)} has gone")
    if found == mine.contact.node_id:
        raise HelloRefused("identity", "it is this peer itself, or another with a copy of its key")


def verify(mine: Hello, theirs: Hello, proof: bytes) -> None:
    """Raise `HelloRefused` unless `proof` shows that the other end has the key of `theirs`."""
    try:
        Ed25519PublicKey.from_public_bytes(theirs.public_key).verify(proof, _statement(theirs, mine))
    except (InvalidSignature, ValueError) as problem:
        raise HelloRefused(
            "identity", f"it did not prove that it is the peer {short(theirs.contact.node_id)}"
        ) from problem


def _statement(signer: Hello, verifier: Hello) -> bytes:
    """The content that a proof signs; every part has a fixed length except the network, which comes last."""
    ids = signer.contact.node_id + verifier.contact.node_id
    return b"".join([_PROOF, verifier.nonce, signer.nonce, ids, signer.network.encode()])


_DECODER = msgspec.msgpack.Decoder(Hello)
