"""A live view of the peers' journals: live peers, trees, published and delivered events.

The display, the choice of victims and the wait for repairs read the same records as the audit.
"""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from quillcast.core import trace
from quillcast.core.journal import Entry
from quillcast.pipeline.reading import Tail


class TopicView:
    """One topic, as its members' journals describe it."""

    def __init__(self) -> None:
        self.name = "?"
        self.places: dict[bytes, bytes | None] = {}
        self.without_parent: dict[bytes, None] = {}
        self.subscribers: dict[bytes, None] = {}
        self.published = 0
        self.delivered: Counter[bytes] = Counter()

    def parents(self, without: Collection[bytes] = ()) -> dict[bytes, bytes | None]:
        """The tree: each member's parent, None for the root. Members that look for a parent are left out."""
        return {peer: parent for peer, parent in self.places.items() if peer not in without}

    def children(self, parent: bytes, dead: Collection[bytes]) -> list[bytes]:
        """The living members below a parent."""
        return [peer for peer, above in self.places.items() if above == parent and peer not in dead]

    def orphans(self, dead: Collection[bytes]) -> list[bytes]:
        """The living members whose parent is dead or unknown."""
        below = [peer for peer, parent in self.places.items() if parent in dead and parent is not None]
        return [peer for peer in {**self.without_parent, **dict.fromkeys(below)} if peer not in dead]

    def rooted(self, dead: Collection[bytes]) -> bool:
        """Whether a living member is the root."""
        return any(parent is None and peer not in dead for peer, parent in self.places.items())

    def behind(self, dead: Collection[bytes]) -> dict[bytes, int]:
        """The number of events that each living subscriber has yet to receive."""
        living = [peer for peer in self.subscribers if peer not in dead]
        return {peer: due for peer in living if (due := self.published - self.delivered[peer]) > 0}


class Watch:
    """Follows the journals of a folder; `look` reads on."""

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder)
        self.topics: dict[bytes, TopicView] = {}
        self.active: dict[bytes, None] = {}
        self.leaf_sets: dict[bytes, set[bytes]] = {}

    def look(self) -> list[Entry]:
        """Read what was written since the last look, and return it."""
        entries = self._tail.read()
        for entry in entries:
            self._take(entry)
        return entries

    def topic(self, name: str) -> TopicView:
        """The view of a topic by its name; an empty one if the topic is not known yet."""
        return next((view for view in self.topics.values() if view.name == name), TopicView())

    def orphans(self, dead: Collection[bytes]) -> int:
        """The number of (topic, member) pairs without a living parent."""
        return sum(len(view.orphans(dead)) for view in self.topics.values())

    def lonely(self) -> set[bytes]:
        """Peers that look for a parent in some topic."""
        return {peer for view in self.topics.values() for peer in view.without_parent}

    def behind(self, dead: Collection[bytes]) -> int:
        """The number of deliveries that are still due."""
        return sum(sum(view.behind(dead).values()) for view in self.topics.values())

    @property
    def published_count(self) -> int:
        """Events published so far."""
        return sum(view.published for view in self.topics.values())

    @property
    def delivered_count(self) -> int:
        """Deliveries so far: pairs of an event and a subscriber."""
        return sum(view.delivered.total() for view in self.topics.values())

    def _take(self, entry: Entry) -> None:
        peer, record = entry.peer, entry.record
        match record:
            case trace.Activated():
                self.active[peer] = None
            case trace.LeafSetChanged(joined, left):
                leaf_set = self.leaf_sets.setdefault(peer, set())
                leaf_set.update(joined)
                leaf_set.difference_update(left)
            case _ if hasattr(record, "topic"):
                self._take_topic(self.topics.setdefault(record.topic, TopicView()), entry)

    def _take_topic(self, view: TopicView, entry: Entry) -> None:
        peer = entry.peer
        match entry.record:
            case trace.Named(name=name):
                view.name = name
            case trace.Published(count=count):
                view.published += count
            case trace.Delivered(count=count):
                view.delivered[peer] += count
            case trace.Subscribed():
                view.subscribers[peer] = None
            case trace.Unsubscribed():
                view.subscribers.pop(peer, None)
            case _:
                _place(view, entry)


def _place(view: TopicView, entry: Entry) -> None:
    """Update a member's place in a topic's tree from this record."""
    peer = entry.peer
    match entry.record:
        case trace.Attached(parent=parent):
            view.places[peer] = parent
            view.without_parent.pop(peer, None)
        case trace.BecameRoot():
            view.places[peer] = None
            view.without_parent.pop(peer, None)
        case trace.Detached(why=why):
            view.places.pop(peer, None)
            view.without_parent.pop(peer, None)  # it may lose its parent before it leaves
            if why != "left":
                view.without_parent[peer] = None
        case trace.ResignedRoot():
            view.places.pop(peer, None)
