"""Groups: the papers' law, members that depend on (seed, group) alone, and real membership."""

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation import experiment
from quillcast.evaluation import workload as module
from quillcast.evaluation.deployment import workload_of
from quillcast.evaluation.network import Peers
from quillcast.evaluation.peers import attach
from quillcast.evaluation.topology.generator import transit_stub
from quillcast.evaluation.workload import (
    WORKLOADS,
    Workload,
    creator,
    fixed,
    group,
    members,
    permuted,
    power_law,
    publishers,
    real,
)
from tests.evaluation import naive_places as naive


@pytest.fixture(scope="module")
def peers() -> Peers:
    return attach(transit_stub(1, 4, 4, 5, 8), 3_000, 1)


# The law


def test_the_papers_groups_have_395_247_members() -> None:
    """Evaluation (2): gsize(r) = (int)(N r^-1.25 + 0.5) with N = 100,000 and 1,500 groups: from 11 to 100,000."""
    sizes = power_law(100_000, 1_500).sizes
    assert (int(sizes.sum()), int(sizes.min()), int(sizes.max())) == (395_247, 11, 100_000)
    assert sizes.tolist() == [int(100_000 * rank**-1.25 + 0.5) for rank in range(1, 1_501)]


def test_no_group_is_empty_with_few_peers() -> None:
    assert int(power_law(100, 1_500).sizes.min()) == 1


def test_other_laws() -> None:
    assert fixed(3, 11).sizes.tolist() == [11, 11, 11]
    assert power_law(100, 3, exponent=1).sizes.tolist() == [100, 50, 33]


@pytest.mark.parametrize("make", [lambda: fixed(0, 5), lambda: fixed(5, 0), lambda: power_law(100, 0)])
def test_groups_that_cannot_be_are_refused(make: object) -> None:
    with pytest.raises(LocalError, match="at least one group, and each group a member"):
        make()  # type: ignore[operator]


# Permutations


@pytest.mark.parametrize("count", [1, 2, 3, 10, 64, 100, 1000])
def test_a_permutation_is_one_and_that_of_plain_integers(count: int) -> None:
    places = permuted(count, np.arange(count, dtype=np.int32), 5)
    assert places.tolist() == naive.permutation(count, 5)
    assert sorted(places.tolist()) == list(range(count))


def test_each_order_of_four_is_about_as_likely() -> None:
    seeds = [naive.mix(1, 2, number) for number in range(4_800)]
    orders = Counter(tuple(permuted(4, np.arange(4, dtype=np.int32), seed).tolist()) for seed in seeds)
    assert len(orders) == 24
    assert min(orders.values()) > 130
    assert max(orders.values()) < 280  # 200 each, give or take five standard deviations


# Members


def test_members_ascend_and_are_as_many_as_asked(peers: Peers) -> None:
    workload = power_law(3_000, 40)
    for number in range(40):
        found = members(workload, number, peers, 1)
        assert found.dtype == np.int32
        assert len(found) == workload.sizes[number]
        assert bool((np.diff(found) > 0).all())
        assert 0 <= found[0] <= found[-1] < 3_000


def test_members_are_the_first_of_the_groups_permutation(peers: Peers) -> None:
    for size in (5, 500):  # below and above the size from which they are noted instead of sorted
        seed = naive.mix(3, 12, 7)
        assert members(fixed(9, size), 7, peers, 3).tolist() == sorted(naive.permutation(3_000, seed)[:size])


