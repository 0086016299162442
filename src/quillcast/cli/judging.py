"""Health checks of a peer, a topic or a link: pure functions of what peers report.

States, exit codes and the output line are those of Nagios plug-ins: `OK - text | name=value name=value`.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from quillcast.cli.tables import counted

IDLE = "it has no root: nobody subscribes, and nobody publishes"
"""The text for an existing topic that nobody uses."""


class State(IntEnum):
    """The state of a check; the value is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


SEVERITY = (State.OK, State.UNKNOWN, State.WARNING, State.CRITICAL)
"""From best to worst."""


class Part(NamedTuple):
    """Figures of one part of the checked object, such as one subscriber of a topic."""

    labels: dict[str, str]
    values: dict[str, float]


class Finding(NamedTuple):
    """The state of one object. `labels` identify it, `values` are figures in base units (bytes, seconds, counts)."""

    labels: dict[str, str]
    state: State
    text: str
    values: dict[str, float]
    subscribers: tuple[Part, ...] = ()

    def told(self) -> dict[str, Any]:
        """This finding as plain values."""
        parts = [part._asdict() for part in self.subscribers]
        return {**self._asdict(), "state": self.state.name, "subscribers": parts}


class Bounds(NamedTuple):
    """The thresholds of the checks."""

    buffers_warning: float = 0.8  # of the limit
    buffers_critical: float = 0.95
    neighbours_min: int = 0
    subscribers_min: int = 0
    behind_warning: int = 10_000  # events that a subscriber lacks; a guess: some seconds of a busy topic
    behind_critical: int = 100_000
    late_warning_s: float = 10.0  # age of the oldest event that it lacks; a guess, above what a repair takes
    late_critical_s: float = 60.0  # two leases: publishers' buffers discard it soon
    waiting_bytes_max: int = 4 << 20
    round_trip_ms_max: float | None = None


Trouble = tuple[State, str]


def of_peer(status: Mapping[str, Any], bounds: Bounds) -> Finding:
    """Check a peer by its `status`."""
    neighbours, buffers = status["neighbours"], status["buffers"]
    share = buffers["used_bytes"] / buffers["limit_bytes"]
    connected = sum(one["connected"] and not one["suspected"] for one in neighbours)
    suspected = sum(one["suspected"] for one in neighbours)
    name = f"peer {status['node_id'][:8]}"

    def troubles() -> Iterator[Trouble]:
        if not status["active"]:
            yield State.CRITICAL, "it has not joined the network"
        if connected < bounds.neighbours_min:
            yield State.CRITICAL, f"{counted(connected, 'live neighbour')}, not {bounds.neighbours_min}"
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
        "behind_events": max((reader["behind_events"] for reader in _readers(status)), default=0),
        "uptime_seconds": status["uptime_s"],
    }
    labels = {"network": status["network"], "peer": status["node_id"]}
    well = f"{name}: {counted(connected, 'neighbour')}, {counted(len(status['topics']), 'topic')}"
    return _judged(labels, name, well, troubles(), values)


