"""The data path: ranges, logs, channels and filters."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Envelope, Kind, Term
from quillcast.core.messages import Contact
from quillcast.core.trace import Dropped, Repeated
from quillcast.protocol.forwarding.answers import holding, verdict
from quillcast.protocol.forwarding.channels import Channel, PeerSink
from quillcast.protocol.forwarding.discarding import discard_past, forget
from quillcast.protocol.forwarding.edge import Edge
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.stream import BESIDE, GAPS_MAX
from quillcast.protocol.forwarding.table import ForwardingTable
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, PAULA, SECOND, WEATHER, Notes, RecordingHost, block, down

THIRD, PAULS = Term(3, FIRST.node), Contact(b"s" * 16, "127.0.0.1:4")


def a_table(*, keeps: bool = True) -> tuple[ForwardingTable, Flow, RecordingHost]:
    host = RecordingHost()
    table = ForwardingTable(host, 1 << 20)
    flow = table.open(Flow(WEATHER, table.budget, keeps=keeps))
    flow.begin(FIRST, 0, until=60.0)
    for child in (BOB, CAROL):
        flow.open(Channel(PeerSink(host, child), 0))
    return table, flow, host


def test_every_channel_gets_the_same_bundle_object_and_repeats_end() -> None:
    table, flow, host = a_table()
    bundle = down(FIRST, 0, block(PAUL, 0))
    assert table.move(flow, bundle)
    assert not table.move(flow, down(FIRST, 0, block(PAUL, 0)))
    assert [(to, carried is bundle) for to, carried in host.carried] == [(BOB, True), (CAROL, True)]
    assert Repeated(WEATHER, "range", 1) in host.records


def test_a_slow_channel_is_served_later_from_the_log_and_delays_no_other() -> None:
    table, flow, host = a_table()
    host.rooms[BOB.node_id] = 0
    for index in range(3):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    assert [to for to, _ in host.carried] == [CAROL] * 3
    host.rooms[BOB.node_id] = 1 << 20
    flow.channels[0].advance(flow.log)
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [0, 1, 2]


def test_filters_decide_by_the_envelope_which_bundles_enter_a_channel() -> None:
    table, flow, host = a_table()

    def every_other(bundle: Bundle) -> Bundle | None:
        return bundle if bundle.envelope.first % 2 == 0 else None

    flow.close(flow.channels[0])
    flow.open(Channel(PeerSink(host, BOB), 0, every_other))
    for index in range(4):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [0, 2]


def test_bundles_that_were_on_their_way_when_their_term_ended_are_kept() -> None:
    table, flow, host = a_table()
    table.move(flow, down(FIRST, 0, block(PAUL, 0)))
    flow.begin(SECOND, 0, until=60.0, known_end=3)
    for index in (1, 2, 2):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    assert [bundle.envelope.first for bundle in holding(flow, FIRST, [(0, 3)])] == [0, 1, 2]
    assert table.repeats == 1
    assert not any(isinstance(record, Dropped) for record in host.records)


def test_what_a_past_term_went_further_than_was_known_is_dropped_unless_it_is_a_repair() -> None:
    table, flow, host = a_table()
    table.move(flow, down(FIRST, 0, block(PAUL, 0)))
    flow.begin(SECOND, 0, until=60.0)
    assert not table.move(flow, down(FIRST, 1, block(PAUL, 1)))
    assert Dropped(WEATHER, 1, "stale_term") in host.records
    assert table.move(flow, down(FIRST, 1, block(PAUL, 1), kind=Kind.REPAIR))
    kept = holding(flow, FIRST, [(0, 2)])
    assert [(b.envelope.first, b.envelope.kind) for b in kept] == [(0, Kind.REPAIR), (1, Kind.REPAIR)]


def test_where_a_list_says_who_may_publish_nothing_of_a_root_that_knew_no_owner_is_taken_or_passed_on() -> None:
    table, flow, _ = a_table()
    unowned, owned = SECOND.noting(owned=False), THIRD.noting(owned=True)
    flow.begin(unowned, 0, until=60.0)
    assert table.arrive(BOB, down(unowned, 0, block(PAUL, 0))) == ""
    flow.begin(owned, 0, until=60.0)
    flow.restrict(restricted=True)
    assert table.arrive(BOB, down(unowned, 1, block(PAUL, 1), kind=Kind.REPAIR)) == "denied"
    assert table.arrive(BOB, down(owned, 0, block(PAUL, 1))) == ""
    answer = verdict(flow, unowned, [(0, 2)])
    assert (answer.held, answer.released, answer.missing) == ([], [(0, 1)], [(1, 2)])
    assert {term: kept for term, _, kept, *_ in flow.held(0.0)}[unowned] == ()
    flow.restrict(restricted=False)
    assert len(holding(flow, unowned, [(0, 2)])) == 1


def test_a_repair_that_brings_nothing_new_ends_here() -> None:
    table, flow, _ = a_table()
    flow.begin(SECOND, 0, until=60.0)
    assert table.move(flow, down(FIRST, 0, block(PAUL, 0), kind=Kind.REPAIR))
    kept_bytes = table.budget.used_bytes
    assert not table.move(flow, down(FIRST, 0, block(PAUL, 0), kind=Kind.REPAIR))
    assert table.repeats == 1
    assert (len(holding(flow, FIRST, [(0, 1)])), table.budget.used_bytes) == (1, kept_bytes)
    flow.check()
    flow.past[FIRST].bundles *= 2
    with pytest.raises(AssertionError, match=r"a bundle is kept twice: \[\(0, 1\), \(0, 1\)\]"):
        flow.check()


@pytest.mark.parametrize("lost", [0, 1])
def test_whatever_is_kept_counts_as_seen(lost: int) -> None:
    table, flow, _ = a_table()
    for number in range(2):
        assert table.move(flow, down(FIRST, number, block(PAUL, number)))
    flow.check()
    flow.current.seen.discard(lost, lost + 1)
    with pytest.raises(AssertionError):
        flow.check()


def test_a_bundle_is_kept_until_all_of_it_is_stable() -> None:
    table, flow, _ = a_table()
    table.move(flow, down(FIRST, 0, block(PAUL, 0, b"a", b"b", b"c")))
    assert flow.log.trim(FIRST, 2) == []
    assert [bundle.last for _, bundle in flow.log.trim(FIRST, 3)] == [3]


def test_the_earliest_event_is_the_first_of_those_kept_in_a_row_in_whichever_order_they_came() -> None:
    table, flow, _ = a_table()
    for index in (3, 0, 2, 1, 5):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    assert (flow.earliest, flow.frontier) == (0, 4)


def test_stable_bundles_are_discarded_and_leave_the_budget() -> None:
    table, flow, _ = a_table()
    for index in range(5):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    assert table.budget.used_bytes > 0
    flow.log.trim(FIRST, 5)
    assert table.budget.used_bytes == 0
    table.check()


def test_a_best_effort_flow_keeps_nothing_and_counts_the_channels_without_room() -> None:
    table, flow, host = a_table(keeps=False)
    host.rooms[BOB.node_id] = 0
    table.move(flow, down(FIRST, 0, block(PAUL, 0)))
    assert Dropped(WEATHER, 1, "no_room") in host.records
    assert table.budget.used_bytes == 0
    host.rooms[BOB.node_id] = 1 << 20
    table.move(flow, down(FIRST, 1, block(PAUL, 1)))
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [1]


def test_where_nothing_is_kept_only_the_latest_gaps_are_remembered() -> None:
    table, flow, host = a_table(keeps=False)
    for index in range(0, 4 * GAPS_MAX, 2):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    assert len(flow.current.seen) == GAPS_MAX
    assert len(host.carried) == 2 * 2 * GAPS_MAX, "what comes is passed on"
    assert table.move(flow, down(FIRST, 4 * GAPS_MAX - 3, block(PAUL, 4 * GAPS_MAX - 3))), "one that comes late, too"
    assert not table.move(flow, down(FIRST, 1, block(PAUL, 1))), "but not long after"


def test_a_discarded_term_is_recalled_only_if_it_went_further() -> None:
    _, flow, _ = a_table()
    flow.move(down(FIRST, 0, block(PAUL, 0)), flow.current)
    flow.begin(SECOND, 0, until=60.0)
    forget(flow, FIRST)
    assert not flow.may_recall(FIRST, 1)
    assert flow.may_recall(FIRST, 2)


def test_of_an_ended_term_a_peer_looks_for_nothing_beyond_its_end_for_others() -> None:
    flow = Flow(WEATHER, Budget(1 << 20))
    flow.begin(FIRST, 0, 0.0)
    flow.begin(SECOND, 0, 10.0, known_end=5)
    assert not flow.past[FIRST].ask([(5, 9)])
    assert flow.past[FIRST].ask([(3, 9)])
    assert flow.owed(FIRST).ranges() == [(3, 5)]


def test_discarding_a_past_term_reports_what_a_subscriber_had_not_taken() -> None:
    _, flow, host = a_table()
    notes = Notes()
    edge = Edge(host, WEATHER, notes, ordered=True)
    edge.begin(FIRST, 0)
    notes.turn_over, notes.space = edge.tell_losses, 0
    flow.open(Channel(edge, 0))
    flow.move(down(FIRST, 0, block(PAUL, 0), block(PAUL, 1)), flow.current)
    flow.begin(SECOND, 0, until=60.0)
    discard_past(flow, FIRST)
    assert notes.lost_ == [(FIRST.counter, 0, 2, "cut")]


# ---- the whole way of a bundle


class Listening:
    """A control plane that records what it learns; `begins` are the terms that it begins when it hears of them."""

    def __init__(self, *begins: Term) -> None:
        self.begins, self.heard = begins, list[tuple[object, ...]]()
        self.session = 0  # the latest one that it was told of

    def holds(self, flow: Flow, session: int) -> bool:
        return session > self.session

    def new_term(self, flow: Flow, term: Term) -> None:
        self.heard.append(("new term", term))
        if term in self.begins:
            flow.begin(term, 0, until=60.0)

    def moved(self, flow: Flow, bundle: Bundle) -> None:
        self.heard.append(("moved", bundle.envelope.first))

    def gap(self, flow: Flow) -> None:
        self.heard.append(("gap",))

    def front_filled(self, flow: Flow, term: Term) -> None:
        self.heard.append(("front filled", term))

    def taken(self, flow: Flow, sender: bytes, bundle: Bundle, *, is_due: bool) -> None:
        self.heard.append(("taken", sender, is_due))


def listening(*begins: Term, keeps: bool = True) -> tuple[ForwardingTable, Listening, RecordingHost]:
    table, _, host = a_table(keeps=keeps)
    table.listener = listener = Listening(*begins)
    return table, listener, host


def test_bundles_go_to_every_channel_and_the_control_plane_is_notified() -> None:
    table, listener, host = listening()
    table.arrive(PAULS, down(FIRST, 0, block(PAUL, 0)))
    assert [to for to, _ in host.carried] == [BOB, CAROL]
    assert listener.heard == [("moved", 0), ("taken", PAULS.node_id, False)]
    assert host.released == [], "the control plane returns the credit, when the buffers have room"


def test_a_repeat_notifies_no_listener_and_takes_no_credit() -> None:
    table, listener, host = listening()
    bundle = down(FIRST, 0, block(PAUL, 0))
    for _ in range(2):
        table.arrive(PAULS, bundle)
    assert len(listener.heard) == 2
    assert host.released == [(PAULS.node_id, bundle.size)]


def test_a_term_begins_when_the_control_plane_says_so_and_else_its_bundles_are_dropped() -> None:
    table, listener, host = listening(SECOND)
    for term in (SECOND, THIRD):
        table.arrive(PAULS, down(term, 0, block(PAUL, 0)))
    assert listener.heard[:2] == [("new term", SECOND), ("moved", 0)]
    assert table.flows[WEATHER].term == SECOND
    assert Dropped(WEATHER, 1, "stale_term") in host.records
    assert table.dropped == 1


def test_a_bundle_of_an_unknown_topic_is_dropped_and_its_credit_returned() -> None:
    host = RecordingHost()
    bundle = down(FIRST, 0, block(PAUL, 0))
    ForwardingTable(host, 1 << 20).arrive(PAULS, bundle)
    assert host.records == [Dropped(WEATHER, 1, "no_flow")]
    assert host.released == [(PAULS.node_id, bundle.size)]


def test_a_gap_is_reported_and_so_is_the_repair_that_fills_its_front() -> None:
    table, listener, _ = listening()
    table.arrive(PAULS, down(FIRST, 2, block(PAUL, 2)))
    assert ("gap",) not in listener.heard, "nothing came before: the start of a flow is what its parent says"
    table.arrive(PAULS, down(FIRST, 4, block(PAUL, 4)))
    assert ("gap",) in listener.heard
    table.arrive(PAULS, down(FIRST, 0, block(PAUL, 0), kind=Kind.REPAIR))
    assert listener.heard[-2:] == [("taken", PAULS.node_id, True), ("front filled", FIRST)]


def test_the_entrance_of_a_topic_may_change_a_bundle_or_stop_it() -> None:
    table, listener, host = listening()
    table.entrances[WEATHER] = lambda bundle: bundle if bundle.envelope.first else None
    for index in range(2):
        table.arrive(PAULS, down(FIRST, index, block(PAUL, index)))
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [1]
    assert [what for what, *_ in listener.heard] == ["moved", "taken"]


# ---- several live terms


def two_live_terms() -> tuple[ForwardingTable, Flow, RecordingHost]:
    """Two sources number their own events, side by side."""
    table, flow, host = a_table()
    flow.begin_beside(SECOND, 0)
    for index in range(3):
        for term, publisher in ((FIRST, PAUL), (SECOND, PAULA)):
            assert table.move(flow, down(term, index, block(publisher, index)))
    return table, flow, host


def test_terms_that_live_side_by_side_are_numbered_forwarded_and_repaired_each_by_itself() -> None:
    table, flow, host = two_live_terms()
    assert not table.move(flow, down(FIRST, 0, block(PAUL, 0))), "a repeat in its own term"
    assert [bundle.envelope.term for to, bundle in host.carried if to == BOB] == [FIRST, SECOND] * 3
    first, second = flow.live(FIRST), flow.live(SECOND)
    assert first is not None
    assert second is not None
    assert (first.frontier, second.frontier, flow.term) == (3, 3, FIRST)
    assert [bundle.envelope.term for bundle in holding(flow, FIRST, [(1, 2)])] == [FIRST]
    assert verdict(flow, SECOND, [(2, 4)]).missing == [(3, 4)]
    table.check()


def test_what_one_live_term_releases_stays_of_the_other() -> None:
    table, flow, _ = two_live_terms()
    kept_bytes = flow.log.size_bytes
    assert flow.release(2, term=SECOND) == kept_bytes // 3
    assert [(b.envelope.term, b.envelope.first) for b in flow.log.bundles()] == [
        (FIRST, 0), (FIRST, 1), (FIRST, 2), (SECOND, 2),
    ]  # fmt: skip
    assert verdict(flow, SECOND, [(0, 3)]).released == [(0, 2)]
    table.check()


def test_a_channel_that_is_behind_takes_each_live_term_in_order_and_learns_what_was_discarded() -> None:
    table, flow, host = a_table()
    notes = Notes()
    edge, notes.space = Edge(host, WEATHER, notes, ordered=True), 0
    notes.turn_over = edge.tell_losses
    edge.begin(FIRST, 0)
    edge.begin(SECOND, 0)
    channel = Channel(edge, 0)
    flow.open(channel)
    flow.begin_beside(SECOND, 0)
    for index in range(2):
        for term, publisher in ((FIRST, PAUL), (SECOND, PAULA)):
            table.move(flow, down(term, index, block(publisher, index, b"%d of %d" % (index, term.counter))))
    flow.release(1, term=SECOND)
    assert notes.lost_ == [(SECOND.counter, 0, 1, "cut")]
    notes.space = 1 << 20
    channel.advance(flow.log)
    assert notes.got == [b"0 of 1", b"1 of 1", b"1 of 2"]


def test_one_live_term_ends_and_the_other_continues() -> None:
    table, flow, host = two_live_terms()
    flow.end(SECOND, until=60.0)
    assert (flow.term, flow.past[SECOND].kept()) == (FIRST, [(0, 3)])
    assert table.move(flow, down(FIRST, 3, block(PAUL, 3)))
    assert not table.move(flow, down(SECOND, 3, block(PAULA, 3)))
    assert [bundle.envelope.first for to, bundle in host.carried if to == CAROL][-1] == 3
    table.check()


def test_a_term_that_ended_above_the_current_one_does_not_begin_again() -> None:
    table, listener, _ = listening(SECOND)
    flow = table.flows[WEATHER]
    flow.begin_beside(SECOND, 0)
    flow.end(SECOND, until=60.0)
    table.arrive(PAULS, down(SECOND, 0, block(PAULA, 0)))
    assert (listener.heard, flow.term) == ([], FIRST)
    table.check()


def test_a_live_term_is_not_an_ended_one_and_begins_once() -> None:
    _, flow, _ = two_live_terms()
    assert not flow.may_recall(FIRST, 10)
    flow.note_forgotten([(FIRST, 10, None)], 0.0)
    assert FIRST not in flow.past.forgotten
    with pytest.raises(ValueError, match="goes on already"):
        flow.begin_beside(FIRST, 0)


def test_a_term_that_is_over_leaves_nothing_behind_but_where_it_ended() -> None:
    table, flow, _ = two_live_terms()
    flow.conclude(SECOND, 3)
    assert [bundle.envelope.term for bundle in flow.log.bundles()] == [FIRST] * 3
    assert (flow.live(SECOND), flow.past.forgotten) == (None, {SECOND: 3})
    assert not table.move(flow, down(SECOND, 3, block(PAULA, 3))), "it is over"
    assert verdict(flow, SECOND, [(0, 3)]).released == [(0, 3)]
    table.check()


def test_a_source_s_stream_comes_from_where_its_last_new_bundle_came_from() -> None:
    table, listener, _ = listening()
    flow = table.flows[WEATHER]
    flow.begin_beside(SECOND, 0)
    table.arrive(PAULS, down(SECOND, 0, block(PAULA, 0)))
    table.arrive(CAROL, down(SECOND, 0, block(PAULA, 0)))
    assert flow.others[SECOND].via == PAULS.node_id, "a repeat says nothing"
    table.arrive(CAROL, down(SECOND, 1, block(PAULA, 1)))
    assert flow.others[SECOND].via == CAROL.node_id
    assert "moved" in [what for what, *_ in listener.heard]
    table.arrive(PAULS, Bundle(Envelope(WEATHER, Kind.DOWN, SECOND, 2, record=b"r"), [block(PAULA, 2)]))
    assert flow.others[SECOND].via == BESIDE, "channels with records lead past the tree"


def test_a_channel_to_a_neighbour_that_has_some_of_each_term_begins_with_what_it_lacks() -> None:
    _, flow, _ = two_live_terms()
    assert flow.first_beyond({FIRST: 2, SECOND: 1}) == 3
    assert flow.first_beyond({FIRST: 3, SECOND: 3}) == flow.log.end
    assert flow.first_beyond({}) == 0


def test_what_stalls_in_one_live_term_makes_nothing_of_the_other_stay() -> None:
    table, flow, _ = two_live_terms()
    for index in range(3, 1000):
        table.move(flow, down(SECOND, index, block(PAULA, index)))
        flow.release(index, term=SECOND)
    assert len(flow.log) == 4, "three of the first term, and the last of the second"


# ---- channels that open, close and filter


def test_a_channel_that_opens_again_begins_with_what_is_left() -> None:
    table, flow, host = a_table()
    first = flow.channels[0]
    flow.close(first)
    for index in range(3):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    flow.serve(first)
    assert not [to for to, _ in host.carried if to == BOB], "a closed channel is not served"
    flow.release(2)
    flow.open(first)
    flow.serve(first)
    assert [bundle.envelope.first for to, bundle in host.carried if to == BOB] == [2]
    table.check()


def test_a_subscriber_behind_a_filter_does_not_wait_for_what_that_stops() -> None:
    table, flow, host = a_table()
    notes = Notes()
    edge = Edge(host, WEATHER, notes, ordered=True)
    edge.begin(FIRST, 0)
    notes.turn_over = edge.tell_losses
    flow.open(Channel(edge, 0, lambda bundle: bundle if bundle.envelope.first % 2 else None))
    for index in range(4):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    assert (notes.got, notes.lost_, edge.frontier(FIRST)) == ([b"1", b"3"], [], 4)
    flow.begin(SECOND, 0, until=60.0)
    for index in (4, 5):
        table.move(flow, down(FIRST, index, block(PAUL, index), kind=Kind.REPAIR))
    assert notes.got == [b"1", b"3", b"5"]


def test_what_is_passed_over_is_lost_only_as_far_as_the_filter_admits_it() -> None:
    table, flow, host = a_table()
    notes = Notes()
    edge, notes.space = Edge(host, WEATHER, notes, ordered=True), 0
    edge.begin(FIRST, 0)
    notes.turn_over = edge.tell_losses
    flow.open(Channel(edge, 0, lambda bundle: bundle if bundle.envelope.first % 2 else None))
    for index in range(4):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    flow.release(4)
    assert notes.lost_ == [(1, 1, 2, "cut"), (1, 3, 4, "cut")]


def test_a_repair_of_an_ended_term_waits_behind_what_waits_before_it() -> None:
    table, flow, host = a_table()
    notes = Notes()
    edge, notes.space = Edge(host, WEATHER, notes, ordered=False), 0
    edge.begin(FIRST, 0)
    notes.turn_over = edge.tell_losses
    channel = Channel(edge, 0)
    flow.open(channel)
    for index in (0, 1, 3):
        table.move(flow, down(FIRST, index, block(PAUL, index)))
    flow.begin(SECOND, 0, until=60.0)
    table.move(flow, down(FIRST, 2, block(PAUL, 2), kind=Kind.REPAIR))
    notes.space = 1 << 20
    channel.advance(flow.log)
    assert (notes.got, notes.lost_) == ([b"0", b"1", b"2", b"3"], [])


def test_channels_that_wait_for_the_same_peer_take_turns_whatever_other_peers_do() -> None:
    host = RecordingHost()
    table = ForwardingTable(host, 1 << 20)
    ways: dict[bytes, list[tuple[Flow, Channel]]] = {BOB.node_id: [], CAROL.node_id: []}
    for topic in (b"a" * 16, b"b" * 16):
        flow = table.open(Flow(topic, table.budget))
        flow.begin(FIRST, 0, until=60.0)
        for peer in (BOB, CAROL):
            channel = Channel(PeerSink(host, peer), 0)
            flow.open(channel)
            ways[peer.node_id].append((flow, channel))
            host.rooms[peer.node_id] = 0
        for index in range(2):
            table.move(flow, down(FIRST, index, block(PAUL, index)))
    for expected in [[1, 0], [1, 1], [2, 1], [2, 2]]:
        for peer in (BOB, CAROL):
            host.rooms[peer.node_id] = 1
            table.resume(peer, ways[peer.node_id])
            assert [channel.cursor for _, channel in ways[peer.node_id]] == expected


def test_what_waits_for_the_word_of_its_session_goes_with_the_link_that_it_came_over() -> None:
    table, listener, host = listening(SECOND)
    early = [Bundle(Envelope(WEATHER, Kind.DOWN, SECOND, at, session=1), (block(PAUL, at),)) for at in range(2)]
    for sender, bundle in zip((PAULS, BOB), early, strict=True):
        assert table.arrive(sender, bundle) == "held"
    table.link_lost(PAULS)
    assert host.released == [(PAULS.node_id, early[0].size)]
    assert Dropped(WEATHER, 1, "link_lost") in host.records
    listener.session = 1
    table.take_held(table.flows[WEATHER])
    assert ("taken", BOB.node_id, False) in listener.heard
    assert not table.held
