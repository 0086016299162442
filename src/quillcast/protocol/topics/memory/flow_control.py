"""Back-pressure: credit returns to senders while the buffers are within the budget (docs/delivery.md, *Slowness*).

When the budget is used up, a peer gives up, in this order:

1. Copies that it keeps only for other peers, stable or not, oldest first, of the busiest topic. At a root these are the
   events that all live leases have acknowledged. Elsewhere they are the events that its children have themselves and
   its subscribers took: the root keeps what peers further below, or lost ones, still need. Nobody loses an event, so
   nobody waits.
2. Time: it returns no credit for `patience_s`. Subscribers that can keep up have caught up by then.
3. The lease that needs the most of what is kept here, in all topics that may be cut at once, so that senders wait for
   one culprit only once. The lease is cut until it has caught up (`cut.Cut`): it is served from the buffer as far as
   that reaches, and told what it lost. A child that is itself up to date is asked to do the same with the leases below
   it (`CutLeases`).

A topic that waits for its slow subscribers would fill the budget and delay all others. So its root holds back its
publishers earlier: while the topic's share of the buffers is used up, here or at a peer below (`shares.py`). After a
partition the buffers may fill up even so, with the events of both sides. Topics that keep little here continue
meanwhile: their credit returns, up to a bound, and waiting topics leave them a part of each link's credit.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.host import RESERVED_EIGHTHS, Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Dropped, Mark
from quillcast.protocol.forwarding.discarding import discard_past
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.memory.retention import end_lease, holders, kept_for, last_holder, reached, shed, total
from quillcast.protocol.topics.memory.shares import Shares
from quillcast.protocol.topics.memory.small_topics import SmallTopics
from quillcast.protocol.topics.messages import CutLeases
from quillcast.protocol.topics.state.cut import CATCH_UP_S
from quillcast.protocol.topics.state.effects import LeaseEnded, RoomAgain
from quillcast.protocol.topics.state.holders import Child, LeaseHolder, OrphanedLease
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree

REPORTS = 10  # that may pass until a parent hears that a peer far below it has caught up; a guess


class PatienceOver(Timer, frozen=True):
    """The end of `patience_s`, if the buffers have been over their budget since the timer was set."""


class LocalRoom(Timer, frozen=True):
    """This peer, as a root, accepts events of its own publishers again."""


class FlowControl:
    """Withholds senders' credit while this peer's buffers are over their budget, for `patience_s` before a cut.

    As a root, it holds back publishers to a topic that waits even earlier.
    """

    __slots__ = (
        "budget", "config", "dispatch", "held_back", "host", "over_since", "schedule", "shares", "shed_again_at",
        "small", "taken", "trees", "withheld", "withheld_bytes",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, trees: Mapping[bytes, Tree], budget: Budget, schedule: Schedule,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.trees, self.budget = host, config, trees, budget
        self.schedule, self.dispatch = schedule, dispatch
        self.small = SmallTopics(host, config, trees, budget)
        self.shares = Shares(trees, budget, schedule, self.small)
        self.withheld: dict[bytes, deque[tuple[bytes, int, bool]]] = EMPTY  # by topic: sender, bytes, is it this peer?
        self.withheld_bytes = 0
        self.held_back: dict[bytes, None] = {}  # topics whose publishers are held back here
        self.over_since: float | None = None
        self.shed_again_at = 0.0
        self.taken: dict[bytes, int] = {}  # by topic: bytes of this peer's own publishers whose credit is withheld
        dispatch.on_message(CutLeases, self.cut_leases)
        dispatch.on_alarm(PatienceOver, self.patience)

    # ---- this peer's own publishers to a topic whose root it is: no link's credit limits them

    def room_for(self, topic: bytes) -> int:
        """Return how many bytes this peer, as root, accepts from its own publishers now: a window, as over a link."""
        return self.config.window_bytes - self.taken.get(topic, 0)

    def taken_here(self, topic: bytes, size_bytes: int) -> None:
        """Note that a bundle of this peer's own publishers came to it as the root."""
        self.taken[topic] = self.taken.get(topic, 0) + size_bytes

    def _give_back(self, sender: bytes, size_bytes: int, topic: bytes, *, own: bool) -> None:
        if own:
            self._give_back_here(size_bytes, topic)
        else:
            self.host.release(sender, size_bytes)

    def _give_back_here(self, size_bytes: int, topic: bytes) -> None:
        was_full = self.room_for(topic) <= 0
        self.taken[topic] -= size_bytes
        if was_full and self.room_for(topic) > 0:
            self.host.set_timer(LocalRoom(), 0.0)
        if not self.taken[topic]:
            del self.taken[topic]

    # ---- all senders

    @property
    def is_pressed(self) -> bool:
        """Whether the buffers are over their budget."""
        return self.budget.over

    def room_for_repairs(self, to: Contact, topic: bytes) -> int:
        """Return how many bytes of a topic a peer accepts now. Topics that wait leave part of the credit to others."""
        return self.host.room(to, RESERVED_EIGHTHS[True] if self.trees[topic].waits else 0)

    @property
    def takes_repairs(self) -> bool:
        """Whether the credit of a repair returns at once. Full buffers may wait for just that: it gets one more window.

        Bytes that were in transit when the buffers were full do not count: their senders are held back for them.
        """
        return self._unpaid_bytes <= self.config.window_bytes

    @property
    def _unpaid_bytes(self) -> int:
        """Bytes by which the buffers exceed their budget, less the withheld credit."""
        return self.budget.used_bytes - self.budget.limit_bytes - self.withheld_bytes

    def turns_away(self, tree: Tree, bundle: Bundle, unsealed_bytes: int) -> bool:
        """Whether there is no room for a bundle of a publisher that is held back. The publisher sends it again later.

        There is as much room as for a repair, and some more for events of a past term, which are already kept here.
        `unsealed_bytes` were admitted before it in this turn.
        """
        beyond_bytes = self._unpaid_bytes + unsealed_bytes - self.config.window_bytes
        return beyond_bytes > (self.small.bound_bytes if tree.flow.past.holds(bundle.blocks) else 0)

    def release(self, sender: bytes, size_bytes: int, topic: bytes, *, own: bool = False) -> None:
        """Return the credit of a bundle that has been forwarded, now or when there is room again.

        It also returns at once if other topics fill the buffers. `own`: a publisher here sent it to this peer as root.
        """
        if not self.withheld and self.budget.used_bytes <= self.budget.limit_bytes:  # `over`, for every bundle
            if own:
                self._give_back_here(size_bytes, topic)
            else:
                release = self.host.release
                release(sender, size_bytes)
            return
        if self.small.is_due:
            self._look(self.host.now())
        if self._goes_on(topic):
            self.small.keep(size_bytes)
            self._give_back(sender, size_bytes, topic, own=own)
        else:
            self.withheld = self.withheld or {}
            self.withheld.setdefault(topic, deque()).append((sender, size_bytes, own))
            self.withheld_bytes += size_bytes
        if self.budget.over:
            self.hold_back()
        else:
            self.relieved()  # a look has just made room, and nothing later may notice that

    def release_admitted(self, bundles: Iterable[tuple[bytes, int]], topic: bytes) -> None:
        """Return the credit of publishers' admitted bundles, given as the sender and size of each.

        If publishers are held back, full buffers may wait for these bundles, as for repairs. There was room for them
        (`turns_away`), unless they came together with those that used up the topic's share.
        """
        for sender, size_bytes in bundles:
            own = sender == self.host.me
            if topic in self.held_back and self.takes_repairs:
                self._give_back(sender, size_bytes, topic, own=own)
                self.hold_back()
            else:
                self.release(sender, size_bytes, topic, own=own)

    def _goes_on(self, topic: bytes) -> bool:
        """Whether a topic continues while others fill the buffers. Topics that keep little, even together, do.

        Repairs exceed the budget by at most a window and a little (`turns_away`), and these topics by a little more.
        """
        if self._unpaid_bytes > self.config.window_bytes + 2 * self.small.bound_bytes:
            return False
        return self.small.goes_on(topic)

    def _look(self, now: float) -> None:
        """Discard what is not needed, and look at what small topics keep, while the buffers are over their budget."""
        self._shed(now)
        self.small.look()
        self.relieved()

    def hold_back_publishers(self, tree: Tree) -> None:
        """Hold back the publishers of a topic that waits, if its share of the buffers is used up. Receipts tell them.

        Their credit still returns, because other topics use the same links.
        """
        if tree.topic in self.held_back or not self._is_to_wait(tree):
            return
        self.held_back[tree.topic] = None
        self.host.trace(Mark("topic_blocked"))
        if tree.admitter is not None:
            tree.admitter.hold_back()
        if tree.root is not None:
            self.schedule.note_held_back(tree, held_back=True)

    def _unblock_topics(self) -> None:
        """Let publishers of topics continue that are below their share again, or whose root this peer no longer is."""
        for topic in [topic for topic in self.held_back if not self._is_to_wait(self.trees.get(topic))]:
            self.held_back.pop(topic, None)
            tree = self.trees.get(topic)
            if tree is not None and (tree.root is not None or tree.parent is None):  # else the parent says so
                self.schedule.note_held_back(tree, held_back=False)
            if tree is not None and tree.admitter is not None:
                self.dispatch.order(RoomAgain(tree.topic))

    def _is_to_wait(self, tree: Tree | None) -> bool:
        """Whether this peer is root, or a source that the root holds back, of a topic whose share is used up."""
        if tree is None or (tree.admitter is None and tree.root is None):
            return False
        return self.shares.is_used_up(tree) or (tree.root is None and tree.topic in self.schedule.held_back)

    def hold_back(self) -> None:
        """Shed copies if the buffers are over their budget. If that is not enough, begin to wait."""
        if self.over_since is None and self.budget.over:
            now = self.host.now()
            if now >= self.shed_again_at:
                self._shed(now)
                crowded = self.budget.used_bytes > self._goal_bytes  # the rest is needed: wait before looking again
                self.shed_again_at = now + self.config.report_s if crowded else now
            self._wait_or_go_on()

    def _wait_or_go_on(self) -> None:
        if self.budget.over:
            self.over_since = self.host.now()
            self.host.trace(Mark("flow_blocked"))
            self.host.set_timer(PatienceOver(), self.config.patience_s)
        else:
            self.relieved()

    def relieved(self) -> None:
        """Return credit after the buffers may have shrunk: it is only withheld as far as they exceed their budget."""
        if self.held_back:
            self._unblock_topics()
        if self.shares.told:
            self.shares.recheck()
        if not self.budget.over:
            self.over_since = None
        for topic in list(self.withheld):
            self._relieve(topic)
        self.withheld = self.withheld or EMPTY

    def _relieve(self, topic: bytes) -> None:
        """Return a topic's withheld credit as far as there is room, or all of it if the topic keeps little here.

        If its publishers are held back, there is as much room as for repairs.
        """
        withheld, room_bytes = self.withheld[topic], self.config.window_bytes if topic in self.held_back else 0
        while withheld and (self._unpaid_bytes + withheld[0][1] <= room_bytes or self._goes_on(topic)):
            sender, size_bytes, own = withheld.popleft()
            self.withheld_bytes -= size_bytes
            self._give_back(sender, size_bytes, topic, own=own)
        if not withheld:
            del self.withheld[topic]

    # ---- time

    def patience(self) -> None:
        """Cut leases if the buffers have been over their budget for `patience_s`."""
        if not self.budget.over:
            self.relieved()
        if self.over_since is not None and self.host.now() - self.over_since >= self.config.patience_s:
            self.cut()

    def housekeep(self, now: float, *, paused: bool) -> None:
        """Check whether the buffers are over their budget, and for how long.

        `paused`: this process was paused until now. Subscribers could not report meanwhile, so patience starts again.
        """
        if paused and self.over_since is not None:
            self.over_since = now
            self.host.set_timer(PatienceOver(), self.config.patience_s)
        self.hold_back()
        self.shares.housekeep()
        for topic in {**self.held_back, **self.shares.told}:
            if topic in self.trees:
                self._discard_past(self.trees[topic], 0)
        if self.budget.over:
            self._look(now)
        self.relieved()
        self.patience()

    def cut(self) -> None:
        """End leases until the buffers are within their budget, those that hold back the most first.

        Topics that keep little lose nothing, because they do not fill the buffers (`_culprits`).
        """
        now, culprits = self.host.now(), self._culprits()
        for topic, tree in self.trees.items():
            self._discard_past(tree, self._goal_bytes, needless_only=topic not in culprits)
        for tree in self._busiest():
            while tree.topic in culprits and self.budget.used_bytes > self._goal_bytes:
                if not self._end_last_lease(tree, now):
                    break
                self._discard(tree, now)
        self._shed(now)
        self.relieved()

    def _culprits(self) -> dict[bytes, None]:
        """Return the topics whose leases may end: all that do not wait, except the smallest, up to a small sum."""
        kept = ((tree.flow.kept_bytes, topic) for topic, tree in self.trees.items() if not tree.waits)
        found, small_bytes = dict[bytes, None](), 0
        for size_bytes, topic in sorted(kept):
            small_bytes += size_bytes
            if small_bytes > self.small.bound_bytes:
                found[topic] = None
        return found

    @property
    def _goal_bytes(self) -> int:
        return self.budget.limit_bytes * 7 // 8

    def _busiest(self) -> list[Tree]:
        """Return the topics that keep anything, the busiest first."""
        keeping = [tree for tree in self.trees.values() if len(tree.flow.log)]
        return sorted(keeping, key=lambda tree: (tree.flow.log.size_bytes, tree.topic), reverse=True)

    def _shed(self, now: float) -> None:
        """Discard copies that no live lease at this peer or below needs, and what was stable of past terms."""
        for tree in self.trees.values():
            self._discard_past(tree, self._goal_bytes)
        for tree in self._busiest():
            if self.budget.used_bytes <= self._goal_bytes:
                return
            self._shed_tree(tree, now)

    def _shed_tree(self, tree: Tree, now: float) -> None:
        """Discard as many of a topic's copies as the buffers exceed the goal. Leases that still need one lose it."""
        for term in tree.flow.live_terms():
            over_bytes = self.budget.used_bytes - self._goal_bytes
            needed_from = min([tree.flow.front(term) or 0, *(position for position, _ in kept_for(tree, now, term))])
            if shed(tree, now, max(0, tree.flow.log.size_bytes - over_bytes), term):
                self.host.trace(Mark("shed_copies"))
                self.schedule.touch(tree)
                if (missing := tree.flow.kept_from(term) - needed_from) > 0:
                    self._dropped(tree, missing)

    def _discard_past(self, tree: Tree, goal_bytes: int, *, needless_only: bool = True) -> None:
        """Discard the oldest bundles of past terms while the buffers exceed a goal: those that nobody needs, or all."""
        for term in sorted(tree.flow.past):
            over_bytes = self.budget.used_bytes - goal_bytes
            if over_bytes > 0 and (count := discard_past(tree.flow, term, over_bytes, needless_only=needless_only)):
                self._dropped(tree, count)

    def _dropped(self, tree: Tree, count: int) -> None:
        self.host.trace(Dropped(tree.topic, count, "budget"))
        self.schedule.touch(tree)  # a subscriber that lost something may wait at a gap

    # ---- leases

    def _end_last_lease(self, tree: Tree, now: float) -> bool:
        """End the lease that holds the topic back the most here. False if none does, or if a child was asked to."""
        holder = last_holder(tree, now)
        if holder is None:
            return self._end_hold(tree, now)
        if isinstance(holder, Child) and holder.keeps_up(total(tree), now) and self._may_comply(holder, now):
            holder.request_cut(total(tree))  # it keeps up, but a peer below it does not
            self.host.send(holder.contact, CutLeases(tree.topic, tree.term, total(tree)))
            return False
        self._end(tree, holder, now)
        if isinstance(holder, Child) or (isinstance(holder, OrphanedLease) and holder.is_lost):
            self._end_elsewhere(tree, holder.contact.node_id, now)
        return True

    def _may_comply(self, child: Child, now: float) -> bool:
        """Whether it is too early to end a child's own lease: it was not asked yet, or the request may be lost."""
        return child.cut_request is None or now - child.cut_request.since < self.config.patience_s

    def _end(self, tree: Tree, holder: LeaseHolder, now: float) -> None:
        self.host.trace(Mark("lease_cut"))
        end_lease(tree, holder, now, max(CATCH_UP_S, REPORTS * self.config.report_s))
        self.schedule.touch(tree)

    def _end_elsewhere(self, cut: Tree, node: bytes, now: float) -> None:
        """End a peer's leases in other topics too, because it would hold those back next. One patience is enough."""
        for tree in self.trees.values():
            if tree is cut or tree.waits:
                continue
            for holder in _of(tree, node, now):
                self._end(tree, holder, now)
                self._discard(tree, now)

    def _end_hold(self, tree: Tree, now: float) -> bool:
        """End the hold of a new root if patience is over. Until then it waits for unknown peers, which report soon."""
        root = tree.root
        if root is None or now >= root.held_until or now < root.began_at + self.config.patience_s:
            return False
        self.host.trace(Mark("hold_cut"))
        root.end_hold(now)
        return True

    def _discard(self, tree: Tree, now: float) -> None:
        if tree.root is not None:
            self.dispatch.order(LeaseEnded(tree.topic))
        if self.budget.used_bytes > self._goal_bytes:
            self._shed_tree(tree, now)

    def cut_leases(self, sender: Contact, message: CutLeases) -> None:
        """End the leases here and below that have not acknowledged a position: the parent's buffers are full."""
        tree, now = self.trees.get(message.topic), self.host.now()
        if tree is None or tree.term != message.term or tree.waits:
            return
        if tree.parent is None or tree.parent.node_id != sender.node_id:
            return
        if message.slow:
            self.end_slow_leases(tree, message.index)
            return
        by_source = tree.by_source
        index = total(tree) if by_source else message.index  # peers count streams differently
        for holder in list(holders(tree, now)):
            position = reached(tree, holder.needed_from) if by_source else holder.needed_from(tree.term)
            if position >= index or holder.is_cut:
                continue
            if isinstance(holder, Child) and holder.keeps_up(index, now):
                self.host.send(holder.contact, message)
            else:
                self._end(tree, holder, now)

    def end_slow_leases(self, tree: Tree, index: int) -> None:
        """End the leases, here and below, of subscribers without room for what their peer has below an index.

        Leases continue if their peer lacks some of it, or if they wait for an earlier event.
        """
        for holder in holders(tree, self.host.now()):
            if holder.needed_from(tree.term) >= index or holder.is_cut:
                continue
            if isinstance(holder, Child):
                self.host.send(holder.contact, CutLeases(tree.topic, tree.term, index, slow=True))
            elif isinstance(holder, Subscription) and holder.channel.cursor < tree.flow.log.end:
                self._end(tree, holder, self.host.now())


def _of(tree: Tree, node: bytes, now: float) -> "Iterable[Child | OrphanedLease]":
    """Yield the leases of a peer that hold a topic back."""
    child, lease = tree.leases.children.get(node), tree.leases.orphaned.get(node)
    if child is not None and not child.is_cut and child.progress[1] < total(tree) and child.is_stalled(now):
        yield child
    if lease is not None and lease.is_lost and reached(tree, lease.needed_from) < total(tree):
        yield lease
