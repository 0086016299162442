"""One link: the queues for the peer at its other end, and the credit that bundles use.

A link has three queues: small frames (credit, pings), control messages, bundles. Once per turn it writes them in one
call and in this order, so that control overtakes data. It gives the socket at most `write_bytes_max` ahead of the
kernel; the rest stays with the sender, which sees that there is no room.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed
from quillcast.core.host import makes_room
from quillcast.core.messages import Contact, Message
from quillcast.live.config import LiveConfig
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.framed import Framed
from quillcast.live.transport.framing import CONTROL_BYTES_MAX, FRAME_BYTES_MAX, NUMBER_BYTES, FrameType, frame
from quillcast.live.transport.transport import Part

_CREDIT_PARTS = 8  # credit returns by itself in eighths of the window
_CREDIT_PARTS_MAX = 64  # smaller parts of the window wait; otherwise each lone event would send a credit frame; a guess
_JOINED_BYTES_MAX = 64 << 10  # smaller parts are joined before writing; a guess: a copy is cheaper than a vector


class ControlCodec(Protocol):
    """Encodes the content of control frames; implemented by `protocol.wire`."""

    def encode_all(self, messages: list[Message], /) -> bytes:
        """Encode the messages."""

    def decode_all(self, data: bytes, /) -> list[Any]:
        """Decode messages. Raises `Malformed`."""


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What all links of a peer share."""

    pump: Pump
    config: LiveConfig
    codec: ControlCodec
    counters: Counter[str]
    mark_dirty: "Callable[[Link], None]"
    """Called when a link gets something to write, and again only after it has written."""

    def count_bundle(self, size_bytes: int) -> None:
        """Count a bundle that arrived."""
        self.counters["bundles_in"] += 1
        self.counters["bytes_in"] += size_bytes

    def count_message(self) -> None:
        """Count a control message that arrived."""
        self.counters["messages_in"] += 1


