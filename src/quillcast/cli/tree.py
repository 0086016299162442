"""`quillcast tree`: draw a topic's live tree."""

from collections.abc import Iterator

import click
import msgspec

from quillcast.cli.judging import IDLE, no_answer
from quillcast.cli.options import JSON, NETWORK, PEER, TOPIC
from quillcast.cli.rooted import ask_about, called, is_unknown, no_topic
from quillcast.cli.tables import counted
from quillcast.core.boxes import Drawn, drawn
from quillcast.core.status.trees import TreePeer, TreeStatus


@click.command(short_help="Draw a topic's live tree.")
@TOPIC
@PEER
@JSON
@NETWORK
def command(topic: str, peer: str, network: str, as_json: bool) -> None:
    """Draw a topic's live tree: root, forwarders, subscribers. Draws a box around the members of each scope.

    If topics with different root scopes have the name, draws the tree of each.
    """
    for root_scope, tree in ask_about(network, peer, topic, "tree", TreeStatus).items():
        if is_unknown(tree):
            raise no_topic(network, topic, peer)
        if as_json:
            click.echo(msgspec.json.encode(tree).decode())
            continue
        for line in draw(tree, root_scope):
            click.echo(line)


def draw(tree: TreeStatus, root_scope: str = "") -> Iterator[str]:
    """The tree as lines of text."""
    peers = {peer.node_id: peer for peer in tree.peers}
    subscribers = sum(peer.subscriptions > 0 for peer in tree.peers)
    yield f"{called(tree.topic, root_scope)}: {counted(len(peers), 'peer')}, {counted(subscribers, 'subscriber')}"
    if not peers and tree.complete:
        yield IDLE
    if tree.root in peers:
        shown = {node: Drawn(_label(peer), peer.scope, peer.children) for node, peer in peers.items()}
        yield from drawn(shown, tree.root)
    for scope in sorted({peer.scope for peer in tree.peers if peer.changing}):
        yield f"scope {scope} is changing its policy: this shows the channels of both (quillcast scope topics {scope})"
    yield from map(no_answer, tree.unresponsive)
    if not tree.complete:
        yield "some peers did not answer in time: this is only a part of the tree"


def _label(peer: TreePeer) -> str:
    parts = ["root"] if peer.root else []
    parts += [counted(peer.subscriptions, "subscription")] if peer.subscriptions else []
    parts += ["forwards"] if peer.children and not parts else []
    parts += ["source"] if peer.source else []
    behind = max((lag.behind_events for lag in peer.lags), default=0)
    parts += [f"{counted(behind, 'event')} behind"] if behind else []
    return f"{peer.node_id[:8]} {peer.address or ''}  {', '.join(parts)}".rstrip()
