"""How long an evaluation takes from a cold start, and how its cost grows with the deployment.

Each row is one `quillcast evaluate` in a new process, which starts the interpreter, Spark and its Java machine, and
writes the report. Kernels that an earlier run compiled are in numba's cache. Memory is the peak over the driver, Java
and its workers together; pages that several processes map count once. Prints one row per run, with its configuration
and its bounds; with --json one JSON object on the last line. With --curve, the same 1,500 groups are evaluated among
100,000 to 10,000,000 peers, and --picture draws the times.

With --cores, the trees stage of one experiment (default: internet-1m) runs alternately on `local[1]` and `local[2]`,
each time in a new process that reuses all earlier stages. Prints the median of the pairs' ratios, and for comparison
the gain of two processes on this machine without Spark: the same kernels, with half of the groups in each, one after
the other and both at once. Other work on the machine distorts the times; `machine_cpu_s` shows it.

With --aims, policies are checked against their aims on seeds that were not used for tuning, in this process, without
Spark: a row for each policy with the minimum, median, 90th percentile and maximum of each figure over the seeds.
--seeds selects others.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quillcast.evaluation.memory import Watch
from quillcast.evaluation.run import LONG_PEERS
from quillcast.pipeline.session import HEAP_LONG, HEAP_SHORT

if TYPE_CHECKING:
    from quillcast.evaluation.workload import Publishers

SIZES = {"scribe-2002": (100_000, 1500), "internet-1m": (1_000_000, 15_000), "internet-10m": (10_000_000, 15_000)}
QUICK = {"scribe-2002": (20_000, 300)}
BOUNDS = {"scribe-2002": (45, None), "internet-1m": (90, 6e9), "internet-10m": (600, 16e9)}
"""The bounds on seconds and bytes of each experiment, if it has any."""

CURVE, CURVE_GROUPS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000), 1500
AIMS: dict[tuple[str, "Publishers"], dict[str, float]] = {
    ("scoped+improve", "root"): {"rad_worst": 1.5},
    ("scoped+improve+source", "members"): {"rad_median": 1.25, "children_max": 16, "messages_over_ip": 1.9},
}
"""The bounds on figures for any seed, by policy and publishers."""

AIM_SEEDS = range(3001, 3051)
KERNEL_STAGES = ("trees", "delays", "stress")

Row = dict[str, Any]


def measure(experiment: str, peers: int, groups: int, master: str, policies: str) -> Row:
    """Run one experiment, from nothing to its report."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--nodes", str(peers), "--groups", str(groups), "--policies", policies, "--master", master]
        command = [sys.executable, "-m", "quillcast", "evaluate", experiment, *arguments, "--output", f"{folder}/run"]
        busy_s, began, load = machine_busy_s(), time.perf_counter(), os.getloadavg()[0]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen([*command, "--json"], **pipes) as run, Watch(run.pid) as memory:  # type: ignore[call-overload]
            told, complaint = run.communicate()
        wall_s, busy_s = time.perf_counter() - began, machine_busy_s() - busy_s
    if run.returncode:
        sys.exit(complaint.splitlines()[-1])
    result = json.loads(told.splitlines()[-1])
    bounds = BOUNDS[experiment] if (peers, groups) == SIZES[experiment] else (None, None)
    stages = {f"{name}_s": seconds for name, seconds in result["seconds"].items() if name != "total"}
    return {
        "system": "quillcast",
        "experiment": experiment,
        "peers": peers,
        "groups": groups,
        "policies": policies,
        "master": master,
        "java_heap": HEAP_SHORT if peers < LONG_PEERS else HEAP_LONG,
        "load_before": round(load, 2),
        "seconds": round(wall_s, 2),
        "seconds_max": bounds[0],
        "machine_cpu_s": round(busy_s, 2),
        "peak_rss_bytes": memory.peak_bytes,
        "bytes_max": bounds[1],
        "peak_rss_bytes_by_program": dict(memory.peak),
        **stages,
    }


def measure_aims(seeds: Sequence[int]) -> list[Row]:
    """The policies with aims, on the deployment of `scribe-2002` with each of these seeds."""
    from figures import costs, deployed

    from quillcast.evaluation import experiment

    told: dict[tuple[str, Publishers], list[Row]] = {each: [] for each in AIMS}
    for seed in seeds:
        with deployed(experiment.load("scribe-2002").with_(seed=seed)) as made:
            for (policy, publishers), rows in told.items():
                rows.append(aimed(costs(policy, replace(made, publishers=publishers))))
                print(f"seed {seed}, {policy} from {publishers}: {rows[-1]}", file=sys.stderr, flush=True)
    return [
        {
            "system": "quillcast",
            "experiment": "aims",
            "policy": policy,
            "publishers": publishers,
            "seeds": list(seeds),
            "aims": (aims := AIMS[policy, publishers]),
            "kept": sum(all(row[name] <= most for name, most in aims.items()) for row in rows),
            **{name: spread([row[name] for row in rows]) for name in rows[0]},
        }
        for (policy, publishers), rows in told.items()
    ]


