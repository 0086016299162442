"""Scope files: what is in them, and what is said of those with faults."""

from textwrap import dedent

import msgspec
import pytest

from quillcast.core.ids import topic_id
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import (
    Allowed,
    Described,
    FilterTable,
    ScopeFileWrong,
    TopicRule,
    check_together,
    examined,
    parse,
)
from quillcast.protocol.scopes.filters import (
    AddTag,
    Custom,
    Either,
    Every,
    Except,
    Modulo,
    Sample,
    Senders,
    Tagged,
    Topics,
)
from quillcast.protocol.scopes.rights import why_not
from quillcast.protocol.scopes.uses import Doing

ALICE = "00112233445566778899aabbccddeeff"
SITE = f"""\
name = "site"
superscopes = ["campus", "city"]

[admission]
members = ["{ALICE}", "library"]
join_line = true
certificate = {{ organizational_unit = "Physics" }}

[limits]
members_max = 200
bytes_per_s = 10_000_000

[[topics]]
pattern = "sport/#"
root = true
policy = "stripes"
parameters = {{ stripes = 8 }}
publishers_max = 16

[[topics]]
pattern = "news/+"
filter = {{ every = [{{ modulo = {{ n = 2, k = [0] }} }}, {{ add_tag = "half" }}] }}

leaving_bundles_per_s = 9

[topics.parameters]
fan_out = 3
"""


def scope(name: str, *, above: str = "", topics: str = "") -> Described:
    superscopes = ", ".join(f'"{each}"' for each in above.split())
    text = f'name = "{name}"\nsuperscopes = [{superscopes}]\n{topics}[admission]\njoin_line = true\n'
    return parse(text, f"{name}.toml")


def test_a_file_describes_a_scope() -> None:
    described = parse(SITE, "site.toml").scope
    assert (described.name, described.superscopes) == ("site", ("campus", "city"))
    assert described.admission.members == (ALICE, "library")
    assert described.limits.bytes_per_s == 10_000_000
    assert described.topics[0].parameters == {"stripes": 8}
    assert described.topics[1].parameters == {"fan_out": 3}


@pytest.mark.parametrize(
    ("more", "policy", "line", "why"),
    [
        ("", "k_ary", 6, 'no rule has a policy that uses multicast: write policy = "ip_multicast" in one, or set'),
        ("entry_points = 2", "ip_multicast", 6, "by multicast, bundles enter at all members at once: remove"),
        ("", "ip_multicast", 0, ""),
        ("", "mine.py:Mine", 0, ""),
    ],
)
def test_bundles_enter_by_multicast_only_where_a_policy_uses_it(more: str, policy: str, line: int, why: str) -> None:
    text = 'name = "site"\nsuperscopes = ["campus"]\n[admission]\njoin_line = true\n[channels]\nmulticast = true\n'
    described = examined(f'{text}{more}\n[[topics]]\npattern = "#"\npolicy = "{policy}"\n', "site.toml")
    assert [fault.line for fault in described.faults] == ([line] if line else [])
    assert all(fault.text.startswith(why) for fault in described.faults)


def test_the_first_rule_that_fits_decides_and_other_topics_are_refused() -> None:
    described = parse(SITE, "site.toml").scope
    assert described.rule("sport/tennis") is described.topics[0]
    assert described.rule("news/today") is described.topics[1]
    assert described.rule("weather") is None


