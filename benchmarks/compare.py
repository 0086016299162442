"""Two source trees in turns: events a second and delays of lone events of quillcast in each, and their ratio.

    python benchmarks/compare.py BASE [NEW]

BASE and NEW are checkouts, such as those that `git worktree add ../base main` makes; NEW is this one by default. The
programs and clients are those of this tree for both, through the public API; only the package differs. In every round
`throughput.py` and `latency.py` run for one tree, then for the other, which goes first taking turns; a figure is the
median of the rounds, and its ratio the median of the rounds' ratios, with the quartiles. A ratio is only as good as
its quartiles are narrow.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SIZES = ("16", "100", "1000", "10000")
ROUNDS, QUICK_ROUNDS = 8, 2

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, help="the checkout to compare with")
    parser.add_argument("new", type=Path, nargs="?", default=FOLDER.parent, help="the other one (this)")
    parser.add_argument(
        "--systems",
        nargs="+",
        default=["quillcast", "quillcast, batch"],
        metavar="NAME",
        help="rows of `throughput.py`; of `latency.py` the first",
    )
    parser.add_argument("--rounds", type=int, help=f"of each tree ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="shorter measurements, two rounds")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    options = parser.parse_args()
    trees = {"base": options.base.resolve(), "new": options.new.resolve()}
    for tree in trees.values():
        if not (tree / "src" / "quillcast").is_dir():
            parser.error(f"{tree} is no checkout: it has no src/quillcast")
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    if rounds < 2:
        parser.error("there are at least two rounds")
    taken: dict[str, list[Figures]] = {name: [] for name in trees}
    for number in range(rounds):
        for name in sorted(trees, reverse=bool(number % 2)):
            taken[name].append(figures(trees[name], options.systems, quick=options.quick))
            print(f"round {number + 1} of {rounds}, {name}: {_told(taken[name][-1])}", file=sys.stderr, flush=True)
    rows = compared(taken["base"], taken["new"])
    for row in rows:
        print(
            "{figure:40} base {base:12,.1f}  new {new:12,.1f}  ratio {ratio:.3f} ({lower:.3f} to {upper:.3f})".format(
                **row
            )
        )
    if options.json:
        print(json.dumps({"benchmark": "compare", "results": rows}))


def figures(tree: Path, systems: list[str], *, quick: bool) -> Figures:
    """One round of a tree."""
    short = ["--quick"] if quick else []
    rates = _run(tree, "throughput.py", "--json", "--systems", *systems, *short, "--rounds", "1", "--sizes", *SIZES)
    lone = _run(tree, "latency.py", "--json", "--systems", systems[0], *short, "--rounds", "1")
    found = {f"{row['system']}, {row['size_bytes']:,} bytes, events/s": row["events_per_s"] for row in rates}
    for row in lone:
        found |= {f"{row['system']}, lone event, {each}": row[each] for each in ("p50_us", "p99_us")}
    return found


def compared(base: list[Figures], new: list[Figures]) -> list[dict[str, Any]]:
    """Medians of each figure, and of its ratios round by round."""
    rows = []
    for name in base[0]:
        ratios = [after[name] / before[name] for before, after in zip(base, new, strict=True)]
        lower, ratio, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        medians = (statistics.median(each[name] for each in rounds) for rounds in (base, new))
        rows.append(
            dict(
                zip(
                    ("figure", "base", "new", "ratio", "lower", "upper"),
                    (name, *medians, ratio, lower, upper),
                    strict=True,
                )
            )
        )
    return rows


def _run(tree: Path, program: str, *options: str) -> list[dict[str, Any]]:
    """The rows of a program, with the package of that tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, str(FOLDER / program), *options]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    rows: list[dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])["results"]
    return rows


def _told(figures: Figures) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in figures.items())


if __name__ == "__main__":
    main()
