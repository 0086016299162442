"""Links of the simulator do what TCP connections between processes do."""

import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Envelope, Kind
from quillcast.core.messages import Contact
from quillcast.sim.host import MEASURE_TIMEOUT_S
from quillcast.sim.links import CONNECT_TIMEOUT_S, UNANSWERED_TIMEOUT_S
from quillcast.sim.network import RETRANSMIT_S_MAX, Quality, isolated, one_way, partition
from quillcast.sim.world import Broken
from tests.sim.toy import DELAY_S, Ask, Say, Toy, machine, peer, say, toys

ONE, TWO = "sim:0", "sim:1"


def a_bundle(payload_bytes: int = 100) -> Bundle:
    block = Block.seal(bytes(16), 0, [b"x" * payload_bytes], time_ns=0)
    return Bundle(Envelope(bytes(16), Kind.DOWN), (block,))


def test_the_first_message_opens_a_link_and_both_sides_are_notified() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1)
    assert peer(world, 1).seen == [(DELAY_S, "link_up", ONE), (3 * DELAY_S, "message", ONE, "hello")]
    assert peer(world, 0).seen == [(2 * DELAY_S, "link_up", TWO)]


def test_peers_share_the_contact_of_a_process_instead_of_keeping_copies_from_messages() -> None:
    world, measured = toys(2), []
    own, host = machine(world, 1).contact, peer(world, 0).host
    copy = Contact(own.node_id, own.address)
    peer(world, 0).measured = lambda contact, _: measured.append(contact)  # type: ignore[method-assign]
    host.measure(copy)
    host.send(copy, Say("hello"))
    world.run(1)
    (end,) = machine(world, 0).host.links.values()  # type: ignore[union-attr]
    assert end.contact is own
    assert measured[0] is own


def test_messages_of_a_link_arrive_in_order_however_the_delays_vary() -> None:
    world = toys(2, quality=Quality(jitter=3.0, loss=0.2))
    texts = [str(number) for number in range(200)]
    say(world, 0, 1, *texts)
    world.run(60)
    assert peer(world, 1).got("message") == texts


def test_two_that_call_each_other_at_once_end_with_one_link_and_every_message() -> None:
    world = toys(2)
    say(world, 0, 1, "from one")
    say(world, 1, 0, "from two")
    world.run(1)
    assert peer(world, 0).got("message") == ["from two"]
    assert peer(world, 1).got("message") == ["from one"]
    assert [peer(world, number).got("link_up") for number in (0, 1)] == [[TWO], [ONE]]
    ends = [machine(world, number).host.links for number in (0, 1)]  # type: ignore[union-attr]
    (here,), (there,) = ends[0].values(), ends[1].values()
    assert here.far is there
    assert there.far is here


def test_messages_are_counted_where_somebody_takes_the_counts() -> None:
    world = toys(2)
    host = machine(world, 0).host
    assert host is not None
    say(world, 0, 1, "not counted")
    assert host.take_sent() == {}
    host.count_sent()
    say(world, 0, 1, "counted", "too")
    assert host.take_sent() == {machine(world, 1).node_id: 2}
    assert host.take_sent() == {}


def test_a_message_to_itself_is_a_step_of_its_own() -> None:
    world = toys(1)
    peer(world, 0).host.send(machine(world, 0).contact, Say("note to self"))
    assert peer(world, 0).seen == []
    world.run(0)
    assert peer(world, 0).seen == [(0.0, "message", ONE, "note to self")]


def test_a_killed_process_is_noticed_at_once_on_an_open_link() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1)
    world.stop(machine(world, 1))
    world.run(2)
    assert peer(world, 0).seen[-1] == (1 + DELAY_S, "link_lost", TWO)


def test_what_was_sent_before_the_crash_still_arrives() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1)
    say(world, 0, 1, "last words")
    world.stop(machine(world, 0))
    world.run(2)
    assert peer(world, 1).seen[-2:] == [(1 + DELAY_S, "message", ONE, "last words"), (1 + DELAY_S, "link_lost", ONE)]


def test_a_call_to_a_machine_without_the_process_is_refused() -> None:
    world = toys(2)
    world.stop(machine(world, 1))
    say(world, 0, 1, "hello")
    world.run(1)
    assert peer(world, 0).seen == [(2 * DELAY_S, "link_lost", TWO)]


def test_a_machine_without_power_is_silent_until_the_link_times_out() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1)
    world.stop(machine(world, 1), silently=True)
    world.run(10)
    assert peer(world, 0).got("link_lost") == []
    say(world, 0, 1, "anybody?")
    world.run(10 + UNANSWERED_TIMEOUT_S)
    assert peer(world, 0).when("link_lost") == [10 + UNANSWERED_TIMEOUT_S]
    say(world, 0, 1, "once more")
    world.run(100)
    assert peer(world, 0).when("link_lost")[1:] == [10 + UNANSWERED_TIMEOUT_S + CONNECT_TIMEOUT_S]


