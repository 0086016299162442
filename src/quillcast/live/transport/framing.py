"""Frames: how the byte stream of a link is divided.

====== ==== ==============================
offset size field
====== ==== ==============================
0      4    bytes after the header
4      1    type, see `FrameType`
5      3    zero
8      ...  content, by type
====== ==== ==============================

All numbers are little endian. `FrameReader` tells the socket where to put the next bytes. A large frame gets its own
memory, which the receiver of the frame keeps, so that the kernel's copy is usually the only one.

The size in a header is not trusted: memory grows with the bytes that arrive. A large frame starts in spare memory of
the peer, or in `_FIRST_BYTES`, and gets `_GROWTH` times as much whenever that is full. `Unfinished` counts the memory
of a peer's large frames that have not fully arrived. Beyond its limit, the link that has waited longest is closed.
"""

import ctypes
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Protocol

from quillcast.core.errors import Malformed

FRAME_BYTES_MAX = (1 << 24) + (1 << 20)  # the largest event that a topic may allow, 16 MiB, with its columns
CONTROL_BYTES_MAX = 8 << 20  # any other frame; a guess: link reports about 80,000 topics at once
HELLO_BYTES_MAX = 4096  # the limit for unauthenticated peers

_HEADER = struct.Struct("<IB3s")
NUMBER_BYTES = 8  # of credit and pings
HEADER_BYTES = _HEADER.size
_ZEROS = b"\0\0\0"
_BUFFER_BYTES_MIN = 16 << 10
_BUFFER_BYTES_MAX = 64 << 10  # of small frames; a larger frame is read into its own memory
_SPARE_BYTES = 832 << 10  # memory of frames up to this size is reused: a batch with its columns and its head
_SPARE_MAX = 18  # 15 MiB at most, per process; a guess: three windows
_EMPTY = memoryview(b"")
_UNHELD = 2  # what `getrefcount` returns for an object that only the deque holds
_FIRST_BYTES = 256 << 10  # the first memory of a large frame, whatever its header says; a guess
_GROWTH = 4  # a frame's memory is at most this many times its arrived bytes, and a third of it is copied; a guess
_PEEK_BYTES = 4 << 10  # read beyond a large frame: usually another follows, whose header is then known


class FrameType(IntEnum):
    """What a frame holds."""

    HELLO = 1
    """The identity of the sender: `live.transport.hello.Hello`."""
    PROOF = 2
    """A signature over both hellos."""
    SUPERSEDED = 3
    """Another connection between the two peers is kept; this one is closed."""
    CONTROL = 4
    """Waiting control messages: `protocol.wire.encode_all`."""
    BUNDLE = 5
    """One bundle."""
    CREDIT = 6
    """8 bytes: how many more bytes of bundles may be sent."""
    PING = 7
    """8 bytes to send back at once."""
    PONG = 8
    """The 8 bytes of a ping."""
    IDLE = 9
    """This side no longer needs the link, which ends when neither side does. Sending anything takes this back."""
    DONE = 10
    """This side sends nothing more. The other side sends its queues and closes, so nothing in transit is lost."""
    REFUSED = 11
    """Why this side closes the connection, as text; only through TLS, and before the link is up."""
    APPLY = 12
    """A request to admit keys as members: `live.admission.applications.Application`."""
    ADMITTED = 13
    """The certificates for these keys: `live.admission.applications.Admitted`."""
    SHARED_MEMORY = 14
    """This side can open the other side's shared memory: `live.transport.shared_memory`."""
    SHARED_BUNDLE = 15
    """One bundle, with places in shared memory instead of blocks."""
    OPENED = 16
    """8 bytes: how many more exported bundles this side has opened."""
    CALL = 17
    """A client of another peer asks to be served directly: `live.clients.messages.Call`."""
    WELCOME = 18
    """The client is served from now on: `live.clients.messages.Welcome`."""


# for the hot path: accessing an attribute of an enum class takes as long as two calls
BUNDLE, SHARED_BUNDLE = FrameType.BUNDLE, FrameType.SHARED_BUNDLE
_TYPES = {int(type_): type_ for type_ in FrameType}


