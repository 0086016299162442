"""One peer's place in one topic's tree: parent, children table, local subscriptions, the root's state if it is root."""

from collections.abc import Iterable, Iterator

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.channels import CATCH_UP_S, Cut, LinkChannel
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Have, Join
from quillcast.protocol.topics.state.link_reports import HELD_RANGES_MAX, NEWCOMERS_MAX, ChildReport, Held, ParentReport
from quillcast.protocol.topics.state.root import UNKNOWN_PEER, Root
from quillcast.protocol.topics.state.subscription import Subscription

NEVER, BEFORE, SINCE = range(3)
"""When a child spoke last: never, or before or since it was entered in the children table."""


class Child(LinkChannel):
    """An entry of the children table, and the channel to that child."""

    __slots__ = (
        "acknowledged",
        "acknowledged_term",
        "cut_requested_to",
        "frontier",
        "frontier_moved_at",
        "held",
        "moved_at",
        "named_until",
        "newcomers",
        "outdated",
        "spoken",
    )

    def __init__(self, host: Host, contact: Contact, cursor: int, term: Term, acknowledged: int) -> None:
        super().__init__(host, contact, cursor)
        self.acknowledged_term, self.acknowledged = term, acknowledged
        self.held: Held = ()
        self.spoken = NEVER  # is this its own word?
        self.newcomers: tuple[bytes, ...] = ()  # below it, lately
        self.outdated: tuple[bytes, ...] = ()  # of these, who spoke as this peer's own child since they were named
        self.frontier = acknowledged  # how far it came itself, even if those below it are behind
        self.moved_at = self.frontier_moved_at = host.now()  # when `acknowledged` and `frontier` last moved
        self.cut_requested_to = 0  # up to here it was asked to end the leases below it that are behind
        self.named_until = 0.0  # it came here from another parent: those above are told so until then

    def note_report(self, report: ChildReport) -> None:
        """What the child says holds."""
        if (report.term, report.acknowledged) > (self.acknowledged_term, self.acknowledged):
            self.moved_at = self.host.now()
        if report.term != self.acknowledged_term:
            self.cut_requested_to = 0
        self.acknowledged_term, self.acknowledged, self.held, self.newcomers = (
            interned(report.term),
            report.acknowledged,
            report.held,
            report.newcomers,
        )
        if self.outdated:
            self.outdated = tuple(node for node in self.outdated if node in report.newcomers)
        frontier = max(report.acknowledged, report.frontier)
        if frontier > self.frontier:
            self.frontier_moved_at = self.host.now()
        self.frontier = frontier
        if self.acknowledged >= self.cut_requested_to:
            self.cut_requested_to = 0
        self.spoken = SINCE

    def keeps_up(self, frontier: int, now: float) -> bool:
        """Does the child itself keep up? Its reports are a moment behind, so it counts that it moved on lately."""
        return self.frontier >= frontier or now - self.frontier_moved_at < CATCH_UP_S

    def take_up(self, report: ChildReport) -> None:
        """It reported this before it was entered here, and will not repeat it.

        Or it left meanwhile, and has yet to take that report back.
        """
        self.note_report(report)
        self.spoken = BEFORE

    @property
    def speaks_for(self) -> tuple[bytes, ...]:
        """Whom its last report speaks for by name: itself, and those that came below it lately."""
        return (self.contact.node_id, *self.newcomers) if self.spoken else ()


class OrphanedLease:
    """A child that was lost or moved: its last report holds stability back until its lease has passed.

    Or until those speak for themselves below this peer again whose leases it was: its own, or of those it named.
    """

    __slots__ = ("acknowledged", "acknowledged_term", "awaited", "leaf", "until")

    def __init__(self, child: Child, until: float, awaited: Iterable[bytes], *, leaf: bool = False) -> None:
        self.acknowledged_term, self.acknowledged, self.until = child.acknowledged_term, child.acknowledged, until
        self.awaited = dict.fromkeys(awaited)
        self.leaf = leaf  # it is the child's own lease only


