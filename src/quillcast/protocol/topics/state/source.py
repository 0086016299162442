"""A peer as the source of a stream: it numbers the events of its own publishers.

An event is acknowledged as admitted when a second peer has it, or when it is stable. docs/sources.md describes how a
stream ends.
"""

from quillcast.core.envelope import OF_SOURCES, RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.host import Host
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.state.admitter import Admitter, PublisherState
from quillcast.protocol.topics.state.early import EarlyBlocks


def source_term(host: Host, number: int, session: int = 0, *, reliable: bool = True) -> Term:
    """Return the term of a peer's stream in a session; `number` counts the streams that it began since it started."""
    counter = OF_SOURCES + session * SESSION_TERMS + reliable * RELIABLE_TERMS + number
    return Term(counter, host.me[:8] + host.incarnation)


class Source(Admitter):
    """The stream of this peer's publishers in one topic."""

    __slots__ = ("held",)

    def __init__(self, host: Host, config: TopicConfig, descriptor: Descriptor, term: Term) -> None:
        super().__init__(host, config, descriptor, term, EarlyBlocks(0))  # nothing is lost within a process
        self.held = 0  # a second peer has everything below

    def held_to(self, index: int) -> bool:
        """Note that a second peer has everything below an index. Return whether publishers are due a receipt."""
        if index <= self.held:
            return False
        before, self.held = self.held, index
        self.marks = self.marks or {}
        for publisher, admission in self.admissions.items():
            if any(before < end <= index for end, _ in admission.runs):
                self.marks.setdefault(publisher, ())
        return bool(self.marks)

    def settled_to(self, index: int) -> bool:
        """Note that the root declared the stream stable below an index. Return whether publishers are due a receipt."""
        if index <= self.stable:
            return False
        self._settle(index)
        return bool(self.marks)

    def _acknowledged(self, admission: PublisherState) -> int:
        held = [last for end, last in admission.runs if end <= self.held]
        return max([admission.stable, *held[-1:]])
