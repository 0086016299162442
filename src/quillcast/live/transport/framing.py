"""Frames: how a link's stream of bytes is cut.

====== ==== ==============================
offset size what
====== ==== ==============================
0      4    bytes after the header
4      1    type, see `FrameType`
5      3    zero
8      ...  what the type says
====== ==== ==============================

All numbers are little endian. `FrameReader` says where the next bytes go: those of a large frame into memory of its
own, which whoever takes the frame keeps, so that the kernel's copy is mostly the only one.

A header is a claim, and memory follows what has arrived: a large frame begins in memory that the peer keeps for such
frames, or in `_FIRST_BYTES`, and gets `_GROWTH` times as much whenever that is full. `Unfinished` knows what all large
frames of a peer take that have not arrived in full. Beyond its bound the link closes that has waited longest for more.
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
CONTROL_BYTES_MAX = 8 << 20  # any other frame; a guess: what a neighbour tells about 80,000 topics at once
HELLO_BYTES_MAX = 4096  # strangers may say that much

_HEADER = struct.Struct("<IB3s")
NUMBER_BYTES = 8  # of credit and pings
HEADER_BYTES = _HEADER.size
_ZEROS = b"\0\0\0"
_BUFFER_BYTES_MIN = 16 << 10
_BUFFER_BYTES_MAX = 64 << 10  # of small frames; a frame that is larger is read into memory of its own
_SPARE_BYTES = 832 << 10  # memory of frames up to this size is used again: a batch with its columns and its head
_SPARE_MAX = 18  # 15 MiB at most, of a process; a guess: three windows
_EMPTY = memoryview(b"")
_UNHELD = 2  # references to what only the deque holds, as `getrefcount` counts
_FIRST_BYTES = 256 << 10  # what a large frame begins in, whatever its header says; a guess
_GROWTH = 4  # a frame's memory is then at most so many times what has come, and a third of a frame is copied; a guess
_PEEK_BYTES = 4 << 10  # read behind a large frame along with it: mostly another follows, and so its header is known


class FrameType(IntEnum):
    """What a frame holds."""

    HELLO = 1
    """Who is there: `live.transport.hello.Hello`."""
    PROOF = 2
    """A signature over both hellos."""
    SUPERSEDED = 3
    """Another connection between the two peers is kept; this one closes."""
    CONTROL = 4
    """The control messages that waited: `protocol.wire.encode_all`."""
    BUNDLE = 5
    """One bundle."""
    CREDIT = 6
    """8 bytes: how many more bytes of bundles may come."""
    PING = 7
    """8 bytes to send back at once."""
    PONG = 8
    """The 8 bytes of a ping."""
    IDLE = 9
    """This side needs the link no more; it ends when neither does. What is sent after it takes it back."""
    DONE = 10
    """Nothing follows from this side. The other one sends what waits, and closes: nothing under way is lost."""
    REFUSED = 11
    """Why this side closes the connection, in words; only through TLS, and before the link is up."""
    APPLY = 12
    """Take these keys in as members: `live.admission.applications.Application`."""
    ADMITTED = 13
    """Their certificates: `live.admission.applications.Admitted`."""
    SHARED_MEMORY = 14
    """This side may open what the other one's process lends: `live.transport.shared_memory`."""
    SHARED_BUNDLE = 15
    """One bundle, with places where its blocks are lent instead of them."""
    OPENED = 16
    """8 bytes: how many more lent bundles this side has opened."""


BUNDLE = FrameType.BUNDLE  # for every bundle: to ask the class for it takes as long as two calls
_TYPES = {int(type_): type_ for type_ in FrameType}


header: Callable[[int, FrameType], bytes] = struct.Struct("<IB3x").pack
"""The header of a frame that goes on for so many bytes."""


def frame(type_: FrameType, content: bytes = b"") -> bytes:
    """A whole frame."""
    return header(len(content), type_) + content


_unfilled: Callable[[None, int], bytearray] = ctypes.pythonapi.PyByteArray_FromStringAndSize
"""A bytearray whose content is anything: `bytearray(size)` would fill it with zeros, which takes as long as a copy."""
_unfilled.restype, _unfilled.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)  # type: ignore[attr-defined]


class Spare:
    """Memory for large frames: that of earlier ones which nobody holds any more, for the system zeroes new pages."""

    def __init__(self) -> None:
        self._all: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview | None:
        """Memory of this size, whose content is anything; None if there is none to spare."""
        if size > _SPARE_BYTES:
            return None
        for _ in range(min(len(self._all), 2)):  # the oldest is mostly free; one that is not may be held for long
            self._all.rotate(-1)
            if sys.getrefcount(self._all[-1]) == _UNHELD:
                return memoryview(self._all[-1])[:size]
        if len(self._all) == _SPARE_MAX:
            return None
        self._all.append(_unfilled(None, _SPARE_BYTES))
        return memoryview(self._all[-1])[:size]


