"""The line to a confined process, on the event loop. Neither side waits for the other."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from quillcast.core.errors import Malformed
from quillcast.live.scopes.agents import Wait
from quillcast.live.scopes.framing import cut, encoded
from quillcast.live.scopes.process import ConfinedProcess

T = TypeVar("T")
_READ_BYTES = 64 << 10
_ENDED_S = 0.05  # for a process to exit after it closed its end of the line; the peer waits for it


class Surroundings:
    """What runs the peer: `hand` gives it an input, `wait` runs a time-out of the event loop (`Patience`)."""

    def __init__(self, hand: Callable[..., None], wait: Callable[[float, Callable[[], object]], Wait]) -> None:
        self.hand, self.wait = hand, wait


class SocketLine(Generic[T]):
    """The line to a process: `came` gets each message, and `failed` the reason if the line becomes unusable."""

    def __init__(
        self, surroundings: Surroundings, process: ConfinedProcess, decoder: "msgspec.msgpack.Decoder[T]",
        came: Callable[[T], None], failed: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.surroundings, self.process, self.decoder = surroundings, process, decoder
        self.came, self.failed = came, failed
        self.loop, self.line = asyncio.get_running_loop(), self.process.line
        self.line.setblocking(False)
        self.unread, self.unsent = bytearray(), bytearray()
        self.loop.add_reader(self.line, self._readable)

    def send(self, message: msgspec.Struct) -> None:
        """Send a message: what the socket accepts now, and the rest when it accepts more."""
        self.unsent += encoded(message)
        self._flush()

    def wait(self, time_s: float, function: Callable[[], object]) -> Wait:
        """Run a time-out; its end is an input."""
        return self.surroundings.wait(time_s, lambda: self.surroundings.hand(function))

    def close(self) -> None:
        """End the process."""
        self.loop.remove_reader(self.line)
        self.loop.remove_writer(self.line)
        self.process.close()

    def _flush(self) -> None:
        try:
            del self.unsent[: self.line.send(self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            return  # the process ended: reading will notice that, too
        if self.unsent:
            self.loop.add_writer(self.line, self._flush)
        else:
            self.loop.remove_writer(self.line)

    def _readable(self) -> None:
        try:
            data = self.line.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.unread += data
            self.surroundings.hand(self._take)
        else:
            self.surroundings.hand(self.failed, self.process.ended(_ENDED_S))

    def _take(self) -> None:
        try:
            for message in cut(self.unread, self.decoder):
                self.came(message)
        except Malformed as error:
            self.failed(f"it sent an invalid answer: {error}")
