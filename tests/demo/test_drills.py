"""Somebody at another terminal kills, cuts off and slows down peers of a running demo, and still nothing is lost."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Command, Commands, commands

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.spark]


AUDIT_S = 240.0  # at most, for Spark on a busy machine


@pytest.fixture
def quillcast(tmp_path: Path) -> Iterator[Commands]:
    with commands(tmp_path) as made:
        yield made


def heard(demo: Command, words: str) -> str:
    """The next line of what the demo tells people that has these words."""
    while words not in (line := demo.line(2)):
        pass
    return line


def test_peers_are_killed_by_hand_and_nothing_is_lost(quillcast: Commands, tmp_path: Path) -> None:
    folder = str(tmp_path / "demo")
    demo = quillcast.start("demo", "--peers", "8", "--rate", "100", "--no-kill", "--stay", "--json", "--output", folder)
    heard(demo, "events flow")
    peers = quillcast.json("demo", "peers")
    assert [peer["name"] for peer in peers] == [f"p{number:02}" for number in range(8)]
    assert sum(peer["role"] == "root" for peer in peers) == 1
    subscribers = [peer["name"] for peer in peers if peer["role"] == "subscriber" and not peer["children"]]
    [root] = [peer["name"] for peer in peers if peer["role"] == "root"]

    cut = quillcast.json("demo", "partition", subscribers[0], "--seconds", "4")
    assert cut["text"].startswith("cut off for 4 s")
    code, _, err = quillcast.run("demo", "kill", subscribers[0])
    assert (code, err) == (2, f"quillcast: {subscribers[0]} is cut off; choose another\n")
    assert quillcast.json("demo", "slow", subscribers[1], "--seconds", "1")["repaired_s"] is None
    heard(demo, f"{subscribers[0]} is connected again")
    struck = quillcast.json("demo", "kill", root)
    assert struck["children"] > 0
    assert struck["repaired_s"] > 0
    assert "is the new root" in struck["how"]
    assert {peer["name"]: peer["state"] for peer in quillcast.json("demo", "peers")}[root] == "killed"
    code, _, err = quillcast.run("demo", "kill", "p99")
    assert code == 2
    assert "'p99' is not a peer of the demo; there are: p00, p01" in err

    assert quillcast.run("demo", "end")[0] == 0
    code, out, words = demo.end(AUDIT_S)
    told = json.loads(out.splitlines()[-1])
    assert (code, told["lost"], told["duplicates"], told["kills"]) == (0, 0, 0, 1), words
    assert told["delivered"] == told["expected"] > 0
    assert "quillcast demo kill|partition|slow PEER" in words
