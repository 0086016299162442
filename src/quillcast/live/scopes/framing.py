"""The messages between a process and one that it confines: MessagePack, each preceded by its size."""

import math
import socket
import struct
import time
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from quillcast.core.errors import LocalError, Malformed
from quillcast.core.messages import decoded

T = TypeVar("T")
BYTES_MAX = 32 << 20  # of one message; a guess: channels for a thousand members that all send
_ENCODER = msgspec.msgpack.Encoder()
_SIZE = struct.Struct("<I")


def encoded(message: msgspec.Struct) -> bytes:
    """Encode a message. Raises `LocalError` if it is too large."""
    data = _ENCODER.encode(message)
    if len(data) > BYTES_MAX:
        raise LocalError(f"{type(message).__name__} has {len(data)} bytes; the most is {BYTES_MAX}")
    return _SIZE.pack(len(data)) + data


def cut(buffer: bytearray, decoder: "msgspec.msgpack.Decoder[T]") -> Iterator[T]:
    """Take the complete messages from the front of the received bytes. Raises `Malformed`."""
    while len(buffer) >= _SIZE.size:
        end = _SIZE.size + _checked(*_SIZE.unpack_from(buffer))
        if len(buffer) < end:
            return
        data = bytes(memoryview(buffer)[_SIZE.size : end])
        del buffer[:end]
        yield decoded(decoder, data, "message of a confined process")


def receive(line: socket.socket, decoder: "msgspec.msgpack.Decoder[T]", deadline: float = math.inf) -> T:
    """Receive the next message. Raises `EOFError`, `OSError`, `TimeoutError` at the deadline, and `Malformed`."""
    size = _checked(*_SIZE.unpack(_exactly(line, _SIZE.size, deadline)))
    return decoded(decoder, _exactly(line, size, deadline), "message of a confined process")


def left_until(deadline: float) -> float:
    """The seconds until a deadline. Raises `TimeoutError` if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _checked(size: int) -> int:
    if size > BYTES_MAX:
        raise Malformed(f"a message has {size} bytes; the most is {BYTES_MAX}")
    return size


def _exactly(line: socket.socket, size: int, deadline: float) -> bytes:
    parts, left = list[bytes](), size
    while left:
        if deadline < math.inf:
            line.settimeout(left_until(deadline))
        part = line.recv(min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
