"""A scope's own topic is found from peers outside, and told apart from the overlay's topic of the same name."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from quillcast.cli import asking
from quillcast.cli.app import run
from quillcast.cli.topic import to_change
from quillcast.core.errors import LocalError
from quillcast.core.status.machines import TopicSummary
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.topics import TopicSettings, TopicStatus
from quillcast.core.status.trees import TreePeer, TreeStatus
from quillcast.live.discovery.questions import PeerQuestion, StatusQuestion, name_of
from quillcast.live.discovery.registry import Entry, PeerRegistry
from tests.cli.commands import Command, Commands
from tests.cli.test_activity import STATUS

TOPIC, ROOTED = "room/talk", "room/talk (root scope room)"
ROOM = """
name = "room"
[admission]
join_line = true
[[topics]]
pattern = "room/#"
root = true
policy = "mesh"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("room.toml").write_text(ROOM)


def reader_in_room(quillcast: Commands) -> Command:
    """A member that takes part in the room's topic. A peer outside is older."""
    quillcast.subscribed("sport/tennis")
    quillcast.start("scope", "serve", "room.toml", "--data", "manager", "--json").line()
    reader = quillcast.subscribed(TOPIC, "--scope", quillcast.run("scope", "invite", "room")[1].strip())
    quillcast.run_until(TOPIC, "scope", "topics", "room")
    return reader


def test_a_topic_of_a_scope_is_found_though_older_peers_are_outside(quillcast: Commands) -> None:
    reader = reader_in_room(quillcast)
    code, out, err = quillcast.run("tree", TOPIC)
    assert (code, err) == (0, "")
    assert out.startswith(f"{ROOTED}: ")
    assert ", 1 subscriber\n" in out
    code, out, _ = quillcast.run("check", "topic", TOPIC)
    assert (code, out.startswith(f"OK - topic {ROOTED}: root ")) == (0, True), out
    assert quillcast.json("topic", "show", TOPIC)["settings"]["root_scope"] == "room"

    tracing = quillcast.start("trace", TOPIC, "--timeout", "20")
    member = quillcast.start("pub", TOPIC, "--scope", quillcast.run("scope", "invite", "room")[1].strip())
    while tracing.process.poll() is None:
        member.write("hello\n")
        reader.line()
        try:
            tracing.wait(0.2)
        except TimeoutError:
            continue
    code, out, err = tracing.end()
    assert (code, out.startswith(f"{ROOTED}: 1 event ")) == (0, True), (out, err)

    code, out, err = quillcast.run("trace", TOPIC, "--timeout", "0.5")
    assert (code, out.startswith(f"no bundle of {ROOTED} came")) == (1, True)
    assert f"`quillcast pub {TOPIC} MESSAGE --scope room@HOST:PORT`" in out


def test_a_peer_outside_that_is_named_says_who_knows_the_topic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    let_run(monkeypatch, {OUTSIDE: None, MEMBER: part("room")})
    told = f"peer a1 knows no topic '{TOPIC}'; peer b2b2b2b2 knows one with the root scope room: "
    for command, code in (("tree",), 2), (("trace",), 2), (("check", "topic"), 3):  # a wrong argument is no alarm
        assert run([*command, TOPIC, "--peer", "a1", "--network", "n"]) == code, command
        assert capsys.readouterr().err.startswith(f"quillcast: {told}"), command
    assert run(["tree", TOPIC, "--peer", "b2", "--network", "n"]) == 0
    assert capsys.readouterr().out.startswith(f"{ROOTED}: ")


def test_a_change_without_the_scope_of_a_rooted_topic_names_it(quillcast: Commands) -> None:
    reader_in_room(quillcast)
    code, out, err = quillcast.run("topic", "set", TOPIC, "--slow", "wait", "--yes")
    told = (
        "topic room/talk is rooted at scope room: add --scope room@HOST:PORT, because only members of that scope can "
        "change it"
    )
    assert (code, out, err) == (2, "", f"quillcast: {told}\n")


