"""A topic's tree as recovery sees it: the parent, the children, and the peers that may substitute for the parent."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.messages import NUMBER_MAX, Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.reliability.group import GroupMember, PeerGroup, Peers
from quillcast.protocol.security.access import Warrant, is_restricted
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.subscribing import denied, shown_warrant
from quillcast.protocol.topics.policy.channels import way_to
from quillcast.protocol.topics.policy.placement import IN_ONE, Placement, Stand
from quillcast.protocol.topics.state.held_back import HeldBack
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.streams.stream_ways import direction, ends_here, known_end, reach, towards


class TreeUpper:
    """The peer above in one topic's tree, and the one that decides about lost events (`reliability.group.Upper`)."""

    def __init__(self, tree: Tree, held_back: HeldBack) -> None:
        self.tree, self.held_back = tree, held_back

    def upstream(self, term: Term) -> Contact | None:
        return towards(self.tree, term) if term.of_source else self.tree.parent

    def decides(self, term: Term) -> bool:
        return term.of_source and ends_here(self.tree, term)

    def has_ended(self, term: Term) -> bool:
        state = self.tree.sources.states.get(term)
        return state is None or state.end is not None

    @property
    def root(self) -> bytes | None:
        return self.tree.path[0] if len(self.tree.path) > 1 else None

    def may_be_late(self, within_s: float) -> bool:
        return self.held_back.lately(self.tree.topic, within_s)

    def is_source(self, term: Term) -> bool:
        return term in self.tree.sources.mine


class TreeAccess:
    """Which peers may receive the events of one topic (`reliability.group.EventAccess`)."""

    def __init__(self, tree: Tree, me: bytes) -> None:
        self.tree, self.me = tree, me

    @property
    def warrant(self) -> Warrant | None:
        return shown_warrant(self.tree, self.me) if is_restricted(self.tree.descriptor.access, "subscribe") else None

    def may_have(self, node: bytes, warrant: Warrant | None) -> bool:
        tree = self.tree
        child = tree.leases.children.get(node)
        if child is not None:
            near = not (child.barred or child.sends_only)  # a child that only publishes need not be on the list
        else:
            near = tree.parent is not None and tree.parent.node_id == node
        return near or denied(tree.descriptor, node, warrant) is None


class TreeReach:
    """How far one topic's terms have come in its tree (`reliability.group.ReportedReach`)."""

    def __init__(self, tree: Tree, upper: TreeUpper, source_streams: SourceStreams) -> None:
        self.tree, self.upper, self.source_streams = tree, upper, source_streams

    def known_end(self, term: Term) -> int:
        return known_end(self.tree, term) if term.of_source else self.tree.known_end

    def reached(self, term: Term) -> int:
        tree = self.tree
        return max(reach(tree, term), tree.sources.states[term].elsewhere) if term.of_source else tree.reach

    def reached_upstream(self, term: Term) -> int:
        tree, upstream = self.tree, self.upper.upstream(term)
        if not term.of_source:
            return tree.parent_frontier
        if upstream is None or self.upper.has_ended(term):
            return NUMBER_MAX  # all give up at the same time on what does not arrive
        child, above = tree.leases.children.get(upstream.node_id), tree.sources.states[term].above
        said = child.streams.get(term) if child is not None else above
        return said.frontier if said is not None else 0

    def milestones(self, term: Term, missing: Range) -> ToldMilestones:
        return self.source_streams.dates.milestones(self.tree, term, missing)


class TreeRepairers:
    """The neighbours of a peer in one topic's tree (`reliability.group.Repairers`)."""

    def __init__(
        self, tree: Tree, me: bytes, neighbours: Neighbours, upper: TreeUpper, view: Callable[[], "ScopeView"]
    ) -> None:
        self.tree, self.me, self.neighbours, self.upper, self.view = tree, me, neighbours, upper, view

    def holders(self) -> Iterable[GroupMember]:
        held = {child.contact: child.held for child in self.tree.leases.children.values() if child.held}
        if self.tree.parent is not None and self.tree.parent_held:
            held = {self.tree.parent: self.tree.parent_held, **held}
        if not held:
            return ()
        levels = self.view().divided(held)
        return (GroupMember(contact, held[contact]) for level in levels for contact in level)

    def peers(self, term: Term) -> Peers:
        """Return the parent, children that are ahead, siblings, the grandparent, and peers that channels lead to.

        About past terms, and streams whose source is gone, all children are asked: a child without the events may know
        their age.
        """
        view = self.view()
        inside, *around, above = view.divided(self._near(term, view.beside))
        return Peers(inside, above, around)

    def repaired(self, node: bytes, bundle: Bundle) -> None:
        channel = way_to(self.tree, node)
        if channel is not None:
            channel.sink.count(bundle)

    def _near(self, term: Term, beside: Iterable[Contact]) -> list[Contact]:
        tree, flow = self.tree, self.tree.flow
        if flow.live(term) is None or self._is_gone(term):
            return self._with_others(tree.neighbours(), beside)
        frontier = flow.front(term) or 0
        ahead = (child.contact for child in tree.leases.children.values() if child.reach(term) > frontier)
        sources = dict.fromkeys((self.upper.upstream(term), tree.parent, *ahead))
        return self._with_others([contact for contact in sources if contact is not None], beside)

    def _is_gone(self, term: Term) -> bool:
        """Whether the source of a stream is gone, as this peer sees if it is the root, or as the root says."""
        if not term.of_source:
            return False
        state = self.tree.sources.states[term]
        return self.upper.decides(term) or (state.end is not None and not state.closed)

    def _with_others(self, sources: list[Contact], beside: Iterable[Contact]) -> list[Contact]:
        known = {contact.node_id for contact in sources} | {self.me}
        others = dict.fromkeys((*self.tree.fallbacks, *beside))
        suspected = self.neighbours.suspected
        return [*sources, *(c for c in others if c.node_id not in known and not suspected(c.node_id))]


