"""`quillcast trace`: follow one bundle through peers, channels and filters."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import click
import msgspec

from quillcast.cli.asking import SILENT_S
from quillcast.cli.options import JSON, NETWORK, PEER, TOPIC, Amount
from quillcast.cli.rooted import ask_about, called, no_topic
from quillcast.cli.tables import counted, sized
from quillcast.cli.tree import boxes
from quillcast.core.boxes import Drawn, drawn
from quillcast.core.status.base import PeerContact
from quillcast.core.status.traces import TraceHop, TraceStatus, TraceWay
from quillcast.live.discovery.questions import TraceQuestion

NOT_REACHED_SHOWN = 8


@click.command(short_help="Follow one bundle of events through a topic's peers.")
@TOPIC
@click.option(
    "--timeout", "timeout_s", type=Amount(min=0.1, max=3600), default=10.0, show_default=True, metavar="SECONDS",
    help="Wait this long for a bundle.",
)  # fmt: skip
@PEER
@JSON
@NETWORK
@click.pass_context
def command(context: click.Context, topic: str, timeout_s: float, peer: str, network: str, as_json: bool) -> None:
    """Follow the next bundle of TOPIC: which peers it comes to and when, over which channels, and what stops it.

    Publishes nothing: it waits for the next bundle. To send one, run `quillcast pub TOPIC MESSAGE` in another terminal.
    If topics with different root scopes have the name, it follows one bundle of each. Times begin when the
    first event was published. Each peer uses its own clock, so times from different machines are only as accurate as
    their clocks.

    The exit code is 1 if no bundle came in time, or if some peers did not report it.
    """
    answer_s = timeout_s + SILENT_S
    traces = ask_about(network, peer, TraceQuestion(topic, timeout_s), TraceStatus, timeout_s=answer_s)
    for root_scope, trace in traces.items():
        if not trace.known:
            raise no_topic(network, topic, peer)
        if as_json:
            click.echo(msgspec.json.encode(trace).decode())
            continue
        for line in draw(trace, timeout_s, root_scope):
            click.echo(line)
    came = [trace for trace in traces.values() if trace.hops]
    context.exit(0 if came and all(trace.complete for trace in came) else 1)


def draw(trace: TraceStatus, timeout_s: float, root_scope: str = "") -> Iterator[str]:
    """Draw the path of a bundle as lines of text."""
    if not trace.hops:
        yield f"no bundle of {called(trace.topic, root_scope)} came within {timeout_s:g} s"
        yield from (f"peer {_named(each)} does not answer" for each in trace.unresponsive)
        publish = f"quillcast pub {trace.topic} MESSAGE" + (f" --scope {root_scope}@HOST:PORT" if root_scope else "")
        yield f"run `{publish}` in another terminal meanwhile, or wait longer with --timeout"
        return
    yield _headline(trace, called(trace.topic, root_scope))
    first = _first_hops(trace)
    peers = {node: _drawn(trace, hop, first) for node, hop in first.items()}
    for node, hop in first.items():
        if hop.sender not in first:
            yield from drawn(peers, node)
    yield from _end(trace, first)


def _headline(trace: TraceStatus, topic: str) -> str:
    at = datetime.fromtimestamp(trace.published_ns / 1e9, UTC).astimezone()
    by = f" by peer {_named(trace.publisher)}" if trace.publisher is not None else ""
    what = f"{counted(trace.events, 'event')} ({sized(trace.size_bytes)}), index {trace.first} of term {trace.term}"
    what += f", serial {trace.serial}"
    return f"{topic}: {what}, published at {at:%H:%M:%S.%f}{by}"


def _first_hops(trace: TraceStatus) -> dict[str, TraceHop]:
    """The first arrival of the bundle at each peer, where later copies ended."""
    first: dict[str, TraceHop] = {}
    for hop in sorted(trace.hops, key=lambda hop: (hop.stopped == "repeat", hop.at_ms)):
        first.setdefault(hop.node_id, hop)
    return first


def _drawn(trace: TraceStatus, hop: TraceHop, first: dict[str, TraceHop]) -> Drawn:
    children = tuple(node for node, each in first.items() if each.sender == hop.node_id)
    silent = {each.node_id for each in trace.unresponsive}
    went = [way.node_id for way in hop.ways if not way.why]
    notes = tuple(_stopped(way for way in hop.ways if way.why and way.why != "came from there"))
    if copies := [node[:8] for node in went if node not in children and node not in silent]:
        notes += (f"also to {', '.join(copies)}: already had it",)
    return Drawn(_label(hop, first), boxes(hop), (*children, *(node for node in went if node in silent)), notes)


def _label(hop: TraceHop, first: dict[str, TraceHop]) -> str:
    sender = first.get(hop.sender or "")
    parts = [f"{hop.at_ms:.2f} ms"]
    if sender is not None:
        parts = [f"{hop.at_ms:.2f} ms (+{hop.at_ms - sender.at_ms:.2f})"]
        way = next((way for way in sender.ways if way.node_id == hop.node_id and not way.why), None)
        parts += _over(way, hop) if way is not None else []
    parts += ["begins here"] if hop.sender is None else []
    parts += ["a repair"] if hop.repair else []
    parts += [f"ended here: {hop.stopped}"] if hop.stopped else []
    parts += [counted(hop.subscriptions, "subscription")] if hop.subscriptions else []
    parts += [f"waits in {counted(hop.waiting, 'subscription')}"] if hop.waiting else []
    return f"{hop.node_id[:8]} {hop.address}  {', '.join(parts)}"


def _over(way: TraceWay, hop: TraceHop) -> Iterator[str]:
    """Name the scope's channel over which the bundle came."""
    if way.channel:
        filter_ = f" ({way.filter})" if way.filter else ""
        yield f"channel {way.channel}{filter_}"
    if hop.record:
        yield f"record {hop.record}"


