"""Judges a run from its diaries alone: what each handler saw, what was acknowledged, and all faults.

`violations(history, bounds)` goes through `RULES`, each of which knows one promise. A reader is *owed* what was
acknowledged in its topic after its subscription was established, and whatever lies between two events of one writer
that it got. Each of these has to arrive, or to be reported lost. A reader or writer is *healthy* if no fault ever hit
its process and its handler is not slow: it must not notice the faults of others.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from tests.live.chaos import diary as entry
from tests.live.chaos.history import History, Reader, Span, Writer

EXAMPLES = 3  # of what a violation is about, in its text
LEASE_SLACK_S = 1.0  # how much earlier than its holder's silence says a lease may end; a guess: a housekeeping

Event = tuple[str, int]  # whose, and which


@dataclass(frozen=True)
class Bounds:
    """What the judge assumes, and what it requires."""

    lease_s: float = 30.0
    silent_s: float = 15.0
    """A healthy reader gets something within this, while healthy writers of its topic have something to say: time to
    notice that a root or a parent is gone, to find another, and for patience with a slow one, each twice. Where the
    topic waits for slow readers a lease's time comes on top."""
    report_s: float = 10.0
    """Skipped events are reported within this, and peers that were away for longer than a lease are back within it."""
    rivals_s: float = 5.0
    """Roots on both sides of a partition learn of each other within this, once it is over (docs/delivery.md)."""
    stable_s: float = 1.0
    """A handler has written down an event within this after its peer got it."""
    survival_s: float = 5.0
    """Events that a writer published so shortly before it was killed may have had no other copy that lived."""
    grown_bytes_max: int = 64 << 20
    """What a process may grow by after its start: budgets, windows, and what the allocator keeps of them."""
    links_opened_max: int = 60
    """Links that come up at a process between two weighings. A dozen processes lose each other and are back in a
    second at most a few times; links that replace each other come up by the hundred."""


@dataclass(frozen=True)
class Violation:
    """A promise that was not kept."""

    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.text}"


Rule = Callable[[History, Bounds], Iterator[Violation]]


def violations(history: History, bounds: Bounds) -> list[Violation]:
    """Everything that did not hold."""
    return [violation for rule in RULES for violation in rule(history, bounds)]


# --- what comes, comes once, in order and whole


