"""Commands as people use them: several terminals of one machine."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import Commands, topic_near

pytestmark = pytest.mark.live


def test_two_terminals_need_no_configuration(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("sport/tennis")
    assert quillcast.run("pub", "sport/tennis", "hello") == (0, "", "")
    assert subscriber.line() == "hello"
    subscriber.signal(signal.SIGINT)
    assert subscriber.end() == (130, "", "")


def test_a_command_without_other_peers_says_so(quillcast: Commands) -> None:
    code, out, err = quillcast.run("pub", "sport/tennis", "hello")
    assert (code, out, err.count("\n")) == (0, "", 1)
    assert err.startswith("quillcast: nobody got this: no other peer of network 'test' is known here; looked in ")
    subscriber = quillcast.start("sub", "sport/tennis", "--count", "1")
    assert ", alone so far (" in subscriber.line(2)
    assert quillcast.run("pub", "sport/tennis", "hello") == (0, "", "")
    assert subscriber.end()[:2] == (0, "hello\n")


def test_a_returning_subscriber_learns_how_many_earliest_events_are_gone(quillcast: Commands) -> None:
    """The node is the topic's root throughout: what is admitted again by another root takes a second position."""
    topic = topic_near(json.loads(quillcast.start("node", "--json").line())["node_id"])
    subscriber = quillcast.subscribed(topic, "--count", "1")
    assert quillcast.run("pub", topic, "one", "--wait", "root")[0] == 0
    assert subscriber.end() == (0, "one\n", "")
    assert quillcast.run("pub", topic, "two", "--wait", "root")[0] == 0
    subscriber = quillcast.start("sub", topic, "--start", "earliest", "--count", "1")
    assert f"subscribed to {topic}" in subscriber.line(2)
    assert re.fullmatch(rf"lost: (up to )?2 events of {topic} from before this start, .*", subscriber.line(2))
    records = quillcast.start("sub", topic, "--start", "earliest", "--count", "1", "--json", "--quiet")
    told = json.loads(records.line(2))
    assert (told["lost"], told["why"]) == (topic, "start")
    assert quillcast.run("pub", topic, "three", "--wait", "root")[0] == 0
    assert subscriber.end() == (0, "three\n", "")
    assert json.loads(records.end()[1])["payload"] == "three"