def test_without_rules_all_topics_go_by_a_tree() -> None:
    described = scope("lab").scope
    rule = described.rule("anything/at/all")
    assert rule is not None
    assert (rule.policy, rule.root) == ("k_ary", False)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('name = "site"', 'name = "Site!"', "site.toml:1: name: 'Site!' is not a scope's name; use lower-case letters"),
        ('name = "site"', 'nam = "site"', "site.toml:1: unknown key nam (did you mean name?); there are: name, super"),
        ('name = "site"', "", "site.toml:1: missing required field name"),
        ("members_max = 200", 'members_max = "200"', "site.toml:10: limits.members_max: expected int, got str"),
        ("members_max = 200", "members_max = 0", "site.toml:10: limits.members_max: expected int >= 1"),
        ("members_max = 200", "member_max = 200", "site.toml:10: unknown key member_max (did you mean members_max?)"),
        ("publishers_max = 16", "publisher_max = 16", "site.toml:18: unknown key publisher_max (did you mean"),
        ("publishers_max", "leaving_bytes_per_s", "site.toml:18: topics of sport/# are rooted at the scope, so no"),
        ('pattern = "sport/#"', 'pattern = "sport/#/x"', "site.toml:14: pattern 'sport/#/x': # is not the last part;"),
        ('"news/+"', '"sport/golf"', "site.toml:21: no topic gets here: the rule for sport/# above decides for"),
        ("root = true", 'sha256 = "00"', "site.toml:15: topics[0].sha256: '00' is not a hash; write the 64"),
        ("root = true", f'sha256 = "{"0" * 64}"', "site.toml:15: policy stripes is not in a file; remove sha256, or"),
        ('"library"', '"001122334455667788"', "site.toml:5: member '001122334455667788' is neither a nodeId of 32 hex"),
        ("organizational_unit", "organisational_unit", "site.toml:7: certificates have no attribute organis"),
        ('["campus", "city"]', '["campus", "A B"]', "site.toml:2: superscopes[1]: 'A B' is not a superscope;"),
        ('["campus", "city"]', '["campus", "campus"]', "site.toml:2: superscope campus is named twice; remove one"),
        ("modulo =", "modula =", "site.toml:22: unknown key modula (did you mean modulo?); there are: modulo, topics,"),
        ("k = [0]", "k = [2]", "site.toml:22: Modulo(2, (2,)): n is from 1 to 65536, and each k from 0 to n - 1"),
        ("k = [0]", "k = []", "site.toml:22: topics[1].filter.every[0].modulo.k: expected array of length >= 1"),
        ('add_tag = "half"', "", "site.toml:22: a filter has one key, and this has 0; choose one of modulo, topics,"),
        ('add_tag = "half"', 'senders = ["x"]', "site.toml:22: sender 'x' is not a nodeId; give its 32 hexadecimal"),
        ('add_tag = "half"', 'add_tag = "a,b"', "site.toml:22: topics[1].filter.every[1].add_tag: expected str"),
        ('["campus", "city"]', '["campus", "city"', "site.toml:4: this is not valid TOML: "),
    ],
)  # fmt: skip
def test_a_fault_names_file_line_and_remedy(old: str, new: str, expected: str) -> None:
    with pytest.raises(ScopeFileWrong) as wrong:
        parse(SITE.replace(old, new, 1), "site.toml")
    assert str(wrong.value).startswith(expected)


def test_nobody_could_be_admitted() -> None:
    with pytest.raises(ScopeFileWrong, match=r"lab.toml:2: nobody can be admitted; give members, join_line = true, or"):
        parse('name = "lab"\n[admission]\n', "lab.toml")


def test_all_faults_are_told_in_the_order_of_lines() -> None:
    text = """\
        nam = "lab"
        superscopes = ["city", "city"]
        [admission]
        joinline = true
        certificate = { planet = "Earth" }
        [limits]
        members_max = 0
        bytes_per_s = "fast"
        [[topics]]
        policy = 3
        [[topics]]
        pattern = "a/#/b"
        filter = { every = [{ modulo = { n = 0, k = [0] } }, { tag = "x" }, 5] }
        """
    with pytest.raises(ScopeFileWrong) as wrong:
        parse(dedent(text), "lab.toml")
    assert [(fault.line, fault.text.partition(";")[0].partition("(")[0]) for fault in wrong.value.faults] == [
        (1, "unknown key nam "),
        (2, "superscope city is named twice"),
        (4, "unknown key joinline "),
        (5, "certificates have no attribute planet"),
        (7, "limits.members_max: expected int >= 1"),
        (8, "limits.bytes_per_s: expected int, got str"),
        (9, "topics[0]: missing required field pattern"),
        (10, "topics[0].policy: expected str, got int"),
        (12, "pattern 'a/#/b': # is not the last part"),
        (13, "topics[1].filter.every[0].modulo.n: expected int >= 1"),
        (13, "unknown key tag "),
        (13, "topics[1].filter.every[2]: expected object, got int"),
    ]
    assert str(wrong.value).endswith("(and 11 more: see quillcast scope check)")


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"topics": ["weather"]}, Topics((topic_id("weather"),))),
        ({"senders": [ALICE]}, Senders((bytes.fromhex(ALICE),))),
        ({"sample": {"share": 0.1, "salt": "a"}}, Sample(0.1, "a")),
        ({"tagged": "half"}, Tagged("half")),
        ({"custom": {"name": "above", "arguments": {"z": 1, "a": "b"}}}, Custom("above", (("a", "b"), ("z", 1)))),
        ({"either": [{"tagged": "a"}, {"except": {"tagged": "b"}}]}, Either((Tagged("a"), Except(Tagged("b"))))),
        ({"every": [{"modulo": {"n": 3, "k": [1]}}, {"add_tag": "x"}]}, Every((Modulo(3, (1,)), AddTag("x")))),
    ],
)
def test_each_filter_can_be_written(table: dict[str, object], expected: object) -> None:
    assert msgspec.convert(table, FilterTable).filter() == expected


# Several files


