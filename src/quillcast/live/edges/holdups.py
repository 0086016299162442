"""Finds out which peers hold up an acknowledgement, by asking along the topic's tree, and names them for people."""

from quillcast.core.ids import short
from quillcast.core.messages import Contact
from quillcast.live.edges.peer import NAMED_MAX, node_ids, silent
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.inspection import Walk
from quillcast.protocol.topics.publishing.publisher import Publisher


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
        walk = self._of_root()
        if walk is None:
            return node_ids(self._awaited() if self._publisher.root is None else [self._publisher.root])
        nodes = [*(contact.node_id for contact in (*walk.behind, *walk.unresponsive)), *walk.orphaned_leases]
        if walk.hold_s > 0:
            nodes.append(walk.root.node_id)
        return [node.hex() for node in dict.fromkeys(nodes)]

    def lagging(self) -> str:
        """Why admitted events are not stable."""
        trouble = self._root_trouble()
        if trouble is not None:
            return trouble
        assert self._walk is not None
        reasons = [*self._names()]
        if self._walk.withheld:
            reasons.append("only principals on the topic's access list may see which subscribers do not have it yet")
        if self._walk.hold_s > 0:
            reasons.append(
                f"the root {self._named(self._walk.root)} declares nothing stable for another {self._walk.hold_s:.0f} "
                "s, because it became root or was paused a short time ago, and subscribers that it does not know yet "
                "may be joining"
            )
        return "; ".join(reasons) or "all peers that were asked have it by now, and their reports are in transit"

    def held_back(self) -> str:
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
            waits = "a topic that waits for slow subscribers (slow = wait)"
            return f"its root {self._named(root)} has no room for more of {waits}"
        here = root.node_id == self._peer.host.me
        if here and self._peer.scribe.flow_control.room_for(self._publisher.topic) <= 0:
            cause = "the buffers of this peer, its root, are full"
        elif not here and self._peer.host.room(root) <= 0:
            cause = f"the link to its root {self._named(root)} has no room"
        elif self._publisher.descriptor.settings.by_source:
            cause = "no second peer is known to have it (admission = source)"
            if here and not names and self._walk.hold_s > 0:
                hold_s = f"{self._walk.hold_s:.0f} s"
                cause += f": only this peer takes part, and its new root counts nothing as stable for another {hold_s}"
        else:
            cause = f"its root {self._named(root)} has not answered for it yet"
        return f"{cause}: {names}" if names else cause

    def _root_trouble(self) -> str | None:
        """The problem of the root itself."""
        walk, root = self._of_root(), self._publisher.root
        if walk is not None:
            return None if walk.root.node_id in walk.answered else f"its root {self._named(walk.root)} does not answer"
        if root is not None:
            return f"{self._named(root)} became the topic's root just now, and has still to learn who has the event"
        return f"the topic's root is lost or not found yet: {silent(self._awaited())}"

    def _of_root(self) -> Walk | None:
        """The walk, unless the topic has another root now, and the one that was asked has not answered."""
        walk = self._walk
        if walk is None or (walk.root.node_id not in walk.answered and walk.root != self._publisher.root):
            return None
        return walk

    def _awaited(self) -> list[Contact]:
        """Who was asked for the topic's root."""
        return self._peer.scribe.awaited(self._publisher.topic)

    def _names(self) -> list[str]:
        """What each of these peers does."""
        assert self._walk is not None
        names = [f"{self._named(contact)} does not have it yet" for contact in self._walk.behind]
        names += [f"{self._named(contact)} does not answer" for contact in self._walk.unresponsive]
        names += [
            f"{short(node)} is gone, and its lease ends in {left_s:.0f} s"
            for node, left_s in self._walk.orphaned_leases.items()
        ]
        more = len(names) - NAMED_MAX
        return [*names[:NAMED_MAX], f"and {more} others"] if more > 0 else names

    def _named(self, contact: Contact) -> str:
        here = contact.node_id == self._peer.host.me
        return f"{short(contact.node_id)} ({'this peer' if here else contact.address})"
