"""Which machines could reach each other, and when: the network as the judges see it."""

from quillcast.core.ids import ring_distance
from quillcast.sim.host import SimHost
from quillcast.sim.network import one_way, partition
from quillcast.sim.reach import Reach, Span
from quillcast.sim.world import World
from tests.sim.toy import toys


def world_of(count: int) -> tuple[World, Reach]:
    world = toys(count)
    reach = Reach(world)
    reach.note()
    return world, reach


def host(world: World, number: int) -> SimHost:
    found = world.machines[number].host
    assert found is not None
    return found


def test_machines_on_two_sides_of_a_cut_are_apart_until_it_has_healed() -> None:
    world, reach = world_of(4)
    world.run(1.0)
    cut = world.cut(partition([0, 1]))
    reach.note()
    world.run(3.0)
    assert not reach.together(0, 2, 2.0)
    assert reach.together(0, 1, 0.5)
    assert reach.group(0, 2.0) == [0, 1]
    world.heal(cut)
    reach.note()
    world.run(4.0)
    assert list(reach.apart(0, 3, join_s=1.0)) == [Span(1.0, 3.0)]
    assert list(reach.apart(0, 1, join_s=1.0)) == []
    assert reach.together(0, 3, 3.5)
    assert not reach.together(0, 3, 2.5)


def test_machines_that_cannot_reach_each_other_may_do_so_over_others() -> None:
    world, reach = world_of(3)
    world.cut(one_way([0], [1]))
    reach.note()
    assert reach.group(0, world.now) == [0, 1, 2]


def test_a_machine_may_reach_none_of_the_next_ones_though_others_reach_both() -> None:
    """One way is not enough, and the dead do not count."""
    world, reach = world_of(4)
    topic = world.machines[0].node_id
    first, dead, second, _ = sorted(range(4), key=lambda each: ring_distance(world.machines[each].node_id, topic))
    world.stop(world.machines[dead])
    world.run(1.0)
    cut = world.cut(one_way([second], [first]))
    reach.note()
    assert reach.now_with(first, second)
    world.run(4.0)
    world.heal(cut)
    reach.note()
    world.run(5.0)
    assert list(reach.without_replicas(topic, 1, join_s=1.0)) == [Span(1.0, 4.0)]
    assert list(reach.without_replicas(topic, 2, join_s=1.0)) == []


def test_a_paused_process_is_apart_and_a_dead_one_is_not_counted() -> None:
    world, reach = world_of(3)
    world.run(1.0)
    host(world, 1).pause()
    reach.note()
    world.run(2.0)
    host(world, 1).resume()
    world.stop(world.machines[2])
    reach.note()
    world.run(5.0)
    assert list(reach.apart(0, 1, join_s=1.0)) == [Span(1.0, 2.0)]
    assert list(reach.apart(0, 2, join_s=1.0)) == []
    assert not reach.together(0, 2, 4.0)


def test_short_reunions_do_not_part_an_outage_and_sides_are_known_as_a_whole() -> None:
    world, reach = world_of(4)
    for start, end in ((1.0, 2.0), (2.5, 4.0), (8.0, 9.0)):
        world.run(start)
        cut = world.cut(partition([0]))
        reach.note()
        world.run(end)
        world.heal(cut)
        reach.note()
    assert list(reach.apart(0, 1, join_s=1.0)) == [Span(1.0, 4.0), Span(8.0, 9.0)]
    assert list(reach.cut_off(0, [1, 2, 3], join_s=1.0)) == [Span(1.0, 4.0), Span(8.0, 9.0)]
    assert list(reach.cut_off(1, [0, 2], join_s=1.0)) == []


def test_a_machine_outside_the_ring_is_apart_where_it_is_cut_off_from_those_that_route_for_it() -> None:
    world = toys(4)
    reach = Reach(world, lambda: {3: [1, 2]})
    for side, together in (([1], True), ([1, 2], False)):
        cut = world.cut(partition(side))
        reach.note()
        assert reach.now_with(0, 3) == together
        world.heal(cut)
    reach.note()
    assert reach.now_with(0, 3)
