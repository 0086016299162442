"""What recovery needs of a topic at a peer: which peers it can ask, what they hold, and whom to tell what it gave up.

The control plane that builds the topic's tree implements these interfaces (`protocol.topics.groups`). Another one, or a
test, has its own implementation.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.forwarding.stream import HeldTerms
from quillcast.protocol.security.access import Warrant


class GroupMember(NamedTuple):
    """A neighbour in the group, and what it reports to hold of ended terms."""

    contact: Contact
    held: HeldTerms


class Peers(NamedTuple):
    """The peers that a peer can ask for events."""

    inside: list[Contact]
    """Members of its recovery domain: of its scope, or all peers if it is in none."""
    above: list[Contact]
    """Peers outside of all its domains, who are asked for what nobody in these has."""
    around: Sequence[list[Contact]] = ()
    """Members of the domains around its own in which it has an agent, by domain, the nearest first."""


class Upper(Protocol):
    """The upper interface of a recovery domain: who decides about events that no member has, and their state."""

    def upstream(self, term: Term) -> Contact | None:
        """The member that passes a live term on to this peer. What it released will not arrive.

        For the term of a source, the member in its direction. That one keeps only copies, so the source is asked, too.
        """
        ...

    def decides(self, term: Term) -> bool:
        """Does this peer give up what no member has of a live term, because no peer is upstream of it?"""
        ...

    def has_ended(self, term: Term) -> bool:
        """Does this peer, which decides, know where a source's term ended? Until then, the source may return."""
        ...

    @property
    def root(self) -> bytes | None:
        """The nodeId of the current term's root, if it is another than `upstream`; None otherwise."""
        ...

    def may_be_late(self, within_s: float) -> bool:
        """May events be late because publishers are held back, or were until recently?"""
        ...

    def is_source(self, term: Term) -> bool:
        """Does this peer itself number the events of a term?"""
        ...


class EventAccess(Protocol):
    """Which peers may receive a topic's events."""

    @property
    def warrant(self) -> Warrant | None:
        """The warrant that this peer shows to get events, if the topic restricts who may have them."""
        ...

    def may_have(self, node: bytes, warrant: Warrant | None) -> bool:
        """May a peer that shows this be given events?"""
        ...


class ReportedReach(Protocol):
    """How far live terms came, and since when, as reports say."""

    def known_end(self, term: Term) -> int:
        """How far a live term is known to have gone, even if its events never came here."""
        ...

    def reached(self, term: Term) -> int:
        """How far a term has come here and below, as far as this peer knows."""
        ...

    def reached_upstream(self, term: Term) -> int:
        """How far it came at the peer upstream, which will get what follows; no bound, if it may not get it."""
        ...

    def milestones(self, term: Term, missing: Range) -> ToldMilestones:
        """How long the events in this range of a source's term have been there, as far as this peer knows."""
        ...


class Repairers(Protocol):
    """The peers that may fill gaps."""

    def holders(self) -> Iterable[GroupMember]:
        """The neighbours that hold events of ended terms: inner ones first, and among these the upstream one first."""
        ...

    def peers(self, term: Term) -> Peers:
        """The peers to ask for events of a term, the nearest in the tree first."""
        ...

    def repaired(self, node: bytes, bundle: Bundle) -> None:
        """A repair goes to a peer: it counts for the rates of the channel there, if there is one."""
        ...


class PeerGroup(NamedTuple):
    """The peers that share a topic's events with this one, and the peers above them: a part for each question."""

    flow: Flow
    """What this peer has and holds, per stream. What it lacks are the gaps below `known_end`."""
    upper: Upper
    access: EventAccess
    reach: ReportedReach
    repairers: Repairers


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
        """A peer says how long events of a source's term have existed; None: the best informed one, of the first."""
        ...

    def gave_up(self, group: PeerGroup) -> None:
        """No peer has some events, so this one continues without them."""
        ...

    def asked_for(self, group: PeerGroup, term: Term, ranges: list[Range], asker: bytes) -> bool:
        """Another peer misses these ranges, and so does this one. True: look for them on its behalf."""
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
        """Bytes of a topic's repairs that a peer accepts now. Other topics use the same link."""
        ...
