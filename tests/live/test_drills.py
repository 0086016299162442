"""A node whose cable is pulled for a while misses nothing."""

import asyncio
from pathlib import Path

import pytest

from quillcast import Node, run

pytestmark = [pytest.mark.live, pytest.mark.slow]
PATIENCE_S = 60.0


def test_an_unplugged_node_is_alone_and_has_everything_once_it_is_plugged_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    async def scenario() -> None:
        async with Node() as alice, Node() as bob, Node() as carol:
            mine, theirs = carol.subscribe("t"), bob.subscribe("t")
            await mine.started()
            await theirs.started()
            await alice.publish("t", b"before", wait="stable")
            carol.unplug()
            while any(link.connected for link in carol.status().neighbours):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0)
            await alice.publish("t", b"meanwhile", wait="root")
            assert [(await anext(theirs)).payload for _ in range(2)] == [b"before", b"meanwhile"]
            assert (await anext(mine)).payload == b"before"
            carol.plug_in()
            async with asyncio.timeout(PATIENCE_S):
                assert (await anext(mine)).payload == b"meanwhile"
            assert mine.lost_count == 0

    run(scenario())
