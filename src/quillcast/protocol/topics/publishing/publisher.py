"""One publisher of one topic: seals events into blocks, sends them to the root, keeps them until they are stable.

A publisher has two marks that are easily confused. Its *floor* is the first event that it still has. `stable` comes
from the root: every live lease acknowledged what lies below. They differ if a bound made the publisher discard unstable
events. A root uses the floor to know where to begin, and never to decide what is stable; each root reports only on what
its own term admitted. Only the publisher knows what it discarded, so it remembers that (`dropped`). Dropped events
never count as stable, whatever a root reports of later events. Nor do events of a best-effort session: in it no lease
holds stability back, so the root's report on them means nothing, and no event was kept to be sent again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from quillcast.core.bundle import Block, Bundle, Join, Run
from quillcast.core.envelope import NO_TERM, UP, Envelope, Term
from quillcast.core.errors import EventTooLarge, QuillcastError
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet
from quillcast.core.trace import Dropped, Mark, Published, Record
from quillcast.protocol.forwarding.milestones import Came
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.publishing.places import Places

DROPPED_RANGES_MAX = 256  # ranges of dropped events; a guess. Beyond, the two closest are joined, with the gap between


class PublisherListener(Protocol):
    """The application's side of a publisher. Upcalls must not call back into the peer."""

    def progressed(self) -> None:
        """`admitted`, `stable` or `room()` changed."""
        ...

    def dropped(self, block: Block) -> None:
        """A bound made the publisher discard an unstable block: its events never count as stable."""
        ...

    def stops_keeping(self) -> None:
        """A best-effort session has begun: events published from now on are not kept."""
        ...

    def was_best_effort(self, first: int, last: int) -> None:
        """These events were published in a best-effort session, which has ended: they never count as stable."""
        ...

    def failed(self, error: QuillcastError) -> None:
        """The topic does not accept this publisher's events."""
        ...


class _NoListener:
    """Listens to a publisher that outlives its application."""

    def progressed(self) -> None: ...

    def dropped(self, block: Block) -> None: ...

    def stops_keeping(self) -> None: ...

    def was_best_effort(self, first: int, last: int) -> None: ...

    def failed(self, error: QuillcastError) -> None: ...


NOBODY = _NoListener()


class PublisherHost(Protocol):
    """What a publisher needs from its host (`core.host.Host`)."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 UTC."""
        ...

    def trace(self, record: Record) -> None:
        """Record what happened."""
        ...


class Uplink(NamedTuple):
    """A publisher's way to the root."""

    carry: Callable[["Publisher", Bundle], None]
    """Takes a bundle to the root."""
    room_to: Callable[[Contact, bytes, bool], int]
    """How many bytes of a topic a root takes now. True: it holds the publisher back."""
    wake: Callable[[bytes], None]
    """Gets the topic when events wait for the root's answer again."""


