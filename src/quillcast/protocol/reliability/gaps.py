"""The missing ranges of one term of one topic, and for each range who was asked and who refused it.

State is kept per range and repairer. A refusal is the answer of one repairer for some ranges at one time. It counts
until the repairer gives another answer, or the neighbours change. `released` is stronger: the repairer had
the range and discarded it, or gave it up, and will not have it again.
"""

from collections.abc import Iterable
from math import inf

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference, intersection

RANGES_MAX = 64  # ranges in one Fetch; the rest follows when these are filled
WAIT_S_MAX = 4.0  # longest wait before the same ranges are requested again; a guess


class Repairer:
    """A peer that may have missing ranges: what was requested from it in this round, and its latest answers."""

    __slots__ = ("answered", "asked", "offered_before", "offers", "refused", "released", "unanswered_since")

    def __init__(self) -> None:
        self.asked, self.answered = RangeSet(), RangeSet()
        self.refused, self.released = RangeSet(), RangeSet()
        self.offers = self.offered_before = NO_RANGES  # what it reports to keep, now and at the last check
        self.unanswered_since: float | None = None

    def in_transit(self, ranges: Iterable[Range]) -> list[Range]:
        """Those of these ranges that were requested from it and that it has not refused."""
        return difference(intersection(ranges, self.asked), self.answered)

    def start_over(self, ranges: Iterable[Range]) -> None:
        """It may have these by now, whatever it answered."""
        for first, last in ranges:
            for at in intersection([(first, last)], self.answered):
                self.asked.discard(*at)
            for answers in (self.answered, self.refused, self.released):
                answers.discard(first, last)

    def start_round(self) -> None:
        """Begin a new round. The latest answers count until the next ones."""
        self.asked, self.answered = RangeSet(), RangeSet()


