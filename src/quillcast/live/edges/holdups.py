"""Finds out which peers hold up an acknowledgement, by asking along the topic's tree, and names them for people."""

from quillcast.core.ids import short
from quillcast.core.messages import Contact
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.inspection import Walk
from quillcast.protocol.topics.publishing.publisher import Publisher

NAMED_MAX = 10  # peers that are named in one text; a guess


class HoldUps:
    """Asks who holds up a publisher's events before `last`; the answers gather within its `with` block."""

    def __init__(self, pump: Pump, peer: Peer, publisher: Publisher, last: int) -> None:
        self._peer, self._publisher = peer, publisher
        self._number: int | None = None
        self._walk: Walk | None = None
        if publisher.root is not None:
            self._number = pump.call(peer.scribe.inspection.who_lags, publisher, last)
            self._walk = peer.scribe.inspection.walks[self._number]

    def __enter__(self) -> "HoldUps":
        return self

    def __exit__(self, *error: object) -> None:
        if self._number is not None:
            del self._peer.scribe.inspection.walks[self._number]

    @property
    def peers(self) -> list[str]:
        """NodeIds of those that hold it up, in hexadecimal."""
        walk = self._walk
        if walk is None:
            return []
        nodes = [*(contact.node_id for contact in (*walk.behind, *walk.unresponsive)), *walk.orphaned_leases]
        return [node.hex() for node in dict.fromkeys(nodes)]

    def lagging(self) -> str:
        """Why admitted events are not stable."""
        trouble = self._root_trouble()
        if trouble is not None:
            return trouble
        assert self._walk is not None
        reasons = [*self._names()]
        if self._walk.withheld:
            reasons.append("only those whom the topic's list names are told which subscribers do not have it yet")
        if self._walk.hold_s > 0:
            reasons.append(
                f"the root {_named(self._walk.root)} declares nothing stable for another {self._walk.hold_s:.0f} s, "
                "because subscribers that it does not know yet may be joining"
            )
        return "; ".join(reasons) or "all peers that were asked have it by now, and their reports are in transit"

    def paced(self) -> str:
        """Why the root admits nothing now."""
        trouble = self._root_trouble()
        if trouble is not None:
            return trouble
        assert self._walk is not None
        names = "; ".join(self._names())
        if self._publisher.descriptor.settings.slow == "wait" and names:
            return f"the topic waits for its slow subscribers (slow = wait): {names}"
        root = self._walk.root
        if self._publisher.held_back:
            return (
                f"its root {_named(root)} has no room for more of a topic that waits for slow subscribers (slow = wait)"
            )
        here = root.node_id == self._peer.host.me
        if here and self._peer.scribe.flow_control.room_for(self._publisher.topic) <= 0:
            cause = "the buffers of this peer, its root, are full"
        elif not here and self._peer.host.room(root) <= 0:
            cause = f"the link to its root {_named(root)} has no room"
        else:
            cause = f"its root {_named(root)} has not answered for it yet"
        return f"{cause}: {names}" if names else cause

    def _root_trouble(self) -> str | None:
        """The problem of the root itself."""
        walk = self._walk
        if walk is None:
            return "the topic's root was lost, and another one is not found yet"
        if walk.root.node_id in walk.answered:
            return None
        if self._publisher.root != walk.root:
            return "the topic's root has changed just now"
        return f"its root {_named(walk.root)} does not answer"

    def _names(self) -> list[str]:
        """What each of these peers does."""
        assert self._walk is not None
        names = [f"{_named(contact)} does not have it yet" for contact in self._walk.behind]
        names += [f"{_named(contact)} does not answer" for contact in self._walk.unresponsive]
        names += [
            f"{short(node)} is gone, and its lease ends in {left_s:.0f} s"
            for node, left_s in self._walk.orphaned_leases.items()
        ]
        more = len(names) - NAMED_MAX
        return [*names[:NAMED_MAX], f"and {more} others"] if more > 0 else names


def _named(contact: Contact) -> str:
    return f"{short(contact.node_id)} ({contact.address})"
