"""`top` and `check`: what peers do now, and their health, for people and for monitors."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from quillcast.cli import judging, top
from quillcast.cli.judging import Bounds, Finding, State
from quillcast.core.status.machines import Activity, PeerLink
from quillcast.core.status.peers import Counters, JournalStatus, LinkStatus, MemoryUse, NodeStatus
from quillcast.core.status.topics import SubscriberLag, TopicSettings
from quillcast.core.status.trees import TreePeer, TreeStatus, UnresponsivePeer
from tests.cli.commands import Commands, read_terminal, topic_near

ALICE, BOB = "a1" * 16, "b0" * 16

LINK = LinkStatus(
    BOB, "127.0.0.1:2", connected=True, suspected=False, round_trip_ms=0.5, credit_bytes=100, waiting_bytes=0,
    held_bytes=0,
)  # fmt: skip
STATUS = NodeStatus(
    ALICE, "127.0.0.1:1", "test", pid=1, uptime_s=12.5, active=True, credential=None, admits=False, looked_in="/run",
    unauthenticated=0, neighbours=(LINK,), leaf_set=(), topics=(), buffers=MemoryUse(0, 100),
    unfinished=MemoryUse(0, 100), counters=Counters(), problems=(), journal=None,
)  # fmt: skip
LAG = SubscriberLag(
    "t", BOB, name="", number=1, behind_events=0, behind_s=0.0, stalled_s=0.0, waiting_events=0, waiting_bytes=0
)
ROOT = TreePeer(
    ALICE, "127.0.0.1:1", root=True, parent=None, children=(BOB,), subscriptions=1, term="1.a1a1a1a1", frontier=50_000,
    lags=(replace(LAG, node_id=ALICE),),
)  # fmt: skip
LEAF = replace(ROOT, node_id=BOB, root=False, parent=ALICE, children=(), lags=(LAG,))
TREE = TreeStatus(
    "t", complete=True, root=ALICE, settings=None, events=50_000, peers=(ROOT, LEAF), unresponsive=()
)  # fmt: skip


def leaf(**lag: Any) -> dict[str, Any]:
    """The changes to a tree whose second peer has a subscription so far behind."""
    return {"peers": (ROOT, replace(LEAF, lags=(replace(LAG, **lag),)))}


def unresponsive(**known: Any) -> dict[str, Any]:
    """The changes to a tree of which one peer does not answer."""
    peer = UnresponsivePeer(BOB, None, lost=False, behind_events=0)
    return {"complete": False, "peers": (ROOT,), "unresponsive": (replace(peer, **known),)}


@pytest.mark.parametrize(
    ("changed", "state", "text"),
    [
        ({}, State.OK, "peer a1a1a1a1: 1 neighbour, 0 topics"),
        ({"active": False}, State.CRITICAL, "has not joined"),
        ({"neighbours": ()}, State.CRITICAL, "0 live neighbours, not 1"),
        ({"buffers": MemoryUse(80, 100)}, State.WARNING, "buffers are 80 % full"),
        ({"buffers": MemoryUse(96, 100)}, State.CRITICAL, "buffers are 96 % full"),
        ({"problems": ("a handler failed",)}, State.WARNING, "a handler failed"),
        ({"journal": JournalStatus("j", "no space left", 0, 0)}, State.CRITICAL, "no space left"),
        ({"neighbours": (LINK, replace(LINK, suspected=True))}, State.WARNING, "1 of 2 neighbours suspected"),
    ],
)
def test_a_peer_is_judged_by_its_status(changed: dict[str, Any], state: State, text: str) -> None:
    found = judging.of_peer(replace(STATUS, **changed), Bounds(neighbours_min=1))
    assert found.state == state
    assert text in found.text


def test_a_journal_without_its_folder_is_named_once() -> None:
    failed = "the folder /j was removed; nothing is written until it is back"
    problems = (f"its journal was removed: {failed}", "a handler failed")
    found = judging.of_peer(replace(STATUS, journal=JournalStatus("/j/1", failed, 1, 0), problems=problems), Bounds())
    assert found.state == State.CRITICAL
    assert (found.text.count(failed), found.text.count("a handler failed")) == (1, 1)


@pytest.mark.parametrize(
    ("changed", "state", "text"),
    [
        ({}, State.OK, "topic t: root a1a1a1a1, 2 peers, 2 subscriptions"),
        ({"peers": (), "root": None, "complete": False}, State.CRITICAL, "no root answers"),
        ({"complete": False}, State.WARNING, "not every peer"),
        ({"peers": (ROOT, replace(ROOT, node_id=BOB))}, State.WARNING, "2 peers believe that they are its root"),
        ({"peers": (replace(ROOT, subscriptions=0),)}, State.CRITICAL, "0 subscriptions, not 1"),
        ({"peers": (ROOT,)}, State.OK, "root a1a1a1a1, 1 peer, 1 subscription"),
        (leaf(behind_events=3), State.OK, "at most 3 events behind (b0b0b0b0)"),
        (leaf(behind_events=10_001), State.WARNING, "subscriber b0b0b0b0 is 10001 events and 0.0 s behind"),
        (leaf(behind_events=100_001, name="archive"), State.CRITICAL, "subscriber b0b0b0b0 archive is 100001 events"),
        (leaf(behind_events=1, behind_s=11.0, stalled_s=9.0), State.WARNING, "processed nothing for 9 s"),
        (leaf(behind_events=1, behind_s=61.0), State.CRITICAL, "1 event and 61.0 s behind"),
        (leaf(behind_s=99.0), State.OK, "2 subscriptions"),
        (unresponsive(), State.WARNING, "peer b0b0b0b0 does not answer"),
        (unresponsive(behind_events=79_000), State.WARNING, "does not answer, 79000 events behind by its last report"),
        (
            unresponsive(behind_events=2, behind_s=11.0),
            State.WARNING,
            "does not answer, 2 events behind by its last report, the oldest 11.0 s old",
        ),
        (unresponsive(behind_events=2, behind_s=61.0), State.CRITICAL, "the oldest 61.0 s old"),
        (
            unresponsive(behind_events=100_001),
            State.CRITICAL,
            "does not answer, 100001 events behind by its last report",
        ),
        (
            unresponsive(lost=True, behind_events=None),
            State.WARNING,
            "peer b0b0b0b0 is lost, and its lease is still running",
        ),
    ],
)
def test_a_topic_is_judged_by_its_tree(changed: dict[str, Any], state: State, text: str) -> None:
    found = judging.of_topic("test", replace(TREE, **changed), Bounds(subscribers_min=1))
    assert found.state == state
    assert text in found.text


def test_a_topic_whose_sources_number_the_events_has_as_many_streams_as_its_root_knows() -> None:
    settings = TopicSettings("reliable", "publisher", "cut", 1 << 20, "go_on", admission="source")
    peers = (replace(ROOT, streams=3), replace(LEAF, streams=1))
    found = judging.of_topic("test", replace(TREE, settings=settings, peers=peers), Bounds())
    assert (found.state, found.values["streams"]) == (State.OK, 3)
    assert found.text == "topic t: root a1a1a1a1, 2 peers, 2 subscriptions, 3 streams of sources"
    by_root = judging.of_topic("test", TREE, Bounds())
    assert (by_root.values["streams"], "streams" in by_root.text) == (0, False)


def test_a_topic_is_not_ok_while_a_possible_subscriber_here_does_not_answer() -> None:
    found = judging.of_topic("test", TREE, Bounds(), unresponsive=["c3" * 16])
    assert found.state == State.WARNING
    assert found.text == "topic t: peer c3c3c3c3 of this machine does not answer, and may be a subscriber"
    answers = judging.of_topic("test", TREE, Bounds(), unresponsive=[ROOT.node_id])
    assert answers.state == State.OK, "it answered when the tree was walked"
    known = judging.of_topic("test", replace(TREE, **unresponsive()), Bounds(), unresponsive=[BOB])
    assert "may be a subscriber" not in known.text
    assert [each.values["unresponsive"] for each in (found, answers, known)] == [1, 0, 1]


def test_the_figures_of_a_topic_include_peers_that_do_not_answer() -> None:
    silent = unresponsive(behind_events=5, behind_s=7.5)
    found = judging.of_topic("test", replace(TREE, **silent), Bounds())
    assert (found.values["behind_events"], found.values["behind_seconds"]) == (5, 7.5)
    lines = list(judging.prometheus("topic", [found]))
    assert (
        f'quillcast_subscriber_behind_seconds{{network="test",topic="t",peer="{BOB}",subscription=""}} 7.500000'
        in lines
    )


@pytest.mark.parametrize(
    ("changed", "state", "text"),
    [
        ({}, State.OK, "link a1a1a1a1 to b0b0b0b0: up"),
        ({"round_trip_ms": None}, State.UNKNOWN, "this peer has not measured its round trip"),
        ({"connected": False}, State.CRITICAL, "it is down"),
        ({"suspected": True, "waiting_bytes": 9}, State.CRITICAL, "the neighbour is suspected; 9 bytes are queued"),
        ({"round_trip_ms": 3.0}, State.WARNING, "a round trip takes 3.0 ms"),
    ],
)
def test_a_link_is_judged_by_one_of_its_ends(changed: dict[str, Any], state: State, text: str) -> None:
    found = judging.of_link(STATUS, replace(LINK, **changed), Bounds(waiting_bytes_max=8, round_trip_ms_max=2.0))
    assert found.state == state
    assert text in found.text


def test_an_unmeasured_link_is_ok_unless_its_round_trip_is_checked() -> None:
    assert judging.of_link(STATUS, replace(LINK, round_trip_ms=None), Bounds()).state == State.OK


def test_lag_may_be_critical_without_a_warning_before() -> None:
    found = judging.of_topic("test", replace(TREE, **leaf(behind_events=5)), Bounds(behind_critical=4))
    assert found.state == State.CRITICAL


def test_every_subscriber_has_gauges_of_its_own() -> None:
    found = judging.of_topic("test", replace(TREE, **leaf(behind_events=7, behind_s=0.5, name="archive")), Bounds())
    metrics = list(judging.prometheus("topic", [found]))
    labels = f'network="test",topic="t",peer="{BOB}",subscription="archive"'
    assert f"quillcast_subscriber_behind_events{{{labels}}} 7" in metrics
    assert f"quillcast_subscriber_behind_seconds{{{labels}}} 0.500000" in metrics
    assert 'quillcast_topic_behind_events{network="test",topic="t"} 7' in metrics


def test_buffers_may_be_critical_without_a_warning_before() -> None:
    found = judging.of_peer(STATUS, Bounds(buffers_warning=0.8, buffers_critical=0.0))
    assert (found.state, "buffers are 0 % full" in found.text) == (State.CRITICAL, True)


def test_a_name_does_not_pass_for_figures() -> None:
    assert judging.line([Finding({}, State.OK, "topic a|b=1", {"events": 3})]) == "OK - topic a/b=1 | events=3"


def test_the_worst_of_several_findings_decides_and_is_named() -> None:
    findings = [Finding({}, state, state.name.lower(), {}) for state in (State.OK, State.CRITICAL, State.WARNING)]
    assert judging.line(findings) == "CRITICAL - 1 of 3 are OK; critical; warning"
    assert judging.line(findings[:1]) == "OK - ok"
    assert judging.worst([]) == State.UNKNOWN


def test_prometheus_output_has_types_labels_and_base_units() -> None:
    findings = [Finding({"topic": 'a"b\\c\nd'}, State.WARNING, "", {"round_trip_seconds": 0.25, "events": 3})]
    assert list(judging.prometheus("topic", findings)) == [
        "# TYPE quillcast_topic_state gauge",
        r'quillcast_topic_state{topic="a\"b\\c\nd"} 1',
        "# TYPE quillcast_topic_round_trip_seconds gauge",
        r'quillcast_topic_round_trip_seconds{topic="a\"b\\c\nd"} 0.250000',
        "# TYPE quillcast_topic_events gauge",
        r'quillcast_topic_events{topic="a\"b\\c\nd"} 3',
    ]


def test_without_a_peer_top_says_so_and_check_raises_the_alarm(quillcast: Commands) -> None:
    nobody = "no peer of the network 'test' runs on this machine"
    code, out, err = quillcast.run("top", "--once")
    assert (code, out) == (4, "")
    assert nobody in err
    for what in (["peer"], ["topic", "t"], ["link"]):
        code, out, err = quillcast.run("check", *what)
        assert (code, err) == (2, "")
        assert out.startswith(f"CRITICAL - {nobody}")
        assert out.count("\n") == 1


@pytest.mark.parametrize("arguments", [["peer", "--bogus"], ["topic"], ["planet"]], ids=" ".join)
def test_wrong_arguments_of_a_check_are_not_an_alarm(quillcast: Commands, arguments: list[str]) -> None:
    code, out, err = quillcast.run("check", *arguments)
    assert (code, out) == (3, "")
    assert err.count("\n") == 1


def test_check_without_arguments_shows_its_help_and_is_not_ok(quillcast: Commands) -> None:
    code, out, err = quillcast.run("check")
    assert (code, err) == (3, "")
    assert "Usage: quillcast check" in out


def test_a_check_that_could_not_look_or_print_is_unknown(quillcast: Commands) -> None:
    code, out, err = quillcast.run("check", "peer", "--runtime-dir", "/dev/null/not/a/folder")
    assert (code, out) == (3, "")
    assert "the runtime folder /dev/null/not/a/folder cannot be used: Not a directory" in err
    line = f"{sys.executable} -m quillcast check peer >/dev/full"
    ended = subprocess.run(line, shell=True, env=quillcast.environment, capture_output=True, check=False)
    assert ended.returncode == 3
    assert b"No space left on device" in ended.stderr


@pytest.mark.live
def test_peers_of_other_networks_are_pointed_at(quillcast: Commands) -> None:
    quillcast.start("node", "--network", "elsewhere").line()
    _, _, err = quillcast.run("status")
    assert "there are peers of: elsewhere (--network, or network= in Python)" in err


@pytest.mark.live
def test_top_shows_rates_of_all_peers_and_those_that_do_not_answer(quillcast: Commands) -> None:
    node = json.loads(quillcast.start("node", "--json").line())
    topic = topic_near(node["node_id"])
    subscriber = quillcast.subscribed(topic)
    quillcast.start("pub", topic, "tick {{count}}", "--count", "0", "--rate", "200")
    subscriber.line()
    seen = quillcast.json("top")
    assert len(seen["peers"]) == 3
    assert seen["unresponsive"] == []
    [shown] = seen["topics"]
    assert (shown["name"], shown["root"], shown["subscriptions"], shown["publishers"]) == (topic, node["node_id"], 1, 1)
    assert shown["events_per_s"] > 0
    [root] = [peer for peer in seen["peers"] if peer["node_id"] == node["node_id"]]
    assert root["events_per_s"] > 0
    assert root["in_bytes_per_s"] > 0
    assert root["memory_bytes"] > 1 << 20
    assert root["neighbours"] == 2
    subscriber.signal(signal.SIGSTOP)
    code, out, _ = quillcast.run("top")
    subscriber.signal(signal.SIGCONT)
    assert code == 0
    assert re.search(r"^network test: 2 peers, 1 topic, [\d,]+ events/s", out)
    assert "\x1b[" not in out
    assert re.search(r"^[0-9a-f]{8} does not answer$", out, re.MULTILINE)
    assert re.search(
        rf"^subscribers that are behind:\n.*\n  {topic} +[0-9a-f]{{8}} +\(no answer\) +\d+ ", out, re.MULTILINE
    )


@pytest.mark.live
def test_top_draws_on_a_terminal_until_ctrl_c(quillcast: Commands) -> None:
    node = json.loads(quillcast.start("node", "--json").line())
    ours, theirs = pty.openpty()
    quillcast.environment |= {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"}
    with subprocess.Popen(
        [sys.executable, "-m", "quillcast", "top", "--interval", "0.1"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=quillcast.environment,
    ) as top:  # fmt: skip
        os.close(theirs)
        shown = b""
        while shown.count(node["node_id"][:8].encode()) < 2:
            shown += os.read(ours, 1 << 16)
        top.send_signal(signal.SIGINT)
        while read_terminal(ours):
            pass
    os.close(ours)
    assert top.returncode == 130
    assert b"Traceback" not in shown


@pytest.mark.parametrize("coloured", [True, False])
def test_top_draws_what_fits_the_terminal(coloured: bool) -> None:
    link = PeerLink("ab" * 16, replace(LINK, node_id="cd" * 16, round_trip_ms=1.5, suspected=True))
    seen = Activity("n", 1.0, peers=(), topics=(), subscribers=(), links=(link,), unresponsive=("ef" * 16,) * 20)
    picture = top._picture(seen, os.terminal_size((40, 9)), coloured=coloured)
    lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", picture).split("\r\n")
    assert lines[0] == "network n: 0 peers, 0 topics, 0 events/s"  # there is no room for how to end
    assert lines[4] == "  abababab  cdcdcdcd  suspected      0 B"  # nor for the round trip
    assert len(lines) == 9
    assert ("\x1b[33m  abababab" in picture) == coloured


@pytest.mark.live
def test_a_check_of_a_topic_names_a_stopped_peer_of_this_machine(quillcast: Commands) -> None:
    quillcast.subscribed("sport/tennis")
    stopped = quillcast.start("node", "--json")
    other = json.loads(stopped.line())
    assert quillcast.run("check", "topic", "sport/tennis")[0] == 0
    stopped.signal(signal.SIGSTOP)
    try:
        code, out, _ = quillcast.run("check", "topic", "sport/tennis")
    finally:
        stopped.signal(signal.SIGCONT)
    assert code != 0
    assert f"peer {other['node_id'][:8]}" in out


@pytest.mark.live
def test_checks_of_running_peers(quillcast: Commands) -> None:
    node = json.loads(quillcast.start("node", "--json").line())
    quillcast.subscribed("sport/tennis")
    code, out, _ = quillcast.run("check", "peer", "--peer", node["node_id"][:6])
    assert code == 0
    assert re.fullmatch(rf"OK - peer {node['node_id'][:8]}: 1 neighbour, \d topics? \| neighbours=1 .*\n", out)
    code, out, _ = quillcast.run("check", "peer", "--neighbours-min", "2")
    assert (code, out.split(";")[0]) == (2, "CRITICAL - 0 of 2 are OK")
    code, out, _ = quillcast.run("check", "topic", "sport/tennis", "--prometheus")
    assert code == 0
    assert 'quillcast_topic_subscribers{network="test",topic="sport/tennis"} 1' in out.splitlines()
    assert quillcast.run("check", "topic", "nobody/knows")[0] == 2
    found = quillcast.json("check", "link")
    assert (found["state"], found["code"], len(found["found"])) == ("OK", 0, 1)
    code, out, _ = quillcast.run("check", "link", "nobody")
    assert (code, out) == (2, f"CRITICAL - peer {node['node_id'][:8]} has no link to nobody\n")
