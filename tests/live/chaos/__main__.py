"""Chaos: processes that are killed, stopped, partitioned and restarted under load, and a judge of what they wrote down.

Prints the seed and its plan, then what the judge found. Exit code 1 says that a promise was not kept; the diaries stay
where the last line says.
"""

import argparse
import asyncio
import contextlib
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.live.chaos import plan
from tests.live.chaos.conductor import Conductor, Terms, terms
from tests.live.chaos.report import Verdict
from tests.live.stage import wires

LEASE_S, SETTLE_S = 30.0, 90.0


def main() -> int:
    options = _options()
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    planned = plan.draw(
        seed, peers=options.peers, seconds=60 * options.minutes, lease_s=options.lease, partitions=options.partitions
    )
    sys.stdout.write(f"{planned}\n")
    sys.stdout.flush()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    verdict = perform(planned, terms(options.lease, SETTLE_S), folder, partitions=options.partitions)
    sys.stdout.write(f"{verdict}\n")
    if verdict.violations:
        sys.stdout.write(f"seed {seed}: the diaries are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def perform(planned: plan.Plan, how: Terms, folder: Path, *, partitions: bool = False) -> Verdict:
    """A run, judged. With partitions every process has a network namespace of its own, which needs root."""
    with wires() if partitions else contextlib.nullcontext() as network:
        asyncio.run(Conductor(planned, how, folder, network).run())
    return Verdict.of(folder, how.bounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults happen (10)")
    parser.add_argument("--seed", type=int, help="what the plan is drawn from (a new one)")
    parser.add_argument("--peers", type=int, default=12, help="processes (12)")
    parser.add_argument("--lease", type=float, default=LEASE_S, help=f"seconds of a subscriber's lease ({LEASE_S:g})")
    parser.add_argument("--no-partitions", dest="partitions", action="store_false", help="without root")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
