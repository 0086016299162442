"""Children tables: where this peer forwards a topic's bundles (Scribe, section 3.1, membership management)."""

from collections.abc import Mapping
from itertools import chain, repeat

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import QuillcastError
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.trace import ChildAdded, ChildRemoved, Mark
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.membership.links import TreeLinks
from quillcast.protocol.topics.membership.subscribing import denied
from quillcast.protocol.topics.messages import Farewell, Join, JoinWithdrawn, Leave, Orphaned, Refused
from quillcast.protocol.topics.policy.channels import take_out
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import ChildEntered, LeaveIfIdle
from quillcast.protocol.topics.state.holders import UNKNOWN_PEER, Child, Ended, OrphanedLease, SourcesChild
from quillcast.protocol.topics.state.link_reports import (
    ChildReport,
    Move,
    is_of_run,
    joined_since,
    lowest_above_both,
    same_life,
)
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams, Starts
from quillcast.protocol.topics.trees import Trees


class ChildrenTables:
    """A peer as the parent of its children, in all topics."""

    __slots__ = (
        "barred", "config", "dispatch", "host", "links", "placement", "progress", "schedule", "source_streams",
        "trees", "unheard",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, links: TreeLinks, trees: Trees, placement: Placement,
        schedule: Schedule, source_streams: SourceStreams, progress: Progress, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.links, self.trees = host, config, links, trees
        self.placement, self.schedule, self.source_streams = placement, schedule, source_streams
        self.progress, self.dispatch = progress, dispatch
        self.unheard: dict[tuple[bytes, bytes], float] = {}  # topic and child without a report since it was entered
        self.barred: dict[tuple[bytes, bytes], float] = {}  # topic and child that may get no more events, since when
        dispatch.on_message(Leave, self.left)
        dispatch.on_message(JoinWithdrawn, self.withdrawn)

    # ---- entries

    def enter(self, tree: Tree, contact: Contact, start: int, starts: Starts = (), join: Join | None = None) -> Child:
        """Enter a child in the children table, to be served from an index of the present term on.

        It is also served from an index of each stream of a source, unless it only publishes.
        """
        contact = interned(contact)
        node = contact.node_id
        tree.flow.current.serve_from(start)
        cursor = tree.flow.first_over(start)
        has_streams = join is not None and bool(join.streams)
        right = join.warrant if join is not None else None
        if tree.by_source or has_streams:
            sends_only = join is not None and join.sends_only
            child: Child = SourcesChild(self.host, contact, cursor, tree.term, start, right, sends_only=sends_only)
        else:
            child = Child(self.host, contact, cursor, tree.term, start, right)
        told = zip(join.streams, chain(join.milestones, repeat(())), strict=False) if join is not None else ()
        known = {term: milestones for (term, *_), milestones in told}
        ended = join.ended if join is not None else ()
        self.source_streams.joined(tree, child, starts, known, ended)
        former = tree.leases.children.get(node)  # its Join may arrive twice
        lease = (None if child.sends_only else tree.leases.orphaned.get(node)) or former  # ends when the child reports
        tree.enter(child)
        self.placement.install(tree)
        if lease is not None:
            child.continue_from(lease, start)
        report = self.links.told(node, tree.topic) if join is not None else None  # else that is its latest report
        if isinstance(report, ChildReport):
            child.take_up(report)
            tree.came_to(report.reach if report.term == tree.term else 0)
            self.progress.child_says(tree, node, used_up=report.used_up)
            self.links.ask_anew(contact, tree.topic)
        self.await_word(tree, child)
        tree.answer(node)
        self.progress.tell_child(tree, contact)
        if join is not None and join.moved:  # as long as a former parent may take to leave, and name it to those above
            child.name(self.host.now() + 2 * self.config.leave_s)
        self._count(tree, child, join, lease)
        if former is None:
            self.links.add(contact)
            self.host.trace(ChildAdded(tree.topic, node, len(tree.leases.children)))
        if tree.by_source:
            self.dispatch.order(ChildEntered(tree.topic, contact))
        self.schedule.touch(tree)
        return child

    def _count(self, tree: Tree, child: Child, join: Join | None, former: Child | OrphanedLease | None) -> None:
        """Count by which of its moves a child came. One that joins again, or sent an old Join, came by an earlier."""
        move = former.move if former is not None else None
        if move is not None:
            child.came_by(move.number, move.up_to)
        if join is None or not join.number:
            return
        if not (child.move and child.move.follows(Move(child.contact.node_id, join.number))):
            child.came_by(join.number, lowest_above_both(join.path, tree.path_here(self.host.me)))

    def await_word(self, tree: Tree, child: Child) -> None:
        """Wait for the child's first report as a child. A peer that never sends one is none."""
        self.unheard[tree.topic, child.contact.node_id] = self.host.now()

    def heard_from(self, tree: Tree, child: Child) -> None:
        """A child speaks for itself and for the peers that came below it: end their orphaned leases."""
        if child.sends_only:
            return
        moves = child.speaks_for
        if moves:
            ended = tree.leases.heard_from(moves)
            if tree.root is not None:
                tree.root.heard_from(moves)
            if ended or child.named_until:
                self.schedule.touch(tree)

    def crowded(self, topic: bytes, child: bytes) -> str:
        """Return a sentence why a child has no room in one more topic, at this peer or in the child's share."""
        share, tree = self.trees.known.forgetting.topics_max // 2, self.trees.by_topic.get(topic)
        if tree is not None and child in tree.leases.children:
            return self.trees.known.crowded(topic)
        if self.links.counts.get(child, 0) >= share:
            why = f"one peer is another's child in at most {share} topics (half of topics.topics_max)"
        elif self.links.crowded(child):
            why = "what two peers tell each other of topics takes at most half of streams.map_bytes_max"
        else:
            return self.trees.known.crowded(topic)
        self.host.trace(Mark("topics_full"))
        return why

    def refers(self, tree: Tree, newcomer: Contact) -> bool:
        """Whether a newcomer must join another peer instead of this one."""
        return bool(self.placement.refer(tree, newcomer))

    def forgot(self, tree: Tree, join: Join) -> None:
        """A peer that was restarted joins again: the leases below it continue, because it no longer knows them.

        If this Join is an old one, it still knows those that came below it by another move of the same life.
        """
        node = join.child.node_id
        former = tree.leases.children.get(node)
        is_known = former is not None and same_life(former.number, join.number)
        if former is not None and former.spoken and not (is_known or self.links.is_leaf(node, tree.topic)):
            tree.open_leases().orphan(former, self.host.now() + self.config.lease_s, (UNKNOWN_PEER,))
        tree.leases.forgot(node, join.number)
        if tree.root is not None and not same_life(tree.root.awaited.get(node, 0), join.number):
            tree.root.forgot(node)

    # ---- rights

    def bar(self, tree: Tree) -> None:
        """After a change of the access list, stop serving children that it does not allow. They leave by themselves."""
        for node, child in tree.leases.children.items():
            if not child.sends_only and denied(tree.descriptor, node, child.right) is not None:
                child.bar()
                self.host.trace(Mark("child_barred"))
                self.barred[tree.topic, node] = self.host.now()
        self.placement.install(tree)

    def send_allowed_away(self, tree: Tree, parent: Contact) -> None:
        """This peer may no longer subscribe: send away children that may turn to its own parent."""
        for node, child in list(tree.leases.children.items()):
            if not child.barred:
                self.host.send(child.contact, Orphaned([tree.topic], (parent,)))
                self.remove(tree, node, "refused", lease=True)

    def _remove_barred(self, now: float, *, paused: bool) -> None:
        """Remove barred children after a lease, so that one that stays delays nobody for longer."""
        for (topic, node), since in list(self.barred.items()):
            tree = self.trees.by_topic.get(topic)
            child = tree.leases.children.get(node) if tree is not None else None
            if tree is None or child is None or not child.barred:
                del self.barred[topic, node]
            elif paused:
                self.barred[topic, node] = now
            elif now - since > self.config.lease_s:
                self.host.send(child.contact, Orphaned([topic]))
                self.remove(tree, node, "denied", lease=False)
                self.dispatch.order(LeaveIfIdle(tree.topic))

    # ---- letting go

    def remove(
        self,
        tree: Tree,
        node: bytes,
        why: str,
        *,
        lease: bool,
        whose: tuple[bytes, ...] = (),
        numbers: Mapping[bytes, int] = EMPTY,
        up_to: bytes | None = None,
    ) -> None:
        """Take a child out of the table. If a lease continues, its last report still holds stability back.

        `whose` leases continue, with the `numbers` of their moves: the child's own if it names no others. `up_to`: the
        child moves, and peers up to that one must hear of it.
        """
        child = take_out(tree, node)
        tree.answer(node)
        if child is None:
            return
        awaited = [other for other in whose or (node,) if other != self.host.me]
        if lease and awaited and not child.is_cut and not child.sends_only:
            leaf = not whose and self.links.is_leaf(node, tree.topic)
            move = child.move if up_to is not None and not whose else None
            move = move._replace(up_to=up_to) if move is not None and up_to is not None else None
            self._orphan_lease(tree, child, awaited, leaf=leaf, move=move, numbers=numbers)
        self.placement.install(tree)
        self.links.drop(child.contact, tree.topic)
        self.source_streams.parted(tree, child.contact)
        self.links.remove(node)
        self.host.trace(ChildRemoved(tree.topic, node, why))
        self.schedule.touch(tree)

    def _orphan_lease(
        self, tree: Tree, child: Child, awaited: list[bytes], *, leaf: bool = False, move: Move | None = None,
        numbers: Mapping[bytes, int],
    ) -> None:  # fmt: skip
        now = self.host.now()
        named_from = now + self.config.join_timeout_s if numbers else 0.0
        tree.open_leases().orphan(
            child, now + self.config.lease_s, awaited, leaf=leaf, move=move, numbers=numbers, named_from=named_from
        )

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector: the leases of a lost neighbour continue for a while.

        The neighbour is told, because it may hear this peer without knowing that its own messages do not arrive.
        """
        node = contact.node_id
        lost = [tree for tree in self.trees.linked(node) if node in tree.leases.children]
        for tree in lost:
            self.remove(tree, node, "lost", lease=True)
        if lost:
            self.host.send(contact, Orphaned([tree.topic for tree in lost]))
        self._go_after(lost)

    def send_away(self, tree: Tree) -> None:
        """Send the children of a peer without parent to others, so that it may become a child of one of them."""
        for node, child in list(tree.leases.children.items()):
            self.host.send(child.contact, Orphaned([tree.topic]))
            self.remove(tree, node, "refused", lease=True)

    def died(self, contact: Contact) -> None:
        """A peer has ended, and its leases with it. The leases of peers below it continue: they join elsewhere."""
        node = contact.node_id
        linked = [tree for tree in self.trees.linked(node) if node in tree.leases.children]
        died = [tree for tree in linked if self.links.is_leaf(node, tree.topic)]
        for tree in died:
            self.remove(tree, node, "died", lease=False)
        self._go_after(died)
        for tree in self.trees.by_topic.values():
            lease = tree.leases.orphaned.get(node) if tree.leases.orphaned else None
            if lease is not None and lease.leaf:
                tree.leases.heard_from((Move(node, lease.numbers.get(node, 0)),))
                self.schedule.touch(tree)

    def _go_after(self, gone: list[Tree]) -> None:
        """Children are gone without a Leave: if this peer leaves, it may have waited only for them."""
        for tree in gone if self.trees.leaving else ():
            self.dispatch.order(LeaveIfIdle(tree.topic))

    def left(self, sender: Contact, message: Leave) -> None:
        """Handle that a child leaves."""
        tree = self.trees.by_topic.get(message.topic)
        if tree is None:
            return
        why, child = "moved" if message.moved else "left", tree.leases.children.get(sender.node_id)
        if child is not None and joined_since(child.number, message.number):
            return  # the Join that followed it arrived first
        if message.run and child is not None and not is_of_run(child.number, message.run):
            message = Leave(message.topic, moved=True)
            why = "moved"
        up_to = message.up_to if message.moved else None
        numbers = dict(zip(message.leases, message.lives, strict=False))
        self.remove(tree, sender.node_id, why, lease=message.moved, whose=message.leases, numbers=numbers, up_to=up_to)
        self._note_ends(tree, sender.node_id, message)
        is_over = not (message.moved or message.declined) or message.leases  # naming others' leases, its own is over
        if child is not None and is_over:
            self._ended(tree, child, message.number)
        self.dispatch.order(LeaveIfIdle(tree.topic))

    def withdrawn(self, sender: Contact, message: JoinWithdrawn) -> None:
        """Handle that a peer no longer waits for this one to be its parent. One that is a child already says more."""
        tree = self.trees.by_topic.get(message.topic)
        waiting = tree.waiting.get(sender.node_id) if tree is not None else None
        if tree is not None and waiting is not None and not joined_since(waiting.join.number, message.number):
            tree.answer(sender.node_id)
            self.dispatch.order(LeaveIfIdle(tree.topic))

    def parted(self, tree: Tree, sender: Contact, message: Farewell) -> None:
        """A peer that others may wait for has left. It is a child only if its lease was renewed here meanwhile."""
        node, now = sender.node_id, self.host.now()
        numbers = dict(zip(message.leases, message.lives, strict=False))
        whose = message.leases or ((UNKNOWN_PEER,) if message.moved else ())
        if node in tree.leases.children:
            self.remove(tree, node, "left", lease=message.moved, whose=whose, numbers=numbers)
        elif awaited := [other for other in whose if other != self.host.me]:
            child = Child(self.host, sender, tree.flow.log.end, tree.term, 0)
            self._orphan_lease(tree, child, awaited, numbers=numbers)
        self._note_ends(tree, node, message)
        number = min(message.number + 1, NUMBER_MAX)  # as if it had joined here
        move = Move(node, number) if message.number else None
        tree.open_leases().note_ended(node, Ended(now + 2 * self.config.leave_s, move))
        if tree.root is not None:
            tree.root.heard_from((move or Move(node, 0),))
        self.schedule.touch(tree)
        self.schedule.wake(tree)

    def _note_ends(self, tree: Tree, node: bytes, message: Leave | Farewell) -> None:
        """Note leases that a peer names which began to leave earlier: they end as if it had stayed."""
        if (lease := tree.leases.orphaned.get(node)) is not None:
            now, left = self.host.now(), zip(message.leases, message.left_s, strict=False)
            lease.end_at({other: now + min(left_s, self.config.lease_s) for other, left_s in left})

    def name_again(self, tree: Tree, child: Child, up_to: bytes, number: int) -> None:
        """A child came from another parent: tell the peers above once more, up to a peer or to the root.

        A child that was taken back without a Join says its `number` only now, and one that asked another parent in vain
        since has a higher one. It is named by that number after its next report, and only if that report is of the
        incarnation that gave the number.
        """
        node = child.contact.node_id
        is_news = not child.number or Move(node, number).follows(Move(node, child.number))
        if is_news and is_of_run(number, self.links.run_of(node)):
            child.come_again(number)
            self.links.ask_anew(child.contact, tree.topic)
            self.await_word(tree, child)
        child.name(self.host.now() + 2 * self.config.leave_s, up_to)
        self.schedule.touch(tree)

    def _ended(self, tree: Tree, child: Child, number: int) -> None:
        """A child left in good order, having had `number` parents: nobody waits for a lease that it had below another.

        Its former parent may leave later and still name it. Until then, this peer remembers it and names it to those
        above.
        """
        node = child.contact.node_id
        last = Move(node, max(child.number, number) if same_life(child.number, number) else child.number, child.up_to)
        tree.leases.heard_from((last,))
        if child.named_until > self.host.now():
            tree.open_leases().note_ended(node, Ended(child.named_until, last if last.number else None))
        if tree.root is not None:
            tree.root.heard_from((last,))
        self.schedule.touch(tree)

    def dismiss(self, tree: Tree, successor: Contact | None) -> None:
        """This peer leaves: send its children to its own parent; those that wait for an answer ask again.

        `successor`: the next root, if this peer was the topic's root.
        """
        for join, _ in tree.waiting.values():
            self.host.send(join.child, Refused(tree.topic, "leaving"))
        tree.answer_all()
        above = tree.parent or tree.next_parent or successor
        for node in list(tree.leases.children):
            instead = (above,) if above is not None and above.node_id != node else ()
            self.host.send(tree.leases.children[node].contact, Orphaned([tree.topic], instead))

    def fail(self, tree: Tree, error: QuillcastError) -> None:
        """The topic cannot be reached through this peer: tell children and waiting peers."""
        is_denied = isinstance(error, AccessDenied)
        why, rule = ("denied", str(error)) if is_denied else ("unknown", "")
        for join, _ in tree.waiting.values():
            if not is_denied or join.warrant is None:  # else it may have the right, and asks again without this peer
                self.host.send(join.child, Refused(tree.topic, why, rule=rule))
        for node in list(tree.leases.children) if is_denied else ():  # they have the right, and join without this peer
            self.host.send(tree.leases.children[node].contact, Orphaned([tree.topic]))
            self.remove(tree, node, "refused", lease=True)
        tree.answer_all()

    def housekeep(self, now: float, *, paused: bool) -> None:
        """Remove children that never report: another peer accepted them meanwhile, and their Leave was lost."""
        self._remove_barred(now, paused=paused)
        for (topic, node), entered_at in list(self.unheard.items()):
            tree = self.trees.by_topic.get(topic)
            child = tree.leases.children.get(node) if tree is not None else None
            if tree is None or child is None or topic in self.links.streams.told(node):
                del self.unheard[topic, node]
            elif paused:
                self.unheard[topic, node] = now
            elif now - entered_at > 2 * self.config.join_timeout_max_s:
                self.host.trace(Mark("child_never_spoke"))
                self.host.send(child.contact, Orphaned([topic]))
                self.remove(tree, node, "expired", lease=True)
                self.dispatch.order(LeaveIfIdle(tree.topic))
        self.unheard = self.unheard or {}  # an emptied dict keeps the memory of all that it ever held
