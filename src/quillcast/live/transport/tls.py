"""TLS 1.3 between a socket and a `Connection`, with both sides' certificates.

OpenSSL works on memory here, not on the socket. So a peer sees all bytes of an unauthenticated client from the first
one on, can count them, and can say what was wrong. OpenSSL checks the chain; `protocol.security.members` checks
lifetimes against this peer's clock, with an error that names both.

Bytes are copied as rarely as OpenSSL allows: the socket reads into one buffer, and decrypted bytes go straight into the
buffer that frames are cut from, as many records at a time as have arrived.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from quillcast.core.errors import RemoteError
from quillcast.live.transport import certificates
from quillcast.live.transport.hello import HelloRefused, Identity
from quillcast.live.transport.transport import Part, Transport
from quillcast.protocol.security.members import fingerprint

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name
_RAW_BYTES = 256 << 10
_WRITE_BYTES = 256 << 10  # encrypted and then sent at a time: a smaller size wakes the other side more often; measured
_ALERT, _HANDSHAKE = 21, 22  # content types, the first byte of every TLS record
_REFUSAL = b"\x15\x03\x03\x00\x02\x02\x46"  # a fatal alert, protocol_version: the answer to clients without TLS
_UNKNOWN_AUTHORITY = (7, 18, 19, 20, 21)  # X509_V_ERR_*: self-signed, or signed by another authority

_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it rejected this peer's certificate: it belongs to another network",
    "TLSV1_ALERT_DECRYPT_ERROR": "it rejected this peer's certificate: it belongs to another network",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate of its network; join with a line that it prints",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not support TLS 1.3",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the two have no cipher suite in common",
}


class BufferedReader(Protocol):
    """The methods of a buffered protocol that asyncio calls after it is connected."""

    def connection_lost(self, problem: Exception | None, /) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def get_buffer(self, sizehint: int, /) -> memoryview: ...
    def buffer_updated(self, count: int, /) -> None: ...


class HandshakeUser(Protocol):
    """What learns how a TLS handshake ends."""

    opened_here: bool
    closing: bool

    def made(self, transport: "TlsTransport", /) -> None: ...
    def refuse(self, problem: RemoteError, /) -> None: ...


class Secured(BufferedReader, HandshakeUser, Protocol):
    """The user of TLS: a `Connection`, or an applicant for admission."""


class Tls:
    """A member's side of every link: its identity, its certificate, and its network's certificate."""

    def __init__(self, identity: Identity, certificate: bytes, authority: bytes) -> None:
        self.certificate = certificate
        self.authority_key = certificates.authority_key(authority)
        self.fingerprint = fingerprint(self.authority_key)
        pem = identity.pem + certificates.pem(certificate)
        self._server = _context(ssl.PROTOCOL_TLS_SERVER, pem, authority)
        self._server.verify_mode = ssl.CERT_OPTIONAL  # an applicant has no certificate yet
        self._server.num_tickets = 0
        self._client = _context(ssl.PROTOCOL_TLS_CLIENT, pem, authority)

    def transport(self, connection: Secured, plain: Callable[[asyncio.Transport], Transport]) -> "TlsTransport":
        """The transport between the connection and its socket; `plain` makes the transport of the socket's stream."""
        return TlsTransport(connection, self._client if connection.opened_here else self._server, plain)


