"""Finding the roots of the topics that are published here, and watching those that were found."""

from collections.abc import Collection, Mapping

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.milestones import NO_ARRIVAL, Came
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.messages import DatedEnds
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root_messages import FindRoot
from quillcast.protocol.topics.state.overlay import Overlay

TERMS_MAX = 4  # terms of a topic of which a publisher's peer remembers how far they went; a guess


class RootFinder:
    """Asks for roots over the overlay, and keeps the address of each one found (Scribe, event dissemination)."""

    def __init__(self, host: Host, config: TopicConfig, ring: Overlay, neighbours: Neighbours) -> None:
        self.host, self.config, self.ring, self.neighbours = host, config, ring, neighbours
        self.roots: dict[bytes, Contact] = {}
        self.watched: dict[bytes, dict[bytes, None]] = {}  # topics with publishers, by the root's node
        self.broken: dict[bytes, None] = EMPTY  # roots whose link broke
        self.asked_at: dict[bytes, float] = {}  # when the root was asked for, without answer yet
        self.settled: dict[bytes, dict[Term, Came]] = {}  # by topic: the index below which its latest terms are stable
        self.dropped: dict[bytes, dict[Term, Came]] = {}  # ... and the index below which dropped events were
        self.untold: dict[bytes, None] = {}  # topics whose root does not know all of that yet

    # ---- asking

    def ask(self, topic: bytes, publishers: Collection[Publisher]) -> None:
        """Ask for a topic's root, and tell it what these publishers know."""
        again = topic in self.asked_at  # an answered query is removed
        self.asked_at[topic] = self.host.now()
        if not self.ring.active:
            return
        rooted = [(p.term, p.spoke_at or 0.0) for p in publishers if not p.term.of_source]
        term, spoke_at = max(rooted, default=(NO_TERM, 0.0))
        spoke_s = self.host.now() - spoke_at if spoke_at else None
        descriptor = next((p.descriptor for p in publishers), None)
        shown = dict.fromkeys(p.warrant for p in publishers if p.warrant is not None)
        settled, dropped = (self._told(ends.get(topic, {}), term, spoke_at) for ends in (self.settled, self.dropped))
        root_scope = descriptor.settings.root_scope if descriptor is not None else ""
        message = FindRoot(
            topic, self.host.contact, descriptor, term, tuple(shown), again, spoke_s, settled, dropped, root_scope
        )
        self.untold.pop(topic, None)
        self.ring.route(message, topic)

    def _told(self, ends: Mapping[Term, Came], last: Term, spoke_at: float) -> DatedEnds:
        """Return how far terms had come, and how long ago: the root of the last one was silent since it last spoke."""
        now = self.host.now()
        return tuple(
            (term, end, int((now - (min(at, spoke_at) if spoke_at and term == last else at)) * 1000))
            for term, (end, at) in ends.items()
        )

    def may_ask(self, topic: bytes, now: float) -> bool:
        """Whether no query for this topic's root is pending, or the last one has had enough time."""
        asked = self.asked_at.get(topic)
        return asked is None or now - asked >= self.config.receipt_timeout_s

    def ask_later(self, topic: bytes) -> None:
        """Ask later: this peer was turned away, and waits as long as a query may take."""
        self.asked_at[topic] = self.host.now()

    def answered(self, topic: bytes) -> None:
        """Note that the root is known."""
        self.asked_at.pop(topic, None)

    def note_stable(self, topic: bytes, term: Term, index: int) -> None:
        """Note that a root declared its term stable below an index. Later roots are told, as they may not know that."""
        settled = self.settled.setdefault(topic, {})
        if index > settled.get(term, NO_ARRIVAL).end:  # most receipts have no news
            self._note(settled, term, Came(index, self.host.now()))

    def note_dropped(self, topic: bytes, term: Term, came: Came, *, now: Term) -> None:
        """Note that a publisher dropped unstable events below the index to which a term had come.

        Later roots are told: if no live peer knows that the term went that far, its subscribers learn of the loss.
        `now` is the present term. If it is a later one, or may be because a query for the root is pending, its root is
        told soon.
        """
        dropped = self.dropped.setdefault(topic, {})
        if came.end > dropped.get(term, NO_ARRIVAL).end and (term < now or topic in self.asked_at):
            self.untold[topic] = None
        self._note(dropped, term, came)

    def note_untold(self, topic: bytes) -> None:
        """Note that the topic's root may not know all that this peer knows of dropped events."""
        self.untold[topic] = None

    def _note(self, ends: dict[Term, Came], term: Term, came: Came) -> None:
        known = ends.pop(term, NO_ARRIVAL)
        ends[term] = came if came.end > known.end else known
        if len(ends) > TERMS_MAX:
            del ends[next(iter(ends))]

    def is_last_to_know(self, topic: bytes) -> bool:
        """Whether a later root may have to be told how far terms of this topic went."""
        return topic in self.settled or topic in self.dropped

    # ---- watching

    def watch(self, topic: bytes, root: Contact) -> None:
        """Keep a root's address, and notice when it is lost or has room again."""
        self.forget(topic)
        self.roots[topic] = root
        if root.node_id not in self.watched:
            self.watched[root.node_id] = {}
            if root.node_id != self.host.me:
                self.neighbours.watch(root, "root", self.config.tree_heartbeat_s)
        self.watched[root.node_id][topic] = None

    def forget(self, topic: bytes) -> None:
        """Forget the topic's root."""
        root = self.roots.pop(topic, None)
        if root is None:
            return
        topics = self.watched[root.node_id]
        del topics[topic]
        if not topics:
            del self.watched[root.node_id]
            self.broken.pop(root.node_id, None)
            if root.node_id != self.host.me:
                self.neighbours.unwatch(root.node_id, "root")

    def end(self, topic: bytes) -> None:
        """Forget a topic that nobody publishes in any more."""
        self.settled.pop(topic, None)
        self.dropped.pop(topic, None)
        self.untold.pop(topic, None)
        self.forget(topic)
        self.asked_at.pop(topic, None)

    def rooted_at(self, node: bytes) -> list[bytes]:
        """Return the topics whose root this peer is, the one found first before others."""
        return [topic for topic, root in self.roots.items() if root.node_id == node]

    def link_lost(self, contact: Contact) -> None:
        """The link to a peer broke. It may be up again before that peer counts as lost (`link_up`)."""
        if contact.node_id in self.watched:
            self.broken = self.broken or {}
            self.broken[contact.node_id] = None

    def link_up(self, contact: Contact) -> list[bytes]:
        """Return the topics whose root may be another process now, as the link to it broke: ask for their root again.

        Another process knows neither publishers nor settings.
        """
        if contact.node_id not in self.broken:
            return []
        del self.broken[contact.node_id]
        return list(self.watched[contact.node_id])

    def had_turn(self, node: bytes, topics: Collection[bytes]) -> None:
        """There was room for these topics at their root: next time they come after those that had none."""
        watched = self.watched[node]
        for topic in topics:
            watched[topic] = watched.pop(topic)

    def check(self) -> None:
        """Raise AssertionError unless the topics by root are those whose root is known."""
        watched = [(topic, node) for node, topics in self.watched.items() for topic in topics]
        assert sorted(watched) == sorted((topic, root.node_id) for topic, root in self.roots.items())
