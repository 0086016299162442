"""One peer's place in one topic's tree: parent, children table, local subscriptions, the root's state if it is root."""

from collections.abc import Iterator

from quillcast.core.bundle import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.sparing import NOTHING
from quillcast.protocol.forwarding.channels import LinkChannel
from quillcast.protocol.forwarding.edge import Edge
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.topics.claims import HELD_RANGES_MAX, ChildClaim, Held, ParentClaim
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Have, Join
from quillcast.protocol.topics.root import Root


class Child(LinkChannel):
    """An entry of the children table, and the channel to that child."""

    __slots__ = ("cover", "cover_term", "held")

    def __init__(self, host: Host, contact: Contact, cursor: int, term: Term, cover: int) -> None:
        super().__init__(host, contact, cursor)
        self.cover_term, self.cover = term, cover
        self.held: Held = ()


class Departed:
    """A child that was lost or moved: its last report holds stability back until its lease has passed."""

    __slots__ = ("cover", "cover_term", "until")

    def __init__(self, child: Child, until: float) -> None:
        self.cover_term, self.cover, self.until = child.cover_term, child.cover, until


class Tree:
    """A topic at a peer that is its root, a forwarder, a subscriber, or about to become one.

    A peer may be a leaf of ten thousand: what a leaf has none of is `NOTHING`, until `enter`, `await_parent`,
    `begin_later` or `depart` enters something.
    """

    __slots__ = (
        "attempt", "children", "departed", "descriptor", "fallbacks", "flow", "heard", "joining", "keeping_until",
        "lost_parent", "parent", "parent_frontier", "parent_held", "path", "reported_bytes", "root", "unstarted",
        "waiting",
    )  # fmt: skip

    def __init__(self, descriptor: Descriptor, flow: Flow) -> None:
        self.descriptor, self.flow = descriptor, flow
        self.parent: Contact | None = None
        self.root: Root | None = None
        self.children: dict[bytes, Child] = NOTHING
        self.departed: dict[bytes, Departed] = NOTHING
        self.waiting: dict[bytes, Join] = NOTHING  # adopted, to be answered once this peer has a parent itself
        self.unstarted: dict[int, Edge] = NOTHING
        self.path: tuple[bytes, ...] = ()  # from the root to the parent
        self.fallbacks: tuple[Contact, ...] = ()
        self.parent_held: Held = ()
        self.parent_frontier = 0
        self.keeping_until: float | None = None  # stays till then, for what it knows of a reign that is over
        self.heard = NO_TERM
        self.lost_parent = b""
        self.joining = False
        self.attempt = 0
        self.reported_bytes = 0

    @property
    def topic(self) -> bytes:
        """The topic's id."""
        return self.flow.topic

    @property
    def edges(self) -> dict[int, Edge]:
        """The channels to local subscribers that have begun, by their number."""
        return {channel.number: channel for channel in self.flow.channels if isinstance(channel, Edge)}

    def adapt(self, descriptor: Descriptor) -> None:
        """Go by what is known of the topic now; its guarantee may be another than first use had assumed."""
        self.descriptor = descriptor
        self.flow.keeps = descriptor.settings.reliable
        if self.root is not None:
            self.root.descriptor = descriptor

    def enter(self, child: Child) -> None:
        """Enter a child in the children table and serve it."""
        self.children = self.children or {}
        former = self.children.get(child.contact.node_id)
        if former is not None:
            self.flow.close(former)
        self.children[child.contact.node_id] = child
        self.flow.open(child)

    def await_parent(self, join: Join) -> None:
        """Whom to answer once this peer has a parent."""
        self.waiting = self.waiting or {}
        self.waiting[join.child.node_id] = join

    def begin_later(self, edge: Edge) -> None:
        """A local subscription that begins once this peer has a parent."""
        self.unstarted = self.unstarted or {}
        self.unstarted[edge.number] = edge

    def depart(self, child: Child, until: float) -> None:
        """A child is gone, and its lease goes on until a time."""
        self.departed = self.departed or {}
        self.departed[child.contact.node_id] = Departed(child, until)

    @property
    def attached(self) -> bool:
        """Does this peer get the topic's events: as root, or from a parent that accepted it?"""
        return self.root is not None or self.parent is not None

    @property
    def needed(self) -> bool:
        """Does anything here want the topic's events, or may anybody want what is kept here?"""
        wanted = self.flow.channels or self.unstarted or self.waiting
        return bool(wanted) or self.keeping_until is not None

    @property
    def restless(self) -> bool:
        """Will time change anything here: something to be joined, let go, given up or called stable?"""
        if self.root is None and (self.parent is None or not self.needed):
            return True
        if self.root is not None and self.root.stable < self.root.index:
            return True
        held = any(channel.held for channel in self.flow.channels if isinstance(channel, Edge))
        return bool(held or self.departed or self.flow.past) or self.keeping_until is not None

    @property
    def known_end(self) -> int:
        """How far the present term is known to have gone, be it that its events never came here."""
        covers = [child.cover for child in self.children.values() if child.cover_term == self.flow.term]
        return max(self.flow.seen.end, self.parent_frontier, *covers)

    def have(self) -> Have | None:
        """From where this peer needs the topic when it joins; a new forwarder asks for what its first children need."""
        if self.flow.begun:
            return Have(self.flow.term, self.flow.frontier)
        haves = [join.have for join in self.waiting.values() if join.have is not None]
        return min(haves, key=lambda have: (have.term, have.frontier), default=None)

    def follow_path(self, path: tuple[bytes, ...]) -> None:
        """The path from the root to the parent; a child of old that now stands above speaks for itself."""
        self.path = path
        for node in path:
            self.departed.pop(node, None)

    def neighbours(self) -> list[Contact]:
        """The parent and the children."""
        above = [self.parent] if self.parent is not None else []
        return [*above, *[child.contact for child in self.children.values()]]

    def path_here(self, me: bytes) -> tuple[bytes, ...]:
        """The path from the root to this peer."""
        return (me,) if self.root is not None else (*self.path, me)

    def cover(self, now: float) -> int:
        """The index of the present term below which all leases here and below are served.

        A lease that spoke last of another term, be it a later one, says nothing of this one.
        """
        term = self.flow.term
        covers = [self.flow.frontier]
        covers += [edge.frontier(term) for edge in self.edges.values()]
        covers += [lease.cover if lease.cover_term == term else 0 for lease in self.leases(now)]
        return min(covers)

    def leases(self, now: float) -> Iterator[Child | Departed]:
        """Those below that are owed events: children, and departed ones whose lease goes on."""
        yield from self.children.values()
        for lease in self.departed.values():
            if lease.until > now:
                yield lease

    def laggards(self, term: Term, index: int, now: float) -> list[bytes]:
        """Leases here that do not cover an index of a term: departed children, and the peer's own edges as b''."""
        behind = [
            node
            for node, lease in self.departed.items()
            if lease.until > now and (lease.cover_term, lease.cover) < (term, index)
        ]
        behind += [b"" for edge in self.edges.values() if edge.frontier(term) < index]
        return behind

    def held(self) -> Held:
        """How far past terms went and what is kept of them, for neighbours that lack some of it."""
        past_terms = sorted(self.flow.past.items())
        return tuple([(term, past.end, tuple(past.kept()[:HELD_RANGES_MAX])) for term, past in past_terms])

    def child_claim(self, now: float) -> ChildClaim:
        """What to tell the parent."""
        return ChildClaim(self.flow.term, self.cover(now), max(self.heard, self.flow.term), self.held())

    def parent_claim(self, me: bytes, fallbacks: tuple[Contact, ...]) -> ParentClaim:
        """What to tell the children."""
        flow = self.flow
        return ParentClaim(flow.term, flow.frontier, flow.stable, self.path_here(me), fallbacks, self.held())

    def check(self, me: bytes) -> None:
        """Raise AssertionError unless the tree's parts agree with each other."""
        assert self.root is None or self.parent is None, "a root has no parent"
        assert me not in {**self.children, **self.waiting}, "nobody is its own child"
        assert self.parent is None or self.parent.node_id not in self.children, "a parent is no child"
        served = {channel.contact.node_id: channel for channel in self.flow.channels if isinstance(channel, Child)}
        assert served == self.children, (list(served), list(self.children))
        if self.root is not None:
            assert self.root.term == self.flow.term, (self.root.term, self.flow.term)
            self.root.check()
