"""The failure detector: the recorded orders of one peer, and two peers that watch each other."""

from random import Random
from typing import Any

from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark, Record, Recovered, Suspected
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.neighbours.messages import Heartbeat, HeartbeatAnswer
from quillcast.protocol.neighbours.neighbours import Neighbours, SilenceCheckDue
from quillcast.protocol.neighbours.roundtrip import RoundTrip

ALICE, BOB, CAROL = (Contact(name * 16, f"{name!r}") for name in (b"a", b"b", b"c"))
CONFIG = NeighbourConfig()


class RecordingHost:
    """Records orders. `run` lets time pass, delivers due timers, and answers for the peers in `answering`."""

    def __init__(self, me: Contact = ALICE, config: NeighbourConfig = CONFIG, streams: Any = None) -> None:
        self.me, self.contact, self.random = me.node_id, me, Random(1)
        self.time = 100.0
        self.sent: list[tuple[Contact, Message]] = []
        self.records: list[Record] = []
        self.timers: list[tuple[float, int, Any]] = []
        self.disconnected: list[bytes] = []
        self.lost_ones: list[Contact] = []
        self.recovered_ones: list[Contact] = []
        self.answering: dict[bytes, float] = {}  # round-trip times of the peers that answer
        self.proximities: dict[bytes, float] = {}
        self.neighbours = Neighbours(self, config, streams)  # type: ignore[arg-type]
        self.neighbours.tell(self)

    def now(self) -> float:
        return self.time

    def send(self, to: Contact, message: Message) -> None:
        self.sent.append((to, message))
        if isinstance(message, Heartbeat) and to.node_id in self.answering:
            self.set_timer((to, HeartbeatAnswer(message.sent_at)), self.answering[to.node_id])

    def set_timer(self, timer: Any, delay_s: float) -> None:
        self.timers.append((self.time + delay_s, len(self.timers) + len(self.sent), timer))

    def proximity(self, node: bytes) -> float | None:
        return self.proximities.get(node)

    def disconnect(self, node: bytes) -> None:
        self.disconnected.append(node)

    def trace(self, record: Record) -> None:
        self.records.append(record)

    def lost(self, contact: Contact) -> None:
        self.lost_ones.append(contact)

    def recovered(self, contact: Contact) -> None:
        self.recovered_ones.append(contact)

    def hear(self, contact: Contact, message: Message | None = None) -> None:
        self.neighbours.heard(contact, self.time)
        if message is not None:
            self.neighbours.receive(contact, message)

    def run(self, seconds: float) -> None:
        until = self.time + seconds
        while self.timers and min(self.timers)[0] <= until:
            self.timers.sort(key=lambda entry: entry[:2])
            at, _, timer = self.timers.pop(0)
            self.time = max(self.time, at)
            self.neighbours.timer(timer) if isinstance(timer, SilenceCheckDue) else self.hear(*timer)
            self.neighbours.check()
        self.time = until

    def asked(self, contact: Contact) -> int:
        return sum(isinstance(message, Heartbeat) for to, message in self.sent if to == contact)

    def marks(self) -> list[str]:
        return [record.name for record in self.records if isinstance(record, Mark)]


def test_a_silent_neighbour_gets_a_heartbeat_after_its_interval_and_not_before() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 5.0)
    host.run(2.9)
    assert host.asked(BOB) == 0
    host.run(2.2)
    assert host.asked(BOB) == 1


def test_any_message_makes_heartbeats_unnecessary() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 1.0)
    for _ in range(20):
        host.run(0.5)
        host.hear(BOB)
    assert host.asked(BOB) == 0


def test_the_smallest_interval_of_all_users_of_a_link_applies() -> None:
    host = RecordingHost()
    host.answering[BOB.node_id] = 0.01
    host.neighbours.watch(BOB, "leaf set", 5.0)
    host.neighbours.watch(BOB, "tree", 1.0)
    host.run(10)
    assert 9 <= host.asked(BOB) <= 17
    host.neighbours.unwatch(BOB.node_id, "tree")
    before = host.asked(BOB)
    host.run(20)
    assert 3 <= host.asked(BOB) - before <= 7


def test_links_with_the_same_users_share_the_list_of_them() -> None:
    host = RecordingHost()
    for peer in (BOB, CAROL):
        host.neighbours.watch(peer, "leaf set", 5.0)
        host.neighbours.watch(peer, "tree", 1.0)
    bob, carol = (host.neighbours._links[peer.node_id] for peer in (BOB, CAROL))
    assert bob.users is carol.users


