"""Runs every benchmark program, and with --write keeps the results in docs/benchmarks.md with machine and commit."""

import argparse
import ast
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
UNITS = {"peak_rss_bytes": "MiB"}  # columns that are told in another one
LOOK_S = 3.0  # how long to see what others use
RESULTS = ROOT / "docs" / "benchmarks.md"
PROGRAMS = (
    "throughput",
    "profiles",
    "latency",
    "fanout",
    "many_publishers",
    "links",
    "stalls",
    "simulate",
    "journal",
    "evaluate",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], help=f"which ones: {', '.join(PROGRAMS)} (all)")
    parser.add_argument("--quick", action="store_true", help="each in under a minute")
    parser.add_argument("--json", action="store_true", help="print all results as one object on the last line")
    parser.add_argument(
        "--write",
        nargs="?",
        const=RESULTS,
        type=Path,
        metavar="FILE",
        help=f"keep the results in a page ({RESULTS.relative_to(ROOT)})",
    )
    options = parser.parse_args()
    machine = _machine()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    results = {name: _run(name, quick=options.quick) for name in options.programs or PROGRAMS}
    if options.write:
        options.write.write_text(_page(machine, results, quick=options.quick))
        print(f"kept in {options.write}")
    if options.json:
        print(json.dumps({"benchmarks": list(results.values()), **machine}))


def _run(name: str, *, quick: bool) -> dict[str, Any]:
    """Run one program; what it prints is shown as it comes, but for its last line, which is the result.

    How busy others kept the machine just before is noted with it.
    """
    load = _load()
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--json", *(["--quick"] if quick else [])]
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
    result: dict[str, Any] = {**json.loads(last), "load": load}
    return result


def _load() -> str:
    """How much of the processor is in use while nothing is measured."""
    before = os.times().elapsed, _busy_s()
    time.sleep(LOOK_S)
    passed_s, busy_s = os.times().elapsed - before[0], _busy_s() - before[1]
    return f"{100 * busy_s / passed_s / (os.cpu_count() or 1):.0f} % of the processor in use by others"


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


def _page(machine: dict[str, Any], results: dict[str, dict[str, Any]], *, quick: bool) -> str:
    made_with = "make bench ARGS=" + ("'--quick --write'" if quick else "--write")
    lines = [
        "# Benchmarks",
        "",
        f"Made by `{made_with}`; the programs in `benchmarks/` say what they measure and how.",
        "",
        *(f"- {name}: {value}" for name, value in machine.items()),
    ]
    for name, result in results.items():
        lines += [
            "",
            f"## {name}",
            "",
            f"{_first_line(name)} Before it: {result['load']}.",
            "",
            *_rows(result["results"]),
        ]
    return "\n".join(lines) + "\n"


def _first_line(program: str) -> str:
    """What the program says that it measures."""
    tree = ast.parse((FOLDER / f"{program}.py").read_text())
    return (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    """A table of the columns that hold one value per row; what is more is spelled out as `key value`."""
    columns = list(dict.fromkeys(column for row in rows for column in row if column != "settings"))
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    lines += [f"| {' | '.join(_cell(row.get(each), UNITS.get(each, '')) for each in columns)} |" for row in rows]
    settings = {row["system"]: row["settings"] for row in rows if "settings" in row}
    lines += [""] if settings else []
    lines += [f"- {system}: {_cell(values)}" for system, values in settings.items()]
    return lines


def _cell(value: Any, unit: str = "") -> str:
    match value:
        case int() if unit == "MiB":
            return f"{value / 2**20:.0f} MiB"
        case None:
            return ""
        case dict():
            return ", ".join(f"{key} {_cell(each, unit)}" for key, each in value.items())
        case float():
            return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case _:
            return json.dumps(value)


if __name__ == "__main__":
    main()
