"""A recovery domain: the members of a scope that repair its topics among themselves (QuickSilver, *Recovery Domains*).

A domain runs one recovery protocol for all topics that use it, and each member has an agent in it. The agent
sees two interfaces. Through the bottom one (`Bottom`) it learns what its member holds and lacks of a stream, and says
when it has found more. To the level above it answers `find` with `Findings`: what members of the domain hold, and
what nobody does. So agents of any protocol can stand in the same place. A stream is that of a topic in a session, for a
term belongs to one session.

A domain may be a member of another one (`agents`). Its head has an agent there, of the same class. To this agent the
domain is what a peer is to an inner agent: it holds what its head holds, and lacks what nobody in it holds.

The rest is the same for all protocols. `Recovery` requests from the holders what its member lacks, and from peers above
what the domain lacks. With every protocol, reports on what members have go up the topic's tree, because its leases say
which members to wait for, and for how long.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from quillcast.core.envelope import Term
from quillcast.core.host import Timer
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference, intersection
from quillcast.core.trace import Record

HOLDERS_MAX = 4  # holders that an agent remembers, unless another holds what these do not; a guess: these may fail


class RecoveryTimes(NamedTuple):
    """How long recovery waits, in seconds."""

    gap_s: float
    """Between two checks for gaps: what is missing at both is requested."""
    give_up_s: float
    """A repairer that has not answered for so long has only what it reports to hold."""
    lease_s: float
    """What nobody had of an ended term for so long is given up."""
    datagram_gap_s: float
    """Like `gap_s`, at a peer to which bundles come as datagrams."""


class StreamId(NamedTuple):
    """The events of one term of a topic, and so of one of its sessions."""

    topic: bytes
    term: Term


class Holder(NamedTuple):
    """A member, and what it said that it holds of a stream."""

    contact: Contact
    ranges: Sequence[Range]


class Findings(NamedTuple):
    """Where an agent knows missing ranges of a stream to be. It still looks for those that it does not name."""

    holders: Sequence[Holder]
    """Who in the domain holds some of them, those to ask first in front."""
    neighbours: Sequence[Contact]
    """The members that are next to this one in the topic's tree, in the order in which to ask them for the others."""
    lacks: Sequence[Range]
    """What nobody in the domain is known to hold, though it was sought: neighbours are asked for it.

    The domain around it seeks what these refuse. Those above are asked for what the outermost domain lacks.
    """


class Bottom(Protocol):
    """The bottom interface of an agent: the state of its member, which is a peer or an inner domain."""

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        """What the member can send of these ranges."""
        ...

    def lacks(self, stream: StreamId) -> list[Range]:
        """What the member lacks, for itself or for others that want it of this member."""
        ...

    def found(self, stream: StreamId) -> None:
        """The findings changed: request missing events from the holders they name."""
        ...


class AgentHost(Protocol):
    """What an agent may use of its host (`core.host.Host`)."""

    me: NodeId
    contact: Contact
    random: Random

    def now(self) -> float: ...
    def send(self, to: Contact, message: Message) -> None: ...
    def set_timer(self, timer: Timer, delay_s: float) -> None: ...
    def proximity(self, node: bytes) -> float | None: ...
    def trace(self, record: Record) -> None: ...


class AgentContext(NamedTuple):
    """What an agent is given."""

    host: AgentHost
    times: RecoveryTimes
    scope: bytes
    """The scope whose members are the domain."""
    bottom: Bottom


class AgentDue(Timer, frozen=True):
    """An agent's timer."""

    scope: bytes
    protocol: str
    what: Any = None


class Searching(Protocol):
    """What an agent does for its member."""

    def follow(self, others: tuple[Contact, ...]) -> None:
        """These members come after this one in the order in which all members stand in a circle, the next one first.

        In a large domain it does not learn about all members.
        """
        ...

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """Where the ranges of a stream are that the member lacks. Asked again every `gap_s` while it lacks any.

        Within a bounded time, whatever messages are lost, each range must be found, or be known to be missing.
        `at_border`: the peer upstream is outside. Other members should search twice, because it fetches what all lack.
        """
        ...

    def filled(self, stream: StreamId) -> None:
        """The member no longer lacks any of it."""
        ...

    def end(self) -> None:
        """The member is no longer in this domain. There will be no further calls."""
        ...


class Conversing(Protocol):
    """What an agent learns from others, and its timers."""

    def received(self, sender: Contact, message: Message) -> None:
        """Another agent of the domain sent this."""
        ...

    def due(self, what: Any) -> None:
        """Its timer is due."""
        ...

    def link_lost(self, node: bytes) -> None:
        """A peer cannot be reached."""
        ...


class RecoveryProtocol(Searching, Conversing, Protocol):
    """A recovery protocol, as one member's agent runs it."""


class Silent:
    """An agent that sends nothing to others."""

    def follow(self, others: tuple[Contact, ...]) -> None: ...

    def filled(self, stream: StreamId) -> None: ...

    def received(self, sender: Contact, message: Message) -> None: ...

    def due(self, what: Any) -> None: ...

    def link_lost(self, node: bytes) -> None: ...

    def end(self) -> None: ...


class KnownHolders:
    """What members of a domain claim to hold of what this one lacks.

    That may be outdated, or a lie: it only decides which members to ask first.
    """

    def __init__(self) -> None:
        self.streams: dict[StreamId, dict[Contact, RangeSet]] = {}

    def note(self, stream: StreamId, contact: Contact, ranges: Iterable[Range]) -> None:
        """A member holds these, in addition to what it said before."""
        holders, ranges = self.streams.setdefault(stream, {}), [*ranges]
        known = RangeSet(each for held in holders.values() for each in held)
        if ranges and (contact in holders or len(holders) < HOLDERS_MAX or difference(ranges, known)):
            holders.setdefault(contact, RangeSet()).update(ranges)

    def holders(self, stream: StreamId, lacks: list[Range]) -> list[Holder]:
        """The members that hold some of these."""
        told = self.streams.get(stream, {}).items()
        return [Holder(contact, some) for contact, ranges in told if (some := intersection(lacks, ranges))]

    def forget(self, stream: StreamId) -> None:
        """None of it is missing."""
        self.streams.pop(stream, None)


def held_by(holders: Iterable[Holder]) -> RangeSet:
    """What any of them holds."""
    return RangeSet(each for holder in holders for each in holder.ranges) or NO_RANGES
