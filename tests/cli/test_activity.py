"""What `top` and `topic` make of the statuses of several peers, and that no command reads a status by strings."""

import ast
import asyncio
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import quillcast.cli
from quillcast.cli.activity import Look, activity, arrived
from quillcast.cli.summary import parts_by_topic, summary
from quillcast.cli.top import PEERS, _picture
from quillcast.core.messages import Contact
from quillcast.core.status.machines import PeerLink, TopicSummary
from quillcast.core.status.peers import Counters, LinkStatus, MemoryUse, NodeStatus
from quillcast.core.status.topics import SubscriberLag, TopicSettings, TopicStatus
from quillcast.live.discovery.control import ControlServer
from quillcast.live.discovery.questions import PeerQuestion, StatusQuestion, TopicsQuestion, TreeQuestion
from quillcast.live.discovery.registry import PeerRegistry
from tests.cli.commands import Commands

ALICE, BOB = "a1" * 16, "b0" * 16
LINK = LinkStatus(
    BOB, "127.0.0.1:2", connected=True, suspected=False, round_trip_ms=0.5, credit_bytes=100, waiting_bytes=0,
    held_bytes=0,
)  # fmt: skip
SETTINGS = TopicSettings("reliable", "publisher", "cut", 100, "go_on")
TOPIC = TopicStatus("t", "77" * 16, SETTINGS, role="root", publishers=1, never_stable=0, events_per_s=0.0)
ROOT = replace(TOPIC, term="1.a", frontier=100, known_end=100, stable=90, events=100)
LAG = SubscriberLag(
    "t", BOB, name="", number=1, behind_events=5, behind_s=1.0, stalled_s=0.0, waiting_events=5, waiting_bytes=50
)
LEAF = replace(
    ROOT, role="leaf", publishers=0, frontier=80, known_end=85, stable=60, events=80, subscriptions=1, lags=(LAG,)
)
KEPT = replace(TOPIC, name="kept", role="replica", publishers=0)
STATUS = NodeStatus(
    ALICE, "127.0.0.1:1", "test", pid=0, uptime_s=12.5, active=True, credential=None, admits=False, looked_in="/run",
    unauthenticated=0, neighbours=(LINK,), leaf_set=(), topics=(ROOT, KEPT), buffers=MemoryUse(0, 100),
    unfinished=MemoryUse(0, 100), counters=Counters(bytes_in=1000), problems=(), journal=None,
)  # fmt: skip
OTHER = replace(STATUS, node_id=BOB, topics=(LEAF,), neighbours=())


def look(at_s: float, *statuses: NodeStatus) -> Look:
    """The statuses of the peers at one time."""
    by_node = {status.node_id: status for status in statuses}
    return Look(at_s, by_node, dict.fromkeys(by_node, at_s / 4), ())


def test_the_root_knows_a_topics_settings_best() -> None:
    stale = replace(LEAF, settings=replace(SETTINGS, slow="wait"))
    parts = parts_by_topic([replace(OTHER, topics=(stale,)), STATUS])
    assert list(parts) == [("kept", ""), ("t", "")]
    assert summary(parts["t", ""]) == TopicSummary(
        "t", "77" * 16, SETTINGS, root=ALICE, events=100, peers=2, subscriptions=1, publishers=1
    )
    assert summary(parts["t", ""][:1]).settings.slow == "wait"
    assert summary(parts["kept", ""]) == TopicSummary(
        "kept", "77" * 16, SETTINGS, root=None, events=0, peers=0, subscriptions=0, publishers=0
    )


def test_events_arrive_within_a_term_from_the_start_of_a_new_one_and_at_a_new_topic_not_at_all() -> None:
    then = replace(STATUS, topics=(replace(ROOT, frontier=70),))
    assert arrived(then, STATUS) == {"t": 30, "kept": 0}
    assert arrived(then, replace(STATUS, topics=(replace(ROOT, term="2.b", frontier=4),))) == {"t": 4}
    assert arrived(replace(STATUS, topics=()), STATUS) == {"t": 0, "kept": 0}


def test_two_looks_make_rates() -> None:
    before = replace(STATUS, topics=(replace(ROOT, frontier=70), KEPT), counters=Counters())
    seen = activity("test", look(4.0, before), look(6.0, STATUS))
    [peer], [topic] = seen.peers, seen.topics
    assert seen.seconds == 2.0
    assert (peer.events_per_s, peer.in_bytes_per_s, peer.cpu_share, peer.topics) == (15.0, 500.0, 0.25, 2)
    assert (topic.name, topic.events_per_s, topic.unstable) == ("t", 15.0, 10)


def test_a_peer_that_was_not_there_before_has_no_rates() -> None:
    seen = activity("test", look(4.0), look(6.0, STATUS))
    assert [(peer.events_per_s, peer.in_bytes_per_s, peer.cpu_share) for peer in seen.peers] == [(0.0, 0.0, 0.0)]


