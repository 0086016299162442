"""Fault simulations: whatever goes wrong, the promises of docs/delivery.md hold. `make sim` runs many more seeds."""

from collections import Counter

import pytest

from quillcast.protocol.scopes.policies import BUILT_IN
from quillcast.sim.chance import FAULTS_MIN, PEERS_MAX, PEERS_MIN, drawn
from quillcast.sim.composed import bordered, composed, shaped, varied
from quillcast.sim.faults import Arrive, Disturb, Partition
from quillcast.sim.hard import LEASE_S, hard
from quillcast.sim.hard import PEERS_MAX as HARD_MAX
from quillcast.sim.hard import PEERS_MIN as HARD_MIN
from quillcast.sim.leases import bound_s
from quillcast.sim.simulation import Simulation

# Those up to 1026, 2099, 3059 and 4039 set no mark that these do not, and take twice as long. `make sim` runs more.
SEEDS, LONG_SEEDS = (1001, 1002, 1005, 1008, 1016), (1006, 1007, *range(1010, 1015), 1017, 1018, 1020)
PEERS = 12  # at most, so that all of it stays well under a minute
HARD_SEEDS, LONG_HARD_SEEDS = range(2000, 2030), (*range(2030, 2060), 2080, 2093)
COMPOSED_SEEDS, LONG_COMPOSED = range(3000, 3016), range(3016, 3041)
CLUSTER_SEEDS, LONG_CLUSTER = range(5000, 5006), range(5006, 5020)
ROOTED_SEEDS, LONG_ROOTED = range(4000, 4008), (*range(4008, 4026), 4039)


@pytest.mark.parametrize(
    "seed", [*COMPOSED_SEEDS, *(pytest.param(each, marks=pytest.mark.long) for each in LONG_COMPOSED)]
)
def test_the_promises_hold_through_any_composition_of_scopes_policies_and_admissions(seed: int) -> None:
    Simulation(varied(composed(hard(seed), seed), seed), seed).run()


@pytest.mark.parametrize("seed", [*ROOTED_SEEDS, *(pytest.param(each, marks=pytest.mark.long) for each in LONG_ROOTED)])
def test_the_promises_hold_for_topics_that_are_rooted_at_a_scope(seed: int) -> None:
    inside = hard(seed).with_scopes("k_ary", 2, within="star") if seed % 2 else hard(seed).with_scopes("mesh")
    Simulation(inside.rooted(), seed).run()


@pytest.mark.parametrize(
    "seed", [*CLUSTER_SEEDS, *(pytest.param(each, marks=pytest.mark.long) for each in LONG_CLUSTER)]
)
def test_the_promises_hold_for_topics_that_are_rooted_at_a_virtual_cluster(seed: int) -> None:
    places = hard(seed).with_scopes("k_ary", 2, within="star" if seed % 2 else "")
    Simulation(places.clustered("ring" if seed % 3 else "chain"), seed).run()


def test_compositions_have_scopes_in_scopes_all_policies_changes_and_both_admissions() -> None:
    drawn_ = [varied(composed(hard(seed), seed), seed) for seed in range(100)]
    for seed, scenario in enumerate(drawn_):
        scenario.validate()
        assert scenario == varied(composed(hard(seed), seed), seed)
    scopes = [scope for scenario in drawn_ for scope in scenario.scopes]
    assert {scope.policy for scope in scopes} == {*BUILT_IN}
    parameters = {(policy, *each.values()) for scope in scopes for policy, each in scope.parameters.items()}
    assert {each[0] for each in parameters} == {"k_ary", "mesh", "gossip", "stripes", "delay_optimised"}
    assert {each for each in parameters if each[0] == "mesh"} == {("mesh", degree) for degree in (2, 4, 6)}
    assert {bool(scope.within) for scope in scopes} == {bool(scope.then) for scope in scopes} == {True, False}
    crossed = [scope for scope in scopes if scope.within]
    assert {scope.entry_points for scope in crossed} == {scope.replicas for scope in crossed} == {1, 2, 3}
    assert {scope.split for scope in crossed} == {True, False}
    assert {topic.admission for scenario in drawn_ for topic in scenario.topics} == {"root", "source"}


