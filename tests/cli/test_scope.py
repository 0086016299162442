"""`quillcast scope`: files are explained and checked, and so are policies."""

import hashlib
import json
import re
import signal
from pathlib import Path

import pytest

from quillcast.cli import asking, scopeview
from quillcast.cli.app import run
from quillcast.cli.judging import State, of_scope
from quillcast.cli.scopeview import show
from quillcast.cli.tree import draw
from quillcast.core.errors import LocalError, Unreachable
from quillcast.core.messages import Contact
from quillcast.core.status.scopes import ScopeMember, ScopeSender, ScopeStatus, SenderRate, Superscope
from quillcast.core.status.trees import TreePeer, TreeStatus
from quillcast.live.discovery.registry import Entry
from quillcast.live.node.scopeexport import read_exported
from quillcast.live.storage.store import Store
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import parse
from quillcast.protocol.scopes.rights import why_not
from tests.cli.commands import Commands
from tests.cli.test_welcome import completed
from tests.live.scopes.agents_in_need import NeverEnds

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scope-files.md").read_text()
NORTH, SENTENCES, RELOADED, RIGHTS, REFUSAL, ERROR = (
    block for _, block in re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
)
HUB = (ROOT / "examples" / "policies" / "pinned_file" / "around_hub.py").read_text()
PINNED = f"""\
name = "lab"
[admission]
join_line = true
[[topics]]
pattern = "#"
policy = "hub.py:AroundHub"
parameters = {{ far_s = 0.5 }}
sha256 = "{hashlib.sha256(HUB.encode()).hexdigest()}"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("north.toml").write_text(NORTH)
    Path("hub.py").write_text(HUB)
    Path("lab.toml").write_text(PINNED)


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["scope", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_file_is_explained_in_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys, "check", "north.toml") == (0, SENTENCES, "")


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("north.toml").write_text(NORTH.replace("pattern", "patern", 1))
    assert check(capsys, "check", "north.toml") == (2, "", ERROR)


def test_all_errors_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = NORTH.replace("members_max = 200", "member_max = 200").replace("stripes = 8", "stripe = 8")
    Path("north.toml").write_text(
        wrong.replace('"ring"', '"rings"').replace('add_tag = "half"', 'custom = {name = "no"}')
    )
    code, out, err = check(capsys, "check", "north.toml")
    assert (code, out) == (2, "")
    assert [line.partition(": ")[0] for line in err.splitlines()] == [f"north.toml:{at}" for at in (9, 16, 17, 22)]


def test_json_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text("nam = 1\n")
    code, out, err = check(capsys, "check", "north.toml", "bad.toml", "--json")
    north, bad = map(json.loads, out.splitlines())
    assert (code, err) == (2, "")
    assert north["sentences"] == [line.strip() for line in SENTENCES.splitlines()[1:]]
    assert north["scope"]["topics"][1]["filter"]["every"][1] == {"add_tag": "half"}
    assert north["errors"] == []
    assert bad["scope"] is None
    assert bad["errors"][0]["line"] == 1
    assert bad["errors"][0]["text"].startswith("unknown key nam (did you mean name?)")


def test_several_files_are_checked_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("campus.toml").write_text('name = "campus"\nsuperscopes = ["site-north"]\n[admission]\njoin_line = true\n')
    code, _, err = check(capsys, "check", "north.toml", "campus.toml")
    assert code == 2
    assert err == (
        "north.toml:2: scope site-north would be a member of itself (site-north in campus in site-north); "
        "remove one of these superscopes\n"
    )


def test_a_pinned_policy_is_explained_with_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, "check", "lab.toml")
    assert code == 0
    assert "All topics use policy hub.py:AroundHub with far_s = 0.5. The receiver with the shortest round trips" in out


@pytest.mark.parametrize(
    ("above", "channels", "told"),
    [
        ("", "replicas = 2\nsplit = true", "`replicas` and `split` have an effect only in a superscope: name one in"),
        ("", "entry_points = 2", "`entry_points` has an effect only in a superscope: name one in `superscopes`."),
        ('superscopes = ["campus"]', "multicast = true", "other members of a superscope send each bundle to all"),
        ('superscopes = ["campus"]', "replicas = 2", "2 members pass bundles on to other members of a superscope"),
    ],
)
def test_what_channels_says_of_the_border_has_an_effect_in_a_superscope_only(
    capsys: pytest.CaptureFixture[str], above: str, channels: str, told: str
) -> None:
    text = PINNED.replace("[admission]", f"{above}\n[admission]") + f"[channels]\n{channels}\n"
    Path("lab.toml").write_text(text)
    code, out, _ = check(capsys, "check", "lab.toml")
    assert code == 0
    assert told in out
    assert ("other members of a superscope" in out) is bool(above)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("hub.py:AroundHub", "nohub.py:AroundHub", "lab.toml:6: policy nohub.py:AroundHub: cannot read nohub"),
        ("far_s", "fars", "lab.toml:6: policy hub.py:AroundHub has no parameter fars (did you mean far_s?)"),
        ('sha256 = "', 'sha256 = "0', "lab.toml:8: topics[0].sha256: '0"),
        ("join_line = true", "joinline = true", "lab.toml:3: unknown key joinline (did you mean join_line?)"),
        ('pattern = "#"', 'pattern = "#"\nfilter.custom.name = "mine"', "lab.toml:6: there is no filter 'mine'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_policies_and_filters(
    capsys: pytest.CaptureFixture[str], old: str, new: str, expected: str
) -> None:
    Path("lab.toml").write_text(PINNED.replace(old, new, 1))
    code, out, err = check(capsys, "check", "lab.toml")
    assert (code, out) == (2, "")
    assert err.startswith(expected)
    assert err.count("\n") == 1


def test_a_policy_file_that_changed_is_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("hub.py").write_text("raise SystemExit")
    code, _, err = check(capsys, "check", "lab.toml")
    assert code == 2
    assert err.startswith("lab.toml:8: policy hub.py:AroundHub: hub.py has changed: its SHA-256 is ")


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = check(capsys, "check", "nowhere.toml")
    assert (code, err) == (2, "quillcast: cannot read the scope file nowhere.toml: No such file or directory\n")


def test_a_policy_is_checked_and_its_hash_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, "policy", "check", "hub.py:AroundHub", "--set", "far_s=0.2")
    assert (code, err) == (0, "")
    assert out.startswith("hub.py:AroundHub keeps the rules of policies with delivery tree: checked in ")
    assert f'to pin it: sha256 = "{hashlib.sha256(HUB.encode()).hexdigest()}"' in out


def test_a_policy_that_depends_on_the_order_of_a_set_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    words = "sorted({str(each): each for each in {str(label) for label in group.receivers}}, key=hash)"
    Path("hub.py").write_text(HUB.replace("min(group.receivers, key=distance)", f"int({words}[0])"))
    code, out, err = check(capsys, "policy", "check", "hub.py:AroundHub")
    assert (code, out) == (2, "")
    assert err.startswith("quillcast: policy hub.py:AroundHub breaks a rule: it gives another answer when asked again")


def test_a_parameter_is_written_as_in_toml_or_is_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, "policy", "check", "k_ary", "--set", "fan_out=2", "--json")
    report = json.loads(out)
    assert (code, report["fan_out"], report["sha256"]) == (0, 3, "")
    code, _, err = check(capsys, "policy", "check", "k_ary", "--set", "fan_out=two")
    assert (code, err) == (2, "quillcast: policy k_ary: fan_out: expected int, got str\n")
    code, _, err = check(capsys, "policy", "check", "k_ary", "--set", "fan_out")
    assert (code, "write NAME=VALUE" in err) == (2, True)


def test_a_recovery_protocol_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(capsys, "recovery", "check", "tree")
    assert (code, err) == (0, "")
    assert out == "tree keeps the rules of recovery protocols: checked in 36 domains with 0 messages and 374 requests\n"
    code, out, _ = check(capsys, "recovery", "check", "tree", "--json")
    assert json.loads(out) == {"protocol": "tree", "domains": 36, "messages": 0, "requests": 374}
    code, _, err = check(capsys, "recovery", "check", "rink")
    known = "known: tree, gossip, ring, srm"
    assert (code, err) == (2, f"quillcast: there is no recovery protocol 'rink' (did you mean ring?); {known}\n")


def test_a_recovery_protocol_that_loops_does_not_pass_the_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quillcast.live.scopes.plugins.check_recovery", lambda name: None)
    monkeypatch.setattr("quillcast.live.scopes.plugins.protocol_class", lambda name: NeverEnds)
    monkeypatch.setattr("quillcast.cli.scope.CHECK_LIMIT_S", 0.1)
    code, out, err = check(capsys, "recovery", "check", "never_ends")
    assert (code, out) == (2, "")
    assert err == "quillcast: the check of recovery protocol never_ends did not end within 0.1 s: does it loop?\n"


def test_a_file_with_an_unknown_recovery_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.toml").write_text(
        'name = "odd"\n[admission]\njoin_line = true\n[[topics]]\npattern = "#"\nrecovery = "rink"\n'
    )
    code, _, err = check(capsys, "check", "odd.toml")
    assert (code, err.startswith("odd.toml:6: there is no recovery protocol 'rink' (did you mean ring?); known: ")) == (
        2,
        True,
    )


def test_policies_are_completed(quillcast: Commands) -> None:
    assert completed(quillcast, "quillcast scope policy check k") == ["k_ary"]
    assert completed(quillcast, "quillcast scope ") == [
        "check",
        "export",
        "invite",
        "members",
        "policy",
        "recovery",
        "reload",
        "serve",
        "show",
        "topics",
        "tree",
    ]


def test_an_unknown_policy_and_a_wrong_parameter_are_told_with_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = NORTH.replace('"stripes"', '"stripe"').replace(
        '"delay_optimised"', '"delay_optimised"\nparameters = { x = 1 }'
    )
    Path("north.toml").write_text(wrong)
    code, out, err = check(capsys, "check", "north.toml")
    policy, parameter = err.splitlines()
    assert (code, out) == (2, "")
    assert policy.startswith("north.toml:15: there is no policy 'stripe' (did you mean stripes?); known: star, ")
    assert parameter.startswith("north.toml:22: policy delay_optimised has no parameter x; it has: fan_out, ")


def test_a_member_enters_the_scope_that_a_command_manages_and_a_stranger_is_refused(quillcast: Commands) -> None:
    store = Store(Path("member"))
    node_id = store.identity().node_id.hex()
    store.close()
    Path("site.toml").write_text(f'name = "site"\n[admission]\nmembers = ["{node_id}"]\n')
    manager = quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--json")
    told = json.loads(manager.line())
    assert told["scope"] == "site"
    Path("peer.toml").write_text("scopes = ['site']\n[overlay]\ndigit_bits = 4\n")
    for option in (("--scope", told["enter"]), ("--scope", "site"), ("--config", "peer.toml")):
        member = quillcast.start("node", "--data", "member", *option, "--json")
        assert json.loads(member.line())["node_id"] == node_id
        assert [each["scope"] for each in quillcast.json("status", "--peer", node_id)["memberships"]] == ["site"]
        member.signal(signal.SIGINT)
        assert member.end()[0] == 130
    code, _, err = quillcast.run("pub", "news", "hello", "--scope", told["enter"], "--wait-for-network", "1")
    assert code == 4
    assert "scope site does not admit this peer" in err
    assert "to members in the scope's file" in err


def test_a_member_whose_manager_is_down_waits_and_every_command_says_for_what(quillcast: Commands) -> None:
    Path("site.toml").write_text('name = "site"\n[admission]\njoin_line = true\n')
    manager = quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--json")
    enter = json.loads(manager.line())["enter"]
    address = enter.partition("@")[2]
    line = quillcast.run("scope", "invite", "site")[1].strip()
    manager.signal(signal.SIGINT)
    assert manager.end()[0] == 130
    member = quillcast.start("node", "--data", "member", "--scope", line, "--json")
    told = member.line(2).removeprefix("quillcast: ")
    waits = f"waiting to take part in the scope: scope site: cannot reach {address}: "
    assert told.startswith(waits)
    assert told.endswith("; start its manager there (quillcast scope serve), or correct the address")
    assert f"  waits to take part in scope site, manager at {address}\n" in quillcast.run("status")[1]
    (finding,) = quillcast.json_or_alarm("check", "peer")["found"]
    assert finding["state"] == "CRITICAL"
    assert finding["text"].endswith(f": it has not joined the network; {told}")
    for question in (("scope", "show", "site"), ("check", "scope", "site")):
        code, out, err = quillcast.run(*question)
        assert code in (2, 4)
        assert f"scope site: cannot reach {address}: " in out + err
    code, _, err = quillcast.run("pub", "news", "hello", "--scope", enter, "--timeout", "0.5")
    assert code == 4
    assert f"scope site: cannot reach {address}: " in err
    quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--listen", address)
    assert member.line(2) == "quillcast: takes part in the scope: site"
    assert json.loads(member.line())["network"] == "test"


def test_a_member_that_registers_for_topics_it_has_no_right_to_is_refused_and_others_go_on(quillcast: Commands) -> None:
    writer = "0" * 32
    rule = f'[[topics]]\npattern = "prices/#"\npublishers = {{ members = ["{writer}"] }}\n'
    Path("site.toml").write_text(f'name = "site"\n[admission]\njoin_line = true\n{rule}')
    code, out, _ = quillcast.run("scope", "check", "site.toml")
    assert code == 0
    sentence = f"Members publish only if they are {writer}; registrations of other members are refused."
    assert sentence in out
    manager = quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--json")
    assert json.loads(manager.line())["scope"] == "site"

    def enter() -> tuple[str, str]:
        return "--scope", quillcast.run("scope", "invite", "site")[1].strip()

    reader = quillcast.start("sub", "prices/gold", *enter(), "--json")
    assert "subscribed" in reader.line(2)
    code, _, err = quillcast.run("pub", "prices/gold", "false", *enter())
    assert code == 2
    why = err.strip().removeprefix("quillcast: ")
    assert re.fullmatch(
        "scope site does not let member [0-9a-f]{32} publish in topic prices/gold: add it to publishers in the rule "
        "for prices/# in the scope's file, and run: quillcast scope reload site",
        why,
    ), err
    assert quillcast.run("pub", "prices/gold", "true")[0] == 0, "peers outside are no members"
    assert json.loads(reader.line())["payload"] == "true"
    assert f"  prices/#: {sentence}\n" in quillcast.run("scope", "topics", "site")[1]
    assert why in manager.line(2)


def test_people_of_two_places_meet_in_a_room(quillcast: Commands) -> None:
    """As `examples/scopes/README.md` says."""
    files = [str(ROOT / "examples" / "scopes" / f"{name}.toml") for name in ("cafeteria", "library", "room")]
    manager = quillcast.start("scope", "serve", *files, "--data", "manager", "--json")
    assert [json.loads(manager.line())["scope"] for _ in files] == ["cafeteria", "library", "room"]

    def enter(*scopes: str) -> list[str]:
        return [
            option
            for name in scopes
            for option in ("--scope", quillcast.run("scope", "invite", name)[1].strip())
        ]  # fmt: skip

    reader = quillcast.start("sub", "room/talk", *enter("library", "room"), "--json")
    assert "subscribed" in reader.line(2)
    code, _, err = quillcast.run("pub", "room/talk", "hello", *enter("cafeteria", "room"))
    assert (code, json.loads(reader.line())["payload"]) == (0, "hello"), err
    quillcast.run_until("room/talk", "scope", "topics", "room")  # the reader registers in a moment: nobody waits for it
    code, _, err = quillcast.run("pub", "room/talk", "hello", *enter("library"), "--scope", "library@127.0.0.1:1")
    assert (code, err) == (2, "quillcast: scope library is named twice; name it once\n")


def test_the_page_tells_how_a_refusal_reads() -> None:
    (rule,) = parse(f'name = "site-north"\n[admission]\njoin_line = true\n{RIGHTS}', "north.toml").scope.topics
    id_ = bytes.fromhex("ffeeddccbbaa99887766554433221100")
    member = Party(id_, Contact(id_, "127.0.0.1:1"))
    assert why_not(rule, "site-north", member, {}, "prices/gold", "publishes") == REFUSAL.strip()


def test_scopes_in_scopes_are_served_together_and_shown(quillcast: Commands) -> None:
    rule = '[[topics]]\npattern = "#"\nrecovery = "srm"\nbundles_per_s = 9\n'
    Path("campus.toml").write_text('name = "campus"\n[admission]\nmembers = ["site"]\n' + rule)
    rule = '[[topics]]\npattern = "#"\nleaving_bundles_per_s = 8\n'
    site = f'name = "site"\nsuperscopes = ["campus"]\n[admission]\nmembers = ["{"0" * 32}"]\n{rule}'
    Path("site.toml").write_text(site)
    code, _, err = quillcast.run("scope", "serve", "site.toml", "--data", "manager")
    assert code == 2
    assert "site.toml:2: this peer does not run the manager of superscope campus: write campus@HOST:PORT" in err
    Path("other.toml").write_text('name = "campus"\nsuperscopes = ["site"]\n[admission]\nmembers = ["site"]\n')
    code, _, err = quillcast.run("scope", "serve", "site.toml", "other.toml", "--data", "manager")
    assert code == 2
    assert "scope site would be a member of itself (site in campus in site); remove one" in err
    serving = quillcast.start("scope", "serve", "site.toml", "campus.toml", "--data", "manager", "--json")
    assert [json.loads(serving.line())["scope"] for _ in range(2)] == ["campus", "site"]
    code, out, _ = quillcast.run("scope", "show", "site")
    assert code == 0
    assert "  member of campus, whose manager is at 127.0.0.1:" in out
    assert (
        "  #: At most 8 bundles a second leave per topic, without what publishers send to the roots of topics.\n" in out
    )
    code, out, _ = quillcast.run("scope", "members", "campus")
    assert "  scope site " in out
    _, out, _ = quillcast.run("scope", "show", "campus")
    assert "  A peer or scope is admitted as a member if it is site.\n" in out
    assert re.search(r"topics +policy +recovery +from\n +# +k_ary +srm +file\n", out)
    assert "  #: At most 9 bundles a second enter per topic; above that, senders wait.\n" in out
    code, _, err = quillcast.run("scope", "invite", "campus")
    assert code == 2
    assert "scope campus has no join lines: write join_line = true" in err


@pytest.mark.parametrize(
    ("silent", "obstacle", "told"),
    [
        (True, "", "its manager does not respond"),
        (False, "scope site cannot be a member", "scope site cannot be a member"),
    ],
)
def test_a_scope_that_its_superscope_does_not_admit_is_not_healthy(*, silent: bool, obstacle: str, told: str) -> None:
    above = Superscope("11" * 16, "127.0.0.1:1", "campus", epoch=1, unresponsive=silent, obstacle=obstacle)
    member = ScopeMember("22" * 16, "127.0.0.1:2", label=1, in_ring=True, heard_s=0.5, topics=())
    status = ScopeStatus(
        "33" * 16, "127.0.0.1:3", "site", "55" * 16, "site.toml", epoch=2, lease_s=5.0, rules=(), members=(member,),
        topics=(), superscopes=(above,),
    )  # fmt: skip
    finding = of_scope("test", status)
    assert (finding.state, finding.text) == (State.WARNING, f"scope site: superscope campus: {told}")


def test_senders_are_shown_with_the_rates_that_they_agreed_to() -> None:
    rates = (SenderRate("news", 2_000, 50), SenderRate("", 1_000_000, None))
    scope = ScopeSender("11" * 16, "127.0.0.1:1", scope="south", topics=("news", "sport"), rates=rates)
    peer = ScopeSender("22" * 16, "127.0.0.1:2", scope="", topics=("news",), rates=())
    status = ScopeStatus(
        "33" * 16, "127.0.0.1:3", "north", "55" * 16, "north.toml", epoch=1, lease_s=5.0, rules=(), members=(),
        topics=(), senders=(scope, peer),
    )  # fmt: skip
    *_, columns, first, second = show(status)
    assert columns.split() == ["sender", "address", "topics", "agreed", "rates"]
    assert first.endswith("news, sport  news: 2,000 bytes/s and 50 bundles/s; in all: 1,000,000 bytes/s")
    assert second.split() == ["22222222", "127.0.0.1:2", "news", "no", "limit"]


def test_a_managers_state_is_exported_once_and_only_while_it_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a peer's data folder" in check(capsys, "export", "lab", "lab.state", "--data", "nowhere")[2]
    store = Store(Path("manager"))
    running = check(capsys, "export", "lab", "lab.state", "--data", "manager")
    assert running[0] == 2
    store.keep_scope("lab", b"state")
    store.close()
    assert "knows no scope 'other'" in check(capsys, "export", "other", "lab.state", "--data", "manager")[2]
    assert check(capsys, "export", "lab", "lab.state", "--data", "manager") == (0, "", "")
    assert Path("lab.state").stat().st_mode & 0o777 == 0o600
    assert "lab.state exists" in check(capsys, "export", "lab", "lab.state", "--data", "manager")[2]
    with pytest.raises(
        LocalError, match=r"lab.toml is not the state of a manager; `quillcast scope export` writes one"
    ):
        read_exported(Path("lab.toml"))


def test_a_running_scope_is_shown_and_a_policy_that_is_set_outlives_its_manager(quillcast: Commands) -> None:
    store = Store(Path("member"))
    node_id = store.identity().node_id.hex()
    store.close()
    Path("site.toml").write_text(
        f'name = "site"\n[admission]\nmembers = ["{node_id}"]\n[[topics]]\npattern = "news/#"\nrecovery = "ring"\n'
    )
    manager = quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--json")
    enter = json.loads(manager.line())["enter"]
    member = quillcast.start("node", "--data", "member", "--scope", enter, "--json")
    member.line()
    shown = quillcast.json("scope", "show", "site")
    assert (shown["epoch"], [each["node_id"] for each in shown["members"]]) == (1, [node_id])
    assert node_id[:8] in quillcast.run("scope", "members", "site")[1]
    changed = quillcast.json("scope", "policy", "set", "site", "news/+", "chain")
    chain = {"pattern": "news/+", "policy": "chain", "parameters": {}, "is_set": True, "lets_in": [], "recovery": ""}
    chain["rights"] = []
    assert (changed["topics"], changed["rules"][0], changed["rules"][1]["recovery"]) == ([], chain, "ring")
    code, _, err = quillcast.run("scope", "policy", "set", "site", "news/+", "k_ary", "fan_out=1")
    assert (code, err) == (2, "quillcast: policy k_ary: fan_out: expected int >= 2\n")
    code, _, err = quillcast.run("scope", "show", "elsewhere")
    assert (code, "managers of: site" in err) == (2, True)
    assert (
        f"member of scope site, in the ring; manager at {enter.partition('@')[2]}"
        in quillcast.run("status", "--peer", node_id)[1]
    )
    manager.process.kill()
    manager.end()
    code, _, err = quillcast.run("scope", "show", "site")
    assert (code, ", which runs the manager of scope site, " in err) == (4, True)
    again = quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--listen", enter.partition("@")[2])
    again.line()
    shown = quillcast.json("scope", "show", "site")
    assert (shown["epoch"], shown["rules"][0]) == (2, chain)
    assert "scope site: 1 member" in quillcast.run("check", "scope", "site")[1]
    assert (
        'quillcast_scope_members{network="test",scope="site"} 1'
        in quillcast.run("check", "scope", "site", "--prometheus")[1].splitlines()
    )
    assert "news/#" in quillcast.run("scope", "policy", "unset", "site", "news/+")[1]
    assert [rule["is_set"] for rule in quillcast.json("scope", "show", "site")["rules"]] == [False]
    assert "no member of scope site takes part in topic" in quillcast.run("scope", "tree", "site", "news/a")[2]


def test_a_running_scope_goes_by_its_changed_file_unless_that_is_wrong(quillcast: Commands) -> None:
    site = Path("north.toml")
    site.write_text(NORTH.replace('superscopes = ["campus"]\n', ""))
    manager = quillcast.start("scope", "serve", "north.toml", "--data", "manager")
    manager.line()
    reload = "scope", "reload", "site-north"
    assert quillcast.run(*reload) == (0, "scope site-north goes by north.toml as it is now\n  nothing differs\n", "")
    site.write_text(site.read_text().replace("= 200", "= 300").replace("subscribers_max = 50\n", ""))
    assert quillcast.run(*reload) == (0, RELOADED, "")
    assert quillcast.json("scope", "show", "site-north")["members_max"] == 300
    site.write_text(site.read_text().replace("= 300", "= 0"))
    code, out, err = quillcast.run(*reload)
    assert (code, out) == (2, "")
    assert err == "quillcast: north.toml:8: limits.members_max: expected int >= 1\n"
    assert quillcast.json("scope", "show", "site-north")["members_max"] == 300
    site.write_text(site.read_text().replace("= 0", "= 300").replace('policy = "delay_optimised"', 'policy = "star"'))
    changed = quillcast.json(*reload)
    assert changed["now"] == ["news/+: Topics that match news/+ use policy star."]
    assert (changed["topics"], changed["dismissed"], changed["file"]) == ([], [], "north.toml")
    assert quillcast.run("scope", "reload", "elsewhere")[0] == 2


def test_a_scope_whose_manager_runs_elsewhere_is_reloaded_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scopeview, "find", lambda *_: scopeview.Found([], manages=False, here=""))
    status = ScopeStatus(
        "33" * 16, "127.0.0.1:3", "site", "55" * 16, "site.toml", epoch=1, lease_s=5.0, rules=(), members=(), topics=()
    )
    monkeypatch.setattr(scopeview, "ask_manager", lambda *_: status)
    with pytest.raises(LocalError, match=r"the manager of scope site runs at 127\.0\.0\.1:3, and not here"):
        scopeview.reload("site", "test")


def test_commands_that_publish_or_create_are_admitted_by_the_node_id_that_they_keep(quillcast: Commands) -> None:
    store = Store(Path("member"))
    node_id = store.identity().node_id.hex()
    store.close()
    Path("site.toml").write_text(f'name = "site"\n[admission]\nmembers = ["{node_id}"]\n')
    enter = json.loads(quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--json").line())["enter"]
    member = ("--data", "member", "--scope", enter)
    assert quillcast.run("topic", "create", "orders", "--slow", "wait", *member)[0] == 0
    assert quillcast.run("topic", "set", "orders", "--slow", "cut", *member)[0] == 0
    assert quillcast.run("pub", "orders", "one", *member)[0] == 0


def test_a_silent_peer_may_run_the_manager_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []
    silent = Entry("ab" * 16, "127.0.0.1:1", 1, 1)

    def ask(*_: object, timeout_s: float) -> None:
        waits.append(timeout_s)
        raise Unreachable("timed out")

    monkeypatch.setattr(asking, "ask", ask)
    monkeypatch.setattr(scopeview, "peers_here", lambda _: [silent])
    with pytest.raises(Unreachable, match=r"peer abababab \(process 1\) does not answer; is it stopped\?"):
        scopeview.find("site", "default")
    assert waits == [asking.SILENT_S]


def test_a_scope_is_shown_and_changed_where_only_another_peer_of_its_network_runs(quillcast: Commands) -> None:
    """Three processes, each in a runtime folder of its own, as on three machines."""
    store = Store(Path("member"))
    node_id = store.identity().node_id.hex()
    store.close()
    operator = quillcast.run("credentials", "new", "operator.pem")[1].strip()
    quillcast.run("credentials", "new", "other.pem")
    rules = '[[topics]]\npattern = "#"\npolicy = "chain"\n'
    Path("site.toml").write_text(
        f'name = "site"\noperators = ["{operator}"]\n[admission]\njoin_line = true\nmembers = ["{node_id}"]\n{rules}'
    )
    there = {name: ("--runtime-dir", str(Path(name).absolute())) for name in ("one", "two", "three")}
    manager = quillcast.start("scope", "serve", "site.toml", "--data", "manager", "--json", *there["one"])
    enter = json.loads(manager.line())["enter"]
    address = enter.partition("@")[2]
    member = quillcast.start("sub", "news", "--data", "member", "--scope", enter, *there["two"])
    assert "subscribed" in member.line(2)
    outside = quillcast.start("node", "--contact", address, "--json", *there["three"])
    json.loads(outside.line())

    def scope(*arguments: str) -> tuple[int, str, str]:
        return quillcast.run("scope", *arguments, *there["three"])

    quillcast.run_until("chain", "scope", "topics", "site", *there["three"])
    for command, shown in (("show", f"manager at peer [0-9a-f]{{8}}, {address}"), ("members", node_id[:8])):
        code, out, err = scope(command, "site")
        assert (code, err) == (0, "")
        assert re.search(shown, out)
    assert scope("tree", "site", "news")[1].startswith("news in scope site: chain\n")
    assert json.loads(scope("topics", "site", "--json")[1])["withheld"] == 0
    code, out, err = scope("show", "nowhere")
    start = "start its manager with: quillcast scope serve FILE --data FOLDER"
    assert (code, out) == (2, "")
    assert err == f"quillcast: no peer of the network knows a scope 'nowhere'; {start}\n"

    change = ("policy", "set", "site", "#", "star")
    code, out, err = scope(*change)
    assert (code, out) == (2, "")
    assert err == (
        f"quillcast: the manager of scope site runs at {address}, and not here as this user: give --as FILE with the "
        "credentials of an operator that the scope's file names, or run this command there\n"
    )
    code, out, err = scope(*change, "--as", "other.pem")
    assert (code, out) == (2, "")
    assert re.fullmatch(
        "quillcast: scope site takes no changes from the credentials [0-9a-f]{32}: add them to operators in the "
        "scope's file, and run: quillcast scope reload site\n",
        err,
    )
    assert "scope site: refused a change that peer" in manager.line(2)
    assert "refused a change that peer" in quillcast.run("status", *there["one"])[1]
    code, out, err = scope(*change, "--as", "operator.pem")
    assert (code, err) == (0, "")
    assert out.startswith("news: chain -> star\n")
    code, out, err = scope("policy", "unset", "site", "#", "--as", "operator.pem")
    assert (code, out.startswith("news: star -> chain\n"), err) == (0, True, "")
    assert scope("invite", "site", "--as", "operator.pem")[1].startswith(f"site@{address}?token=")

    manager.signal(signal.SIGSTOP)
    code, out, err = scope("show", "site")
    assert code == 4
    assert re.fullmatch(
        f"quillcast: peer [0-9a-f]{{8}} at {address}, which runs the manager of scope site, does not answer within "
        r"3 s\n",
        err,
    )
    assert out.startswith(f"scope site, epoch 1, as its member {node_id[:8]} at ")
    assert json.loads(scope("members", "site", "--json")[1])["told_by"]["node_id"] == node_id
    manager.signal(signal.SIGKILL)
    code, _, err = scope("topics", "site")
    assert code == 4
    assert "which runs the manager of scope site, " in err
    assert quillcast.json_or_alarm("check", "scope", "site", *there["three"])["state"] == "CRITICAL"


def test_tree_says_that_a_policy_is_being_changed() -> None:
    peer = TreePeer("0" * 32, "a", True, None, (), 1, "", 0, (), scope="site", changing=True)
    tree = TreeStatus("news", True, peer.node_id, None, 0, (peer,), ())
    line = "scope site is changing its policy: this shows the channels of both (quillcast scope topics site)"
    assert line in list(draw(tree))


def test_an_operator_has_to_be_a_principal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("north.toml").write_text('operators = ["alice"]\n' + NORTH)
    code, out, err = check(capsys, "check", "north.toml")
    assert (code, out) == (2, "")
    told = "operator 'alice' is not a principal; `quillcast credentials show FILE` prints it"
    assert err == f"north.toml:1: {told}\n"
    Path("north.toml").write_text(f'operators = ["{"0" * 32}"]\n' + NORTH)
    code, out, _ = check(capsys, "check", "north.toml")
    assert f"  Operators who change it from other machines have the credentials {'0' * 32}.\n" in out