class Lasting:
    """Ranges for which a condition has held at every check, and since when."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: list[tuple[float, RangeSet]] = []

    def note(self, ranges: list[Range], now: float) -> None:
        """The condition holds for these now, and for no others."""
        known, still = RangeSet(), list[tuple[float, RangeSet]]()
        for since, before in self._since:
            if kept := intersection(ranges, before):
                still.append((since, RangeSet(kept)))
                known.update(kept)
        if fresh := difference(ranges, known):
            still.append((now, RangeSet(fresh)))
        self._since = still

    def start_over(self) -> None:
        """The condition did not hold until now."""
        self._since = []

    def lasted(self, for_s: float, now: float) -> RangeSet:
        """The ranges for which it has held for so many seconds."""
        return RangeSet(each for since, ranges in self._since if now - since >= for_s for each in ranges)


class Gap:
    """The missing ranges of a term, from the time they are first seen to be missing until they are filled or given up.

    Requested ranges count as in transit as long as the gap shrinks. They are requested again, from any repairer, only
    after the gap has not shrunk for `wait_s`, which doubles each time. Otherwise a slow link would fill up with answers
    to repeated requests.
    """

    __slots__ = (
        "_first_wait_s", "_hopeless", "_looked_at", "_missing", "_moved_at", "_named", "_new", "_shrunk_at",
        "_stale", "_under", "_voided_at", "_wait_s", "confirmed", "pressed", "repairers",
    )  # fmt: skip

    def __init__(self, now: float, wait_s: float) -> None:
        self.confirmed: list[Range] = []  # missing at two checks in a row, and so not just in transit
        self.repairers: dict[bytes, Repairer] = {}
        self.pressed = 0, b"", -inf  # the last request without credit: which event, to which peer, and when
        self._under = NO_TERM  # the term of the root that the repairers followed at the last check
        self._stale, self._voided_at = False, -inf  # do answers no longer count, as others are asked; and since when
        self._moved_at = self._shrunk_at = now
        self._wait_s = self._first_wait_s = wait_s
        self._looked_at, self._missing = RangeSet(), 0
        self._hopeless = Lasting()  # what nobody has
        self._new = Lasting()  # what has reached no peer below
        self._named: dict[bytes, RangeSet] = {}  # what members hold, as agents said

    def press(self, event: int, repairer: bytes, now: float) -> None:
        """Record that a peer is asked for an event without credit."""
        self.pressed = event, repairer, now

    def look(self, ranges: list[Range], now: float) -> None:
        """Record the ranges that are missing now."""
        if difference(self._looked_at, RangeSet(ranges)):
            self._hopeless.start_over()  # something arrived, so more may follow
        missing = sum(last - first for first, last in ranges)
        if missing < self._missing:
            self._moved_at, self._wait_s = now, self._first_wait_s
            self._shrunk_at = now
            for repairer in self.repairers.values():
                repairer.unanswered_since = None
        elif self.repairers and now - self._moved_at >= self._wait_s:
            for repairer in self.repairers.values():
                repairer.start_round()
            self._moved_at, self._wait_s = now, min(2 * self._wait_s, WAIT_S_MAX)
        self._missing = missing
        self.confirmed, self._looked_at = intersection(ranges, self._looked_at), RangeSet(ranges)

    def start_anew(self, now: float) -> None:
        """This process was paused until now, and answers may be unread: nothing counts as missing for long."""
        self._hopeless.start_over()
        self._moved_at = self._shrunk_at = now
        for repairer in self.repairers.values():
            repairer.unanswered_since = None if repairer.unanswered_since is None else now

    def excuse_silence(self, now: float, for_s: float) -> None:
        """This peer has no room for answers now: missing ones do not count, unless nothing came for `for_s` seconds."""
        if now - self._shrunk_at < for_s:
            for repairer in self.repairers.values():
                repairer.unanswered_since = None if repairer.unanswered_since is None else now

    def ask_among(self, names: Iterable[bytes], now: float, under: Term = NO_TERM) -> None:
        """Set the repairers to ask. If one of them is new, refusals and missing answers no longer count.

        The same holds if they follow another root, as they may have more by now. `under` is its term. If many are new
        one after another, all are asked again only from time to time. Until then nothing is given up.
        """
        names = dict.fromkeys(names)
        if under != self._under or any(name not in self.repairers for name in names):
            self._under, self._stale = under, True
            self._hopeless.start_over()
        if self._stale and now - self._voided_at >= self._first_wait_s:
            self._stale, self._voided_at = False, now
            for repairer in self.repairers.values():
                repairer.start_round()
                repairer.refused, repairer.unanswered_since = RangeSet(), None
        self.repairers = {name: self.repairers.get(name) or Repairer() for name in names}
        for repairer in self.repairers.values():
            repairer.offered_before, repairer.offers = repairer.offers, NO_RANGES

    def to_ask(self, name: bytes, ranges: Iterable[Range], now: float) -> list[Range]:
        """The ranges to request from a repairer now, as no other is about to send them. They count as requested."""
        repairer = self.repairers[name]
        wanted = difference(difference(ranges, repairer.asked), repairer.released)
        for other in self.repairers.values():
            wanted = difference(wanted, RangeSet(other.in_transit(wanted)))
        wanted = wanted[:RANGES_MAX]
        repairer.asked.update(wanted)
        if wanted and repairer.unanswered_since is None:
            repairer.unanswered_since = now
        return wanted

    def offered(self, name: bytes, ranges: list[Range]) -> None:
        """A repairer reports that it keeps these ranges, whatever it said before.

        What it got after refusing it is requested at once, and not only in the next round.
        """
        repairer = self.repairers.get(name)
        if repairer is not None:
            repairer.offers = RangeSet(ranges)
            for first, last in intersection(difference(ranges, repairer.offered_before), repairer.answered):
                repairer.asked.discard(first, last)
                repairer.answered.discard(first, last)
            for first, last in ranges:
                repairer.refused.discard(first, last)
                repairer.released.discard(first, last)

    def named(self, name: bytes, ranges: Iterable[Range]) -> None:
        """An agent says that a member holds these ranges, so the member got what it refused before."""
        known, repairer = self._named.setdefault(name, RangeSet()), self.repairers.get(name)
        if repairer is not None:
            repairer.start_over(difference(ranges, known))
        known.update(ranges)

    def refused(self, name: bytes, ranges: list[Range], released: Iterable[Range]) -> None:
        """A repairer does not have these ranges, and will never have the released ones again."""
        repairer = self.repairers.get(name)
        if repairer is not None:
            repairer.refused.update(ranges)
            repairer.answered.update(ranges)
            repairer.released.update(released)
            repairer.unanswered_since = None

    def released_by(self, name: bytes) -> RangeSet:
        """The ranges that a repairer gave up, or had and discarded."""
        repairer = self.repairers.get(name)
        return repairer.released if repairer is not None else NO_RANGES

    def is_silent(self, name: bytes, now: float, silent_s: float) -> bool:
        """Has a repairer not answered for so many seconds?"""
        since = self.repairers[name].unanswered_since
        return since is not None and now - since > silent_s

    def refused_by(self, name: bytes, ranges: Iterable[Range]) -> list[Range]:
        """Those of these ranges that a repairer refused."""
        repairer = self.repairers[name]
        return RangeSet([*intersection(ranges, repairer.refused), *intersection(ranges, repairer.released)]).ranges()

    def may_send(self, name: bytes, ranges: Iterable[Range], now: float, silent_s: float) -> list[Range]:
        """Those of these ranges that a claimed holder may send: it answers, and did not refuse them."""
        if name not in self.repairers:
            return [*ranges]
        if self.is_silent(name, now, silent_s):
            return []
        return difference(ranges, RangeSet(self.refused_by(name, ranges)))

    def nobody_has(
        self, ranges: Iterable[Range], now: float, for_s: float, silent_s: float, settled: Iterable[Range] = ()
    ) -> list[Range]:
        """The ranges that every repairer has refused for `for_s` seconds, during which nothing missing arrived.

        A repairer that did not answer for `silent_s` seconds has only what it reports to keep. For what is `settled`,
        refusals for `silent_s` seconds are enough.

        A repair in transit now comes too late. But its sender reports that it keeps the ranges as soon as it
        has them (`offered`), so that it has had them for no longer than that report takes.
        """
        left = [] if self._stale else list(ranges)
        for name, repairer in self.repairers.items():
            refused = self.refused_by(name, left)
            if self.is_silent(name, now, silent_s):
                refused += intersection(difference(left, repairer.offers), repairer.asked)
            left = RangeSet(refused).ranges()
        self._hopeless.note(left, now)
        settled_now = intersection(settled, self._hopeless.lasted(silent_s, now))
        return RangeSet([*self._hopeless.lasted(for_s, now), *settled_now]).ranges()

    def new_for(self, ranges: list[Range], for_s: float, now: float) -> RangeSet:
        """These have reached no peer below. Returns those for which that held in the last `for_s` seconds."""
        self._new.note(ranges, now)
        return self._new.lasted(for_s, now)

    def give_up(self, ranges: Iterable[Range]) -> None:
        """These ranges count as filled, although they did not arrive."""
        for first, last in ranges:
            self._looked_at.discard(first, last)
