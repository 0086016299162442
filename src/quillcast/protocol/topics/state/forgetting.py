"""What a peer knows of topics that it has nothing to do with any more: the latest of them, to a bound.

A peer learns settings of every topic that it subscribes to, publishes in, forwards, creates or keeps the state of. Of
those that it uses, and of those whose state it is to keep, nothing is forgotten here. Others may be asked for again,
and are worth remembering; those that it has not used for the longest time are forgotten beyond `idle_topics_max`.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

from quillcast.protocol.topics.descriptor import Descriptor


class TopicState(Protocol):
    """What a peer keeps of topics for others."""

    def may_forget(self, topic: bytes) -> bool:
        """Is this peer none of those that are to keep the topic's state, or have they got it?"""
        ...

    def forget(self, topic: bytes) -> None:
        """Keep nothing of the topic."""
        ...


class Forgetting:
    """Looks over the topics that a peer knows, but only when as many became idle as make that worth its while."""

    def __init__(self, descriptors: dict[bytes, Descriptor], idle_topics_max: int, topics_max: int) -> None:
        self.descriptors, self.idle_topics_max, self.topics_max = descriptors, idle_topics_max, topics_max
        self.used: list[Mapping[bytes, Any]] = []
        self.beside: list[MutableMapping[bytes, Any]] = []
        self.kept: list[TopicState] = []
        self.noted = 0  # topics that were learned or became idle since the last look

    def spare(self, *tables: Mapping[bytes, Any]) -> None:
        """Topics in these tables are in use: they are not forgotten."""
        self.used += tables

    def forget_too(self, *tables: MutableMapping[bytes, Any]) -> None:
        """When a topic is forgotten, its entries in these tables are as well."""
        self.beside += tables

    def keep_for_others(self, state: TopicState) -> None:
        """Topics whose state is kept for others are not forgotten before `state` allows it."""
        self.kept.append(state)

    def note(self, topic: bytes) -> None:
        """A topic was learned, or this peer has done with one part that it had in it."""
        known = self.descriptors
        if topic in known and topic != next(reversed(known)):
            known[topic] = known.pop(topic)  # idle ones stand in the order in which they were used last
        self.noted += 1
        if self.noted > self.slack:
            self.noted = 0
            idle = self.idle()
            for forgotten in idle[: max(0, len(idle) - self.idle_topics_max)]:
                self._forget(forgotten)

    def has_room(self, topic: bytes) -> bool:
        """May this peer take note of a topic at another's word? What its own applications use is never refused."""
        return topic in self.descriptors or len(self.descriptors) < self.topics_max

    @property
    def slack(self) -> int:
        """So many more than the bound may be known between two looks."""
        return max(self.idle_topics_max, len(self.descriptors)) // 4

    def idle(self) -> list[bytes]:
        """The topics that this peer has nothing to do with, those first that it was done with first."""
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
        """Raise AssertionError if something is kept of a topic that is not known, or if too many are."""
        known = self.descriptors.keys()
        assert all(table.keys() <= known for table in self.beside)
        idle = len(self.idle())
        assert idle <= self.idle_topics_max + self.slack, f"{idle} topics are known that nobody here needs"
