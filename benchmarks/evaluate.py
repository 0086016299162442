"""How long an evaluation takes from a cold start, and how its cost grows with the deployment.

Each row is one `quillcast evaluate` in a process of its own: interpreter, Spark and its Java machine start with it, and
the report is written. Kernels that an earlier run compiled are found in numba's cache. Prints one row per run; with
--json one JSON object on the last line. With --curve the same 1,500 groups are evaluated among 100,000 to 10,000,000
peers, and --picture draws what that took.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = {"scribe-2002": (100_000, 1500), "internet-1m": (1_000_000, 15_000), "internet-10m": (10_000_000, 15_000)}
QUICK = {"scribe-2002": (20_000, 300)}
CURVE, CURVE_GROUPS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000), 1500
KERNEL_STAGES = ("trees", "delays", "stress")

Row = dict[str, Any]


def measure(experiment: str, peers: int, groups: int, master: str, policies: str) -> Row:
    """Run one experiment, from nothing to its report."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--nodes", str(peers), "--groups", str(groups), "--policies", policies, "--master", master]
        command = [sys.executable, "-m", "quillcast", "evaluate", experiment, *arguments, "--output", f"{folder}/run"]
        busy_s, began = machine_busy_s(), time.perf_counter()
        run = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        wall_s, busy_s = time.perf_counter() - began, machine_busy_s() - busy_s
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
        "machine_cpu_s": round(busy_s, 2),
        "peak_rss_bytes": result["peak_rss_bytes"],
        **stages,
    }


def machine_busy_s() -> float:
    """CPU time that all processes of the machine have taken so far: beside a run's own, what else was going on."""
    user, nice, system, _idle, _wait, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def told(row: Row) -> str:
    """A row for people."""
    return (
        f"{row['experiment']} on {row['master']}: {row['peers']:,} peers, {row['groups']:,} groups in "
        f"{row['seconds']:.1f} s ({row['machine_cpu_s']:.1f} s of CPU time on the whole machine) and "
        f"{row['peak_rss_bytes'] / 1e9:.2f} GB; trees {row['trees_s']:.1f} s, delays {row['delays_s']:.1f} s, "
        f"stress {row['stress_s']:.1f} s"
    )


def draw(rows: list[Row], path: Path) -> None:
    """The curve, as a picture."""
    from quillcast.pipeline.evaluate.charts import growth

    whole = [(row["peers"], row["seconds"]) for row in rows]
    kernels = [(row["peers"], sum(row[f"{stage}_s"] for stage in KERNEL_STAGES)) for row in rows]
    path.write_text(growth({"whole run": whole, "trees, delays and stress": kernels}), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--quick", action="store_true", help="one small run, in under a minute")
    parser.add_argument("--experiments", nargs="*", choices=list(SIZES), help="which ones (default: the first two)")
    parser.add_argument("--curve", type=int, nargs="*", metavar="PEERS", help="the growth with peers instead")
    parser.add_argument("--picture", type=Path, help="draw the curve there, as SVG")
    parser.add_argument("--master", nargs="*", default=[f"local[{os.cpu_count()}]"], help="where Spark runs")
    parser.add_argument("--policies", default="scribe", help="with commas")
    options = parser.parse_args()
    chosen = [(name, *SIZES[name]) for name in options.experiments or list(SIZES)[:2]]
    if options.quick:
        chosen = [(name, *size) for name, size in QUICK.items()]
    elif options.curve is not None:
        chosen = [("internet-10m", peers, CURVE_GROUPS) for peers in options.curve or CURVE]
    rows = []
    for experiment, peers, groups in chosen:
        for master in options.master:
            rows.append(measure(experiment, peers, groups, master, options.policies))
            print(told(rows[-1]), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.picture:
        draw(rows, options.picture)
    if options.json:
        print(json.dumps({"benchmark": "evaluate", "cores": os.cpu_count(), "results": rows}))


if __name__ == "__main__":
    main()
