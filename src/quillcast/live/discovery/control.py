"""The control socket, through which commands query a running peer: a Unix socket beside its registry file.

A question (`questions.py`) is one line of JSON, `{"ask": "tree", "topic": "sport/tennis"}`; so is the answer,
`{"answer": ...}` or `{"error": "one clear line"}`. The client specifies the type of the answer; those about peers are
in `core.status`. Peers and commands may be of different versions: unknown fields of an answer are ignored.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from quillcast.core.errors import Leaving, LocalError, QuillcastError, RemoteError, Unreachable
from quillcast.live.discovery.questions import BUILDING, Answerer, ConnectQuestion, PeerQuestion, name_of, understood
from quillcast.live.transport import local_ipc

QUESTION_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 64 << 10  # of an answer after which the socket stays open
ANSWER_TIMEOUT_S = 10.0  # a guess: walking a tree takes at most two

T = TypeVar("T")
Takeover = Callable[[Any], asyncio.BaseProtocol]
"""Makes the protocol that serves a client of this version, and writes the answer. Raises `LocalError`."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that answers a question: JSON of the question's type, or why there is no answer."""

    answer: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    leaving: bool = False


class ControlServer:
    """Answers questions on a socket in a folder that only this user can write to."""

    def __init__(
        self, path: Path, answer: Answerer, kinds: Iterable[type[PeerQuestion]], connect: Takeover | None = None
    ) -> None:
        """`answer` answers questions of these kinds. `connect` serves the socket of who asks to connect."""
        self.path, self._answerer, self._connect = path, answer, connect
        self._kinds = list(kinds)
        if connect is not None:
            self._kinds.append(ConnectQuestion)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "ControlServer":
        listener = socket.socket(socket.AF_UNIX)
        try:
            self.path.unlink(missing_ok=True)
            with _short(self.path) as path:
                listener.bind(path)
                os.chmod(path, 0o600)  # noqa: PTH101 - not a real path; nobody can connect before it listens
            self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=QUESTION_BYTES_MAX)
        except OSError as problem:
            listener.close()
            raise LocalError(f"no control socket at {self.path}: {problem.strerror or problem}") from problem
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # the client has gone
            answer = await self._answer(await _line(reader), writer)
            if answer is not None:
                writer.write(encoded(answer))
                await writer.drain()
                writer.close()

    async def _answer(self, line: bytes, writer: asyncio.StreamWriter) -> Answer | None:
        """The answer to a question; None if its socket has been taken over."""
        try:
            question = understood(line, self._kinds)
            if self._connect is not None and isinstance(question, ConnectQuestion):
                await _switch_protocol(writer, self._connect(question.version))
                return None
            return Answer(msgspec.Raw(msgspec.json.encode(await self._answerer(question))))
        except Leaving as problem:
            return Answer(error=str(problem), leaving=True)
        except QuillcastError as problem:
            return Answer(error=str(problem))


async def connected(path: Path, question: PeerQuestion, kind: type[T], *, timeout_s: float) -> tuple[T, socket.socket]:
    """Ask a question after which the socket stays open; returns the answer and the socket. Raises as `ask` does."""
    loop, own = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        async with asyncio.timeout(timeout_s):
            with _short(path) as short:
                own.connect(short)
            _check_user(own, path)
            await loop.sock_sendall(own, msgspec.json.encode(question) + b"\n")
            line = b""
            while not line.endswith(b"\n") and (part := await loop.sock_recv(own, ANSWER_BYTES_MAX)):
                line += part
        return _understood(path, question, kind, decoder(Answer).decode(line)), own
    except BaseException as problem:
        own.close()
        if isinstance(problem, OSError | msgspec.MsgspecError):
            raise _silent(path, problem) from problem
        raise


def ask(path: Path, question: PeerQuestion, kind: type[T], *, timeout_s: float = ANSWER_TIMEOUT_S) -> T:
    """Ask the peer with the control socket at `path`, and wait for its answer of type `kind`. This blocks.

    Raises `LocalError` if the peer rejects the question, `Unreachable` if it does not answer (`Leaving` if it says so),
    `RemoteError` if its answer is invalid in this version.
    """
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout_s)
            with _short(path) as short:
                link.connect(short)
            _check_user(link, path)
            link.sendall(msgspec.json.encode(question) + b"\n")
            answer = decoder(Answer).decode(_all(link))
    except (OSError, msgspec.MsgspecError) as problem:
        raise _silent(path, problem) from problem
    return _understood(path, question, kind, answer)


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A decoder of a type. Only one thread at a time makes one: msgspec crashes if two are the first to use a type."""
    with BUILDING:
        return msgspec.json.Decoder(kind)


def _check_user(link: socket.socket, path: Path) -> None:
    if local_ipc.process(link)[1] not in (os.geteuid(), 0):
        raise Unreachable(f"the socket {path} belongs to another user, and is not trusted")


def _silent(path: Path, problem: Exception) -> Unreachable:
    why = getattr(problem, "strerror", None) or str(problem) or "it takes too long"
    return Unreachable(f"the peer at {path} does not answer ({why}); does it still run?")


def _understood(path: Path, question: PeerQuestion, kind: type[T], answer: Answer) -> T:
    if answer.error is not None:
        raise (Leaving if answer.leaving else LocalError)(answer.error)
    try:
        return decoder(kind).decode(answer.answer)
    except msgspec.MsgspecError as problem:
        raise RemoteError(
            f"the peer at {path} seems to run another version of quillcast: its answer to "
            f"{name_of(type(question))!r} is not as expected ({problem}); use the same version for both"
        ) from problem


def encoded(answer: Answer) -> bytes:
    """Encode the answer as a line."""
    return msgspec.json.encode(answer) + b"\n"


async def _switch_protocol(writer: asyncio.StreamWriter, protocol: asyncio.BaseProtocol) -> None:
    """Let another protocol serve the socket. The client sends nothing before it has the answer."""
    cast("asyncio.Transport", writer.transport).pause_reading()
    own = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
    writer.transport.abort()
    await local_ipc.serve(asyncio.get_running_loop(), lambda: protocol, own)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _all(link: socket.socket) -> bytes:
    parts = []
    while part := link.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of a socket's path that is short enough for the system, whatever its folder."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
