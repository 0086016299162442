"""Which events stand where in the terms of a flow, as far as this peer knows: an event may stand in several.

A term may admit events of an earlier term again (`docs/delivery.md`). So when a position of a term is lost, a sink
asks which event stood there, and whether that event stands elsewhere.
"""

from collections.abc import Iterable, Mapping

from quillcast.core.envelope import Term
from quillcast.core.interning import EMPTY
from quillcast.core.messages import NUMBER_MAX
from quillcast.core.ranges import NO_RANGES, Range, RangeSet
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.ledger import RUNS_MAX, Gone, Run, runs_of, sequences_of, within

_ALL = [(0, NUMBER_MAX)]


def runs_at(flow: Flow, term: Term, ranges: Iterable[Range]) -> list[Run]:
    """The known runs of events at these ranges of a term."""
    stream, past = flow.stream(term), flow.past.get(term)
    if stream is None:
        return []
    kept = past.bundles if past is not None else flow.log.of(term)
    return within([*stream.ledger, *runs_of(*kept)], ranges)


def runs_of_others(flow: Flow, term: Term) -> dict[Term, list[Run]]:
    """The runs of events that other terms hold or held."""
    others = [other for other in (*flow.past, *flow.others, flow.term) if other != term]
    if term.of_source:  # what a source numbered is not admitted again before another session
        others = [other for other in others if other.session > term.session]
    return {other: runs_at(flow, other, _ALL) for other in others}


def learn_runs(flow: Flow, term: Term, runs: Iterable[Run]) -> list[Run]:
    """Keep runs at lost positions that a neighbour knows and this peer did not know. Returns these."""
    stream = flow.stream(term)
    if stream is None or not runs:
        return []
    known = RangeSet((run.at, run.at + run.events) for run in runs_at(flow, term, _ALL))
    news = [run for run in runs if not known.covers(run.at, run.at + run.events)]
    stream.note_runs(news)
    return news


# ---- what a later term admitted again


def admitted_later(flow: Flow, term: Term) -> dict[bytes, RangeSet]:
    """The sequences that later terms are known to have admitted, by publisher."""
    others = runs_of_others(flow, term)
    return sequences_of(run for other, runs in others.items() if term.precedes(other) for run in runs)


def admitted_again(flow: Flow, term: Term, ranges: Iterable[Range] = _ALL) -> RangeSet:
    """The positions of an ended term whose events a later one is known to have admitted again."""
    later, again = admitted_later(flow, term), RangeSet()
    for run in runs_at(flow, term, ranges) if later else ():
        sequences = later.get(run.publisher, NO_RANGES).within(run.first, run.first + run.events)
        again.update((run.at + first - run.first, run.at + last - run.first) for first, last in sequences)
    return again


def readmitted_of(flow: Flow, term: Term) -> int:
    """How many events of an ended term a later one admitted again."""
    return sum(last - first for first, last in admitted_again(flow, term))


def readmitted(flow: Flow) -> int:
    """The same for all ended terms, including discarded ones."""
    return flow.past.readmitted + sum([readmitted_of(flow, term) for term in flow.past])


def may_be_readmitted(flow: Flow, term: Term, ranges: Iterable[Range]) -> RangeSet:
    """The positions of an ended term whose events may be admitted again: no later event of their publishers arrived.

    No publisher sends events again that the root declared stable.
    """
    later, awaited = admitted_later(flow, term), RangeSet()
    for run in runs_at(flow, term, ranges):
        reached = later[run.publisher].end if run.publisher in later else 0
        awaited.add(min(run.at + max(0, reached - run.first), run.at + run.events), run.at + run.events)
    if term in flow.past:
        awaited.discard(0, flow.past[term].stable)
    return awaited


# ---- what is no longer kept


def given_up(flow: Flow, term: Term, first: int) -> list[Range]:
    """The positions of a live term, from an index on, that were given up here, perhaps beyond a gap."""
    stream, kept = flow.live(term), flow.kept_of(term)
    beyond = stream.seen.within(first, stream.seen.end) if stream is not None else []
    return [piece for begin, end in beyond for piece in kept.missing(begin, end)]


def gone_before(flow: Flow, first: int, starts: Mapping[Term, int] = EMPTY) -> tuple[Gone, ...]:
    """What is no longer kept before an index of the current term, of other live terms and of ended ones.

    `starts` has these indexes of other live terms; otherwise it is where their kept events begin. Events that a new
    term admitted again and that are kept there are not gone.
    """
    kept: dict[bytes, int] = {}  # lowest sequence by publisher
    for run in runs_of(*[bundle for bundle in flow.log.of(flow.term) if bundle.last > first]):
        kept[run.publisher] = min(run.first, kept.get(run.publisher, run.first))
    others = {term: starts[term] if term in starts else flow.kept_from(term) for term in flow.others}
    ends = {**dict(flow.past.ends()), flow.term: first, **others}
    return tuple([_gone(flow, term, ends[term], kept) for term in sorted(ends) if ends[term]])


def _gone(flow: Flow, term: Term, end: int, kept: dict[bytes, int]) -> Gone:
    runs, again = runs_at(flow, term, [(0, end)]), RangeSet()
    for at, publisher, first, events in runs:
        again.add(at + max(0, kept.get(publisher, first + events) - first), at + events)
    ranges = again.missing(0, end)
    sent_again = term.of_source and term.session < flow.term.session  # perhaps unknown to their source
    may_come = sent_again or term not in flow.past.forgotten
    return Gone(term, tuple(ranges), tuple(within(runs, ranges)[-RUNS_MAX:]), may_come)


def gone_there(flow: Flow, gone: Iterable[Gone], first: int) -> tuple[Gone, ...]:
    """What another peer no longer keeps, with the known events at these positions.

    Streams that this peer numbers itself do not return here: for them its own buffer counts.
    """
    mine = {stream.term for stream in flow.live_streams() if stream.numbered_here}
    there = [each for each in gone if each.term not in mine]
    here = [each for each in gone_before(flow, first) if each.term in mine]
    both = [*[each._replace(runs=(*each.runs, *runs_at(flow, each.term, each.ranges))) for each in there], *here]
    return tuple(sorted(both, key=lambda each: each.term))