def _readers(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A peer's subscriptions."""
    for topic in status["topics"]:
        yield from topic.get("readers", ())


def silent_peer(network: str, node_id: str) -> Finding:
    """A peer whose process is alive and that does not answer."""
    return Finding({"network": network, "peer": node_id}, State.CRITICAL, f"peer {node_id[:8]}: it does not answer", {})


def of_topic(
    network: str, tree: Mapping[str, Any], bounds: Bounds, *, used: bool = True, mute: Iterable[str] = ()
) -> Finding:
    """Check a topic by its `tree`. `used`: whether a peer of this machine subscribes, publishes or has children.

    `mute` are the ids of peers of this machine that do not answer. The network forgets them when their leases end.
    """
    peers, silent, lags = tree["peers"], tree["silent"], list(subscribers(tree))
    roots = [peer for peer in peers if peer["root"]]
    count = sum(peer["subscribers"] for peer in peers)
    idle = tree["complete"] and not peers and not used
    first = max(lags, key=lambda lag: lag.events, default=None)
    name = f"topic {tree['topic']}"
    told = {peer["node_id"] for peer in (*peers, *silent)}
    unknown = [node_id for node_id in mute if node_id not in told]

    def troubles() -> Iterator[Trouble]:
        if not roots and not idle:
            yield State.CRITICAL, "no root answers"
        if len(roots) > 1:
            yield State.WARNING, f"{len(roots)} peers believe that they are its root"
        if count < bounds.subscribers_min:
            yield State.CRITICAL, f"{counted(count, 'subscription')}, not {bounds.subscribers_min}"
        yield from (_silence(peer, bounds) for peer in silent)
        for node_id in unknown:
            yield State.WARNING, f"peer {node_id[:8]} of this machine does not answer, and may be a subscriber"
        if roots and not tree["complete"] and not silent:
            yield State.WARNING, "not every peer of its tree answers"
        yield from _lateness(lags, bounds)

    values = {
        "roots": len(roots),
        "peers": len(peers),
        "silent": len(silent),
        "subscribers": count,
        "events": tree["events"],
        "behind_events": max([lag.events for lag in lags] + [peer["behind_events"] or 0 for peer in silent], default=0),
        "behind_seconds": max((lag.late_s for lag in lags), default=0.0),
        "waiting_bytes": sum(lag.waiting_bytes for lag in lags),
    }
    well = f"{name}: root {(tree['root'] or '-')[:8]}, {counted(len(peers), 'peer')}, {counted(count, 'subscription')}"
    if idle:
        well = f"{name}: {IDLE}"
    if first is not None and first.events:
        well += f", at most {counted(first.events, 'event')} behind ({first.name})"
    labels = {"network": network, "topic": tree["topic"]}
    parts = tuple(Part({**labels, **lag.labels}, lag.values) for lag in lags)
    return _judged(labels, name, well, troubles(), values)._replace(subscribers=parts)


class Lag(NamedTuple):
    """How far one subscription is behind its topic's root."""

    node_id: str
    address: str
    subscription: str
    number: int
    events: int
    late_s: float
    stalled_s: float
    waiting_bytes: int

    @property
    def name(self) -> str:
        """The peer, and the subscription's name if the application gave one."""
        return f"{self.node_id[:8]}{f' {self.subscription}' if self.subscription else ''}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that identify it in metrics."""
        return {"peer": self.node_id, "subscription": self.subscription or str(self.number)}

    @property
    def values(self) -> dict[str, float]:
        """Its figures for metrics."""
        return {
            "behind_events": self.events,
            "behind_seconds": self.late_s,
            "stalled_seconds": self.stalled_s,
            "waiting_bytes": self.waiting_bytes,
        }


def subscribers(tree: Mapping[str, Any]) -> Iterator[Lag]:
    """The subscriptions in a topic's tree, peer by peer."""
    for peer in tree["peers"]:
        for reader in peer["readers"]:
            yield lag_of(peer["node_id"], peer["address"], reader)


def lag_of(node_id: str, address: str | None, reader: Mapping[str, Any]) -> Lag:
    """The lag of a subscription, as shown by its peer or by the topic's tree."""
    return Lag(
        node_id,
        address or "",
        reader["name"],
        reader["number"],
        reader["behind_events"],
        reader["behind_s"],
        reader["stalled_s"],
        reader["waiting_bytes"],
    )


def _silence(peer: Mapping[str, Any], bounds: Bounds) -> Trouble:
    """Judge a peer of the tree that did not answer."""
    behind = peer["behind_events"]
    state = State.CRITICAL if (behind or 0) > bounds.behind_critical else State.WARNING
    how = "is lost, and its lease is still running" if peer["lost"] else "does not answer"
    return state, f"peer {peer['node_id'][:8]} {how}" + (
        f", {counted(behind, 'event')} behind by its last report" if behind else ""
    )


def _lateness(lags: Iterable[Lag], bounds: Bounds) -> Iterator[Trouble]:
    """Subscriptions that are too far behind, the worst first."""
    for lag in sorted(lags, key=lambda lag: (-lag.events, -lag.late_s)):
        too_late = lag.late_s > min(bounds.late_warning_s, bounds.late_critical_s)
        if lag.events > min(bounds.behind_warning, bounds.behind_critical) or (lag.events and too_late):
            critical = lag.events > bounds.behind_critical or lag.late_s > bounds.late_critical_s
            yield State.CRITICAL if critical else State.WARNING, f"subscriber {lag.name} is {_behind(lag)}"


def _behind(lag: Lag) -> str:
    stalled = f", and has processed nothing for {lag.stalled_s:.0f} s" if lag.stalled_s >= 1 else ""
    return f"{counted(lag.events, 'event')} and {lag.late_s:.1f} s behind{stalled}"


def of_link(status: Mapping[str, Any], neighbour: Mapping[str, Any], bounds: Bounds) -> Finding:
    """Check a link by what the peer at one end reports about the neighbour at the other."""
    round_trip_ms = neighbour["round_trip_ms"]
    name = f"link {status['node_id'][:8]} to {neighbour['node_id'][:8]}"

    def troubles() -> Iterator[Trouble]:
        if neighbour["suspected"]:
            yield State.CRITICAL, "the neighbour is suspected"
        if not neighbour["connected"]:
            yield State.CRITICAL, "it is down"
        if neighbour["waiting_bytes"] > bounds.waiting_bytes_max:
            yield State.WARNING, f"{neighbour['waiting_bytes']} bytes are queued"
        if bounds.round_trip_ms_max is not None and round_trip_ms is None:
            yield State.UNKNOWN, "this peer has not measured its round trip; ask the other end"
        elif bounds.round_trip_ms_max is not None and round_trip_ms > bounds.round_trip_ms_max:
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
    """The worst of some states; UNKNOWN for none."""
    return max(states, key=SEVERITY.index, default=State.UNKNOWN)


def line(findings: list[Finding]) -> str:
    """All findings on one line; a single finding is followed by its figures."""
    state = worst(finding.state for finding in findings)
    findings = [finding._replace(text=finding.text.replace("|", "/")) for finding in findings]  # figures follow a |
    if len(findings) == 1:
        figures = " ".join(f"{name}={_plain(value)}" for name, value in findings[0].values.items())
        return f"{state.name} - {findings[0].text}" + (f" | {figures}" if figures else "")
    unwell = [finding.text for finding in findings if finding.state != State.OK]
    return "; ".join([f"{state.name} - {len(findings) - len(unwell)} of {len(findings)} are OK", *unwell])


def prometheus(what: str, findings: list[Finding]) -> Iterator[str]:
    """The findings in Prometheus' text format, one gauge per figure; the state is its exit code.

    Each subscriber of a topic has its own gauges.
    """
    yield from _metric(f"quillcast_{what}_state", [(each.labels, float(each.state)) for each in findings])
    for name in dict.fromkeys(name for each in findings for name in each.values):
        samples = [(each.labels, each.values[name]) for each in findings if name in each.values]
        yield from _metric(f"quillcast_{what}_{name}", samples)
    parts = [part for each in findings for part in each.subscribers]
    for name in dict.fromkeys(name for part in parts for name in part.values):
        yield from _metric(f"quillcast_subscriber_{name}", [(part.labels, part.values[name]) for part in parts])


def _metric(name: str, samples: list[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{shown}}} {_plain(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"
