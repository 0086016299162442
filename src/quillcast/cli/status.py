"""`quillcast status`: show what a running peer is, knows and does."""

from collections.abc import Iterator

import click
import msgspec

from quillcast.cli.asking import ask_peer, peers_here
from quillcast.cli.options import JSON, NETWORK, PEER
from quillcast.cli.tables import counted, sized, table
from quillcast.core.status.peers import Counters, JournalStatus, LinkStatus, NodeStatus
from quillcast.core.status.scopes import Membership
from quillcast.core.status.topics import SubscriberLag, TopicStatus
from quillcast.live.discovery.questions import StatusQuestion


@click.command(short_help="Show what a running peer is, knows and does.")
@PEER
@JSON
@NETWORK
def command(peer: str, network: str, as_json: bool) -> None:
    """Show a running peer of this machine: its neighbours, leaf set, topics, rates, and how far its subscriptions are.

    How far a subscription is behind is counted up to what this peer knows of the topic. `check topic` queries the root.
    """
    status = ask_peer(network, peer, StatusQuestion(), NodeStatus)
    if as_json:
        click.echo(msgspec.json.encode(status).decode())
        return
    for line in _lines(status, len(peers_here(network))):
        click.echo(line)


def _lines(status: NodeStatus, peers: int) -> Iterator[str]:
    state = "joined" if status.active else "joining"
    used, limit = (size / 2**20 for size in (status.buffers.used_bytes, status.buffers.limit_bytes))
    lags = [lag for topic in status.topics for lag in topic.lags]
    yield f"peer {status.node_id[:8]} at {status.address}, network {status.network}: {state}"
    here = f"{counted(peers, 'peer')} of this network on this machine"
    yield f"  pid {status.pid}, up {status.uptime_s:.0f} s; {here}" + _clients(status.clients)
    yield f"  buffers {used:.1f} of {limit:.0f} MiB" + _journal(status.journal)
    yield from (f"  runs the manager of scope {name}" for name in status.manages)
    yield from map(_membership, status.memberships)
    yield from table("leaf set", ["peer", "address"], [[one.node_id[:8], one.address] for one in status.leaf_set])
    yield from table("neighbours", ["peer", "address", "round trip", "link"], map(_neighbour, status.neighbours))
    yield from table(
        "topics", ["topic", "delivery", "role", "parent", "children", "events/s", "events"], map(_topic, status.topics)
    )
    yield from table(
        "subscriptions", ["topic", "name", "events behind", "seconds behind", "stalled", "waiting"], map(_lag, lags)
    )
    yield from table("counters", ["what", "count"], _counted(status.counters))
    if status.problems:
        yield "problems:"
        yield from (f"  {problem}" for problem in status.problems)


def _clients(count: int) -> str:
    return f"; {count} client{'s' * (count != 1)}" if count else ""


def _membership(member: Membership) -> str:
    if member.obstacle:
        at = f", manager at {member.address}" if member.address else ""
        return f"  waits to take part in scope {member.scope}{at}"
    place = "in the ring" if member.in_ring else "outside the ring"
    silent = ", which does not respond" if member.unresponsive else ""
    return f"  member of scope {member.scope}, {place}; manager at {member.address}{silent}"


def _journal(journal: JournalStatus | None) -> str:
    return "" if journal is None else f"; journal {journal.failed or journal.path}"


def _neighbour(link: LinkStatus) -> list[str]:
    round_trip = "-" if link.round_trip_ms is None else f"{link.round_trip_ms:.2f} ms"
    return [link.node_id[:8], link.address, round_trip, link.state]


def _topic(topic: TopicStatus) -> list[str]:
    return [
        topic.name,
        topic.settings.delivery,
        topic.role + (", subscriber" if topic.subscriptions else "") + (", source" if topic.source else ""),
        "-" if topic.parent is None else topic.parent.node_id[:8],
        str(len(topic.children)),
        f"{topic.events_per_s:.0f}",
        str(topic.events) if topic.in_tree else "-",
    ]


def _lag(lag: SubscriberLag) -> list[str]:
    """A subscription, and how far it is behind what this peer knows."""
    return [
        lag.topic,
        lag.label,
        str(lag.behind_events),
        f"{lag.behind_s:.1f}",
        f"{lag.stalled_s:.1f} s",
        sized(lag.waiting_bytes),
    ]


def _counted(counters: Counters) -> Iterator[list[str]]:
    """The counters that are not 0."""
    *names, _ = counters.__struct_fields__
    counts = {name: getattr(counters, name) for name in names}
    counts |= {f"refused.{reason}": count for reason, count in counters.refused.items()}
    yield from ([name, str(count)] for name, count in counts.items() if count)