def is_cut(holder: "Subscription | Child | OrphanedLease") -> bool:
    """Was this one's lease ended because it could not keep up?"""
    return not isinstance(holder, OrphanedLease) and holder.cut is not None


def is_stalled(holder: "Subscription | Child | OrphanedLease", now: float) -> bool:
    """Has its position not moved lately? What departed does not move; a local subscriber is judged by its position."""
    return not isinstance(holder, Child) or now - holder.moved_at >= CATCH_UP_S


class Tree(Flow):
    """A topic at a peer that is its root, a forwarder, a subscriber, or about to become one.

    It is the topic's entry in the forwarding table, and what Scribe keeps beside what the data path reads.
    A peer may be a leaf of ten thousand: what a leaf has none of is `EMPTY`, until `enter`, `await_parent`,
    `begin_later` or `depart` enters something.
    """

    __slots__ = (
        "attempt",
        "children",
        "descriptor",
        "ended",
        "fallbacks",
        "heard",
        "held_back",
        "held_back_until",
        "joining",
        "keeping_until",
        "lost_parent",
        "moved",
        "orphaned_leases",
        "parent",
        "parent_frontier",
        "parent_held",
        "path",
        "reported_bytes",
        "root",
        "unstarted",
        "waiting",
    )  # fmt: skip

    def __init__(self, topic: bytes, descriptor: Descriptor, budget: Budget) -> None:
        super().__init__(topic, budget, keeps=descriptor.settings.reliable)
        self.descriptor = descriptor
        self.parent: Contact | None = None
        self.root: Root | None = None
        self.children: dict[bytes, Child] = EMPTY
        self.orphaned_leases: dict[bytes, OrphanedLease] = EMPTY
        self.ended: dict[bytes, float] = EMPTY  # who came from another parent, and left: until when it is named so
        self.waiting: dict[bytes, Join] = EMPTY  # adopted, to be answered once this peer has a parent itself
        self.unstarted: dict[int, Subscription] = EMPTY
        self.path: tuple[bytes, ...] = ()  # from the root to the parent
        self.fallbacks: tuple[Contact, ...] = ()
        self.parent_held: Held = ()
        self.parent_frontier = 0
        self.keeping_until: float | None = None  # stays till then, for what it knows of a term that is over
        self.heard = NO_TERM
        self.held_back = False  # does the root hold publishers back?
        self.held_back_until = float("-inf")  # ... or when did that end?
        self.lost_parent = b""
        self.moved = False  # between two parents, even if no new one has accepted it yet
        self.joining = False
        self.attempt = 0
        self.reported_bytes = 0

    @property
    def edges(self) -> dict[int, Subscription]:
        """The channels to local subscribers that have begun, by their number."""
        return {channel.number: channel for channel in self.channels if isinstance(channel, Subscription)}

    def adapt(self, descriptor: Descriptor) -> None:
        """Go by what is known of the topic now; its guarantee may be another than first use had assumed."""
        self.descriptor = descriptor
        self.keeps = descriptor.settings.reliable
        for subscription in self.edges.values():
            subscription.adapt(reliable=self.keeps)
        if self.root is not None:
            self.root.adapt(descriptor)

    def enter(self, child: Child) -> None:
        """Enter a child in the children table and serve it."""
        self.children = self.children or {}
        former = self.children.get(child.contact.node_id)
        if former is not None:
            self.close(former)
        self.children[child.contact.node_id] = child
        self.ended = {node: until for node, until in self.ended.items() if node != child.contact.node_id} or EMPTY
        self.open(child)

    def await_parent(self, join: Join) -> None:
        """Whom to answer once this peer has a parent."""
        self.waiting = self.waiting or {}
        self.waiting[join.child.node_id] = join

    def begin_later(self, edge: Subscription) -> None:
        """A local subscription that begins once this peer has a parent."""
        self.unstarted = self.unstarted or {}
        self.unstarted[edge.number] = edge

    def orphan_lease(self, child: Child, until: float, awaited: Iterable[bytes], *, leaf: bool = False) -> None:
        """A child is gone, and its lease, or those of others that it names, go on until a time."""
        self.orphaned_leases = self.orphaned_leases or {}
        node = child.contact.node_id
        lease = OrphanedLease(child, until, awaited, leaf=leaf)
        former = self.orphaned_leases.get(node)
        if former is not None:  # it came back and goes again: it need not have spoken for those that it named then
            lease.awaited |= former.awaited
            lease.leaf = lease.leaf and former.leaf
            lease.acknowledged_term, lease.acknowledged = min(
                (lease.acknowledged_term, lease.acknowledged), (former.acknowledged_term, former.acknowledged)
            )
        self.orphaned_leases[node] = lease
        for other in self.children.values():
            self.heard_from(name for name in other.speaks_for if name not in other.outdated)
        self.heard_from(self.ended)

    def speaks_here(self, node: bytes) -> None:
        """A child speaks as one: whoever still names it says nothing of a lease that it has here from now on."""
        for other in self.children.values():
            if node in other.newcomers and node not in other.outdated:
                other.outdated = (*other.outdated, node)

    def heard_from(self, nodes: Iterable[bytes]) -> bool:
        """These speak for themselves in the tree, or have left: nobody waits for them as departed any more.

        True if a lease ended by that: what it held back is to be told.
        """
        before = len(self.orphaned_leases)
        for node in nodes if before else ():
            for former, lease in list(self.orphaned_leases.items()):
                lease.awaited.pop(node, None)
                if not lease.awaited:
                    del self.orphaned_leases[former]
        return len(self.orphaned_leases) < before

    def forgot(self, node: bytes) -> None:
        """A peer comes again that knows nothing, as after a restart: it does not speak for those that were below it."""
        for lease in self.orphaned_leases.values():
            if node in lease.awaited and not lease.leaf:
                del lease.awaited[node]
                lease.awaited[UNKNOWN_PEER] = None

    def came_back(self, node: bytes) -> OrphanedLease | None:
        """A child is entered again: its former lease, if it had one, which does not wait for it any more."""
        lease = self.orphaned_leases.get(node)
        if lease is not None:
            lease.awaited.pop(node, None)
            if not lease.awaited:
                del self.orphaned_leases[node]
        return lease

    def note_ended(self, node: bytes, until: float) -> None:
        """A child that came from another parent has left in good order; a lease that it had there is over, too."""
        if node not in self.children:
            self.ended = self.ended or {}
            self.ended[node] = until
            self.heard_from((node,))

    def newcomers(self, now: float) -> tuple[bytes, ...]:
        """Who came below this peer lately from another parent, and has spoken or left since."""
        nodes: dict[bytes, None] = dict.fromkeys(self.ended)
        for child in self.children.values():
            if child.newcomers or child.named_until:
                named = child.speaks_for if child.named_until > now else child.newcomers
                nodes |= dict.fromkeys(named)
        return tuple(nodes)[-NEWCOMERS_MAX:] if nodes else ()

    @property
    def attached(self) -> bool:
        """Does this peer get the topic's events: as root, or from a parent that accepted it?"""
        return self.root is not None or self.parent is not None

    @property
    def next_parent(self) -> Contact | None:
        """Whom this peer turned to when its parent left or it handed the topic over, if that has not answered yet."""
        return self.fallbacks[0] if self.moved and not self.attached and self.fallbacks else None

    @property
    def needed(self) -> bool:
        """Does anything here want the topic's events, or may anybody want what is kept here?"""
        wanted = self.channels or self.unstarted or self.waiting
        return bool(wanted) or self.keeping_until is not None

    @property
    def is_due(self) -> bool:
        """Will time change anything here: something to be joined, let go, given up or called stable?"""
        if self.root is None and (self.parent is None or not self.needed):
            return True
        if self.root is not None and (self.root.sealing or self.root.stable < self.root.index):
            return True
        held = any(channel.holes for channel in self.channels if isinstance(channel, Subscription))
        named = any(child.named_until for child in self.children.values())
        return bool(held or named or self.orphaned_leases or self.ended or self.past) or self.keeping_until is not None

    @property
    def arrived_below(self) -> int:
        """How far the present term came to this peer or to a child: what a root alone had is not meant."""
        acknowledged = [child.acknowledged for child in self.children.values() if child.acknowledged_term == self.term]
        return max([self.seen.end, *acknowledged])

    @property
    def known_end(self) -> int:
        """How far the present term is known to have gone, even if its events never came here."""
        return max(self.arrived_below, self.parent_frontier)

    def have(self) -> Have | None:
        """From where this peer needs the topic when it joins; a new forwarder asks for what its first children need."""
        if self.begun:
            return Have(self.term, self.frontier)
        haves = [join.have for join in self.waiting.values() if join.have is not None]
        return min(haves, key=lambda have: (have.term, have.frontier), default=None)

    def follow_path(self, path: tuple[bytes, ...]) -> None:
        """The path from the root to the parent; a child of old that now stands above speaks for itself."""
        self.path = path
        self.heard_from(path)

    def neighbours(self) -> list[Contact]:
        """The parent and the children."""
        above = [self.parent] if self.parent is not None else []
        return [*above, *[child.contact for child in self.children.values()]]

    def path_here(self, me: bytes) -> tuple[bytes, ...]:
        """The path from the root to this peer."""
        return (me,) if self.root is not None else (*self.path, me)

    def acknowledged_position(self, now: float) -> int:
        """The index of the present term below which all leases here and below are served."""
        needs = [position for position, holder in self.needs(now) if not is_cut(holder)]
        return min([self.frontier, *needs])

    def needs(self, now: float) -> Iterator[tuple[int, "Subscription | Child | OrphanedLease"]]:
        """Who here needs the present term, and from which index on.

        A lease that spoke last of another term, even a later one, says nothing of this one.
        """
        term = self.term
        for channel in self.channels:
            if isinstance(channel, Subscription):
                yield channel.frontier(term), channel
        for lease in self.leases(now):
            yield (lease.acknowledged if lease.acknowledged_term == term else 0), lease

    def end_lease(
        self, holder: "Subscription | Child | OrphanedLease", now: float, catch_up_s: float = CATCH_UP_S
    ) -> None:
        """It cannot keep up: hold back nothing for it any more, until it does."""
        if isinstance(holder, OrphanedLease):
            for node in [node for node, lease in self.orphaned_leases.items() if lease is holder]:
                del self.orphaned_leases[node]
        else:
            holder.cut = Cut(self.frontier, now, catch_up_s)

    def note_wanted(self, term: Term, ranges: list[Range], asker: bytes) -> bool:
        """Note that a neighbour lacks these, as this peer does. Returns whether to look for them.

        Of the present term they are for a child, which may be owed more than this peer was when it became its parent;
        of past ones for anybody, for somebody beyond this peer may have them, or know what they were.
        """
        if term in self.past:
            self.past[term].ask(ranges)
            return True
        if term != self.term or asker not in self.children:
            return False
        self.start = min([self.start, *(first for first, _ in ranges)])
        return True

    def catch_up(self, holder: "Subscription | Child", position: int, now: float) -> None:
        """Somebody has come to a position: if its lease was ended, does it keep up again?"""
        if holder.cut is not None and holder.cut.is_over(position, self.frontier, now):
            holder.cut = None

    def trim(self, now: float) -> int:
        """Let go of what nobody needs any more; how many bytes that was. The one rule for a peer within its budget.

        It is the least of the stable position as the root issued it and of what everybody here still needs: children,
        local subscribers and leases of those that departed, is_cut or not.
        """
        return self.release(min([self.stable, self.frontier, *(position for position, _ in self.needs(now))]))

    def shed(self, now: float, goal_bytes: int) -> int:
        """Keep no copies any more but for those who need them, down to a goal: the budget is used up.

        A root's are nobody's copies, so it keeps what is not stable.
        """
        needs = [position for position, holder in self.kept_for(now) if not is_cut(holder)]
        below = min([self.frontier, *needs])
        return self.release(below if self.root is None else min(below, self.root.stable), goal_bytes)

    def kept_for(self, now: float) -> Iterator[tuple[int, "Subscription | Child | OrphanedLease"]]:
        """Who needs what is kept here, where there is no room for more, and from which index on.

        At a root that is everybody who needs the term. Elsewhere a child needs no copy of what it has itself, though
        somebody below it may lack that, and whoever comes in place of a departed one finds it at the root.
        """
        for position, holder in self.needs(now):
            if self.root is not None or isinstance(holder, Subscription):
                yield position, holder
            elif isinstance(holder, Child):
                yield (holder.frontier if holder.acknowledged_term == self.term else 0), holder

    def front(self, term: Term) -> int | None:
        """What lacks first in a term: of a past one, of what is owed here or a neighbour asked for."""
        past = self.past.get(term)
        if past is None:
            return self.frontier if term == self.term else None
        lacking = [*past.wanted(), *(piece for edge in self.edges.values() for piece in edge.lacking(term, past))]
        return min(lacking)[0] if lacking else None

    def waits_for(self, term: Term) -> bool:
        """Does a subscriber here keep something of a past term, for want of room or of what comes before it?"""
        return any(edge.waits_for(term) for edge in self.edges.values())

    def last(self, now: float) -> "Subscription | Child | OrphanedLease | None":
        """Who needs the most of what is kept here, first of those that stand still; None if nobody is behind."""
        behind = [
            (not is_stalled(holder, now), position, holder)
            for position, holder in self.kept_for(now)
            if position < self.frontier and not is_cut(holder)
        ]
        return min(behind, key=lambda need: need[:2])[2] if behind else None

    def leases(self, now: float) -> Iterator[Child | OrphanedLease]:
        """Those below that are owed events: children, and departed ones whose lease goes on."""
        yield from self.children.values()
        for lease in self.orphaned_leases.values():
            if lease.until > now:
                yield lease

    def note_held_back(self, now: float, *, held_back: bool) -> bool:
        """The root holds publishers back, or does so no more. True if that is news."""
        if held_back == self.held_back:
            return False
        self.held_back, self.held_back_until = held_back, now
        return True

    def may_be_late(self, now: float, within_s: float) -> bool:
        """May events be late because publishers are held back, or were until a while ago?"""
        return self.held_back or now < self.held_back_until + within_s

    def held(self) -> Held:
        """How far past terms went and what is kept of them, for neighbours that lack some of it."""
        past_terms = sorted(self.past.items())
        return tuple([(term, past.end, tuple(past.kept()[:HELD_RANGES_MAX]), past.stable) for term, past in past_terms])

    def child_report(self, now: float) -> ChildReport:
        """What to tell the parent."""
        heard = max(self.heard, self.term)
        leaf = not (self.children or self.waiting or self.orphaned_leases)
        return ChildReport(
            self.term, self.acknowledged_position(now), heard, self.held(), self.newcomers(now), self.frontier, leaf
        )

    def parent_report(self, me: bytes, fallbacks: tuple[Contact, ...]) -> ParentReport:
        """What to tell the children."""
        return ParentReport(
            self.term, self.frontier, self.stable, self.path_here(me), fallbacks, self.held(), self.held_back
        )

    def check_place(self, me: bytes) -> None:
        """Raise AssertionError unless the peer's place in the tree and its channels agree with each other."""
        assert self.root is None or self.parent is None, "a root has no parent"
        assert me not in {**self.children, **self.waiting}, "nobody is its own child"
        assert self.parent is None or self.parent.node_id not in self.children, "a parent is no child"
        served = {channel.contact.node_id: channel for channel in self.channels if isinstance(channel, Child)}
        assert served == self.children, (list(served), list(self.children))
        if self.root is not None:
            assert self.root.term == self.term, (self.root.term, self.term)
            self.root.check()
