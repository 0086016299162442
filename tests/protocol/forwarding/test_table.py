"""The data path: ranges, logs, channels and filters."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Kind
from quillcast.core.trace import Dropped, Repeated
from quillcast.protocol.forwarding.channels import Cut, LinkChannel
from quillcast.protocol.forwarding.edge import Edge
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.table import ForwardingTable
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, SECOND, WEATHER, Notes, RecordingHost, block, down


def a_table(*, keeps: bool = True) -> tuple[ForwardingTable[Flow], Flow, RecordingHost]:
    host = RecordingHost()
    table = ForwardingTable[Flow](host, 1 << 20)
    flow = table.open(Flow(WEATHER, table.budget, keeps=keeps))
    flow.begin(FIRST, 0, until=60.0)
    for child in (BOB, CAROL):
        flow.open(LinkChannel(host, child, 0))
    return table, flow, host


def test_every_channel_gets_the_same_bundle_object_and_repeats_end() -> None:
    table, _, host = a_table()
    bundle = down(FIRST, 0, block(PAUL, 0))
    assert table.move(bundle)
    assert not table.move(down(FIRST, 0, block(PAUL, 0)))
    assert [(to, carried is bundle) for to, carried in host.carried] == [(BOB, True), (CAROL, True)]
    assert Repeated(WEATHER, "range", 1) in host.records


def test_a_slow_channel_is_served_later_from_the_log_and_delays_no_other() -> None:
    table, flow, host = a_table()
    host.rooms[BOB.node_id] = 0
    for index in range(3):
        table.move(down(FIRST, index, block(PAUL, index)))
    assert [to for to, _ in host.carried] == [CAROL] * 3
    host.rooms[BOB.node_id] = 1 << 20
    flow.channels[0].advance(flow.log)
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [0, 1, 2]


def test_filters_decide_by_the_envelope_which_bundles_enter_a_channel() -> None:
    table, flow, host = a_table()

    def every_other(bundle: Bundle) -> bool:
        return bundle.envelope.first % 2 == 0

    flow.close(flow.channels[0])
    flow.open(LinkChannel(host, BOB, 0, filters=(every_other,)))
    for index in range(4):
        table.move(down(FIRST, index, block(PAUL, index)))
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [0, 2]


def test_bundles_of_a_past_term_are_dropped_but_its_repairs_are_kept() -> None:
    table, flow, host = a_table()
    table.move(down(FIRST, 0, block(PAUL, 0)))
    flow.begin(SECOND, 0, until=60.0)
    assert not table.move(down(FIRST, 1, block(PAUL, 1)))
    assert Dropped(WEATHER, 1, "stale_term") in host.records
    assert table.move(down(FIRST, 1, block(PAUL, 1), kind=Kind.REPAIR))
    kept = flow.holding(FIRST, [(0, 2)])
    assert [(b.envelope.first, b.envelope.kind) for b in kept] == [(0, Kind.REPAIR), (1, Kind.REPAIR)]


def test_a_repair_that_brings_nothing_new_ends_here() -> None:
    table, flow, _ = a_table()
    flow.begin(SECOND, 0, until=60.0)
    assert table.move(down(FIRST, 0, block(PAUL, 0), kind=Kind.REPAIR))
    kept_bytes = table.budget.used_bytes
    assert not table.move(down(FIRST, 0, block(PAUL, 0), kind=Kind.REPAIR))
    assert table.repeats == 1
    assert (len(flow.holding(FIRST, [(0, 1)])), table.budget.used_bytes) == (1, kept_bytes)
    flow.check()
    flow.past[FIRST].bundles *= 2
    with pytest.raises(AssertionError, match=r"a bundle is kept twice: \[\(0, 1\), \(0, 1\)\]"):
        flow.check()


def test_a_bundle_is_kept_until_all_of_it_is_stable() -> None:
    table, flow, _ = a_table()
    table.move(down(FIRST, 0, block(PAUL, 0, b"a", b"b", b"c")))
    assert flow.log.trim(2) == []
    assert [bundle.last for bundle in flow.log.trim(3)] == [3]


def test_stable_bundles_are_discarded_and_leave_the_budget() -> None:
    table, flow, _ = a_table()
    for index in range(5):
        table.move(down(FIRST, index, block(PAUL, index)))
    assert table.budget.used_bytes > 0
    flow.log.trim(5)
    assert table.budget.used_bytes == 0
    table.check()


def test_a_best_effort_flow_keeps_nothing_and_counts_the_channels_without_room() -> None:
    table, _, host = a_table(keeps=False)
    host.rooms[BOB.node_id] = 0
    table.move(down(FIRST, 0, block(PAUL, 0)))
    assert Dropped(WEATHER, 1, "no_room") in host.records
    assert table.budget.used_bytes == 0
    host.rooms[BOB.node_id] = 1 << 20
    table.move(down(FIRST, 1, block(PAUL, 1)))
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [1]


def test_a_cut_receiver_has_a_lease_again_once_it_catches_up() -> None:
    cut = Cut(mark=10, at=0.0)
    assert not cut.is_over(9, 20, now=0.5)
    assert not cut.is_over(10, 20, now=5.0), "that took too long: now it has to reach 20 soon"
    assert not cut.is_over(19, 30, now=5.5)
    assert cut.is_over(20, 30, now=5.5)


def test_a_discarded_term_is_recalled_only_if_it_went_further() -> None:
    _, flow, _ = a_table()
    flow.move(down(FIRST, 0, block(PAUL, 0)))
    flow.begin(SECOND, 0, until=60.0)
    flow.forget(FIRST)
    assert not flow.may_recall(FIRST, 1)
    assert flow.may_recall(FIRST, 2)


def test_discarding_a_past_term_reports_what_a_subscriber_had_not_taken() -> None:
    _, flow, host = a_table()
    notes = Notes()
    edge = Edge(host, WEATHER, notes, 0, ordered=True)
    edge.begin(FIRST, 0)
    notes.turn_over, notes.space = edge.tell_losses, 0
    flow.open(edge)
    flow.move(down(FIRST, 0, block(PAUL, 0), block(PAUL, 1)))
    edge.turn(flow.log)
    flow.begin(SECOND, 0, until=60.0)
    flow.discard_past(FIRST)
    assert notes.lost_ == [(FIRST.counter, 0, 2, "cut")]
