"""What is discarded of a flow's ended terms, what is given up of any term, and which sinks are told that it is lost."""

from collections.abc import Callable

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.ranges import Range, RangeSet
from quillcast.protocol.forwarding.event_places import admitted_later, readmitted_of, runs_at, runs_of_others
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.ledger import runs_of
from quillcast.protocol.forwarding.stream import EndedStream


def forget(flow: Flow, term: Term) -> None:
    """Discard an ended term for good."""
    again = readmitted_of(flow, term)
    discard_past(flow, term)
    flow.past.forget(term, again)


def discard_past(flow: Flow, term: Term, wanted_bytes: int | None = None, *, needless_only: bool = False) -> int:
    """Discard the oldest bundles of an ended term: up to a number of bytes or all, unneeded ones only or any.

    Returns the number of discarded events. Only their runs are kept. Channels that wait for them are told.
    """
    past = flow.past[term]
    gone, kept, freed_bytes = list[Bundle](), list[Bundle](), 0
    needed = _needed(flow, past) if needless_only and past.bundles else None
    for bundle in past.bundles:
        enough = wanted_bytes is not None and freed_bytes >= wanted_bytes
        if enough or (needed is not None and needed(bundle)):
            kept.append(bundle)
        else:
            gone.append(bundle)
            freed_bytes += bundle.size
    if gone:
        past.keep_only(kept)
        flow.log.budget.free(freed_bytes)
        past.note_runs(runs_of(*gone))
        others = runs_of_others(flow, term)
        for channel in flow.channels:
            channel.discard_past(term, gone, past.ledger, others)
    return sum(bundle.count for bundle in gone)


def _needed(flow: Flow, past: EndedStream) -> Callable[[Bundle], bool]:
    """The bundles of an ended term that may still be needed.

    Those that wait in a channel here, and all while it is unknown whether a sink is owed them. Of the others, those
    that are not stable and that no later term admitted again: subscribers that are owed them are owed that term too.
    """
    if any(channel.sink.may_be_owed(past.term) for channel in flow.channels):
        return lambda bundle: True
    again = admitted_later(flow, past.term)
    waiting = RangeSet((b.envelope.first, b.last) for channel in flow.channels for b in channel.waiting(past.term))

    def needed(bundle: Bundle) -> bool:
        if waiting.within(bundle.envelope.first, bundle.last):
            return True
        return bundle.last > past.stable and not all(
            run.publisher in again and again[run.publisher].covers(run.first, run.first + run.events)
            for run in runs_of(bundle)
        )

    return needed


def lose(flow: Flow, term: Term, ranges: list[Range]) -> None:
    """No peer has these ranges: continue without them, and report them to the sinks that are owed them."""
    runs, others = runs_at(flow, term, ranges), runs_of_others(flow, term)
    stream = flow.stream(term)
    if stream is not None:
        stream.give_up(ranges)
    for channel in flow.channels:
        channel.sink.skip(term, ranges, "unavailable", runs, others)


def give_up_owed(flow: Flow, term: Term) -> None:
    """Tell each sink that its owed events of an ended term will not arrive."""
    past = flow.past[term]
    for channel in flow.channels:
        if lacking := channel.sink.lacking(term, past.seen, past.end):
            runs = runs_at(flow, term, lacking)
            channel.sink.skip(term, lacking, "unavailable", runs, runs_of_others(flow, term))


def pass_had(flow: Flow, term: Term) -> bool:
    """Sinks stop waiting for positions of an ended term whose events they got in another. True if one did."""
    past = flow.past[term]
    lacking = [r for channel in flow.channels for r in channel.sink.lacking(term, past.seen, past.end)]
    runs = runs_at(flow, term, RangeSet(lacking)) if lacking else []
    sinks = [channel.sink for channel in flow.channels] if runs else []
    return sum(sink.pass_had(term, past.seen, past.end, runs) for sink in sinks) > 0
