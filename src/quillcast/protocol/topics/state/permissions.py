"""What applications of this peer may begin in topics of which a scope bounds the publishers or subscribers.

What has begun goes on: a lower bound, or a manager that lost sight of this peer for a while, ends nothing.
"""

from collections.abc import Callable, Container

from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.topics.descriptor import Descriptor

Refusal = Callable[[str, bytes, Doing], str | None]


class Permissions:
    """Who may begin, as the scopes of this peer say."""

    def __init__(self) -> None:
        self._refusal: Refusal = lambda name, topic, doing: None
        self.begun: dict[tuple[bytes, Doing], None] = {}

    def ask(self, refusal: Refusal) -> None:
        """This says why a topic cannot be used now, in a sentence. Empty: it can. None: no scope bounds it."""
        self._refusal = refusal

    def why_not(self, descriptor: Descriptor, doing: Doing) -> str:
        """Why applications here have to wait with that; empty if they need not."""
        if descriptor.creator or (descriptor.topic, doing) in self.begun:
            return ""
        why = self._refusal(descriptor.name, descriptor.topic, doing)
        if why == "":
            self.begin(descriptor.topic, doing)
        return why or ""

    def begin(self, topic: bytes, doing: Doing) -> None:
        """That goes on here, and did before a scope bounded it."""
        self.begun[topic, doing] = None

    def forget(self, subscribed: Container[bytes], published: Container[bytes]) -> None:
        """In all other topics that has ended."""
        used = {"subscribes": subscribed, "publishes": published}
        self.begun = {(topic, doing): None for topic, doing in self.begun if topic in used[doing]}
