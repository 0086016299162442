"""Forgets idle topics beyond a bound.

A peer learns the settings of every topic that it subscribes to, publishes in, forwards, creates or keeps the state of.
It never forgets topics that it uses or whose state it is to keep. Other topics may be asked for again, so it remembers
up to `idle_topics_max` of them, the most recently used ones.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

from quillcast.protocol.topics.descriptor import Descriptor


class TopicState(Protocol):
    """What a peer keeps about topics for others."""

    def may_forget(self, topic: bytes) -> bool:
        """Whether this peer need not keep the topic's state, and the peers that are to keep it have it."""
        ...

    def forget(self, topic: bytes) -> None:
        """Forget everything about the topic."""
        ...


class Forgetting:
    """Looks over the topics that a peer knows, but only when enough have become idle to make that worthwhile."""

    __slots__ = ("beside", "descriptors", "idle_topics_max", "kept", "noted", "topics_max", "used")

    def __init__(self, descriptors: dict[bytes, Descriptor], idle_topics_max: int, topics_max: int) -> None:
        self.descriptors, self.idle_topics_max, self.topics_max = descriptors, idle_topics_max, topics_max
        self.used: list[Mapping[bytes, Any]] = []
        self.beside: list[MutableMapping[bytes, Any]] = []
        self.kept: list[TopicState] = []
        self.noted = 0  # topics that were learned or became idle since the last look

    def spare(self, *tables: Mapping[bytes, Any]) -> None:
        """Do not forget topics in these tables, because they are in use."""
        self.used += tables

    def forget_too(self, *tables: MutableMapping[bytes, Any]) -> None:
        """Delete the entries of a forgotten topic from these tables too."""
        self.beside += tables

    def keep_for_others(self, state: TopicState) -> None:
        """Do not forget topics whose state is kept for others before `state` allows it."""
        self.kept.append(state)

    def note(self, topic: bytes) -> None:
        """Note that a topic was learned, or that one of its uses here ended."""
        known = self.descriptors
        if topic in known and topic != next(reversed(known)):
            known[topic] = known.pop(topic)  # idle ones are in order of last use
        self.noted += 1
        if self.noted > self.slack:
            self.noted = 0
            idle = self.idle()
            for forgotten in idle[: max(0, len(idle) - self.idle_topics_max)]:
                self._forget(forgotten)

    def has_room(self, topic: bytes) -> bool:
        """Whether this peer may learn of a topic from another peer. Its own applications' topics are never refused."""
        return topic in self.descriptors or len(self.descriptors) < self.topics_max

    @property
    def slack(self) -> int:
        """The number of topics beyond the bound that may be known between two looks."""
        return max(self.idle_topics_max, len(self.descriptors)) // 4

    def idle(self) -> list[bytes]:
        """Return the topics that this peer does not use, in order of last use."""
        tables = [table for table in self.used if table]
        return [
            topic
            for topic in self.descriptors
            if all(state.may_forget(topic) for state in self.kept) and not any(topic in table for table in tables)
        ]

    def _forget(self, topic: bytes) -> None:
        del self.descriptors[topic]
        for table in self.beside:
            table.pop(topic, None)
        for state in self.kept:
            state.forget(topic)

    def check(self) -> None:
        """Raise AssertionError if something is kept of an unknown topic, or if too many are known."""
        known = self.descriptors.keys()
        assert all(table.keys() <= known for table in self.beside)
        idle = len(self.idle())
        assert idle <= self.idle_topics_max + self.slack, f"{idle} topics are known that nobody here needs"