def test_a_link_to_an_earlier_process_is_refused_by_the_next() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1)
    world.stop(machine(world, 1), silently=True)
    world.run(2)
    world.start(machine(world, 1))
    say(world, 0, 1, "to the old one")
    world.run(3)
    assert peer(world, 0).seen[-1] == (2 + 2 * DELAY_S, "link_lost", TWO)
    assert peer(world, 1).seen == []
    say(world, 0, 1, "to the new one")
    world.run(4)
    assert peer(world, 1).got("message") == ["to the new one"]


def test_a_link_whose_caller_died_before_it_was_established_is_refused_by_the_next_process() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1.5 * DELAY_S)
    assert peer(world, 1).got("link_up") == [ONE]
    world.stop(machine(world, 0), silently=True)
    world.run(1)
    world.start(machine(world, 0))
    say(world, 1, 0, "to the old one")
    world.run(2)
    assert peer(world, 1).seen[-1] == (1 + 2 * DELAY_S, "link_lost", ONE)
    assert peer(world, 0).seen == []


def test_a_restarted_caller_replaces_the_link_that_the_other_still_held() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1)
    world.stop(machine(world, 0), silently=True)
    world.start(machine(world, 0))
    say(world, 0, 1, "again")
    world.run(2)
    assert [entry[1] for entry in peer(world, 1).seen] == ["link_up", "message", "link_lost", "link_up", "message"]


def test_a_short_partition_only_makes_messages_late() -> None:
    world = toys(2)
    say(world, 0, 1, "before")
    world.run(1)
    cut = world.cut(partition([0]))
    say(world, 0, 1, "during", "and more")
    world.run(11)
    assert peer(world, 1).got("message") == ["before"]
    world.heal(cut)
    world.run(30)
    assert peer(world, 1).got("message") == ["before", "during", "and more"]
    assert 11 + DELAY_S <= peer(world, 1).when("message")[1] <= 11 + DELAY_S + RETRANSMIT_S_MAX
    assert peer(world, 0).got("link_lost") == []


def test_a_long_partition_breaks_links_on_which_something_was_sent() -> None:
    world = toys(3)
    for other in (1, 2):
        say(world, 0, other, "before")
    world.run(1)
    cut = world.cut(partition([0]))
    say(world, 0, 1, "lost")
    world.run(60)
    world.heal(cut)
    assert peer(world, 0).got("link_lost") == [TWO]
    say(world, 1, 0, "are you there?")
    world.run(70)
    assert peer(world, 1).got("link_lost") == [ONE]
    assert peer(world, 2).got("link_lost") == []
    assert peer(world, 1).got("message") == ["before"]


def test_a_way_cut_in_one_direction_breaks_the_link_for_both() -> None:
    world = toys(2)
    say(world, 0, 1, "before")
    world.run(1)
    world.cut(one_way([0], [1]))
    say(world, 1, 0, "heard", ask=True)
    world.run(60)
    assert peer(world, 0).got("message") == ["heard"]
    assert peer(world, 1).got("message") == ["before"]
    assert peer(world, 0).got("link_lost") == [TWO]
    assert peer(world, 1).got("link_lost") == [ONE]


def test_a_paused_process_gets_its_timers_first_and_then_what_arrived_in_order() -> None:
    world = toys(2)
    say(world, 0, 1, "before")
    world.run(1)
    host = machine(world, 1).host
    assert host is not None
    host.set_timer("late", 2)
    host.pause()
    say(world, 0, 1, "first", "second", ask=True)
    world.run(10)
    assert peer(world, 1).got("message") == ["before"]
    host.resume()
    world.run(11)
    assert peer(world, 1).seen[-3:] == [
        (10.0, "timer", "late"),
        (10.0, "message", ONE, "first"),
        (10.0, "message", ONE, "second"),
    ]
    assert peer(world, 0).got("message") == ["first", "second"]


def test_a_call_to_a_paused_process_times_out() -> None:
    world = toys(2)
    host = machine(world, 1).host
    assert host is not None
    host.pause()
    say(world, 0, 1, "hello")
    world.run(10)
    assert peer(world, 0).when("link_lost") == [DELAY_S + CONNECT_TIMEOUT_S]
    host.resume()
    world.run(11)
    assert peer(world, 1).seen == []


