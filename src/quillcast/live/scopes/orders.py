"""What a process and the process of its policy say to each other: MessagePack, each message after its size."""

import math
import socket
import struct
import time
from typing import Any, TypeVar

import msgspec

from quillcast.core.errors import LocalError, Malformed
from quillcast.core.messages import decoded
from quillcast.protocol.scopes.policy import Delivery, Group, WantedChannel

T = TypeVar("T")
BYTES_MAX = 32 << 20  # of one message; a guess: channels for a thousand members that all send
_SIZE = struct.Struct("<I")


class Make(msgspec.Struct, frozen=True, tag=True):
    """Make a policy: of the class that `module:Class` names, or of a class in a file with this content."""

    name: str
    reference: str
    parameters: dict[str, Any]
    content: bytes = b""


class AskFanOut(msgspec.Struct, frozen=True, tag=True):
    """What is the policy's bound for this group?"""

    group: Group


class AskChannels(msgspec.Struct, frozen=True, tag=True):
    """Which channels does the policy want?"""

    group: Group
    standing: tuple[WantedChannel, ...]


class RoundTripsAre(msgspec.Struct, frozen=True, tag=True):
    """The measured round trips from one member to each, in the order of the group."""

    seconds: tuple[float | None, ...]


Order = Make | AskFanOut | AskChannels | RoundTripsAre


class Made(msgspec.Struct, frozen=True, tag=True):
    """The policy exists."""

    delivery: Delivery
    about: str
    """The first line of what its class says of itself."""
    mechanism: str = ""
    """Its multicast mechanism, if it has one."""


class FanOutIs(msgspec.Struct, frozen=True, tag=True):
    """The answer to `AskFanOut`."""

    bound: int


class ChannelsAre(msgspec.Struct, frozen=True, tag=True):
    """The answer to `AskChannels`, and the policy's bound for the group."""

    channels: tuple[WantedChannel, ...]
    bound: int


class AskRoundTrips(msgspec.Struct, frozen=True, tag=True):
    """The policy wants to know how far one member is from the others."""

    source: int


class PolicyFailed(msgspec.Struct, frozen=True, tag=True):
    """The policy raised an exception; the text says which one, and where."""

    why: str


Answer = Made | FanOutIs | ChannelsAre | AskRoundTrips | PolicyFailed

_ENCODER = msgspec.msgpack.Encoder()
ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
ANSWERS: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encoded(message: Order | Answer) -> bytes:
    """A message as it is sent. Raises `LocalError` if it is too large."""
    data = _ENCODER.encode(message)
    if len(data) > BYTES_MAX:
        raise LocalError(f"{type(message).__name__} has {len(data)} bytes; the most is {BYTES_MAX}")
    return _SIZE.pack(len(data)) + data


def left_until(deadline: float) -> float:
    """The seconds until a deadline. Raises `TimeoutError` when it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def receive(line: socket.socket, decoder: "msgspec.msgpack.Decoder[T]", deadline: float = math.inf) -> T:
    """The next message. Raises `EOFError`, `OSError`, `TimeoutError` when the deadline passes, and `Malformed`."""
    (size,) = _SIZE.unpack(_exactly(line, _SIZE.size, deadline))
    if size > BYTES_MAX:
        raise Malformed(f"a message has {size} bytes; the most is {BYTES_MAX}")
    return decoded(decoder, _exactly(line, size, deadline), "message of a policy's process")


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
