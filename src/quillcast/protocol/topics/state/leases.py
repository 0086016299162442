"""The leases below a peer in a topic: of its children, and of children that moved, were lost or left."""

from collections.abc import Iterable, Mapping

from quillcast.core.interning import EMPTY
from quillcast.protocol.topics.state.holders import Child, Ended, OrphanedLease
from quillcast.protocol.topics.state.link_reports import Move


class Leases:
    """The children table, and the leases that continue without a child.

    A tree has its own only after `Tree.open_leases`. Empty tables are `EMPTY`.
    """

    __slots__ = ("children", "ended", "orphaned")

    def __init__(self) -> None:
        self.children: dict[bytes, Child] = EMPTY
        self.orphaned: dict[bytes, OrphanedLease] = EMPTY
        self.ended: dict[bytes, Ended] = EMPTY  # peers that came from another parent, and left

    def enter(self, child: Child) -> Child | None:
        """Enter a child in the children table. Return its former entry, if any."""
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
        """Keep the lease of a child that is gone, or the leases of peers that it names, until a time.

        `move` is the one by which the child had come here, if it moves to another parent now.
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
        """Take back leases that continued while the topic was forgotten here."""
        self.orphaned = leases

    def expire(self, now: float) -> bool:
        """End leases, and stop or begin naming peers, when their time has come. Return whether to report that."""
        over = [node for node, lease in self.orphaned.items() if lease.end_some(now)]
        for node in over:
            del self.orphaned[node]
        self.ended = {node: ended for node, ended in self.ended.items() if ended.until > now} or EMPTY
        named = [lease.expire(now) for lease in self.orphaned.values()]
        named += [child.expire(now) for child in self.children.values()]
        return bool(over) or any(named)

    def speaks_here(self, node: bytes) -> None:
        """Note that a child reports itself: from now on, other peers that name it do not speak for its lease here."""
        for other in self.children.values():
            other.outdate(node)

    def heard_from(self, moves: Iterable[Move]) -> bool:
        """Note that peers report for themselves in the tree, or have left, by these moves (number 0: unknown).

        Their leases end, unless they are of later moves. A peer that was restarted before it came knows nothing about
        the peers that were below it. Return whether a lease ended: what it held back is then to be reported.
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
        """The last moves of peers that left in good order lately. An unknown number is 0."""
        return tuple([ended.move or Move(node, 0) for node, ended in self.ended.items()])

    def note_arrived(self, arrivals: Iterable[Move]) -> bool:
        """End the leases of peers that moved away from here and that the parent's reports include. True if one did."""
        before = len(self.orphaned)
        for former, lease in list(self.orphaned.items()):
            lease.end_by(arrivals)
            if not lease.awaited:
                del self.orphaned[former]
        return len(self.orphaned) < before

    def forgot(self, node: bytes, number: int) -> None:
        """Note that a peer returned in another life, for instance after a restart.

        It does not speak for the peers that were below it, except those in the life of this move number.
        """
        for lease in self.orphaned.values():
            lease.forgot(node, number)

    def note_ended(self, node: bytes, ended: Ended) -> None:
        """Note that a child that came from another parent left in good order, so that its lease there ends, too."""
        if node not in self.children:
            self.ended = self.ended or {}
            self.ended[node] = ended
            self.heard_from((ended.move or Move(node, 0),))

    def is_back(self, node: bytes) -> None:
        """Note that a peer that may have left in good order takes part again."""
        self.ended = {other: each for other, each in self.ended.items() if other != node} or EMPTY

    def live(self, now: float) -> list[Child | OrphanedLease]:
        """Return the lease holders below: children, and lost ones whose leases continue."""
        children = [child for child in self.children.values() if not child.sends_only]
        if not self.orphaned:
            return [*children]
        return [*children, *[lease for lease in self.orphaned.values() if lease.until > now]]

    def end(self, lease: OrphanedLease) -> None:
        """End a lease without a child."""
        for node in [node for node, each in self.orphaned.items() if each is lease]:
            del self.orphaned[node]

    def prolong(self, until: float) -> None:
        """Let no lease end before a time, because this process was paused."""
        for lease in self.orphaned.values():
            lease.prolong(until)

    def follow_path(self, path: tuple[bytes, ...]) -> bool:
        """Note the path above, which may include a former child. True if a lease ended or peers above are asked."""
        news = False
        for former, lease in list(self.orphaned.items()):
            news = lease.follow_path(path) or news
            if not lease.awaited:
                del self.orphaned[former]
        return news


class NoLeases(Leases):
    """The empty object that all trees without leases below share."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        if value is not EMPTY:
            raise TypeError(f"cannot set {name} of the leases that all leaves share; open the tree's own first")
        super().__setattr__(name, value)


NO_LEASES = NoLeases()
