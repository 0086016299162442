"""The runs of events whose bundles were discarded."""

from quillcast.protocol.forwarding.answers import verdict
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.discarding import discard_past
from quillcast.protocol.forwarding.edge import Edge
from quillcast.protocol.forwarding.event_places import may_be_readmitted, runs_at, runs_of_others
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.ledger import RUNS_MAX, Ledger, Run, within
from quillcast.protocol.forwarding.log import Budget
from tests.protocol.recording import FIRST, PAUL, PAULA, SECOND, WEATHER, Notes, RecordingHost, block, down


def a_flow() -> Flow:
    flow = Flow(WEATHER, Budget(1 << 20))
    flow.begin(FIRST, 0, 0.0)
    flow.move(down(FIRST, 0, block(PAUL, 7, b"7", b"8")), flow.current)
    flow.move(down(FIRST, 2, block(PAULA, 0, b"0")), flow.current)
    return flow


def test_consecutive_runs_are_merged() -> None:
    ledger = Ledger()
    ledger.add([Run(0, PAUL, 5, 2), Run(2, PAUL, 7, 3)])
    ledger.add([Run(5, PAULA, 0, 1)])
    assert list(ledger) == [Run(0, PAUL, 5, 5), Run(5, PAULA, 0, 1)]
    assert within(ledger, [(4, 6)]) == [Run(4, PAUL, 9, 1), Run(5, PAULA, 0, 1)]


def test_beyond_the_bound_the_oldest_runs_are_forgotten() -> None:
    ledger = Ledger()
    for number in range(3 * RUNS_MAX):
        ledger.add([Run(number, PAUL if number % 2 else PAULA, number, 1)])
    assert len(ledger) <= RUNS_MAX
    assert list(ledger)[-1].at == 3 * RUNS_MAX - 1


def test_a_flow_knows_the_runs_of_discarded_events_and_releases_their_ranges() -> None:
    flow = a_flow()
    flow.release(2)
    answer = verdict(flow, FIRST, [(0, 4)])
    assert [bundle.envelope.first for bundle in answer.held] == [2]
    assert (answer.released, answer.missing) == ([(0, 2)], [(3, 4)])
    assert runs_at(flow, FIRST, [(0, 3)]) == [Run(0, PAUL, 7, 2), Run(2, PAULA, 0, 1)]


def test_the_start_of_a_flow_does_not_imply_stability() -> None:
    flow = Flow(WEATHER, Budget(1 << 20))
    flow.begin(FIRST, 40, 0.0)
    assert (flow.current.start, flow.frontier, flow.current.stable) == (40, 40, 0)


def test_bundles_of_past_terms_are_discarded_oldest_first() -> None:
    flow = a_flow()
    flow.begin(SECOND, 0, 60.0)
    assert discard_past(flow, FIRST, 1) == 2
    assert flow.past[FIRST].kept() == [(2, 3)]
    flow.check()


def test_the_stable_part_of_a_past_term_is_discarded_alone() -> None:
    flow = a_flow()
    flow.current.stable = 2
    flow.begin(SECOND, 0, 60.0)
    assert discard_past(flow, FIRST, needless_only=True) == 2
    assert flow.past[FIRST].kept() == [(2, 3)]
    assert discard_past(flow, FIRST, needless_only=True) == 0
    flow.check()


def test_what_a_later_term_admitted_again_is_not_needed_of_a_past_one() -> None:
    flow = a_flow()
    flow.begin(SECOND, 0, 60.0)
    flow.move(down(SECOND, 0, block(PAUL, 8, b"8")), flow.current)
    assert discard_past(flow, FIRST, needless_only=True) == 0, "7 was not, and is in the same bundle"
    flow.move(down(SECOND, 1, block(PAULA, 0, b"0")), flow.current)
    assert discard_past(flow, FIRST, needless_only=True) == 1
    assert flow.past[FIRST].kept() == [(0, 2)]
    flow.check()


def test_what_waits_in_a_channel_is_needed() -> None:
    flow, notes = a_flow(), Notes()
    notes.space = 0
    flow.open(Channel(Edge(RecordingHost(), WEATHER, notes, ordered=True), 0))
    flow.current.stable = 2
    flow.begin(SECOND, 0, 60.0)
    assert discard_past(flow, FIRST, needless_only=True) == 0


def test_events_may_be_readmitted_until_later_ones_of_their_publisher_arrive() -> None:
    flow = a_flow()
    flow.begin(SECOND, 0, 60.0)
    assert list(may_be_readmitted(flow, FIRST, [(0, 3)])) == [(0, 3)]
    flow.move(down(SECOND, 0, block(PAUL, 7, b"7")), flow.current)
    assert list(may_be_readmitted(flow, FIRST, [(0, 3)])) == [(1, 3)], "8 and all of Paula's events may be"
    flow.move(down(SECOND, 1, block(PAUL, 9, b"9")), flow.current)
    assert list(may_be_readmitted(flow, FIRST, [(0, 3)])) == [(2, 3)]
    flow.settle(FIRST, 3)
    assert not may_be_readmitted(flow, FIRST, [(0, 3)]), "they were stable, and nobody sends them again"
    assert runs_of_others(flow, FIRST) == {SECOND: [Run(0, PAUL, 7, 1), Run(1, PAUL, 9, 1)]}
    assert list(runs_of_others(flow, SECOND)) == [FIRST]
