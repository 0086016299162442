"""`quillcast top`: live rates, queues and neighbours of every peer of this machine that answers."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from quillcast.cli.asking import ask_each, peers_here
from quillcast.cli.options import JSON, NETWORK, Amount, coloured
from quillcast.cli.tables import counted, sized, table

ROWS_MAX = 30  # of a table for people
LATE_S = 0.5  # a guess: younger missing events do not make a subscriber late
ANSWER_TIMEOUT_S = 1.0  # a guess: a peer that takes longer is shown as not answering
PEERS = ["peer", "address", "up", "cpu", "memory", "neighbours", "topics"]
PEERS += ["events/s", "in/s", "out/s", "waiting", "buffers"]
TOPICS = ["topic", "root", "peers", "subscriptions", "publishers", "events/s", "events", "not stable"]
SUBSCRIBERS = ["topic", "peer", "subscription", "events behind", "seconds behind", "stalled", "waiting"]
LINKS = ["from", "to", "round trip", "state", "waiting", "room"]


@click.command(short_help="Show live rates, queues and neighbours of all peers here.")
@click.option("--once", is_flag=True, help="Print once and exit, as without a terminal.")
@click.option(
    "--interval",
    "interval_s",
    type=Amount(min=0.1, max=86_400),
    default=1.0,
    show_default=True,
    help="Seconds between updates; rates are averages over them.",
)
@JSON
@NETWORK
def command(network: str, once: bool, interval_s: float, as_json: bool) -> None:
    """Show what every peer of this machine does: its rates, queues, neighbours and topics.

    On a terminal it updates until Ctrl-C. With --json it prints one object.
    """
    from quillcast.cli.running import interruptible

    with interruptible():
        looks = watch(network, interval_s)
        if as_json:
            click.echo(msgspec.json.encode(next(looks)).decode())
        elif once or not os.isatty(1):
            for line in _lines(next(looks)):
                click.echo(line)
        else:
            _show(looks)


class Look(NamedTuple):
    """The status of all peers at one time."""

    at_s: float
    statuses: dict[str, dict[str, Any]]
    cpu_s: dict[str, float]
    silent: list[str]


def watch(network: str, interval_s: float) -> Iterator[dict[str, Any]]:
    """Repeatedly yield what happened between two looks: peers, topics, waiting links, peers without an answer."""
    before = _look(network)
    while True:
        time.sleep(interval_s)
        after = _look(network)
        yield {
            "network": network,
            "seconds": round(after.at_s - before.at_s, 3),
            "peers": [_peer(before, after, node) for node in after.statuses],
            "topics": _topics(before, after),
            "subscribers": _subscribers(after),
            "links": [link for status in after.statuses.values() for link in _links(status)],
            "silent": after.silent,
        }
        before = after


def _look(network: str) -> Look:
    answers = ask_each(network, peers_here(network), "status", timeout_s=ANSWER_TIMEOUT_S)
    statuses = {entry.node_id: status for entry, status in answers if status is not None}
    cpu_s = {node: _cpu_s(status["pid"]) for node, status in statuses.items()}
    return Look(time.monotonic(), statuses, cpu_s, [entry.node_id for entry, status in answers if status is None])


def _peer(before: Look, after: Look, node: str) -> dict[str, Any]:
    now = after.statuses[node]
    then, seconds = before.statuses.get(node, now), after.at_s - before.at_s

    def rate(one: float, other: float) -> float:
        return round(max(0.0, other - one) / seconds, 1)

    neighbours = now["neighbours"]
    return {
        **{name: now[name] for name in ("node_id", "address", "pid", "uptime_s", "active")},
        "cpu_share": round(max(0.0, after.cpu_s[node] - before.cpu_s.get(node, after.cpu_s[node])) / seconds, 3),
        "memory_bytes": _memory_bytes(now["pid"]),
        "neighbours": len(neighbours),
        "suspected": sum(neighbour["suspected"] for neighbour in neighbours),
        "topics": len(now["topics"]),
        "events_per_s": rate(0, sum(_came(then, now).values())),
        "in_bytes_per_s": rate(then["counters"].get("bytes_in", 0), now["counters"].get("bytes_in", 0)),
        "out_bytes_per_s": rate(then["counters"].get("bytes_out", 0), now["counters"].get("bytes_out", 0)),
        "waiting_bytes": sum(neighbour["waiting_bytes"] for neighbour in neighbours),
        "buffers": now["buffers"],
        "dropped": now["counters"]["dropped"],
        "problems": now["problems"],
    }


def _came(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, int]:
    """Events that arrived between two statuses of a peer, by topic. A new term begins at 0, a topic anywhere."""
    terms = {(part["name"], part.get("term")): part.get("frontier", 0) for part in then["topics"]}
    known = {name for name, _ in terms}
    came = {}
    for part in now["topics"]:
        name, frontier = part["name"], part.get("frontier", 0)
        came[name] = frontier - terms.get((name, part.get("term")), 0 if name in known else frontier)
    return came


def _topics(before: Look, after: Look) -> list[dict[str, Any]]:
    """What all peers here know of each topic together."""
    found: dict[str, dict[str, Any]] = {}
    for node, status in after.statuses.items():
        came = _came(before.statuses.get(node, status), status)
        for part in status["topics"]:
            if part["role"] == "keeper":
                continue
            topic = found.setdefault(part["name"], _unknown(part["name"]))
            topic["root"] = node if part["role"] == "root" else topic["root"]
            topic["peers"] += "term" in part
            topic["subscriptions"] += part.get("subscriptions", 0)
            topic["publishers"] += part["publishers"]
            topic["events"] = max(topic["events"], part.get("events", 0))
            rate = round(came[part["name"]] / (after.at_s - before.at_s), 1)
            topic["events_per_s"] = max(topic["events_per_s"], rate)
            if part["role"] == "root" and part["delivery"] == "reliable":
                topic["unstable"] = part["frontier"] - part["stable"]
    return [found[name] for name in sorted(found)]


def _subscribers(look: Look) -> list[dict[str, Any]]:
    """Every subscription of the peers here, with what it lacks of the furthest position that one of them knows."""
    parts = [(node, part) for node, status in look.statuses.items() for part in status["topics"] if "term" in part]
    ends: dict[tuple[str, str], int] = {}
    for _, part in parts:
        term = (part["topic"], part["term"])
        ends[term] = max(ends.get(term, 0), part["frontier"])
    found = []
    for node, part in parts:
        beyond = max(0, ends[part["topic"], part["term"]] - part["known_end"]) if part["delivery"] == "reliable" else 0
        for reader in part["readers"]:
            behind = {"behind_events": reader["behind_events"] + beyond}
            found.append({"topic": part["name"], "node_id": node, **reader, **behind})
    return sorted(found, key=lambda one: (-one["behind_events"], -one["behind_s"], one["topic"], one["node_id"]))


def _unknown(name: str) -> dict[str, Any]:
    counts = dict.fromkeys(("peers", "subscriptions", "publishers", "events"), 0)
    return {"name": name, "root": None, **counts, "events_per_s": 0.0, "unstable": None}


def _links(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Links that are down, suspected, or have a queue."""
    for neighbour in status["neighbours"]:
        if neighbour["suspected"] or not neighbour["connected"] or neighbour["waiting_bytes"]:
            yield {"from": status["node_id"], "to": neighbour["node_id"], **neighbour}