header: Callable[[int, FrameType], bytes] = struct.Struct("<IB3x").pack
"""The header of a frame with this many bytes of content."""


def frame(type_: FrameType, content: bytes = b"") -> bytes:
    """Make a whole frame."""
    return header(len(content), type_) + content


_unfilled: Callable[[None, int], bytearray] = ctypes.pythonapi.PyByteArray_FromStringAndSize
"""An uninitialised bytearray: `bytearray(size)` would fill it with zeros, which takes as long as a copy."""
_unfilled.restype, _unfilled.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)  # type: ignore[attr-defined]


class FramePool:
    """Reuses the memory of earlier large frames that are no longer referenced: the system zeroes new pages."""

    def __init__(self) -> None:
        self._all: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview | None:
        """Uninitialised memory of this size; None if there is none to reuse."""
        if size > _SPARE_BYTES:
            return None
        for _ in range(min(len(self._all), 2)):  # the oldest is usually free; if not, it may be in use for long
            self._all.rotate(-1)
            if sys.getrefcount(self._all[-1]) == _UNHELD:
                return memoryview(self._all[-1])[:size]
        if len(self._all) == _SPARE_MAX:
            return None
        self._all.append(_unfilled(None, _SPARE_BYTES))
        return memoryview(self._all[-1])[:size]


class Holder(Protocol):
    """The owner of frames: a connection."""

    def holds(self, type_: FrameType, size_bytes: int, /) -> None:
        """A frame that has not fully arrived takes this much memory. Raises `Malformed` if that is too much."""

    def crowd_out(self, held_bytes: int, /) -> None:
        """Too much such memory is in use, and this holder has waited longest: close it."""


