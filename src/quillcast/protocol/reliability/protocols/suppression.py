"""Requests to all with suppression as the recovery protocol, as in SRM.

A member that lacks something waits for a random time in proportion to its distance from the peer upstream, and then
asks all members at once. A member that hears another ask for what it lacks does not ask itself. A member that holds it
waits in the same way, in proportion to its distance from the member that asks. Then it offers it to all members, unless
another has offered it. All that lack it request it of the one that offered. What no member offered in time is held by
none.

A message to all goes to the members that come next in the circle. The last of these passes it on to those that come
next after it, until it has come round.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference, intersection
from quillcast.core.trace import Mark
from quillcast.protocol.reliability.domain import AgentContext, AgentDue, Findings, KnownHolders, StreamId, held_by
from quillcast.protocol.reliability.gaps import RANGES_MAX
from quillcast.protocol.reliability.messages import RELAYS_MAX, Offered, Sought

NEAREST, SPREAD = 1.0, 2.0
"""An answer or question waits for 1 to 3 times a distance; a guess: those next to it go first."""
DISTANCE_S = 0.02  # of a peer that was not measured; a guess
REQUESTS_MAX = 16  # for one stream that are remembered at a time; a guess
STREAMS_MAX = 256  # about which a member has heard questions, or is about to make an offer; a guess


class RangesAsked(NamedTuple):
    """A member asked all members for ranges of a stream."""

    at: float
    ranges: RangeSet


class AskDue(NamedTuple):
    """Ask for what is missing of a stream."""

    stream: StreamId


class OfferDue(NamedTuple):
    """Offer what is held of a stream."""

    stream: StreamId


class Suppression:
    """Members ask and answer all others at once, after a wait in proportion to distance, unless another did."""

    def __init__(self, context: AgentContext) -> None:
        self.host, self.times, self.scope, self.bottom = context
        self.others: tuple[Contact, ...] = ()
        self.known = KnownHolders()
        self.about_to_ask: dict[StreamId, list[Range]] = {}  # what was missing when it decided to ask
        self.requests: dict[StreamId, list[RangesAsked]] = {}  # requests to which offers may still come
        self.sought: dict[StreamId, RangeSet] = {}  # what all members were asked for, and none offered in time
        self.again: dict[StreamId, RangeSet] = {}  # what they were asked for twice
        self.again_at: dict[StreamId, float] = {}  # when that is asked for once more
        self.pending: dict[StreamId, RangeSet] = {}  # what this member is about to offer

    # ---- what it finds

    def follow(self, others: tuple[Contact, ...]) -> None:
        """Messages to all go to these first."""
        self.others = others

    def link_lost(self, node: bytes) -> None:
        """It gets messages again once it can be reached."""

    def end(self) -> None:
        """Nobody waits for it."""

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """What members offered, and a question to all for the rest."""
        now, holders = self.host.now(), self.known.holders(stream, lacks)
        if not self.others:
            return Findings(holders, neighbours, difference(lacks, held_by(holders)))
        self._close_requests(stream, now)
        sought = (self.sought if at_border else self.again).get(stream, NO_RANGES)
        asked = RangeSet([*held_by(holders), *sought, *self._asked_for(stream)])
        if difference(lacks, asked) or now >= self.again_at.get(stream, now):
            self._ask_later(stream, lacks, neighbours)
        return Findings(holders, neighbours, difference(intersection(lacks, sought), held_by(holders)))

    def filled(self, stream: StreamId) -> None:
        """Nothing is missing any longer."""
        self.known.forget(stream)
        for held in (self.sought, self.again, self.requests, self.again_at):
            held.pop(stream, None)

    def _close_requests(self, stream: StreamId, now: float) -> None:
        """What was asked for and not offered in time is held by no member."""
        requests = self.requests.pop(stream, [])
        waiting = [request for request in requests if now - request.at < self._window_s]
        for request in requests[: len(requests) - len(waiting)]:
            sought = self.sought.setdefault(stream, RangeSet())
            self.again.setdefault(stream, RangeSet()).update(intersection(request.ranges, sought))
            sought.update(request.ranges)
        if waiting:
            self.requests[stream] = waiting

    def _asked_for(self, stream: StreamId) -> list[Range]:
        """What another member asked for a moment ago."""
        return [each for request in self.requests.get(stream, ()) for each in request.ranges]

    def _note_request(self, stream: StreamId, ranges: Iterable[Range]) -> None:
        now = self.host.now()
        if stream not in self.requests and len(self.requests) >= STREAMS_MAX:
            self.filled(next(iter(self.requests)))
        self.again_at[stream] = now + self.times.give_up_s
        requests = self.requests.setdefault(stream, [])
        if len(requests) < REQUESTS_MAX:
            requests.append(RangesAsked(now, RangeSet(ranges)))

    @property
    def _window_s(self) -> float:
        """How long offers may take."""
        return 2 * self.times.gap_s

    # ---- questions

    def _ask_later(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact]) -> None:
        if stream not in self.about_to_ask and self.others:
            self.about_to_ask[stream] = lacks
            self._set_timer(AskDue(stream), neighbours[:1])

    def _set_timer(self, what: AskDue | OfferDue, away_from: Sequence[Contact]) -> None:
        distances_s = [distance for each in away_from if (distance := self.host.proximity(each.node_id)) is not None]
        wait = NEAREST + SPREAD * self.host.random.random()
        wait_s = min(wait * min(distances_s, default=DISTANCE_S), self.times.gap_s / 2)
        self.host.set_timer(AgentDue(self.scope, "srm", what), wait_s)

    def due(self, what: Any) -> None:
        """The wait is over."""
        match what:
            case AskDue(stream):
                self._ask(stream)
            case OfferDue(stream):
                self._offer(stream)

    def _ask(self, stream: StreamId) -> None:
        """Ask for what is still missing, unless another member asked for it meanwhile."""
        lacks = intersection(self.about_to_ask.pop(stream, []), RangeSet(self.bottom.lacks(stream)))
        asked = RangeSet([*held_by(self.known.holders(stream, lacks)), *self._asked_for(stream)])
        if not (ranges := difference(lacks, asked)[:RANGES_MAX]):
            self.host.trace(Mark("request_suppressed"))
            return
        self._note_request(stream, ranges)
        self.host.trace(Mark("sought"))
        self._send_to_all(Sought(self.scope, self.host.contact, *stream, tuple(ranges), RELAYS_MAX))

    # ---- offers

    def received(self, sender: Contact, message: Message) -> None:
        """A question or an offer to all."""
        assert isinstance(message, Sought | Offered)
        if message.by == self.host.contact:
            return
        if message.relays:
            self._relay(message)
        stream, ranges = StreamId(message.topic, message.term), [*message.ranges[:RANGES_MAX]]
        if isinstance(message, Sought):
            self._asked(stream, ranges, message.by)
        else:
            self._offered(stream, ranges, message.by)

    def _asked(self, stream: StreamId, ranges: list[Range], asker: Contact) -> None:
        if lacks := intersection(self.bottom.lacks(stream), ranges):
            self._note_request(stream, lacks)
        held = self.bottom.holds(stream, ranges)
        if held and stream in self.pending:
            self.pending[stream].update(held)
        elif held and len(self.pending) < STREAMS_MAX:
            self.pending[stream] = RangeSet(held)
            self._set_timer(OfferDue(stream), [asker])

    def _offer(self, stream: StreamId) -> None:
        """Offer what is still held, except what others offered meanwhile. An agent before this one may have waited."""
        pending = self.pending.pop(stream, NO_RANGES)
        ranges = self.bottom.holds(stream, [*pending])[:RANGES_MAX]
        if not ranges:
            self.host.trace(Mark("offer_suppressed"))
            return
        self.host.trace(Mark("offered"))
        self._send_to_all(Offered(self.scope, self.host.contact, *stream, tuple(ranges), RELAYS_MAX))

    def _offered(self, stream: StreamId, ranges: list[Range], by: Contact) -> None:
        for first, last in ranges if stream in self.pending else ():
            self.pending[stream].discard(first, last)
        if lacks := intersection(self.bottom.lacks(stream), ranges):
            self.known.note(stream, by, lacks)
            self.bottom.found(stream)

    # ---- to all

    def _send_to_all(self, message: Sought | Offered) -> None:
        self._send(message, self.others)

    def _relay(self, message: Sought | Offered) -> None:
        """Pass it on to the next members, up to the one that it came from."""
        self._send(message, [*takewhile(lambda other: other != message.by, self.others)])

    def _send(self, message: Sought | Offered, to: Sequence[Contact]) -> None:
        for contact in to[:-1]:
            self.host.send(contact, msgspec.structs.replace(message, relays=0))
        for contact in to[-1:]:
            self.host.send(contact, msgspec.structs.replace(message, relays=message.relays - 1))
