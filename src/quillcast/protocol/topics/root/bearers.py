"""On whose behalf peers publish to the roots at a peer."""

from collections.abc import Iterable

from quillcast.protocol.security.access import Warrant, bearer
from quillcast.protocol.topics.descriptor import Descriptor


class Bearers:
    """The principals that peers act for, as their warrants showed, in topics whose lists name publishers."""

    def __init__(self, peers_max: int) -> None:
        """`peers_max`: the most peers that are remembered in one topic."""
        self.peers_max = peers_max
        self.shown: dict[bytes, dict[bytes, dict[str, None]]] = {}  # principals by topic and peer

    def note(self, topic: bytes, descriptor: Descriptor, node: bytes, warrants: Iterable[Warrant]) -> None:
        """Note the principals that a peer acts for and that may publish."""
        for warrant in warrants if descriptor.access else ():
            who = bearer(warrant, node, topic)
            if who and descriptor.refusal("publish", who) is None:
                shown = self.shown.setdefault(topic, {})
                shown.setdefault(node, {})[who] = None
                if len(shown) > self.peers_max:
                    del shown[next(iter(shown))]  # it shows its warrant again when it is denied

    def may_publish(self, topic: bytes, descriptor: Descriptor, node: bytes) -> bool:
        """Whether a peer has shown that it acts for a principal who may publish."""
        who = self.shown.get(topic, {}).get(node, {})
        return any(descriptor.refusal("publish", one) is None for one in who or {"": None})

    def forget(self, topic: bytes) -> None:
        """Forget a topic that is rooted elsewhere: a peer that publishes here again shows its warrants again."""
        self.shown.pop(topic, None)