def test_a_caller_whose_call_is_never_answered_gives_up() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(DELAY_S / 2)
    cut = world.cut(one_way([1], [0]))
    world.run(2 * DELAY_S)
    assert peer(world, 1).got("link_up") == [ONE]
    world.stop(machine(world, 1))
    world.heal(cut)
    world.run(10)
    assert peer(world, 0).when("link_lost") == [DELAY_S + CONNECT_TIMEOUT_S]
    world.start(machine(world, 1))
    say(world, 1, 0, "hello")
    world.run(11)
    assert peer(world, 0).got("message") == ["hello"]


def test_a_process_killed_while_paused_gets_nothing_more() -> None:
    world = toys(2)
    say(world, 0, 1, "before")
    world.run(1)
    paused = peer(world, 1)
    paused.host.pause()  # type: ignore[attr-defined]
    say(world, 0, 1, "never read")
    world.run(2)
    world.stop(machine(world, 1))
    world.run(3)
    assert paused.got("message") == ["before"]
    assert peer(world, 0).got("link_lost") == [TWO]


def test_datagrams_are_lost_doubled_and_overtaken() -> None:
    world = toys(2, datagrams=True, quality=Quality(loss=0.2, duplication=0.2, reordering=0.2))
    texts = [str(number) for number in range(500)]
    say(world, 0, 1, *texts)
    world.run(60)
    got = peer(world, 1).got("message")
    assert 300 < len(set(got)) < 500
    assert len(got) > len(set(got))
    assert got != sorted(got, key=int)
    assert peer(world, 0).got("link_lost") == []


def test_credit_is_used_up_and_comes_back_when_released() -> None:
    bundle = a_bundle()
    world = toys(2, window_bytes=2 * bundle.size)
    sender, receiver = peer(world, 0), peer(world, 1)
    to = machine(world, 1).contact
    assert sender.host.room(to) == 2 * bundle.size
    for _ in range(2):
        sender.host.carry(to, bundle)
    world.run(1)
    assert receiver.bundles == [bundle, bundle]
    assert sender.host.room(to) == 0
    receiver.host.release(sender.host.me, bundle.size)
    world.run(2)
    assert sender.host.room(to) == bundle.size
    assert sender.got("room") == [TWO]


def test_a_new_link_has_all_its_credit() -> None:
    bundle = a_bundle()
    world = toys(2, window_bytes=bundle.size)
    to = machine(world, 1).contact
    peer(world, 0).host.carry(to, bundle)
    world.run(1)
    world.stop(machine(world, 1))
    world.run(2)
    world.start(machine(world, 1))
    assert peer(world, 0).host.room(to) == bundle.size


def test_lost_datagrams_give_their_credit_back() -> None:
    bundle = a_bundle()
    world = toys(2, datagrams=True, quality=Quality(loss=1.0), window_bytes=bundle.size)
    to = machine(world, 1).contact
    say(world, 0, 1, "opens the link and is lost")
    world.run(20)
    peer(world, 0).host.carry(to, bundle)
    assert peer(world, 0).host.room(to) == 0
    world.run(21)
    assert peer(world, 1).bundles == []
    assert peer(world, 0).host.room(to) == bundle.size


def test_a_slow_way_carries_so_many_bytes_a_second() -> None:
    bundle = a_bundle(10_000)
    world = toys(2)
    world.disturb([(0, 1)], Quality(bytes_per_s=bundle.size))
    for _ in range(3):
        peer(world, 0).host.carry(machine(world, 1).contact, bundle)
    world.run(10)
    assert peer(world, 1).when("bundle") == [pytest.approx(3 * DELAY_S + second) for second in (1, 2, 3)]


def test_what_waits_before_a_narrow_way_goes_at_once_when_it_is_wide_again() -> None:
    bundle = a_bundle(10_000)
    world = toys(2)
    world.disturb([(0, 1)], Quality(bytes_per_s=bundle.size))
    for _ in range(20):
        peer(world, 0).host.carry(machine(world, 1).contact, bundle)
    world.run(2)
    assert len(peer(world, 1).bundles) == 1
    world.disturb([(0, 1)], None)
    world.run(2.5)
    assert len(peer(world, 1).bundles) == 20


def test_what_waits_before_a_narrow_way_that_is_cut_comes_in_order_afterwards() -> None:
    bundles = [a_bundle(size) for size in range(10_000, 10_800, 80)]
    world = toys(2, window_bytes=1 << 20)
    world.disturb([(0, 1)], Quality(bytes_per_s=10_000))
    for bundle in bundles[:5]:
        peer(world, 0).host.carry(machine(world, 1).contact, bundle)
    world.run(2)
    cut = world.cut(isolated(1))
    for bundle in bundles[5:]:
        peer(world, 0).host.carry(machine(world, 1).contact, bundle)
    world.run(6)
    assert len(peer(world, 1).bundles) == 1
    world.heal(cut)
    world.run(30)
    assert [bundle.size for bundle in peer(world, 1).bundles] == [bundle.size for bundle in bundles]


