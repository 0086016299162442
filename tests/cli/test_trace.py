"""`quillcast trace`: what it draws, and what it says of real peers."""

import json
import re
import signal

import pytest

from quillcast.cli.trace import draw
from quillcast.core.status.base import PeerContact
from quillcast.core.status.traces import TraceHop, TraceStatus, TraceWay
from tests.cli.commands import Commands, topic_near


def way(node: str, why: str = "", channel: str = "", filter_: str = "") -> TraceWay:
    return TraceWay(node * 8, f"h:{node}", why, channel, filter_, "")


def hop(node: str, sender: str | None, at_ms: float, *ways: TraceWay, **more: object) -> TraceHop:
    fields = {"scope": "", "record": "", "stopped": "", "repair": False, "subscriptions": 1, "waiting": 0, **more}
    return TraceHop(node * 8, f"h:{node}", sender and sender * 8, at_ms, ways=ways, **fields)  # type: ignore[arg-type]


def trace(*hops: TraceHop, silent: str = "", missing: str = "") -> TraceStatus:
    return TraceStatus(
        "t", known=True, complete=not (silent or missing), events=2, size_bytes=90, term="1.a", first=7, serial=3,
        published_ns=0, publisher=PeerContact("a" * 8, "h:a"), hops=hops,
        unresponsive=tuple(PeerContact(each * 8, f"h:{each}") for each in silent),
        not_reached=tuple(PeerContact(each * 8, f"h:{each}") for each in missing),
    )  # fmt: skip


def test_hops_are_drawn_as_a_tree_with_times_and_scopes_as_boxes() -> None:
    site = {"scope": "site", "record": "1-2"}
    shown = list(
        draw(
            trace(
                hop("a", None, 0.5, way("b"), way("c"), subscriptions=0),
                hop("b", "a", 1.0, way("d", channel="1-2", filter_="serial modulo 2 = 1"), scope="site"),
                hop("d", "b", 1.75, way("e", "its filter", "2-3", "serial modulo 2 = 0"), way("c"), **site),
                hop("c", "a", 2.0, waiting=1, subscriptions=0),
                hop("c", "d", 2.5, stopped="repeat"),
            ),
            10.0,
        )
    )
    assert shown[0].startswith("t: 2 events (90 B), index 7 of term 1.a, serial 3, published at ")
    assert shown[0].endswith(" by peer aaaaaaaa (h:a)")
    assert shown[1:] == [
        "aaaaaaaa h:a  0.50 ms, begins here",
        "├── ┌─ scope site ─────────────────────────────────────────────────────────────────────────────────────┐",
        "│   │ bbbbbbbb h:b  1.00 ms (+0.50), 1 subscription                                                    │",
        "│   │ └── dddddddd h:d  1.75 ms (+0.75), channel 1-2 (serial modulo 2 = 1), record 1-2, 1 subscription │",
        "│   │     ├── not to eeeeeeee over channel 2-3: the filter accepts serial modulo 2 = 0                 │",
        "│   │     └── also to cccccccc: already had it                                                         │",
        "│   └──────────────────────────────────────────────────────────────────────────────────────────────────┘",
        "└── cccccccc h:c  2.00 ms (+1.50), waits in 1 subscription",
        "reached 4 peers and 2 subscriptions within 2.00 ms; 1 more copy ended at peers that had it",
    ]


def test_who_does_not_answer_and_who_is_not_reached_is_named() -> None:
    shown = list(draw(trace(hop("a", None, 0.5, way("b"), way("c", "waits")), silent="b", missing="cd"), 10.0))
    assert shown[1:] == [
        "aaaaaaaa h:a  0.50 ms, begins here, 1 subscription",
        "├── waits for cccccccc, which accepts nothing at the moment",
        "└── bbbbbbbb did not answer",
        "reached 1 peer and 1 subscription within 0.50 ms",
        "peer bbbbbbbb (h:b) does not answer",
        "not reached within 2 s: cccccccc, dddddddd",
    ]


def test_where_no_bundle_came_it_says_so() -> None:
    assert list(draw(trace(silent="b"), 2.5)) == [
        "no bundle of t came within 2.5 s",
        "peer bbbbbbbb (h:b) does not answer",
        "run `quillcast pub t MESSAGE` in another terminal meanwhile, or wait longer with --timeout",
    ]


@pytest.mark.live
def test_it_follows_a_bundle_and_names_a_peer_that_is_stopped(quillcast: Commands) -> None:
    node = json.loads(quillcast.start("node", "--json").line())["node_id"]
    topic = topic_near(node)
    assert quillcast.run("trace", topic)[0] == 2
    subscriber = quillcast.subscribed(topic)
    code, out, _ = quillcast.run("trace", topic, "--timeout", "0.5", "--peer", node)
    assert (code, out.splitlines()[0]) == (1, f"no bundle of {topic} came within 0.5 s")
    quillcast.start("pub", topic, "{{count}}", "--count", "0", "--rate", "50")
    subscriber.line()
    code, out, _ = quillcast.run("trace", topic, "--peer", node)
    lines = out.splitlines()
    assert code == 0, out
    assert lines[1].startswith(f"{node[:8]} ")
    assert lines[1].endswith("begins here")
    assert re.fullmatch(r"└── .* ms \(\+.*\), 1 subscription", lines[2])
    assert lines[3].startswith("reached 2 peers and 1 subscription within ")
    subscriber.signal(signal.SIGSTOP)
    code, out, _ = quillcast.run("trace", topic, "--peer", node)
    subscriber.signal(signal.SIGCONT)
    assert code == 1
    assert re.search(r"^peer [0-9a-f]{8} \(127\.0\.0\.1:\d+\) does not answer$", out, re.MULTILINE)
