"""What the journal costs a peer that notes so many runs of events a second, one event to a run in the worst case.

`cpu_share` is the part of one core that noting, laying out and writing take at that rate, with flushes as often as the
event loop's timer makes them. The share of a real peer's throughput is measured with the journal on and off by
`benchmarks/throughput.py`.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from head import parser, tell

from quillcast.core.bundle import Term
from quillcast.core.trace import Attached, Delivered, Published, Record
from quillcast.live.journal import FLUSH_S, Journal

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
            journal.note(n, record)
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


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, Journal(folder, PEER) as journal:  # loads pyarrow
        journal.note(0, MIXES["delivered"](0))
    rows = []
    for kind, make in MIXES.items():
        for runs_per_s in (20, 1_000, 10_000, 100_000):
            count = min(10 * runs_per_s, 200_000 if options.quick else 1_000_000)
            figures = cost(make, runs_per_s, count)
            rows.append({"system": "quillcast", "record": kind, "runs_per_s": runs_per_s, **figures})
    tell("journal", rows, options)


if __name__ == "__main__":
    main()
