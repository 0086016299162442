"""What a peer and the process of a recovery agent say to each other.

The peer gives one order at a time. The process asks and says what it has to, in that order, and then `Done`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from quillcast.core.messages import Contact
from quillcast.core.ranges import Range
from quillcast.protocol.reliability.domain import Findings, RecoveryTimes, StreamId
from quillcast.protocol.reliability.messages import PROTOCOL_NAME_MAX

DELAY_MAX_S = 86_400.0  # of a timer; a guess: nobody seeks for a day


class Misbehaved(Exception):
    """The agent did what no agent may; the text says what."""


class MakeAgent(msgspec.Struct, frozen=True, tag=True):
    """Make an agent of the class that `module:Class` names."""

    name: Annotated[str, Meta(max_length=PROTOCOL_NAME_MAX)]
    reference: str
    member: Contact
    scope: bytes
    times: RecoveryTimes
    seed: int
    """Of its random numbers."""


class Follow(msgspec.Struct, frozen=True, tag=True):
    """These members come next in the circle."""

    others: tuple[Contact, ...]


class Find(msgspec.Struct, frozen=True, tag=True):
    """Where are these ranges?"""

    stream: StreamId
    lacks: list[Range]
    neighbours: tuple[Contact, ...]
    at_border: bool


class Filled(msgspec.Struct, frozen=True, tag=True):
    """Nothing of the stream is lacking."""

    stream: StreamId


class Heard(msgspec.Struct, frozen=True, tag=True):
    """The agent of another member said this."""

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
    """An order, and the time of the peer's clock."""

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
    """What does the member hold of these?"""

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
    """There are other findings."""

    stream: StreamId


class FindingsAre(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Find`."""

    findings: Findings


class Done(msgspec.Struct, frozen=True, tag=True):
    """The order is carried out."""


class AgentFailed(msgspec.Struct, frozen=True, tag=True):
    """The agent raised an exception or did what no agent may; the text says what."""

    why: str


FromAgent = (
    AskHolds | AskLacks | AskRoundTrip | Say | SetTimer | MarkIt | Found | FindingsAre | Done | AgentFailed
)  # fmt: skip
TO_AGENT: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)
FROM_AGENT: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