def test_lines_of_standard_input_are_published_as_they_come(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("sport/tennis", "--count", "3")
    publisher = quillcast.start("pub", "sport/tennis")
    publisher.write("one\n")
    assert subscriber.line() == "one"
    publisher.write("two\nlast")
    assert publisher.end() == (0, "", "")
    assert subscriber.end() == (0, "two\nlast\n", "")


def test_a_file_is_published_so_often_as_asked(quillcast: Commands, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    subscriber = quillcast.subscribed("letters", "--count", "4")
    published = quillcast.json("pub", "letters", "--file", str(lines), "--count", "2", "--wait", "stable")
    assert (published["topic"], published["published"], published["wait"]) == ("letters", 4, "stable")
    assert subscriber.end() == (0, "a\nb\na\nb\n", "")


def test_messages_are_filled_in_and_lines_are_left_alone(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("letters", "--json", "--count", "4")
    sent = ("{{count}} at {{time}}, {{other}}", "--key", "k{{ count }}", "--attribute", "colour=red")
    assert quillcast.run("pub", "letters", *sent, "--count", "2", "--rate", "1000") == (0, "", "")
    publisher = quillcast.start("pub", "letters")
    publisher.write("{{count}}\n")
    assert publisher.end() == (0, "", "")
    assert quillcast.run("pub", "letters", "{{count}}", "--no-templates")[0] == 0
    first, second, *others = map(json.loads, subscriber.end()[1].splitlines())
    assert re.fullmatch(r"1 at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z, \{\{other\}\}", first["payload"])
    assert second["payload"].startswith("2 at ")
    assert (first["key"], second["key"], first["attributes"]) == ("k1", "k2", {"colour": "red"})
    assert [other["payload"] for other in others] == ["{{count}}", "{{count}}"]


def test_files_and_input_are_one_event_each_if_asked(quillcast: Commands, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one", "two")]
    for file in files:
        file.write_text(f"{file.name}\n{file.name}")
    subscriber = quillcast.subscribed("letters", "--json", "--count", "3")
    given = [word for file in files for word in ("--file", str(file))]
    assert quillcast.json("pub", "letters", *given, "--whole")["published"] == 2
    publisher = quillcast.start("pub", "letters", "--whole")
    publisher.write("a\nb\n")
    assert publisher.end()[0] == 0
    got = [json.loads(line)["payload"] for line in subscriber.end()[1].splitlines()]
    assert got == ["one\none", "two\ntwo", "a\nb\n"]


def test_publishing_continues_until_ctrl_c_if_asked(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("ticks", "--count", "3")
    publisher = quillcast.start("pub", "ticks", "tick {{count}}", "--count", "0", "--rate", "50")
    assert subscriber.end() == (0, "tick 1\ntick 2\ntick 3\n", "")
    publisher.signal(signal.SIGINT)
    assert publisher.end()[0] == 130


def test_subscribers_without_an_event_are_named(quillcast: Commands) -> None:
    node = json.loads(quillcast.start("node", "--json").line())
    topic = topic_near(node["node_id"])
    subscriber = quillcast.subscribed(topic)
    [peer] = [peer for peer in quillcast.json("tree", topic)["peers"] if peer["subscriptions"]]
    began = time.monotonic()
    assert quillcast.run("pub", topic, "zero")[0] == 0
    usual_s = time.monotonic() - began
    assert subscriber.line() == "zero"
    publisher = quillcast.start("pub", topic, "--wait", "stable", "--timeout", "2", "--json")
    publisher.write("one\n")
    assert subscriber.line() == "one"
    subscriber.signal(signal.SIGSTOP)
    publisher.write("two\n")
    began = time.monotonic()
    code, out, err = publisher.end()
    took_s = time.monotonic() - began
    subscriber.signal(signal.SIGCONT)
    assert code == 5, err
    told = json.loads(out)
    assert (told["published"], told["reason"], told["peers"]) == (2, "late", [peer["node_id"]])
    assert told["error"] in err
    late = rf"not known to be held by every subscriber within 2 s: {peer['node_id'][:8]} \("
    assert re.search(late, err)
    assert "does not answer" in err
    assert took_s < 2.0 + max(1.0, usual_s), "naming, leaving and closing links take no second more than was allowed"


def test_a_subscriber_gives_up_if_asked(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("silence", "--timeout", "0.2", "--count", "2")
    assert subscriber.end() == (1, "", "quillcast: no event of silence arrived for 0.2 s; 0 arrived before\n")


def test_json_tells_all_about_an_event(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("sport/tennis", "--json", "--count", "3")
    no_text = os.fsdecode(b"\xff\xfe")
    assert quillcast.run("pub", "sport/tennis", "15:0", "--key", "match 1")[0] == 0
    assert quillcast.run("pub", "sport/tennis", no_text)[0] == 0
    assert quillcast.run("pub", "sport/tennis", "15:15", "--key", no_text)[0] == 0
    first, second, third = (json.loads(line) for line in subscriber.end()[1].splitlines())
    assert (first["topic"], first["payload"], first["key"], first["sequence"]) == ("sport/tennis", "15:0", "match 1", 0)
    assert (second["payload_base64"], second["key"]) == ("//4=", None)
    assert (third["payload"], third["key_base64"]) == ("15:15", "//4=")
    assert first["publisher"] != second["publisher"]


def test_a_node_can_be_looked_at(quillcast: Commands) -> None:
    node = quillcast.start("node", "--json")
    told = json.loads(node.line())
    subscriber = quillcast.subscribed("sport/tennis")
    status = quillcast.json("status", "--peer", told["node_id"][:6])
    assert (status["node_id"], status["active"], status["network"]) == (told["node_id"], True, "test")
    tree = quillcast.json("tree", "sport/tennis")
    assert tree["complete"]
    assert sum(peer["subscriptions"] for peer in tree["peers"]) == 1
    drawn = quillcast.run("tree", "sport/tennis")[1].splitlines()
    assert drawn[0] == f"sport/tennis: {len(tree['peers'])} peer{'s' * (len(tree['peers']) != 1)}, 1 subscriber"
    assert drawn[1].startswith(tree["root"][:8])
    text = quillcast.run("status")[1]
    assert f"peer {told['node_id'][:8]} at {told['address']}, network test: joined" in text
    assert "leaf set:" in text
    for command in (subscriber, node):
        command.signal(signal.SIGINT)
        assert command.end()[0] == 130


def test_a_closed_terminal_ends_it_in_good_order(quillcast: Commands, tmp_path: Path) -> None:
    node = quillcast.start("node")
    node.line()
    node.signal(signal.SIGHUP)
    assert node.end()[0] == 143
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(quillcast: Commands, closed: str) -> None:
    quillcast.start("node").line()
    for command in ("pub t x", "status"):
        line = f"{sys.executable} -m quillcast {command} {closed}"
        ended = subprocess.run(line, shell=True, env=quillcast.environment, capture_output=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_topics_are_created_shown_and_listed(quillcast: Commands) -> None:
    node = quillcast.start("node")
    node.line()
    code, out, _ = quillcast.run("topic", "create", "chat/room", "--slow", "wait", "--event-bytes-max", "1000")
    told = "delivery = reliable, order = publisher, slow = wait, event_bytes_max = 1000, partition = go_on"
    assert (code, out) == (0, f"chat/room: {told}, admission = root\n")
    subscriber = quillcast.subscribed("chat/room")
    shown = quillcast.json("topic", "show", "chat/room")
    settings = shown["settings"]
    assert (settings["slow"], settings["event_bytes_max"], shown["subscriptions"]) == ("wait", 1000, 1)
    assert [topic["name"] for topic in quillcast.json("topic", "list")] == ["chat/room"]
    code, out, err = quillcast.run("topic", "create", "chat/room", "--slow", "cut")
    assert (code, out) == (2, "")
    assert "chat/room" in err
    subscriber.signal(signal.SIGTERM)
    assert subscriber.end()[0] == 143


def test_settings_of_a_topic_in_use_change_after_their_costs_are_shown(quillcast: Commands) -> None:
    quillcast.start("node").line()
    subscriber = quillcast.subscribed("chat/room", "--count", "1")
    code, out, err = quillcast.run("topic", "set", "chat/room", "--slow", "wait", "--event-bytes-max", "10")
    told = "delivery = reliable, order = publisher, slow = wait, event_bytes_max = 10, partition = go_on"
    assert (code, out) == (0, f"chat/room: {told}, admission = root\n")
    assert err.startswith("slow = wait: publishers go no faster than the slowest subscriber")
    assert err.count("\n") == 1
    assert quillcast.json("topic", "show", "chat/room")["settings"]["slow"] == "wait"
    assert quillcast.run("pub", "chat/room", "eleven bytes")[0] == 2
    code, _, err = quillcast.run("topic", "set", "chat/room", "--event-bytes-max", "1000", "--json")
    assert code == 0
    assert err.startswith("event_bytes_max = 1000: a peer's buffers")
    assert quillcast.run("pub", "chat/room", "eleven bytes")[0] == 0
    assert subscriber.end() == (0, "eleven bytes\n", "")
    code, out, err = quillcast.run("topic", "set", "chat/room", "--delivery", "best_effort")
    assert (code, out) == (2, "")
    assert "slow = 'wait' needs delivery = 'reliable'" in err
    code, out, err = quillcast.run("topic", "set", "chat/room", "--delivery", "best_effort", "--slow", "cut")
    assert code == 0
    assert out.startswith("chat/room: delivery = best_effort, ")
    assert out.endswith("session = 1\n")
    assert "a new session begins: " in err
    code, out, err = quillcast.run(
        "topic", "set", "chat/room", "--admission", "source", "--delivery", "reliable", "--yes"
    )
    why = "delivery of 'chat/room' cannot change from best_effort to reliable together with admission"
    assert (code, out, err) == (2, "", f"quillcast: {why}: change one after the other\n"), "nothing is announced"
    code, out, err = quillcast.run("topic", "set", "chat/room", "--publisher", "ab" * 16)
    assert (code, out) == (2, "")
    assert err.startswith("quillcast: topic 'chat/room' has no owner")


def test_who_numbers_the_events_of_a_topic_changes_while_it_is_in_use(quillcast: Commands) -> None:
    quillcast.start("node").line()
    subscriber = quillcast.subscribed("prices", "--count", "300")
    publisher = quillcast.start("pub", "prices", "{{count}}", "--count", "300", "--rate", "100")
    for session, admission in enumerate(["source", "root", "source"], 1):
        code, out, err = quillcast.run("topic", "set", "prices", "--admission", admission)
        assert (code, f"admission = {admission}, session = {session}" in out) == (0, True), (out, err)
        assert err.startswith("a new session begins: ")
    assert publisher.end()[0] == 0
    assert subscriber.end() == (0, "".join(f"{number}\n" for number in range(1, 301)), "")


def test_a_topic_with_an_owner_takes_credentials(quillcast: Commands, tmp_path: Path) -> None:
    quillcast.start("node").line()
    owner, guest = str(tmp_path / "owner.key"), str(tmp_path / "guest.key")
    principal = quillcast.json("topic", "create", "guests", "--as", guest)["settings"]["owner"]
    made = quillcast.json("topic", "create", "mine", "--as", owner, "--publisher", principal)
    assert len(made["settings"]["owner"]) == len(principal) == 32
    subscriber = quillcast.subscribed("mine", "--count", "1")
    code, _, err = quillcast.run("pub", "mine", "nobody's")
    assert code == 2
    assert "mine" in err
    assert quillcast.run("pub", "mine", "the guest's", "--as", guest) == (0, "", "")
    assert subscriber.end() == (0, "the guest's\n", "")
    assert quillcast.run("topic", "set", "mine", "--slow", "wait", "--as", guest)[0] == 2
    assert quillcast.run("topic", "set", "mine", "--slow", "wait", "--as", owner)[0] == 0
    code, _, err = quillcast.run("pub", "mine", "x", "--as", str(tmp_path / "no.key"))
    assert code == 2
    assert "no.key" in err


def test_a_closed_output_ends_a_command_quietly(quillcast: Commands) -> None:
    subscriber = quillcast.subscribed("sport/tennis")
    assert subscriber.process.stdout is not None
    subscriber.process.stdout.close()
    assert quillcast.run("pub", "sport/tennis", "unheard")[0] == 0
    subscriber.process.wait(timeout=30)
    assert subscriber.process.returncode == 0
    assert subscriber.process.stderr is not None
    assert subscriber.process.stderr.read() == b""


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.1, 0.2, 0.4, 0.8])
@pytest.mark.parametrize("arguments", [("sub", "t"), ("pub", "t"), ("node",)], ids=lambda arguments: arguments[0])
def test_ctrl_c_at_any_moment_ends_in_good_order(
    quillcast: Commands, arguments: tuple[str, ...], delay_s: float
) -> None:
    quillcast.environment["PYTHONPROFILEIMPORTTIME"] = "1"  # it then says when it has come to our first lines
    command = quillcast.start(*arguments)
    while not command.line(2).endswith(" quillcast.cli.endings"):
        pass
    with pytest.raises(TimeoutError):
        command.wait(delay_s)
    command.signal(signal.SIGINT)
    code, _, err = command.end()
    assert "Traceback" not in err
    assert code == 130


@pytest.mark.parametrize(
    "arguments", [("pub", "t", "x"), ("sub", "t", "--count", "1")], ids=lambda arguments: arguments[0]
)
def test_publishing_and_subscribing_load_no_heavy_library(quillcast: Commands, arguments: tuple[str, ...]) -> None:
    quillcast.environment["PYTHONPROFILEIMPORTTIME"] = "1"
    command = quillcast.start(*arguments)
    if arguments[0] == "sub":
        while "subscribed to" not in (line := command.line(2)):
            assert "pyarrow" not in line
        command.signal(signal.SIGINT)
    _, _, imported = command.end()
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in imported.splitlines()}
    assert "quillcast" in loaded or arguments[0] == "sub"
    assert loaded & {"pyarrow", "pyspark", "numpy", "pandas", "rich", "jinja2", "matplotlib"} == set()
