"""Health checks of a peer, a topic, a scope or a link: pure functions of the status that peers report.

States, exit codes and the output line are those of Nagios plug-ins: `OK - text | name=value name=value`.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from quillcast.cli.rooted import called
from quillcast.cli.tables import counted
from quillcast.core.status.peers import LinkStatus, NodeStatus
from quillcast.core.status.scopes import ScopeStatus, ScopeTopic
from quillcast.core.status.topics import SubscriberLag
from quillcast.core.status.trees import TreeStatus, UnresponsivePeer

IDLE = "it has no root: nobody subscribes, and nobody publishes"
"""The text for an existing topic that nobody uses."""


class State(Enum):
    """The state of a check."""

    OK = "OK"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"

    @property
    def code(self) -> int:
        """The exit code."""
        return list(State).index(self)


SEVERITY = (State.OK, State.UNKNOWN, State.WARNING, State.CRITICAL)
"""From best to worst."""


class Part(msgspec.Struct, frozen=True):
    """Figures of one part of the checked object, such as one subscriber of a topic."""

    labels: dict[str, str]
    values: dict[str, float]


class Finding(msgspec.Struct, frozen=True):
    """The state of one object. `labels` identify it, `values` are figures in base units (bytes, seconds, counts)."""

    labels: dict[str, str]
    state: State
    text: str
    values: dict[str, float]
    subscribers: tuple[Part, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """What `check --json` prints: the worst state, its exit code, and all findings."""

    state: State
    code: int
    found: list[Finding]


class Bounds(NamedTuple):
    """The thresholds of the checks."""

    buffers_warning: float = 0.8  # of the limit
    buffers_critical: float = 0.95
    neighbours_min: int = 0
    subscribers_min: int = 0
    behind_warning: int = 10_000  # events that a subscriber is behind; a guess: some seconds of a busy topic
    behind_critical: int = 100_000
    late_warning_s: float = 10.0  # age of its oldest missing event; a guess, above what a repair takes
    late_critical_s: float = 60.0  # two leases: publishers' buffers discard it soon
    waiting_bytes_max: int = 4 << 20
    round_trip_ms_max: float | None = None


Trouble = tuple[State, str]


def of_peer(status: NodeStatus, bounds: Bounds) -> Finding:
    """Check a peer by its status."""
    neighbours = status.neighbours
    connected = sum(link.connected and not link.suspected for link in neighbours)
    lags = [lag for topic in status.topics for lag in topic.lags]
    values = {
        "neighbours": connected,
        "suspected": sum(link.suspected for link in neighbours),
        "topics": len(status.topics),
        "buffers_bytes": status.buffers.used_bytes,
        "waiting_bytes": sum(link.waiting_bytes for link in neighbours),
        "dropped": status.counters.dropped,
        "behind_events": max((lag.behind_events for lag in lags), default=0),
        "uptime_seconds": status.uptime_s,
    }
    labels, name = {"network": status.network, "peer": status.node_id}, f"peer {status.node_id[:8]}"
    healthy = f"{name}: {counted(connected, 'neighbour')}, {counted(len(status.topics), 'topic')}"
    return _judged(labels, name, healthy, _peer_troubles(status, connected, bounds), values)


def _peer_troubles(status: NodeStatus, connected: int, bounds: Bounds) -> Iterator[Trouble]:
    if not status.active:
        yield State.CRITICAL, "it has not joined the network"
    if connected < bounds.neighbours_min:
        yield State.CRITICAL, f"{counted(connected, 'live neighbour')}, not {bounds.neighbours_min}"
    failed = status.journal.failed if status.journal is not None else None
    if failed:
        yield State.CRITICAL, f"its journal failed: {failed}"
    share = status.buffers.share
    if share >= min(bounds.buffers_warning, bounds.buffers_critical):
        state = State.CRITICAL if share >= bounds.buffers_critical else State.WARNING
        yield state, f"buffers are {100 * share:.0f} % full"
    if suspected := sum(link.suspected for link in status.neighbours):
        yield State.WARNING, f"{suspected} of {len(status.neighbours)} neighbours suspected"
    yield from ((State.WARNING, problem) for problem in status.problems if not failed or failed not in problem)


def unresponsive_peer(network: str, node_id: str) -> Finding:
    """A peer whose process is alive and that does not answer."""
    return Finding({"network": network, "peer": node_id}, State.CRITICAL, f"peer {node_id[:8]}: it does not answer", {})


def of_topic(
    network: str,
    tree: TreeStatus,
    bounds: Bounds,
    *,
    root_scope: str = "",
    used: bool = True,
    unresponsive: Iterable[str] = (),
) -> Finding:
    """Check a topic by its tree. `used`: whether a peer of this machine subscribes, publishes or has children.

    `unresponsive` are the ids of peers of this machine that do not answer. The network forgets them when their leases
    end.
    """
    lags, idle = tree.lags, tree.complete and not tree.peers and not used
    behind: list[SubscriberLag | UnresponsivePeer] = [*lags, *tree.unresponsive]
    known = {peer.node_id for peer in tree.peers} | {peer.node_id for peer in tree.unresponsive}
    elsewhere = [node_id for node_id in unresponsive if node_id not in known]
    labels, name = {"network": network, "topic": tree.topic}, f"topic {called(tree.topic, root_scope)}"
    labels |= {"root_scope": root_scope} if root_scope else {}
    values = {
        "roots": sum(peer.root for peer in tree.peers),
        "peers": len(tree.peers),
        "unresponsive": len(tree.unresponsive) + len(elsewhere),
        "subscribers": _subscriptions(tree),
        "streams": _streams(tree),
        "events": tree.events,
        "behind_events": max((each.behind_events or 0 for each in behind), default=0),
        "behind_seconds": max((each.behind_s for each in behind), default=0.0),
        "waiting_bytes": sum(lag.waiting_bytes for lag in lags),
    }
    troubles = _topic_troubles(tree, bounds, idle=idle, elsewhere=elsewhere)
    found = _judged(labels, name, f"{name}: {IDLE if idle else _healthy(tree)}", troubles, values)
    silent = [_silent_part(labels, peer) for peer in tree.unresponsive]
    return msgspec.structs.replace(found, subscribers=(*(_part(labels, lag) for lag in lags), *silent))


def _subscriptions(tree: TreeStatus) -> int:
    return sum(peer.subscriptions for peer in tree.peers)


def _streams(tree: TreeStatus) -> int:
    """The number of live streams of sources that the root knows."""
    return next((peer.streams for peer in tree.peers if peer.node_id == tree.root), 0)


def _healthy(tree: TreeStatus) -> str:
    """The text for a topic without troubles."""
    last = max(tree.lags, key=lambda lag: lag.behind_events, default=None)
    behind = (
        ""
        if last is None or not last.behind_events
        else (f", at most {counted(last.behind_events, 'event')} behind ({_named(last)})")
    )
    by_source = tree.settings is not None and tree.settings.admission == "source"
    streams = f", {counted(_streams(tree), 'stream')} of sources" if by_source else ""
    return (
        f"root {(tree.root or '-')[:8]}, {counted(len(tree.peers), 'peer')}, "
        f"{counted(_subscriptions(tree), 'subscription')}{streams}{behind}"
    )


def _topic_troubles(tree: TreeStatus, bounds: Bounds, *, idle: bool, elsewhere: Iterable[str]) -> Iterator[Trouble]:
    roots, count = sum(peer.root for peer in tree.peers), _subscriptions(tree)
    if not roots and not idle:
        yield State.CRITICAL, "no root answers"
    if roots > 1:
        yield State.WARNING, f"{roots} peers believe that they are its root"
    if count < bounds.subscribers_min:
        yield State.CRITICAL, f"{counted(count, 'subscription')}, not {bounds.subscribers_min}"
    yield from (_no_answer(peer, bounds) for peer in tree.unresponsive)
    for node_id in elsewhere:
        yield State.WARNING, f"peer {node_id[:8]} of this machine does not answer, and may be a subscriber"
    if roots and not tree.complete and not tree.unresponsive:
        yield State.WARNING, "not every peer of its tree answers"
    yield from _lateness(tree.lags, bounds)


def _part(labels: dict[str, str], lag: SubscriberLag) -> Part:
    """The metrics of one subscription."""
    return Part(
        {**labels, "peer": lag.node_id, "subscription": lag.name or str(lag.number)},
        {
            "behind_events": lag.behind_events,
            "behind_seconds": lag.behind_s,
            "stalled_seconds": lag.stalled_s,
            "waiting_bytes": lag.waiting_bytes,
        },
    )


def _silent_part(labels: dict[str, str], peer: UnresponsivePeer) -> Part:
    """The metrics of all subscriptions of a peer that does not answer."""
    values = {"behind_events": peer.behind_events or 0, "behind_seconds": peer.behind_s}
    return Part({**labels, "peer": peer.node_id, "subscription": ""}, values)


def _no_answer(peer: UnresponsivePeer, bounds: Bounds) -> Trouble:
    """Judge a peer of the tree that did not answer."""
    behind = peer.behind_events or 0
    too_late = behind and peer.behind_s > bounds.late_critical_s
    state = State.CRITICAL if behind > bounds.behind_critical or too_late else State.WARNING
    return state, no_answer(peer)


def no_answer(peer: UnresponsivePeer) -> str:
    """Describe what is known about a peer that did not answer."""
    how = "is lost, and its lease is still running" if peer.lost else "does not answer"
    text = f"peer {peer.node_id[:8]} {how}"
    if peer.behind_events:
        text += f", {counted(peer.behind_events, 'event')} behind by its last report"
        text += f", the oldest {peer.behind_s:.1f} s old" if peer.behind_s else ""
    return text


def _lateness(lags: Iterable[SubscriberLag], bounds: Bounds) -> Iterator[Trouble]:
    """Subscriptions that are too far behind, the worst first."""
    for lag in sorted(lags, key=lambda lag: (-lag.behind_events, -lag.behind_s)):
        events, too_late = lag.behind_events, lag.behind_s > min(bounds.late_warning_s, bounds.late_critical_s)
        if events > min(bounds.behind_warning, bounds.behind_critical) or (events and too_late):
            critical = events > bounds.behind_critical or lag.behind_s > bounds.late_critical_s
            yield State.CRITICAL if critical else State.WARNING, f"subscriber {_named(lag)} is {_behind(lag)}"


def _named(lag: SubscriberLag) -> str:
    """The peer, and the subscription's name if the application gave one."""
    return f"{lag.node_id[:8]}{f' {lag.name}' if lag.name else ''}"


