"""Compare applications that share a peer (`quillcast.connect`) with applications that each are a peer.

Rows `rate`: events per second from a publisher to a subscriber at full speed, measured as in `throughput.py`, through
the topic's root in a third process. `node` is two nodes. `client` is two clients of the root's peer. In the other rows
one of the two is a client of a fourth process, but receives directly from the root, or publishes directly to it.
`ratio` is the rate divided by that of the nodes in the same run. A client delays nobody: its peer may drop events, and
`lost_share` is their share.

Rows `start`: milliseconds from `import quillcast` in a new process until it is connected to a running peer, or until
its own node has joined the network.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from actors import Actor, running
from head import Row, in_turns, median, parser, tell
from throughput import Stage

SYSTEMS = {
    "node": "quillcast, no journal",
    "client": "quillcast, clients",
    "receives directly": "quillcast, receiving clients",
    "publishes directly": "quillcast, publishing clients",
}
SIZES = (100, 10_000)
ROUNDS, QUICK_ROUNDS = 5, 1
SECONDS, QUICK_SECONDS = 1.0, 0.3
STARTS, QUICK_STARTS = 15, 5

START = """
import asyncio, json, sys, time
began_s = time.perf_counter()
import quillcast
async def main():
    async with {made}:
        print(1000 * (time.perf_counter() - began_s))
        sys.stdout.flush()
asyncio.run(main())
"""
MADE = {
    "node": "quillcast.Node('benchmark')",
    "client": "quillcast.connect('benchmark')",
    "receives directly": "quillcast.connect('benchmark', receive='direct')",
    "publishes directly": "quillcast.connect('benchmark', publish='direct')",
}


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if options.quick else (ROUNDS, SECONDS)
    options.systems = list(SYSTEMS.values())
    runs = in_turns(options.systems, rounds, lambda system: measure(system, seconds))
    rows = [row for size in SIZES for row in _rates(size, {each: runs[name] for each, name in SYSTEMS.items()})]
    rows += starts(QUICK_STARTS if options.quick else STARTS)
    tell("connect", rows, options)


def measure(name: str, seconds: float) -> dict[int, Row]:
    """One round of a system: a run of each size."""
    with running(name, ["publisher", "subscriber"]) as system:
        stage = Stage(system)
        return {size_bytes: stage.measure(size_bytes, seconds) for size_bytes in SIZES}


def _rates(size_bytes: int, runs: dict[str, list[dict[int, Row]]]) -> list[Row]:
    """The rows of one size."""
    by_name = {name: [each[size_bytes] for each in rounds] for name, rounds in runs.items()}
    rates = {name: median(rounds, "events_per_s") for name, rounds in by_name.items()}
    return [
        {
            "row": "rate",
            "system": name,
            "size_bytes": size_bytes,
            "events_per_s": rates[name],
            "ratio": round(rates[name] / rates["node"], 2),
            "cpu_s_per_million": median(rounds, "sum", 3),
            "lost_share": median(rounds, "lost_share", 3),
        }
        for name, rounds in by_name.items()
    ]


def starts(count: int) -> list[Row]:
    """Measure the time until a new process can publish."""
    with tempfile.TemporaryDirectory() as folder:
        peer = Actor("quillcast", folder=folder, network="benchmark")
        try:
            times = {name: [_start_ms(made, Path(folder)) for _ in range(count)] for name, made in MADE.items()}
        finally:
            peer.end()
    return [
        {
            "row": "start",
            "system": name,
            "median_ms": round(statistics.median(took), 1),
            "min_ms": round(min(took), 1),
        }
        for name, took in times.items()
    ]


def _start_ms(made: str, folder: Path) -> float:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command: list[Any] = [sys.executable, "-c", START.format(made=made)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout))


if __name__ == "__main__":
    main()
