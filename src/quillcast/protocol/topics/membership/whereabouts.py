"""Where lost children are now: their leases end here once it is known that others speak for them.

A peer that loses a child holds its lease, because the child may still need later events. But the child may have found
another parent long ago: perhaps the peer's own process was paused, or the path between the two was cut. Then the lease
would hold back the topic until it ends, up to a lease after the peer resumed.

So the peer asks (`LeaseHeld`). The answer (`HasOtherParent`) alone ends no lease, because it may overtake the report
that speaks for the child. The child has its present parent name it once more (`NameAgain`), and the peer tells those
above it which peers it waits for (`ChildReport.departures`). The lowest peer above both compares the two, as for a
child that moves in good order (docs/decisions/leadership-transfer.md).
"""

from collections.abc import Mapping
from typing import NamedTuple

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.topics.known.records import pages
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.memory.retention import reached, total
from quillcast.protocol.topics.messages import HasOtherParent, LeaseHeld, LeaseOver, NameAgain
from quillcast.protocol.topics.state.link_reports import Move, MoveCount, lowest_above_both
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree

MISSED_ROUNDS = 4  # a parent that asks twice within this many rounds lost this peer; a guess: messages may be lost


class Missed(NamedTuple):
    """A parent that asks where this peer is, and since when."""

    by: bytes
    since: float


class Whereabouts:
    """Asks lost children, answers as one, and has the peers above hear of a child again."""

    __slots__ = ("ask_s", "children", "host", "membership", "missed", "moves", "schedule", "trees")

    def __init__(
        self, host: Host, ask_s: float, trees: Mapping[bytes, Tree], moves: MoveCount,
        children: ChildrenTables, membership: TreeMembership, schedule: Schedule, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        """`ask_s`: how often a lost child is asked, in seconds."""
        self.host, self.ask_s, self.trees = host, ask_s, trees
        self.moves, self.children, self.membership, self.schedule = moves, children, membership, schedule
        self.missed: dict[bytes, Missed] = {}  # by topic
        dispatch.on_message(LeaseHeld, self.lease_held)
        dispatch.on_message(HasOtherParent, self.speaks_elsewhere)
        dispatch.on_message(LeaseOver, self.lease_over)
        dispatch.on_message(NameAgain, self.name_again)

    def housekeep(self, now: float, *, paused: bool) -> None:
        """Ask the lost children that hold anything back."""
        if self.missed:
            recently = now - MISSED_ROUNDS * self.ask_s
            self.missed = {topic: missed for topic, missed in self.missed.items() if missed.since >= recently}
        to_ask: dict[Contact, list[tuple[bytes, int, tuple[bytes, ...]]]] = {}
        for tree in [self.trees[topic] for topic in self.schedule.due if topic in self.trees]:
            for lease in tree.leases.orphaned.values():
                holds_back = reached(tree, lease.needed_from) < total(tree)
                if holds_back and (move := lease.ask(now, self.ask_s)) is not None:
                    asked = to_ask.setdefault(lease.contact, [])
                    asked.append((tree.topic, move.number, tree.path_here(self.host.me)))
        for contact, leases in to_ask.items():
            self.host.trace(Mark("lost_child_asked"))
            for page in pages(leases):
                self.host.send(contact, LeaseHeld(page))

    def lease_held(self, sender: Contact, message: LeaseHeld) -> None:
        """A former parent asks. Only a child that neither restarted nor left others behind speaks for all below it.

        If the present parent asks repeatedly, messages from here to it do not arrive, although it can be heard.
        """
        over: list[tuple[bytes, int]] = []
        elsewhere: list[tuple[bytes, bytes]] = []
        named: dict[tuple[Contact, int], list[tuple[bytes, bytes]]] = {}
        for topic, number, path in message.leases:
            tree = self.trees.get(topic)
            if not self.membership.is_of_this_life(topic, number):
                continue
            if tree is None or not tree.needed:
                over.append((topic, number))
            elif tree.parent is not None and tree.parent.node_id != sender.node_id:
                self.moves.count(topic, number)  # it asked the sender, but another became its parent
                elsewhere.append((topic, lowest_above_both(path, tree.path)))
                named.setdefault((tree.parent, self.moves.of(topic)), []).append(elsewhere[-1])
            elif tree.parent is not None and self._is_missed(topic, sender.node_id):
                del self.missed[topic]
                self.membership.forgotten(tree)
        if over := [each for each in over if not self.membership.last_word(each[0]).moved]:
            self.host.send(sender, LeaseOver(over))
        if elsewhere:
            self.host.send(sender, HasOtherParent(elsewhere))
        for (parent, number), topics in named.items():
            self.host.send(parent, NameAgain(topics, number))

    def _is_missed(self, topic: bytes, parent: bytes) -> bool:
        """Whether the parent asks repeatedly. It may ask once before it hears this peer again and takes it back."""
        now = self.host.now()
        missed = self.missed.get(topic)
        if missed is None or missed.by != parent:
            missed = self.missed[topic] = Missed(parent, now)
        return now - missed.since >= self.ask_s

    def speaks_elsewhere(self, sender: Contact, message: HasOtherParent) -> None:
        """A lost child has another parent."""
        for topic, up_to in message.topics:
            tree = self.trees.get(topic)
            lease = tree.leases.orphaned.get(sender.node_id) if tree is not None else None
            if tree is not None and lease is not None:
                lease.is_elsewhere(up_to)
                self.schedule.touch(tree)

    def lease_over(self, sender: Contact, message: LeaseOver) -> None:
        """A lost child no longer needs these topics."""
        for topic, number in message.leases:
            tree = self.trees.get(topic)
            lease = tree.leases.orphaned.get(sender.node_id) if tree is not None else None
            asked = lease is not None and lease.move is not None and lease.move.number == number
            if tree is not None and asked and tree.leases.heard_from((Move(sender.node_id, number),)):
                self.schedule.touch(tree)

    def name_again(self, sender: Contact, message: NameAgain) -> None:
        """A child is waited for elsewhere: tell the peers above."""
        for topic, up_to in message.topics:
            tree = self.trees.get(topic)
            child = tree.leases.children.get(sender.node_id) if tree is not None else None
            if tree is not None and child is not None:
                self.children.name_again(tree, child, up_to, message.number)
