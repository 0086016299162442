"""The messages between a peer and the process of a recovery agent.

The peer gives one order at a time. The process answers with questions and messages, in order, and then with `Done`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from quillcast.core.messages import Contact
from quillcast.core.ranges import Range
from quillcast.protocol.reliability.domain import Findings, RecoveryTimes, StreamId
from quillcast.protocol.reliability.messages import PROTOCOL_NAME_MAX

DELAY_MAX_S = 86_400.0  # of a timer; a guess: no search takes a day


class Misbehaved(Exception):
    """The agent did something that is not allowed; the text says what."""


class MakeAgent(msgspec.Struct, frozen=True, tag=True):
    """Make an agent of the class `module:Class`."""

    name: Annotated[str, Meta(max_length=PROTOCOL_NAME_MAX)]
    reference: str
    member: Contact
    scope: bytes
    times: RecoveryTimes
    seed: int
    """Seeds its random numbers."""


class Follow(msgspec.Struct, frozen=True, tag=True):
    """These members are next in the circle."""

    others: tuple[Contact, ...]


class Find(msgspec.Struct, frozen=True, tag=True):
    """Where are these ranges?"""

    stream: StreamId
    lacks: list[Range]
    neighbours: tuple[Contact, ...]
    at_border: bool


class Filled(msgspec.Struct, frozen=True, tag=True):
    """The stream has no more gaps."""

    stream: StreamId


class Heard(msgspec.Struct, frozen=True, tag=True):
    """The agent of another member sent this."""

    sender: Contact
    body: bytes


class Due(msgspec.Struct, frozen=True, tag=True):
    """The timer with this number is due."""

    number: int


class LinkLost(msgspec.Struct, frozen=True, tag=True):
    """A peer cannot be reached."""

    node: bytes


Task = MakeAgent | Follow | Find | Filled | Heard | Due | LinkLost


class Begin(msgspec.Struct, frozen=True, tag=True):
    """An order, and the time by the peer's clock."""

    now_s: float
    task: Task


class RangesAre(msgspec.Struct, frozen=True, tag=True):
    """The answer to `AskHolds` and `AskLacks`."""

    ranges: list[Range]


class RoundTripIs(msgspec.Struct, frozen=True, tag=True):
    """The answer to `AskRoundTrip`."""

    seconds: float | None


ToAgent = Begin | RangesAre | RoundTripIs


class AskHolds(msgspec.Struct, frozen=True, tag=True):
    """Which of these does the member hold?"""

    stream: StreamId
    among: list[Range]


class AskLacks(msgspec.Struct, frozen=True, tag=True):
    """What does the member lack?"""

    stream: StreamId


class AskRoundTrip(msgspec.Struct, frozen=True, tag=True):
    """How far is this peer?"""

    node: bytes


class Say(msgspec.Struct, frozen=True, tag=True):
    """Send this to the agent of another member."""

    to: Contact
    body: bytes


class SetTimer(msgspec.Struct, frozen=True, tag=True):
    """Set a timer."""

    number: int
    delay_s: Annotated[float, Meta(le=DELAY_MAX_S)]


class MarkIt(msgspec.Struct, frozen=True, tag=True):
    """Record a mark."""

    name: Annotated[str, Meta(max_length=PROTOCOL_NAME_MAX)]


class Found(msgspec.Struct, frozen=True, tag=True):
    """The findings have changed."""

    stream: StreamId


class FindingsAre(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Find`."""

    findings: Findings


class Done(msgspec.Struct, frozen=True, tag=True):
    """The order has been carried out."""


class AgentFailed(msgspec.Struct, frozen=True, tag=True):
    """The agent raised an exception or did something that is not allowed; the text says what."""

    why: str


FromAgent = (
    AskHolds | AskLacks | AskRoundTrip | Say | SetTimer | MarkIt | Found | FindingsAre | Done | AgentFailed
)  # fmt: skip
TO_AGENT: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
FROM_AGENT: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
