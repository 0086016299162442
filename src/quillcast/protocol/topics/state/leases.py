"""The leases below a peer in a topic: of its children, of those that moved or were lost, and of those that left."""

from collections.abc import Iterable, Mapping

from quillcast.core.interning import EMPTY
from quillcast.protocol.topics.state.holders import Child, Ended, OrphanedLease
from quillcast.protocol.topics.state.link_reports import Move


class Leases:
    """The children table, and the leases that go on without a child.

    A tree has none of its own until `Tree.open_leases`. What these have none of is `EMPTY`.
    """

    __slots__ = ("children", "ended", "orphaned")

    def __init__(self) -> None:
        self.children: dict[bytes, Child] = EMPTY
        self.orphaned: dict[bytes, OrphanedLease] = EMPTY
        self.ended: dict[bytes, Ended] = EMPTY  # who came from another parent, and left

    def enter(self, child: Child) -> Child | None:
        """Enter a child in the children table. Returns the one that it was here before, if any."""
        self.children = self.children or {}
        former = self.children.get(child.contact.node_id)
        self.children[child.contact.node_id] = child
        self.is_back(child.contact.node_id)
        return former

    def take_out(self, node: bytes) -> Child | None:
        """Take a child out of the children table."""
        return self.children.pop(node, None)

    def orphan(
        self, child: Child, until: float, awaited: Iterable[bytes], *, leaf: bool = False, move: Move | None = None,
        numbers: Mapping[bytes, int] = EMPTY, named_from: float = 0.0,
    ) -> None:  # fmt: skip
        """A child is gone, and its lease, or those of others that it names, go on until a time.

        `move` is the one by which it had come here, if it moves to another parent now.
        """
        self.orphaned = self.orphaned or {}
        node = child.contact.node_id
        lease = OrphanedLease(child, until, awaited, leaf=leaf, move=move, numbers=numbers, named_from=named_from)
        former = self.orphaned.get(node)
        if former is not None:
            lease.continue_from(former)
        self.orphaned[node] = lease
        for other in self.children.values():
            self.heard_from(other.speaks_for)
        self.heard_from(self.ends)

    def resume(self, leases: dict[bytes, OrphanedLease]) -> None:
        """Leases had gone on while the topic was forgotten here."""
        self.orphaned = leases

    def expire(self, now: float) -> bool:
        """What time changes of the leases here, and of what is told of them. True if that is to be told."""
        over = [node for node, lease in self.orphaned.items() if lease.end_some(now)]
        for node in over:
            del self.orphaned[node]
        self.ended = {node: ended for node, ended in self.ended.items() if ended.until > now} or EMPTY
        named = [lease.expire(now) for lease in self.orphaned.values()]
        named += [child.expire(now) for child in self.children.values()]
        return bool(over) or any(named)

    def speaks_here(self, node: bytes) -> None:
        """A child reports as one: peers that still name it say nothing about its lease here from now on."""
        for other in self.children.values():
            other.outdate(node)

    def heard_from(self, moves: Iterable[Move]) -> bool:
        """Peers speak for themselves in the tree, or have left, by these moves (of number 0 where it is not known).

        Nobody waits any more for leases of theirs that are not of later moves. One that was restarted before it came
        knows nothing of those that were below it. True if a lease ended by that: what it held back is to be told.
        """
        before = len(self.orphaned)
        for move in moves if before else ():
            if any(lease.is_of_another_life(move) for lease in self.orphaned.values()):
                self.forgot(move.peer, move.number)
            for former, lease in list(self.orphaned.items()):
                lease.arrived(move)
                if not lease.awaited:
                    del self.orphaned[former]
        return len(self.orphaned) < before

    @property
    def ends(self) -> tuple[Move, ...]:
        """The last moves of those that left in good order lately; a number that is not known is 0."""
        return tuple([ended.move or Move(node, 0) for node, ended in self.ended.items()])

    def note_arrived(self, arrivals: Iterable[Move]) -> bool:
        """What the parent reports includes peers that moved away from here: their leases end. True if one did."""
        before = len(self.orphaned)
        for former, lease in list(self.orphaned.items()):
            lease.end_by(arrivals)
            if not lease.awaited:
                del self.orphaned[former]
        return len(self.orphaned) < before

    def forgot(self, node: bytes, number: int) -> None:
        """A peer comes again that knows nothing, as after a restart: it does not speak for those that were below it.

        But for those that were below it in the life of which its move has this number.
        """
        for lease in self.orphaned.values():
            lease.forgot(node, number)

    def note_ended(self, node: bytes, ended: Ended) -> None:
        """A child that came from another parent has left in good order; a lease that it had there is over, too."""
        if node not in self.children:
            self.ended = self.ended or {}
            self.ended[node] = ended
            self.heard_from((ended.move or Move(node, 0),))

    def is_back(self, node: bytes) -> None:
        """Somebody who may have left in good order takes part again."""
        self.ended = {other: each for other, each in self.ended.items() if other != node} or EMPTY

    def live(self, now: float) -> list[Child | OrphanedLease]:
        """Those below that are owed events: children, and lost ones whose leases continue."""
        children = [child for child in self.children.values() if not child.sends_only]
        if not self.orphaned:
            return [*children]
        return [*children, *[lease for lease in self.orphaned.values() if lease.until > now]]

    def end(self, lease: OrphanedLease) -> None:
        """A lease without a child is over."""
        for node in [node for node, each in self.orphaned.items() if each is lease]:
            del self.orphaned[node]

    def prolong(self, until: float) -> None:
        """This process was paused: no lease ran out."""
        for lease in self.orphaned.values():
            lease.prolong(until)

    def follow_path(self, path: tuple[bytes, ...]) -> bool:
        """A child of old may stand above now. True if a lease ended by that, or those above are asked about one."""
        news = False
        for former, lease in list(self.orphaned.items()):
            news = lease.follow_path(path) or news
            if not lease.awaited:
                del self.orphaned[former]
        return news


class NoLeases(Leases):
    """What the trees of leaves share."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        if value is not EMPTY:
            raise TypeError(f"cannot set {name} of the leases that all leaves share; open the tree's own first")
        super().__setattr__(name, value)


NO_LEASES = NoLeases()