class Holder(Protocol):
    """Whose frames they are: a connection."""

    def holds(self, type_: FrameType, size_bytes: int, /) -> None:
        """So much memory is taken by a frame that has not arrived in full. Raises `Malformed` if that is too much."""
        ...

    def crowd_out(self, held_bytes: int, /) -> None:
        """There is too much of such memory, and this one has waited longest: let go of it."""
        ...


class Unfinished:
    """What a peer's large frames take that have not arrived in full, and whose they are."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.bytes = bytes_max, 0
        self._held: dict[Holder, int] = {}  # who waits longest for more comes first

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """More of the holder's frame came, and it takes so much memory now; 0 when it is whole or gone.

        Raises `Malformed` if this frame alone takes more than all may.
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
    """Finds frames in what a socket reads: `buffer` says where the next bytes go, `frames` what they complete.

    A frame's content is the taker's to keep, and nobody writes to it any more.
    """

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, spare: Spare | None = None, holder: Holder | None = None
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._spare, self._holder = spare or Spare(), holder
        self._view = memoryview(bytearray(_BUFFER_BYTES_MIN))
        self._end = 0
        self._limit = _BUFFER_BYTES_MIN  # where the next read into the buffer ends
        self._large: memoryview | None = None  # a large frame's content, as far as `_large_end`, and what follows it
        self._large_end = self._large_size = 0
        self._large_type = BUNDLE

    def begins_with(self, count: int, *starts: bytes) -> bool:
        """Are the first bytes that come, with the `count` just put into the buffer, one of these?"""
        return self._end + count >= len(starts[0]) and bytes(self._view[: len(starts[0])]) in starts

    def buffer(self) -> memoryview:
        """Where to put the bytes that come next: never empty."""
        if self._large is not None:
            return self._large[self._large_end :]
        return self._view[self._end : self._limit]

    def release(self) -> None:
        """Nothing more is read: let all memory go, also that of a frame that has not arrived in full."""
        self._holds(0)
        self._large, self._end, self._view = None, 0, _EMPTY

    def frames(self, count: int) -> Iterable[tuple[FrameType, bytes | memoryview]]:
        """Take note of `count` bytes put into the buffer; yields every frame that is whole now.

        Raises `Malformed` at a header that is none, or that announces more than may come. Where events are few it is
        mostly one frame and nothing else, which takes fewer steps.
        """
        if not self._end and self._large is None and HEADER_BYTES <= count < self._limit:
            size, number, zeros = _HEADER.unpack_from(self._view)
            type_ = _TYPES.get(number)
            if size + HEADER_BYTES == count and type_ is not None and zeros == _ZEROS and size <= self.frame_bytes_max:
                return ((type_, bytes(self._view[HEADER_BYTES:count])),)
        return self._several(count)

    def _several(self, count: int) -> Iterator[tuple[FrameType, bytes | memoryview]]:
        """The same for whatever comes."""
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
                type_, size = self._header(at)
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

    def _header(self, at: int) -> tuple[FrameType, int]:
        """The type and size of the frame that begins here. Raises `Malformed`."""
        size, number, zeros = _HEADER.unpack_from(self._view, at)
        type_ = _TYPES.get(number)
        if type_ is None or zeros != _ZEROS:
            raise Malformed(f"a frame of type {number} is none of ours")
        bytes_max = self.frame_bytes_max if type_ is BUNDLE else min(self.frame_bytes_max, CONTROL_BYTES_MAX)
        if size > bytes_max:
            raise Malformed(f"a frame of {size} bytes came, at most {bytes_max} are allowed")
        return type_, size

    def _begin_large(self, type_: FrameType, size: int, came: memoryview) -> None:
        """A frame that the buffer cannot hold: what came of it moves to memory of its own, and the rest goes there."""
        self._large_type, self._large_size, self._large_end = type_, size, len(came)
        self._large = self._spare.take(size + _PEEK_BYTES) or self._more(len(came))
        self._holds(len(self._large))
        self._large[: len(came)] = came

    def _grow(self, large: memoryview) -> None:
        """More of a large frame came, and not all: where its memory is full it moves to a larger one."""
        if self._large_end == len(large):
            more = self._more(self._large_end)
            self._holds(len(more))
            more[: self._large_end] = large
            self._large = more
        else:
            self._holds(len(large))

    def _more(self, arrived_bytes: int) -> memoryview:
        """Memory for a frame of which so much arrived, and for what is read along with its end."""
        return memoryview(
            _unfilled(None, min(self._large_size + _PEEK_BYTES, max(_FIRST_BYTES, _GROWTH * arrived_bytes)))
        )

    def _holds(self, size_bytes: int) -> None:
        if self._holder is not None:
            self._holder.holds(self._large_type, min(size_bytes, self._large_size))

    def _keep(self, at: int, *, busy: bool) -> None:
        """Move what is left to the front. A read that filled the buffer asks for a larger one."""
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
