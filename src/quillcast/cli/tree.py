"""`quillcast tree`: draw a topic's live tree."""

from collections.abc import Iterator, Mapping

import click
import msgspec

from quillcast.cli.asking import ask_peer
from quillcast.cli.judging import IDLE
from quillcast.cli.options import JSON, NETWORK, PEER, TOPIC
from quillcast.cli.tables import counted
from quillcast.core.errors import UnknownTopic
from quillcast.core.status import TreePeer, TreeStatus


@click.command(short_help="Draw a topic's live tree.")
@TOPIC
@PEER
@JSON
@NETWORK
def command(topic: str, peer: str, network: str, as_json: bool) -> None:
    """Draw a topic's live tree: root, forwarders, subscribers. The members of a scope are in a box."""
    tree = ask_peer(network, peer, "tree", TreeStatus, topic=topic)
    if tree.complete and not tree.peers and tree.settings is None:
        raise UnknownTopic(f"there is no topic {topic!r}; `quillcast topic list` shows those of this machine")
    if as_json:
        click.echo(msgspec.json.encode(tree).decode())
        return
    for line in draw(tree):
        click.echo(line)


def draw(tree: TreeStatus) -> Iterator[str]:
    """The tree as lines of text."""
    peers = {peer.node_id: peer for peer in tree.peers}
    subscribers = sum(peer.subscriptions > 0 for peer in tree.peers)
    yield f"{tree.topic}: {counted(len(peers), 'peer')}, {counted(subscribers, 'subscriber')}"
    if not peers and tree.complete:
        yield IDLE
    if tree.root in peers:
        yield from _drawn(peers, tree.root)
    if not tree.complete:
        yield "some peers did not answer in time: this is only a part of the tree"


def _drawn(peers: Mapping[str, TreePeer], node: str) -> list[str]:
    """A peer and all below it. The part that is in a scope is in a box; what hangs below that elsewhere follows it."""
    scope, elsewhere = _scope(peers, node), list[tuple[str, str]]()
    lines = _inside(peers, node, scope, elsewhere)
    if not scope:
        return lines
    width = max(len(f" scope {scope} ") + 1, *(len(line) + 2 for line in lines))
    box = [f"┌─ scope {scope} ".ljust(width + 1, "─") + "┐", *(f"│ {line}".ljust(width + 1) + "│" for line in lines)]
    box.append("└" + "─" * width + "┘")
    for parent, child in elsewhere:
        outside = [f"from {parent[:8]}", *_hung(_drawn(peers, child), last=True)]
        box += _hung(outside, last=(parent, child) == elsewhere[-1])
    return box


def _inside(peers: Mapping[str, TreePeer], node: str, scope: str, elsewhere: list[tuple[str, str]]) -> list[str]:
    """A peer and what is below it in its scope; `elsewhere` takes other children of the scope's members."""
    if node not in peers:
        return [f"{node[:8]} did not answer"]
    children = peers[node].children
    here = [child for child in children if not scope or child not in peers or _scope(peers, child) == scope]
    elsewhere += [(node, child) for child in children if child not in here]
    lines = [_label(peers[node])]
    for child in here:
        same = _scope(peers, child) == scope or child not in peers
        below = _inside(peers, child, scope, elsewhere) if same else _drawn(peers, child)
        lines += _hung(below, last=child == here[-1])
    return lines


def _hung(lines: list[str], *, last: bool) -> Iterator[str]:
    """Lines below a guide."""
    first, *others = lines
    yield ("└── " if last else "├── ") + first
    yield from (("    " if last else "│   ") + line for line in others)


def _scope(peers: Mapping[str, TreePeer], node: str) -> str:
    return peers[node].scope if node in peers else ""


def _label(peer: TreePeer) -> str:
    parts = ["root"] if peer.root else []
    parts += [counted(peer.subscriptions, "subscription")] if peer.subscriptions else []
    parts += ["forwards"] if peer.children and not parts else []
    parts += ["source"] if peer.source else []
    behind = max((lag.behind_events for lag in peer.lags), default=0)
    parts += [f"{counted(behind, 'event')} behind"] if behind else []
    return f"{peer.node_id[:8]} {peer.address or ''}  {', '.join(parts)}".rstrip()
