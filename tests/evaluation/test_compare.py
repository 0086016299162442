"""Figures out of tables, and verdicts out of figures; no Spark here."""

import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quillcast.core.errors import LocalError
from quillcast.evaluation import recommend
from quillcast.evaluation.command import WIDTH
from quillcast.evaluation.experiment import Published
from quillcast.evaluation.recommend import (
    Wish,
    at_size,
    candidates,
    experiment_of,
    judge,
    memberships_over,
    recommend_command,
    words,
)
from quillcast.evaluation.report.figures import RATIOS, beside_published, label, number, of_churn, percentile, summary
from quillcast.evaluation.seeds import combined, interval, parse_seeds

HISTOGRAMS = {
    ("peer", "tables"): [(0.0, 2), (1.0, 1), (5.0, 1)],
    ("peer", "entries"): [(0.0, 1), (2.0, 1), (4.0, 1), (10.0, 1)],
    ("peer", "state"): [(1.0, 2), (3.0, 2)],
    ("peer", "messages"): [(1.0, 3), (7.0, 1)],
    ("peer", "ip_messages"): [(1.0, 4)],
    ("link", "messages"): [(0.0, 1), (6.0, 1)],
    ("link", "ip_messages"): [(0.0, 1), (4.0, 1)],
}


def test_a_summary_of_small_tables_by_hand() -> None:
    delays = {"rad": [1.5, 1.0, math.nan, 3.0], "rmd": [2.0, 1.0, math.nan, 4.0], "children_max": [3, 9, 0, 1]}
    delays |= {"rad_from_root": [1.0, 1.0, math.nan, 2.0], "rmd_from_root": [1.0, 2.0, math.nan, 3.0]}
    delays |= {"members": [3, 2, 1, 4], "hops": [2.0, 1.0, math.nan, 2.0]}
    assert summary(delays, HISTOGRAMS, ["hops"]) == {
        "rad": {"median": 1.5, "p90": 3.0, "p99": 3.0, "max": 3.0},
        "rmd": {"median": 2.0, "p90": 4.0, "p99": 4.0, "max": 4.0},
        "rad_from_root": {"median": 1.0, "p90": 2.0, "p99": 2.0, "max": 2.0},
        "rmd_from_root": {"median": 2.0, "p90": 3.0, "p99": 3.0, "max": 3.0},
        "hops": {"median": 2.0, "p90": 2.0, "p99": 2.0, "max": 2.0},
        "by_size": [
            {
                "members_min": 2,
                "members_max": 3,
                "events": 2,
                "rad": {"median": 1.25, "p90": 1.5, "p99": 1.5, "max": 1.5},
                "rmd": {"median": 1.5, "p90": 2.0, "p99": 2.0, "max": 2.0},
            },
            {
                "members_min": 4,
                "members_max": 7,
                "events": 1,
                "rad": dict.fromkeys(("median", "p90", "p99", "max"), 3.0),
                "rmd": dict.fromkeys(("median", "p90", "p99", "max"), 4.0),
            },
        ],
        "tables": {"mean": 1.5, "median": 0.5, "p99": 5.0, "max": 5.0},
        "entries": {"mean": 4.0, "median": 3.0, "p99": 10.0, "max": 10.0},
        "state": {"mean": 2.0, "median": 2.0, "p99": 3.0, "max": 3.0},
        "children_per_group_max": 9,
        "messages": 16.0,
        "messages_over_ip": 2.0,
        "link_mean": 16 / 6,
        "link_p99": 7.0,
        "link_max": 7.0,
        "link_max_over_ip": 1.75,
        "core_link_max_over_ip": 1.5,
    }


def test_without_links_their_figures_are_left_out() -> None:
    of_peers = {key: counts for key, counts in HISTOGRAMS.items() if key[0] == "peer"}
    told = summary({name: [] for name in (*RATIOS, "children_max", "members")}, of_peers)
    assert told["core_link_max_over_ip"] is None
    assert told["rad"] == {"median": None, "p90": None, "p99": None, "max": None}


def test_published_figures_are_shown_beside_those_of_policies_that_were_run() -> None:
    told = {"a": {"messages": 30.0, "rad": {"median": 1.5}}, "b": {"messages": 20.0}}
    published = (
        Published(policy="a", figure="rad.median", value=1.68, source="s"),
        Published(policy="a", figure="messages", over="b", value=1.85, source="s"),
        Published(policy="c", figure="messages", value=1, source="s"),
    )
    rows = beside_published(told, published)
    assert [(row.figure, row.published, row.ours) for row in rows] == [
        ("rad.median", 1.68, 1.5),
        ("messages over that of b", 1.85, 1.5),
    ]


def test_percentiles_are_values_that_occur() -> None:
    hundred = [float(value) for value in range(1, 101)]
    assert [percentile(hundred, share) for share in (1, 90, 99, 100)] == [1, 90, 99, 100]
    assert percentile([5.0], 99) == 5


