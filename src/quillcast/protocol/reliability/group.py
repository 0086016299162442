"""What recovery needs of a topic at a peer: whom it can ask, what they hold, and whom to tell what it gave up.

The control plane that forms the topic's tree implements these interfaces (`protocol.topics.groups`). Another one, or a
test, implements them in its own way.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.forwarding.stream import Held
from quillcast.protocol.security.access import Warrant


class GroupMember(NamedTuple):
    """A neighbour in the group, and what it reports to hold of ended terms."""

    contact: Contact
    held: Held


class Peers(NamedTuple):
    """Whom a peer can ask for events."""

    inside: list[Contact]
    """Members of its recovery domain: of its scope, or all peers if it is in none."""
    above: list[Contact]
    """Peers outside of all its domains, who are asked for what nobody in these has."""
    around: Sequence[list[Contact]] = ()
    """Members of the domains around its own in which it has an agent, by domain, the nearest first."""


class Upper(Protocol):
    """The upper interface of a recovery domain: who decides what nobody in it has, and what is known of that."""

    def upstream(self, term: Term) -> Contact | None:
        """The member that passes a live term on to this peer. What it released is not coming any more.

        For the term of a source, the member in its direction. It keeps copies only, so that the source is asked, too.
        """
        ...

    def decides(self, term: Term) -> bool:
        """Does this peer itself give up what no member has of a live term, as nobody is upstream of it?"""
        ...

    def has_ended(self, term: Term) -> bool:
        """Does this peer, which decides, know where a source's term ended? Until then, the source may come back."""
        ...

    @property
    def root(self) -> bytes | None:
        """The nodeId of the current term's root, if it is another than `upstream`; None otherwise."""
        ...

    def may_be_late(self, within_s: float) -> bool:
        """May events be late because publishers are held back, or were until a while ago?"""
        ...


class EventAccess(Protocol):
    """Who may be given a topic's events."""

    @property
    def warrant(self) -> Warrant | None:
        """What this peer shows to be given events, if the topic limits who may have them."""
        ...

    def may_have(self, node: bytes, warrant: Warrant | None) -> bool:
        """May a peer that shows this be given events?"""
        ...


class ReportedReach(Protocol):
    """How far live terms came, as reports say."""

    def reached(self, term: Term) -> int:
        """As far as is known, nobody here or below has later events of a term."""
        ...

    def reached_upstream(self, term: Term) -> int:
        """How far it came to the peer upstream, which will have what follows; without bound, if it may not."""
        ...


class PeerGroup(Upper, EventAccess, ReportedReach, Protocol):
    """The peers that share a topic's events with this one, and who is above them."""

    flow: Flow
    """What this peer has and holds, per stream. What it lacks are the gaps below `known_end`."""

    def known_end(self, term: Term) -> int:
        """How far a live term is known to have gone, even if its events never came here."""
        ...

    def is_source(self, term: Term) -> bool:
        """Does this peer itself number the events of a term?"""
        ...

    def milestones(self, term: Term, missing: Range) -> ToldMilestones:
        """How long the events in this range of a source's term have been there, as far as this peer knows."""
        ...

    def repaired(self, node: bytes, bundle: Bundle) -> None:
        """A repair goes to a peer: it counts by the rates of the channel there, if one leads there."""
        ...

    def members(self) -> Iterator[GroupMember]:
        """The neighbours: those inside first, then upstream first."""
        ...

    def peers(self, term: Term) -> Peers:
        """Whom to ask for events of a term, the nearest by the tree first."""
        ...


class Groups(Protocol):
    """The groups of a peer, and what they learn from recovery."""

    def find(self, topic: bytes) -> PeerGroup | None:
        """The group of a topic that this peer takes part in."""
        ...

    def learned(self, group: PeerGroup, term: Term, end: int, stable: int, there_ms: int | None) -> None:
        """A member reports how far an ended term went, and up to where its root declared it stable.

        All its events have been there for `there_ms` milliseconds at least; None: the member does not know that.
        """
        ...

    def dated(self, group: PeerGroup, term: Term, milestones: ToldMilestones, by: bytes | None) -> None:
        """A peer says how long events of a source's term have been there; None: who knows best, of the first ones."""
        ...

    def gave_up(self, group: PeerGroup) -> None:
        """Nobody has some events, so this peer continues without them."""
        ...

    def asked_for(self, group: PeerGroup, term: Term, ranges: list[Range], asker: bytes) -> bool:
        """Another peer misses these ranges, as this one does. True: look for them on its behalf."""
        ...

    def ask_root(self, group: PeerGroup, message: Message) -> None:
        """Take a request to the root of the topic."""
        ...


class Buffers(Protocol):
    """The room for repairs: here, and on the links to other peers."""

    @property
    def is_pressed(self) -> bool:
        """Are the buffers over their budget, so that peers with missing events may have no credit to send them?"""
        ...

    @property
    def takes_repairs(self) -> bool:
        """Is there room for one more repair, even so?"""
        ...

    def room_for_repairs(self, to: Contact, topic: bytes) -> int:
        """Bytes of a topic's repairs that a peer takes now. Other topics use the same link."""
        ...
