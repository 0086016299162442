"""Frames: how a link's stream of bytes is cut.

====== ==== ==============================
offset size what
====== ==== ==============================
0      4    bytes after the header
4      1    type, see `FrameType`
5      3    zero
8      ...  what the type says
====== ==== ==============================

All numbers are little endian. `FrameReader` is fed through a buffer of its own, so that the kernel's bytes are copied
once more at most: by whoever keeps what a frame holds.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

from quillcast.core.errors import Malformed

FRAME_BYTES_MAX = (1 << 24) + (1 << 20)  # the largest event that a topic may allow, 16 MiB, with its columns
HELLO_BYTES_MAX = 4096  # strangers may say that much

_HEADER = struct.Struct("<IB3s")
HEADER_BYTES = _HEADER.size
_ZEROS = b"\0\0\0"
_BUFFER_BYTES_MIN = 16 << 10
_BUFFER_BYTES_MAX = 512 << 10  # two blocks as publishers seal them; measured: more does not pay


class FrameType(IntEnum):
    """What a frame holds."""

    HELLO = 1
    """Who is there: `live.hello.Hello`."""
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
    """Take these keys in as members: `live.admission.Application`."""
    ADMITTED = 13
    """Their certificates: `live.admission.Admitted`."""


_TYPES = {int(type_): type_ for type_ in FrameType}


def header(type_: FrameType, size_bytes: int) -> bytes:
    """The header of a frame that goes on for `size_bytes`."""
    return _HEADER.pack(size_bytes, type_, _ZEROS)


def frame(type_: FrameType, content: bytes = b"") -> bytes:
    """A whole frame."""
    return _HEADER.pack(len(content), type_, _ZEROS) + content


class FrameReader:
    """Finds frames in what a socket reads: `buffer` says where the next bytes go, `frames` what they complete.

    A frame's content is a view of the buffer and good until the next call of `buffer`.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._view = memoryview(bytearray(_BUFFER_BYTES_MIN))
        self._end = 0
        self._missing = 0

    def begins_with(self, count: int, *starts: bytes) -> bool:
        """Are the first bytes that come, with the `count` just put into the buffer, one of these?"""
        return self._end + count >= len(starts[0]) and bytes(self._view[: len(starts[0])]) in starts

    def buffer(self) -> memoryview:
        """Where to put the bytes that come next: never empty."""
        if self._missing or len(self._view) > _BUFFER_BYTES_MAX:
            self._resize()
        return self._view[self._end :]

    def frames(self, count: int) -> Iterator[tuple[FrameType, memoryview]]:
        """Take note of `count` bytes put into the buffer; yields every frame that is whole now.

        Raises `Malformed` at a header that is none, or that announces more than `frame_bytes_max`.
        """
        filled = self._end + count == len(self._view)
        self._end += count
        at = 0
        try:
            while (parsed := self._frame(at)) is not None:
                type_, stop = parsed
                yield type_, self._view[at + HEADER_BYTES : stop]
                at = stop
        finally:
            self._keep(at, busy=filled)

    def _frame(self, at: int) -> tuple[FrameType, int] | None:
        """Type and end of the frame that begins at `at`; None while it is not whole."""
        if self._end - at < HEADER_BYTES:
            self._missing = 0
            return None
        size, type_, zeros = _HEADER.unpack_from(self._view, at)
        if zeros != _ZEROS or type_ not in _TYPES:
            raise Malformed(f"a frame of type {type_} is none of ours")
        if size > self.frame_bytes_max:
            raise Malformed(f"a frame of {size} bytes came, at most {self.frame_bytes_max} are allowed")
        stop = at + HEADER_BYTES + size
        self._missing = max(0, stop - self._end)
        return None if self._missing else (_TYPES[type_], stop)

    def _keep(self, at: int, *, busy: bool) -> None:
        """Move what is left to the front. A read that filled the buffer asks for a larger one."""
        left = self._end - at
        if busy and len(self._view) < _BUFFER_BYTES_MAX:
            self._replace(2 * len(self._view), at)
        elif at and left:
            self._view[:left] = self._view[at : self._end]
        self._end = left

    def _resize(self) -> None:
        """Make room for the whole of a large frame, and give that room back after it."""
        needed = self._end + self._missing
        if needed > len(self._view):
            self._replace(needed, 0)
        elif needed <= _BUFFER_BYTES_MAX < len(self._view):
            self._replace(_BUFFER_BYTES_MAX, 0)

    def _replace(self, size_bytes: int, at: int) -> None:
        larger = memoryview(bytearray(size_bytes))
        larger[: self._end - at] = self._view[at : self._end]
        self._view = larger