def _stopped(ways: Iterable[TraceWay]) -> Iterator[str]:
    """List the channels that the bundle did not take: one line for all with the same reason."""
    reasons = dict[tuple[str, str], list[TraceWay]]()
    for way in ways:
        reasons.setdefault((way.why, way.filter if way.why == "its filter" else ""), []).append(way)
    for (why, filter_), stopped in reasons.items():
        peers, channels = ", ".join(way.node_id[:8] for way in stopped), [way.channel for way in stopped if way.channel]
        over = f" over channel{'s' * (len(channels) > 1)} {', '.join(channels)}" if channels else ""
        if why == "waits":
            yield f"waits for {peers}, which accepts nothing at the moment"
        elif filter_:
            yield f"not to {peers}{over}: the filter accepts {filter_}"
        else:
            yield f"not to {peers}{over}: {why}"


def _end(trace: TraceStatus, first: dict[str, TraceHop]) -> Iterator[str]:
    """Describe the outcome."""
    copies = len(trace.hops) - len(first)
    last = max(hop.at_ms for hop in first.values())
    subscriptions = sum(hop.subscriptions for hop in first.values())
    extra = f"; {copies} more {'copy' if copies == 1 else 'copies'} ended at peers that had it" if copies else ""
    reached = f"{counted(len(first), 'peer')} and {counted(subscriptions, 'subscription')}"
    yield f"reached {reached} within {last:.2f} ms{extra}"
    yield from (f"peer {_named(each)} does not answer" for each in trace.unresponsive)
    if missing := [each.node_id[:8] for each in trace.not_reached]:
        more = f" and {len(missing) - NOT_REACHED_SHOWN} more" if len(missing) > NOT_REACHED_SHOWN else ""
        yield f"not reached within 2 s: {', '.join(missing[:NOT_REACHED_SHOWN])}{more}"


def _named(peer: PeerContact) -> str:
    return f"{peer.node_id[:8]} ({peer.address})" if peer.address else peer.node_id[:8]
