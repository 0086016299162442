"""Runs benchmark programs, by default those of docs/benchmarks.md; with --write keeps what they tell in that page.

The results are kept in docs/benchmarks.json, with machine and commit; what is not run keeps its earlier results. From
them alone come the page's tables and its picture: --draw makes these anew and measures nothing.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from chart import drawn
from page import filled

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
LOOK_S = 3.0  # how long to see what others use
RESULTS, PAGE, PICTURE = (ROOT / "docs" / f"benchmarks.{kind}" for kind in ("json", "md", "svg"))
PUBLISHED: dict[str, list[str]] = {
    "throughput": [],
    "latency": [],
    "stalls": [],
    "simulate": ["--peers", "10000"],
    "links": ["--topics", "1", "10000"],
}
"""The programs of the page, and their options where they are not asked to be quick."""
OTHERS = ("profiles", "fanout", "many_publishers", "journal", "evaluate")
PROGRAMS = (*PUBLISHED, *OTHERS)


def main() -> None:
    options = _options()
    if not options.draw:
        machine, began_s = _machine(), time.monotonic()
        print(", ".join(f"{name} {value}" for name, value in machine.items()))
        chosen = options.programs or (PROGRAMS if options.all else PUBLISHED)
        results = {}
        for name in chosen:
            results[name] = _run(name, quick=options.quick) | {"machine": machine}
            if options.write:
                _keep(results)
        print(f"measured in {(time.monotonic() - began_s) / 60:.1f} minutes")
        if options.json:
            print(json.dumps({"benchmarks": list(results.values()), **machine}))
    if options.draw or options.write:
        _draw()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help=f"which ones: {', '.join(PROGRAMS)}")
    parser.add_argument("--all", action="store_true", help="all of them, in more than an hour")
    parser.add_argument("--quick", action="store_true", help="each in under a minute")
    parser.add_argument("--json", action="store_true", help="print all results as one object on the last line")
    parser.add_argument("--write", action="store_true", help=f"keep them in {RESULTS.name}, and make page and picture")
    parser.add_argument("--draw", action="store_true", help="make page and picture of the results that are kept")
    return parser.parse_args()


def _keep(results: dict[str, Any]) -> None:
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept |= results
    programs = [_lines(name, kept[name]) for name in PROGRAMS if name in kept]
    RESULTS.write_text("{\n" + ",\n".join(programs) + "\n}\n")


def _lines(name: str, result: dict[str, Any]) -> str:
    """A program's results as JSON, a line per row."""
    head = json.dumps({key: value for key, value in result.items() if key != "results"}).removesuffix("}")
    rows = ",\n".join(map(json.dumps, result["results"]))
    return f'"{name}": {head}, "results": [\n{rows}\n]}}'


def _draw() -> None:
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(filled(PAGE.read_text(), results))
    PICTURE.write_text(drawn(results))
    print(f"made {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)} of {RESULTS.relative_to(ROOT)}")


def _run(name: str, *, quick: bool) -> dict[str, Any]:
    """Run one program; what it prints is shown as it comes, but for its last line, which is the result.

    How busy others kept the machine just before is noted with it.
    """
    load_percent, began_s = _load_percent(), time.monotonic()
    options = ["--quick"] if quick else PUBLISHED.get(name, [])
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--json", *options]
    print(f"== {' '.join(command[1:])}", flush=True)
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if last:
                print(last, end="", flush=True)
            last = line
    if program.returncode:
        sys.exit(f"{name} ended with status {program.returncode}")
    took_s = round(time.monotonic() - began_s)
    print(f"{name} took {took_s} s; before it, others used {load_percent:.0f} % of the processor", flush=True)
    return {"results": json.loads(last)["results"], "took_s": took_s, "load_percent": round(load_percent)}


def _load_percent() -> float:
    """How much of the processor is in use while nothing is measured."""
    before = os.times().elapsed, _busy_s()
    time.sleep(LOOK_S)
    passed_s, busy_s = os.times().elapsed - before[0], _busy_s() - before[1]
    return 100 * busy_s / passed_s / (os.cpu_count() or 1)


def _busy_s() -> float:
    """Seconds that the machine's cores worked: user, nice, system, interrupts and what was stolen (proc(5))."""
    fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "processor": f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "-uno") else ""),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


if __name__ == "__main__":
    main()
