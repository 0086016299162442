"""A topic's tree as recovery sees it: the parent, the children, and those that may stand in for the parent."""

from collections.abc import Iterator, Mapping

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.reliability.group import Group, Member
from quillcast.protocol.security.access import Warrant, is_restricted
from quillcast.protocol.topics.membership.subscribing import denied, wishes
from quillcast.protocol.topics.state.flow_control import FlowControl
from quillcast.protocol.topics.state.held_back import HeldBack
from quillcast.protocol.topics.state.ring import Ring
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.source_streams import SourceStreams, known_end
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tree import Tree


class TreeGroup:
    """The neighbours of a peer in one topic's tree (`reliability.group.Group`)."""

    def __init__(
        self, tree: Tree, me: bytes, neighbours: Neighbours, held_back: HeldBack, source_streams: SourceStreams
    ) -> None:
        self.tree, self.flow, self.me, self.neighbours, self.held_back = tree, tree.flow, me, neighbours, held_back
        self.source_streams = source_streams

    def known_end(self, term: Term) -> int:
        return known_end(self.tree, term) if term.of_source else self.tree.known_end

    def upstream(self, term: Term) -> Contact | None:
        return self.source_streams.towards(self.tree, term) if term.of_source else self.tree.parent

    def is_source(self, term: Term) -> bool:
        return term in self.tree.sources.mine

    def decides(self, term: Term) -> bool:
        return term.of_source and self.source_streams.ends_here(self.tree, term)

    @property
    def root(self) -> bytes | None:
        return self.tree.path[0] if len(self.tree.path) > 1 else None

    @property
    def warrant(self) -> Warrant | None:
        return wishes(self.tree)[1] if is_restricted(self.tree.descriptor.access, "subscribe") else None

    def may_have(self, node: bytes, warrant: Warrant | None) -> bool:
        tree = self.tree
        near = node in tree.children or (tree.parent is not None and tree.parent.node_id == node)
        return near or denied(tree.descriptor, node, warrant) is None

    def may_be_late(self, within_s: float) -> bool:
        return self.held_back.lately(self.tree.topic, within_s)

    def members(self) -> Iterator[Member]:
        if self.tree.parent is not None:
            yield Member(self.tree.parent, self.tree.parent_held)
        for child in self.tree.children.values():
            yield Member(child.contact, child.held)

    def sources(self, term: Term) -> list[Contact]:
        """Who is upstream, the parent, children that are ahead, then siblings or the grandparent."""
        tree, frontier = self.tree, self.flow.front(term) or 0
        ahead = (child.contact for child in tree.children.values() if child.reach(term) > frontier)
        sources = dict.fromkeys((self.upstream(term), tree.parent, *ahead))
        return self._with_fallbacks([contact for contact in sources if contact is not None])

    def past_sources(self) -> list[Contact]:
        return self._with_fallbacks(self.tree.neighbours())

    def _with_fallbacks(self, sources: list[Contact]) -> list[Contact]:
        known = {contact.node_id for contact in sources} | {self.me}
        suspected = self.neighbours.suspected
        return [*sources, *(c for c in self.tree.fallbacks if c.node_id not in known and not suspected(c.node_id))]


class TreeGroups:
    """The groups of all topics at a peer (`reliability.group.Groups`)."""

    def __init__(
        self, trees: Mapping[bytes, Tree], neighbours: Neighbours, ring: Ring, terms: Terms, schedule: Schedule,
        flow_control: FlowControl, source_streams: SourceStreams, me: bytes,
    ) -> None:  # fmt: skip
        self.trees, self.neighbours, self.ring, self.me = trees, neighbours, ring, me
        self.terms, self.schedule, self.flow_control = terms, schedule, flow_control
        self.source_streams = source_streams

    def find(self, topic: bytes) -> TreeGroup | None:
        tree = self.trees.get(topic)
        if tree is None:
            return None
        return TreeGroup(tree, self.me, self.neighbours, self.schedule.held_back, self.source_streams)

    def learned(self, group: Group, term: Term, end: int, stable: int) -> None:
        tree = self.trees[group.flow.topic]
        self.terms.recall(tree, term, end)
        if tree.flow.settle(term, stable):
            self.schedule.touch(tree)

    def gave_up(self, group: Group) -> None:
        tree = self.trees[group.flow.topic]
        self.source_streams.touch(tree)
        self.schedule.touch(tree)

    def asked_for(self, group: Group, term: Term, ranges: list[Range], asker: bytes) -> bool:
        return self.trees[group.flow.topic].note_wanted(term, ranges, asker)

    def ask_root(self, group: Group, message: Message) -> None:
        self.ring.route(message, group.flow.topic)

    def is_pressed(self) -> bool:
        return self.flow_control.budget.over

    def takes_repairs(self) -> bool:
        return self.flow_control.takes_repairs