def _behind(lag: SubscriberLag) -> str:
    stalled = f", and has processed nothing for {lag.stalled_s:.0f} s" if lag.stalled_s >= 1 else ""
    return f"{counted(lag.behind_events, 'event')} and {lag.behind_s:.1f} s behind{stalled}"


def of_scope(network: str, scope: ScopeStatus) -> Finding:
    """Check a scope by its manager's status."""
    silent_s = max((member.heard_s for member in scope.members), default=0.0)
    waiting = [topic for topic in scope.topics if topic.waits_for]
    values = {
        "members": len(scope.members),
        "topics": len(scope.topics),
        "waiting_topics": len(waiting),
        "channels": sum(len(topic.channels) for topic in scope.topics),
        "silent_seconds": silent_s,
        "epoch": scope.epoch,
    }
    name = f"scope {scope.name}"
    healthy = f"{name}: {counted(len(scope.members), 'member')}, {counted(len(scope.topics), 'topic')}"
    labels = {"network": network, "scope": scope.name}
    return _judged(labels, name, healthy, _scope_troubles(scope, waiting), values)


def _scope_troubles(scope: ScopeStatus, waiting: list[ScopeTopic]) -> Iterator[Trouble]:
    if not scope.members:
        yield State.WARNING, "it has no members"
    silent = [member.node_id[:8] for member in scope.members if member.heard_s > scope.lease_s / 2]
    if silent:
        yield State.WARNING, f"members that may be gone: {', '.join(silent)}"
    for each in scope.superscopes:
        if each.obstacle or each.unresponsive:
            yield State.WARNING, f"superscope {each.name}: {each.obstacle or 'its manager does not respond'}"
    yield from ((State.WARNING, f"topic {topic.name} waits: {topic.waits_for}") for topic in waiting)
    yield from ((State.WARNING, f"topic {topic.name}: {topic.stopped}") for topic in scope.topics if topic.stopped)


