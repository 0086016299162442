"""What monitors are told of a peer, a topic or a link: pure functions of what peers say.

States and exit codes are those of Nagios' plug-ins, and so is the line: `OK - text | name=value name=value`.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple


class State(IntEnum):
    """How well something is; the value is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


SEVERITY = (State.OK, State.UNKNOWN, State.WARNING, State.CRITICAL)
"""From the best to the worst."""


class Finding(NamedTuple):
    """How well one thing is. `labels` say which it is, `values` are figures in base units (bytes, seconds, counts)."""

    labels: dict[str, str]
    state: State
    text: str
    values: dict[str, float]


class Bounds(NamedTuple):
    """From where on something is not well."""

    buffers_warning: float = 0.8  # of the limit
    buffers_critical: float = 0.95
    neighbours_min: int = 0
    subscribers_min: int = 0
    behind_max: int = 10_000  # events between the first and the last peer of a tree
    waiting_bytes_max: int = 4 << 20
    round_trip_ms_max: float | None = None


Trouble = tuple[State, str]


def of_peer(status: Mapping[str, Any], bounds: Bounds) -> Finding:
    """A peer by its `status`."""
    neighbours, buffers = status["neighbours"], status["buffers"]
    share = buffers["used_bytes"] / buffers["limit_bytes"]
    connected = sum(one["connected"] and not one["suspected"] for one in neighbours)
    suspected = sum(one["suspected"] for one in neighbours)
    name = f"peer {status['node_id'][:8]}"

    def troubles() -> Iterator[Trouble]:
        if not status["active"]:
            yield State.CRITICAL, "it has not joined the network"
        if connected < bounds.neighbours_min:
            yield State.CRITICAL, f"{connected} live neighbours, not {bounds.neighbours_min}"
        if status["journal"] and status["journal"]["failed"]:
            yield State.CRITICAL, f"its journal failed: {status['journal']['failed']}"
        if share >= min(bounds.buffers_warning, bounds.buffers_critical):
            state = State.CRITICAL if share >= bounds.buffers_critical else State.WARNING
            yield state, f"buffers are {100 * share:.0f} % full"
        if suspected:
            yield State.WARNING, f"{suspected} of {len(neighbours)} neighbours suspected"
        yield from ((State.WARNING, problem) for problem in status["problems"])

    values = {
        "neighbours": connected,
        "suspected": suspected,
        "topics": len(status["topics"]),
        "buffers_bytes": buffers["used_bytes"],
        "waiting_bytes": sum(one["waiting_bytes"] for one in neighbours),
        "dropped": status["counters"]["dropped"],
        "uptime_seconds": status["uptime_s"],
    }
    labels = {"network": status["network"], "peer": status["node_id"]}
    well = f"{name}: {connected} neighbours, {len(status['topics'])} topics"
    return _judged(labels, name, well, troubles(), values)


def silent_peer(network: str, node_id: str) -> Finding:
    """A peer whose process lives and that does not answer."""
    return Finding({"network": network, "peer": node_id}, State.CRITICAL, f"peer {node_id[:8]}: it does not answer", {})


def of_topic(network: str, tree: Mapping[str, Any], bounds: Bounds) -> Finding:
    """A topic by its `tree`."""
    peers = tree["peers"]
    roots = [peer for peer in peers if peer["parent"] is None]
    subscribers = sum(peer["subscribers"] for peer in peers)
    frontiers = [peer["frontier"] for peer in peers if roots and peer["term"] == roots[0]["term"]]
    behind = max(frontiers, default=0) - min(frontiers, default=0)
    name = f"topic {tree['topic']}"

    def troubles() -> Iterator[Trouble]:
        if not roots:
            yield State.CRITICAL, "no root answers"
        if len(roots) > 1:
            yield State.WARNING, f"{len(roots)} peers believe that they are its root"
        if subscribers < bounds.subscribers_min:
            yield State.CRITICAL, f"{subscribers} subscriptions, not {bounds.subscribers_min}"
        if roots and not tree["complete"]:
            yield State.WARNING, "not every peer of its tree answers"
        if behind > bounds.behind_max:
            yield State.WARNING, f"a peer of its tree is {behind} events behind"

    values = {
        "roots": len(roots),
        "peers": len(peers),
        "subscribers": subscribers,
        "events": max(frontiers, default=0),
        "behind_events": behind,
    }
    well = f"{name}: root {(tree['root'] or '-')[:8]}, {len(peers)} peers, {subscribers} subscriptions"
    return _judged({"network": network, "topic": tree["topic"]}, name, well, troubles(), values)


def of_link(status: Mapping[str, Any], neighbour: Mapping[str, Any], bounds: Bounds) -> Finding:
    """A link by what the peer at one end says of the neighbour at the other."""
    round_trip_ms = neighbour["round_trip_ms"]
    name = f"link {status['node_id'][:8]} to {neighbour['node_id'][:8]}"

    def troubles() -> Iterator[Trouble]:
        if neighbour["suspected"]:
            yield State.CRITICAL, "the neighbour is suspected"
        if not neighbour["connected"]:
            yield State.CRITICAL, "it is down"
        if neighbour["waiting_bytes"] > bounds.waiting_bytes_max:
            yield State.WARNING, f"{neighbour['waiting_bytes']} bytes wait in it"
        if bounds.round_trip_ms_max is not None and (round_trip_ms or 0.0) > bounds.round_trip_ms_max:
            yield State.WARNING, f"a round trip takes {round_trip_ms:.1f} ms"

    measured = {} if round_trip_ms is None else {"round_trip_seconds": round_trip_ms / 1000}
    values = {**measured, "waiting_bytes": neighbour["waiting_bytes"], "room_bytes": neighbour["room_bytes"]}
    labels = {"network": status["network"], "peer": status["node_id"], "neighbour": neighbour["node_id"]}
    return _judged(labels, name, f"{name}: up", troubles(), values)


def _judged(
    labels: dict[str, str], name: str, well: str, troubles: Iterable[Trouble], values: dict[str, float]
) -> Finding:
    found = list(troubles)
    if not found:
        return Finding(labels, State.OK, well, values)
    return Finding(
        labels, worst(state for state, _ in found), f"{name}: {'; '.join(text for _, text in found)}", values
    )


def worst(states: Iterable[State]) -> State:
    """The worst of some states; of none, that nothing is known."""
    return max(states, key=SEVERITY.index, default=State.UNKNOWN)


def line(findings: list[Finding]) -> str:
    """All of it on one line; figures follow where it is about one thing."""
    state = worst(finding.state for finding in findings)
    findings = [finding._replace(text=finding.text.replace("|", "/")) for finding in findings]  # figures follow a |
    if len(findings) == 1:
        figures = " ".join(f"{name}={_plain(value)}" for name, value in findings[0].values.items())
        return f"{state.name} - {findings[0].text}" + (f" | {figures}" if figures else "")
    unwell = [finding.text for finding in findings if finding.state != State.OK]
    return "; ".join([f"{state.name} - {len(findings) - len(unwell)} of {len(findings)} are well", *unwell])


def prometheus(what: str, findings: list[Finding]) -> Iterator[str]:
    """The findings as lines of Prometheus' text format, a gauge per figure; the state is its exit code."""
    yield from _metric(f"quillcast_{what}_state", [(each.labels, float(each.state)) for each in findings])
    for name in dict.fromkeys(name for each in findings for name in each.values):
        samples = [(each.labels, each.values[name]) for each in findings if name in each.values]
        yield from _metric(f"quillcast_{what}_{name}", samples)


def _metric(name: str, samples: list[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{shown}}} {_plain(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"