def test_members_depend_on_seed_and_group_alone(peers: Peers) -> None:
    workload = fixed(20, 11)
    forwards = [members(workload, number, peers, 1).tolist() for number in range(20)]
    backwards = [members(workload, number, peers, 1).tolist() for number in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert len({tuple(found) for found in forwards}) == 20
    assert members(workload, 3, peers, 2).tolist() != forwards[3]
    assert members(fixed(4, 11), 3, peers, 1).tolist() == forwards[3]


def test_every_peer_is_a_member_as_often(peers: Peers) -> None:
    """Evaluation (2): members are "uniformly distributed over the set of nodes"."""
    counts = np.zeros(3_000, np.int64)
    for number in range(3_000):
        counts[members(fixed(3_000, 20), number, peers, 1)] += 1
    assert float(((counts - 20) ** 2 / 20).sum()) < 3_300  # 2,999 degrees of freedom: four standard deviations


def test_clustered_members_come_from_as_few_domains_as_hold_twice_the_group(peers: Peers) -> None:
    domains = np.bincount(peers.domain)
    workload, even = fixed(50, 60, placement="clustered"), fixed(50, 60)
    for number in range(50):
        found = members(workload, number, peers, 1)
        assert len(set(found.tolist())) == 60
        homes = np.unique(peers.domain[found])
        assert int(domains[homes].sum()) < 120 + int(domains.max())
        assert len(homes) < len(np.unique(peers.domain[members(even, number, peers, 1)]))
    everywhere = members(fixed(1, 3_000, placement="clustered"), 0, peers, 1)
    assert everywhere.tolist() == list(range(3_000))


def test_other_domains_make_other_clusters(peers: Peers) -> None:
    """The index of the last deployment's domains is kept; another deployment must not get it."""
    workload = fixed(1, 20, placement="clustered")
    halves = Peers(peers.ids, peers.place, (np.arange(3_000) // 1_500).astype(np.int32))
    assert len(np.unique(peers.domain[members(workload, 0, peers, 1)])) > 1
    assert len(np.unique(halves.domain[members(workload, 0, halves, 1)])) == 1


def test_a_group_larger_than_the_deployment_is_refused(peers: Peers) -> None:
    with pytest.raises(LocalError, match="group 1 needs 3,001 peers, the deployment has 3,000; use more peers"):
        members(fixed(2, 3_001), 1, peers, 1)


def test_a_spread_below_one_is_refused() -> None:
    with pytest.raises(LocalError, match=r"spread over 0\.5 times"):
        fixed(2, 10, placement="clustered", spread=0.5)


def test_a_group_has_a_key_and_a_seed_of_its_own(peers: Peers) -> None:
    groups = [group(fixed(5, 3), number, peers, 1) for number in range(5)]
    assert len({one.key for one in groups}) == len({one.seed for one in groups}) == 5
    assert [one.key for one in groups] == [module.key(number, 1) for number in range(5)]
    assert all(0 <= one.key < 1 << 64 for one in groups)


def test_publishers_are_the_root_a_creator_or_some_members(peers: Peers) -> None:
    found = group(fixed(5, 11), 2, peers, 1)
    assert publishers("root", found, 77).tolist() == [77]
    made = publishers("creator", found, 77, count=4)
    assert made.tolist() == [creator(found)]
    assert made[0] in found.members
    some = publishers("members", found, 77, count=4)
    assert len(set(some.tolist())) == 4
    assert set(some.tolist()) <= set(found.members.tolist())
    assert publishers("members", found, 77, count=99).tolist() == found.members.tolist()


def test_a_saved_workload_gives_the_same_members(peers: Peers, tmp_path: Path) -> None:
    for number, made in enumerate([fixed(3, 11, placement="clustered"), teams(3_000)]):
        made.save(tmp_path / str(number))
        mapped = Workload.open(tmp_path / str(number))
        assert (len(mapped), mapped.name) == (len(made), made.name)
        assert members(mapped, 2, peers, 1).tolist() == members(made, 2, peers, 1).tolist()


# By name


@pytest.mark.parametrize(
    ("named", "size", "sizes"),
    [
        ("uniform", None, [100, 42, 25]),
        ("uniform", 7, [7, 7, 7]),
        ("clustered(8)", None, [8, 8, 8]),
        ("rust-teams", None, [97, 65, 55]),
    ],
)
def test_workloads_of_our_own_are_registered_like_those_of_others(
    named: str, size: int | None, sizes: list[int]
) -> None:
    """They need the number of peers only, so the network is not made for them."""
    peers = 1000 if named == "rust-teams" else 100
    asked = experiment.Workload(groups=3, size=size, members=named)
    made = workload_of(experiment.Experiment(peers=peers, policies=("star",), topology="nowhere", workload=asked))
    assert made.sizes.tolist() == sizes
    assert made.placement == ("clustered" if named.startswith("clustered") else "uniform")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("rust-teams", "workload rust-teams takes no size; leave it out"),
        ("members.tsv", "the groups of members.tsv have sizes of their own; leave size out"),
        ("uniform(many)", r"the size in uniform\(many\) must be a number of members"),
        ("uniform(1, 2)", "uniform takes size: int"),
        ("unifrom", "No such file or directory; name another file, or clustered, rust-teams, uniform"),
    ],
)
def test_a_workload_that_cannot_be_is_refused(named: str, told: str) -> None:
    size = None if named.startswith("unif") else 5
    asked = experiment.Workload(groups=3, size=size, members=named)
    with pytest.raises(LocalError, match=told):
        workload_of(experiment.Experiment(peers=1000, policies=("star",), workload=asked))


# Real membership


def teams(peers: int, groups: int = 1500) -> Workload:
    made: Workload = WORKLOADS.make("rust-teams", None, range(peers), groups, 1)
    return made


def test_rust_teams_are_in_the_box(peers: Peers) -> None:
    made = teams(3_000)
    assert (len(made), made.group_names[0], int(made.sizes[0])) == (193, "compiler", 97)
    assert bool((np.diff(made.sizes) <= 0).all())
    assert teams(657, 10).sizes.tolist() == made.sizes[:10].tolist()


def test_one_subscriber_is_the_same_peer_in_all_groups(peers: Peers, tmp_path: Path) -> None:
    path = tmp_path / "genres.json.gz"
    path.write_bytes(gzip.compress(b'{"u": ["Rock", "Pop"], "v": ["Pop"], "w": ["Pop", "Rock"], "x": ["Solo"]}'))
    genres = real(path, 3_000)
    assert genres.group_names == ["Pop", "Rock"]  # nobody hears a group of one
    pop, rock = (set(members(genres, number, peers, 1).tolist()) for number in range(2))
    assert (len(pop), len(rock)) == (3, 2)
    assert rock < pop
    assert set(members(genres, 0, peers, 2).tolist()) != pop


def test_tables_of_pairs_are_read_once_each(tmp_path: Path) -> None:
    path = tmp_path / "deps.tsv"
    path.write_text("topic\tsubscriber\nlibc\ta\nlibc\tb\nlibc\ta\nzlib\ta\nzlib\tb\nzlib\tc\n")
    assert real(path, 3_000).sizes.tolist() == [3, 2]


@pytest.mark.parametrize("separator", ["\t", ";", ",", " "])
def test_tables_need_no_header_and_have_any_separator(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "deps"
    pairs = [("libc", "a"), ("libc", "b"), ("solo", "c")]
    path.write_text("".join(f"{separator.join(pair)}\n" for pair in pairs))
    for header in ("", f"topic{separator}subscriber\n"):
        path.write_text(header + "".join(f"{separator.join(pair)}\n" for pair in pairs))
        assert real(path, 3_000).name == "deps, 1 groups; 1 of one left out"


def test_groups_left_out_are_told() -> None:
    assert teams(3_000).name == "rust-teams, 193 groups; 14 of one left out"
    assert teams(3_000, 10).name == "rust-teams, 10 groups; 14 of one left out; 183 smaller ones left out"


def test_fewer_peers_than_subscribers_are_refused() -> None:
    with pytest.raises(LocalError, match=r"membership rust-teams has 65\d subscribers for 100 peers; use more peers"):
        teams(100)
    few = attach(transit_stub(1, 1, 1, 1, 1), 100, 1)
    with pytest.raises(LocalError, match=r"needs \d+ peers, the deployment has 100"):
        members(teams(3_000), 1, few, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", "topic\tsubscriber\nlibc\n", "it is a table of 2 lines and 1 to 2 columns .* by tabs; expected:"),
        ("x.txt", "a group of words\n", "it is a table of 1 lines and 4 columns separated by blanks; expected:"),
        ("x.tsv", "", "it is empty; expected: a table"),
        ("x.json", "[1]", "it is JSON, but not an object from each subscriber to a list of groups; expected:"),
        ("x.json", '{"a": 1}', "it is JSON, but not an object from each subscriber"),
        ("x.json", "{", "is damaged: Expecting property name"),
        ("x.tsv", "topic\tsubscriber\nlibc\ta\n", "has no group of 2 or more"),
        ("x.tsv.gz", "no gzip", "cannot read membership"),
    ],
)
def test_damaged_membership_is_refused_in_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(LocalError, match=message) as raised:
        real(path, 3_000)
    assert "\n" not in str(raised.value)


def test_membership_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file or directory; name another file, or clustered, rust-teams, un"):
        real(tmp_path / "none.tsv", 3_000)