class ScopeView:
    """The members of a peer's scopes, as it knows them for one topic. Without a scope all peers are in one domain."""

    def __init__(
        self, tree: Tree, me: bytes, entry_points: Iterable[Contact], ordered: Mapping[Contact, int], stand: Stand,
        fellows: Collection[bytes] | None,
    ) -> None:  # fmt: skip
        """`ordered`: peers that scopes' managers ordered channels to, and the domain that each shares with this one.

        `fellows`: all other members of its scope that take part in topics; None: they are unknown, or too many.
        """
        entries, path = [contact.node_id for contact in entry_points], tree.path_here(me)
        head = next((node for node in path if node in entries), None)
        self.beside = tuple(ordered)
        self.ordered, self.stand = {contact.node_id: level for contact, level in ordered.items()}, stand
        self.members = {*entries, *self.ordered, *(fellows or ())}
        self.outside = set[bytes]()
        if head is not None:
            self.outside = {*path[: path.index(head)], *(tree.leases.children.keys() - self.members)}
        if fellows is not None:  # the root may be a member although the peers between it and this peer are none
            self.outside |= {*path} - self.members - {me}
        self.is_head = head == me

    def divided(self, contacts: Iterable[Contact]) -> list[list[Contact]]:
        """Divide these peers, in order, by the innermost of this peer's domains that contains them.

        Peers in none of them come last.
        """
        divided: list[list[Contact]] = [[] for _ in range(self.stand.domains + 1)]
        for contact in contacts:
            divided[min(self._level(contact.node_id), self.stand.domains)].append(contact)
        return divided

    def _level(self, node: bytes) -> int:
        """Return the index of the innermost domain that a peer shares with this one."""
        if self.stand.upstream == 0 and self._is_outside(node):
            return self.stand.domains
        return self.ordered.get(node, self.stand.upstream)

    def _is_outside(self, node: bytes) -> bool:
        """Whether it is above the entry point, or an unordered child; at an entry point, a non-member."""
        return node in self.outside or (self.is_head and node not in self.members)


class GroupOverlay(Protocol):
    """What recovery needs from the overlay, and from this peer's scope in it; `Pastry` is one."""

    @property
    def entry_points(self) -> tuple[Contact, ...]:
        """The members of this peer's scope that have a place in the ring. Empty: it is in no scope."""
        ...

    def route(self, message: Message, key: bytes) -> None:
        """Send a message to the peer that is closest to the key."""
        ...


class TreeGroups:
    """The groups of all topics at a peer (`reliability.group.Groups`)."""

    __slots__ = ("me", "neighbours", "overlay", "placement", "schedule", "source_streams", "terms", "trees")

    def __init__(
        self, trees: Mapping[bytes, Tree], neighbours: Neighbours, overlay: GroupOverlay, terms: Terms,
        schedule: Schedule, source_streams: SourceStreams, placement: Placement,
    ) -> None:  # fmt: skip
        self.trees, self.neighbours, self.overlay, self.terms = trees, neighbours, overlay, terms
        self.schedule, self.source_streams, self.placement, self.me = schedule, source_streams, placement, placement.me

    def find(self, topic: bytes) -> PeerGroup | None:
        tree = self.trees.get(topic)
        if tree is None:
            return None
        upper = TreeUpper(tree, self.schedule.held_back)
        return PeerGroup(
            tree.flow, upper, TreeAccess(tree, self.me), TreeReach(tree, upper, self.source_streams),
            TreeRepairers(tree, self.me, self.neighbours, upper, lambda: self._view(tree)),
        )  # fmt: skip

    def _view(self, tree: Tree) -> ScopeView:
        placement, topic = self.placement, tree.topic
        return ScopeView(
            tree, self.me, self.overlay.entry_points, placement.members.get(topic, {}),
            placement.stands.get(topic, IN_ONE), placement.fellows.get(topic),
        )  # fmt: skip

    def learned(self, group: PeerGroup, term: Term, end: int, stable: int, there_ms: int | None) -> None:
        tree = self.trees[group.flow.topic]
        self.terms.recall(tree, term, end, there_ms)
        if tree.flow.settle(term, stable):
            self.schedule.touch(tree)

    def dated(self, group: PeerGroup, term: Term, milestones: ToldMilestones, by: bytes | None) -> None:
        tree = self.trees[group.flow.topic]
        if by is None:
            self.source_streams.dates.date(tree, term, milestones)
            return
        upstream = direction(tree, term)
        near = term.is_of(by) or by == group.upper.root or (upstream is not None and by == upstream.node_id)
        self.source_streams.dates.learn_milestones(tree, term, milestones, near=near)

    def gave_up(self, group: PeerGroup) -> None:
        tree = self.trees[group.flow.topic]
        self.source_streams.news.touch(tree)
        self.schedule.touch(tree)

    def asked_for(self, group: PeerGroup, term: Term, ranges: list[Range], asker: bytes) -> bool:
        return self.trees[group.flow.topic].note_wanted(term, ranges, asker)

    def ask_root(self, group: PeerGroup, message: Message) -> None:
        self.overlay.route(message, group.flow.topic)
