"""The parts of docs/benchmarks.md that are generated from results, so that no figure is typed in by hand.

The results are a JSON file beside the page: the rows of each program, with time, machine and commit. `filled` writes a
table, the points where others are ahead, the details and the machine between marks in the page.
"""

import ast
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
UNITS = {"peak_rss_bytes": "MiB"}  # columns that are shown in another unit
SIZES = (16, 100, 1000, 10_000)
OURS, OURS_DIRECT = "quillcast", "quillcast, two peers"
THROUGH = ("zenoh, router", "pyzmq, forwarder", "nats-py", "paho-mqtt", "redis")  # with a process between, like OURS
IDLE_PERCENT_MAX = 10  # of the processor, used by other processes
BY_EVENT = {
    "quillcast, two peers": "**quillcast**, peer to peer",
    "quillcast": "**quillcast**, through a forwarder",
    "quillcast, no journal": "**quillcast**, through a forwarder, without a journal",
    "quillcast, TCP": "**quillcast**, through a forwarder, over TCP",
    "quillcast, TLS over TCP": "**quillcast**, through a forwarder, over TLS and TCP",
    "zenoh": "zenoh, peer to peer",
    "zenoh, router": "zenoh, through a router",
    "pyzmq": "pyzmq, peer to peer",
    "pyzmq, forwarder": "pyzmq, through a forwarder",
    "cyclonedds": "cyclonedds, reliable",
    "cyclonedds, best effort": "cyclonedds, best effort",
    "iceoryx2": "iceoryx2, a notification for each event",
    "iceoryx2, polling": "iceoryx2, polling",
    "nats-py": "nats-py, through nats-server",
    "paho-mqtt": "paho-mqtt, through mosquitto",
    "redis": "redis, through redis-server",
}
BY_BATCH = {
    "quillcast, batch": "**quillcast**, through a forwarder, `batch`",
    "quillcast, awaited": "**quillcast**, through a forwarder, one `await` per event at both ends",
}

Row = dict[str, Any]
Results = dict[str, dict[str, Any]]


def filled(page: str, results: Results) -> str:
    """The page with every part generated again."""
    parts = {
        "table": _table(results),
        "ahead": ahead(results),
        "measured": _measured(results),
        "details": _details(results),
    }
    for name, lines in parts.items():
        mark, end = f"<!-- {name}: from benchmarks.json -->", f"<!-- end of {name} -->"
        before, found, rest = page.partition(mark)
        if not found or end not in rest:
            raise SystemExit(f"the page has no place for {name}: {mark} ... {end}")
        page = "\n".join([before + mark, "", *lines, "", end + rest.partition(end)[2]])
    return page


# --- the first table


def rates(results: Results) -> dict[str, dict[int, Row]]:
    """The rows at full speed, by system and size."""
    found: dict[str, dict[int, Row]] = {}
    for row in results["throughput"]["results"]:
        if "missing" not in row:
            found.setdefault(row["system"], {})[row["size_bytes"]] = row
    return found


def delays(results: Results) -> dict[str, Row]:
    """The row for lone events, by system."""
    return {row["system"]: row for row in results["latency"]["results"] if "missing" not in row}


def _table(results: Results) -> list[str]:
    """A table of both kinds of rows, with a warning before it if the machine was not idle."""
    busy_percent = max(results[name]["load_percent"] for name in ("throughput", "latency"))
    warning = f"**Provisional: others used {busy_percent} % of the processor while this was measured.**"
    sizes = " | ".join(f"{size:,} bytes" for size in SIZES)
    return [
        *([warning, ""] if busy_percent > IDLE_PERCENT_MAX else []),
        f"| events a second, a handler called with each | {sizes} | lone event: p50, p99 | memory |",
        f"| --- |{' ---: |' * (len(SIZES) + 2)}",
        *_lines(results, BY_EVENT),
        f"| **a loop that takes batches, or awaits each** |{' |' * (len(SIZES) + 2)}",
        *_lines(results, BY_BATCH),
    ]


