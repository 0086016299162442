"""The repair after a strike, as the journals tell it: who found whom, and when the last of them had."""

from collections.abc import Callable, Collection, Sequence

from quillcast.core.journal import Entry
from quillcast.core.trace import Attached, BecameRoot
from quillcast.demo.watch import TopicView, Watch


def counted(children: int, trees: int) -> str:
    """Children of trees, in words."""
    return f"{'1 child' if children == 1 else f'{children} children'} in {'1 tree' if trees == 1 else f'{trees} trees'}"


class Repair:
    """What a strike takes from the trees, and what they find instead.

    Args:
        watch: what the journals told until now; it is looked at again by others.
        victim: who is struck.
        dead: who is dead already.
        since_ns: when, on the journals' clock; what is older is no answer to the strike.
    """

    def __init__(self, watch: Watch, victim: bytes, dead: Collection[bytes], since_ns: int) -> None:
        self._watch, self._victim, self._since_ns = watch, victim, since_ns
        self._gone = [*dead, victim]
        below = {topic: view.children(victim, dead) for topic, view in watch.topics.items()}
        self._below = {topic: children for topic, children in below.items() if children}
        self._found: dict[tuple[bytes, bytes], Entry] = {}

    @property
    def children(self) -> int:
        """How many (topic, member) pairs lost their parent."""
        return sum(map(len, self._below.values()))

    @property
    def trees(self) -> int:
        """In how many topics."""
        return len(self._below)

    @property
    def mended(self) -> bool:
        """Does everybody have a parent, and every tree that lost somebody its root?"""
        return not self.seeking and not self.rootless

    @property
    def seeking(self) -> int:
        """How many (topic, member) pairs still lack a living parent."""
        return self._watch.orphans(self._gone)

    @property
    def rootless(self) -> int:
        """How many of the trees still lack a living root."""
        return sum(not self._watch.topics[topic].rooted(self._gone) for topic in self._below)

    @property
    def lasted_s(self) -> float | None:
        """Seconds from the strike to the last answer; None while there was none."""
        return (max(entry.at_ns for entry in self._found.values()) - self._since_ns) / 1e9 if self._found else None

    def take(self, entries: Sequence[Entry]) -> None:
        """Note who found a parent again, and who became root in the place of another, child of the victim or not."""
        for entry in entries:
            if entry.at_ns <= self._since_ns or entry.peer == self._victim:
                continue
            match entry.record:
                case Attached(topic=topic) if entry.peer in self._below.get(topic, ()):
                    self._found.setdefault((topic, entry.peer), entry)
                case BecameRoot(topic=topic) if topic in self._below:
                    self._found[topic, entry.peer] = entry

    def how(self, view: TopicView, name: Callable[[bytes], str]) -> str:
        """Who found whom in one topic's tree, in words, by parent; empty when nobody had to."""
        words: dict[str, list[str]] = {}
        for entry in sorted(self._found.values(), key=lambda entry: entry.at_ns):
            match entry.record:
                case Attached(topic=topic, parent=parent, how=how) if self._watch.topics[topic] is view:
                    words.setdefault(f"under {name(parent)} ({how})", []).append(name(entry.peer))
                case BecameRoot(topic=topic) if self._watch.topics[topic] is view:
                    words["is the new root"] = [name(entry.peer)]
        return "; ".join(f"{', '.join(sorted(peers))} {where}" for where, peers in words.items())
