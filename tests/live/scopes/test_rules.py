"""The rules of a running scope: those that were set go before those of the file."""

import hashlib
from pathlib import Path

import pytest

from quillcast.core.errors import LocalError
from quillcast.live.scopes.beside import PolicyBeside
from quillcast.live.scopes.rules import Rules
from quillcast.protocol.scopes.config import ScopeFileWrong, TopicRule, parse
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.star import Star

TEXT = """
name = "site"
[admission]
members = ["a0000000000000000000000000000000"]
[[topics]]
pattern = "news/#"
parameters = { fan_out = 3 }
[[topics]]
pattern = "chat/+"
policy = "star"
recovery = "ring"
"""
HUB = (Path(__file__).parents[3] / "examples" / "policies" / "pinned_file" / "around_hub.py").read_text()


def rules(folder: Path | None = None) -> Rules:
    file = str((folder or Path()) / "site.toml")
    return Rules(parse(TEXT, file), [].append)


def put(into: Rules, pattern: str, policy: str, **parameters: object) -> None:
    into.set(into.opened(TopicRule(pattern=pattern, policy=policy, parameters=parameters)))


def test_the_latest_rule_that_was_set_decides_and_the_file_again_once_it_is_unset() -> None:
    site = rules()
    assert site.policy("news/today") == KAry(fan_out=3)
    put(site, "news/#", "chain")
    put(site, "news/today", "star")
    assert (site.policy("news/today"), site.policy("news/old")) == (Star(), Chain())
    put(site, "#", "k_ary", fan_out=2)
    assert [rule.pattern for rule in site.settings] == ["#", "news/today", "news/#"]
    assert site.policy("chat/room") == site.policy("news/today") == KAry(fan_out=2)
    site.unset("#")
    site.unset("news/today")
    assert (site.policy("news/today"), site.policy("chat/room")) == (Chain(), Star())
    put(site, "news/#", "star")
    assert [rule.policy for rule in site.settings] == ["star"]


def test_members_repair_as_the_file_says_whatever_policy_is_set() -> None:
    site = rules()
    put(site, "#", "chain")
    assert (site.recovery("news/today"), site.recovery("chat/room"), site.recovery("sport")) == ("tree", "ring", "tree")


def test_a_rule_that_was_set_does_not_let_other_topics_in() -> None:
    site = rules()
    put(site, "#", "chain")
    assert site.policy("sport") is None
    with pytest.raises(LocalError, match="no rule of scope site matches sport; there are rules for: news/#, chat"):
        put(site, "sport", "chain")


def test_what_is_unknown_is_refused_with_what_there_is_and_changes_nothing() -> None:
    site = rules()
    put(site, "news/#", "chain")
    for pattern, policy, parameters, why in [
        ("news/#", "stars", {}, r"no policy 'stars' \(did you mean star\?\); known: star, k_ary"),
        ("news/#", "k_ary", {"fan": 2}, r"no parameter fan \(did you mean fan_out\?\); it has: fan_out"),
        ("news/#", "hub.py:AroundHub", {}, "cannot read hub.py"),
        ("news/#", "policies/hub.py:AroundHub", {}, "name the file without its folder; it is beside the scope's file"),
        ("a#", "chain", {}, "mixes a wildcard with a name"),
    ]:
        with pytest.raises(LocalError, match=why):
            put(site, pattern, policy, **parameters)
    with pytest.raises(LocalError, match="no policy is set for chat/\\+; there are policies set for: news/#"):
        site.unset("chat/+")
    assert [(rule.pattern, rule.policy) for rule in site.settings] == [("news/#", "chain")]


def test_rules_are_restored_in_their_order_and_a_policy_that_is_gone_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "hub.py").write_text(HUB)
    sha256 = hashlib.sha256(HUB.encode()).hexdigest()
    site = rules(tmp_path)
    put(site, "news/#", "chain")
    hub = site.opened(TopicRule(pattern="news/today", policy="hub.py:AroundHub", sha256=sha256))
    site.set(hub)
    site.close()
    again = rules(tmp_path)
    assert again.restore(site.settings) == []
    assert again.settings == site.settings
    assert isinstance(again.policy("news/today"), PolicyBeside)
    again.close()
    (tmp_path / "hub.py").unlink()
    without = rules(tmp_path)
    (told,) = without.restore(site.settings)
    assert without.policy("news/today") == Chain()
    assert told.startswith("scope site: the policy set for news/today is left out: policy hub.py:AroundHub: cannot")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (
            'policy = "chain"\nfilter = { except = { custom = { name = "nope" } } }',
            "8: there is no filter 'nope'; inst",
        ),
        ('policy = "chains"', "7: there is no policy 'chains' "),
        ('recovery = "rings"', "7: there is no recovery protocol 'rings'"),
    ],
)
def test_a_manager_does_not_start_with_what_nobody_offers_and_names_the_line(wrong: str, why: str) -> None:
    text = f'name = "site"\n[admission]\njoin_line = true\n\n[[topics]]\npattern = "news/#"\n{wrong}\n'
    with pytest.raises(ScopeFileWrong) as refused:
        Rules(parse(text, "site.toml"), [].append)
    assert str(refused.value).startswith(f"site.toml:{why}")
