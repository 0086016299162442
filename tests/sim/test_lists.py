"""A subscriber that is taken off a topic's list while nobody reaches its peer is told as soon as somebody does."""

import re

import pytest
from msgspec.structs import replace

from quillcast.protocol.config import Config
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim import faults
from quillcast.sim.delivery import Delivery
from quillcast.sim.leases import JOINED_S
from quillcast.sim.scenario import Changing, Constant, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation
from quillcast.sim.world import Broken
from tests.params import rest_long

PEERS, ON = range(8), [0, 1, 2, 3, 4, 5]
CUT_S = 9.9
"""From then on nobody reaches some peers. Soon after, the list changes."""


def the_list_changes_beyond_a_partition(side: list[int], for_s: float, lists: list[list[int]]) -> Scenario:
    """The writer and who changes the list are on the other side."""
    changes = [Changing(peer=0, at_s=10.0 + at, subscribers=each) for at, each in enumerate(lists)]
    plan = TopicPlan(
        name="news", writers=[Writing(peer=0, from_s=8.0, until_s=for_s + 20.0, every_s=0.2)], subscribers=[*PEERS],
        readers=[Reading(peer=peer, from_s=2.0) for peer in PEERS], changes=changes,
    )  # fmt: skip
    return Scenario(
        peers=len(PEERS), duration_s=for_s + 40.0, topology=Constant(delay_s=0.02), topics=[plan],
        config=replace(Config(), topics=TopicConfig(children_per_topic_max=2)),
        faults=[faults.Partition(peers=[str(peer) for peer in side], at_s=CUT_S, for_s=for_s)],
    )  # fmt: skip


@pytest.mark.parametrize("lists", [[ON], [[*ON, 6], ON]])
@pytest.mark.parametrize("for_s", rest_long([20.0, 2.0, 40.0], 1))
@pytest.mark.parametrize("side", [[7], [5, 6, 7]])
def test_who_was_taken_off_a_list_beyond_a_partition_is_told_soon_after(
    side: list[int], for_s: float, lists: list[list[int]]
) -> None:
    run = Simulation(the_list_changes_beyond_a_partition(side, for_s, lists), 1)
    run.run()
    for reader in run.readers:
        machine = reader.host.machine.number
        may = {session for session, each in enumerate([PEERS, *lists]) if machine in each}
        assert set(reader.sessions) <= may
        if machine in ON:
            assert reader.failures == []
        else:
            assert [type(each) for each in reader.failures] == [AccessDenied]
            assert reader.ended_at is not None
            assert reader.ended_at <= CUT_S + for_s + JOINED_S


def test_a_reader_that_goes_on_without_a_right_is_found() -> None:
    scenario = the_list_changes_beyond_a_partition([7], 2.0, [ON])
    run = Simulation(scenario, 1)
    run.run()
    (reader,) = [each for each in run.readers if each.host.machine.number == 7]
    judge = Delivery(run, scenario.topics[0])
    reader.sessions[1] = 12.0, 2  # its peer knows of a later session, and maybe never heard of this one
    judge.check()
    reader.sessions[1] = 12.0, 1
    with pytest.raises(Broken, match=re.escape("received events of session 1 at 12.000 s, not being on its list")):
        judge.check()
    del reader.sessions[1]
    reader.ended_at = None
    with pytest.raises(Broken, match="goes on at the end, though a peer of the topic's tree knows that the credential"):
        judge.check()
