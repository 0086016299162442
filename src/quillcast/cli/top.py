"""`quillcast top`: live rates, queues and neighbours of every peer of this machine that answers."""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import msgspec

from quillcast.cli.activity import watch
from quillcast.cli.options import JSON, NETWORK, Amount, coloured
from quillcast.cli.rooted import called
from quillcast.cli.tables import counted, sized, table
from quillcast.core.status.machines import Activity, PeerActivity, PeerLink, TopicActivity
from quillcast.core.status.topics import SubscriberLag

ROWS_MAX = 30  # of a table for people
LATE_S = 0.5  # a guess: younger missing events do not make a subscriber late
PEERS = ["peer", "address", "up", "cpu", "memory", "neighbours", "topics"]
PEERS += ["events/s", "in/s", "out/s", "waiting", "buffers"]
TOPICS = ["topic", "root", "peers", "subscriptions", "publishers", "events/s", "events", "not stable"]
SUBSCRIBERS = ["topic", "peer", "subscription", "events behind", "seconds behind", "stalled", "waiting"]
LINKS = ["from", "to", "round trip", "state", "waiting", "credit"]


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


def _lines(seen: Activity) -> Iterator[str]:
    yield _head(seen)
    for title, columns, rows in _tables(seen):
        yield from table(title, columns, rows[:ROWS_MAX])
        yield from _more(rows)
    yield from _problems(seen)


def _more(rows: Sequence[object]) -> Iterator[str]:
    if len(rows) > ROWS_MAX:
        yield f"  ... and {len(rows) - ROWS_MAX} more (--json shows all)"


def _head(seen: Activity) -> str:
    events = sum(topic.events_per_s for topic in seen.topics)
    return (
        f"network {seen.network}: {counted(len(seen.peers), 'peer')}, "
        f"{counted(len(seen.topics), 'topic')}, {events:,.0f} events/s, over {seen.seconds:.1f} s"
    )


def _tables(seen: Activity) -> list[tuple[str, list[str], list[list[str]]]]:
    topics = sorted(seen.topics, key=lambda topic: (-topic.events_per_s, topic.name))
    return [
        ("peers", PEERS, [_peer_row(peer) for peer in seen.peers]),
        ("topics", TOPICS, [_topic_row(topic) for topic in topics]),
        ("subscribers that are behind", SUBSCRIBERS, [_lag_row(lag) for lag in seen.subscribers if _is_late(lag)]),
        ("links with problems", LINKS, [_link_row(link) for link in seen.links]),
    ]


def _problems(seen: Activity) -> Iterator[str]:
    yield from (f"{node[:8]} does not answer" for node in seen.unresponsive)
    yield from (f"{peer.node_id[:8]}: {problem}" for peer in seen.peers for problem in peer.problems)


def _peer_row(peer: PeerActivity) -> list[str]:
    suspected = f" ({peer.suspected} suspected)" if peer.suspected else ""
    return [
        peer.node_id[:8],
        peer.address if peer.active else f"{peer.address} (joining)",
        f"{peer.uptime_s:.0f} s",
        f"{100 * peer.cpu_share:.0f} %",
        sized(peer.memory_bytes),
        f"{peer.neighbours}{suspected}",
        str(peer.topics),
        f"{peer.events_per_s:,.0f}",
        sized(peer.in_bytes_per_s),
        sized(peer.out_bytes_per_s),
        sized(peer.waiting_bytes),
        f"{100 * peer.buffers.share:.0f} %",
    ]


def _topic_row(topic: TopicActivity) -> list[str]:
    return [
        called(topic.name, topic.settings.root_scope),
        (topic.root or "?")[:8],
        *map(str, (topic.peers, topic.subscriptions, topic.publishers)),
        f"{topic.events_per_s:,.0f}",
        str(topic.events),
        "-" if topic.unstable is None else str(topic.unstable),
    ]