def repeated(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in history.readers.values():
        times = [(one.writer, one.number) for one in reader.deliveries]
        again = [event for place, event in enumerate(times) if reader.first[event] != place]
        yield from _found("repeated", reader.name, again)


def misordered(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in filter(history.reliable, history.readers.values()):
        last: dict[str, int] = {}
        behind = []
        for one in reader.deliveries:
            if one.number < last.get(one.writer, 0):
                behind.append((one.writer, one.number))
            last[one.writer] = max(one.number, last.get(one.writer, 0))
        yield from _found("misordered", reader.name, behind)


def corrupt(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in history.readers.values():
        damaged = [(one.writer, one.number) for one in reader.deliveries if not one.whole]
        yield from _found("corrupt", reader.name, damaged)
        other = [(one.writer, one.number) for one in reader.deliveries if one.sequence != one.number]
        yield from _found("of another sequence", reader.name, other)
        made_up = [event for event in reader.got if not _published(history, event)]
        yield from _found("never published", reader.name, made_up)


# --- what is owed, comes or is reported lost


def missing(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in filter(history.reliable, history.readers.values()):
        absent = [
            event
            for event in owed(history, reader, bounds)
            if not _told(history, reader, event) and not _perished(history, event, bounds)
        ]
        if len(absent) > reader.uncertain:
            yield from _found("neither came nor was reported lost", reader.name, absent)


def owed(history: History, reader: Reader, bounds: Bounds) -> Iterator[Event]:
    """The events that a reader should have got, and did not."""
    lives_on = history.lives_on(reader)
    decided_at = history.last_at if lives_on else reader.ended_at - bounds.report_s
    for writer in history.of(reader.topic):
        numbers = reader.numbers.get(writer.name, [])
        for before, after in pairwise(numbers):
            if after > before + 1 and reader.got[writer.name, after] <= decided_at:
                yield from ((writer.name, number) for number in range(before + 1, after))
        if lives_on:
            owed_from = _owed_from(history, reader, writer, bounds)
            yield from _acknowledged_outside(writer, reader, numbers, owed_from)


def _owed_from(history: History, reader: Reader, writer: Writer, bounds: Bounds) -> float:
    """From when on it is owed what a writer publishes; beyond a partition, once the two sides have met."""
    began, apart = reader.started_at, history.apart(reader.life, writer.life)
    return max([until + bounds.rivals_s for since, until in apart if since < began < until + bounds.rivals_s] + [began])


def _acknowledged_outside(writer: Writer, reader: Reader, numbers: list[int], owed_from: float) -> Iterator[Event]:
    """Acknowledged events that are due before the first that arrived, or after the last."""
    for number in writer.acknowledged:
        outside = not numbers or number < numbers[0] or number > numbers[-1]
        if outside and writer.published[number] > owed_from:
            yield writer.name, number


def _perished(history: History, event: Event, bounds: Bounds) -> bool:
    """Was its writer killed before anybody else was sure to have it, and is there nobody who did and lived on?"""
    writer, number = history.writers[event[0]], event[1]
    if not writer.life.killed or number not in writer.published:
        return False
    young = number not in writer.acknowledged or writer.life.ended_at - writer.published[number] < bounds.survival_s
    had = ((reader.got[event], reader.life.ended_at) for reader in history.read_by(writer.topic) if event in reader.got)
    return young and not any(ended_at - came_at > bounds.report_s for came_at, ended_at in had)


def untrue_stable(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in filter(history.reliable, history.readers.values()):
        untrue: list[Event] = []
        for writer in history.of(reader.topic):
            away = _away(history.stopped[reader.life.name] + history.apart(reader.life, writer.life), bounds)
            owed_from = _owed_from(history, reader, writer, bounds)
            told = [number for number in writer.stable if writer.published[number] > owed_from]
            untrue += [(writer.name, n) for n in told if not _has_by(history, reader, writer, n, away, bounds)]
        yield from _found("was not there when it was said to be stable", reader.name, untrue)


def _has_by(history: History, reader: Reader, writer: Writer, number: int, away: list[Span], bounds: Bounds) -> bool:
    """Had the reader's peer an event when it was said to be stable, for all that can be known, or no lease by then?"""
    at, came_at = writer.stable[number], reader.got.get((writer.name, number))
    tells_by = max([until + bounds.report_s for since, until in away if since < at < until], default=at)
    said = _said(history.stopped[writer.life.name], at, bounds)
    if reader.ended_at < max(at + bounds.stable_s, tells_by) or any(_lapsed(span, said, bounds) for span in away):
        return True
    if came_at is None:  # who was cut has no lease until it goes on
        told = _told(history, reader, (writer.name, number)) or reader.uncertain > 0
        return told and not history.healthy(reader)
    return reader.slow or came_at <= at + bounds.stable_s or any(s < came_at and e > at for s, e in away)


def _away(spans: list[Span], bounds: Bounds) -> list[Span]:
    """When a reader was away, with the time that it takes to be back, which another absence may cut short."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span[0] < joined[-1][1] + bounds.report_s:
            joined[-1] = (joined[-1][0], max(span[1], joined[-1][1]))
        else:
            joined.append(span)
    return joined


def _said(process_paused: list[Span], at: float, bounds: Bounds) -> Span:
    """When a writer's root may have said what the writer heard at a time: a paused writer hears nothing."""
    return min([since for since, until in process_paused if since < at < until + bounds.stable_s], default=at), at


def _lapsed(away: Span, said: Span, bounds: Bounds) -> bool:
    """May a lease have ended by then, for its holder was away for too long, or is only just back?"""
    since, until = away
    ends_at = since + bounds.lease_s - LEASE_SLACK_S
    return ends_at < min(until, said[1]) and said[0] < until + bounds.report_s


# --- loss reports are exact


def misreported(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in history.readers.values():
        empty = [(loss.publisher, loss.first) for loss in reader.losses if loss.first >= loss.last]
        yield from _found("an empty range was reported lost", reader.name, empty)
        by_id = {writer.publisher: writer.name for writer in history.of(reader.topic)}
        told = {(by_id.get(publisher, publisher), number): count for (publisher, number), count in reader.told.items()}
        again = [event for event, count in told.items() if count > 1]
        yield from _found("was reported lost more than once", reader.name, again)
        yield from _found("was reported lost and came", reader.name, [event for event in told if event in reader.got])
        nothing = [event for event in told if not _published(history, event)]
        yield from _found("was reported lost and never published", reader.name, nothing)


def exaggerated(history: History, bounds: Bounds) -> Iterator[Violation]:
    """Positions that nobody knows more of were given to events, and each is told of once.

    The event may have come by another term, in which a later root admitted it again. So in one term there may be as
    many positions as events were published, but for those that came and surely stand at one position only.
    """
    for reader in filter(history.reliable, history.readers.values()):
        vague: dict[str, list[entry.Lost]] = {}
        for loss in reader.losses:
            if not loss.publisher:
                vague.setdefault(loss.term, []).append(loss)
        for losses in vague.values():
            told = Counter(position for loss in losses for position in range(loss.first, loss.last))
            again = [("", position) for position, count in told.items() if count > 1]
            yield from _found("was reported lost more than once", reader.name, again)
            at = max(loss.at for loss in losses)
            published, come = _published_by(history, reader, at), _stands_once(history, reader, at)
            if len(told) > published - come or max(told, default=0) >= published:
                text = f"{len(told)} positions up to {max(told)}; {published} events were published, {come} had come"
                yield Violation("more was reported lost than is missing", reader.name, text)


def _published_by(history: History, reader: Reader, at: float) -> int:
    return sum(when <= at for writer in history.of(reader.topic) for when in writer.published.values())


def _stands_once(history: History, reader: Reader, at: float) -> int:
    """How many events had come to a reader by then, and were stable before any root can have changed by a fault."""
    count = 0
    for writer in history.of(reader.topic):
        last = max([number for number, when in writer.stable.items() if when < history.troubled_at], default=-1)
        came = (reader.got.get((writer.name, number), inf) for number in range(last + 1))
        count += sum(when <= at for when in came)
    return count


def unmarked(history: History, bounds: Bounds) -> Iterator[Violation]:
    """What is marked as recovered comes after a report that did not say whose events it was about."""
    for reader in history.readers.values():
        first = min([loss.at for loss in reader.losses if not loss.publisher], default=inf)
        marked = [(one.writer, one.number) for one in reader.deliveries if one.recovered and one.at < first]
        yield from _found("was marked as recovered, and not reported lost before", reader.name, marked)


# --- who is healthy stays out of others' trouble


def bereft(history: History, bounds: Bounds) -> Iterator[Violation]:
    """A healthy reader misses only events that nobody but a killed or cut-off writer had."""
    for reader in filter(history.healthy, history.readers.values()):
        if not history.reliable(reader):
            continue
        told = [
            event
            for event in _lost_events(history, reader)
            if not _excused(history, event, bounds)
            and not _from_before_they_met(history, reader, event, bounds)
            and not _unread_when_it_began(history, reader, event, bounds)
        ]
        yield from _found("was reported lost to a healthy reader", reader.name, told)
        befallen = [a for a in history.of(reader.topic) if a.life.killed or history.partitioned[a.life.name]]
        if reader.uncertain and not befallen:
            yield Violation("was reported lost to a healthy reader", reader.name, f"{reader.uncertain} positions")


def _lost_events(history: History, reader: Reader) -> Iterator[Event]:
    for publisher, number in reader.told:
        writer = history.by_publisher.get(publisher)
        if writer is not None:
            yield writer.name, number


def _excused(history: History, event: Event, bounds: Bounds) -> bool:
    """Did it perish with its writer, or was that cut off, or had its root yet to meet a rival, when it was admitted?

    What was published before and had no root by then is admitted beyond the partition, too.
    """
    writer, number = history.writers[event[0]], event[1]
    published_at = writer.published.get(number, 0.0)
    admitted_by = min((at for later, at in writer.acknowledged.items() if later >= number), default=published_at)
    spans = history.partitioned[writer.life.name]
    cut_off = any(since <= at < until + bounds.rivals_s for since, until in spans for at in (published_at, admitted_by))
    return cut_off or _perished(history, event, bounds)


def _from_before_they_met(history: History, reader: Reader, event: Event, bounds: Bounds) -> bool:
    """Did the subscription begin beyond a partition, and was this published before the two sides met?

    It is told of all of the other side's later terms, for nobody can tell what of them came before it.
    """
    writer = history.writers[event[0]]
    owed_from = _owed_from(history, reader, writer, bounds)
    return reader.started_at < owed_from and writer.published.get(event[1], 0.0) < owed_from


def _unread_when_it_began(history: History, reader: Reader, event: Event, bounds: Bounds) -> bool:
    """Was this published before the subscription, and to a process that was paused when the subscription began?

    A root that goes on admits what waited to be read. For how long that has waited is known approximately, so that a
    subscription that began meanwhile may be told of it, though it is owed nothing of it (docs/delivery.md).
    """
    published_at = history.writers[event[0]].published.get(event[1], inf)
    paused = [span for spans in history.stopped.values() for span in spans]
    return published_at < reader.started_at and any(
        since <= published_at + bounds.stable_s and reader.started_at < until + bounds.rivals_s
        for since, until in paused
    )


def silent(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in filter(history.healthy, history.readers.values()):
        if not history.reliable(reader):
            continue
        longest_s, until = silence(history, reader)
        waits = history.topics[reader.topic].slow == "wait"
        bound_s = bounds.silent_s + (bounds.lease_s if waits else 0.0)
        if longest_s > bound_s:
            yield Violation("a healthy reader was left waiting", reader.name, f"{longest_s:.1f} s, until {until:.1f}")


def silence(history: History, reader: Reader) -> tuple[float, float]:
    """The longest time that a reader got nothing though a healthy writer had something for it; until when that was."""
    ended_at = min(reader.ended_at, history.last_at)
    came = sorted({*(at for at in reader.got.values() if at < ended_at), ended_at})
    longest_s, when = 0.0, 0.0
    for writer in filter(history.healthy, history.of(reader.topic)):
        for since, until in _waits(writer, reader, ended_at):
            for begin, end in _spells(came, since, until):
                if end - begin > longest_s:
                    longest_s, when = end - begin, end
    return longest_s, when


def _waits(writer: Writer, reader: Reader, ended_at: float) -> Iterator[tuple[float, float]]:
    """From when to when each event of a writer was on its way to a reader; a later one that comes ends it, too."""
    until = ended_at
    for number in sorted(writer.published, reverse=True):
        until = min(until, reader.got.get((writer.name, number), ended_at))
        if writer.published[number] >= reader.started_at:
            yield writer.published[number], until


def _spells(came: list[float], since: float, until: float) -> Iterator[tuple[float, float]]:
    """The times without any delivery between two moments."""
    place = bisect_left(came, since)
    while since < until and place < len(came):
        yield since, min(came[place], until)
        since, place = came[place], place + 1


def unanswered(history: History, bounds: Bounds) -> Iterator[Violation]:
    """A healthy writer's last event is stable when everything has had its time, and all are admitted before.

    Where the topic waits for slow readers nothing says for how long, but for the last one.
    """
    for writer in filter(history.healthy, history.writers.values()):
        last, waits = max(writer.published, default=0), history.topics[writer.topic].slow == "wait"
        refused = [one for one in writer.refused if one.number == last or not (waits or one.wait == "stable")]
        if refused:
            first = refused[0]
            text = f"{len(refused)}: {first.number} of 0 to {last}: {first.wait or 'publish'}: {first.why}"
            yield Violation("a healthy writer's event was not acknowledged", writer.name, text)


def shut_out(history: History, bounds: Bounds) -> Iterator[Violation]:
    for reader in history.readers.values():
        if reader.failure and history.healthy(reader):
            yield Violation("a healthy reader's subscription did not start", reader.name, reader.failure)


# --- processes


def grown(history: History, bounds: Bounds) -> Iterator[Violation]:
    for life in history.lives.values():
        if life.weights and max(life.weights) - life.weights[0] > bounds.grown_bytes_max:
            text = f"from {life.weights[0] >> 20} to {max(life.weights) >> 20} MiB"
            yield Violation("memory grew", f"{life.name}.{life.number}", text)


def restless(history: History, bounds: Bounds) -> Iterator[Violation]:
    for life in history.lives.values():
        most = max((after - before for before, after in pairwise(life.links_opened)), default=0)
        if most > bounds.links_opened_max:
            yield Violation("links came up again and again", f"{life.name}.{life.number}", f"{most} in a second")


def failed(history: History, bounds: Bounds) -> Iterator[Violation]:
    for ended in history.statuses:
        life = history.life(ended.name, ended.life)
        if not life.killed and (ended.status or not life.left):
            yield Violation("a process ended", f"{ended.name}.{ended.life}", f"with status {ended.status}")
    for complained in history.complaints:
        yield Violation("a process complained", f"{complained.name}.{complained.life}", complained.text)


RULES: tuple[Rule, ...] = (
    repeated, misordered, corrupt, missing, untrue_stable, misreported, exaggerated, unmarked, bereft, silent,
    unanswered, shut_out, grown, restless, failed,
)  # fmt: skip


# --- within


def _published(history: History, event: Event) -> bool:
    writer = history.writers.get(event[0])
    return writer is not None and event[1] in writer.published


def _told(history: History, reader: Reader, event: Event) -> bool:
    return (history.writers[event[0]].publisher, event[1]) in reader.told


def _found(kind: str, where: str, events: Iterable[Event]) -> Iterator[Violation]:
    """One violation for all events of a kind in one place."""
    found = sorted(events)
    if found:
        some = ", ".join(f"{writer or 'positions'} {number}" for writer, number in found[:EXAMPLES])
        yield Violation(kind, where, f"{len(found)}: {some}{', ...' if len(found) > EXAMPLES else ''}")