def _cpu_s(pid: int) -> float:
    """CPU time used by a process, seconds; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


# --- output for people


def _lines(seen: Mapping[str, Any]) -> Iterator[str]:
    yield _head(seen)
    for title, columns, rows in _tables(seen):
        yield from table(title, columns, rows[:ROWS_MAX])
        yield from _more(rows)
    yield from _problems(seen)


def _more(rows: Sequence[object]) -> Iterator[str]:
    if len(rows) > ROWS_MAX:
        yield f"  ... and {len(rows) - ROWS_MAX} more (--json shows all)"


def _head(seen: Mapping[str, Any]) -> str:
    events = sum(topic["events_per_s"] for topic in seen["topics"])
    return (
        f"network {seen['network']}: {counted(len(seen['peers']), 'peer')}, "
        f"{counted(len(seen['topics']), 'topic')}, {events:,.0f} events/s, over {seen['seconds']:.1f} s"
    )


def _tables(seen: Mapping[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    behind = [_subscriber_row(one) for one in seen["subscribers"] if _lags(one)]
    return [
        ("peers", PEERS, [_peer_row(peer) for peer in seen["peers"]]),
        ("topics", TOPICS, [_topic_row(topic) for topic in sorted(seen["topics"], key=_by_rate)]),
        ("subscribers that are behind", SUBSCRIBERS, behind),
        ("links that are not well", LINKS, [_link_row(link) for link in seen["links"]]),
    ]


def _by_rate(topic: Mapping[str, Any]) -> tuple[float, str]:
    return -topic["events_per_s"], topic["name"]


def _problems(seen: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{node[:8]} does not answer" for node in seen["silent"])
    yield from (f"{peer['node_id'][:8]}: {problem}" for peer in seen["peers"] for problem in peer["problems"])


def _peer_row(peer: Mapping[str, Any]) -> list[str]:
    suspected = f" ({peer['suspected']} suspected)" if peer["suspected"] else ""
    return [
        peer["node_id"][:8],
        peer["address"] if peer["active"] else f"{peer['address']} (joining)",
        f"{peer['uptime_s']:.0f} s",
        f"{100 * peer['cpu_share']:.0f} %",
        sized(peer["memory_bytes"]),
        f"{peer['neighbours']}{suspected}",
        str(peer["topics"]),
        f"{peer['events_per_s']:,.0f}",
        sized(peer["in_bytes_per_s"]),
        sized(peer["out_bytes_per_s"]),
        sized(peer["waiting_bytes"]),
        f"{100 * peer['buffers']['used_bytes'] / peer['buffers']['limit_bytes']:.0f} %",
    ]


def _topic_row(topic: Mapping[str, Any]) -> list[str]:
    return [
        topic["name"],
        (topic["root"] or "?")[:8],
        *(str(topic[name]) for name in ("peers", "subscriptions", "publishers")),
        f"{topic['events_per_s']:,.0f}",
        str(topic["events"]),
        "-" if topic["unstable"] is None else str(topic["unstable"]),
    ]


def _lags(subscriber: Mapping[str, Any]) -> bool:
    """Whether it lacks events for longer than they usually take to arrive."""
    return bool(subscriber["behind_events"]) and subscriber["behind_s"] >= LATE_S


def _subscriber_row(subscriber: Mapping[str, Any]) -> list[str]:
    return [
        subscriber["topic"],
        subscriber["node_id"][:8],
        subscriber["name"] or f"#{subscriber['number']}",
        str(subscriber["behind_events"]),
        f"{subscriber['behind_s']:.1f}",
        f"{subscriber['stalled_s']:.1f} s",
        sized(subscriber["waiting_bytes"]),
    ]


def _link_row(link: Mapping[str, Any]) -> list[str]:
    round_trip = link["round_trip_ms"]
    return [
        link["from"][:8],
        link["to"][:8],
        "-" if round_trip is None else f"{round_trip:.2f} ms",
        "suspected" if link["suspected"] else "up" if link["connected"] else "down",
        sized(link["waiting_bytes"]),
        sized(max(0, link["room_bytes"])),
    ]


def _show(looks: Iterable[Mapping[str, Any]]) -> None:
    """Draw each look on the terminal's alternate screen until Ctrl-C."""
    click.echo(_ENTER, nl=False, color=True)
    try:
        for seen in looks:
            click.echo(_picture(seen, shutil.get_terminal_size(), coloured=coloured(1)), nl=False, color=True)
    finally:
        click.echo(_LEAVE, nl=False, color=True)


