"""How a peer enters and leaves a topic's tree: it gets a parent, and gives it up (Scribe, section 3.1).

The other end of the same links, the children table, is in `children.py`; what follows a loss is in `repair.py`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.errors import QuillcastError
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet, difference
from quillcast.core.trace import Attached, Detached, Mark
from quillcast.protocol.forwarding.answers import holding
from quillcast.protocol.forwarding.event_places import admitted_again
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.security.access import AccessDenied, Warrant
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.links import TreeLinks
from quillcast.protocol.topics.membership.subscribing import shown_warrant
from quillcast.protocol.topics.messages import Accepted, Join, JoinWithdrawn, Leave, Rejoin
from quillcast.protocol.topics.root_messages import RecordState
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import (
    BecomeRoot,
    ChildIsParent,
    GapNoticed,
    NobodyAnswers,
    ParentAccepted,
    PlaceTaken,
    SayFarewell,
    TopicFailed,
)
from quillcast.protocol.topics.state.holders import OrphanedLease
from quillcast.protocol.topics.state.link_reports import (
    PATH_MAX,
    Move,
    ParentReport,
    joined_since,
    lowest_above_both,
    same_life,
)
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_rights import warrants
from quillcast.protocol.topics.trees import Trees

UNANSWERED = 2  # unanswered Joins before a peer asks another than the root; a guess: their loss is rare
ASKED_MAX = 16  # peers asked directly for one topic that have not answered; a guess
REFERRALS_MAX = 64  # peers asked one after another, each named by the previous one; a guess: deeper than trees are
BESIDE_ROOT = 6  # the peers closest to a topic that it may ask; a guess
LEASES_NAMED_MAX = 64  # leases below a leaving peer; a guess
FORMER_MAX = 16  # former parents that a peer remembers per topic; a guess: more than adopt it within a lease


class Invitation(NamedTuple):
    """The peer that is to replace the present parent, and until when another's invitation waits for its answer."""

    by: bytes
    until: float
    number: int  # of the first Join to that peer since then


class JoinTimeout(Timer, frozen=True):
    """Has a parent accepted this peer meanwhile?"""

    topic: bytes
    attempt: int


