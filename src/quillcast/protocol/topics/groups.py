"""A topic's tree as recovery sees it: the parent, the children, and those that may stand in for the parent."""

from collections.abc import Iterator, Mapping

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.reliability.group import Group, Member
from quillcast.protocol.topics.state.flow_control import FlowControl
from quillcast.protocol.topics.state.held_back import HeldBack
from quillcast.protocol.topics.state.reports import Reports
from quillcast.protocol.topics.state.ring import Ring
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tree import Tree


class TreeGroup:
    """The neighbours of a peer in one topic's tree (`reliability.group.Group`)."""

    def __init__(self, tree: Tree, me: bytes, neighbours: Neighbours, held_back: HeldBack) -> None:
        self.tree, self.flow, self.me, self.neighbours, self.held_back = tree, tree.flow, me, neighbours, held_back

    def known_end(self, term: Term) -> int:
        return self.tree.known_end if term == self.tree.term else 0

    @property
    def upstream(self) -> Contact | None:
        return self.tree.parent

    @property
    def root(self) -> bytes | None:
        return self.tree.path[0] if len(self.tree.path) > 1 else None

    def may_be_late(self, within_s: float) -> bool:
        return self.held_back.lately(self.tree.topic, within_s)

    def members(self) -> Iterator[Member]:
        if self.tree.parent is not None:
            yield Member(self.tree.parent, self.tree.parent_held)
        for child in self.tree.children.values():
            yield Member(child.contact, child.held)

    def sources(self) -> list[Contact]:
        """The parent, children that are ahead, then siblings or the grandparent."""
        tree, frontier = self.tree, self.tree.frontier
        sources = [tree.parent] if tree.parent is not None else []
        ahead = (c for c in tree.children.values() if c.acknowledged_term == tree.term and c.frontier > frontier)
        return self._with_fallbacks([*sources, *(child.contact for child in ahead)])

    def past_sources(self) -> list[Contact]:
        return self._with_fallbacks(self.tree.neighbours())

    def _with_fallbacks(self, sources: list[Contact]) -> list[Contact]:
        known = {contact.node_id for contact in sources} | {self.me}
        suspected = self.neighbours.suspected
        return [*sources, *(c for c in self.tree.fallbacks if c.node_id not in known and not suspected(c.node_id))]


class TreeGroups:
    """The groups of all topics at a peer (`reliability.group.Groups`)."""

    def __init__(
        self, trees: Mapping[bytes, Tree], neighbours: Neighbours, ring: Ring, terms: Terms, reports: Reports,
        flow_control: FlowControl, me: bytes,
    ) -> None:  # fmt: skip
        self.trees, self.neighbours, self.ring, self.me = trees, neighbours, ring, me
        self.terms, self.reports, self.flow_control = terms, reports, flow_control

    def find(self, topic: bytes) -> TreeGroup | None:
        tree = self.trees.get(topic)
        return TreeGroup(tree, self.me, self.neighbours, self.reports.held_back) if tree is not None else None

    def learned(self, group: Group, term: Term, end: int, stable: int) -> None:
        tree = self.trees[group.flow.topic]
        self.terms.recall(tree, term, end)
        if tree.flow.settle(term, stable):
            self.reports.touch(tree)

    def gave_up(self, group: Group) -> None:
        self.reports.touch(self.trees[group.flow.topic])

    def asked_for(self, group: Group, term: Term, ranges: list[Range], asker: bytes) -> bool:
        return self.trees[group.flow.topic].note_wanted(term, ranges, asker)

    def ask_root(self, group: Group, message: Message) -> None:
        self.ring.route(message, group.flow.topic)

    def is_pressed(self) -> bool:
        return self.flow_control.budget.over

    def takes_repairs(self) -> bool:
        return self.flow_control.takes_repairs