def test_the_smallest_interval_of_any_link_applies_to_all() -> None:
    """docs/design.md, decision 4: the cost of a link does not depend on what it carries."""
    host = RecordingHost()
    host.answering = {BOB.node_id: 0.01, CAROL.node_id: 0.01}
    host.neighbours.watch(BOB, "leaf set", 5.0)
    host.neighbours.watch(CAROL, "leaf set", 5.0)
    host.neighbours.watch(CAROL, "tree", 1.0)
    host.run(20)
    assert 18 <= host.asked(BOB) == host.asked(CAROL) <= 34
    host.neighbours.unwatch(CAROL.node_id, "tree")
    before = host.asked(BOB)
    host.run(20)
    assert 3 <= host.asked(BOB) - before <= 7


def test_the_intervals_of_a_lost_neighbour_no_longer_apply() -> None:
    host = RecordingHost()
    host.answering = {BOB.node_id: 0.01}
    host.neighbours.watch(BOB, "leaf set", 5.0)
    host.neighbours.watch(CAROL, "tree", 1.0)
    host.run(20)
    assert host.lost_ones == [CAROL]
    before = host.asked(BOB)
    host.run(20)
    assert 3 <= host.asked(BOB) - before <= 7


def test_a_neighbour_that_never_answers_is_suspected_then_lost_once() -> None:
    host = RecordingHost()
    host.proximities[BOB.node_id] = 0.05
    host.neighbours.watch(BOB, "tree", 1.0)
    host.run(2.0)
    assert not host.lost_ones
    assert host.neighbours.suspected(BOB.node_id)
    host.run(30)
    assert host.lost_ones == [BOB]
    assert host.asked(BOB) == CONFIG.tries_max
    assert [type(record) for record in host.records] == [Suspected, Mark]
    assert host.neighbours.suspected(BOB.node_id), "a lost peer is suspected too"
    assert host.disconnected == [BOB.node_id]


def test_any_message_of_a_lost_neighbour_is_a_recovery() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 1.0)
    host.run(60)
    host.hear(BOB)
    host.hear(BOB)
    assert host.recovered_ones == [BOB]
    assert not host.neighbours.suspected(BOB.node_id)
    assert host.records[-1] == Recovered(BOB.node_id)


def test_a_suspected_neighbour_that_answers_was_paused_and_not_dead() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 1.0)
    while not host.neighbours.suspected(BOB.node_id):
        host.run(0.1)
    host.hear(BOB, HeartbeatAnswer(0.0))
    assert not host.neighbours.suspected(BOB.node_id)
    assert (host.lost_ones, host.recovered_ones) == ([], [])
    assert host.records[-1] == Recovered(BOB.node_id)


def test_a_paused_process_sends_new_heartbeats_before_it_declares_a_loss() -> None:
    host = RecordingHost()
    for contact in (BOB, CAROL):
        host.neighbours.watch(contact, "tree", 1.0)
    host.run(2.5)  # both have unanswered heartbeats
    late = min(host.timers)[2]
    host.time += 20.0  # the process was stopped and continued
    host.answering = {BOB.node_id: 0.01, CAROL.node_id: 0.01}
    asked = host.asked(BOB)
    host.neighbours.timer(late)
    assert host.asked(BOB) == asked + 1
    host.timers = [entry for entry in host.timers if entry[0] > host.time]
    host.run(30)
    assert not host.lost_ones
    assert "process_paused" in host.marks()


def test_dead_neighbours_are_detected_after_a_pause_too() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 1.0)
    late = min(host.timers)[2]
    host.time += 20.0
    host.neighbours.timer(late)
    assert not host.lost_ones
    host.run(30)
    assert host.lost_ones == [BOB]


def test_a_broken_link_causes_a_heartbeat_and_the_next_break_a_loss() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 5.0)
    host.neighbours.link_lost(BOB)
    assert (host.asked(BOB), host.lost_ones) == (1, [])
    host.neighbours.link_lost(BOB)
    assert host.lost_ones == [BOB]


def test_a_neighbour_that_ended_according_to_the_host_is_lost_without_a_heartbeat() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 5.0)
    host.neighbours.died(BOB)
    host.neighbours.died(BOB)
    assert (host.asked(BOB), host.lost_ones) == (0, [BOB])


