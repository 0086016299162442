"""The tables of what a peer knows about topics. `KnownTopics` fills them, `Forgetting` deletes from them."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import PAGE_TOPICS_MAX
from quillcast.protocol.topics.root_messages import RecordState

T = TypeVar("T")


class TopicRecords:
    """What is known about each topic."""

    __slots__ = ("descriptors", "rivals", "terms")

    def __init__(self) -> None:
        self.descriptors: dict[bytes, Descriptor] = {}
        self.rivals: dict[bytes, Descriptor] = {}  # another descriptor of the topic: terms may be of its sessions
        self.terms: dict[bytes, Term] = {}  # of the topics whose state is kept here

    def keep_no_longer(self, topic: bytes) -> None:
        """Stop keeping a topic's state. It stays known."""
        self.terms.pop(topic, None)


def pages(what: Sequence[T]) -> list[list[T]]:
    """Divide topics among messages, because one message would be too long."""
    return [list(what[first : first + PAGE_TOPICS_MAX]) for first in range(0, len(what), PAGE_TOPICS_MAX)]


def send_entries(
    host: Host, contact: Contact, entries: Sequence[tuple[Descriptor, Term]], rivals: Mapping[bytes, Descriptor]
) -> None:
    """Have a peer record these. Descriptors that do not apply go first, because terms may be of their sessions."""
    outliving = [
        (rival, NO_TERM)
        for descriptor, _ in entries
        if (rival := rivals.get(descriptor.topic)) is not None and rival.outlives(descriptor)
    ]
    for page in pages([*outliving, *entries]):
        host.send(contact, RecordState(page))
