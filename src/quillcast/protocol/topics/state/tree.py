"""One peer's place in a topic's tree: parent, children table, local subscriptions, and the root's state at the root."""

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
from quillcast.protocol.forwarding.stream import HeldTerms
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
NO_INHERITANCE = Position(NO_TERM, 0)
REACH_BITS = NUMBER_MAX.bit_length()
REACH_MASK = (1 << REACH_BITS) - 1


class WaitingJoin(NamedTuple):
    """The Join of a child that gets its answer once this peer has a parent itself."""

    join: Join
    came_at: float


class Tree:
    """A topic at a peer that is its root, a forwarder, a subscriber, or about to become one.

    `flow` is the topic's entry in the forwarding table, which the data path reads. The rest is Scribe's.
    A peer may be a leaf of ten thousand trees. To save memory, collections that are empty at a leaf are shared objects
    until something is entered (`EMPTY`, `NO_LEASES`, `NO_SOURCES`).
    """

    __slots__ = (
        "_came", "_moving", "asked", "beside", "descriptor", "fallbacks", "flow", "heard", "inherited", "keeping_until",
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
        self.beside: dict[bytes, Channel] = EMPTY  # to peers that are not children, as a scope's manager ordered
        self.waiting: dict[bytes, WaitingJoin] = EMPTY  # adopted children
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unstarted: dict[int, Subscription] = EMPTY  # local subscriptions that begin once there is a parent
        self.path: tuple[bytes, ...] = ()  # from the root to the parent
        self.fallbacks: tuple[Contact, ...] = ()
        self.parent_held: HeldTerms = ()
        self._came = 0  # `parent_frontier`, above it `reach_below`, and above that `before`, in one field
        self.keeping_until: float | None = None  # stays until then, because of what it knows about an ended term
        self.heard = NO_TERM
        self.inherited = NO_INHERITANCE  # the term that a root transferred to this peer, and its end
        self.lost_parent = b""
        self.asked = 0  # the number of the first Join since there was a parent (`Move`)
        self._moving = 0  # from `joining` to `forwards`, and above them `attempt`, in one field

    @property
    def joining(self) -> bool:
        """Whether this peer has asked for a parent, or is about to become root."""
        return bool(self._moving & JOINING)

    @property
    def moved(self) -> bool:
        """Whether this peer is between two parents, even if no new one has accepted it yet."""
        return bool(self._moving & MOVED)

    @property
    def changed(self) -> bool:
        """Whether some children may not know the settings yet. Reports then contain them."""
        return bool(self._moving & CHANGED)

    @property
    def barred(self) -> bool:
        """Whether the topic's access list denies everybody here. This peer leaves after its last children."""
        return bool(self._moving & BARRED) and self.root is None

    @property
    def doubted(self) -> bool:
        """Whether this process was paused, and it is still unknown whether the root changed or the parent is lost."""
        return bool(self._moving & DOUBTED)

    @property
    def forwards(self) -> bool:
        """Whether this peer forwards events of others for a scope."""
        return bool(self._moving & FORWARDS)

    @property
    def stays_ahead(self) -> bool:
        """Whether this peer stays only until its parent has the events that are here."""
        return self.keeping_until is not None and bool(self._moving & AHEAD)

    @property
    def attempt(self) -> int:
        """The number of Joins sent since there was a parent."""
        return self._moving // ATTEMPT

    # ---- finding a parent, or becoming root

    def begin_attempt(self) -> None:
        """Begin to ask for a parent, or ask the parent for more."""
        self._moving = (self._moving | JOINING) + ATTEMPT

    def note_asked(self, number: int) -> None:
        """Note the number of a Join. If there is no parent, only answers to this one or later ones count."""
        if self.parent is None and not self.asked:
            self.asked = number

    def ask_anew(self) -> None:
        """Note that answers to former Joins no longer count."""
        self.asked = 0

    def turn_to(self, contact: Contact) -> None:
        """Begin to ask a known peer to be the parent, or to wait for a message of the next root."""
        self._moving |= JOINING
        self.fallbacks = interned((contact,))

    def await_root(self) -> None:
        """Note that this peer is about to become root."""
        self._moving |= JOINING

    def stop_joining(self) -> None:
        """Stop asking for a parent."""
        self._moving &= ~JOINING

    def begin_move(self) -> None:
        """Begin to look for another parent: this peer is no longer a child of its former one."""
        self._moving |= MOVED

    def attach(self, parent: Contact, fallbacks: tuple[Contact, ...], path: tuple[bytes, ...]) -> None:
        """Enter the parent that accepted this peer."""
        self.parent, self.fallbacks, self.lost_parent = interned(parent), interned(fallbacks), b""
        self.follow_path(interned(path))
        self.asked = 0
        self._moving &= CHANGED | DOUBTED | AHEAD | FORWARDS

    def detach(self, *, left: bool) -> None:
        """Forget the parent. `left`: this peer left it and wants no other."""
        self.lost_parent = b"" if left or self.parent is None else self.parent.node_id
        self.parent, self.path = None, ()
        self._moving %= ATTEMPT

    def lose(self, parent: bytes) -> None:
        """Note that the parent is lost: this peer turns to a fallback, as its siblings do."""
        self.lost_parent = parent

    def may_turn_to(self, fallbacks: Iterable[Contact]) -> None:
        """Set the peers that may become the parent next."""
        self.fallbacks = interned((*fallbacks,))

    def settle(self) -> None:
        """Note that this peer certainly has a parent or is root."""
        self._moving &= ~(JOINING | DOUBTED)

    def doubt(self) -> None:
        """Note that this process was paused, so its parent or its being root is in doubt."""
        self._moving = self._moving | DOUBTED if self.attached else self._moving & ~DOUBTED

    def note_denied(self, *, denied: bool) -> None:
        """Note whether the topic's access list denies everybody here."""
        self._moving = self._moving | BARRED if denied else self._moving & ~BARRED
        if denied:
            self.keeping_until = None

    def set_forwards(self, forwards: bool) -> None:
        """Set whether this peer forwards events of others for a scope."""
        self._moving = self._moving | FORWARDS if forwards else self._moving & ~FORWARDS

    def tell_settings(self) -> None:
        """Note that some children may not know the settings."""
        self._moving |= CHANGED

    def note_report(self, fallbacks: tuple[Contact, ...], held: HeldTerms) -> None:
        """Note a report of the parent: the fallbacks, and what it keeps."""
        self.fallbacks, self.parent_held = fallbacks, held

    def parent_has(self, frontier: int) -> None:
        """Note how far the parent says it has the current term."""
        self._note_came(frontier, self.reach_below, self.before)

    @property
    def parent_frontier(self) -> int:
        """The index up to which the parent said it has the current term."""
        return self._came & REACH_MASK

    @property
    def reach_below(self) -> int:
        """The index that the current term reached at peers that are below this one, or may be soon."""
        return self._came >> REACH_BITS & REACH_MASK

    @property
    def before(self) -> int:
        """The index below which all events of the current term existed when a parent accepted this peer."""
        return self._came >> 2 * REACH_BITS

    def begin_behind(self, index: int) -> None:
        """Note that all events of the current term below an index existed when the parent accepted this peer."""
        self._note_came(self.parent_frontier, self.reach_below, max(self.before, index))

    @property
    def newest(self) -> int:
        """One past the last known event of the current term: where newcomers begin.

        The frontier may be far lower, because it goes back for a child that needs more than this peer did.
        """
        return max(self.frontier, self.flow.current.seen.end, self.before, self.parent_frontier)

    def _note_came(self, parent_frontier: int, reach_below: int, before: int) -> None:
        self._came = (before << REACH_BITS | reach_below) << REACH_BITS | parent_frontier

    def came_to(self, index: int) -> bool:
        """Note how far a peer that is below, or may come below, has the current term. Return whether that is news."""
        known = self.reach
        self._note_came(self.parent_frontier, max(self.reach_below, index), self.before)
        return self.reach > known

    def forget_reach(self) -> None:
        """Begin a term: it has only reached the children that have already reported it."""
        self._came = 0
        self.came_to(max([0, *(child.reach(self.term) for child in self.leases.children.values())]))

    def begin_root(self, root: Root) -> None:
        """Make this peer the topic's root."""
        self.root, self.path, self.asked = root, (), 0

    def end_root(self) -> None:
        """Note that this peer is no longer root."""
        self.root = None

    # ---- what is known about terms, and for how long

    def hear_of(self, term: Term) -> None:
        """Note the latest term of the topic that this peer has heard of."""
        self.heard = interned(term)

    def inherit(self, term: Term, index: int, *, whole: bool) -> None:
        """Note the term that a root transferred to this peer, and its end. `whole`: the term is new to this peer."""
        self.inherited = Position(term, index)
        if whole:
            self.parent_has(index)

    def keep_until(self, until: float, *, ahead: bool = False) -> None:
        """Stay in the tree until a time, even if nothing here needs the topic; `ahead`: or until the parent has all."""
        self.keeping_until = until
        self._moving = self._moving | AHEAD if ahead else self._moving & ~AHEAD

    def prolong(self, until: float, *, stays: bool) -> None:
        """Prolong all leases after a pause of this process: messages about them may still be unread.

        `stays`: this peer may stay in the tree for that time.
        """
        self.leases.prolong(until)
        for past in self.flow.past.values():
            past.prolong(until)
        if stays and self.keeping_until is not None:
            self.keeping_until = max(self.keeping_until, until)
        for subscription in self.subscriptions:
            subscription.prolong_holes()

    def keep_no_longer(self) -> None:
        """Note that no other peer needs anything that is kept here."""
        self.keeping_until = None

    @property
    def topic(self) -> bytes:
        """The topic's id."""
        return self.flow.topic

    @property
    def term(self) -> Term:
        """The latest term that has begun here."""
        return self.flow.current.term

    @property
    def frontier(self) -> int:
        """The index up to which all events of the current term arrived here."""
        return self.flow.frontier

    @property
    def waits(self) -> bool:
        """Whether the topic waits for its slow subscribers."""
        return self.descriptor.settings.slow == "wait"

    def adapt(self, descriptor: Descriptor) -> None:
        """Use a new descriptor of the topic. Its guarantee may differ from what first use had assumed.

        The guarantee of another session holds from its first term on.
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
        """Report events as lost that arrived here but did not reach a subscription: nothing was kept until now."""
        for term in self.flow.live_terms():
            cursor = subscription.term_cursor(term)
            if cursor is not None and (dropped := given_up(self.flow, term, cursor.next)):
                subscription.skip(term, dropped, "dropped", runs_at(self.flow, term, dropped))

    @property
    def guarantee(self) -> Guarantee:
        """The session that applies at this peer, and whether it is reliable, as in terms of that session."""
        return self.session, self.session > 0 and self.flow.keeps

    def begin_session(self, term: Term) -> None:
        """Begin a term. If it is the first of another session, that session applies, even if a later one is known.

        A session of another owner of the same name changes only its number.
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
        """If the topic waits, let its channels to other peers leave part of each link's credit to other topics."""
        for channel in self.flow.channels:
            channel.sink.wait(waits=self.waits)

    def open_sources(self) -> Sources:
        """Return the topic's sources as the tree's own object, no longer the shared one."""
        if self.sources is NO_SOURCES:
            self.sources = Sources()
        return self.sources

    def open_leases(self) -> Leases:
        """Return the leases below as the tree's own object, no longer the shared one."""
        if self.leases is NO_LEASES:
            self.leases = Leases()
        return self.leases

    def enter(self, child: Child) -> None:
        """Enter a child in the children table. Its channel opens when the forwarding policy wants it (`install`)."""
        former = self.open_leases().enter(child)
        if former is not None:
            self.flow.close(former.channel)

    def lead_beside(self, node: bytes, channel: Channel) -> None:
        """Enter a channel to a peer that is not a child, as a scope's manager ordered."""
        self.beside = self.beside or {}
        self.beside[node] = channel

    def take_beside(self, node: bytes) -> Channel:
        """Take out the channel to a peer that is not a child."""
        return self.beside.pop(node)

    def await_parent(self, join: Join, now: float) -> None:
        """Note a Join to answer once this peer has a parent."""
        self.waiting = self.waiting or {}
        self.waiting[join.child.node_id] = WaitingJoin(join, now)

    def aged_joins(self, now: float) -> list[Join]:
        """Return the waiting Joins, with the time that they have waited added."""
        return [join.aged(now - came_at) for join, came_at in self.waiting.values()]

    def answer(self, node: bytes) -> None:
        """Note that a peer no longer waits for an answer."""
        self.waiting.pop(node, None)
        self.waiting = self.waiting or EMPTY

    def forget_waiting(self, before: float) -> None:
        """Forget peers whose last Join came before then: they no longer wait, or have asked others since."""
        for node in [node for node, each in self.waiting.items() if each.came_at < before]:
            self.answer(node)

    def answer_all(self) -> None:
        """Note that no peer waits for an answer any longer."""
        self.waiting = EMPTY

    def begin_later(self, subscription: Subscription) -> None:
        """Note a local subscription that begins once this peer has a parent."""
        self.unstarted = self.unstarted or {}
        self.unstarted[subscription.number] = subscription

    def take_unstarted(self, number: int) -> bool:
        """Note that a local subscription no longer waits for a parent. Return whether it did."""
        waited = self.unstarted.pop(number, None) is not None
        self.unstarted = self.unstarted or EMPTY
        return waited

    def start(self, subscription: Subscription) -> None:
        """Begin a local subscription."""
        self.subscriptions = (*self.subscriptions, subscription)
        self.flow.open(subscription.channel)

    def stop(self, subscription: Subscription) -> None:
        """End a local subscription."""
        self.subscriptions = tuple([other for other in self.subscriptions if other is not subscription])
        self.flow.close(subscription.channel)

    @property
    def by_source(self) -> bool:
        """Whether sources number the topic's events, or did so unknown to this peer and their streams continue."""
        return self.descriptor.settings.by_source or bool(self.sources.states)

    @property
    def admitter(self) -> Admitter | None:
        """The admitter of local publishers' events at this peer. None: another peer admits them, or nobody yet."""
        return self.sources.own if self.descriptor.settings.admission == "source" else self.root  # `by_source`, inline

    @property
    def is_flushed(self) -> bool:
        """Whether all leases have the events that this root admitted, and those of all sources' ended streams."""
        root, streams = self.root, self.flow.others
        if root is None or (root.stable < root.index and root.descriptor.settings.reliable):
            return False
        return self.descriptor.streams_go_on or all(
            state.end is not None and (streams[term].stable >= state.end or not streams[term].keeps)
            for term, state in self.sources.states.items()
        )

    @property
    def attached(self) -> bool:
        """Whether this peer is root or has a parent that accepted it."""
        return self.root is not None or self.parent is not None

    @property
    def served(self) -> bool:
        """Whether this peer is root, or a parent would send it the topic's events."""
        return self.root is not None or self.sources.served

    @property
    def begins(self) -> bool:
        """Whether a subscription can begin here or below. It cannot if this peer may have missed later terms."""
        return self.attached and self.served and not self.doubted

    def waits_for_earliest(self, subscription: Subscription) -> bool:
        """Whether the parent still has to say how far back its buffer reaches. A root has only its own buffer."""
        return self.root is None and subscription.wish.start == "earliest"

    @property
    def is_placed(self) -> bool:
        """Whether this peer gets what is needed here without another message from its parent."""
        if not (self.attached and self.served):
            return False
        return self.doubted or not any(self.waits_for_earliest(each) for each in self.unstarted.values())

    @property
    def was_served(self) -> bool:
        """Whether anything here or below already needs events. An answer to an old Join may say that none will come."""
        return (
            self.served
            or bool(self.subscriptions)
            or any(not child.sends_only for child in self.leases.children.values())
        )

    @property
    def next_parent(self) -> Contact | None:
        """The peer that this one asked after its parent left or it transferred the topic, until that peer answers."""
        return self.fallbacks[0] if self.moved and not self.attached and self.fallbacks else None

    @property
    def needed(self) -> bool:
        """Whether anything here needs the topic, or another peer may need what is kept here."""
        wanted = self.receives or self.sources.mine
        return bool(wanted) or self.keeping_until is not None

    @property
    def receives(self) -> bool:
        """Whether anything here or below needs the topic's events, or this peer has to forward them."""
        wanted = self.leases.children or self.subscriptions or self.unstarted or self.waiting
        return bool(wanted) or self.forwards

    @property
    def only_awaited(self) -> bool:
        """Whether nothing needs the topic but peers that wait here until this one has a parent."""
        own = self.leases.children or self.subscriptions or self.unstarted or self.sources.mine
        return bool(self.waiting) and not (own or self.forwards) and self.keeping_until is None

    @property
    def is_due(self) -> bool:
        """Whether housekeeping may find something to do here: to join, discard, give up or declare stable."""
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
        """The index that the present term reached at this peer or a child. Events that only a root has do not count."""
        acknowledged = [
            child.acknowledged for child in self.leases.children.values() if child.acknowledged_term == self.term
        ]
        return max([self.flow.current.seen.end, *acknowledged])

    @property
    def reach(self) -> int:
        """The highest index of the current term known to have arrived here or below."""
        return max(self.flow.current.seen.end, self.reach_below)

    @property
    def known_end(self) -> int:
        """The highest known index of the present term, even if its events never came here."""
        return max(self.arrived_below, self.parent_frontier, self.before)

    def have(self) -> Have | None:
        """Return where a joining peer needs the topic from. A new forwarder asks for what its first children need."""
        if self.flow.begun and (self.was_served or not self.receives):
            return Have(self.term, self.frontier)
        haves = [each.join.have for each in self.waiting.values() if each.join.have is not None]
        least = min(haves, key=lambda have: (have.term, have.frontier), default=None)
        return replace(least, own=False) if least is not None else None

    def follow_path(self, path: tuple[bytes, ...]) -> bool:
        """Set the path from the root to the parent. A former child may be on it.

        Return whether there is something to report: another path, an ended lease, or a question about one.
        """
        news, self.path = path != self.path, path
        return self.leases.follow_path(path) or news

    def is_below(self, node: bytes) -> bool:
        """Whether that peer is above this one. A lying parent may leave itself out of the path."""
        return node in self.path or (self.parent is not None and self.parent.node_id == node)

    def neighbours(self) -> list[Contact]:
        """Return the parent and the children."""
        above = [self.parent] if self.parent is not None else []
        return [*above, *[child.contact for child in self.leases.children.values()]]

    def path_here(self, me: bytes) -> tuple[bytes, ...]:
        """Return the path from the root to this peer."""
        return (me,) if self.root is not None else (*self.path, me)

    def forgive_cuts(self) -> None:
        """End all cuts, because nobody is behind in a new term."""
        for subscription in self.subscriptions:
            subscription.cut_off(None)
        for child in self.leases.children.values():
            child.cut_off(None)

    def note_wanted(self, term: Term, ranges: list[Range], asker: bytes) -> bool:
        """Note that a neighbour lacks these ranges, as this peer does. Return whether to look for them.

        - Present term: for a child, which may need more than this peer did when it became its parent.
        - A source's stream: for a parent too. At the root, which may have to decide, for any peer.
        - Past terms: for any neighbour, because a peer beyond this one may have the events, or know what they were.
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
        """Raise AssertionError unless the peer's place in the tree and its channels are consistent."""
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