def test_few_compositions_have_members_of_two_scopes_scopes_within_two_rates_root_scopes_and_clusters() -> None:
    plain, more = 0, Counter[str]()
    for seed in range(300):
        before = shaped(bordered(composed(hard(seed), seed), seed), seed)
        scenario = varied(composed(hard(seed), seed), seed)
        scenario.validate()
        plain += scenario == before
        places = Counter(machine for scope in scenario.scopes[: len(before.scopes)] for machine in scope.members)
        more["two scopes"] += 2 in places.values()
        more["within two"] += any(len(scope.within) == 2 for scope in scenario.scopes)
        more["in"] += any(scope.bytes_per_s for scope in scenario.scopes)
        more["out"] += any(scope.leaving_bytes_per_s for scope in scenario.scopes)
        more["bundles in"] += any(scope.bundles_per_s for scope in scenario.scopes)
        more["bundles out"] += any(scope.leaving_bundles_per_s for scope in scenario.scopes)
        more["multicast"] += any(scope.multicast for scope in scenario.scopes)
        more["aimed"] += len(scenario.faults) > len(before.faults)
        more["cluster"] += len(scenario.scopes) > len(before.scopes)
        more["rooted"] += any(scope.root for scope in scenario.scopes)
    assert plain > 100
    assert min(more.values()) > 5, more
    assert more["rooted"] > more["cluster"]


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.long) for seed in LONG_SEEDS)])
def test_the_promises_hold_whatever_goes_wrong(seed: int) -> None:
    Simulation(drawn(seed, PEERS), seed).run()


def test_every_seed_draws_what_was_promised() -> None:
    for seed in range(500):
        scenario = drawn(seed)
        scenario.validate()
        assert PEERS_MIN <= scenario.peers <= PEERS_MAX
        assert len(scenario.faults) >= FAULTS_MIN
        assert scenario.duration_s >= 60
        assert scenario == drawn(seed)
    assert drawn(1) != drawn(2)


def test_hard_histories_draw_what_wide_ones_do_not() -> None:
    drawn_ = [hard(seed) for seed in range(300)]
    for seed, scenario in enumerate(drawn_):
        scenario.validate()
        assert HARD_MIN <= scenario.peers <= HARD_MAX
        assert scenario == hard(seed)
        assert scenario.duration_s >= scenario.topics[0].writers[0].until_s + bound_s(scenario.config)
    topics = [scenario.config.topics for scenario in drawn_]
    assert {each.children_per_topic_max for each in topics} >= {1, 2, 3}
    assert {each.fallbacks for each in topics} >= {0, 1, 3}
    assert {each.replicas for each in topics} >= {1, 2}
    assert min(each.budget_bytes for each in topics) < 10_000
    assert any(scenario.disturbance.datagrams for scenario in drawn_)
    assert any(plan.publishers for scenario in drawn_ for plan in scenario.topics)
    assert any(len(scenario.topics) > 1 for scenario in drawn_)
    happening = [fault for scenario in drawn_ for fault in scenario.faults]
    assert any(isinstance(fault, Arrive) and fault.id for fault in happening)
    assert any(isinstance(fault, Partition) and fault.for_s > LEASE_S for fault in happening)
    assert max(fault.loss for fault in happening if isinstance(fault, Disturb)) == 0.3


@pytest.mark.parametrize(
    "seed", [*HARD_SEEDS, *(pytest.param(seed, marks=pytest.mark.long) for seed in LONG_HARD_SEEDS)]
)
def test_the_promises_hold_in_hard_histories(seed: int) -> None:
    Simulation(hard(seed), seed).run()
