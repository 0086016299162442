"""Run benchmark programs, by default those of docs/benchmarks.md. --write saves their results in that page.

The results go to docs/benchmarks.json, with machine and commit. Programs that do not run keep their earlier results.
The page's tables and its picture are made from that file alone: --draw makes them and measures nothing.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kept

FOLDER = Path(__file__).parent
PUBLISHED: dict[str, list[str]] = {
    "throughput": [],
    "latency": [],
    "stalls": [],
    "simulate": ["--peers", "10000"],
    "links": ["--topics", "1", "10000"],
}
"""The programs of the page, and their options unless they are to be quick."""
OTHERS = (
    "admission", "connect", "fanout", "levels", "many_publishers", "policy_swap", "profiles", "journal", "evaluate",
    "recovery", "scopes",
)  # fmt: skip
PROGRAMS = (*PUBLISHED, *OTHERS)


def main() -> None:
    options = _options()
    if options.draw:
        return kept.draw()
    machine, began_s, results = kept.machine(), time.monotonic(), []
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    for name in options.programs or (PROGRAMS if options.all else PUBLISHED):
        results.append({"machine": machine, **_run(name, quick=options.quick)})
        if options.write:
            kept.keep(name, results[-1], [*PROGRAMS, "compare"])
    print(f"measured in {(time.monotonic() - began_s) / 60:.1f} minutes")
    if options.json:
        print(json.dumps({"benchmarks": results}))
    return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help=f"which ones: {', '.join(PROGRAMS)}")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--quick", action="store_true", help="each in under a minute")
    parser.add_argument("--json", action="store_true", help="print all results as one object on the last line")
    parser.add_argument("--write", action="store_true", help="keep the results, and make page and picture")
    parser.add_argument("--draw", action="store_true", help="make page and picture from the results that are kept")
    return parser.parse_args()


def _run(name: str, *, quick: bool) -> dict[str, Any]:
    """Run one program and show its output, except for the last line, which is the result.

    The load of the machine just before the run is recorded with the result.
    """
    load_percent, began_s = kept.load_percent(), time.monotonic()
    options = ["--quick"] if quick else PUBLISHED.get(name, [])
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--json", *options]
    print(f"== {' '.join(command[1:])}", flush=True)
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=kept.ROOT) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if last:
                print(last, end="", flush=True)
            last = line
    if program.returncode:
        sys.exit(f"{name} ended with status {program.returncode}")
    took_s = round(time.monotonic() - began_s)
    print(f"{name} took {took_s} s; before it, others used {load_percent} % of the processor", flush=True)
    return {"took_s": took_s, "load_percent": load_percent, "results": json.loads(last)["results"]}


if __name__ == "__main__":
    main()