class Publisher:
    """Sequences count 0, 1, 2, ... `admitted` is one past the last event that has a position.

    All events below `stable` are stable except those in `dropped`, which never are.
    """

    def __init__(
        self, host: PublisherHost, config: TopicConfig, descriptor: Descriptor, id_: bytes, listener: PublisherListener,
        uplink: Uplink, warrant: Warrant | None = None,
    ) -> None:  # fmt: skip
        self.host, self.config, self.id, self.listener = host, config, id_, listener
        self.topic, self.session = descriptor.topic, descriptor.session
        self.descriptor, self.reliable = descriptor, descriptor.settings.reliable
        self.keeps_reliable = False  # it keeps events of an ended reliable session until the present root has them
        self._carry, self._room_to, self._wake = uplink
        self.warrant = warrant
        self.writers_count = 1  # publishers of the application that share this one
        self.root: Contact | None = None
        self.term: Term = NO_TERM
        self.next = self.sent = self.admitted = self.stable = 0
        self.again: RangeSet | None = None  # what the root lacks of the events sent; never empty
        self.dropped = RangeSet()  # sequences discarded before they were stable, or published best-effort
        self.retained: deque[Block] = deque()
        self.retained_bytes = 0
        self.waiting: deque[Block] = deque()  # sealed and not admitted yet
        self.waiting_bytes = 0
        self.progress_at = host.now()
        self.closed = self.said_closed = False  # no more is published; and its root was told
        self.held_back = False  # the root has no room for the topic now
        self.trickling = False  # something was sent nevertheless, and the root has not answered yet
        self.partitioned = False  # the root that last acknowledged may have a rival across a partition
        self.spoke_at: float | None = None  # when the root of `term` was last heard from
        self.sealed_at: deque[float] = deque()  # when each of the retained blocks was sealed
        self.places = Places()
        self._dropped_at: dict[Term, Came] = {}  # for the next return of `trim`
        self.full_since: float | None = None

    def continue_at(self, sequence: int) -> None:
        """Continue at this event: another peer published those before it, and takes care of them."""
        self.next = self.sent = self.admitted = self.stable = sequence

    def reopen(self, sequence: int, listener: PublisherListener, warrant: Warrant | None) -> None:
        """Continue for an application that is back, with events from here on: earlier ones are settled elsewhere."""
        self.listener, self.warrant, self.closed, self.said_closed = listener, warrant, False, False
        self._settle_to(min(sequence, self.next))
        if sequence > self.next:
            self.continue_at(sequence)

    def _settle_to(self, sequence: int) -> None:
        """Stop keeping events before this one: they are stable, or were discarded."""
        self._admit(sequence)
        self.stable = max(self.stable, sequence)
        self._let_go(sequence)

    def follow_discarded(self, first: int, last: int) -> None:
        """Discard these unstable events, as the publisher with this id did at the peer that takes these events."""
        self._settle_to(min(first, self.next))
        while self.retained and self.retained[0].last <= last:
            self.drop()

    def count_writers(self, count: int) -> None:
        """Note how many publishers of the application share this one."""
        self.writers_count = count

    def show(self, warrant: Warrant | None) -> None:
        """Show its right to publish with this warrant from now on."""
        self.warrant = warrant

    def keep_limits(self, config: TopicConfig) -> None:
        """Apply these limits from now on."""
        self.config = config

    def close(self) -> None:
        """Note that its application publishes no more."""
        self.closed = True

    def orphan(self) -> None:
        """Note that its application is gone."""
        self.listener = NOBODY

    def note_closed_at_root(self) -> None:
        """Note that its root was told that it publishes no more."""
        self.said_closed = True

    def succeed(self, former: "Publisher") -> None:
        """Take another publisher's place at the root, and publish nothing."""
        self.closed, self.term, self.spoke_at = True, former.term, former.spoke_at

    def adapt(self, descriptor: Descriptor) -> None:
        """Apply this descriptor from now on; `reliable`: events are kept until they are stable.

        A session other than the first begins when its root says so (`begin_session`).
        """
        self.descriptor = descriptor
        if descriptor.session == self.session == 0:
            was_reliable = self.reliable
            self._keep(reliable=descriptor.settings.reliable)
            if was_reliable and not self.reliable:
                self._let_go(self.admitted)  # with default settings: the topic never had them sent again

    @property
    def is_orphaned(self) -> bool:
        """Whether it was closed because its application is gone."""
        return self.closed and self.listener is NOBODY

    def begins(self, descriptor: Descriptor) -> bool:
        """Whether the session of this descriptor, which the topic's root applies, begins now for this publisher."""
        known, here = self.descriptor.guarantee, (self.session, self.session > 0 and self.reliable)
        return here != descriptor.guarantee == known

    def begin_session(self) -> None:
        """Begin the descriptor's session: the topic's root says that it has begun."""
        self.session = self.descriptor.session
        if self.reliable and not self.descriptor.settings.reliable:
            admitted = [block.last for block in self.retained if block.last <= self.admitted]
            self._dropped_at.update(place for last in admitted[-1:] if (place := self.places.find(last)))
        self._keep(reliable=self.descriptor.settings.reliable)

    def follow_session(self, session: int, *, reliable: bool) -> None:
        """Follow the publisher with this id, at the peer that takes these events like a root, into a session.

        If nothing is kept in it, that peer alone takes care of what it was sent before.
        """
        self.session = session
        self._keep(reliable=reliable)
        self.keeps_reliable = False
        if not reliable and self.root is not None:
            self._let_go(self.sent)
            self._admit(self.sent)

    def _keep(self, *, reliable: bool) -> None:
        """Keep events until they are stable, or nothing from now on; then unstable events never become stable.

        Unstable ones are kept until the next root has admitted them, as are those published meanwhile. If events are
        kept again before that, a best-effort session may have admitted them; they are sent again nevertheless.
        """
        was_reliable, self.reliable = self.reliable, reliable
        if self.reliable == was_reliable:
            return
        if reliable:
            kept_from = self.retained[0].first if self.retained and not self.keeps_reliable else self.next
            for first, last in self.dropped.missing(self.stable, kept_from):
                self._note_dropped(first, last)
                self.listener.was_best_effort(first, last)
            self.keeps_reliable = False
            return
        self._note_dropped(self.stable, self.next)
        self.keeps_reliable = bool(self.retained)
        for block in self.retained:
            self.listener.dropped(block)
        self.listener.stops_keeping()

    def _note_dropped(self, first: int, last: int) -> None:
        """Note that these events are not stable, and never count as stable."""
        self.dropped.add(first, last)
        if len(self.dropped) > DROPPED_RANGES_MAX:
            self.dropped.join_closest()

    def offer(
        self,
        payloads: Sequence[bytes],
        *,
        times: Sequence[int] | None = None,
        keys: Sequence[bytes] | None = None,
        attributes: Sequence[bytes] | None = None,
        runs: Sequence[Run] | None = None,
        join: Join = b"".join,
    ) -> int:
        """Publish events as one block. Return one past the last one's sequence.

        `times` are nanoseconds since 1970 UTC, one per payload; without them all have the time of this call. `runs` say
        whose the events are, if several publishers share this one; `join` concatenates the block's pieces. Raises
        `EventTooLarge`, and then publishes none of them.
        """
        block = Block.seal(
            self.id, self.next, payloads, time_ns=times[0] if times else self.host.wall_ns(),
            times=times, keys=keys, attributes=attributes, runs=runs, join=join,
        )  # fmt: skip
        limit = self.descriptor.settings.event_bytes_max
        if block.size > limit and (size := max(map(len, payloads))) > limit:
            raise EventTooLarge(
                f"an event of {size} bytes is over the limit of {limit} of topic {self.descriptor.name!r}; split it, "
                "or give the topic a larger event_bytes_max (quillcast topic set, Node.change)"
            )
        return self.publish(block)

    def offer_lone(self, payload: bytes) -> int:
        """Like `offer` for a single payload within the topic's limit: a fast path for the common case."""
        return self.publish(Block.lone(self.id, self.next, payload, self.host.wall_ns()))

    def publish(self, block: Block) -> int:
        """Publish a block that continues this publisher's sequences. Return one past the last of them."""
        now = self.host.now()
        if not self.waiting_bytes:
            self.progress_at = now
            self._wake(self.topic)
        self.next = block.last
        self.retained.append(block)
        self.retained_bytes += block.size
        self.waiting.append(block)
        self.waiting_bytes += block.size
        self.sealed_at.append(now)
        self.host.trace(Published(self.topic, self.id, block.first, block.count, block.size))
        self.push()
        return self.next

    def room(self) -> int:
        """Return the bytes that may be offered now; if not positive, wait for `progressed`."""
        return min(self.config.window_bytes - self.waiting_bytes, self.config.retain_bytes - self.retained_bytes)

    def push(self) -> None:
        """Send what was not sent yet, as far as the link to the root has room.

        While the root holds publishers back, send what an earlier root admitted, one block at a time: full buffers may
        wait for exactly that. So it counts as a repair, and may use all of the link's credit.
        """
        if self.root is None:
            return
        while (self.sent < self.next or self.again is not None) and (
            room_bytes := self._room_to(self.root, self.topic, self.held_back)
        ) > 0:
            first, last = (self.sent, self.next) if self.again is None else self.again.ranges()[0]
            if self.held_back and (self.trickling or first >= self.admitted):
                return
            self.trickling = self.held_back
            newest, root = self.retained[-1], self.root
            if newest.first == first:
                blocks: tuple[Block, ...] = (newest,)
            else:
                blocks = self._kept(first, last, 1 if self.held_back else room_bytes)
            if self.again is None:
                self.sent = blocks[-1].last
            else:
                self.sent = max(self.sent, blocks[-1].last)
                self._lacks_no_more(0, blocks[-1].last)
            floor = self.retained[0].first if self.reliable or self.keeps else blocks[0].first
            self._carry(self, Bundle(Envelope(self.topic, UP, self.term, floor, self.session), blocks))
            if not (self.reliable or self.keeps):
                self._let_go(self.sent)
                self._admit(self.sent)
            if self.root is not root:
                return

    def _kept(self, first: int, last: int, room_bytes: int) -> tuple[Block, ...]:
        """Return the blocks with the events from `first` on, as many as have room, but at least one."""
        blocks: list[Block] = []
        size = 0
        for block in reversed(self.retained):
            if block.last <= first:
                break
            if block.first < last:
                blocks.append(block)
        blocks.reverse()
        limit_bytes = min(self.config.bundle_bytes, room_bytes)
        for count, block in enumerate(blocks):
            size += block.size
            if size > limit_bytes and count:
                return tuple(blocks[:count])
        return tuple(blocks)

    def root_is(self, root: Contact, term: Term, *, held_back: bool = False) -> None:
        """Send to this root from now on; a root of a later term gets all unstable events again.

        `held_back`: it has no room for more of the topic now.
        """
        if self.term.of_source and not (term.of_source or self.descriptor.settings.by_source):
            self.root, self.term = None, NO_TERM  # its own peer numbered its events until this was known
        if term < self.term:
            return
        self.held_back, self.trickling = held_back, False
        if term > self.term:
            self.spoke_at = self.host.now()
        if root != self.root or term > self.term:
            self.root, self.term, self.again = root, term, None
            self.sent = self.retained[0].first if self.retained else self.next
            if self.sent < self.admitted:
                self.host.trace(Mark("resent_to_new_root"))
        self.progress_at = self.host.now()
        self.push()

    def root_lost(self) -> None:
        """Stop sending until another root is found."""
        self.root = None

    def receipt(
        self, term: Term, admitted: int, stable: int, lacks: Sequence[Range] = (), *,
        partitioned: bool = False, held_back: bool = False, index: int = 0,
    ) -> None:  # fmt: skip
        """Handle the root's report of admitted and stable events; with `partitioned`, of its side of a partition.

        What it `lacks` is sent again. It learns from the floor of what is sent which of that was discarded.
        `held_back`: it has no room for more of the topic now. `index`: all that it admitted is below that; 0 if nobody
        needs to know.
        """
        if term < self.term:
            return  # a root that does not know that its term has ended
        self.held_back, self.trickling = held_back, False
        self.partitioned = partitioned
        self.progress_at = self.spoke_at = self.host.now()
        self.term = term
        if self.again is not None or lacks:
            self._lacks_no_more(0, admitted)
            self._note_lacks(lacks)
        if partitioned and self.descriptor.settings.partition == "wait":
            self.push()
            return  # the root acknowledges nothing now
        if admitted > self.next:  # the root has more from the publisher's former peer than came to this one, or lies
            index, admitted = 0, self.next
        stable = min(stable, self.next)
        self._admit(admitted)
        if index and self.retained:
            self.places.note(term, admitted, Came(index, self.host.now()))
        if stable > self.stable and self.reliable and not term.best_effort:
            self.stable = stable
            self._let_go(stable)
        if self.keeps_reliable:
            self._let_go(admitted)
        self.push()
        self.listener.progressed()

    def _note_lacks(self, lacks: Sequence[Range]) -> None:
        again = self.again or RangeSet()
        for gap, until in lacks if self.retained else ():
            self.host.trace(Mark("publisher_sent_again"))
            first = max(gap, self.retained[0].first)
            again.add(first, min(max(until, first + 1), self.sent))
        self.again = again or None

    def _lacks_no_more(self, first: int, last: int) -> None:
        """Do not send these as lacking: the root has them, they are sent anyway, or they are no longer kept."""
        if self.again is not None:
            self.again.discard(first, last)
            self.again = self.again or None

    def _go_back(self, sequence: int) -> None:
        """Send everything from here on again, whether the root lacks it or not."""
        self.sent = sequence
        self._lacks_no_more(sequence, self.next)

    def resend(self) -> None:
        """Send everything again from the first event that was not admitted: the root did not answer."""
        self.progress_at = self.host.now()
        self.trickling = False
        if self.keeps and self.retained:
            self._go_back(max(min(self.sent, self.admitted), self.retained[0].first))
        self.push()

    @property
    def keeps(self) -> bool:
        """Whether sent events are kept. In transit to a source within this process none is lost."""
        return self.reliable or (self.keeps_reliable and not self.term.of_source)

    @property
    def unfinished(self) -> bool:
        """Whether it has, or may have, anything to publish."""
        return not self.closed or bool(self.retained)

    def places_kept(self) -> dict[Term, Came]:
        """Return terms that admitted events kept here, and, by receipts, up to which index those may be.

        Includes what `trim` has still to return.
        """
        kept = [place for block in self.retained if (place := self.places.find(block.last)) is not None]
        return self._dropped_at | dict(kept)

    @property
    def unsettled(self) -> int:
        """Return how many events are not stable and may become so."""
        dropped = sum(last - first for first, last in self.dropped.within(self.stable, self.next))
        return self.next - self.stable - dropped

    @property
    def is_due(self) -> bool:
        """Whether anything is kept that time may change, or `trim` has anything to return."""
        return self.closed or bool(self.retained or self.waiting_bytes or self._dropped_at)

    def overdue(self, now: float) -> bool:
        """Whether the root has been silent for too long about events it was sent, or is to be sent when it has room."""
        waits = self.waiting_bytes > 0 or (self.held_back and bool(self.retained))
        return waits and now - self.progress_at > self.config.receipt_timeout_s

    def remind(self, now: float) -> None:
        """Send the last block again for its receipt: all is admitted, and no report came that it is stable."""
        if self.keeps and self.retained and not self.waiting_bytes and now - self.progress_at > self.config.remind_s:
            self.progress_at = now
            self._go_back(self.retained[-1].first)
            self.push()

    def trim(self, now: float) -> dict[Term, Came]:
        """Keep within `retain_bytes` and `retain_s`: discard the oldest admitted events, unless the topic waits.

        Return terms that admitted the discarded events, and, by receipts, up to which index those may be. Includes
        events that were dropped when a best-effort session began.
        """
        dropped, self._dropped_at = self._dropped_at, {}
        full = self.retained_bytes >= self.config.retain_bytes
        self.full_since = (self.full_since or now) if full else None
        if self.descriptor.settings.slow == "wait":
            return dropped
        cut = self.full_since is not None and now - self.full_since >= self.config.patience_s
        goal = self.config.retain_bytes // 2 if cut else self.retained_bytes
        while self.retained and self.retained[0].last <= self.admitted:
            old = now - self.sealed_at[0] > self.config.retain_s
            if self.retained_bytes <= goal and not old:
                break
            if place := self.places.find(self.retained[0].last):
                dropped.update([place])
            self.drop()
        if cut:
            self.listener.progressed()
        return dropped

    def drop(self) -> None:
        """Discard the oldest block, which is not stable: a bound is reached."""
        block = self.retained[0]
        self.host.trace(Dropped(self.topic, block.count, "retained_too_long"))
        self._note_dropped(max(block.first, self.stable), block.last)
        self._let_go(block.last)
        self.listener.dropped(block)

    def _admit(self, admitted: int) -> None:
        if admitted <= self.admitted:
            return
        self.admitted = admitted
        while self.waiting and self.waiting[0].last <= admitted:
            self.waiting_bytes -= self.waiting.popleft().size

    def _let_go(self, below: int) -> None:
        retained, sealed_at, freed_bytes = self.retained, self.sealed_at, 0
        while retained and retained[0].last <= below:
            freed_bytes += retained.popleft().size
            sealed_at.popleft()
        self.retained_bytes -= freed_bytes
        self.places.let_go(below)
        kept_from = retained[0].first if retained else self.next
        self.sent = max(self.sent, kept_from)
        if self.again is not None:
            self._lacks_no_more(0, kept_from)
        if not retained:
            self.keeps_reliable = False

    def check(self) -> None:
        """Raise AssertionError unless the marks and the kept blocks agree."""
        assert max(self.stable, self.admitted) <= self.next, (self.stable, self.admitted, self.next)
        kept_from = self.retained[0].first if self.retained else self.next
        assert not self.reliable or self.dropped.covers(self.stable, kept_from), (self.stable, self.dropped, kept_from)
        assert len(self.dropped) <= DROPPED_RANGES_MAX
        assert self.again is None or kept_from <= self.again.start < self.again.end <= self.sent
        assert len(self.sealed_at) == len(self.retained)
        assert self.retained_bytes == sum([block.size for block in self.retained])
        assert self.waiting_bytes == sum([block.size for block in self.waiting])
        assert all(block.last > self.admitted for block in self.waiting)
        firsts, lasts = [block.first for block in self.retained], [block.last for block in self.retained]
        assert firsts[1:] == lasts[:-1]