def test_scopes_that_fit_together_have_no_faults() -> None:
    assert check_together([scope("lab", above="site"), parse(SITE, "site.toml"), scope("campus", above="city")]) == []


def test_two_files_with_one_name() -> None:
    (fault,) = check_together([scope("site"), scope("site")._replace(file="other.toml")])
    assert str(fault) == "other.toml:1: site.toml describes a scope site too; rename one of them"


def test_a_cycle_is_told_once_with_its_way() -> None:
    files = [
        scope("site", above="campus"),
        scope("campus", above="lab city"),
        scope("city", above="site"),
        scope("lab"),
    ]
    (fault,) = check_together(files)
    assert str(fault) == (
        "site.toml:2: scope site would be a member of itself (site in campus in city in site); "
        "remove one of these superscopes"
    )


def test_a_scope_cannot_be_its_own_superscope() -> None:
    (fault,) = check_together([scope("site", above="site")])
    assert "site would be a member of itself (site in site)" in fault.text


def test_two_root_scopes_for_one_pattern() -> None:
    def rooted(name: str, pattern: str) -> Described:
        text = f"""\
            name = "{name}"
            [admission]
            join_line = true
            [[topics]]
            pattern = "{pattern}"
            root = true
            """
        return parse(dedent(text), f"{name}.toml")

    assert check_together([rooted("site", "sport/tennis"), rooted("city", "sport/golf")]) == []
    (fault,) = check_together([rooted("site", "sport/+"), rooted("city", "+/golf")])
    assert str(fault) == (
        "city.toml:6: topics of +/golf would have two root scopes, city and site (site.toml:5: sport/+); "
        "set root = false in one"
    )


GUARDED = f"""\
name = "site"
[admission]
join_line = true
[[topics]]
pattern = "prices/#"
publishers = {{ members = ["{ALICE}", "lab"], certificate = {{ organization = "North" }} }}
[topics.subscribers]
members = []
"""


def test_a_rule_says_which_members_may_publish_and_subscribe() -> None:
    (rule,) = parse(GUARDED, "site.toml").scope.topics
    assert rule.publishers == Allowed(members=(ALICE, "lab"), certificate={"organization": "North"})
    assert rule.subscribers == Allowed(members=())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (ALICE, "0" * 20, "site.toml:6: member '00000000000000000000' is neither a nodeId of 32 hexadecimal digits"),
        ("organization =", "organisation =", "site.toml:6: certificates have no attribute organisation (did you mean"),
        ("members = []", "", "site.toml:7: this does not say who may subscribe in topics of prices/#: give members"),
        ("members = []", 'member = ["lab"]', "site.toml:8: unknown key member (did you mean members?); there are: mem"),
        ("members = []", "members = 3", "site.toml:8: topics[0].subscribers.members: "),
        ("[topics.subscribers]\nmembers = []", 'subscribers = "lab"', "site.toml:7: topics[0].subscribers: Expected"),
    ],
)  # fmt: skip
def test_a_fault_in_who_may_publish_names_file_line_and_remedy(old: str, new: str, expected: str) -> None:
    with pytest.raises(ScopeFileWrong) as wrong:
        parse(GUARDED.replace(old, new, 1), "site.toml")
    assert str(wrong.value).casefold().startswith(expected.casefold())


def party(name: str, *, managed: bool = False) -> Party:
    id_ = bytes.fromhex(ALICE) if name == "alice" else name.encode().ljust(16, b".")
    return Party(id_, Contact(id_, "127.0.0.1:1"), managed=managed, name=name)


def test_who_may_publish_is_who_is_listed_or_has_the_certificate_and_a_refusal_says_what_to_do() -> None:
    (rule,) = parse(GUARDED, "site.toml").scope.topics

    def why(who: Party, attributes: dict[str, str], doing: Doing = "publishes") -> str:
        return why_not(rule, "site", who, attributes, "prices/gold", doing)

    north = {"organization": "North", "country": "SE"}
    assert why(party("alice"), {}) == why(party("lab", managed=True), {}) == why(party("bob"), north) == ""
    bob = party("bob").id.hex()
    assert why(party("bob"), {"organization": "South"}) == (
        f"scope site does not let member {bob} publish in topic prices/gold: add it to publishers in the rule for "
        "prices/# in the scope's file, and run: quillcast scope reload site; or have it join the network with a "
        "certificate that has organization = North"
    )
    assert why(party("lab"), {}).startswith("scope site does not let member 6c61622e"), (
        "a peer is no scope of that name"
    )
    assert why(party("alice"), north, "subscribes").endswith("and run: quillcast scope reload site")
    assert not why_not(TopicRule(pattern="#"), "site", party("bob"), {}, "prices/gold", "subscribes")