def test_an_interval_over_seeds_is_students() -> None:
    """Student's own ten differences (1908): mean 1.58, and t = 4.06 for a difference of nothing."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    told = interval(gained)
    assert (round(told.mean, 2), told.least, told.most) == (1.58, 0.0, 4.6)
    assert (round(told.low, 2), round(told.high, 2)) == (0.70, 2.46)
    assert interval([3.0]) == (3.0, None, None, 3.0, 3.0)


def test_seeds_are_told_as_ranges() -> None:
    assert parse_seeds("1-3, 7,9-10") == [1, 2, 3, 7, 9, 10]
    for wrong in ("", "1-", "3-1", "a", "1,1", "1-5000"):
        with pytest.raises(LocalError, match="seeds"):
            parse_seeds(wrong)


def test_figures_of_several_seeds_are_means_with_intervals() -> None:
    results = [{"rad": {"median": rad}, "core": core, "by_size": []} for rad, core in ((1.0, 2.0), (3.0, None))]
    means, intervals = combined(results)
    assert means == {"rad": {"median": 2.0}, "core": None}, "unknown if it is for one of them"
    assert list(intervals) == ["rad.median"]
    assert (intervals["rad.median"]["min"], intervals["rad.median"]["max"]) == (1.0, 3.0)


def test_churn_is_summed_over_groups_that_lost_a_member() -> None:
    repairs = {"killed": [1, 0], "cut_off": [4, 0], "orphans": [2, 0], "messages": [5, 0], "max_ms": [30.0, 0.0]}
    told = of_churn(repairs)
    assert (told["killed"], told["cut_off"], told["messages_per_orphan"]) == (1, 4, 2.5)
    assert (told["repair_ms_median"], told["repair_ms_max"]) == (30.0, 30.0)


def test_numbers_for_people() -> None:
    assert [number(value) for value in (None, 2.0, 1.678, 2_489_824.0, 123.4)] == ["–", "2", "1.68", "2,489,824", "123"]


def figures(rad: float, messages: float, children: int, link: float | None, entries: float = 4) -> dict[str, Any]:
    return {
        "rad": {"median": rad, "max": 2.0},
        "rmd": {"median": rad, "max": 2.0},
        "messages_over_ip": messages,
        "children_per_group_max": children,
        "core_link_max_over_ip": link,
        "entries_per_peer": entries,
    }


POLICIES = {
    "star": figures(1.0, 6.0, 999, 40.0),
    "scribe": figures(1.5, 3.0, 64, 5.0),
    "scoped": figures(1.2, 2.0, 16, 3.0),
}


def test_the_best_is_the_fastest_that_keeps_the_limits() -> None:
    free = judge(Wish(peers=1000, groups=10), POLICIES)
    assert [verdict.policy for verdict in free] == ["star", "scoped", "scribe"]
    wish = Wish(peers=1000, groups=10, children_max=64, link_stress_max=10)
    bound = judge(wish, POLICIES)
    assert [(verdict.policy, verdict.against) for verdict in bound] == [
        ("scoped", []),
        ("scribe", []),
        ("star", ["999 children", "40.0 times IP multicast's worst core link"]),
    ]
    told = words(wish, bound)
    assert told.startswith(
        "scoped serves 1,000 peers best: median RAD 1.2, 2 times the messages of IP multicast, 4 entries per peer;"
    )
    assert told.endswith(
        "with the next best, scribe, events take 25 % longer, at 50 % more messages and 0 % more entries"
    )


def test_a_tree_for_each_publisher_is_recommended_with_its_entries_unless_they_are_too_many() -> None:
    policies = {"shared": figures(2.15, 1.8, 16, 2.0, 3.95), "shared+source": figures(1.12, 1.8, 16, 2.0, 15.8)}
    free = Wish(peers=1000, groups=10)
    assert words(free, judge(free, policies)) == (
        "shared+source serves 1,000 peers best: median RAD 1.12, 1.8 times the messages of IP multicast, 15.8 entries "
        "per peer (a tree for each publishing peer); with the next best, shared, events take 92 % longer, at 0 % more "
        "messages and 75 % fewer entries"
    )
    bound = free._replace(entries_max=10)
    assert [(verdict.policy, verdict.against) for verdict in judge(bound, policies)] == [
        ("shared", []),
        ("shared+source", ["15.8 entries per peer"]),
    ]
    assert "scoped+improve(8)+source" in candidates(8)


def test_policies_are_shown_by_their_whole_names() -> None:
    tried = {policy: figures(2.15, 1.8, 16, 2.0, 15.8) for policy in candidates(16)}
    wish = Wish(peers=1000, groups=10, entries_max=10)
    shown = io.StringIO()
    recommend._show(judge(wish, tried), "why", "report", Console(file=shown, width=WIDTH))
    for policy in tried:
        assert re.search(rf"^{re.escape(policy)} ", shown.getvalue(), re.MULTILINE)
    assert shown.getvalue().count("15.8 entries per peer") == len(tried)


@pytest.mark.parametrize(("size", "more"), [(None, 1.17), (30, 2.0)])
def test_entries_are_told_for_the_memberships_of_the_whole_deployment(size: int | None, more: float) -> None:
    """Of the papers' law the sample has the first ranks; of groups of one size a share, among as many fewer peers."""
    wish = Wish(peers=100_000, groups=3000, size=size)
    assert memberships_over(wish, experiment_of(wish)) == pytest.approx(more, rel=0.01)
    small = Wish(peers=500, groups=20)
    assert memberships_over(small, experiment_of(small)) == 1