def test_a_broken_link_that_is_up_again_proves_nothing() -> None:
    host = RecordingHost()
    host.answering[BOB.node_id] = 0.01
    host.neighbours.watch(BOB, "tree", 5.0)
    for _ in range(3):
        host.neighbours.link_lost(BOB)
        host.neighbours.link_up(BOB)
        host.run(1.0)
    assert not host.lost_ones


def test_a_broken_link_to_an_unwatched_peer_has_no_effect() -> None:
    host = RecordingHost()
    host.neighbours.link_lost(BOB)
    host.neighbours.link_up(BOB)
    assert not host.sent


def test_an_unwatched_peer_can_be_probed() -> None:
    host = RecordingHost()
    host.answering[BOB.node_id] = 0.01
    host.neighbours.probe(BOB)
    host.neighbours.probe(CAROL)
    host.run(30)
    assert host.lost_ones == [CAROL]
    assert host.neighbours.round_trip(BOB.node_id) is not None
    host.neighbours.probe(CAROL)
    host.run(30)
    assert host.lost_ones == [CAROL], "a lost peer is reported once"


def test_a_peer_answers_neighbours_that_it_does_not_watch() -> None:
    host = RecordingHost()
    host.hear(BOB, Heartbeat(7.0))
    assert host.sent == [(BOB, HeartbeatAnswer(7.0))]


def test_a_peer_that_answered_lets_the_other_side_send_the_next_heartbeat() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "leaf set", 5.0)
    host.run(2.0)
    for _ in range(10):
        host.hear(BOB, Heartbeat(host.time))
        host.run(5.0)
    assert host.asked(BOB) == 0
    host.run(3.0)
    assert host.asked(BOB) == 1, "Bob did not ask in time"


def test_neighbours_that_keep_asking_do_not_hasten_heartbeats_to_others() -> None:
    host, askers = RecordingHost(), [Contact(bytes([number]) * 16, f"asker {number}") for number in range(3)]
    host.answering[BOB.node_id] = 0.001
    host.neighbours.watch(BOB, "tree", 2.0)
    for number, asker in enumerate(askers):
        host.neighbours.watch(asker, "tree", 2.0)
        for question in range(31):
            host.set_timer((asker, Heartbeat(0.0)), 2.0 * question + number * 2 / 3)
    host.run(60)
    assert [host.asked(asker) for asker in askers] == [0, 0, 0]
    assert 28 <= host.asked(BOB) <= 31


def test_the_link_may_close_when_its_last_user_goes() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "leaf set", 5.0)
    host.neighbours.watch(BOB, "tree", 1.0)
    host.neighbours.unwatch(BOB.node_id, "tree")
    host.neighbours.release(BOB.node_id)
    assert not host.disconnected
    host.neighbours.unwatch(BOB.node_id, "leaf set")
    assert host.disconnected == [BOB.node_id]
    host.neighbours.unwatch(BOB.node_id, "leaf set")
    host.run(60)
    assert not host.lost_ones


def test_time_outs_follow_round_trips() -> None:
    host = RecordingHost()
    assert host.neighbours.timeout(BOB.node_id) == CONFIG.timeout_first_s
    host.proximities[BOB.node_id] = 0.1
    assert abs(host.neighbours.timeout(BOB.node_id) - 0.3) < 1e-9, "as in RFC 6298 after one measurement"
    for _ in range(50):
        host.neighbours.answered(BOB.node_id, 0.4)
    assert 0.4 < host.neighbours.timeout(BOB.node_id) < 0.45
    for _ in range(50):
        host.neighbours.answered(BOB.node_id, 0.001)
    assert host.neighbours.timeout(BOB.node_id) == CONFIG.timeout_min_s


def test_repeated_pauses_of_a_neighbour_do_not_lengthen_its_time_out() -> None:
    host = RecordingHost()
    host.answering[BOB.node_id] = 0.01
    host.neighbours.watch(BOB, "tree", 1.0)
    host.run(20)
    timeout_s = host.neighbours.timeout(BOB.node_id)
    for _ in range(5):
        host.answering, count = {}, len(host.sent)
        host.run(1.9)
        host.answering = {BOB.node_id: 0.01}
        for _, message in host.sent[count:]:
            if isinstance(message, Heartbeat):
                host.hear(BOB, HeartbeatAnswer(message.sent_at))
        for _ in range(10):
            host.run(0.3)
            host.hear(BOB)
    assert not host.lost_ones
    assert host.neighbours.timeout(BOB.node_id) == timeout_s


