"""The repair after a strike, from the journals: which peers found a new parent, and when the last of them did."""

from collections.abc import Callable, Collection, Sequence

from quillcast.core.journal import Entry
from quillcast.core.trace import Attached, BecameRoot
from quillcast.demo.watch import TopicView, Watch


def counted(children: int, trees: int) -> str:
    """A number of children and trees in words."""
    return f"{'1 child' if children == 1 else f'{children} children'} in {'1 tree' if trees == 1 else f'{trees} trees'}"


class Repair:
    """The links and roots that trees lose when `victim` is struck, and their replacements.

    The `dead` were dead before. Records before `since_ns`, on the journals' clock, do not belong to this repair.
    """

    def __init__(self, watch: Watch, victim: bytes, dead: Collection[bytes], since_ns: int) -> None:
        self._watch, self._victim, self._since_ns = watch, victim, since_ns
        self._gone = [*dead, victim]
        below = {topic: view.children(victim, dead) for topic, view in watch.topics.items()}
        self._below = {topic: children for topic, children in below.items() if children}
        self._found: dict[tuple[bytes, bytes], Entry] = {}

    @property
    def children(self) -> int:
        """The number of (topic, member) pairs that lost their parent."""
        return sum(map(len, self._below.values()))

    @property
    def trees(self) -> int:
        """The number of topics in which children lost their parent."""
        return len(self._below)

    @property
    def repaired(self) -> bool:
        """Whether every member has a parent, and every affected tree a root."""
        return not self.orphans and not self.rootless

    @property
    def orphans(self) -> int:
        """The number of (topic, member) pairs without a living parent."""
        return self._watch.orphans(self._gone)

    @property
    def rootless(self) -> int:
        """The number of affected trees without a living root."""
        return sum(not self._watch.topics[topic].rooted(self._gone) for topic in self._below)

    @property
    def lasted_s(self) -> float | None:
        """Seconds from the strike to the last replacement; None if there was none."""
        return (max(entry.at_ns for entry in self._found.values()) - self._since_ns) / 1e9 if self._found else None

    def take(self, entries: Sequence[Entry]) -> None:
        """Record which peers found a parent again, and which became root in place of another."""
        for entry in entries:
            if entry.at_ns <= self._since_ns or entry.peer == self._victim:
                continue
            match entry.record:
                case Attached(topic=topic) if entry.peer in self._below.get(topic, ()):
                    self._found.setdefault((topic, entry.peer), entry)
                case BecameRoot(topic=topic) if topic in self._below:
                    self._found[topic, entry.peer] = entry

    def how(self, view: TopicView, name: Callable[[bytes], str]) -> str:
        """Describe the new parents in one topic's tree; empty if there are none."""
        words: dict[str, list[str]] = {}
        for entry in sorted(self._found.values(), key=lambda entry: entry.at_ns):
            match entry.record:
                case Attached(topic=topic, parent=parent, how=how) if self._watch.topics[topic] is view:
                    words.setdefault(f"under {name(parent)} ({how})", []).append(name(entry.peer))
                case BecameRoot(topic=topic) if self._watch.topics[topic] is view:
                    words["is the new root"] = [name(entry.peer)]
        return "; ".join(f"{', '.join(sorted(peers))} {where}" for where, peers in words.items())