def applicant_context() -> ssl.SSLContext:
    """The context of an applicant, which checks the other side's certificate itself, against a fingerprint."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, None, None)
    context.verify_mode = ssl.CERT_NONE
    return context


class TlsTransport(asyncio.BufferedProtocol, Transport):
    """The transport of a connection and the protocol of its socket. The connection reads and writes plain bytes."""

    def __init__(
        self, connection: Secured, context: ssl.SSLContext, plain: Callable[[asyncio.Transport], Transport] = Transport
    ) -> None:
        self.connection, self._plain = connection, plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not connection.opened_here)
        self._raw = memoryview(bytearray(_RAW_BYTES))
        self._backlog: list[Part] = []  # written before the end of the handshake
        self._first = -1
        self._handshaken = self._failed = False

    # --- the socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = self._plain(cast("asyncio.Transport", transport))
        Transport.__init__(self, plain.stream, plain.end)
        self.write = self._write
        self.connection.made(self)
        self._advance()

    def connection_lost(self, problem: Exception | None) -> None:
        self.connection.connection_lost(problem)
        self.write = _discard
        del self._tls, self._incoming, self._outgoing, self._raw  # the two form a reference cycle, as in `Framed`

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self.connection.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._raw

    def buffer_updated(self, count: int) -> None:
        if self._first < 0:
            self._first = self._raw[0]
            if self._first not in (_ALERT, _HANDSHAKE):
                self._fail(_no_tls(bytes(self._raw[: min(count, 64)])))
        if self._failed:
            return
        self._incoming.write(self._raw[:count])
        self._advance()

    def eof_received(self) -> bool:
        return False  # the socket closes

    # --- the connection's side

    def _write(self, parts: list[Part]) -> None:
        """Encrypt and send, in pieces."""
        if not self._handshaken:
            self._backlog += parts
            return
        written = 0
        for part in parts:
            view = memoryview(part)
            while view:
                count = self._tls.write(view[:_WRITE_BYTES])
                view, written = view[count:], written + count
                if written >= _WRITE_BYTES:
                    self._send()
                    written = 0
        self._send()

    def hand_over(self, protocol: asyncio.BufferedProtocol) -> None:
        """Decrypt for this connection from now on."""
        self.connection = cast("Secured", protocol)

    def close(self) -> None:
        """Send TLS's end, and close the socket when everything is sent."""
        if self._handshaken and not self._failed and not self.stream.is_closing():
            with contextlib.suppress(ssl.SSLError):  # it would wait for the other side's end, which is unnecessary
                self._tls.unwrap()
            self._send()
        self.stream.close()

    # --- within

    def _advance(self) -> None:
        """Process the bytes that arrived, as far as possible."""
        try:
            if not self._handshaken:
                self._tls.do_handshake()
                self._handshaken, self.certificate = True, self._tls.getpeercert(binary_form=True)
                backlog, self._backlog = self._backlog, []
                self.write(backlog)
            self._read()
        except ssl.SSLWantReadError:
            self._send()
        except ssl.SSLError as problem:
            self._send()
            self._fail(_refusal(problem))

    def _read(self) -> None:
        """Fill the connection's buffer with all decrypted bytes, repeatedly. Raises `SSLWantReadError`."""
        connection, read = self.connection, self._tls.read
        while not connection.closing:
            buffer = connection.get_buffer(-1)
            filled, size = 0, len(buffer)
            try:
                while filled < size:
                    count = cast("int", read(size - filled, buffer[filled:]))
                    if not count:  # the other side ended TLS
                        self.stream.close()
                        return
                    filled += count
            finally:
                if filled:
                    connection.buffer_updated(filled)

    def _send(self) -> None:
        if self._outgoing.pending:
            self.stream.write(self._outgoing.read())

    def _fail(self, problem: RemoteError) -> None:
        if self._failed or self.connection.closing:
            return
        self._failed = True
        if self._first not in (_ALERT, _HANDSHAKE):
            self.stream.write(_REFUSAL)
        self.connection.refuse(problem)


def _discard(parts: list[Part]) -> None:
    """Discard bytes that are written after the end of a connection."""


def _context(kind: int, pem: bytes | None, authority: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # peers are identified by their keys, not by host names
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= _NO_CHECK_TIME
        context.load_verify_locations(cadata=authority)
    if pem is not None:
        _load(context, pem)
    return context


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Give the context its key. OpenSSL reads keys from files only; this one is in memory and never on a disk."""
    file = os.memfd_create("quillcast", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as writing:
            writing.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def _no_tls(begin: bytes) -> HelloRefused:
    """The error if the other side does not use TLS."""
    if b"quillcast" in begin:
        return HelloRefused(
            "plain", "it does not use TLS: it was not admitted to this network; join with a line that a member prints"
        )
    return HelloRefused("not_quillcast", "it is not a quillcast peer: it does not speak TLS")


def _refusal(problem: ssl.SSLError) -> HelloRefused:
    """Make the error of a failed handshake."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        if problem.verify_code in _UNKNOWN_AUTHORITY:
            return HelloRefused("unadmitted", "its certificate is not of this network")
        return HelloRefused("unadmitted", f"its certificate is not valid: {problem.verify_message}")
    reason = problem.reason or str(problem)
    if reason in _ALERTS:
        return HelloRefused("unadmitted", _ALERTS[reason])
    return HelloRefused("not_quillcast", f"it is not a quillcast peer: {reason.lower().replace('_', ' ')}")