def test_the_time_out_of_a_link_that_becomes_slow_grows() -> None:
    host = RecordingHost()
    host.answering[BOB.node_id] = 0.01
    host.neighbours.watch(BOB, "tree", 1.0)
    host.run(20)
    host.answering[BOB.node_id] = 0.8
    host.run(60)
    assert not host.lost_ones
    assert 0.8 < host.neighbours.timeout(BOB.node_id) <= CONFIG.timeout_max_s


def test_a_far_neighbour_gets_no_more_heartbeats_than_those_that_are_repeated() -> None:
    host = RecordingHost()
    host.answering[BOB.node_id] = 1.5 * CONFIG.repeat_max_s
    host.neighbours.watch(BOB, "tree", 5.0)
    host.run(60)
    before, timeout_s = host.asked(BOB), host.neighbours.timeout(BOB.node_id)
    host.run(60)
    assert host.asked(BOB) - before <= 2 * (60 / 5 + 1)
    assert host.neighbours.timeout(BOB.node_id) < timeout_s, "it is measured all the same"


def test_a_slow_measurement_does_not_hide_a_death() -> None:
    host = RecordingHost()
    host.answering[BOB.node_id] = 1.5
    host.neighbours.watch(BOB, "tree", 2.0)
    host.run(30)
    assert not host.lost_ones
    assert host.neighbours.timeout(BOB.node_id) > 1
    del host.answering[BOB.node_id]
    host.run(2.0 + 1.5 + CONFIG.tries_max * CONFIG.repeat_max_s)
    assert host.lost_ones == [BOB]


def test_round_trips_are_smoothed_as_in_rfc_6298() -> None:
    known = RoundTrip(0.8)
    assert (known.smoothed_s, known.variation_s) == (0.8, 0.4)
    known.add(1.6)
    assert abs(known.variation_s - (0.75 * 0.4 + 0.25 * 0.8)) < 1e-12
    assert abs(known.smoothed_s - 0.9) < 1e-12
    assert abs(known.timeout_s - (0.9 + 4 * 0.5)) < 1e-12


def test_an_answer_to_an_unknown_heartbeat_is_not_a_measurement() -> None:
    host = RecordingHost()
    host.neighbours.watch(BOB, "tree", 1.0)
    host.run(1.5)
    for sent_at in (float("nan"), -1e300, 0.0):
        host.hear(BOB, HeartbeatAnswer(sent_at))
    assert host.neighbours.round_trip(BOB.node_id) is None
    host.neighbours.check()


def test_the_number_of_remembered_lost_neighbours_is_bounded() -> None:
    config = NeighbourConfig(lost_max=3, round_trips_max=3)
    host = RecordingHost(config=config)
    others = [Contact(bytes([index]) * 16, "") for index in range(10)]
    for contact in others:
        host.neighbours.answered(contact.node_id, 0.1)
        host.neighbours.probe(contact)
    host.run(60)
    assert len(host.lost_ones) == 10
    assert [host.neighbours.suspected(contact.node_id) for contact in others].count(True) == 3


class Streams:
    """Distinguishable marks, and the marks that arrived from the other side."""

    def __init__(self) -> None:
        self.compared: list[tuple[Contact, int, bytes]] = []

    def mark(self, node_id: bytes) -> tuple[int, bytes]:
        return 7, b"mine"

    def compare(self, sender: Contact, change: int, digest: bytes) -> None:
        self.compared.append((sender, change, digest))


def test_heartbeats_and_answers_carry_the_marks_of_the_link() -> None:
    streams = Streams()
    host = RecordingHost(streams=streams)
    host.hear(BOB, Heartbeat(1.0, 3, b"theirs"))
    host.hear(BOB, HeartbeatAnswer(1.0, 4, b"newer"))
    assert host.sent == [(BOB, HeartbeatAnswer(1.0, 7, b"mine"))]
    assert streams.compared == [(BOB, 3, b"theirs"), (BOB, 4, b"newer")]


def test_a_busy_link_still_compares_marks_periodically() -> None:
    host = RecordingHost(streams=Streams())
    host.answering[BOB.node_id] = 0.01
    host.neighbours.watch(BOB, "tree", 1.0)
    for _ in range(240):
        host.run(0.5)
        host.hear(BOB)
    assert 3 <= host.asked(BOB) <= 6, "every 30 s in two minutes"
