"""The cost of the journal: for a peer that records so many runs of events a second, and for a path at full speed.

`cpu_share` is the share of one core that recording, encoding and writing take at that rate. In the worst case each run
has one event. Flushes are as frequent as with the event loop's timer. `throughput_share` is the share of the events per
second of `benchmarks/throughput.py` that is lost when every process of the path writes its journal. It is the median
over pairs of paths, with and without journals, in alternating order. Each path is started anew, because the same
program's speed differs by several per cent between starts. A quarter of the pairs is below `lower_quartile`, a quarter
above `upper_quartile`.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors import running
from head import Row, parser, tell
from throughput import Stage

from quillcast.core.envelope import Term
from quillcast.core.trace import Attached, Delivered, Published, Record
from quillcast.live.storage.journal import FLUSH_S, Journal

WITH, WITHOUT = "quillcast", "quillcast, no journal"
SIZES = (100, 1000)
PAIRS, QUICK_PAIRS = 12, 3
SECONDS, QUICK_SECONDS = 1.0, 0.3
TOPIC, PUBLISHER, PEER, TERM = b"t" * 16, b"p" * 16, b"n" * 16, Term(1, b"r" * 16)

MIXES: dict[str, Callable[[int], Record]] = {
    "delivered": lambda n: Delivered(TOPIC, PUBLISHER, 10 * n, 10, n, TERM, 10 * n),
    "published": lambda n: Published(TOPIC, PUBLISHER, 10 * n, 10, 1000),
    "attached": lambda n: Attached(TOPIC, PEER, "fallback", 3),
}


def cost(make: Callable[[int], Record], runs_per_s: int, count: int) -> dict[str, float]:
    """CPU time and bytes per record when the timer flushes `1 / FLUSH_S` times a second."""
    records = [make(n) for n in range(count)]
    flush_rows = max(1, round(runs_per_s * FLUSH_S))
    with tempfile.TemporaryDirectory() as folder, Journal(folder, PEER) as journal:
        began = time.process_time()
        for n, record in enumerate(records):
            journal.trace(record, n)
            journal.note()
            if n % flush_rows == flush_rows - 1:
                journal.flush()
        journal.flush()
        cpu_s = time.process_time() - began
        written_bytes = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "cpu_us_per_record": round(1e6 * cpu_s / count, 3),
        "bytes_per_record": round(written_bytes / count, 1),
        "cpu_share": round(runs_per_s * cpu_s / count, 5),
    }


def throughput(size_bytes: int, pairs: int, seconds: float) -> Row:
    """Measure the share of a path's events per second that its journals cost."""
    shares, settings = [], {}
    for pair in range(pairs):
        events_per_s = {}
        for name in (WITH, WITHOUT) if pair % 2 else (WITHOUT, WITH):
            with running(name, ["publisher", "subscriber"]) as system:
                events_per_s[name] = Stage(system).measure(size_bytes, seconds)["events_per_s"]
                settings[name] = system.settings
        shares.append(1 - events_per_s[WITH] / events_per_s[WITHOUT])
    lower, middle, upper = statistics.quantiles(shares, n=4)
    return {
        "system": WITH,
        "size_bytes": size_bytes,
        "pairs": pairs,
        "throughput_share": round(middle, 4),
        "lower_quartile": round(lower, 4),
        "upper_quartile": round(upper, 4),
        "settings": settings[WITH],
    }


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, Journal(folder, PEER) as journal:  # loads nanoarrow
        journal.trace(MIXES["delivered"](0), 0)
    rows: list[dict[str, Any]] = []
    for kind, make in MIXES.items():
        for runs_per_s in (20, 1_000, 10_000, 100_000):
            count = min(10 * runs_per_s, 200_000 if options.quick else 1_000_000)
            figures = cost(make, runs_per_s, count)
            rows.append({"system": "quillcast", "record": kind, "runs_per_s": runs_per_s, **figures})
    pairs, seconds = (QUICK_PAIRS, QUICK_SECONDS) if options.quick else (PAIRS, SECONDS)
    rows += [throughput(size_bytes, pairs, seconds) for size_bytes in SIZES]
    tell("journal", rows, options)


if __name__ == "__main__":
    main()
