"""Finds out which peers hold up an acknowledgement, by asking along the topic's tree, and names them for people."""

from quillcast.core.ids import short
from quillcast.core.messages import Contact
from quillcast.live.edges.peer import NAMED_MAX, node_ids, silent
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.inspection import Walk
from quillcast.protocol.topics.publishing.publisher import Publisher


class HoldUps:
    """Asks which peers hold up a publisher's events before `last`; the answers arrive within its `with` block."""

    def __init__(self, pump: Pump, peer: Peer, publisher: Publisher, last: int) -> None:
        self._peer, self._publisher = peer, publisher
        self._number: int | None = None
        self._walk: Walk | None = None
        if publisher.root is not None:
            self._number, self._walk = pump.call(peer.who_lags, publisher, last)

    def __enter__(self) -> "HoldUps":
        return self

    def __exit__(self, *error: object) -> None:
        if self._number is not None:
            self._peer.end_walk(self._number)

    @property
    def peers(self) -> list[str]:
        """NodeIds of the peers that hold them up, in hexadecimal."""
        walk = self._of_root()
        if walk is None:
            return node_ids(self._awaited() if self._publisher.root is None else [self._publisher.root])
        nodes = [*self._named_nodes(walk), *[contact.node_id for contact in (*self._held_for(), *self._maybe())]]
        return [node.hex() for node in dict.fromkeys(nodes)]

    def lagging(self) -> str:
        """Why admitted events are not stable."""
        trouble = self._root_trouble()
        if trouble is not None:
            return trouble
        reasons = "; ".join(self._reasons())
        return reasons or "all peers that were asked have it by now, and their reports are in transit"

    def held_back(self) -> str:
        """Why the root admits no events now."""
        trouble = self._root_trouble()
        if trouble is not None:
            return trouble
        assert self._walk is not None
        settings, reasons, root = self._publisher.descriptor.settings, "; ".join(self._reasons()), self._walk.root
        here = root.node_id == self._peer.host.me
        if settings.slow == "wait" and reasons:
            return f"the topic waits for its slow subscribers (slow = wait): {reasons}"
        if self._publisher.held_back:
            waits = "a topic that waits for slow subscribers (slow = wait)"
            return f"its root {self._named(root)} has no room for more of {waits}"
        if here and self._peer.room_for(self._publisher.topic) <= 0:
            cause = "the buffers of this peer, its root, are full"
        elif not here and self._peer.host.room(root) <= 0:
            cause = f"the link to its root {self._named(root)} has no room"
        elif settings.by_source:
            cause = "no second peer is known to have it (admission = source)"
        else:
            cause = f"its root {self._named(root)} has not answered for it yet"
        return f"{cause}: {reasons}" if reasons else cause

    def _root_trouble(self) -> str | None:
        """The problem of the root itself."""
        walk, root = self._of_root(), self._publisher.root
        if walk is not None:
            return None if walk.root.node_id in walk.answered else f"its root {self._named(walk.root)} does not answer"
        if root is not None:
            return f"{self._named(root)} has just become the topic's root, and does not know yet who has the event"
        return f"the topic's root is lost or not found yet: {silent(self._awaited())}"

    def _of_root(self) -> Walk | None:
        """The walk; None if the topic has another root now and the one that was asked has not answered."""
        walk = self._walk
        if walk is None or (walk.root.node_id not in walk.answered and walk.root != self._publisher.root):
            return None
        return walk

    def _awaited(self) -> list[Contact]:
        """The peers that were asked for the topic's root."""
        return self._peer.awaited_for(self._publisher.topic)

    def _reasons(self) -> list[str]:
        """The reason for each peer that holds them up, as far as the root names them, and for the root itself."""
        assert self._walk is not None
        reasons = self._names()
        if self._walk.withheld:
            reasons.append("only principals on the topic's access list may see which subscribers do not have it yet")
        hold = self._walk.hold
        if hold is not None and hold.paused:
            reasons.append(
                f"the root {self._named(self._walk.root)} was paused a short time ago, and declares nothing stable for "
                f"up to {hold.hold_s:.0f} s, until it knows whether another peer became root"
            )
        elif hold is not None:
            former = "".join(f" {self._named(contact)}, and that peer itself," for contact in self._held_for())
            lost = ", ".join(map(self._named, self._maybe()))
            perhaps = f"; {lost} may be one of them, and does not answer" if lost else ""
            reasons.append(
                f"the topic changed its root {hold.began_s:.0f} s ago; subscribers of the former root{former} have "
                f"{hold.hold_s:.0f} s to come back{perhaps}"
            )
        return reasons

    def _held_for(self) -> list[Contact]:
        """Who makes the root hold back stability, as far as known: the root itself, or a lost former root."""
        assert self._walk is not None
        hold = self._walk.hold
        if hold is None:
            return []
        if hold.paused:
            return [self._walk.root]
        return [contact for contact in self._peer.lost_peers() if hold.former.is_of(contact.node_id)]

    def _maybe(self) -> list[Contact]:
        """Lost peers for which the former root may have waited, although the new one knows no lease of them."""
        assert self._walk is not None
        hold, known = self._walk.hold, [*self._named_nodes(self._walk), *[each.node_id for each in self._held_for()]]
        if hold is None or hold.paused:
            return []
        lease_s = hold.began_s + hold.hold_s  # at least the time that was left of it when the root began
        lost = self._peer.lost_peers(since=self._peer.host.now() - hold.began_s - lease_s)
        return [contact for contact in lost if contact.node_id not in known][-NAMED_MAX:]

    @staticmethod
    def _named_nodes(walk: Walk) -> list[bytes]:
        """The nodeIds that the peers of the tree name."""
        return [*[contact.node_id for contact in (*walk.behind, *walk.unresponsive)], *walk.orphaned_leases]

    def _names(self) -> list[str]:
        """One text per peer: what it does."""
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
