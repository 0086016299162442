"""What commands show of topics: owners, access lists, events, and topics that are not used yet."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.cli.commands import Commands, topic_near

pytestmark = pytest.mark.live


@pytest.fixture
def node(quillcast: Commands) -> dict[str, str]:
    told: dict[str, str] = json.loads(quillcast.start("node", "--json").line())
    return told


def test_a_topic_that_was_just_made_is_shown_with_its_owner_and_lists(
    quillcast: Commands, node: dict[str, str], tmp_path: Path
) -> None:
    who = "ab" * 16
    made = quillcast.json("topic", "create", "chat/room", "--as", str(tmp_path / "owner.pem"), "--publisher", who)
    shown = quillcast.json("topic", "show", "chat/room")
    assert (shown["settings"]["owner"], shown["settings"]["access"]) == (made["settings"]["owner"], [f"publish:{who}"])
    code, out, _ = quillcast.run("topic", "show", "chat/room")
    assert code == 0
    assert f"owner: {made['settings']['owner']}" in out.splitlines()
    assert f"access: publish:{who}" in out.splitlines()
    assert [topic["name"] for topic in quillcast.json("topic", "list")] == ["chat/room"]


def test_new_credentials_of_an_owner_are_kept_only_if_something_was_created_with_them(
    quillcast: Commands, tmp_path: Path
) -> None:
    mine, other = tmp_path / "mine.pem", tmp_path / "other.pem"
    assert quillcast.run("topic", "create", "t", "--as", str(mine))[0] == 4, "no peer runs"
    assert not mine.exists()
    quillcast.start("node").line()
    code, _, err = quillcast.run("topic", "create", "t", "--as", str(mine))
    assert (code, err) == (0, f"created {mine}, which owns what is created with it\n")
    owner = quillcast.json("topic", "create", "t", "--as", str(mine))["settings"]["owner"]
    code, _, err = quillcast.run("topic", "create", "t", "--as", str(other))
    assert code == 2
    assert f"exists with another owner or access list: {owner[:8]} owns it" in err
    assert not other.exists()
    assert mine.exists()


def test_an_unused_topic_is_ok(quillcast: Commands, node: dict[str, str]) -> None:
    """Its root was the peer that made it, for the other one is as far from it as can be."""
    opposite = bytes([int(node["node_id"][:2], 16) ^ 0x80]) + bytes.fromhex(node["node_id"][2:])
    topic = topic_near(opposite.hex())
    assert quillcast.run("topic", "create", topic)[0] == 0
    why = "it has no root: nobody subscribes, and nobody publishes"
    assert why in quillcast.run("tree", topic)[1]
    code, out, _ = quillcast.run("check", "topic", topic)
    assert (code, out.partition(" |")[0]) == (0, f"OK - topic {topic}: {why}")
    code, out, _ = quillcast.run("check", "topic", topic, "--subscribers-min", "1")
    assert (code, out.partition(" |")[0]) == (2, f"CRITICAL - topic {topic}: 0 subscriptions, not 1")
    *_, listed = quillcast.run("topic", "list")[1].splitlines()
    # The peer that took the topic over stays in its tree only for as long as it may know what others lack.
    assert re.fullmatch(r"  \S+ +reliable  root +- +0 +[01] +0 +0", listed)


def test_a_topic_that_is_kept_elsewhere_is_asked_for(quillcast: Commands, node: dict[str, str], tmp_path: Path) -> None:
    """The peers of this machine and the rest of the network are told apart by their runtime folders."""
    other = tmp_path / "other"
    other.mkdir()
    here, there = dict(quillcast.environment), {**quillcast.environment, "XDG_RUNTIME_DIR": str(other)}
    quillcast.environment = there
    distant = json.loads(quillcast.start("node", "--json", "--contact", node["address"]).line())
    topic = topic_near(distant["node_id"])
    quillcast.subscribed(topic, "--contact", distant["address"])
    quillcast.environment = here
    shown = quillcast.json("topic", "show", topic)
    assert (shown["root"], shown["peers"]) == (distant["node_id"], 0)


def test_a_topic_has_had_its_events_though_its_root_has_moved(quillcast: Commands, node: dict[str, str]) -> None:
    subscriber = quillcast.subscribed("sport/tennis")
    for _ in range(3):
        assert quillcast.run("pub", "sport/tennis", *["event"] * 52, "--wait", "stable")[0] == 0
    [listed] = quillcast.json("topic", "list")
    assert listed["events"] == 156
    assert quillcast.json("topic", "show", "sport/tennis")["events"] == 156
    title, columns, row = quillcast.run("topic", "list")[1].splitlines()
    assert (title, columns.split()[:5]) == ("topics:", ["topic", "delivery", "admission", "root", "events"])
    assert (row.split()[2], row.split()[4]) == ("root", "156")
    [found] = quillcast.json("check", "topic", "sport/tennis")["found"]
    assert found["values"]["events"] == 156
    subscriber.signal(signal.SIGTERM)
    subscriber.end()


def test_peers_that_do_not_answer_are_named_and_not_ok(quillcast: Commands, node: dict[str, str]) -> None:
    topic = topic_near(node["node_id"])
    subscriber = quillcast.subscribed(topic)
    peers = {peer["node_id"] for peer in quillcast.json("tree", topic)["peers"]} - {node["node_id"]}
    assert quillcast.run("check", "topic", topic)[0] == 0
    subscriber.signal(signal.SIGSTOP)
    quillcast.run("pub", topic, *["event"] * 7, "--wait", "root")
    code, out, _ = quillcast.run("check", "topic", topic)
    subscriber.signal(signal.SIGCONT)
    [stopped] = peers
    assert code == 1
    how = "(does not answer|is lost, and its lease is still running)"  # as soon as its parent gives it up
    assert re.search(f"peer {stopped[:8]} {how}, 7 events behind by its last report", out)


def test_a_subscriber_whose_reader_is_stopped_is_named_by_every_command(
    quillcast: Commands, node: dict[str, str]
) -> None:
    """`sub` into a pipe that nobody reads."""
    topic = topic_near(node["node_id"])
    quillcast.subscribed(topic, "--name", "archive")
    [slow] = {peer["node_id"] for peer in quillcast.json("tree", topic)["peers"]} - {node["node_id"]}
    payload = "x" * 100_000
    assert quillcast.run("pub", topic, payload, "--count", "100", "--wait", "root")[0] == 0
    bounds = ["--behind-warning", "0", "--behind-critical", "1000"]
    code, out, _ = quillcast.run("check", "topic", topic, *bounds)
    assert code == 1
    assert f"subscriber {slow[:8]} archive is " in out
    [found] = quillcast.json_or_alarm("check", "topic", topic, *bounds)["found"]
    assert found["values"]["behind_events"] > 0
    [part] = found["subscribers"]
    assert (part["labels"]["peer"], part["labels"]["subscription"]) == (slow, "archive")
    [shown] = quillcast.json("top")["subscribers"]
    assert (shown["node_id"], shown["topic"]) == (slow, topic)
    assert shown["behind_events"] > 0
    [told] = quillcast.json("status", "--peer", slow[:8])["topics"]
    assert told["lags"][0]["behind_events"] > 0
    assert "events behind" in quillcast.run("status", "--peer", slow[:8])[1]
    code, out, _ = quillcast.run("check", "topic", topic, *bounds, "--prometheus")
    assert f'quillcast_subscriber_behind_events{{network="test",topic="{topic}",peer="{slow}"' in out
