"""Valid experiments, and clear errors for invalid ones."""

from pathlib import Path

import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation.experiment import load, names, parse, split

SMALL = 'peers = 100\npolicies = ["scribe"]\n[workload]\ngroups = 3\n'


def test_everything_that_the_documents_name_is_built_in() -> None:
    assert {"scribe-2002", "scribe-2002-small-groups", "policies", "internet-1m", "internet-10m", "churn"} <= set(
        names()
    )
    assert [load(name).name for name in names()] == names()


def test_scribe_2002_is_the_papers_deployment() -> None:
    """Scribe, section 6: 100,000 nodes, 1,500 groups; figures as in the evaluation's text."""
    asked = load("scribe-2002")
    assert (asked.peers, asked.workload.groups, asked.workload.size) == (100_000, 1500, None)
    told = {(each.policy, each.figure): each.value for each in asked.published}
    assert told["scribe", "messages"] == 2_489_824
    assert told["scribe", "entries.max"] == 1059


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pears = 3", "f.toml: unknown setting pears (did you mean peers?); there are: name, title, topology, peers"),
        (SMALL + "sise = 3", "f.toml: unknown setting workload.sise (did you mean workload.size?)"),
        ('policies = ["scribe"]', "f.toml: there is no setting peers"),
        ('peers = "many"\npolicies = ["scribe"]', "f.toml: peers: expected int, got str"),
        ("peers = 1\npolicies = []", "f.toml: peers is 1; it must be from 2 to"),
        (SMALL.replace('["scribe"]', "[]"), "f.toml: policies is empty; name one, such as scribe"),
        ('peers = 100\npolicies = ["star", "star"]\n[workload]\ngroups = 3', "f.toml: policies names star twice"),
        (SMALL + "size = 101", "f.toml: workload.size is 101; it must be from 2 to peers, 100"),
        (
            SMALL.replace("3", "80"),
            "100 peers are too few for 80 groups, the last of which would have 0 members; use at",
        ),
        (SMALL + 'publishers = "me"', "workload.publishers: there is no 'me'; there are: root, creator, members"),
        (SMALL + "[overlay]\nleaf_set_size = 7", "overlay.leaf_set_size is 7; it must be even"),
        (SMALL + "[churn]\nfraction = 1.5", "churn.fraction is 1.5; it must be above 0 and below 1"),
        (SMALL + "[overlay]\ndigit_bits = 3", "f.toml: overlay.digit_bits is 3; it must be one of 1, 2, 4, 8"),
        (
            SMALL + "[overlay]\nquality = 'sampled(0)'",
            "f.toml: overlay.quality is 'sampled(0)'; it must be ideal, sampled(k)",
        ),
        ("peers = ", "f.toml is not valid TOML: Invalid value (at end of document)"),
    ],
)
def test_an_invalid_file_names_the_setting(text: str, told: str) -> None:
    with pytest.raises(LocalError) as refused:
        parse(text, "f.toml")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_experiment_may_use_every_group_that_exists() -> None:
    with pytest.raises(LocalError, match="use at most 28 groups"):
        parse(SMALL.replace("3", "29"), "f.toml")
    assert parse(SMALL.replace("3", "28"), "f.toml").workload.groups == 28


def test_an_unknown_name_is_answered_with_the_built_in_ones() -> None:
    with pytest.raises(
        LocalError, match=r"no file scribe-2003 \(did you mean scribe-2002(-small-groups)?\?\); built-in: churn,"
    ):
        load("scribe-2003")


def test_a_file_is_named_after_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    assert load(str(path)).name == "mine"


def test_options_change_the_experiment_and_take_away_figures_of_another_size() -> None:
    asked = load("scribe-2002")
    assert asked.with_(peers=None, policies=("star",)).published == asked.published
    smaller = asked.with_(peers=2000, groups=30, seed=7)
    assert (smaller.peers, smaller.workload.groups, smaller.seed, smaller.published) == (2000, 30, 7, ())
    assert smaller.title == f"{asked.title} (changed to 2,000 peers, 30 groups)"
    with pytest.raises(LocalError, match="the options: 2000 peers are too few for 1500 groups"):
        asked.with_(peers=2000)


def test_runs_share_tables_if_all_but_names_and_policies_is_equal() -> None:
    asked = load("scribe-2002")
    assert asked.identity == asked.with_(policies=("star",)).identity
    assert asked.identity != asked.with_(seed=2).identity


def test_commas_in_parentheses_part_no_policies() -> None:
    assert split("scribe+remover(64), stripes(16,32),star") == ("scribe+remover(64)", "stripes(16,32)", "star")