def aimed(costs: Row) -> Row:
    """The reported figures of a policy for one seed."""
    pairs = {"rad": ("median", "worst"), "rmd": ("median", "worst"), "entries": ("mean", "median", "max")}
    spelt = {f"{name}_{part}": costs[name][at] for name, parts in pairs.items() for at, part in enumerate(parts)}
    return spelt | {name: costs[name] for name in ("children_max", "messages_over_ip", "core_link_over_ip")}


def spread(values: list[float]) -> list[float]:
    """The minimum, median, 90th percentile and maximum."""
    ordered = sorted(values)
    middle = statistics.median(ordered)
    return [round(value, 3) for value in (ordered[0], middle, ordered[len(ordered) * 9 // 10], ordered[-1])]


def told_aims(row: Row) -> str:
    """A row for people."""
    figures = [name for name, value in row.items() if isinstance(value, list) and name != "seeds"]
    spelt = "; ".join(f"{name} {' '.join(map(str, row[name]))}" for name in figures)
    return f"{row['policy']} from {row['publishers']}, aims kept on {row['kept']} of {len(row['seeds'])} seeds: {spelt}"


def machine_busy_s() -> float:
    """The CPU time of all processes of the machine so far. Compared with a run's own, it shows other work."""
    user, nice, system, _idle, _wait, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def measure_cores(experiment: str, peers: int, groups: int, pairs: int) -> list[Row]:
    """Measure the trees stage alternately on one core and on two, and the gain that the machine itself allows."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        evaluated(experiment, peers, groups, run, "local[2]")
        rows, alone = [], Kernels(run)
        for pair in range(pairs):
            seconds, busy = {}, {}
            for cores in (1, 2) if pair % 2 else (2, 1):
                for table in run.glob("tables/trees/*"):
                    shutil.rmtree(table)
                busy_s = machine_busy_s()
                seconds[cores] = evaluated(experiment, peers, groups, run, f"local[{cores}]")["seconds"]["trees"]
                busy[cores] = machine_busy_s() - busy_s
            one_s, two_s = alone.seconds(1), alone.seconds(2)
            rows.append(
                {
                    "system": "quillcast",
                    "experiment": f"{experiment}, trees on two cores",
                    "peers": peers,
                    "groups": groups,
                    "local_1_s": seconds[1],
                    "local_2_s": seconds[2],
                    "ratio": round(seconds[1] / seconds[2], 2),
                    "machine_cpu_s": [round(busy[1], 2), round(busy[2], 2)],
                    "kernels_1_s": round(one_s, 2),
                    "kernels_2_s": round(two_s, 2),
                    "kernels_ratio": round(one_s / two_s, 2),
                }
            )
            print(f"pair {pair + 1}: {told_cores(rows[-1])}", file=sys.stderr, flush=True)
        alone.close()
    return rows


def evaluated(experiment: str, peers: int, groups: int, run: Path, master: str) -> Row:
    """Run an experiment in a folder, or the parts that are missing there, and return its result."""
    arguments = ["--nodes", str(peers), "--groups", str(groups), "--master", master, "--output", str(run), "--json"]
    command = [sys.executable, "-m", "quillcast", "evaluate", experiment, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.splitlines()[-1])
    result: Row = json.loads(done.stdout.splitlines()[-1])
    return result


class Kernels:
    """Two processes that build the trees of a run's groups on request, each those of every other group.

    Args:
        run: the folder of a run.
    """

    def __init__(self, run: Path) -> None:
        command = [sys.executable, __file__, "--kernels", str(run)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._processes = [subprocess.Popen([*command, str(half)], **pipes) for half in (0, 1)]  # type: ignore[call-overload]
        for process in self._processes:
            process.stdout.readline()

    def seconds(self, processes: int) -> float:
        """The time for both halves: one process after the other, or both at once."""
        began = time.perf_counter()
        if processes == 1:
            for process in self._processes:
                self._tell(process)
                process.stdout.readline()
        else:
            for process in self._processes:
                self._tell(process)
            for process in self._processes:
                process.stdout.readline()
        return time.perf_counter() - began

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.stdin.close()
            process.wait()

    @staticmethod
    def _tell(process: Any) -> None:
        process.stdin.write("go\n")
        process.stdin.flush()


def grow_when_told(run: Path, half: int) -> None:
    """The main function of each process of `Kernels`."""
    from quillcast.evaluation import policies
    from quillcast.evaluation.deployment import Deployment, Shipped
    from quillcast.evaluation.folder import read_experiment

    deployment = Deployment(Shipped(str(run / "arrays")), read_experiment(run).seed)
    arrays, policy = deployment.arrays(), policies.parse("scribe")
    groups = [deployment.group(number) for number in range(half, len(arrays.workload), 2)]
    for line in itertools.chain(["warm up"], sys.stdin):
        for group in groups if line.startswith("go") else groups[-1:]:
            policy.trees(arrays.tables, group)
        print("done", flush=True)


def told_cores(row: Row) -> str:
    """Format a pair for people."""
    return (
        f"trees of {row['peers']:,} peers, {row['groups']:,} groups: {row['local_1_s']:.2f} s on local[1], "
        f"{row['local_2_s']:.2f} s on local[2], {row['ratio']:.2f} times as fast; "
        f"kernels alone {row['kernels_ratio']:.2f} times"
    )


def told(row: Row) -> str:
    """A row for people."""
    programs = ", ".join(f"{name} {bytes_ / 1e9:.2f}" for name, bytes_ in row["peak_rss_bytes_by_program"].items())
    within_s = f" (at most {row['seconds_max']} s)" if row["seconds_max"] else ""
    within_bytes = f"; at most {row['bytes_max'] / 1e9:.0f} GB" if row["bytes_max"] else ""
    return (
        f"{row['experiment']} on {row['master']}, Java's heap {row['java_heap']}: {row['peers']:,} peers, "
        f"{row['groups']:,} groups in {row['seconds']:.1f} s{within_s} and {row['peak_rss_bytes'] / 1e9:.2f} GB "
        f"({programs}{within_bytes}); trees {row['trees_s']:.1f} s, delays {row['delays_s']:.1f} s, stress "
        f"{row['stress_s']:.1f} s; load {row['load_before']:.2f} before, {row['machine_cpu_s']:.1f} s of CPU time on "
        "the whole machine"
    )


def draw(rows: list[Row], path: Path) -> None:
    """Draw the time by the number of peers, beside N log N from each first point."""
    import numpy as np

    from quillcast.pipeline.pictures import COLOURS, INK, new_figure, svg_of

    parts = {"whole run": ("seconds",), "trees, delays and stress": [f"{stage}_s" for stage in KERNEL_STAGES]}
    peers = np.array([row["peers"] for row in rows], float)
    figure, axes = new_figure(6.4, 3.8)
    for colour, (what, names) in zip(COLOURS, parts.items(), strict=False):
        seconds = np.array([sum(row[name] for name in names) for row in rows])
        bound = seconds[0] * (peers * np.log(peers)) / (peers[0] * np.log(peers[0]))
        axes.plot(peers, seconds, label=what, marker="o", markersize=4, linewidth=1.8, color=colour)
        axes.plot(peers, bound, color=colour, linewidth=0.9, linestyle=(0, (1, 2)), label="N log N")
    axes.set(xscale="log", yscale="log", xlabel="peers", ylabel="seconds")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, frameon=False, labelcolor=INK, fontsize=8)
    path.write_text(svg_of(figure, "growth").replace("currentColor", "#808080"), "utf-8")  # legible on light and dark


def report_cores(rows: list[Row], *, as_json: bool) -> None:
    """Print the medians of the pairs; with --json all pairs."""
    for name, what in (("ratio", "trees stage, local[2] against local[1]"), ("kernels_ratio", "the machine itself")):
        ratios = [row[name] for row in rows]
        told = f"{what}: {statistics.median(ratios):.2f} times as fast (median of {ratios})"
        print(told, file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps({"benchmark": "evaluate --cores", "cores": os.cpu_count(), "results": rows}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--quick", action="store_true", help="one small run, in under a minute")
    parser.add_argument("--experiments", nargs="*", choices=list(SIZES), help="which ones (default: the first two)")
    parser.add_argument("--curve", type=int, nargs="*", metavar="PEERS", help="the growth with peers instead")
    parser.add_argument("--picture", type=Path, help="draw the curve there, as SVG")
    parser.add_argument("--master", nargs="*", default=[f"local[{os.cpu_count()}]"], help="where Spark runs")
    parser.add_argument("--policies", default="scribe", help="with commas")
    parser.add_argument("--cores", action="store_true", help="trees on local[1] and local[2] by turns instead")
    parser.add_argument("--pairs", type=int, default=5, help="of such turns")
    parser.add_argument("--aims", action="store_true", help="figures with aims on many seeds instead")
    parser.add_argument("--seeds", type=int, nargs="+", default=AIM_SEEDS, help="of --aims")
    parser.add_argument("--kernels", nargs=2, metavar=("RUN", "HALF"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kernels:
        grow_when_told(Path(options.kernels[0]), int(options.kernels[1]))
        return
    if options.aims:
        rows = measure_aims(options.seeds)
        for row in rows:
            print(told_aims(row), file=sys.stderr if options.json else sys.stdout)
        if options.json:
            print(json.dumps({"benchmark": "evaluate --aims", "results": rows}))
        return
    if options.cores:
        name = (options.experiments or ["internet-1m"])[0]
        report_cores(
            measure_cores(name, *(QUICK if options.quick else SIZES).get(name, SIZES[name]), options.pairs),
            as_json=options.json,
        )
        return
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
