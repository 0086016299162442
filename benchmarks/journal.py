"""What the journal costs: records noted, laid out and written a second, and that cost beside a stream of events.

`share_at_100k_runs_per_s` is the part of one core that the journal takes of a peer that notes 100,000 runs of events a
second: what the finest stream costs, one event to a run. The share of a real peer's throughput is measured with the
journal on and off by `benchmarks/throughput.py`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from quillcast.core.bundle import Term
from quillcast.core.trace import Attached, Delivered, Published, Record
from quillcast.live.journal import Journal

TOPIC, PUBLISHER, PEER, TERM = b"t" * 16, b"p" * 16, b"n" * 16, Term(1, b"r" * 16)

MIXES: dict[str, Callable[[int], Record]] = {
    "delivered": lambda n: Delivered(TOPIC, PUBLISHER, 10 * n, 10, n, TERM, 10 * n),
    "published": lambda n: Published(TOPIC, PUBLISHER, 10 * n, 10, 1000),
    "attached": lambda n: Attached(TOPIC, PEER, "fallback", 3),
}


def cost(records: list[Record], flush_rows: int) -> dict[str, float]:
    """CPU seconds and bytes per record, flushing every `flush_rows` records."""
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
        "records_per_s": round(len(records) / cpu_s),
        "cpu_us_per_record": round(1e6 * cpu_s / len(records), 3),
        "bytes_per_record": round(written_bytes / len(records), 1),
        "share_at_100k_runs_per_s": round(1e5 * cpu_s / len(records), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--quick", action="store_true", help="fewer records")
    options = parser.parse_args()
    count = 100_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder, Journal(folder, PEER) as journal:  # loads pyarrow
        journal.note(0, MIXES["delivered"](0))
    results = []
    for kind, make in MIXES.items():
        records = [make(n) for n in range(count)]
        for flush_rows in (10, 100, 1000):
            results.append(
                {"system": "quillcast", "record": kind, "flush_rows": flush_rows, **cost(records, flush_rows)}
            )
            if not options.json:
                print(results[-1])
    if options.json:
        print(json.dumps({"benchmark": "journal", "results": results}))


if __name__ == "__main__":
    main()
