"""The peers to which this one transferred its topics."""

from quillcast.core.messages import Contact

TOPICS_MAX = 4096  # latest topics for which a former root knows the next root: 500 kB; a guess


class Successors:
    """The next roots of topics whose root this peer was."""

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: dict[bytes, Contact] = {}

    def note(self, topic: bytes, root: Contact) -> None:
        """Note that the topic was transferred to this root."""
        self.by_topic.pop(topic, None)
        self.by_topic[topic] = root
        if len(self.by_topic) > TOPICS_MAX:
            del self.by_topic[next(iter(self.by_topic))]

    def forget(self, topic: bytes) -> None:
        """Forget the next root, because this peer is the topic's root again."""
        self.by_topic.pop(topic, None)

    def of(self, topic: bytes) -> Contact | None:
        """Return the peer to which the topic was transferred, if this one remembers it."""
        return self.by_topic.get(topic)