def test_the_answer_may_be_that_no_policy_keeps_the_limits() -> None:
    wish = Wish(peers=1000, groups=10, children_max=2)
    assert words(wish, judge(wish, POLICIES)) == "no policy keeps the limits; star comes nearest, with 999 children"


@pytest.mark.parametrize("topology", ["aws", "a matrix"])
def test_link_stress_cannot_be_bound_where_links_are_unknown(topology: str, tmp_path: Path) -> None:
    """Said before the run: it makes no folder, and starts no Spark."""
    path = tmp_path / "a matrix"
    path.write_text("0 10\n10 0\n")
    named = str(path) if topology == "a matrix" else topology
    wish = Wish(peers=1000, groups=10, topology=named, link_stress_max=3)
    with pytest.raises(LocalError, match=f"{named} has no links, so --link-stress-max cannot be checked; leave it out"):
        recommend_command(wish, tmp_path / "run", master="local[1]", remote=None, as_json=True)
    assert not (tmp_path / "run").exists()


def test_a_bound_is_not_recommended() -> None:
    """The docs call `delay_optimised` a bound and not a protocol: its root knows all members and delays beforehand."""
    assert not any("delay_optimised" in policy for policy in candidates(None))
    with pytest.raises(LocalError, match=r"delay_optimised\(8\) is a bound and not a protocol, so it cannot be recomm"):
        experiment_of(Wish(peers=1000, groups=10, policies=("scribe", "delay_optimised(8)")))


def test_real_subscribers_are_all_in_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "members.tsv"
    path.write_text("".join(f"g{at % 7}\tu{at}\n" for at in range(12_000)) + "".join(f"h\tu{at}\n" for at in range(50)))
    wish = Wish(peers=20_000, groups=1000, members=str(path))
    sample = experiment_of(wish)
    assert (sample.peers, sample.workload.groups) == (12_000, 8)
    counted = at_size(wish, sample)
    assert counted is not None
    assert (counted.peers, counted.workload.groups) == (20_000, 8)
    assert experiment_of(wish._replace(peers=12_000)).peers == 12_000
    with pytest.raises(LocalError, match="membership members has 12,000 subscribers for 11,000 peers; use more peers"):
        experiment_of(wish._replace(peers=11_000))
    monkeypatch.setattr(recommend, "AT_SIZE_COST", 10_000)
    assert experiment_of(wish).workload.groups < 8, "only the largest"


def test_a_sample_is_smaller_and_its_groups_are_not() -> None:
    asked = experiment_of(Wish(peers=1_000_000, groups=15_000))
    assert (asked.peers, asked.workload.groups) == (10_000, 150)
    assert experiment_of(Wish(peers=500, groups=20)).workload.groups == 20
    assert "scoped+improve(8)" in experiment_of(Wish(peers=500, groups=20, children_max=8)).policies


def test_children_of_policies_without_a_cap_are_counted_at_full_size() -> None:
    wish = Wish(peers=1_000_000, groups=15_000)
    counted = at_size(wish, experiment_of(wish))
    assert counted is not None
    assert counted.policies == ("scribe", "scribe+collapse")
    assert (counted.peers, counted.workload.groups) == (1_000_000, 15_000)
    fixed = Wish(peers=100_000, groups=1000, size=11, policies=("scribe",))
    counted = at_size(fixed, experiment_of(fixed))
    assert counted is not None
    assert (counted.peers, counted.workload.groups) == (100_000, 1000), "few members: all groups"
    huge = at_size(wish._replace(peers=10_000_000), experiment_of(wish))
    assert huge is not None
    assert 1 < huge.workload.groups < 100, "only the largest"
    small = Wish(peers=500, groups=20)
    assert at_size(small, experiment_of(small)) is None, "the sample is the deployment"
    capped = Wish(peers=1_000_000, groups=15_000, policies=("scoped+improve(16)", "scribe+remover(64)", "k_ary(4)"))
    assert at_size(capped, experiment_of(capped)) is None


def test_a_policy_that_was_not_evaluated_for_all_groups_is_named_so() -> None:
    told = {"rad": {"median": 1.0, "max": 1.0}}
    assert label("narada(256)", told | {"groups_left_out": 1118}) == "narada(256), without the 1,118 largest groups"
    assert label("narada", told | {"groups_left_out": 15.0}) == "narada, without the 15 largest groups", "of all seeds"
    assert label("scribe", told) == "scribe"
