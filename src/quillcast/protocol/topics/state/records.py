"""The tables of what a peer knows of topics. `KnownTopics` writes them, `Forgetting` discards from them."""

from collections.abc import Sequence
from typing import TypeVar

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import PAGE_TOPICS_MAX, RecordState

T = TypeVar("T")


class TopicRecords:
    """What is known of each topic."""

    def __init__(self) -> None:
        self.descriptors: dict[bytes, Descriptor] = {}
        self.rivals: dict[bytes, Descriptor] = {}  # another owner's descriptor of a topic that is known
        self.terms: dict[bytes, Term] = {}  # of the topics whose state is kept here


def pages(what: Sequence[T]) -> list[list[T]]:
    """The topics of each message, where one would be too long for all."""
    return [list(what[first : first + PAGE_TOPICS_MAX]) for first in range(0, len(what), PAGE_TOPICS_MAX)]


def send_entries(host: Host, contact: Contact, entries: Sequence[tuple[Descriptor, Term]]) -> None:
    """Have a peer keep these."""
    for page in pages(entries):
        host.send(contact, RecordState(page))