class TreeMembership:
    """A peer as the child of its parents, one per topic."""

    __slots__ = (
        "asked", "began_at", "came_from", "config", "dispatch", "former", "host", "invited", "moves", "parents",
        "progress", "referrals", "ring", "schedule", "shown", "source_streams", "terms", "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, ring: Overlay, links: TreeLinks, trees: Trees, terms: Terms,
        schedule: Schedule, progress: Progress, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.ring, self.parents, self.trees = host, config, ring, links, trees
        self.terms, self.schedule, self.source_streams = terms, schedule, progress.source_streams
        self.progress, self.dispatch = progress, dispatch
        self.former: dict[bytes, dict[bytes, float]] = {}  # by topic and former parent: the end of the lease there
        self.invited: dict[bytes, Invitation] = {}  # by topic
        self.asked: dict[bytes, dict[bytes, Contact | None]] = EMPTY
        """By topic without a parent: peers that were asked directly and have not answered. None: it was withdrawn."""
        self.shown: dict[bytes, Warrant] = {}  # by topic: on whose behalf this peer last asked to be a child
        self.referrals: dict[bytes, int] = EMPTY  # by topic without a parent: how many referrals it followed in a row
        self.came_from: dict[bytes, tuple[bytes, ...]] = EMPTY  # by topic without a parent: the path to the last one
        self.moves = progress.moves
        self.began_at = host.now()
        dispatch.on_message(Accepted, self.accepted)
        dispatch.on_timer(JoinTimeout, self.timed_out)

    # ---- joining

    def join(self, tree: Tree, *, fault: bool = False) -> None:
        """Ask the overlay for a parent: route a Join to the topic (Scribe, figure 2, line 6).

        A known parent is asked to start or stop sending the topic's events, or to send the earliest that it keeps. A
        newcomer whose scope invites it waits for that first.
        """
        if tree.is_placed or not tree.needed or self.trees.leaving or self._awaits_invitation(tree):
            return
        if tree.parent is not None:
            self._ask_parent(tree, tree.parent)
        else:
            self._ask_overlay(tree, fault=fault)

    def _ask_overlay(self, tree: Tree, *, fault: bool) -> None:
        tree.begin_attempt()
        self.referrals.pop(tree.topic, None)
        if self.ring.active:
            if self.ring.is_closest(tree.topic):
                how = "took_over" if tree.heard != NO_TERM or tree.flow.begun else "created"
                self.dispatch.order(BecomeRoot(tree.topic, how))
                return
            if not self._awaits_invitation(tree):
                join = self.join_message(tree, fault=fault)
                self.ring.route(join, tree.topic)
                self._ask_another(tree, join)
        wait_s = min(self.config.join_timeout_s * 2 ** min(tree.attempt - 1, 4), self.config.join_timeout_max_s)
        self.expect_parent(tree, wait_s)

    def enter_overlay(self, tree: Tree) -> None:
        """Stop waiting for an invitation: none comes."""
        if self._awaits_invitation(tree) and not self.trees.leaving:
            self._ask_overlay(tree, fault=False)

    def _awaits_invitation(self, tree: Tree) -> bool:
        newcomer = tree.joining and not (tree.attached or tree.lost_parent or tree.fallbacks)
        return newcomer and tree.attempt == 1 and self.ring.awaits_invitation

    def join_again(self, tree: Tree) -> None:
        """Some peer refused this one: ask the overlay again, after a few attempts only once per `join_timeout_s`.

        Refusing peers may use an old path or table, and a refusal arrives within a round trip.
        """
        if tree.attempt <= UNANSWERED:
            self.join(tree)
        else:
            self.expect_parent(tree, self.config.join_timeout_s)

    def turn_to(self, tree: Tree, other: Contact) -> None:
        """Some peer refused this one: ask another, which that one named or which was known before.

        Two peers may refer it to each other, by old paths or because both are full. Then its time runs out
        (`timed_out`). The other may be one that waits here: if it has a parent, and only wants to move, it accepts.
        """
        followed = self.referrals.get(tree.topic, 0)
        if followed < REFERRALS_MAX:
            self.referrals = self.referrals or {}
            self.referrals[tree.topic] = followed + 1
            self.join_directly([tree], other, lost=b"")

    def _ask_another(self, tree: Tree, join: Join) -> None:
        """Nobody answers, and perhaps only this peer cannot reach the root: ask the peers beside the root in turn."""
        if tree.attempt > UNANSWERED + 1 and tree.leases.children:
            self.dispatch.order(NobodyAnswers(tree.topic))
        beside = self.ring.closest(tree.topic, BESIDE_ROOT)[1:] if tree.attempt > UNANSWERED else ()
        others = [each for each in beside if each.node_id != self.host.me]
        if others:
            self.host.trace(Mark("asked_beside_root"))
            other = others[tree.attempt % len(others)]
            self._note_asked(tree.topic, other)
            self.host.send(other, Rejoin(self.host.contact, b"", [join]))

    def _ask_parent(self, tree: Tree, parent: Contact) -> None:
        tree.begin_attempt()
        self.host.send(parent, Rejoin(self.host.contact, b"", [self.join_message(tree, fault=False, whole=False)]))
        self.expect_parent(tree, self.config.join_timeout_s)

    def leaf_set_changed(self) -> None:
        """The closest peer to a topic may have changed: join topics without a parent for which no Join is pending.

        Topics that this peer is now the closest to no longer wait for an answer.
        """
        for tree in list(self.trees.by_topic.values()):
            if not tree.attached and tree.needed and (not tree.joining or self.ring.is_closest(tree.topic)):
                self.join(tree)

    def join_message(self, tree: Tree, *, fault: bool, whole: bool = True, moved: bool = False) -> Join:
        """Return the Join of this peer; `whole` adds the descriptor to its digest, for peers on the path.

        `moved`: this peer comes from another parent. The present parent gets no number: it already knows it.
        """
        descriptor = tree.descriptor if whole else None
        earliest, warrant = _wants_earliest(tree), shown_warrant(tree, self.host.me)
        self._note_shown(tree.topic, warrant)
        sends_only = not (tree.receives or tree.leases.orphaned)  # it speaks for those leases
        number = self.moves.next(tree.topic) if moved or tree.parent is None else 0
        tree.note_asked(number)
        moved = moved or tree.moved
        streams = self.source_streams.known(tree)
        join = Join(
            tree.topic, self.host.contact, tree.have(), tree.descriptor.digest, descriptor, earliest,
            warrant=warrant, moved=moved, again=tree.attempt > 1, sends_only=sends_only,
            streams=streams, ended=self.source_streams.ended(tree),
            warrants=warrants(tree), number=number,
            path=(tree.path or self.came_from.get(tree.topic, ())) if moved else (),
            unresponsive=tuple(self.asked.get(tree.topic, ())),
            milestones=self.source_streams.dates.milestones_known(tree, streams),
        )  # fmt: skip
        handlers = self.trees.handlers.get(tree.topic)
        return handlers.fault_handler(join) if fault and handlers is not None else join

    def _note_shown(self, topic: bytes, warrant: Warrant | None) -> None:
        if warrant is not None:
            self.shown[topic] = warrant
        else:
            self.shown.pop(topic, None)

    def expect_parent(self, tree: Tree, wait_s: float) -> None:
        """Ask the overlay (again) unless some parent answers within about this time."""
        self.host.set_timer(JoinTimeout(tree.topic, tree.attempt), wait_s * (1 + self.host.random.random() / 4))

    def timed_out(self, timer: JoinTimeout) -> None:
        """Handle the end of the time for an answer."""
        tree = self.trees.by_topic.get(timer.topic)
        if tree is None or tree.is_placed or tree.attempt != timer.attempt:
            return
        tree.forget_waiting(self.host.now() - 2 * self.config.join_timeout_max_s)
        if not tree.needed:
            tree.stop_joining()
            self.leave_if_idle(tree, anyway=True)
            return
        self.host.trace(Mark("join_retried"))
        asked = self.asked.get(tree.topic, EMPTY)  # they stay there: a full peer is not to refer this one to them
        self._withdraw(tree.topic, [node for node in asked if tree.only_awaited or node in tree.waiting])
        if self._awaits_invitation(tree):
            self.enter_overlay(tree)
        else:
            self.join(tree)

    def _note_asked(self, topic: bytes, to: Contact) -> None:
        self.asked = self.asked or {}
        asked = self.asked.setdefault(topic, {})
        asked[to.node_id] = to
        if len(asked) > ASKED_MAX:
            first = next(iter(asked))
            self._withdraw(topic, [first])
            del asked[first]

    def _withdraw(self, topic: bytes, nodes: Iterable[bytes]) -> None:
        """Tell peers that were asked directly and have not answered that this one no longer waits for them.

        Until then each of them needs the topic for its child, and asks others, which need it for that peer. So peers
        that nothing else needs could wait for each other in a ring, for as long as the root cannot be reached.
        """
        asked = self.asked.get(topic, EMPTY)
        for node in nodes:
            if (other := asked[node]) is not None:
                asked[node] = None
                self.host.trace(Mark("join_withdrawn"))
                self.host.send(other, JoinWithdrawn(topic, self.moves.settle(topic)))

    def _withdraw_all(self, topic: bytes) -> None:
        self._withdraw(topic, self.asked.get(topic, EMPTY))
        self.asked.pop(topic, None)

    def join_directly(self, trees: list[Tree], to: Contact, lost: bytes, *, whole: bool = False) -> None:
        """Ask a parent known beforehand, in one message for all these topics."""
        joins = []
        for tree in trees:
            tree.turn_to(to)
            joins.append(self.join_message(tree, fault=bool(lost), whole=whole))
            self._note_asked(tree.topic, to)
            self.expect_parent(tree, self.config.join_timeout_s)
        self.host.send(to, Rejoin(self.host.contact, lost, joins))

    def follow(self, tree: Tree, root: Contact) -> None:
        """Become a child of the peer to which this one transferred its topic."""
        tree.begin_move()
        self.join_directly([tree], root, lost=b"")

    def await_next_root(self, tree: Tree, to: Contact) -> None:
        """This peer leaves after transferring its topic: wait for the next root to confirm that."""
        tree.begin_move()
        tree.turn_to(to)

    def sent_away(self, tree: Tree) -> None:
        """The parent says that it no longer is one."""
        self.detach(tree, "refused")
        tree.begin_move()

    def forgotten(self, tree: Tree) -> None:
        """The parent no longer has this peer among its children, as it says or as its questions show."""
        self.host.trace(Mark("parent_forgot_child"))
        self.sent_away(tree)
        if tree.needed or self.trees.leaving:
            self.join(tree)
        else:
            self.close(tree)

    # ---- the parent

    def refuse(self, other: Contact, topic: bytes, term: Term) -> None:
        """A peer that is not this one's parent takes it for a child, under this term: answer with a Leave.

        A lease continues there if the other was its parent, or if the terms differ. Otherwise the Join began none: a
        Join that was sent twice, as in a busy process, reached two peers, and the other one answered late. The other
        may still wait for this peer, as a root that follows. A peer whose invitation this one accepted gets no answer:
        it is to be the parent, and has not said so yet.
        """
        if self._invited_by(topic) == other.node_id:
            return
        tree = self.trees.by_topic.get(topic)
        if tree is not None and tree.root is not None:
            word = Leave(topic, moved=True)
        elif tree is None and self.host.now() - self.began_at < self.config.lease_s:
            word = replace(self.last_word(topic), run=self.host.incarnation)  # leases of a former one may continue
        elif tree is None or not tree.needed:
            word = self.last_word(topic)
        else:
            two_terms = tree.parent is None or term != tree.term  # neither speaks for the other's leases
            goes_on = two_terms or self._was_parent(topic, other.node_id)
            word = Leave(topic, moved=goes_on, declined=not goes_on)
        if tree is not None:
            tree.ask_anew()
        self.host.send(other, replace(word, number=self.moves.settle(topic)))

    def _was_parent(self, topic: bytes, node: bytes) -> bool:
        """Whether this peer was another's child so recently that its lease there may continue."""
        return self.former.get(topic, {}).get(node, 0.0) > self.host.now()

    def note_former(self, topic: bytes, parent: bytes) -> None:
        """This peer is no longer a child of another: remember that its lease there continues for some time."""
        former = self.former.setdefault(topic, {})
        former.pop(parent, None)
        former[parent] = self.host.now() + self.config.lease_s
        if len(former) > FORMER_MAX:
            del former[next(iter(former))]

    def accepted(self, parent: Contact, message: Accepted) -> None:
        """Handle that a peer entered this one in its children table."""
        tree = self.trees.by_topic.get(message.topic)
        if tree is not None and self._answers_former(tree, parent, message):
            self.host.trace(Mark("old_answer_refused"))
            self.host.send(parent, Leave(message.topic, moved=True, number=message.child_number))
        elif tree is None or not tree.needed:
            self.refuse(parent, message.topic, message.term)
            if tree is not None and tree.root is None:
                self.close(tree)
        elif tree.root is not None or self.host.me in message.path or len(message.path) >= PATH_MAX:
            self.host.trace(Mark("loop_refused"))
            tree.ask_anew()
            self.host.send(parent, Leave(message.topic, moved=True, number=self.moves.settle(message.topic)))
        elif tree.parent is not None and tree.parent.node_id != parent.node_id:
            if self._invited_by(tree.topic) == parent.node_id:
                self.host.trace(Mark("invitation_followed"))
                self.drop_parent(tree, "moved", lowest_above_both(tree.path, message.path))
                self._attach(tree, parent, message)
            else:
                self.refuse(parent, message.topic, message.term)
        else:
            self._attach(tree, parent, message)

    def _answers_former(self, tree: Tree, parent: Contact, message: Accepted) -> bool:
        """Whether this answers a Join that came before this peer last looked for a parent.

        This peer may have left that one meanwhile, which then answered before it heard of that, and is about to remove
        its child. The answer to a Join of an earlier run is not told apart.
        """
        if tree.root is not None or (tree.parent is not None and self._invited_by(tree.topic) != parent.node_id):
            return False
        since = tree.asked if tree.parent is None else self.invited[tree.topic].number
        since = since or self.moves.of(tree.topic) + 1
        return joined_since(since, message.child_number)

    def move(self, topics: Iterable[bytes], to: Contact, *, whole: bool = False) -> None:
        """Ask another peer to be the parent, and leave the present one when it has accepted: no event is late.

        `whole`: send the descriptors, because that peer may not know the topics.

        Moves to different parents follow one another. If two were asked at once, one that adopted this peer would keep
        a lease for it.
        """
        trees = [self.trees.by_topic[topic] for topic in topics if topic in self.trees.by_topic]
        if waiting := [tree for tree in trees if tree.needed and self._awaits_invitation(tree)]:
            self.join_directly(waiting, to, lost=b"", whole=whole)
        follow = [tree for tree in trees if tree.parent is not None and tree.parent.node_id != to.node_id]
        follow = [tree for tree in follow if not self._awaits_other(tree.topic, to.node_id)]
        if not follow:
            return
        joins = [self.join_message(tree, fault=False, whole=whole, moved=True) for tree in follow]
        until = self.host.now() + self.config.join_timeout_s
        for tree, join in zip(follow, joins, strict=True):
            former = self.invited.get(tree.topic)
            number = former.number if former is not None and former.by == to.node_id else join.number
            self.invited[tree.topic] = Invitation(to.node_id, until, number)
            self.note_former(tree.topic, to.node_id)  # once it adopts this peer, a lease continues there
        self.host.send(to, Rejoin(self.host.contact, b"", joins))

    def _awaits_other(self, topic: bytes, node: bytes) -> bool:
        """Whether another peer than this one was asked to be the parent, and may still answer."""
        invitation = self.invited.get(topic)
        return invitation is not None and invitation.by != node and invitation.until > self.host.now()

    def _invited_by(self, topic: bytes) -> bytes:
        return self.invited[topic].by if topic in self.invited else b""

    def declined(self, topic: bytes, by: Contact) -> None:
        """A peer does not adopt this one: if that one had invited it, another may."""
        self.asked.get(topic, {}).pop(by.node_id, None)
        if self._invited_by(topic) == by.node_id:
            del self.invited[topic]

    def _attach(self, tree: Tree, parent: Contact, message: Accepted) -> None:
        if message.descriptor is not None:
            self.trees.known.learn(message.descriptor)
            if tree.descriptor.supersedes(message.descriptor):  # all that kept it may have died
                self.host.send(parent, RecordState([(tree.descriptor, NO_TERM)]))
        if parent.node_id in tree.leases.children:
            self.dispatch.order(ChildIsParent(tree.topic, parent.node_id))
        whole = tree.flow.begun and tree.was_served
        how = "fallback" if tree.lost_parent and tree.attempt == 0 else "routed" if tree.lost_parent else "joined"
        new = tree.parent is None
        self.schedule.note_came(tree, self.host.now())
        self.came_from.pop(tree.topic, None)
        self.referrals.pop(tree.topic, None)
        self.asked.get(tree.topic, {}).pop(parent.node_id, None)
        tree.attach(parent, message.fallbacks, message.path)
        tree.leases.note_arrived([Move(parent.node_id, message.number)] if message.number else ())
        if message.term > tree.term:  # whatever its Join said: a peer that has begun needs the whole term
            self.terms.enter(tree, interned(message.term), 0 if tree.flow.begun else message.start)
        elif message.term == tree.term:
            tree.flow.current.serve_from(message.start)
        if message.gone is not None and _wants_earliest(tree):  # else an answer before this one did
            self._reopen(tree, message)
        if message.term == tree.term:
            tree.begin_behind(message.newest)
            tree.came_to(message.newest)  # as it may have to others of a scope, who are not below yet
        for term, end, there_ms in message.past:
            self.terms.recall(tree, term, end, there_ms)
        self.source_streams.learn_ends(tree, message.ended, parent, owed=whole)
        self.source_streams.attached(
            tree, parent, message.streams, message.warrants, message.milestones, whole=whole,
            served=not message.sends_only,
        )  # fmt: skip
        self.terms.heard_of(tree, message.term)
        if new:
            self.moves.come()
            self.parents.add(parent)
            self.host.trace(Attached(tree.topic, parent.node_id, how, len(tree.path)))
        self.progress.tell_parent(tree, parent)
        self.settled(tree, message.gone)
        if message.version > tree.descriptor.version:
            joins = [self.join_message(tree, fault=False, whole=False)]
            self.host.send(parent, Rejoin(self.host.contact, b"", joins))
        self.dispatch.order(ParentAccepted(tree.topic, parent))

    def _reopen(self, tree: Tree, message: Accepted) -> None:
        """The parent sends what it keeps again: this peer discarded some of it, and what arrives now may get lost."""
        starts = [(term, start) for term, start, _ in message.streams if term not in tree.sources.mine]
        for term, start in ((message.term, message.start), *starts):
            tree.flow.reopen(term, start)
        self.dispatch.order(GapNoticed(tree.topic))

    def settled(self, tree: Tree, gone: tuple[Gone, ...] | None = None) -> None:
        """This peer has a parent or is root: children that waited for this, and local subscriptions, begin.

        `gone` is what the parent no longer keeps, if it was asked for the earliest events. If it was not asked, and a
        subscription wants these, it is asked now.
        """
        tree.settle()
        self._withdraw_all(tree.topic)
        if not tree.served:
            if tree.receives:  # a child joined while this peer joined as one that only publishes
                self.join(tree)
            self.schedule.touch(tree)
            return
        self.dispatch.order(PlaceTaken(tree.topic, gone))
        self.schedule.touch(tree)
        self._send_only(tree)
        if tree.served:
            self.join(tree)  # a subscription may wait for the earliest events

    def end_doubts(self) -> None:
        """Settle in trees with a parent that this peer doubted after a pause of its process."""
        for tree in list(self.trees.by_topic.values()):
            if tree.doubted and tree.parent is not None:
                self.settled(tree)

    def detach(self, tree: Tree, why: str) -> None:
        """Note that this peer no longer has a parent."""
        if tree.parent is None:
            return
        parent = tree.parent
        self.invited.pop(tree.topic, None)
        self.host.trace(Detached(tree.topic, parent.node_id, why))
        if why == "refused":
            self.came_from = self.came_from or {}
            self.came_from[tree.topic] = tree.path
        tree.detach(left=why == "left")
        self.schedule.note_held_back(tree, held_back=False)
        self.note_former(tree.topic, parent.node_id)
        self.parents.drop(parent, tree.topic)
        self.source_streams.detached(tree, parent)
        self.parents.remove(parent.node_id)
        self.schedule.wake(tree)

    def drop_parent(self, tree: Tree, why: str, up_to: bytes = b"") -> None:
        """Leave the parent for another, or to be root. `up_to`: the lowest peer above both parents, if known."""
        if tree.parent is not None:
            number = self.moves.settle(tree.topic)
            self.host.send(tree.parent, Leave(tree.topic, moved=True, up_to=up_to, number=number))
            self.detach(tree, why)

    # ---- leaving

    def leave_if_idle(self, tree: Tree, *, anyway: bool = False) -> None:
        """Leave the parent if nothing here needs the topic, recursively up the tree (Scribe, figure 3, lines 9 to 12).

        Before the parent is known, the unsubscribe is delayed: the answer to the Join finds that nothing is needed. A
        peer that still publishes stays, and no longer asks for events.
        """
        if tree.keeping_until is not None and self._is_kept_above(tree):
            tree.keep_no_longer()
        if tree.needed or tree.root is not None:
            self._send_only(tree)
            return
        if not anyway and self._stays(tree):
            return
        if self.trees.leaving and tree.moved and not tree.attached:
            if not tree.joining:
                self.dispatch.order(SayFarewell(tree.topic))
            return
        if tree.parent is not None or not tree.joining:
            self.close(tree)
        else:
            self._withdraw_all(tree.topic)  # they no longer need the topic for this peer

    def _stays(self, tree: Tree) -> bool:
        """Whether this peer stays for a while, because it may have the only copy of events that others need."""
        if self.trees.must_leave(tree):
            return self._send_last_copies(tree)
        if self._is_ahead(tree):
            self.terms.keep(tree, ahead=True)
            return True
        return False

    def _send_last_copies(self, tree: Tree) -> bool:
        """Send the parent events of which this peer may have the last copies. Return whether there are any.

        This peer may not stay in the tree, but stays until the parent has them. Events of ended terms are sent while
        the parent has room; those of other sources' streams are in transit to it. The parent asks for what it does not
        know of, or had no room for, according to this peer's reports. It does not accept what it had and discarded, and
        this peer cannot know that: it stays for `leave_s` at most.
        """
        parent = tree.parent
        if parent is None or not self._keeps_more(tree, parent):
            return False
        self.terms.keep(tree, self.config.leave_s, ahead=True)
        self.schedule.touch(tree)
        self.host.trace(Mark("last_copies_sent"))
        known = [term for term, *_ in tree.parent_held]
        for bundle in self.last_copies(tree):
            if self.host.room(parent) > 0 and bundle.envelope.term in known:
                self.host.carry(parent, bundle)
        return True

    def last_copies(self, tree: Tree) -> Iterator[Bundle]:
        """Yield kept events of ended terms that may be needed and that the parent, if any, does not keep."""
        for term, ranges in self._parent_lacks(tree).items():
            yield from holding(tree.flow, term, ranges)

    def _is_kept_above(self, tree: Tree) -> bool:
        """Whether the parent reports that it has what this peer stays for."""
        if self.trees.must_leave(tree):
            return tree.parent is not None and not self._keeps_more(tree, tree.parent)
        return tree.stays_ahead and not self._is_ahead(tree)

    def _keeps_more(self, tree: Tree, parent: Contact) -> bool:
        """Whether there are events here of ended terms, or of other sources' streams, that the parent lacks."""
        return bool(self._parent_lacks(tree)) or self._has_more_of_streams(tree, parent)

    def _send_only(self, tree: Tree) -> None:
        """Ask for no events if this is a source and nobody here or below, nor a lease it speaks for, wants any."""
        if not tree.sources.mine or not tree.served or tree.receives or tree.keeping_until is not None:
            return
        if not (tree.leases.orphaned or tree.leases.ended or self._holds_more(tree)):
            self.source_streams.cease(tree)
            self.join(tree)

    def _holds_more(self, tree: Tree) -> bool:
        """Whether there is no parent, or it may still need events or ends of other sources' streams from this peer."""
        parent = tree.parent
        if parent is None:
            return True
        states = tree.sources.states
        ends = [(state.end, state.above) for term, state in states.items() if term not in tree.sources.mine]
        if any(end is not None and (told is None or told.reach < end) for end, told in ends):
            return True
        return self._has_more_of_streams(tree, parent)

    def _has_more_of_streams(self, tree: Tree, parent: Contact) -> bool:
        """Whether this peer has events of other sources' streams that the parent has not reported or called stable."""
        above = {term: state.above.frontier for term, state in tree.sources.states.items() if state.above is not None}
        return any(
            stream.seen.end > max(stream.stable, above.get(term, 0))
            for term, stream in tree.flow.others.items()
            if term not in tree.sources.mine and stream.via != parent.node_id
        )

    def _is_ahead(self, tree: Tree) -> bool:
        """Whether this peer holds events that its parent, if any, lacks. It may be the last to hold them.

        Those are events of a later term than the parent knows, or unstable events of an ended term or of a source.
        """
        if self._parent_lacks(tree):
            return True
        if not len(tree.flow.log):
            return False
        if tree.parent is None or self._has_more_of_streams(tree, tree.parent):
            return True
        report = self.parents.told(tree.parent.node_id, tree.topic)
        return isinstance(report, ParentReport) and report.term < tree.term

    def _parent_lacks(self, tree: Tree) -> dict[Term, list[Range]]:
        """Return kept events of ended terms that may be needed and that the parent, by its reports, does not keep.

        Events that were stable or that a later term admitted again are not needed, nor those that may not be passed on.
        """
        held = {term: ranges for term, _, ranges, *_ in tree.parent_held} if tree.parent is not None else {}
        lacks, flow = dict[Term, list[Range]](), tree.flow
        for term, past in sorted(flow.past.items()):
            kept = [] if flow.disowns(term) else past.kept()
            needless = RangeSet([(0, past.stable), *held.get(term, ()), *admitted_again(flow, term, kept)])
            lacks[term] = difference(kept, needless)
        return {term: ranges for term, ranges in lacks.items() if ranges}

    def close(self, tree: Tree) -> None:
        """Forget a topic that nothing here needs, except leases that continue: if it returns, it speaks for them."""
        now, number = self.host.now(), self.moves.of(tree.topic)
        leases = self.trees.leases_left(tree.topic, now)
        if leases:
            self.trees.leave_behind(tree.topic, leases)
            self.moves.begin_life(tree.topic)  # it may not speak for them when it returns
        if tree.parent is not None:
            self.host.send(tree.parent, _leave(tree.topic, leases, now, number))
            self.detach(tree, "left")
        elif tree.lost_parent:
            self.host.trace(Detached(tree.topic, tree.lost_parent, "left"))  # it lost one, and looks for no other
        self._withdraw_all(tree.topic)
        self.former.pop(tree.topic, None)
        self.came_from.pop(tree.topic, None)
        self.referrals.pop(tree.topic, None)
        self.shown.pop(tree.topic, None)
        self.trees.forget(tree)

    def is_of_this_life(self, topic: bytes, number: int) -> bool:
        """Whether this peer counted its parents up to this number without leaving leases of others behind since."""
        return same_life(number, self.moves.of(topic))

    def last_word(self, topic: bytes) -> Leave:
        """Return the Leave for a topic that is not needed: whether leases continue that it speaks for, and whose."""
        now = self.host.now()
        return _leave(topic, self.trees.leases_left(topic, now), now)

    def fail(self, tree: Tree, error: QuillcastError) -> None:
        """The topic cannot be reached: tell the local subscribers and the peers below, and forget it."""
        self.dispatch.order(TopicFailed(tree.topic, error))
        tree.keep_no_longer()
        self.leave_if_idle(tree, anyway=isinstance(error, AccessDenied))  # it may not even be there to help others

    def housekeep(self, now: float, *, paused: bool) -> None:
        """End leases of forgotten topics and at former parents, but not while this process was paused."""
        if paused:
            self.trees.prolong_leases(now + self.config.lease_s)
        self.trees.end_leases(now)
        for topic, former in list(self.former.items()):
            until = {node: max(at, now + self.config.lease_s) if paused else at for node, at in former.items()}
            self.former[topic] = {node: at for node, at in until.items() if at > now}
            if not self.former[topic]:
                del self.former[topic]


def _wants_earliest(tree: Tree) -> bool:
    """Whether a subscription here, or a child that waits, asks for the earliest events."""
    own = any(subscription.wish.start == "earliest" for subscription in tree.unstarted.values())
    return own or any(each.join.earliest for each in tree.waiting.values())


def _leave(topic: bytes, leases: dict[bytes, OrphanedLease], now: float, number: int = 0) -> Leave:
    """Return a Leave with the leases still running; none is named if there are too many, which means all of them."""
    lives, left_s = dict[bytes, int](), dict[bytes, float]()
    for lease in leases.values():
        for node in [node for node in lease.awaited if lease.ends_at(node) > now]:
            lives[node] = max(lives.get(node, 0), lease.numbers.get(node, 0))
            left_s[node] = max(left_s.get(node, 0.0), lease.ends_at(node) - now)
    if len(lives) > LEASES_NAMED_MAX:
        return Leave(topic, moved=True, number=number)
    return Leave(
        topic, bool(lives), tuple(lives), number=number, lives=tuple(lives.values()), left_s=tuple(left_s.values())
    )  # fmt: skip