def test_control_overtakes_data() -> None:
    world = toys(2)
    say(world, 0, 1, "opens the link")
    world.run(1)
    peer(world, 0).host.carry(machine(world, 1).contact, a_bundle())
    say(world, 0, 1, "sent after the bundle")
    world.run(2)
    assert [entry[1] for entry in peer(world, 1).seen[-2:]] == ["message", "bundle"]


def test_more_credit_than_was_charged_cannot_be_given_back() -> None:
    world = toys(2)
    peer(world, 0).host.carry(machine(world, 1).contact, a_bundle())
    world.run(1)
    with pytest.raises(AssertionError, match="1 bytes more were released than came"):
        peer(world, 1).host.release(peer(world, 0).host.me, a_bundle().size + 1)


def test_a_link_closes_when_neither_side_needs_it_and_opens_again_when_used() -> None:
    world = toys(2)
    say(world, 0, 1, "hello")
    world.run(1)
    peer(world, 0).host.disconnect(machine(world, 1).node_id)
    world.run(2)
    assert len(machine(world, 1).host.links) == 1  # type: ignore[union-attr]
    peer(world, 1).host.disconnect(machine(world, 0).node_id)
    world.run(3)
    assert [machine(world, number).host.links for number in (0, 1)] == [{}, {}]  # type: ignore[union-attr]
    say(world, 1, 0, "hello again")
    world.run(4)
    assert peer(world, 0).got("message") == ["hello again"]
    assert [peer(world, number).got("link_lost") for number in (0, 1)] == [[], []]


def test_what_is_under_way_arrives_before_a_link_closes() -> None:
    world = toys(2)
    one, two = (machine(world, number).node_id for number in (0, 1))
    say(world, 0, 1, "hello")
    world.run(1)
    peer(world, 0).host.disconnect(two)
    peer(world, 1).host.disconnect(one)
    world.run(1 + DELAY_S / 2)
    say(world, 0, 1, "one more thing")
    peer(world, 0).host.carry(machine(world, 1).contact, a_bundle())
    peer(world, 0).host.disconnect(two)
    world.run(2)
    assert peer(world, 1).got("message") == ["hello", "one more thing"]
    assert len(peer(world, 1).bundles) == 1
    assert [machine(world, number).host.links for number in (0, 1)] == [{}, {}]  # type: ignore[union-attr]


def test_a_measurement_answers_with_the_round_trip_or_none() -> None:
    world = toys(4)
    world.stop(machine(world, 2))
    world.stop(machine(world, 3), silently=True)
    for other in (1, 2, 3):
        peer(world, 0).host.measure(machine(world, other).contact)
    world.run(10)
    assert peer(world, 0).seen == [
        (2 * DELAY_S, "measured", TWO, 2 * DELAY_S),
        (2 * DELAY_S, "measured", "sim:2", None),
        (MEASURE_TIMEOUT_S, "measured", "sim:3", None),
    ]
    assert peer(world, 0).host.proximity(machine(world, 1).node_id) == 2 * DELAY_S
    assert peer(world, 0).host.proximity(machine(world, 2).node_id) is None


def test_clocks_have_origins_of_their_own_and_every_start_another_incarnation() -> None:
    world = toys(2)
    first, second = peer(world, 0).host, peer(world, 1).host
    assert first.now() != second.now()
    world.stop(machine(world, 0))
    world.start(machine(world, 0))
    assert peer(world, 0).host.me == first.me
    assert peer(world, 0).host.incarnation != first.incarnation


def test_what_a_peer_raises_ends_the_run_and_names_the_peer() -> None:
    class Faulty(Toy):
        def message(self, sender: object, message: object) -> None:
            raise AssertionError("a list that must be sorted is not")

    world = toys(2)
    world.machines[1].host.inputs = Faulty(world.machines[1].host)  # type: ignore[union-attr, arg-type]
    say(world, 0, 1, "hello")
    with pytest.raises(Broken, match=r"at 0\.030000 s peer 1: AssertionError: a list that must be sorted is not"):
        world.run(1)


@pytest.mark.parametrize("datagrams", [False, True])
def test_the_same_seed_takes_the_same_steps(datagrams: bool) -> None:
    def story(seed: int) -> list[object]:
        world = toys(4, seed=seed, datagrams=datagrams, quality=Quality(loss=0.2, duplication=0.1, jitter=0.5))
        for round_ in range(20):
            for sender in range(4):
                peer(world, sender).host.send(machine(world, (sender + 1) % 4).contact, Ask(str(round_)))
            world.run(round_)
        return [peer(world, number).seen for number in range(4)]

    assert story(1) == story(1)
    assert story(1) != story(2)
