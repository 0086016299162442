"""What a peer answers to one that misses events of a term."""

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import REPAIR, Term
from quillcast.core.ranges import Range, RangeSet
from quillcast.protocol.forwarding.flow import Flow


class Verdict(msgspec.Struct, frozen=True):
    """A flow's answer to a peer that misses ranges of a term.

    `released` was discarded or given up: this peer will not get it again. `missing` may still arrive here.
    """

    held: list[Bundle]
    released: list[Range]
    missing: list[Range]


def holding(flow: Flow, term: Term, ranges: list[Range]) -> list[Bundle]:
    """The kept bundles of a term that overlap any of the ranges, as repairs, if others may have them."""
    past = flow.past.get(term)
    if flow.disowns(term):
        return []
    if past is None:
        found = flow.log.overlapping(term, ranges)
    else:
        kept = past.bundles
        found = [b for b in kept if any(b.envelope.first < last and first < b.last for first, last in ranges)]
    return [bundle.under(msgspec.structs.replace(bundle.envelope, kind=REPAIR, record=b"")) for bundle in found]


def verdict(flow: Flow, term: Term, ranges: list[Range]) -> Verdict:
    """The answer to a peer that misses these ranges of a term."""
    held = holding(flow, term, ranges)
    here = RangeSet((bundle.envelope.first, bundle.last) for bundle in held)
    absent = [piece for first, last in ranges for piece in here.missing(first, last)]
    stream = flow.stream(term)
    seen = stream.seen if stream is not None else RangeSet([(0, flow.past.forgotten.get(term, 0))])
    return Verdict(
        held,
        [piece for first, last in absent for piece in seen.within(first, last)],
        [piece for first, last in absent for piece in seen.missing(first, last)],
    )
