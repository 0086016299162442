"""`quillcast status`: show what a running peer is, knows and does."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from quillcast.cli.asking import ask_peer, peers_here
from quillcast.cli.options import JSON, NETWORK, PEER
from quillcast.cli.tables import sized, table


@click.command(short_help="Show what a running peer is, knows and does.")
@PEER
@JSON
@NETWORK
def command(peer: str, network: str, as_json: bool) -> None:
    """Show a running peer of this machine: its neighbours, leaf set, topics, rates, and how far its subscriptions are.

    What a subscription lacks is counted up to what this peer knows of the topic. `check topic` queries the root.
    """
    status = ask_peer(network, peer, "status")
    if as_json:
        click.echo(msgspec.json.encode(status).decode())
        return
    for line in _lines(status, len(peers_here(network))):
        click.echo(line)


def _lines(status: Mapping[str, Any], peers: int) -> Iterator[str]:
    state = "joined" if status["active"] else "joining"
    yield f"peer {status['node_id'][:8]} at {status['address']}, network {status['network']}: {state}"
    yield f"  pid {status['pid']}, up {status['uptime_s']:.0f} s; {peers} of this network on this machine"
    used, limit = (status["buffers"][name] / 2**20 for name in ("used_bytes", "limit_bytes"))
    yield f"  buffers {used:.1f} of {limit:.0f} MiB" + _journal(status["journal"])
    yield from table("leaf set", ["peer", "address"], [[short(one), one["address"]] for one in status["leaf_set"]])
    yield from table("neighbours", ["peer", "address", "round trip", "link"], map(_neighbour, status["neighbours"]))
    yield from table(
        "topics",
        ["topic", "delivery", "part", "parent", "children", "events/s", "events"],
        map(_topic, status["topics"]),
    )
    readers = [(topic["name"], reader) for topic in status["topics"] for reader in topic.get("readers", ())]
    yield from table(
        "subscriptions",
        ["topic", "name", "events behind", "seconds behind", "stalled", "waiting"],
        (_reader(name, reader) for name, reader in readers),
    )
    counted = {name: count for name, count in status["counters"].items() if count}
    yield from table("counters", ["what", "count"], [[name, str(count)] for name, count in counted.items()])
    yield from (f"  problem: {problem}" for problem in status["problems"])


def _journal(journal: Mapping[str, Any] | None) -> str:
    return "" if journal is None else f"; journal {journal['failed'] or journal['path']}"


def short(contact: Mapping[str, Any] | None) -> str:
    """A peer as shown to people."""
    return "-" if contact is None else str(contact["node_id"])[:8]


def _neighbour(shown: Mapping[str, Any]) -> list[str]:
    round_trip = shown["round_trip_ms"]
    link = "suspected" if shown["suspected"] else "up" if shown["connected"] else "down"
    return [short(shown), shown["address"], "-" if round_trip is None else f"{round_trip:.2f} ms", link]


def _topic(shown: Mapping[str, Any]) -> list[str]:
    part = shown["role"] + (", subscriber" if shown.get("subscriptions") else "")
    return [
        shown["name"],
        shown["delivery"],
        part,
        short(shown.get("parent")),
        str(len(shown.get("children", ()))),
        f"{shown['events_per_s']:.0f}",
        str(shown.get("events", "-")),
    ]


def _reader(topic: str, shown: Mapping[str, Any]) -> list[str]:
    """A subscription, and what it lacks of what this peer knows."""
    return [
        topic,
        shown["name"] or f"#{shown['number']}",
        str(shown["behind_events"]),
        f"{shown['behind_s']:.1f}",
        f"{shown['stalled_s']:.1f} s",
        sized(shown["waiting_bytes"]),
    ]