class Link:
    """The connection to one peer, open or being opened, and its queues."""

    def __init__(self, context: LinkContext, contact: Contact) -> None:
        self.context, self.contact = context, contact
        self.connection: Framed | None = None
        self.credit = self.window = context.config.window_bytes  # those of the other side, once known
        self.charged = 0  # bytes of bundles that arrived and have not been released
        self.owed = 0  # bytes released but not yet returned as credit
        self.paused = False
        self.idle_here = self.idle_there = False
        self.dirty = False  # whether it has something to write at the end of this turn
        self._frames: list[bytes] = []
        self._messages: list[Message] = []
        self._bundles: deque[Bundle] = deque()

    @property
    def room(self) -> int:
        """Bytes of bundles that may be sent."""
        return 0 if self.paused else self.credit

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait in this process: bundles and the socket's queue."""
        queued = self.connection.transport.stream.get_write_buffer_size() if self.connection else 0
        return queued + sum(bundle.size for bundle in self._bundles)

    @property
    def waiting_messages(self) -> int:
        """How many control messages wait."""
        return len(self._messages)

    def is_idle(self) -> bool:
        """Whether the queue of bundles is empty."""
        return not self._bundles

    def send(self, message: Message) -> None:
        """Queue a control message."""
        self.idle_here = False
        self._messages.append(message)
        if not self.dirty:
            self.dirty = True
            self.context.mark_dirty(self)

    def carry(self, bundle: Bundle) -> None:
        """Queue a bundle, and charge it to the credit."""
        self.idle_here = False
        self._bundles.append(bundle)
        self.credit -= bundle.size
        if not self.dirty:
            self.dirty = True
            self.context.mark_dirty(self)

    def say(self, type_: FrameType, content: bytes = b"") -> None:
        """Queue a small frame."""
        self._frames.append(frame(type_, content))
        self.mark_dirty()

    def leave(self) -> None:
        """Tell the other side that this side no longer needs the link."""
        self.idle_here = True
        self.say(FrameType.IDLE)

    def finish(self) -> None:
        """Send nothing more on this connection. If the link gets another connection, it is in use again."""
        self.idle_here = False
        self.say(FrameType.DONE)

    def credited(self, size_bytes: int) -> None:
        """Credit was returned."""
        before_bytes, self.credit = self.credit, min(self.credit + size_bytes, self.window)
        if before_bytes <= self.window * 3 // 8:  # otherwise there was room for all senders (`makes_room`)
            self._credit_rose(before_bytes)

    def came(self, size_bytes: int) -> None:
        """A bundle arrived, and is charged until its release. Raises `Malformed` if it overdrew the credit."""
        self.idle_there = False
        self.charged += size_bytes
        window_bytes = self.context.config.window_bytes
        if self.charged > window_bytes + FRAME_BYTES_MAX:
            raise Malformed(f"{self.charged} bytes came on a window of {window_bytes}")

    def release(self, size_bytes: int) -> None:
        """Return credit for bundles that came, in parts."""
        self.charged -= size_bytes
        self.owed += size_bytes
        if not self.dirty and self.owed * _CREDIT_PARTS >= self.context.config.window_bytes:
            self.mark_dirty()

    def note_idle_there(self, *, idle: bool) -> None:
        """Whether the other side needs the link."""
        self.idle_there = idle

    def arrives(self, size_bytes: int) -> None:
        """Part of a bundle of this size has arrived. Raises `Malformed` if it overdraws the credit."""
        window_bytes = self.context.config.window_bytes
        if self.charged + size_bytes > window_bytes + FRAME_BYTES_MAX:
            raise Malformed(f"{self.charged} bytes came, and {size_bytes} of one more, on a window of {window_bytes}")

    def close(self) -> None:
        """Close the connection when the other side has everything, or after a time-out."""
        assert self.connection is not None
        self.connection.transport.finish(self.connection.close)

    def pause(self) -> None:
        """The socket accepts no more bytes for now."""
        self.paused = True

    def resume(self) -> None:
        """The socket accepts bytes again."""
        self.paused = False
        self.mark_dirty()
        self._credit_rose(0)

    def adopt(self, connection: Framed, contact: Contact, window_bytes: int) -> None:
        """Use this connection to a peer with a window of this many bytes."""
        self.connection, self.contact = connection, contact
        self.credit += window_bytes - self.window
        self.window = window_bytes
        self.mark_dirty()

    def lost(self, connection: Framed) -> None:
        """A connection of this link has ended: discard it, and everything that waits for it."""
        if self.connection is connection:
            self.connection = None
            for waiting in (self._frames, self._messages, self._bundles):
                waiting.clear()

    @property
    def is_open(self) -> bool:
        """Whether it can write now."""
        connection = self.connection
        return connection is not None and not (connection.closing or connection.transport.stream.is_closing())

    def flush(self) -> bool:
        """Write the queues in one call, bundles up to `write_bytes_max`; returns whether there were any bundles."""
        self.dirty = False
        connection, config, bundles = self.connection, self.context.config, self._bundles
        if connection is None or connection.closing or connection.transport.stream.is_closing():
            return False
        transport = connection.transport
        gives_credit = self.owed * _CREDIT_PARTS_MAX >= config.window_bytes
        parts = self._small_parts(gives_credit) if self._frames or self._messages or gives_credit else []
        size_bytes = sum(map(len, parts)) if parts else 0
        carried_bytes = 0
        while bundles and not self.paused and carried_bytes < config.write_bytes_max:
            carried_bytes += transport.pack(bundles.popleft(), parts)
        if parts:
            size_bytes += carried_bytes
            transport.write([b"".join(parts)] if size_bytes <= _JOINED_BYTES_MAX else parts)
            self.context.counters["bytes_out"] += size_bytes
        if bundles and not self.paused:
            self.mark_dirty()
        if transport.stream.get_write_buffer_size() > config.unread_bytes_max:
            connection.abort()
        return carried_bytes > 0

    def _small_parts(self, gives_credit: bool) -> list[Part]:
        """Everything except bundles."""
        parts: list[Part] = [*self._frames]
        self._frames = []
        if gives_credit:
            parts.append(frame(FrameType.CREDIT, self.owed.to_bytes(NUMBER_BYTES, "little")))
            self.owed = 0
        if self._messages:
            messages, self._messages = self._messages, []
            parts += self._control_frames(messages)
        return parts

    def _control_frames(self, messages: list[Message]) -> list[bytes]:
        content = self.context.codec.encode_all(messages)
        if len(content) <= CONTROL_BYTES_MAX:
            return [frame(FrameType.CONTROL, content)]
        half = len(messages) // 2
        if half == 0:
            raise ValueError(f"a {type(messages[0]).__name__} of {len(content)} bytes is larger than any frame")
        return self._control_frames(messages[:half]) + self._control_frames(messages[half:])

    def mark_dirty(self) -> None:
        """Schedule the link to write at the end of this turn."""
        if not self.dirty:
            self.dirty = True
            self.context.mark_dirty(self)

    def _credit_rose(self, before_bytes: int) -> None:
        """There is more credit than before: tell the senders that had none."""
        if not self.paused and makes_room(before_bytes, self.credit, self.window):
            self.context.pump.hand(self.context.pump.inputs.room, self.contact)
