"""Compare two versions of quillcast, each in a checkout of its own, by the ratios of their figures.

In each round, every program runs for both checkouts, in alternating order. A figure is the median of its rounds. Its
ratio, new to base, is the median of the rounds' ratios, with their lower and upper quartile. So it is valid even if the
machine's speed drifts. `throughput` and `latency` run from this checkout, with the package of either. `simulate`, with
2,000 peers, and `links`, with 1 and 1,000 topics, run from each checkout.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kept
from run import FOLDER, PROGRAMS

ROUNDS, QUICK_ROUNDS = 4, 2
ROWS = ("quillcast", "quillcast, batch")  # of throughput
SIZES = ("16", "100", "1000", "10000")

Figures = dict[str, float]


def main() -> None:
    options = _options()
    trees = {"base": options.base, "new": options.new}
    taken: dict[str, list[Figures]] = {name: [] for name in trees}
    machine, load_percent, began_s = kept.machine(), kept.load_percent(), time.monotonic()
    for number in range(1, options.rounds + 1):
        for name in sorted(trees, reverse=number % 2 == 0):
            found = [MEASURES[program](trees[name], options.quick) for program in options.programs]
            taken[name].append({figure: value for each in found for figure, value in each.items()})
            print(f"round {number} of {options.rounds}, {name}: {taken[name][-1]}", file=sys.stderr, flush=True)
    rows = compared(taken["base"], taken["new"])
    commits = {f"{name}_commit": kept.commit(tree) for name, tree in trees.items()}
    print(f"base {commits['base_commit']}, new {commits['new_commit']}, {options.rounds} rounds")
    for row in rows:
        print("{figure:40} {base:14,.1f} {new:14,.1f}  {ratio:.3f} ({lower:.3f} to {upper:.3f})".format(**row))
    if options.json:
        print(json.dumps({"benchmark": "compare", **commits, "results": rows}))
    if options.write:
        took_s = round(time.monotonic() - began_s)
        head = {"machine": machine, "took_s": took_s, "load_percent": load_percent}
        results = published([{**row, **commits, "rounds": options.rounds} for row in rows], kept.rows("compare"))
        kept.keep("compare", {**head, "results": results}, [*PROGRAMS, "compare"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("new", type=Path, nargs="?", default=kept.ROOT, help="a checkout of the other one (this)")
    parser.add_argument("--programs", nargs="+", choices=MEASURES, default=["throughput", "latency"])
    parser.add_argument("--rounds", type=int, help=f"how often each checkout is measured ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--write", action="store_true", help="keep the ratios in docs/benchmarks.md")
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    if options.rounds < 2:
        parser.error("there are at least two rounds")
    for tree in (options.base, options.new):
        if not (tree / "src" / "quillcast").is_dir():
            parser.error(f"{tree} is not a checkout: it has no src/quillcast")
    return options


def compared(base: list[Figures], new: list[Figures]) -> list[dict[str, Any]]:
    """The median of each figure, and of its ratios in each round."""
    rows = []
    for figure in base[0]:
        ratios = [after[figure] / before[figure] for before, after in zip(base, new, strict=True)]
        lower, ratio, upper = (round(each, 3) for each in statistics.quantiles(ratios, n=4, method="inclusive"))
        before, after = (statistics.median(each[figure] for each in rounds) for rounds in (base, new))
        rows.append({"figure": figure, "base": before, "new": after, "ratio": ratio, "lower": lower, "upper": upper})
    return rows


def published(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These rows, followed by earlier rows about other figures. Each row names its commits."""
    measured = {row["figure"] for row in rows}
    return rows + [row for row in before if row["figure"] not in measured]


# --- one round of a checkout


def _rates(tree: Path, quick: bool) -> Figures:
    rows = _rows(tree, FOLDER / "throughput.py", quick, "--rounds", "1", "--sizes", *SIZES, "--systems", *ROWS)
    return {f"{row['system']}, {row['size_bytes']:,} bytes, events/s": row["events_per_s"] for row in rows}


def _delays(tree: Path, quick: bool) -> Figures:
    (row,) = _rows(tree, FOLDER / "latency.py", quick, "--rounds", "1", "--systems", "quillcast")
    return {f"lone event, {each} (µs)": row[f"{each}_us"] for each in ("p50", "p99")}


def _simulation(tree: Path, quick: bool) -> Figures:
    (row,) = _rows(tree, tree / "benchmarks" / "simulate.py", False, "--peers", "500" if quick else "2000")
    return {
        "simulation (s)": row["wall_s"],
        "simulation, CPU time (s)": row["cpu_s"],
        "simulation, memory (MB)": row["peak_rss_bytes"] / 1e6,
    }


def _links(tree: Path, quick: bool) -> Figures:
    rows = _rows(tree, tree / "benchmarks" / "links.py", quick, "--topics", "1", "100" if quick else "1000")
    still = [row for row in rows if not row["changing_per_s"]]
    return {
        f"links, {row['topics']:,} topics, {what}": row[figure] for row in still
        for what, figure in (("messages/s", "link_messages_per_s"), ("bytes of a peer", "peer_bytes"))
    }  # fmt: skip


MEASURES: dict[str, Callable[[Path, bool], Figures]] = {
    "throughput": _rates,
    "latency": _delays,
    "simulate": _simulation,
    "links": _links,
}


def _rows(tree: Path, program: Path, quick: bool, *options: str) -> list[dict[str, Any]]:
    """Run a program with the package of a checkout, and return its rows."""
    environment = {**os.environ, "PYTHONPATH": str((tree / "src").resolve())}
    command = [sys.executable, str(program.resolve()), "--json", *(["--quick"] if quick else []), *options]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ran.returncode:
        sys.exit(f"{program} failed with the package of {tree}:\n{ran.stderr}")
    rows: list[dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])["results"]
    return rows


if __name__ == "__main__":
    main()
