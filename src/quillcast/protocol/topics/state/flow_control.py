"""Back-pressure: credit goes back to senders while the buffers are within the budget (docs/delivery.md, *Slowness*).

Where the budget is used up, a peer gives in this order:

1. Copies that it keeps for others only, stable or not, oldest first, of the busiest topic: at a root what all live
   leases have acknowledged; elsewhere what its children have themselves and its subscribers took, because the root
   keeps what peers further below, or lost ones, still need. That costs nobody an event, so nobody waits for it.
2. Time: it returns no credit for `patience_s`. Subscribers that can keep up have caught up by then.
3. The lease that needs the most of what is kept here, in all topics that may be cut at once, so that one culprit is
   waited for once. It is cut until it has caught up (`cut.Cut`): served from the buffer as far as that
   reaches, and told what it lost. A child that is up to date itself is asked to do the same with those below it
   (`CutLeases`).

A topic that waits for its slow subscribers would fill the budget, and hold up all others. So its root holds its
publishers back before: while the topic's share of buffers is used up, here or at a peer below (`shares.py`). After a
partition even these may fill up, with what both sides had. Topics that keep little here go on meanwhile: their credit
goes back, up to a bound, and of each link such a topic leaves a part of the credit to them.
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
from quillcast.protocol.topics.messages import CutLeases
from quillcast.protocol.topics.state.cut import CATCH_UP_S
from quillcast.protocol.topics.state.effects import LeaseEnded, RoomAgain
from quillcast.protocol.topics.state.holders import Child, LeaseHolder, OrphanedLease
from quillcast.protocol.topics.state.retention import end_lease, holders, kept_for, last_holder, reached, shed, total
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.shares import Shares
from quillcast.protocol.topics.state.small_topics import SmallTopics
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree

REPORTS = 10  # so many may pass until a parent hears that somebody far below it has caught up; a guess


class PatienceOver(Timer, frozen=True):
    """Senders have waited for `patience_s`, if the buffers have been over their budget since it was set."""


class LocalRoom(Timer, frozen=True):
    """This peer, as a root, takes events of its own publishers again."""


class FlowControl:
    """Holds senders' credit back while this peer's buffers are over their budget, for `patience_s` before a cut.

    That of publishers to a topic that waits it holds back sooner, where this peer is the root.
    """

    def __init__(
        self, host: Host, config: TopicConfig, trees: Mapping[bytes, Tree], budget: Budget, schedule: Schedule,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.trees, self.budget = host, config, trees, budget
        self.schedule, self.dispatch = schedule, dispatch
        self.small = SmallTopics(host, config, trees, budget)
        self.shares = Shares(trees, budget, schedule, self.small)
        self.withheld: dict[bytes, deque[tuple[bytes, int, bool]]] = EMPTY  # by topic: sender, bytes, are they its own?
        self.withheld_bytes = 0
        self.held_back: dict[bytes, None] = {}  # topics whose publishers are held back here
        self.over_since: float | None = None
        self.shed_again_at = 0.0
        self.taken: dict[bytes, int] = {}  # bytes of this peer's own publishers whose credit is held back, by topic
        dispatch.on_message(CutLeases, self.cut_leases)
        dispatch.on_alarm(PatienceOver, self.patience)

    # ---- this peer's own publishers, where it is the root: no link's credit lies between

    def room_for(self, topic: bytes) -> int:
        """Bytes that this peer, as the topic's root, takes of its own publishers now: a window as over a link."""
        return self.config.window_bytes - self.taken.get(topic, 0)

    def taken_here(self, topic: bytes, size_bytes: int) -> None:
        """A bundle of this peer's own publishers came to it as the root."""
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
        """Are the buffers over their budget?"""
        return self.budget.over

    def room_for_repairs(self, to: Contact, topic: bytes) -> int:
        """Bytes of a topic that a peer takes now. Topics that wait leave a part of the link's credit to the others."""
        return self.host.room(to, RESERVED_EIGHTHS[True] if self.trees[topic].waits else 0)

    @property
    def takes_repairs(self) -> bool:
        """Is a repair's credit given back at once? What full buffers hold may wait for just that: one window more.

        What senders had in transit when the buffers were full does not count: they are held back for it.
        """
        return self._unpaid_bytes <= self.config.window_bytes

    @property
    def _unpaid_bytes(self) -> int:
        """By how much the buffers are over their budget beyond what senders are held back for."""
        return self.budget.used_bytes - self.budget.limit_bytes - self.withheld_bytes

    def turns_away(self, tree: Tree, bundle: Bundle, unsealed_bytes: int) -> bool:
        """Is there no room for what a publisher sends that is held back? It sends that again after a while.

        There is as for a repair, and some more for what is kept here of a past term: it takes the place of that.
        `unsealed_bytes` were admitted before it in this turn.
        """
        beyond_bytes = self._unpaid_bytes + unsealed_bytes - self.config.window_bytes
        return beyond_bytes > (self.small.bound_bytes if tree.flow.past.holds(bundle.blocks) else 0)

    def release(self, sender: bytes, size_bytes: int, topic: bytes, *, own: bool = False) -> None:
        """A bundle has been moved: its credit goes back now, or when there is room again.

        At once as well if other topics fill the buffers. `own`: a publisher here sent it to this peer, its root.
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
            self.small.kept_bytes += size_bytes
            self._give_back(sender, size_bytes, topic, own=own)
        else:
            self.withheld = self.withheld or {}
            self.withheld.setdefault(topic, deque()).append((sender, size_bytes, own))
            self.withheld_bytes += size_bytes
        if self.budget.over:
            self.hold_back()
        else:
            self.relieved()  # a look has just made room: nothing else may come that would say so

    def release_admitted(self, bundles: Iterable[tuple[bytes, int]], topic: bytes) -> None:
        """Bundles of publishers were admitted. If those are held back, full buffers may wait for them, as for repairs.

        There was room for them, then (`turns_away`), unless they came with what used the topic's share up. Of each
        bundle, the peer that sent it and its size are given.
        """
        for sender, size_bytes in bundles:
            own = sender == self.host.me
            if topic in self.held_back and self.takes_repairs:
                self._give_back(sender, size_bytes, topic, own=own)
                self.hold_back()
            else:
                self.release(sender, size_bytes, topic, own=own)

    def _goes_on(self, topic: bytes) -> bool:
        """Does a topic go on while others fill the buffers? Those that keep little do, if they do so together, too.

        Repairs exceed the budget by a window and a little at most (`turns_away`), and these topics by a little more.
        """
        if self._unpaid_bytes > self.config.window_bytes + 2 * self.small.bound_bytes:
            return False
        return self.small.goes_on(topic)

    def _look(self, now: float) -> None:
        """While the buffers are over their budget: discard what is not needed, and see what small topics keep."""
        self._shed(now)
        self.small.look()
        self.relieved()

    def hold_back_publishers(self, tree: Tree) -> None:
        """A topic waits: if its share of buffers is used up, its publishers are to send no more, as receipts tell them.

        Their credit goes back: other topics use the same links.
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
        """Topics that are below their share again, or of which this peer is root no more, hold up nobody."""
        for topic in [topic for topic in self.held_back if not self._is_to_wait(self.trees.get(topic))]:
            self.held_back.pop(topic, None)
            tree = self.trees.get(topic)
            if tree is not None and (tree.root is not None or tree.parent is None):  # else it is for the parent to say
                self.schedule.note_held_back(tree, held_back=False)
            if tree is not None and tree.admitter is not None:
                self.dispatch.order(RoomAgain(tree.topic))

    def _is_to_wait(self, tree: Tree | None) -> bool:
        """Is this a root, or a source that the root holds back, of a topic whose share is used up?"""
        if tree is None or (tree.admitter is None and tree.root is None):
            return False
        return self.shares.is_used_up(tree) or (tree.root is None and tree.topic in self.schedule.held_back)

    def hold_back(self) -> None:
        """The buffers may be over their budget: shed what may go at once, else begin to wait."""
        if self.over_since is None and self.budget.over:
            now = self.host.now()
            if now >= self.shed_again_at:
                self._shed(now)
                crowded = self.budget.used_bytes > self._goal_bytes  # what is left is needed: wait before looking again
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
        """The buffers may have shrunk: credit is held back for what they are over their budget, and not for more."""
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
        """Give back what is withheld of a topic, as far as there is room again, or all if it keeps little here.

        If its publishers are held back, there is room as for repairs.
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
        """Those who can keep up have had the time to."""
        if not self.budget.over:
            self.relieved()
        if self.over_since is not None and self.host.now() - self.over_since >= self.config.patience_s:
            self.cut()

    def housekeep(self, now: float, *, paused: bool) -> None:
        """Look whether the buffers are over their budget, and for how long.

        `paused`: this process was paused until now. Subscribers could not report meanwhile, so patience begins anew.
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
        """Wait no more: end leases, those that hold back the most first, until the buffers are within their budget.

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
        """The topics whose leases may end: all that do not wait, but for the smallest, which keep little together."""
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
        """The topics that keep anything, the busiest first."""
        keeping = [tree for tree in self.trees.values() if len(tree.flow.log)]
        return sorted(keeping, key=lambda tree: (tree.flow.log.size_bytes, tree.topic), reverse=True)

    def _shed(self, now: float) -> None:
        """Keep no more copies than live leases at this peer and below need, and of past terms what was not stable."""
        for tree in self.trees.values():
            self._discard_past(tree, self._goal_bytes)
        for tree in self._busiest():
            if self.budget.used_bytes <= self._goal_bytes:
                return
            self._shed_tree(tree, now)

    def _shed_tree(self, tree: Tree, now: float) -> None:
        """Bring a topic's copies down by as much as the buffers exceed the goal; leases that still need one lose it."""
        for term in tree.flow.live_terms():
            over_bytes = self.budget.used_bytes - self._goal_bytes
            needed_from = min([tree.flow.front(term) or 0, *(position for position, _ in kept_for(tree, now, term))])
            if shed(tree, now, max(0, tree.flow.log.size_bytes - over_bytes), term):
                self.host.trace(Mark("shed_copies"))
                self.schedule.touch(tree)
                if (missing := tree.flow.kept_from(term) - needed_from) > 0:
                    self._dropped(tree, missing)

    def _discard_past(self, tree: Tree, goal_bytes: int, *, needless_only: bool = True) -> None:
        """Discard the oldest bundles of past terms while the buffers exceed a goal: what nobody needs, or all."""
        for term in sorted(tree.flow.past):
            over_bytes = self.budget.used_bytes - goal_bytes
            if over_bytes > 0 and (count := discard_past(tree.flow, term, over_bytes, needless_only=needless_only)):
                self._dropped(tree, count)

    def _dropped(self, tree: Tree, count: int) -> None:
        self.host.trace(Dropped(tree.topic, count, "budget"))
        self.schedule.touch(tree)  # a subscriber that lost something may have a hole to wait at

    # ---- leases

    def _end_last_lease(self, tree: Tree, now: float) -> bool:
        """End the lease that holds the topic back the most here. False if none does, or if that was requested."""
        holder = last_holder(tree, now)
        if holder is None:
            return self._end_hold(tree, now)
        if isinstance(holder, Child) and holder.keeps_up(total(tree), now) and self._may_comply(holder, now):
            holder.request_cut(total(tree))  # it keeps up, and somebody below it does not
            self.host.send(holder.contact, CutLeases(tree.topic, tree.term, total(tree)))
            return False
        self._end(tree, holder, now)
        if isinstance(holder, Child | OrphanedLease):
            self._end_elsewhere(tree, _node_of(tree, holder), now)
        return True

    def _may_comply(self, child: Child, now: float) -> bool:
        """Is it too early to end a child's own lease, because it was not asked before, or that may have been lost?"""
        return child.cut_request is None or now - child.cut_request.since < self.config.patience_s

    def _end(self, tree: Tree, holder: LeaseHolder, now: float) -> None:
        self.host.trace(Mark("lease_cut"))
        end_lease(tree, holder, now, max(CATCH_UP_S, REPORTS * self.config.report_s))
        self.schedule.touch(tree)

    def _end_elsewhere(self, cut: Tree, node: bytes, now: float) -> None:
        """One patience for a culprit: what holds one topic back would hold back the others next."""
        for tree in self.trees.values():
            if tree is cut or tree.waits:
                continue
            for holder in _of(tree, node, now):
                self._end(tree, holder, now)
                self._discard(tree, now)

    def _end_hold(self, tree: Tree, now: float) -> bool:
        """A root that took over waits for those that it does not know, as long as patience lasts: they report soon."""
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
        """The parent's buffers are full: end the leases here and below that have not acknowledged a position."""
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

        Those go on whose peer misses some of it, as do those that wait for an event before it.
        """
        for holder in holders(tree, self.host.now()):
            if holder.needed_from(tree.term) >= index or holder.is_cut:
                continue
            if isinstance(holder, Child):
                self.host.send(holder.contact, CutLeases(tree.topic, tree.term, index, slow=True))
            elif isinstance(holder, Subscription) and holder.channel.cursor < tree.flow.log.end:
                self._end(tree, holder, self.host.now())


def _node_of(tree: Tree, holder: "Child | OrphanedLease") -> bytes:
    if isinstance(holder, Child):
        return holder.contact.node_id
    return next((node for node, lease in tree.leases.orphaned.items() if lease is holder), b"")


def _of(tree: Tree, node: bytes, now: float) -> "Iterable[Child | OrphanedLease]":
    """The leases of a peer in a topic, where they hold it back."""
    child, lease = tree.leases.children.get(node), tree.leases.orphaned.get(node)
    if child is not None and not child.is_cut and child.progress[1] < total(tree) and child.is_stalled(now):
        yield child
    if lease is not None:
        yield lease