def of_link(status: NodeStatus, link: LinkStatus, bounds: Bounds) -> Finding:
    """Check a link by what the peer at one end reports about it."""
    name = f"link {status.node_id[:8]} to {link.node_id[:8]}"
    measured = {} if link.round_trip_ms is None else {"round_trip_seconds": link.round_trip_ms / 1000}
    values = {**measured, "waiting_bytes": link.waiting_bytes, "credit_bytes": link.credit_bytes}
    labels = {"network": status.network, "peer": status.node_id, "neighbour": link.node_id}
    return _judged(labels, name, f"{name}: up", _link_troubles(link, bounds), values)


def _link_troubles(link: LinkStatus, bounds: Bounds) -> Iterator[Trouble]:
    if link.suspected:
        yield State.CRITICAL, "the neighbour is suspected"
    if not link.connected:
        yield State.CRITICAL, "it is down"
    if link.waiting_bytes > bounds.waiting_bytes_max:
        yield State.WARNING, f"{link.waiting_bytes} bytes are queued"
    if bounds.round_trip_ms_max is None:
        return
    if link.round_trip_ms is None:
        yield State.UNKNOWN, "this peer has not measured its round trip; ask the other end"
    elif link.round_trip_ms > bounds.round_trip_ms_max:
        yield State.WARNING, f"a round trip takes {link.round_trip_ms:.1f} ms"


