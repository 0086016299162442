"""Whether applications of this peer may begin to use topics whose publishers or subscribers a scope bounds.

Uses that have begun continue, even if the bound is lowered or the manager does not reach this peer for a while.
"""

from collections.abc import Callable, Container

from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.topics.descriptor import Descriptor

UseRefusal = Callable[[str, bytes, Doing], str | None]


class Permissions:
    """The uses of topics that the scopes of this peer permit to begin."""

    __slots__ = ("_refusal", "begun")

    def __init__(self) -> None:
        self._refusal: UseRefusal = lambda name, topic, doing: None
        self.begun: dict[tuple[bytes, Doing], None] = {}

    def ask(self, refusal: UseRefusal) -> None:
        """Set what returns why a topic cannot be used now, in a sentence. Empty: it can. None: no scope bounds it."""
        self._refusal = refusal

    def why_not(self, descriptor: Descriptor, doing: Doing) -> str:
        """Return why applications here have to wait with this use; empty if they need not."""
        if descriptor.creator or (descriptor.topic, doing) in self.begun:
            return ""
        why = self._refusal(descriptor.name, descriptor.topic, doing)
        if why == "":
            self.begin(descriptor.topic, doing)
        return why or ""

    def begin(self, topic: bytes, doing: Doing) -> None:
        """Note a use that has begun here, so that no scope stops it later."""
        self.begun[topic, doing] = None

    def forget(self, subscribed: Container[bytes], published: Container[bytes]) -> None:
        """Note that uses of all other topics have ended."""
        used = {"subscribes": subscribed, "publishes": published}
        self.begun = {(topic, doing): None for topic, doing in self.begun if topic in used[doing]}