def test_topics_of_one_name_with_different_roots_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = let_run(monkeypatch, {OUTSIDE: part(""), MEMBER: part("room")})

    def lines(*arguments: str) -> list[str]:
        code = run([*arguments, "--network", "n"])
        out, err = capsys.readouterr()
        assert (code, err) == (0, ""), arguments
        return list(out.splitlines())

    assert [line.split("  ")[1] for line in lines("topic", "list")[2:]] == [TOPIC, ROOTED]
    assert [line for line in lines("tree", TOPIC) if "peer" in line] == [
        f"{TOPIC}: 1 peer, 0 subscribers",
        f"{ROOTED}: 1 peer, 1 subscriber",
    ]
    assert sorted(asked) == [("tree", OUTSIDE.node_id), ("tree", MEMBER.node_id)], "each topic has a peer to ask"
    assert [json.loads(line)["root"] for line in lines("tree", TOPIC, "--json")] == [OUTSIDE.node_id, MEMBER.node_id]
    assert [line for line in lines("topic", "show", TOPIC) if "root_scope" in line] == [
        "root_scope: -",
        "root_scope: room",
    ]
    (verdict,) = map(json.loads, lines("check", "topic", TOPIC, "--json"))
    assert [each["labels"].get("root_scope") for each in verdict["found"]] == [None, "room"]
    assert [each["values"]["subscribers"] for each in verdict["found"]] == [0, 1]
    shown = [line for line in lines("top", "--once", "--interval", "0.1") if line.startswith("  room/talk")]
    assert sorted(line.split("  ")[1] for line in shown) == [TOPIC, ROOTED]


def test_a_change_is_of_the_topic_that_the_scopes_of_its_peer_have() -> None:
    overlays, rooms = (
        TopicSummary(TOPIC, "77" * 16, each.settings, root=None, events=0, peers=1, subscriptions=0, publishers=0)
        for each in (part(""), part("room"))
    )
    assert to_change([overlays, rooms], ()) == overlays
    assert to_change([overlays, rooms], ("room@127.0.0.1:1",)) == rooms
    assert to_change([rooms], ("cafeteria@127.0.0.1:1",)) == rooms, "cafeteria may be within the room"
    with pytest.raises(LocalError, match="add --scope room@HOST:PORT"):
        to_change([rooms], ())


OUTSIDE, MEMBER = (Entry(each * 16, f"127.0.0.1:{number}", number, number) for number, each in enumerate(("a1", "b2")))


def part(root_scope: str) -> TopicStatus:
    """The part of a topic's root."""
    settings = TopicSettings("reliable", "publisher", "cut", 1 << 20, "go_on", root_scope=root_scope)
    return TopicStatus(
        TOPIC, "77" * 16, settings, role="root", publishers=0, never_stable=0, events_per_s=0.0, depth=0,
        subscriptions=int(bool(root_scope)),
    )  # fmt: skip


def let_run(monkeypatch: pytest.MonkeyPatch, parts: dict[Entry, TopicStatus | None]) -> list[tuple[str, str]]:
    """Let these peers run here, each with its part in a topic of the name; the trees that are asked for."""
    asked = list[tuple[str, str]]()

    def ask(path: Path, question: PeerQuestion, kind: object, **_: object) -> NodeStatus | TreeStatus:
        entry = next(each for each in parts if each.node_id.startswith(path.name.partition(".")[0]))
        node_id, mine = entry.node_id, parts[entry]
        if isinstance(question, StatusQuestion):
            return replace(STATUS, node_id=node_id, topics=(mine,) if mine else (), neighbours=())
        asked.append((name_of(type(question)), node_id))
        if mine is None:
            return TreeStatus(TOPIC, True, None, None, 0, (), ())
        peer = TreePeer(
            node_id, None, root=True, parent=None, children=(), subscriptions=mine.subscriptions, term="1.a",
            frontier=0, lags=(),
        )  # fmt: skip
        return TreeStatus(TOPIC, True, node_id, mine.settings, 0, (peer,), ())

    monkeypatch.setattr(asking, "ask", ask)
    for name in ("running", "entries"):
        monkeypatch.setattr(PeerRegistry, name, lambda _: list(parts))
    return asked
