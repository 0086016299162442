"""The results in docs/benchmarks.json, with the machine, its other load, and the commit."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from chart import drawn
from page import filled

ROOT = Path(__file__).parent.parent
RESULTS, PAGE, PICTURE = (ROOT / "docs" / f"benchmarks.{kind}" for kind in ("json", "md", "svg"))
LOOK_S = 3.0  # how long to measure the load of other processes


def keep(name: str, result: dict[str, Any], order: list[str]) -> None:
    """Replace the results of one program, and redraw page and picture. Programs are stored in this order."""
    results = {**_results(), name: result}
    programs = [_lines(each, results[each]) for each in order if each in results]
    RESULTS.write_text("{\n" + ",\n".join(programs) + "\n}\n")
    draw()


def rows(name: str) -> list[dict[str, Any]]:
    """The kept rows of one program."""
    found: list[dict[str, Any]] = _results().get(name, {}).get("results", [])
    return found


def _results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def _lines(name: str, result: dict[str, Any]) -> str:
    """A program's results as JSON, a line per row."""
    head = json.dumps({key: value for key, value in result.items() if key != "results"}).removesuffix("}")
    rows = ",\n".join(map(json.dumps, result["results"]))
    return f'"{name}": {head}, "results": [\n{rows}\n]}}'


def draw() -> None:
    """Make the page's tables and its picture from the results."""
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(filled(PAGE.read_text(), results))
    PICTURE.write_text(drawn(results))
    print(f"made {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)} from {RESULTS.relative_to(ROOT)}")


def load_percent() -> int:
    """Measure how much of the processor is in use before a benchmark."""
    before = os.times().elapsed, _busy_s()
    time.sleep(LOOK_S)
    passed_s, busy_s = os.times().elapsed - before[0], _busy_s() - before[1]
    return round(100 * busy_s / passed_s / (os.cpu_count() or 1))


def _busy_s() -> float:
    """Busy seconds of the machine's cores: user, nice, system, interrupts and stolen time (proc(5))."""
    fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, Any]:
    """What the results depend on: processor, system and versions."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "processor": f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": commit(ROOT),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def commit(tree: Path) -> str:
    """The commit of a checkout, with a plus if source files differ from it."""
    changed = _git(tree, "status", "--porcelain", "-uno", "--", "src", "benchmarks")
    return _git(tree, "rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _git(tree: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=tree).stdout.strip()