def _judged(
    labels: dict[str, str], name: str, healthy: str, troubles: Iterable[Trouble], values: dict[str, float]
) -> Finding:
    found = list(troubles)
    if not found:
        return Finding(labels, State.OK, healthy, values)
    return Finding(
        labels, worst(state for state, _ in found), f"{name}: {'; '.join(text for _, text in found)}", values
    )


def worst(states: Iterable[State]) -> State:
    """The worst of some states; UNKNOWN for none."""
    return max(states, key=SEVERITY.index, default=State.UNKNOWN)


def line(findings: list[Finding]) -> str:
    """All findings on one line; a single finding is followed by its figures."""
    return f"{worst(finding.state for finding in findings).value} - {_text(findings)}"


def _text(findings: list[Finding]) -> str:
    if len(findings) == 1:
        figures = " ".join(f"{name}={_plain(value)}" for name, value in findings[0].values.items())
        return _without_bar(findings[0]) + (f" | {figures}" if figures else "")
    unwell = [_without_bar(finding) for finding in findings if finding.state != State.OK]
    return "; ".join([f"{len(findings) - len(unwell)} of {len(findings)} are OK", *unwell])


def _without_bar(finding: Finding) -> str:
    """A finding's text without bars, because a bar introduces figures."""
    return finding.text.replace("|", "/")


def prometheus(what: str, findings: list[Finding]) -> Iterator[str]:
    """The findings in Prometheus' text format, one gauge per figure; the state is its exit code.

    Each subscriber of a topic has its own gauges.
    """
    yield from _metric(f"quillcast_{what}_state", [(each.labels, each.state.code) for each in findings])
    for name in dict.fromkeys(name for each in findings for name in each.values):
        samples = [(each.labels, each.values[name]) for each in findings if name in each.values]
        yield from _metric(f"quillcast_{what}_{name}", samples)
    parts = [part for each in findings for part in each.subscribers]
    for name in dict.fromkeys(name for part in parts for name in part.values):
        yield from _metric(
            f"quillcast_subscriber_{name}", [(part.labels, part.values[name]) for part in parts if name in part.values]
        )


def _metric(name: str, samples: list[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{shown}}} {_plain(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"
