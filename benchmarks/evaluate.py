"""How long an evaluation takes from a cold start, and how its cost grows with the deployment.

Each row is one `quillcast evaluate` in a process of its own: interpreter, Spark and its Java machine start with it, and
the report is written. Kernels that an earlier run compiled are found in numba's cache. Prints one row per run; with
--json one JSON object on the last line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

SIZES = {"scribe-2002": (100_000, 1500), "internet-1m": (1_000_000, 15_000), "internet-10m": (10_000_000, 15_000)}
QUICK = {"scribe-2002": (20_000, 300)}


def measure(experiment: str, peers: int, groups: int, master: str, policies: str) -> dict[str, Any]:
    """Run one experiment, from nothing to its report."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--nodes", str(peers), "--groups", str(groups), "--policies", policies, "--master", master]
        command = [sys.executable, "-m", "quillcast", "evaluate", experiment, *arguments, "--output", f"{folder}/run"]
        began = time.perf_counter()
        run = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        wall_s = time.perf_counter() - began
    if run.returncode:
        sys.exit(run.stderr.splitlines()[-1])
    result = json.loads(run.stdout.splitlines()[-1])
    stages = {f"{name}_s": seconds for name, seconds in result["seconds"].items() if name != "total"}
    return {
        "system": "quillcast",
        "experiment": experiment,
        "peers": peers,
        "groups": groups,
        "policies": policies,
        "master": master,
        "seconds": round(wall_s, 2),
        "peak_rss_bytes": result["peak_rss_bytes"],
        **stages,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--quick", action="store_true", help="one small run, in under a minute")
    parser.add_argument("--experiments", nargs="*", choices=list(SIZES), help="which ones (default: the first two)")
    parser.add_argument("--master", nargs="*", default=[f"local[{os.cpu_count()}]"], help="where Spark runs")
    parser.add_argument("--policies", default="scribe", help="with commas")
    options = parser.parse_args()
    chosen = {name: SIZES[name] for name in options.experiments or list(SIZES)[:2]}
    rows = []
    for experiment, (peers, groups) in (QUICK if options.quick else chosen).items():
        for master in options.master:
            row = measure(experiment, peers, groups, master, options.policies)
            rows.append(row)
            print(
                f"{experiment} on {master}: {peers:,} peers, {groups:,} groups in {row['seconds']:.1f} s and "
                f"{row['peak_rss_bytes'] / 1e9:.2f} GB; trees {row['trees_s']:.1f} s, delays {row['delays_s']:.1f} s, "
                f"stress {row['stress_s']:.1f} s",
                file=sys.stderr if options.json else sys.stdout,
                flush=True,
            )
    if options.json:
        print(json.dumps({"benchmark": "evaluate", "cores": os.cpu_count(), "results": rows}))


if __name__ == "__main__":
    main()
