"""How a peer finds the parent through which the root reaches it soonest.

Scribe's routes lead past peers that are near and have room. So a peer may look for a better parent. It asks the root
for the peers below it, measures the round trips to them, asks the one through which it would be reached soonest, and so
on. No peer is reached sooner than the one above it, so the first one with room is the best (a best-first search). A
peer that comes to its present parent in this way stays there.

An answer names each child with the time that an event takes to it from the peer above. The asker adds these times up
along the path. So no peer keeps its own delay from the root, and nobody needs to be told when it changes.
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.subscribing import denied, shown_warrant
from quillcast.protocol.topics.messages import BELOW_MAX
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.query_messages import PlaceAnswer, PlaceQuery
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.tree import Tree

QUERIES_MAX = 24  # peers asked in one search; a guess
STAYS = 0.8  # of the delay through the present parent: a move gains a fifth; a guess that outlasts noise


class Search:
    """A search for a parent in one topic."""

    __slots__ = ("asked", "delays_s", "found", "queries", "unmeasured")

    def __init__(self) -> None:
        self.asked: bytes | None = None  # the peer that has to answer; None: the root
        self.queries = 1
        self.delays_s: dict[bytes, float] = {}  # from the root to each peer found
        self.unmeasured: dict[bytes, Contact] = {}
        self.found: list[tuple[float, int, Contact]] = []  # a heap: delay through another peer, and that peer

    def enter(self, contact: Contact, delay_s: float) -> None:
        """Enter another peer, with the delay at which this peer would be reached through it."""
        heappush(self.found, (delay_s, len(self.delays_s), contact))


class Climbing:
    """A peer that looks for better parents, and that answers others doing so."""

    __slots__ = ("host", "membership", "neighbours", "overlay", "placement", "searches", "trees")

    def __init__(
        self, host: Host, overlay: Overlay, neighbours: Neighbours, known: KnownTopics, trees: Mapping[bytes, Tree],
        placement: Placement, membership: TreeMembership, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.overlay, self.neighbours, self.trees = host, overlay, neighbours, trees
        self.placement, self.membership = placement, membership
        self.searches: dict[bytes, Search] = {}
        known.forget_too(self.searches)
        dispatch.on_routed(PlaceQuery, self._queried)
        dispatch.on_anonymous(PlaceQuery, self._queried)
        dispatch.on_message(PlaceAnswer, self._answered)

    def begin(self, topic: bytes) -> None:
        """Look for a better parent. Give up a search that is still running: some peer did not answer."""
        self.host.trace(Mark("climbs"))
        self.searches[topic] = Search()
        self.overlay.route(self._query(topic), topic)

    def measured(self, contact: Contact, round_trip_s: float | None) -> None:
        """The answer to a measurement that this or another layer requested."""
        for topic, search in list(self.searches.items()):
            if search.unmeasured.pop(contact.node_id, None) is not None:
                if round_trip_s is not None:
                    self._enter(topic, search, contact, round_trip_s)
                self._go_on(topic, search)

    def _query(self, topic: bytes) -> PlaceQuery:
        tree = self.trees.get(topic)
        return PlaceQuery(topic, self.host.contact, shown_warrant(tree, self.host.me) if tree is not None else None)

    # ---- answers for others

    def _queried(self, query: PlaceQuery) -> None:
        tree, asker = self.trees.get(query.topic), query.asker
        if tree is None or not tree.attached or asker.node_id == self.host.me:
            return
        if denied(tree.descriptor, asker.node_id, query.warrant) is not None:
            return  # a peer that may not subscribe is not told who does
        below = tuple(self._below(tree, asker))[:BELOW_MAX]
        only_forwards = self.placement.only_forwards(tree)
        has_room = not only_forwards and self.placement.has_room(tree, asker)
        self.host.send(asker, PlaceAnswer(query.topic, has_room, below, tree.root is not None, only_forwards))

    def _below(self, tree: Tree, asker: Contact) -> Iterator[tuple[Contact, float]]:
        """Yield the children, and how long an event takes to each. Measure those for which this is unknown."""
        for node, child in tree.leases.children.items():
            round_trip_s = self._round_trip(node)
            if child.sends_only or node == asker.node_id:
                continue
            if round_trip_s is None:
                self.host.measure(child.contact)
            else:
                yield child.contact, round_trip_s / 2

    def _round_trip(self, node: bytes) -> float | None:
        measured = self.host.proximity(node)
        return self.neighbours.round_trip(node) if measured is None else measured

    # ---- the search

    def _answered(self, sender: Contact, answer: PlaceAnswer) -> None:
        topic, search = answer.topic, self.searches.get(answer.topic)
        if search is None or (sender.node_id != search.asked and not (search.asked is None and answer.is_root)):
            return
        search.asked = b""
        if answer.has_room or (not answer.only_forwards and self._is_parent(topic, sender)):
            self._end(topic)
            self.membership.move([topic], sender)
            return
        delay_s = search.delays_s.setdefault(sender.node_id, 0.0)
        for contact, further_s in answer.below:
            if contact.node_id not in search.delays_s:
                search.delays_s[contact.node_id] = delay_s + further_s
                self._measure(topic, search, contact)
        self._go_on(topic, search)

    def _measure(self, topic: bytes, search: Search, contact: Contact) -> None:
        round_trip_s = self.host.proximity(contact.node_id)
        if round_trip_s is None:
            search.unmeasured[contact.node_id] = contact
            self.host.measure(contact)
        else:
            self._enter(topic, search, contact, round_trip_s)

    def _enter(self, topic: bytes, search: Search, contact: Contact, round_trip_s: float) -> None:
        delay_s = search.delays_s[contact.node_id] + round_trip_s / 2
        search.enter(contact, delay_s * STAYS if self._is_parent(topic, contact) else delay_s)

    def _go_on(self, topic: bytes, search: Search) -> None:
        """Ask the peer through which this one would be reached soonest."""
        tree = self.trees.get(topic)
        if search.unmeasured:
            return
        if tree is None or tree.parent is None or not search.found or search.queries == QUERIES_MAX:
            self._end(topic)
            return
        _, _, contact = heappop(search.found)
        search.asked = contact.node_id
        search.queries += 1
        self.host.send(contact, self._query(topic))

    def _is_parent(self, topic: bytes, contact: Contact) -> bool:
        tree = self.trees.get(topic)
        return tree is not None and tree.parent is not None and tree.parent.node_id == contact.node_id

    def _end(self, topic: bytes) -> None:
        del self.searches[topic]
