"""One peer's place in one topic's tree: parent, children table, local subscriptions, the root's state if it is root."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from quillcast.core.envelope import NO_TERM, Guarantee, Position, Term
from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.event_places import given_up, runs_at
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.stream import Held
from quillcast.protocol.security.access import is_restricted
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Have, Join
from quillcast.protocol.topics.state.admitter import Admitter
from quillcast.protocol.topics.state.holders import Child
from quillcast.protocol.topics.state.leases import NO_LEASES, Leases
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.sources import NO_SOURCES, Sources
from quillcast.protocol.topics.state.subscription import Subscription

JOINING, MOVED, CHANGED, BARRED, DOUBTED, AHEAD, FORWARDS, ATTEMPT = 1, 2, 4, 8, 16, 32, 64, 128
NOTHING_INHERITED = Position(NO_TERM, 0)
REACH_BITS = NUMBER_MAX.bit_length()
REACH_MASK = (1 << REACH_BITS) - 1


class WaitingJoin(NamedTuple):
    """A child that is to be answered once this peer has a parent itself."""

    join: Join
    came_at: float


class Tree:
    """A topic at a peer that is its root, a forwarder, a subscriber, or about to become one.

    `flow` is the topic's entry in the forwarding table, which the data path reads. The rest is Scribe's.
    A peer may be a leaf of ten thousand: what a leaf has none of is shared until there is some (`EMPTY`, `NO_LEASES`,
    `NO_SOURCES`).
    """

    __slots__ = (
        "_came", "_moving", "beside", "descriptor", "fallbacks", "flow", "heard", "inherited", "keeping_until",
        "leases", "lost_parent", "parent", "parent_held", "path", "root", "session", "sources", "subscriptions",
        "unstarted", "waiting",
    )  # fmt: skip

    def __init__(self, topic: bytes, descriptor: Descriptor, budget: Budget) -> None:
        self.flow = Flow(topic, budget, keeps=descriptor.settings.reliable)
        self.descriptor = descriptor
        self.flow.restrict(restricted=is_restricted(descriptor.access, "publish"))
        self.session = descriptor.session
        self.parent: Contact | None = None
        self.root: Root | None = None
        self.sources: Sources = NO_SOURCES
        self.leases: Leases = NO_LEASES
        self.beside: dict[bytes, Channel] = EMPTY  # to peers that are no children, as a scope's manager ordered
        self.waiting: dict[bytes, WaitingJoin] = EMPTY  # adopted children
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unstarted: dict[int, Subscription] = EMPTY  # local subscriptions that wait for a parent
        self.path: tuple[bytes, ...] = ()  # from the root to the parent
        self.fallbacks: tuple[Contact, ...] = ()
        self.parent_held: Held = ()
        self._came = 0  # `parent_frontier`, above it `reach_below`, and above that `before`, in one field
        self.keeping_until: float | None = None  # stays till then, for what it knows of a term that is over
        self.heard = NO_TERM
        self.inherited = NOTHING_INHERITED  # the term that a root transferred to this peer, and how far it went
        self.lost_parent = b""
        self._moving = 0  # from `joining` to `forwards`, and above them `attempt`, in one field

    @property
    def joining(self) -> bool:
        """Has this peer asked for a parent, or is it about to be root?"""
        return bool(self._moving & JOINING)

    @property
    def moved(self) -> bool:
        """Is this peer between two parents, even if no new one has accepted it yet?"""
        return bool(self._moving & MOVED)

    @property
    def changed(self) -> bool:
        """May there be children that do not know the settings? Then reports tell them."""
        return bool(self._moving & CHANGED)

    @property
    def barred(self) -> bool:
        """May nobody here have anything more, by the topic's list? It leaves when its last children have."""
        return bool(self._moving & BARRED) and self.root is None

    @property
    def doubted(self) -> bool:
        """Was this process paused, and is not known yet whether the topic has another root, or this peer no parent?"""
        return bool(self._moving & DOUBTED)

    @property
    def forwards(self) -> bool:
        """Does a scope have this peer pass on what others send?"""
        return bool(self._moving & FORWARDS)

    @property
    def stays_ahead(self) -> bool:
        """Does this peer stay only until its parent has what is here?"""
        return self.keeping_until is not None and bool(self._moving & AHEAD)

    @property
    def attempt(self) -> int:
        """How many Joins went out since there was a parent."""
        return self._moving // ATTEMPT

    # ---- the way to a parent, or to be root

    def begin_attempt(self) -> None:
        """This peer asks for a parent, or its parent for more."""
        self._moving = (self._moving | JOINING) + ATTEMPT

    def turn_to(self, contact: Contact) -> None:
        """This peer asks somebody that it knows to be its parent, or waits for the next root's word."""
        self._moving |= JOINING
        self.fallbacks = interned((contact,))

    def await_root(self) -> None:
        """This peer is about to be root."""
        self._moving |= JOINING

    def stop_joining(self) -> None:
        """This peer asks for no parent any more."""
        self._moving &= ~JOINING

    def begin_move(self) -> None:
        """This peer is the child of its parent no more, and seeks another one."""
        self._moving |= MOVED

    def attach(self, parent: Contact, fallbacks: tuple[Contact, ...], path: tuple[bytes, ...]) -> None:
        """A parent took this peer in."""
        self.parent, self.fallbacks, self.lost_parent = interned(parent), interned(fallbacks), b""
        self.follow_path(interned(path))
        self._moving &= CHANGED | DOUBTED | AHEAD | FORWARDS

    def detach(self, *, left: bool) -> None:
        """There is no parent any more. `left`: this peer wants none."""
        self.lost_parent = b"" if left or self.parent is None else self.parent.node_id
        self.parent, self.path = None, ()
        self._moving %= ATTEMPT

    def lose(self, parent: bytes) -> None:
        """The parent is lost, and this peer turns to a fallback as others do that lost the same one."""
        self.lost_parent = parent

    def may_turn_to(self, fallbacks: Iterable[Contact]) -> None:
        """Who may be the parent next."""
        self.fallbacks = interned((*fallbacks,))

    def settle(self) -> None:
        """This peer has a parent or is root, and knows it."""
        self._moving &= ~(JOINING | DOUBTED)

    def doubt(self) -> None:
        """This process was paused. If it had a parent or was root, is that still so?"""
        self._moving = self._moving | DOUBTED if self.attached else self._moving & ~DOUBTED

    def note_denied(self, *, denied: bool) -> None:
        """By the topic's list, nobody here may have anything more, or may again."""
        self._moving = self._moving | BARRED if denied else self._moving & ~BARRED
        if denied:
            self.keeping_until = None

    def set_forwards(self, forwards: bool) -> None:
        """A scope has this peer pass on what others send, or does so no more."""
        self._moving = self._moving | FORWARDS if forwards else self._moving & ~FORWARDS

    def tell_settings(self) -> None:
        """There may be children that do not know the settings."""
        self._moving |= CHANGED

    def note_report(self, fallbacks: tuple[Contact, ...], held: Held) -> None:
        """What the parent reports of others that may be the parent, and of what it keeps."""
        self.fallbacks, self.parent_held = fallbacks, held

    def parent_has(self, frontier: int) -> None:
        """How far the current term came to the parent, as it says."""
        self._note_came(frontier, self.reach_below, self.before)

    @property
    def parent_frontier(self) -> int:
        """How far the current term came to the parent, as it said."""
        return self._came & REACH_MASK

    @property
    def reach_below(self) -> int:
        """How far the current term came to those who are below, or may be soon."""
        return self._came >> REACH_BITS & REACH_MASK

    @property
    def before(self) -> int:
        """Below this index all events of the current term were there when a parent took this peer in."""
        return self._came >> 2 * REACH_BITS

    def begin_behind(self, index: int) -> None:
        """All events of the current term below an index were there when the parent took this peer in."""
        self._note_came(self.parent_frontier, self.reach_below, max(self.before, index))

    @property
    def newest(self) -> int:
        """Behind all events of the current term that are known to be there: where newcomers begin.

        The frontier may be far behind that, for it goes back for a child that is owed more than this peer was.
        """
        return max(self.frontier, self.flow.current.seen.end, self.before, self.parent_frontier)

    def _note_came(self, parent_frontier: int, reach_below: int, before: int) -> None:
        self._came = (before << REACH_BITS | reach_below) << REACH_BITS | parent_frontier

    def came_to(self, index: int) -> bool:
        """Somebody who is below, or may come below, has the current term up to an index. Is that news?"""
        known = self.reach
        self._note_came(self.parent_frontier, max(self.reach_below, index), self.before)
        return self.reach > known

    def forget_reach(self) -> None:
        """A term begins: it came to nobody yet but to those below who have said so."""
        self._came = 0
        self.came_to(max([0, *(child.reach(self.term) for child in self.leases.children.values())]))

    def begin_root(self, root: Root) -> None:
        """This peer is the topic's root from now on."""
        self.root, self.path = root, ()

    def end_root(self) -> None:
        """This peer is root no more."""
        self.root = None

    # ---- what is known of terms, and for how long

    def hear_of(self, term: Term) -> None:
        """Terms of the topic go as far as this one."""
        self.heard = interned(term)

    def inherit(self, term: Term, index: int, *, whole: bool) -> None:
        """A root transferred its term to this peer, after it had admitted so many events. `whole`: that knew none."""
        self.inherited = Position(term, index)
        if whole:
            self.parent_has(index)

    def keep_until(self, until: float, *, ahead: bool = False) -> None:
        """Stay in the tree until then, even if nothing here wants the topic, or until the parent has what is here."""
        self.keeping_until = until
        self._moving = self._moving | AHEAD if ahead else self._moving & ~AHEAD

    def prolong(self, until: float, *, stays: bool) -> None:
        """This process was paused: no lease ran out, and what others may want may be in what waits to be read.

        `stays`: it may stay in the tree for that.
        """
        self.leases.prolong(until)
        for past in self.flow.past.values():
            past.prolong(until)
        if stays and self.keeping_until is not None:
            self.keeping_until = max(self.keeping_until, until)
        for subscription in self.subscriptions:
            subscription.prolong_holes()

    def keep_no_longer(self) -> None:
        """Others are owed nothing that is kept here."""
        self.keeping_until = None

    @property
    def topic(self) -> bytes:
        """The topic's id."""
        return self.flow.topic

    @property
    def term(self) -> Term:
        """The current term, as far as it is known here."""
        return self.flow.current.term

    @property
    def frontier(self) -> int:
        """How far the current term came here without a gap."""
        return self.flow.frontier

    @property
    def waits(self) -> bool:
        """Does the topic wait for its slow subscribers?"""
        return self.descriptor.settings.slow == "wait"

    def adapt(self, descriptor: Descriptor) -> None:
        """Go by what is known of the topic now; its guarantee may be another than first use had assumed.

        What another session promises holds from its first term on.
        """
        self.descriptor = descriptor
        self.flow.restrict(restricted=is_restricted(descriptor.access, "publish"))
        if self.leases.children:
            self.tell_settings()
        self.leave_room()
        if descriptor.guarantee == self.guarantee or not self.flow.begun:
            kept = self.flow.keep(keeps=descriptor.settings.reliable)
            self.session = descriptor.session
            for subscription in self.subscriptions:
                subscription.adapt(descriptor)
                if self.flow.keeps and not kept:
                    self._pass_dropped(subscription)
                elif kept and not self.flow.keeps:
                    for term in [each for each in self.flow.live_terms() if not self.flow.is_reliable(each)]:
                        subscription.owe_no_more(term)
        if self.root is not None:
            self.root.adapt(descriptor)

    def _pass_dropped(self, subscription: Subscription) -> None:
        """Nothing was kept until now: what came here and did not reach a subscription does not come any more."""
        for term in self.flow.live_terms():
            cursor = subscription.term_cursor(term)
            if cursor is not None and (dropped := given_up(self.flow, term, cursor.next)):
                subscription.skip(term, dropped, "dropped", runs_at(self.flow, term, dropped))

    @property
    def guarantee(self) -> Guarantee:
        """The session that this peer goes by, and whether that is reliable, as terms of that session say."""
        return self.session, self.session > 0 and self.flow.keeps

    def begin_session(self, term: Term) -> None:
        """A term begins. If it is the first one of another session, go by that, even if a later one is known.

        A session of another owner of the same name changes nothing but its number.
        """
        if term.guarantee > self.guarantee:
            settings = self.descriptor.settings
            if term.session <= self.descriptor.session:
                settings = replace(settings, delivery="best_effort" if term.best_effort else "reliable")
            streams_ended = self.by_source and self.flow.keeps and not settings.reliable
            self.session = term.session
            self.flow.keep(keeps=settings.reliable)
            for subscription in self.subscriptions:
                subscription.begin_session(replace(self.descriptor, settings=settings), streams_ended=streams_ended)

    def leave_room(self) -> None:
        """If the topic waits, the channels to other peers leave a part of each link's credit to other topics."""
        for channel in self.flow.channels:
            channel.sink.wait(waits=self.waits)

    def open_sources(self) -> Sources:
        """The topic's sources, which are the tree's own from now on."""
        if self.sources is NO_SOURCES:
            self.sources = Sources()
        return self.sources

    def open_leases(self) -> Leases:
        """The leases below, which are the tree's own from now on."""
        if self.leases is NO_LEASES:
            self.leases = Leases()
        return self.leases

    def enter(self, child: Child) -> None:
        """Enter a child in the children table. Its channel opens when the forwarding policy wants it (`install`)."""
        former = self.open_leases().enter(child)
        if former is not None:
            self.flow.close(former.channel)

    def lead_beside(self, node: bytes, channel: Channel) -> None:
        """A channel leads to a peer that is no child, as a scope's manager ordered."""
        self.beside = self.beside or {}
        self.beside[node] = channel

    def await_parent(self, join: Join, now: float) -> None:
        """The peers to answer once this one has a parent."""
        self.waiting = self.waiting or {}
        self.waiting[join.child.node_id] = WaitingJoin(join, now)

    def aged_joins(self, now: float) -> list[Join]:
        """What those that wait say, after they waited until now."""
        return [join.aged(now - came_at) for join, came_at in self.waiting.values()]

    def answer(self, node: bytes) -> None:
        """A peer waits for an answer no more."""
        self.waiting.pop(node, None)
        self.waiting = self.waiting or EMPTY

    def answer_all(self) -> None:
        """Nobody waits for an answer any more."""
        self.waiting = EMPTY

    def begin_later(self, subscription: Subscription) -> None:
        """A local subscription that begins once this peer has a parent."""
        self.unstarted = self.unstarted or {}
        self.unstarted[subscription.number] = subscription

    def take_unstarted(self, number: int) -> bool:
        """A local subscription waits for a parent no more. Did it?"""
        waited = self.unstarted.pop(number, None) is not None
        self.unstarted = self.unstarted or EMPTY
        return waited

    def start(self, subscription: Subscription) -> None:
        """A local subscription begins."""
        self.subscriptions = (*self.subscriptions, subscription)
        self.flow.open(subscription.channel)

    def stop(self, subscription: Subscription) -> None:
        """A local subscription ends."""
        self.subscriptions = tuple([other for other in self.subscriptions if other is not subscription])
        self.flow.close(subscription.channel)

    @property
    def by_source(self) -> bool:
        """Do sources number the topic's events, or did they where this was not known, and their streams go on?"""
        return self.descriptor.settings.by_source or bool(self.sources.states)

    @property
    def admitter(self) -> Admitter | None:
        """Who numbers here what publishers offer; None: another peer does, or nobody yet."""
        return self.sources.own if self.descriptor.settings.admission == "source" else self.root  # `by_source`, inline

    @property
    def is_flushed(self) -> bool:
        """Do all leases have what this peer admitted as root, and what the sources numbered, whose streams are over?"""
        root, streams = self.root, self.flow.others
        if root is None or (root.stable < root.index and root.descriptor.settings.reliable):
            return False
        return self.descriptor.streams_go_on or all(
            state.end is not None and (streams[term].stable >= state.end or not streams[term].keeps)
            for term, state in self.sources.states.items()
        )

    @property
    def attached(self) -> bool:
        """Does this peer get the topic's events: as root, or from a parent that accepted it?"""
        return self.root is not None or self.parent is not None

    @property
    def served(self) -> bool:
        """Does the parent, if there is one, send this peer the topic's events?"""
        return self.root is not None or self.sources.served

    @property
    def begins(self) -> bool:
        """Can a subscription begin here, or below? Not where later terms may be that this peer should know of."""
        return self.attached and self.served and not self.doubted

    def waits_for_earliest(self, subscription: Subscription) -> bool:
        """Has the parent yet to say how far back its buffer reaches? A root's own is all there is."""
        return self.root is None and subscription.wish.start == "earliest"

    @property
    def is_placed(self) -> bool:
        """Does this peer get what is wanted here, without another word of its parent?"""
        if not (self.attached and self.served):
            return False
        return self.doubted or not any(self.waits_for_earliest(each) for each in self.unstarted.values())

    @property
    def was_served(self) -> bool:
        """Is anybody here or below owed events already? An answer to an old Join may say that none will come."""
        return (
            self.served
            or bool(self.subscriptions)
            or any(not child.sends_only for child in self.leases.children.values())
        )

    @property
    def next_parent(self) -> Contact | None:
        """The peer that this one turned to after its parent left or it transferred the topic, until that answers."""
        return self.fallbacks[0] if self.moved and not self.attached and self.fallbacks else None

    @property
    def needed(self) -> bool:
        """Does anything here want the topic's events, or may anybody want what is kept here?"""
        wanted = self.receives or self.sources.mine
        return bool(wanted) or self.keeping_until is not None

    @property
    def receives(self) -> bool:
        """Does anybody here or below want the topic's events, or have they to be passed on?"""
        wanted = self.leases.children or self.subscriptions or self.unstarted or self.waiting
        return bool(wanted) or self.forwards

    @property
    def is_due(self) -> bool:
        """Will time change anything here: something to join, discard, give up or declare stable?"""
        if self.root is None and (self.parent is None or not self.needed):
            return True
        if self.root is not None and (self.root.sealing or self.root.stable < self.root.index):
            return True
        held = any(subscription.holes or subscription.undated for subscription in self.subscriptions)
        named = any(child.named_until for child in self.leases.children.values())
        ending = self.leases.orphaned or self.leases.ended or self.flow.past or self.keeping_until is not None
        return bool(held or named or ending or self.sources.is_due(self.flow))

    @property
    def arrived_below(self) -> int:
        """How far the present term came to this peer or to a child: what a root alone had is not meant."""
        acknowledged = [
            child.acknowledged for child in self.leases.children.values() if child.acknowledged_term == self.term
        ]
        return max([self.flow.current.seen.end, *acknowledged])

    @property
    def reach(self) -> int:
        """How far the current term came here or below: as far as is known, nobody there has later events."""
        return max(self.flow.current.seen.end, self.reach_below)

    @property
    def known_end(self) -> int:
        """How far the present term is known to have gone, even if its events never came here."""
        return max(self.arrived_below, self.parent_frontier, self.before)

    def have(self) -> Have | None:
        """From where this peer needs the topic when it joins; a new forwarder asks for what its first children need."""
        if self.flow.begun and (self.was_served or not self.receives):
            return Have(self.term, self.frontier)
        haves = [each.join.have for each in self.waiting.values() if each.join.have is not None]
        least = min(haves, key=lambda have: (have.term, have.frontier), default=None)
        return replace(least, own=False) if least is not None else None

    def follow_path(self, path: tuple[bytes, ...]) -> bool:
        """The path from the root to the parent; a child of old may stand above now.

        True if that is to be told: the path is another, or a lease ended, or those above are asked about one.
        """
        news, self.path = path != self.path, path
        return self.leases.follow_path(path) or news

    def is_below(self, node: bytes) -> bool:
        """Is that peer above this one? A parent that lies may leave itself out of the path."""
        return node in self.path or (self.parent is not None and self.parent.node_id == node)

    def neighbours(self) -> list[Contact]:
        """The parent and the children."""
        above = [self.parent] if self.parent is not None else []
        return [*above, *[child.contact for child in self.leases.children.values()]]

    def path_here(self, me: bytes) -> tuple[bytes, ...]:
        """The path from the root to this peer."""
        return (me,) if self.root is not None else (*self.path, me)

    def forgive_cuts(self) -> None:
        """A new term begins: nobody is behind in it."""
        for subscription in self.subscriptions:
            subscription.cut_off(None)
        for child in self.leases.children.values():
            child.cut_off(None)

    def note_wanted(self, term: Term, ranges: list[Range], asker: bytes) -> bool:
        """Note that a neighbour is missing these, as this peer is. Returns whether to look for them.

        Those of the present term are for a child, which may be owed more than this peer was when it became its parent;
        of a source's stream for a parent too, and at the root, which may have to decide, for anybody;
        those of past terms for any neighbour, because a peer beyond this one may have them, or know what they were.
        """
        if term in self.flow.past:
            return self.flow.past[term].ask(ranges)
        stream = self.flow.live(term)
        above = self.parent is not None and self.parent.node_id == asker
        if stream is None or not (
            asker in self.leases.children or (term.of_source and (above or self.root is not None))
        ):
            return False
        for first, _ in ranges:
            stream.serve_from(first)
        return True

    def check_place(self, me: bytes) -> None:
        """Raise AssertionError unless the peer's place in the tree and its channels agree with each other."""
        assert self.root is None or self.parent is None, "a root has no parent"
        assert me not in {**self.leases.children, **self.waiting}, "nobody is its own child"
        assert self.parent is None or self.parent.node_id not in self.leases.children, "a parent is no child"
        local, open_ = {each.channel for each in self.subscriptions}, {*self.flow.channels}
        ways = {child.channel for child in self.leases.children.values()}
        ways |= {self.sources.up} if self.sources.up is not None else set()
        ways |= {*self.beside.values()}
        above = self.parent.node_id if self.sources.up is not None and self.parent is not None else b""
        assert not self.beside.keys() & {*self.leases.children, above}, "one channel leads to each peer"
        assert local <= open_ <= local | ways, "each local subscription has a channel, and so may each neighbour"
        if self.root is not None:
            assert self.root.term == self.term, (self.root.term, self.term)
            self.root.check()
