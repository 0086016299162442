"""What a peer knows of topics that it has nothing to do with any more: the latest of them, to a bound.

A peer learns settings of every topic that it subscribes to, publishes in, forwards, creates or keeps the state of. Of
those that it uses, and of those whose state it is to keep, nothing is forgotten here. Others may be asked for again,
and are worth remembering; those that it has not used for the longest time are forgotten beyond `idle_topics_max`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Forgetting:
    """Looks over the topics that a peer knows, but only when as many became idle as make that worth its while."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.config = scribe, scribe.config
        self.noted = 0  # topics that were learned or became idle since the last look

    def note(self, topic: bytes) -> None:
        """A topic was learned, or this peer has done with one part that it had in it."""
        known = self.scribe.descriptors
        if topic in known:
            known[topic] = known.pop(topic)  # idle ones stand in the order in which they were used last
        self.noted += 1
        if self.noted > self.slack:
            self.noted = 0
            idle = self.idle()
            for forgotten in idle[: max(0, len(idle) - self.config.idle_topics_max)]:
                self._forget(forgotten)

    @property
    def slack(self) -> int:
        """So many more than the bound may be known between two looks."""
        return max(self.config.idle_topics_max, len(self.scribe.descriptors)) // 4

    def idle(self) -> list[bytes]:
        """The topics that this peer has nothing to do with, those first that it was done with first."""
        scribe = self.scribe
        publishing, replication = scribe.publishing, scribe.replication
        used: tuple[Mapping[bytes, object], ...] = (
            scribe.trees, scribe.handlers, scribe.joining.left_behind, scribe.handing_over.offers,
            scribe.accessions.by_topic, scribe.changes.asked, publishing.publishers, publishing.creating,
        )  # fmt: skip
        tables = [table for table in used if table]
        return [
            topic
            for topic in scribe.descriptors
            if replication.may_forget(topic) and not any(topic in table for table in tables)
        ]

    def _forget(self, topic: bytes) -> None:
        del self.scribe.descriptors[topic]
        self.scribe.rivals.pop(topic, None)
        self.scribe.publishing.holders.pop(topic, None)
        self.scribe.replication.forget(topic)

    def check(self) -> None:
        """Raise AssertionError if something is kept of a topic that is not known, or if too many are."""
        scribe, known = self.scribe, self.scribe.descriptors.keys()
        assert scribe.rivals.keys() <= known
        assert scribe.publishing.holders.keys() <= known
        assert scribe.trees.keys() <= known
        idle = len(self.idle())
        assert idle <= self.config.idle_topics_max + self.slack, f"{idle} topics are known that nobody here needs"
