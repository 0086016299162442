"""One peer's place in one topic's tree: parent, children table, local subscriptions, the root's state if it is root."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from msgspec.structs import replace

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Guarantee, Position, Term
from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.ranges import Range, RangeSet, difference
from quillcast.protocol.forwarding.channels import Channel, Filter, nothing_enters
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.ordered import NOTHING_ORDERED, Ordered
from quillcast.protocol.forwarding.policy import ChannelSpec
from quillcast.protocol.forwarding.stream import EndedStream, Held, Stream
from quillcast.protocol.security.access import is_restricted
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import NEWCOMERS_MAX, Have, Join
from quillcast.protocol.topics.state.admitter import Admitter
from quillcast.protocol.topics.state.cut import CATCH_UP_S, ROOM_PARTS, Cut
from quillcast.protocol.topics.state.holders import SINCE, Child, Ended, LeaseHolder, OrphanedLease
from quillcast.protocol.topics.state.link_reports import ChildReport, Move, ParentReport
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.sources import NO_SOURCES, Sources
from quillcast.protocol.topics.state.subscription import Subscription

JOINING, MOVED, CHANGED, BARRED, DOUBTED, ATTEMPT = 1, 2, 4, 8, 16, 32
NOTHING_INHERITED = Position(NO_TERM, 0)


class Tree:
    """A topic at a peer that is its root, a forwarder, a subscriber, or about to become one.

    `flow` is the topic's entry in the forwarding table, which the data path reads. The rest is Scribe's.
    A peer may be a leaf of ten thousand: what a leaf has none of is `EMPTY`, until `enter`, `await_parent`,
    `begin_later` or `orphan_lease` enters something.
    """

    __slots__ = (
        "_moving",
        "beside",
        "children",
        "descriptor",
        "ended",
        "fallbacks",
        "flow",
        "heard",
        "inherited",
        "keeping_until",
        "lost_parent",
        "orphaned_leases",
        "parent",
        "parent_frontier",
        "parent_held",
        "path",
        "root",
        "session",
        "sources",
        "subscriptions",
        "unstarted",
        "waiting",
    )  # fmt: skip

    def __init__(self, topic: bytes, descriptor: Descriptor, budget: Budget) -> None:
        self.flow = Flow(topic, budget, keeps=descriptor.settings.reliable)
        self.descriptor = descriptor
        self.flow.restrict(restricted=is_restricted(descriptor.access, "publish"))
        self.session = descriptor.session
        self.parent: Contact | None = None
        self.root: Root | None = None
        self.sources: Sources = NO_SOURCES
        self.children: dict[bytes, Child] = EMPTY
        self.beside: dict[bytes, Channel] = EMPTY  # to peers that are no children, as a scope's manager ordered
        self.orphaned_leases: dict[bytes, OrphanedLease] = EMPTY
        self.ended: dict[bytes, Ended] = EMPTY  # who came from another parent, and left
        self.waiting: dict[bytes, Join] = EMPTY  # adopted, to be answered once this peer has a parent itself
        self.subscriptions: tuple[Subscription, ...] = ()
        self.unstarted: dict[int, Subscription] = EMPTY  # local subscriptions that wait for a parent
        self.path: tuple[bytes, ...] = ()  # from the root to the parent
        self.fallbacks: tuple[Contact, ...] = ()
        self.parent_held: Held = ()
        self.parent_frontier = 0
        self.keeping_until: float | None = None  # stays till then, for what it knows of a term that is over
        self.heard = NO_TERM
        self.inherited = NOTHING_INHERITED  # the term that a root transferred to this peer, and how far it went
        self.lost_parent = b""
        self._moving = 0  # `joining`, `moved`, `changed`, `barred`, `doubted` and above them `attempt`, in one field

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
        self._moving &= CHANGED | DOUBTED

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

    def tell_settings(self) -> None:
        """There may be children that do not know the settings."""
        self._moving |= CHANGED

    def note_report(self, fallbacks: tuple[Contact, ...], held: Held) -> None:
        """What the parent reports of others that may be the parent, and of what it keeps."""
        self.fallbacks, self.parent_held = fallbacks, held

    def parent_has(self, frontier: int) -> None:
        """How far the current term came to the parent, as it says."""
        self.parent_frontier = frontier

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
            self.parent_frontier = index

    def keep_until(self, until: float) -> None:
        """Stay in the tree until then, even if nothing here wants the topic."""
        self.keeping_until = until

    def prolong(self, until: float, *, stays: bool) -> None:
        """This process was paused: no lease ran out, and what others may want may be in what waits to be read.

        `stays`: it may stay in the tree for that.
        """
        for lease in self.orphaned_leases.values():
            lease.prolong(until)
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
        if self.children:
            self.tell_settings()
        self._leave_room()
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
            if cursor is not None and (dropped := self.flow.given_up(term, cursor.next)):
                subscription.skip(term, dropped, "dropped", self.flow.runs(term, dropped))

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

    def enter(self, child: Child) -> None:
        """Enter a child in the children table. Its channel opens when the forwarding policy wants it (`install`)."""
        self.children = self.children or {}
        former = self.children.get(child.contact.node_id)
        if former is not None:
            self.flow.close(former.channel)
        self.children[child.contact.node_id] = child
        self.is_back(child.contact.node_id)

    def install(self, wanted: Iterable[ChannelSpec], ordered: Ordered = NOTHING_ORDERED) -> None:
        """Compare the channels to children that stand with those that are wanted, and install the difference.

        Raises `ValueError` if one leads to a peer that is no child: it never asked for the topic. Channels that scopes
        ordered may lead to such peers; those that lead to children decide what their links let through.
        """
        specs = {spec.to.node_id: spec for spec in wanted}
        if others := specs.keys() - self.children.keys():
            raise ValueError(f"the forwarding policy wants channels to {sorted(others)}, which are not children here")
        open_ = {*self.flow.channels}
        for node, child in self.children.items():
            spec, is_open = specs.get(node), child.channel in open_
            if spec is not None:
                enters = self._filter_to(node, ordered.to_child(node, spec.filter))
                sink = ordered.sink_to(node, child.channel.sink)
                child.channel.lead(sink, nothing_enters if child.barred else enters)
            if spec is not None and not is_open:
                self.flow.open(child.channel)
            elif spec is None and is_open:
                self.flow.close(child.channel)
        self._install_up(ordered)
        if self.beside or ordered.ways:
            self._install_beside(ordered)
        self._leave_room()

    def _leave_room(self) -> None:
        """If the topic waits, the channels to other peers leave a part of each link's credit to other topics."""
        for channel in self.flow.channels:
            channel.sink.wait(waits=self.waits)

    def _install_up(self, ordered: Ordered) -> None:
        """Have the link to the parent let through what scopes order, where events go up."""
        if self.sources.up is None or self.parent is None:
            return
        up, node = self.sources.up, self.parent.node_id

        def enters(bundle: Bundle) -> Bundle | None:
            if not bundle.envelope.term.of_source:
                return None  # a root's events come from above
            inner = ordered.to_parent(node, self.path)  # which may be outside of a scope now, or inside
            return bundle if inner is None else inner(bundle)

        up.lead(ordered.sink_to(node, up.sink), self.sources.filter_to(node, self.flow, enters))

    def _install_beside(self, ordered: Ordered) -> None:
        """Keep channels to those who are no children. They begin with the next bundle: what is missing is repaired."""
        above = self.parent.node_id if self.sources.up is not None and self.parent is not None else b""
        wanted = {node: way for node, way in ordered.ways.items() if node not in self.children and node != above}
        for node in [node for node in self.beside if node not in wanted]:
            self.flow.close(self.beside.pop(node))
        self.beside = self.beside or {}
        for node, way in wanted.items():
            if node not in self.beside:
                self.beside[node] = Channel(way.sink, self.flow.log.end)
                self.flow.open(self.beside[node])
            self.beside[node].lead(way.sink, way.enters)

    def _filter_to(self, node: bytes, wanted: Filter | None) -> Filter | None:
        """What a channel to a neighbour lets through."""
        return self.sources.filter_to(node, self.flow, wanted) if self.by_source else wanted

    def open_sources(self) -> Sources:
        """The topic's sources, which are the tree's own from now on."""
        if self.sources is NO_SOURCES:
            self.sources = Sources()
        return self.sources

    def await_parent(self, join: Join) -> None:
        """The peers to answer once this one has a parent."""
        self.waiting = self.waiting or {}
        self.waiting[join.child.node_id] = join

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

    def owe(self, subscription: Subscription, past: EndedStream) -> None:
        """A subscription is owed what it may miss of an earlier term."""
        subscription.owe(past.term, past.end, past.stable)
        if self.flow.keeps and past.end:
            subscription.expect_again()

    def owe_late(self, subscription: Subscription, past: EndedStream, *, at_last: bool = False) -> None:
        """A subscription is owed what its peer did not know of an earlier term when it began, unless that was over.

        A term that was unknown then is open until somebody says how long its events have been there. What came
        meanwhile is delivered then. If a peer turns out to have had the events for longer, they are not owed after all.
        `at_last`: nobody said it for as long as the term was kept, so that it is owed.
        """
        term, since = past.term, subscription.since
        if since is None or since <= term:
            self.owe(subscription, past)
        elif term.was_followed_by(since) or past.was_there(subscription.began_at):
            subscription.owe(term, past.end, past.stable)
            subscription.pass_by(term, past.end)
        elif subscription.term_cursor(term) is not None:
            self.owe(subscription, past)
            if past.is_dated or at_last:
                subscription.went_on(term)
        elif past.is_dated or at_last:
            self._owe_whole(subscription, past)

    def _owe_whole(self, subscription: Subscription, past: EndedStream) -> None:
        term = past.term
        subscription.begin(term, past.start, went_on=True)
        if self.flow.keeps or self.session:  # else the topic was created best-effort
            subscription.expect_again()
        for bundle in past.bundles:
            subscription.channel.restore(bundle)
        if gone := difference(past.seen, RangeSet(past.kept())):
            subscription.skip(term, gone, "unavailable", self.flow.runs(term, gone), self.flow.runs_of_others(term))

    def stop(self, subscription: Subscription) -> None:
        """A local subscription ends."""
        self.subscriptions = tuple([other for other in self.subscriptions if other is not subscription])
        self.flow.close(subscription.channel)

    def way_to(self, node: bytes) -> Channel | None:
        """The channel to a child, to the parent where events go up, or to whom a scope's manager ordered one."""
        child = self.children.get(node)
        if child is not None:
            return child.channel
        is_parent = self.parent is not None and self.parent.node_id == node
        return self.sources.up if is_parent and self.sources.up is not None else self.beside.get(node)

    def take_out(self, node: bytes) -> "Child | None":
        """Take a child out of the children table. If a channel of a scope leads to it, that goes on where it was."""
        child = self.children.pop(node, None)
        if child is not None and self.beside is not EMPTY and child.channel in self.flow.channels:
            self.beside[node] = child.channel
        elif child is not None:
            self.flow.close(child.channel)
        return child

    def orphan_lease(
        self, child: Child, until: float, awaited: Iterable[bytes], *, leaf: bool = False, move: Move | None = None,
        numbers: Mapping[bytes, int] = EMPTY, named_from: float = 0.0,
    ) -> None:  # fmt: skip
        """A child is gone, and its lease, or those of others that it names, go on until a time.

        `move` is the one by which it had come here, if it moves to another parent now.
        """
        self.orphaned_leases = self.orphaned_leases or {}
        node = child.contact.node_id
        lease = OrphanedLease(child, until, awaited, leaf=leaf, move=move, numbers=numbers, named_from=named_from)
        former = self.orphaned_leases.get(node)
        if former is not None:
            lease.continue_from(former)
        self.orphaned_leases[node] = lease
        for other in self.children.values():
            self.heard_from(other.speaks_for)
        self.heard_from(self.ends)

    def resume_leases(self, leases: dict[bytes, OrphanedLease]) -> None:
        """Leases had gone on while the topic was forgotten here."""
        self.orphaned_leases = leases

    def expire(self, now: float) -> bool:
        """What time changes of the leases here, and of what is told of them. True if that is to be told."""
        over = [node for node, lease in self.orphaned_leases.items() if lease.end_some(now)]
        for node in over:
            del self.orphaned_leases[node]
        self.ended = {node: ended for node, ended in self.ended.items() if ended.until > now} or EMPTY
        named = [lease.expire(now) for lease in self.orphaned_leases.values()]
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
        before = len(self.orphaned_leases)
        for move in moves if before else ():
            if any(lease.is_of_another_life(move) for lease in self.orphaned_leases.values()):
                self.forgot(move.peer, move.number)
            for former, lease in list(self.orphaned_leases.items()):
                lease.arrived(move)
                if not lease.awaited:
                    del self.orphaned_leases[former]
        return len(self.orphaned_leases) < before

    @property
    def ends(self) -> tuple[Move, ...]:
        """The last moves of those that left in good order lately; a number that is not known is 0."""
        return tuple([ended.move or Move(node, 0) for node, ended in self.ended.items()])

    def note_arrived(self, arrivals: Iterable[Move]) -> bool:
        """What the parent reports includes peers that moved away from here: their leases end. True if one did."""
        before = len(self.orphaned_leases)
        for former, lease in list(self.orphaned_leases.items()):
            lease.end_by(arrivals)
            if not lease.awaited:
                del self.orphaned_leases[former]
        return len(self.orphaned_leases) < before

    def forgot(self, node: bytes, number: int) -> None:
        """A peer comes again that knows nothing, as after a restart: it does not speak for those that were below it.

        But for those that were below it in the life of which its move has this number.
        """
        for lease in self.orphaned_leases.values():
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

    def newcomers(self, now: float) -> tuple[bytes, ...]:
        """Peers that came below this one lately from another parent, and have reported or left since."""
        nodes: dict[bytes, None] = {node: None for node, ended in self.ended.items() if ended.move is None}
        for child in self.children.values():
            if child.spoken == SINCE and child.named_until > now and not child.number:
                nodes[child.contact.node_id] = None
            nodes |= dict.fromkeys(child.word.newcomers)
        return tuple(nodes)[-NEWCOMERS_MAX:] if nodes else ()

    def arrivals(self, me: bytes) -> tuple[Move, ...]:
        """Those of them that count their parents, for the peers above that may be waiting for them."""
        return tuple([move for move in self._included() if move.up_to != me])[-NEWCOMERS_MAX:]

    def departures(self, me: bytes, now: float) -> tuple[Move, ...]:
        """Peers whose leases go on here or below, because they moved and are not known to have arrived."""
        if not (self.orphaned_leases or self.children):
            return ()
        leases = [lease for lease in self.orphaned_leases.values() if lease.until > now]
        named = [lease for lease in leases if lease.named_from <= now]
        moves = [move for lease in named for move in lease.awaited.values() if move is not None]
        moves += [move for child in self.children.values() for move in child.others.departures]
        waiting = [move for move in moves if move.up_to != me]
        return tuple(m for m in waiting if not any(here.follows(m) for here in self._included()))[-NEWCOMERS_MAX:]

    def arrived_elsewhere(self, above: Callable[[], Iterable[Move]]) -> tuple[Move, ...]:
        """The arrivals that children wait for: by what other children report, or the parent, or here (`above`)."""
        awaited = [move for child in self.children.values() for move in child.others.departures]
        if not awaited:
            return ()
        here = [*self._included(), *above()]
        found = (Move(each.peer, each.number) for each in here if any(each.follows(move) for move in awaited))
        return tuple(islice(found, NEWCOMERS_MAX))

    def _included(self) -> list[Move]:
        """The moves that children's reports include, and those of peers that have left since."""
        moves = [move for child in self.children.values() for move in child.arrived]
        return (
            [*moves, *[ended.move for ended in self.ended.values() if ended.move is not None]] if self.ended else moves
        )

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
        return self.served or bool(self.subscriptions) or any(not child.sends_only for child in self.children.values())

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
        wanted = self.children or self.subscriptions or self.unstarted or self.waiting
        return bool(wanted) or self.sources.forwards

    @property
    def is_due(self) -> bool:
        """Will time change anything here: something to join, discard, give up or declare stable?"""
        if self.root is None and (self.parent is None or not self.needed):
            return True
        if self.root is not None and (self.root.sealing or self.root.stable < self.root.index):
            return True
        held = any(subscription.holes or subscription.undated for subscription in self.subscriptions)
        named = any(child.named_until for child in self.children.values())
        ending = self.orphaned_leases or self.ended or self.flow.past or self.keeping_until is not None
        return bool(held or named or ending or self.sources.is_due(self.flow))

    @property
    def arrived_below(self) -> int:
        """How far the present term came to this peer or to a child: what a root alone had is not meant."""
        acknowledged = [child.acknowledged for child in self.children.values() if child.acknowledged_term == self.term]
        return max([self.flow.current.seen.end, *acknowledged])

    @property
    def known_end(self) -> int:
        """How far the present term is known to have gone, even if its events never came here."""
        return max(self.arrived_below, self.parent_frontier)

    def have(self) -> Have | None:
        """From where this peer needs the topic when it joins; a new forwarder asks for what its first children need."""
        if self.flow.begun and (self.was_served or not self.receives):
            return Have(self.term, self.frontier)
        haves = [join.have for join in self.waiting.values() if join.have is not None]
        least = min(haves, key=lambda have: (have.term, have.frontier), default=None)
        return replace(least, own=False) if least is not None else None

    def follow_path(self, path: tuple[bytes, ...]) -> bool:
        """The path from the root to the parent; a child of old may stand above now.

        True if that is to be told: the path is another, or a lease ended, or those above are asked about one.
        """
        news, self.path = path != self.path, path
        for former, lease in list(self.orphaned_leases.items()):
            news = lease.follow_path(path) or news
            if not lease.awaited:
                del self.orphaned_leases[former]
        return news

    def neighbours(self) -> list[Contact]:
        """The parent and the children."""
        above = [self.parent] if self.parent is not None else []
        return [*above, *[child.contact for child in self.children.values()]]

    def path_here(self, me: bytes) -> tuple[bytes, ...]:
        """The path from the root to this peer."""
        return (me,) if self.root is not None else (*self.path, me)

    def acknowledged_position(self, now: float, term: Term | None = None) -> int:
        """The index of a live term (the current one) below which all leases here and below are served.

        Where nothing is kept, nobody is waited for: what was lost on the way does not come any more.
        """
        flow = self.flow
        frontier = flow.frontier if term is None else flow.front(term) or 0
        needed = flow.current.term if term is None else term
        if not flow.is_reliable(needed):
            return frontier
        return min([frontier, *[each.needed_from(needed) for each in self.holders(now) if not each.is_cut]])

    def holders(self, now: float) -> list[LeaseHolder]:
        """The leases that are owed the topic's events here: local subscribers, and those below.

        A subscriber that asked for no guarantee has none.
        """
        own: list[LeaseHolder] = [each for each in self.subscriptions if each.wish.delivery != "best_effort"]
        return [*own, *self.leases(now)] if self.children or self.orphaned_leases else own

    def end_lease(self, holder: LeaseHolder, now: float, catch_up_s: float = CATCH_UP_S) -> None:
        """It cannot keep up: hold back nothing for it any more, until it does."""
        if isinstance(holder, OrphanedLease):
            for node in [node for node, lease in self.orphaned_leases.items() if lease is holder]:
                del self.orphaned_leases[node]
        elif isinstance(holder, Child | Subscription):
            holder.cut_off(Cut(self.total, now, catch_up_s))

    def forgive_cuts(self) -> None:
        """A new term begins: nobody is behind in it."""
        for subscription in self.subscriptions:
            subscription.cut_off(None)
        for child in self.children.values():
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
        if stream is None or not (asker in self.children or (term.of_source and (above or self.root is not None))):
            return False
        for first, _ in ranges:
            stream.serve_from(first)
        return True

    def serve_from(self, start: int) -> None:
        """This peer is responsible for the current term from this index on, if not from an earlier one."""
        self.flow.current.serve_from(start)

    @property
    def total(self) -> int:
        """Events that came here without a gap, in all live streams together and in those of sources that are over."""
        return self.frontier + self.sources.over + sum(self.flow.front(term) or 0 for term in self.flow.others)

    def reached(self, position: Callable[[Term], int | None]) -> int:
        """Of these events, those that somebody has that is at a position in each live stream."""
        return self.total - sum(
            max(0, (self.flow.front(term) or 0) - (position(term) or 0)) for term in self.flow.live_terms()
        )

    def catch_up(self, holder: "Subscription | Child", now: float) -> None:
        """Somebody has come further: if its lease was ended, does it keep up again?"""
        cut = holder.cut
        if cut is None:
            return
        position, misses_some = self.reached(holder.needed_from), self._misses_some(holder)
        if cut.is_over(position, self.total, now, misses_some=misses_some):
            holder.cut_off(None)
            if isinstance(holder, Child):
                self.heard_from(holder.speaks_for)

    def _misses_some(self, holder: "Subscription | Child") -> bool:
        """Is a child behind only by events that it misses, and is there room here for as long as these take?

        All that is here was sent to it. Who cannot keep up has some of it waiting.
        """
        log = self.flow.log
        was_sent_all = isinstance(holder, Child) and holder.channel.cursor >= log.end
        return was_sent_all and log.budget.used_bytes * ROOM_PARTS <= log.budget.limit_bytes * (ROOM_PARTS - 1)

    def trim(self, now: float, some: Iterable[Term] | None = None) -> int:
        """Let go of what nobody needs of all or some live terms; how many bytes that was.

        The one rule for a peer within its budget.

        It is the least of the stable position as the root issued it and of what everybody here still needs: children,
        local subscribers and orphaned leases, cut or not.
        """
        flow = self.flow
        if not flow.others:
            stream, oldest = flow.current, flow.log.oldest(flow.current.term)
            return 0 if oldest is None or oldest.last > stream.stable else self._trim(stream, now)
        streams = flow.live_streams() if some is None else [flow.others[term] for term in some]
        first = {bundle.envelope.term: bundle for bundle in reversed(flow.log.bundles())}
        stable = [each for each in streams if each.term in first and first[each.term].last <= each.stable]
        return sum([self._trim(stream, now) for stream in stable])

    def _trim(self, stream: Stream, now: float) -> int:
        term = stream.term
        needs = [holder.needed_from(term) for holder in self.holders(now)]
        return self.flow.release(min([stream.stable, self.flow.front(term) or 0, *needs]), term=term)

    def shed(self, now: float, goal_bytes: int, term: Term) -> int:
        """Discard copies of a live term that no lease here needs, down to a goal, because the budget is used up.

        A root's or source's are the originals, so it keeps what is not stable.
        """
        needs = [position for position, holder in self.kept_for(now, term) if not holder.is_cut]
        below, stream = min([self.flow.front(term) or 0, *needs]), self.flow.live(term)
        if stream is not None and (self.keeps_originals or term in self.sources.mine):
            below = min(below, stream.stable)
        elif term in self.flow.others:
            below = min(below, self._kept_above(term))
        return self.flow.release(below, goal_bytes, term=term)

    @property
    def keeps_originals(self) -> bool:
        """Is this peer the root of the present term, or did that root transfer it, so that others rely on this one?"""
        return self.root is not None or self.inherited.term == self.term

    def _kept_above(self, term: Term) -> int:
        """How far the parent has a source's stream: what comes to it from here is kept until then."""
        parent = self.parent.node_id if self.parent is not None else b""
        above = self.sources.states[term].above
        if parent and self.flow.others[term].via == parent:
            return NUMBER_MAX
        return above.frontier if above is not None else 0

    def kept_for(self, now: float, term: Term) -> Iterator[tuple[int, LeaseHolder]]:
        """The leases that need what is kept here of a live term when there is no room, and from which index on."""
        for holder in self.holders(now):
            position = holder.kept_from(term, at_root=self.keeps_originals)
            if position is not None:
                yield position, holder

    def last(self, now: float) -> LeaseHolder | None:
        """The lease that needs the most of what is kept here, stalled ones first; None if none is behind."""
        at_root, total = self.keeps_originals, self.total
        behind = [
            (not holder.is_stalled(now), position, holder)
            for holder in self.holders(now)
            if holder.kept_from(self.term, at_root=at_root) is not None
            and (position := self.reached(partial(holder.kept_from, at_root=at_root))) < total
            and not holder.is_cut
        ]
        return min(behind, key=lambda need: need[:2])[2] if behind else None

    def leases(self, now: float) -> list[Child | OrphanedLease]:
        """Those below that are owed events: children, and lost ones whose leases continue."""
        children = [child for child in self.children.values() if not child.sends_only]
        if not self.orphaned_leases:
            return [*children]
        return [*children, *[lease for lease in self.orphaned_leases.values() if lease.until > now]]

    def child_report(self, me: bytes, now: float, *, used_up: bool = False) -> ChildReport:
        """What to tell the parent."""
        term, frontier = self.flow.current.term, self.flow.frontier
        leaf = not (self.children or self.waiting or self.orphaned_leases)
        alone = leaf and not self.ended  # then nobody has moved here or below
        return ChildReport(
            term,
            self.acknowledged_position(now),
            max(self.heard, term),
            self.flow.held(now),
            () if alone else self.newcomers(now),
            frontier,
            leaf,
            () if alone else self.arrivals(me),
            () if alone else self.departures(me, now),
            used_up,
        )

    def parent_report(
        self, me: bytes, fallbacks: tuple[Contact, ...], now: float,
        above: Callable[[], Iterable[Move]] = tuple, *, held_back: bool,
    ) -> ParentReport:  # fmt: skip
        """What to tell the children. `above` are the arrivals that the parent reports, and this peer's own."""
        flow = self.flow
        return ParentReport(
            flow.current.term,
            flow.frontier,
            flow.current.stable,
            self.path_here(me),
            fallbacks,
            flow.held(now),
            held_back,
            (self.descriptor if self.root is None else self.root.noted) if self._moving & CHANGED else None,
            self.arrived_elsewhere(above),
        )

    def check_place(self, me: bytes) -> None:
        """Raise AssertionError unless the peer's place in the tree and its channels agree with each other."""
        assert self.root is None or self.parent is None, "a root has no parent"
        assert me not in {**self.children, **self.waiting}, "nobody is its own child"
        assert self.parent is None or self.parent.node_id not in self.children, "a parent is no child"
        local, open_ = {each.channel for each in self.subscriptions}, {*self.flow.channels}
        ways = {child.channel for child in self.children.values()}
        ways |= {self.sources.up} if self.sources.up is not None else set()
        ways |= {*self.beside.values()}
        above = self.parent.node_id if self.sources.up is not None and self.parent is not None else b""
        assert not self.beside.keys() & {*self.children, above}, "one channel leads to each peer"
        assert local <= open_ <= local | ways, "each local subscription has a channel, and so may each neighbour"
        if self.root is not None:
            assert self.root.term == self.term, (self.root.term, self.term)
            self.root.check()