def test_what_is_not_stable_is_known_where_the_root_is() -> None:
    best_effort = replace(ROOT, settings=replace(SETTINGS, delivery="best_effort"))
    for topic in (LEAF, best_effort):
        status = replace(STATUS, topics=(topic,))
        assert [each.unstable for each in activity("test", look(4.0, status), look(6.0, status)).topics] == [None]


def test_a_subscription_is_behind_by_what_another_peer_has_of_its_term() -> None:
    [lag] = activity("test", look(4.0), look(6.0, STATUS, OTHER)).subscribers
    assert lag == replace(LAG, behind_events=5 + 100 - 85)
    later = replace(STATUS, topics=(replace(ROOT, term="2.b", frontier=1000),))
    assert activity("test", look(4.0), look(6.0, later, OTHER)).subscribers == (LAG,)


@pytest.mark.parametrize("changed", [{"suspected": True}, {"connected": False}, {"waiting_bytes": 1}], ids=str)
def test_unhealthy_links_are_listed_with_their_peer(changed: dict[str, bool]) -> None:
    link = replace(LINK, **changed)
    seen = activity("test", look(4.0), look(6.0, replace(STATUS, neighbours=(LINK, link))))
    assert seen.links == (PeerLink(ALICE, link),)


# --- how commands read it

RESULTS = {"bench", "evaluate", "pub"}  # they index what they measured themselves


@pytest.mark.parametrize("width", [200, 100, 60])
def test_a_narrow_terminal_gets_whole_columns_and_is_told_of_the_others(width: int) -> None:
    seen = activity("test", look(0, STATUS, OTHER), look(1, STATUS, OTHER))
    picture = _picture(seen, os.terminal_size((width, 50)), coloured=False)
    lines = re.sub(r"\x1b\[\w*", "", picture).split("\r\n")
    assert all(len(line) <= width for line in lines)
    assert (" hidden)" in picture) == (width < 200)
    names = next(line.split() for before, line in pairwise(lines) if before.startswith("peers:"))
    assert {"peer", "events/s", "waiting"} <= {*names} <= {*PEERS}


def test_no_command_reads_a_status_by_strings() -> None:
    folder = Path(quillcast.cli.__file__).parent
    found = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(folder.glob("*.py"))
        if path.stem not in RESULTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    ]
    assert found == []


@contextmanager
def peer_that_tells(answer: object, network: str, folder: Path, node_id: str = ALICE) -> Iterator[None]:
    """A registered peer of another version: whatever is asked, it tells this."""
    contact, place = Contact(bytes.fromhex(node_id), "127.0.0.1:1"), PeerRegistry(network, folder)
    begun, over = threading.Event(), threading.Event()

    async def tell(question: PeerQuestion) -> object:
        return answer

    async def serve() -> None:
        place.enter(contact)
        async with ControlServer(place.control_path(contact), tell, (StatusQuestion, TopicsQuestion, TreeQuestion)):
            begun.set()
            await asyncio.to_thread(over.wait)
        place.leave(contact)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert begun.wait(30)
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.live
def test_a_peer_of_another_version_is_reported_in_one_line(quillcast: Commands, tmp_path: Path) -> None:
    """A later one may have more fields. One without a field, or of another type, is not understood."""
    arguments = ["--runtime-dir", str(tmp_path)]
    later = {**msgspec.to_builtins(STATUS), "added_later": 7}
    with peer_that_tells(later, "test", tmp_path):
        assert quillcast.run("status", *arguments)[0] == 0
        assert quillcast.run("check", "peer", *arguments)[0] == 0
    with peer_that_tells({"node_id": ALICE, "readers": []}, "test", tmp_path):
        for command in (["status"], ["top"], ["tree", "t"], ["topic", "list"]):
            code, out, err = quillcast.run(*command, *arguments)
            assert (code, out, err.count("\n")) == (3, "", 1), command
            assert "seems to run another version of quillcast" in err
        code, out, err = quillcast.run("check", "peer", *arguments)
        assert (code, err) == (3, "")
        assert out.startswith("UNKNOWN - the peer at")


@pytest.mark.live
def test_a_peer_of_another_version_does_not_hide_the_others(quillcast: Commands, tmp_path: Path) -> None:
    arguments = ["--runtime-dir", str(tmp_path)]
    ours = msgspec.to_builtins(STATUS)
    with (
        peer_that_tells(ours, "test", tmp_path),
        peer_that_tells({"node_id": BOB, "readers": []}, "test", tmp_path, BOB),
    ):
        code, out, err = quillcast.run("topic", "list", *arguments)
        assert (code, err.count("seems to run another version of quillcast")) == (0, 1)
        assert out