def _is_late(lag: SubscriberLag) -> bool:
    """Whether events are missing for longer than they usually take to arrive."""
    return lag.behind_events > 0 and lag.behind_s >= LATE_S


def _lag_row(lag: SubscriberLag) -> list[str]:
    return [
        lag.topic,
        lag.node_id[:8],
        lag.label,
        str(lag.behind_events),
        f"{lag.behind_s:.1f}",
        *((f"{lag.stalled_s:.1f} s", sized(lag.waiting_bytes)) if lag.number else ("-", "-")),
    ]


def _link_row(seen: PeerLink) -> list[str]:
    link = seen.link
    return [
        seen.node_id[:8],
        link.node_id[:8],
        "-" if link.round_trip_ms is None else f"{link.round_trip_ms:.2f} ms",
        link.state,
        sized(link.waiting_bytes),
        sized(max(0, link.credit_bytes)),
    ]


def _show(looks: Iterable[Activity]) -> None:
    """Draw each look on the terminal's alternate screen until Ctrl-C."""
    click.echo(_ENTER, nl=False, color=True)
    try:
        for seen in looks:
            click.echo(_picture(seen, shutil.get_terminal_size(), coloured=coloured(1)), nl=False, color=True)
    finally:
        click.echo(_LEAVE, nl=False, color=True)


def _picture(seen: Activity, size: os.terminal_size, *, coloured: bool) -> str:
    """A look drawn over the previous one, cut to the size of the terminal."""
    head, ends = _head(seen), "; Ctrl-C ends"
    lines: list[tuple[str, dict[str, Any]]] = [(head + ends * (len(head + ends) <= size.columns), {"bold": True})]
    for title, columns, rows in _tables(seen):
        if rows:
            kept = _kept(title, columns, rows[:ROWS_MAX], size.columns)
            hidden = len(columns) - len(kept)
            shown_rows = [[row[at] for at in kept] for row in rows[:ROWS_MAX]]
            left = sum(at < _LEFT[title] for at in kept)
            heading, names, *drawn = table(title, [columns[at] for at in kept], shown_rows, left)
            heading += f" ({counted(hidden, 'column')} hidden)" if hidden else ""
            lines += [("", {}), (heading, {"fg": "cyan"}), (names, {"bold": True})]
            lines += [(line, _style(row)) for line, row in zip(drawn, rows, strict=False)]
            lines += [(line, {}) for line in _more(rows)]
    lines += [(problem, {"fg": "red"}) for problem in _problems(seen)]
    shown = [(line[: size.columns], style if coloured else {}) for line, style in lines[: size.lines]]
    return _HOME + "\r\n".join(click.style(line, **style) + _REST_OF_LINE for line, style in shown) + _BELOW


def _kept(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The numbers of the columns that fit into a line. The least informative columns are left out first."""
    widths = [2 + max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    kept = list(range(len(columns)))
    for name in _LESS_TOLD[title]:
        if sum(widths[at] for at in kept) <= width:
            break
        kept.remove(columns.index(name))
    return kept


_LESS_TOLD = {
    "peers": ["topics", "up", "memory", "address", "cpu", "out/s", "in/s", "neighbours", "buffers"],
    "topics": ["root", "events", "publishers", "subscriptions", "peers"],
    "subscribers that are behind": ["waiting", "stalled", "peer", "seconds behind"],
    "links with problems": ["credit", "round trip", "waiting"],
}
"""Columns to leave out on a narrow terminal, in this order."""

_LEFT = {"peers": 2, "topics": 2, "subscribers that are behind": 3, "links with problems": 4}
"""The number of text columns of a table."""

# Control sequences of terminals (ECMA-48, and xterm's alternate screen).
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def _style(row: Sequence[str]) -> dict[str, Any]:
    bad = any("suspected" in cell or "joining" in cell or cell == "down" for cell in row)
    return {"fg": "yellow"} if bad else {}
