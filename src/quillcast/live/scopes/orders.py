"""The messages between a process and the process of its policy."""

from typing import Any

import msgspec

from quillcast.protocol.scopes.policy import Delivery, Group, WantedChannel


class Make(msgspec.Struct, frozen=True, tag=True):
    """Make a policy: of the class `module:Class`, or of a class in a file with this content."""

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
    present: tuple[WantedChannel, ...]


class RoundTripsAre(msgspec.Struct, frozen=True, tag=True):
    """The measured round trips from one member to all, in the order of the group."""

    seconds: tuple[float | None, ...]


Order = Make | AskFanOut | AskChannels | RoundTripsAre


class Made(msgspec.Struct, frozen=True, tag=True):
    """The policy exists."""

    delivery: Delivery
    about: str
    """The first line of its class's docstring."""
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
    """The policy asks for the round trips from one member to the others."""

    source: int


class PolicyFailed(msgspec.Struct, frozen=True, tag=True):
    """The policy raised an exception; the text says which one and where."""

    why: str


OrderAnswer = Made | FanOutIs | ChannelsAre | AskRoundTrips | PolicyFailed

ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
ANSWERS: msgspec.msgpack.Decoder[OrderAnswer] = msgspec.msgpack.Decoder(OrderAnswer)
