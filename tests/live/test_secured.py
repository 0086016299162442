"""TLS and its user (`Secured`), here one that only notes what it is told: no link, no connection, no peer."""

import asyncio
from typing import Any

import pytest

from quillcast.core.errors import RemoteError
from quillcast.live.transport.tls import Secured, TlsTransport, applicant_context


class NotingUser:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.opened_here, self.closing = True, False
        self.told: list[object] = []

    def made(self, transport: TlsTransport, /) -> None:
        self.told.append("made")

    def connection_lost(self, problem: Exception | None, /) -> None:
        self.told.append(problem)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def get_buffer(self, sizehint: int, /) -> memoryview:
        return memoryview(bytearray(1024))

    def buffer_updated(self, count: int, /) -> None:
        self.told.append(count)

    def refuse(self, problem: RemoteError, /) -> None:
        self.told.append(str(problem))
        self.closing = True


class Socket(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))


def begun() -> tuple[NotingUser, TlsTransport, Socket]:
    noting = NotingUser()
    user: Secured = noting
    transport, socket = TlsTransport(user, applicant_context()), Socket()
    transport.connection_made(socket)
    return noting, transport, socket


def receive(transport: TlsTransport, data: bytes) -> None:
    transport.get_buffer(-1)[: len(data)] = data
    transport.buffer_updated(len(data))


def test_the_handshake_begins_as_soon_as_the_socket_is_there_and_what_is_written_waits_for_it() -> None:
    user, transport, socket = begun()
    assert user.told == ["made"]
    hello = socket.written
    assert hello[0] == 22, "the type of handshake records (RFC 8446, section 5.1)"
    transport.write([b"secret"])
    assert socket.written == hello


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"GET / HTTP/1.1\r\n", "it is not a quillcast peer"), (b"~\0\0\0\1\0\0\0quillcast", "it does not use TLS")],
)
def test_what_is_not_tls_is_answered_with_an_alert_and_refused_once(data: bytes, text: str) -> None:
    user, transport, socket = begun()
    hello = len(socket.written)
    receive(transport, data)
    receive(transport, data)
    assert socket.written[hello] == 21, "the type of alerts"
    (refusal,) = user.told[1:]
    assert text in str(refusal)


def test_the_sockets_end_and_its_pauses_are_passed_on() -> None:
    user, transport, _ = begun()
    transport.pause_writing()
    transport.resume_writing()
    transport.connection_lost(None)
    assert user.told == ["made", "pause", "resume", None]