class Unfinished:
    """The memory of a peer's large frames that have not fully arrived, by holder."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.bytes = bytes_max, 0
        self._held: dict[Holder, int] = {}  # the one that has waited longest is first

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """Part of the holder's frame arrived and it now takes this much memory; 0 when it is complete or gone.

        Raises `Malformed` if this frame alone exceeds the limit for all.
        """
        self.bytes += size_bytes - self._held.pop(holder, 0)
        if size_bytes:
            self._held[holder] = size_bytes
            while self.bytes > self.bytes_max:
                self._close_first(holder)

    def _close_first(self, latest: Holder) -> None:
        holder = next(iter(self._held))
        held_bytes = self._held.pop(holder)
        self.bytes -= held_bytes
        if holder is latest:
            raise Malformed(f"a part of a frame takes {held_bytes} bytes, and all may take {self.bytes_max}")
        holder.crowd_out(held_bytes)


class FrameReader:
    """Splits what a socket reads into frames: `buffer` is for the next bytes, `frames` yields the completed frames.

    A frame's content belongs to the receiver, and is never overwritten.
    """

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, spare: FramePool | None = None, holder: Holder | None = None
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._spare, self._holder = spare or FramePool(), holder
        self._view = memoryview(bytearray(_BUFFER_BYTES_MIN))
        self._end = 0
        self._limit = _BUFFER_BYTES_MIN  # where the next read into the buffer ends
        self._large: memoryview | None = None  # the content of a large frame up to `_large_end`, and what follows
        self._large_end = self._large_size = 0
        self._large_type = BUNDLE

    def take_up_to(self, frame_bytes_max: int) -> None:
        """Allow frames of this size from now on."""
        self._frame_bytes_max = frame_bytes_max

    def begins_with(self, count: int, *starts: bytes) -> bool:
        """Whether the stream begins with one of these; `count` bytes were just put into the buffer."""
        return self._end + count >= len(starts[0]) and bytes(self._view[: len(starts[0])]) in starts

    def buffer(self) -> memoryview:
        """Where to put the next bytes; never empty."""
        if self._large is not None:
            return self._large[self._large_end :]
        return self._view[self._end : self._limit]

    def release(self) -> None:
        """Release all memory, also that of an incomplete frame: nothing more is read."""
        self._holds(0)
        self._large, self._end, self._view = None, 0, _EMPTY

    def frames(self, count: int) -> Iterable[tuple[FrameType, bytes | memoryview]]:
        """Process `count` bytes in the buffer; yields every frame that is now complete.

        Raises `Malformed` for an invalid header or a frame that is too large. At low rates a read is usually exactly
        one frame, which takes a shortcut.
        """
        if not self._end and self._large is None and HEADER_BYTES <= count < self._limit:
            size, number, zeros = _HEADER.unpack_from(self._view)
            type_ = _TYPES.get(number)
            if size + HEADER_BYTES == count and type_ is not None and zeros == _ZEROS and size <= self._frame_bytes_max:
                return ((type_, bytes(self._view[HEADER_BYTES:count])),)
        return self._several(count)

    def _several(self, count: int) -> Iterator[tuple[FrameType, bytes | memoryview]]:
        """The general case: any number of frames."""
        if self._large is not None:
            self._large_end += count
            count = self._large_end - self._large_size
            if count < 0:
                self._grow(self._large)
                return
            large, self._large = self._large, None
            self._holds(0)
            self._view[:count] = large[self._large_size : self._large_end]
            self._limit = _PEEK_BYTES
            yield self._large_type, large[: self._large_size]
        filled = self._end + count == self._limit
        self._end += count
        at = 0
        try:
            while self._end - at >= HEADER_BYTES:
                size, number, zeros = _HEADER.unpack_from(self._view, at)
                type_ = _TYPES.get(number)
                if type_ is None or zeros != _ZEROS or size > min(self._frame_bytes_max, CONTROL_BYTES_MAX):
                    type_ = self._unusual(number, size, zeros)
                start, stop = at + HEADER_BYTES, at + HEADER_BYTES + size
                if stop <= self._end:
                    at = stop
                    yield type_, bytes(self._view[start:stop])
                elif stop - at <= len(self._view):
                    break
                else:
                    self._begin_large(type_, size, self._view[start : self._end])
                    at = self._end
        finally:
            if at == self._end and not filled:
                self._end = 0
            else:
                self._keep(at, busy=filled)

    def _unusual(self, number: int, size: int, zeros: bytes) -> FrameType:
        """Check an unusual header; returns the frame's type. Raises `Malformed`."""
        type_ = _TYPES.get(number)
        if type_ is None or zeros != _ZEROS:
            raise Malformed(f"unknown frame type {number}")
        bytes_max = self._frame_bytes_max if type_ is BUNDLE else min(self._frame_bytes_max, CONTROL_BYTES_MAX)
        if size > bytes_max:
            raise Malformed(f"a frame of {size} bytes came, at most {bytes_max} are allowed")
        return type_

    def _begin_large(self, type_: FrameType, size: int, came: memoryview) -> None:
        """Begin a frame that does not fit into the buffer: move the arrived bytes to its own memory."""
        self._large_type, self._large_size, self._large_end = type_, size, len(came)
        self._large = self._spare.take(size + _PEEK_BYTES) or self._more(len(came))
        self._holds(len(self._large))
        self._large[: len(came)] = came

    def _grow(self, large: memoryview) -> None:
        """More of a large frame arrived. If its memory is full, move it to a larger one."""
        if self._large_end == len(large):
            more = self._more(self._large_end)
            self._holds(len(more))
            more[: self._large_end] = large
            self._large = more
        else:
            self._holds(len(large))

    def _more(self, arrived_bytes: int) -> memoryview:
        """Memory for a frame of which this much arrived, and for the bytes that are read after its end."""
        return memoryview(
            _unfilled(None, min(self._large_size + _PEEK_BYTES, max(_FIRST_BYTES, _GROWTH * arrived_bytes)))
        )

    def _holds(self, size_bytes: int) -> None:
        if self._holder is not None:
            self._holder.holds(self._large_type, min(size_bytes, self._large_size))

    def _keep(self, at: int, *, busy: bool) -> None:
        """Move the rest to the front. If a read filled the buffer, use a larger one."""
        left = self._end - at
        if busy and self._limit == len(self._view) < _BUFFER_BYTES_MAX:
            larger = memoryview(bytearray(2 * len(self._view)))
            larger[:left] = self._view[at : self._end]
            self._view = larger
        elif at and left:
            self._view[:left] = self._view[at : self._end]
        self._end = left
        if busy or left >= _PEEK_BYTES:
            self._limit = len(self._view)
