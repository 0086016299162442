"""The peers that this one transferred its topics to."""

from quillcast.core.messages import Contact

TOPICS_MAX = 4096  # topics of which a former root still says who came next, the latest; a guess: 500 kB


class Successors:
    """The next roots of topics that this peer was root of."""

    def __init__(self) -> None:
        self.by_topic: dict[bytes, Contact] = {}

    def note(self, topic: bytes, root: Contact) -> None:
        """The topic was transferred."""
        self.by_topic.pop(topic, None)
        self.by_topic[topic] = root
        if len(self.by_topic) > TOPICS_MAX:
            del self.by_topic[next(iter(self.by_topic))]

    def forget(self, topic: bytes) -> None:
        """This peer is the topic's root again."""
        self.by_topic.pop(topic, None)

    def of(self, topic: bytes) -> Contact | None:
        """The peer that the topic was transferred to, as far as this one remembers."""
        return self.by_topic.get(topic)