def _lines(results: Results, systems: dict[str, str]) -> list[str]:
    by_size, lone = rates(results), delays(results)
    return [
        f"| {label} | {' | '.join(_rate(by_size.get(name, {}).get(size)) for size in SIZES)} "
        f"| {_delay(lone.get(name))} | {_memory(by_size.get(name, {}))} |"
        for name, label in systems.items()
        if name in by_size or name in lone
    ]


def _rate(row: Row | None) -> str:
    if row is None:
        return ""
    events = row["events_per_s"]
    digits = max(0, len(f"{events:.0f}") - 3)  # further digits differ between runs
    told = f"{round(events / 10**digits) * 10**digits:,}"
    share = row.get("lost_share", 0)
    return f"{told} ({100 * share:.0f} % lost)" if share >= 0.005 else told


def _delay(row: Row | None) -> str:
    return "" if row is None or row["p50_us"] is None else f"{row['p50_us']:.0f}, {row['p99_us']:,.0f} µs"


def _memory(rows: dict[int, Row]) -> str:
    return f"{memory_bytes(rows) / 2**20:.0f} MiB" if rows else ""


def memory_bytes(rows: dict[int, Row]) -> int:
    """The peak memory of all processes of a system together, over all sizes."""
    return max(int(sum(row["peak_rss_bytes"].values())) for row in rows.values())


# --- where others are ahead


def ahead(results: Results) -> list[str]:
    """A point for each table column in which another system is ahead of quillcast on the same kind of path."""
    by_size, lone = rates(results), delays(results)
    points = []
    for size in SIZES:
        rate = {name: rows[size]["events_per_s"] for name, rows in by_size.items() if size in rows}
        best = _best({name: rate[name] / rate[_ours(name, rate)] for name in rate})
        points += [f"- **{size:,} bytes.** Times quillcast's events a second: {best}."] if best else []
    took = {name: row["p50_us"] for name, row in lone.items() if row["p50_us"]}
    best = _best({name: took[_ours(name, took)] / took[name] for name in took})
    points += [f"- **Lone events.** Times faster than quillcast (p50): {best}."] if best else []
    memory = {name: memory_bytes(rows) for name, rows in by_size.items()}
    best = _best({name: memory[_ours(name, memory)] / memory[name] for name in memory})
    points += [f"- **Memory.** Times less than quillcast, all processes together: {best}."] if best else []
    return points or ["- In none of these columns is another system ahead."]


def _ours(name: str, among: Container[str]) -> str:
    """The row of quillcast on the same kind of path as another system: direct, or with a process between."""
    return OURS if name in THROUGH or OURS_DIRECT not in among else OURS_DIRECT


def _best(ratios: dict[str, float]) -> str:
    """The other systems whose ratio is above 1, the best first."""
    others = {name: ratio for name, ratio in ratios.items() if not name.startswith(OURS) and ratio >= 1.005}
    return ", ".join(f"{_plain(name)} {others[name]:.2f}" for name in sorted(others, key=lambda each: -others[each]))


def _plain(name: str) -> str:
    return name.replace(", ", " ")


# --- machine and details


def _measured(results: Results) -> list[str]:
    """The machine and time of measurements, with one line for programs that were measured alike."""
    alike: dict[str, list[str]] = {}
    for name, result in results.items():
        machine = result["machine"]
        told = "{processor}, {memory}, {system}, Python {python}, {date}, commit {commit}".format(**machine)
        alike.setdefault(told, []).append(name)
    return [f"- {', '.join(names)}: {told}." for told, names in alike.items()]


def _details(results: Results) -> list[str]:
    lines: list[str] = []
    for name, result in results.items():
        busy = f"Before it, others used {result['load_percent']:.0f} % of the processor."
        lines += [
            "",
            f"## {name}",
            "",
            *_words(name),
            "",
            busy,
            "",
            *_rows(result["results"]),
        ]
    return lines[1:]


def _words(program: str) -> list[str]:
    """The program's description of what it measures, and how."""
    tree = ast.parse((FOLDER / f"{program}.py").read_text())
    return (ast.get_docstring(tree) or "").splitlines()


def _rows(rows: list[Row]) -> list[str]:
    """A table of the columns with one value per row; nested values are written as `key value`."""
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