def _picture(seen: Mapping[str, Any], size: os.terminal_size, *, coloured: bool) -> str:
    """A look drawn over the previous one, cut to the size of the terminal."""
    lines: list[tuple[str, dict[str, Any]]] = [(f"{_head(seen)}; Ctrl-C ends", {"bold": True})]
    for title, columns, rows in _tables(seen):
        if rows:
            heading, names, *drawn = table(title, columns, rows[:ROWS_MAX], _LEFT[title])
            lines += [("", {}), (heading, {"fg": "cyan"}), (names, {"bold": True})]
            lines += [(line, _style(row)) for line, row in zip(drawn, rows, strict=False)]
            lines += [(line, {}) for line in _more(rows)]
    lines += [(problem, {"fg": "red"}) for problem in _problems(seen)]
    shown = [(line[: size.columns], style if coloured else {}) for line, style in lines[: size.lines]]
    return _HOME + "\r\n".join(click.style(line, **style) + _REST_OF_LINE for line, style in shown) + _BELOW


_LEFT = {"peers": 2, "topics": 2, "subscribers that are behind": 3, "links that are not well": 4}
"""How many columns of a table hold words."""

# Control sequences of terminals (ECMA-48, and xterm's alternate screen).
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def _style(row: Sequence[str]) -> dict[str, Any]:
    bad = any("suspected" in cell or "joining" in cell or cell == "down" for cell in row)
    return {"fg": "yellow"} if bad else {}
