"""Traffic on links without events, and memory of a peer, with many topics on 16 peers.

Every peer is a process and subscribes to every topic. Then nothing happens for 10 s. For another 10 s every peer closes
and renews 1 % of its subscriptions each second (`changing_per_s`). Messages and bytes are those of all peers, per link
and per peer.

- `held_s`: how long it took until all subscriptions were established.
- `topic_bytes`: the growth of a peer's resident memory since the row with one topic, per topic.
- `grown_messages`, `grown_bytes`: figures per link, relative to the first row with the same changes.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from actors import Process, ask_all

PEERS = 16
TOPICS, SECONDS = (1, 100, 10_000), (10.0, 10.0)  # idle, and while subscriptions change
QUICK_TOPICS, QUICK_SECONDS = (1, 100, 500), (5.0, 2.0)
SETTLE_S, QUICK_SETTLE_S = 20.0, 3.0  # from the last subscription to the measurement, so that its consequences are over
CHANGING = 0.01  # of the subscriptions, every second
STRIDE = 64  # subscriptions that a peer makes at once
STEP_S = 0.05  # changes are made this often

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer topics, in less than a minute")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--topics", type=int, nargs="*", help="numbers of topics, rising")
    parser.add_argument("--peer", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer is not None:
        return perform(options.peer)
    topics = tuple(options.topics or (QUICK_TOPICS if options.quick else TOPICS))
    rows = []
    seconds, settle_s = (QUICK_SECONDS, QUICK_SETTLE_S) if options.quick else (SECONDS, SETTLE_S)
    for row in measure(topics, seconds, settle_s):
        print(row, flush=True)
        rows.append(row)
    if options.json:
        print(json.dumps({"benchmark": "links", "results": rows}))
    return None


def measure(topics: tuple[int, ...], seconds: tuple[float, float], settle_s: float) -> Iterator[Row]:
    """All rows, in one network that grows."""
    with network() as peers:
        first: dict[float, Row] = {}
        for count in topics:
            began = time.monotonic()
            ask_all(peers, "hold", topics=count)
            held_s = time.monotonic() - began
            time.sleep(settle_s)
            for changing, each_s in zip((0.0, CHANGING), seconds, strict=True):
                row = _row(peers, count, each_s, changing) | {"held_s": round(held_s, 1)}
                yield row | _grown(row, first.setdefault(changing, row), first[0.0])


def _row(peers: Sequence["Process"], topics: int, seconds: float, changing: float) -> Row:
    stood = ask_all(peers, "stand", seconds=seconds, changing=changing)
    links = sum(each["links"] for each in stood) / 2
    messages, bytes_, cpu_s = (sum(each[name] for each in stood) for name in ("messages_in", "bytes_out", "cpu_s"))
    return {
        "system": "quillcast",
        "topics": topics,
        "changing_per_s": changing,
        "links": round(links),
        "link_messages_per_s": round(messages / links, 2),
        "link_bytes_per_s": round(bytes_ / links, 1),
        "peer_messages_per_s": round(messages / PEERS, 2),
        "peer_bytes_per_s": round(bytes_ / PEERS, 1),
        "peer_cpu_s_per_s": round(cpu_s / PEERS, 4),
        "peer_bytes": round(statistics.mean(each["rss_bytes"] for each in stood)),
    }


def _grown(row: Row, like: Row, first: Row) -> Row:
    """Compare a row with the first one with the same changes, and its memory with that of the first one."""
    more = row["topics"] - first["topics"]
    return {
        "grown_messages": round(row["link_messages_per_s"] / like["link_messages_per_s"], 2),
        "grown_bytes": round(row["link_bytes_per_s"] / like["link_bytes_per_s"], 2),
        "topic_bytes": round((row["peer_bytes"] - first["peer_bytes"]) / more) if more else None,
    }


# --- the conductor's side


class Peer(Process):
    """A peer in a process of its own."""

    def __init__(self, folder: str) -> None:
        super().__init__("a peer", [__file__, "--peer", folder])

    def end(self) -> None:
        """Kill the peer, because a good end would take time and is not measured."""
        self.process.kill()
        self.process.wait()


@contextmanager
def network() -> Iterator[list[Peer]]:
    """Start the peers of one network."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        peers: list[Peer] = []
        for more in (1, PEERS - 1):  # the first one creates the network
            started = [Peer(folder) for _ in range(more)]
            for peer in started:
                stack.callback(peer.end)
            for peer in started:
                peer.answer()
            peers += started
        yield peers


# --- the peer's side


class Performer:
    """Carries out orders with a node."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.held: list[Any] = []

    async def hold(self, topics: int) -> Row:
        """Subscribe to so many topics, and wait until all subscriptions are established."""
        for first in range(len(self.held), topics, STRIDE):
            made = [self.node.subscribe(f"links/{number}") for number in range(first, min(first + STRIDE, topics))]
            await asyncio.gather(*[subscription.started() for subscription in made])
            self.held += made
        return {}

    async def stand(self, seconds: float, changing: float) -> Row:
        """Wait while a share of the subscriptions is renewed every second. Returns the traffic of the links."""
        before, cpu_s, began_s, renewed = self.node.traffic(), time.process_time(), time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < seconds:
            while renewed < int(passed_s * changing * len(self.held)):
                place = renewed % len(self.held)
                await self.held[place].close()
                self.held[place] = self.node.subscribe(f"links/{place}")
                renewed += 1
            await asyncio.sleep(STEP_S if changing else seconds)
        after, passed_s = self.node.traffic(), time.monotonic() - began_s
        then, now = before.counters, after.counters
        carried = {
            "messages_in": (now.messages_in - then.messages_in) / passed_s,
            "bytes_out": (now.bytes_out - then.bytes_out) / passed_s,
        }
        cpu_s = (time.process_time() - cpu_s) / passed_s
        return {**carried, "links": after.links, "cpu_s": cpu_s, "rss_bytes": rss_bytes()}


def rss_bytes() -> int:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


async def _obey(folder: str) -> None:
    import quillcast

    async with quillcast.Node(network=f"links-{Path(folder).name}") as node:
        loop, performer = asyncio.get_running_loop(), Performer(node)
        print("{}", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = json.loads(line)
            print(json.dumps(await getattr(performer, order.pop("do"))(**order)), flush=True)


def perform(folder: str) -> None:
    """Run one of the peers until the conductor ends."""
    import os

    import quillcast

    os.environ |= {"XDG_RUNTIME_DIR": folder, "XDG_CONFIG_HOME": folder}
    quillcast.run(_obey(folder))


if __name__ == "__main__":
    main()
