"""`quillcast tree`: draw a topic's live tree."""

from collections.abc import Iterator, Mapping

import click
import msgspec

from quillcast.cli.judging import IDLE, no_answer
from quillcast.cli.options import JSON, NETWORK, PEER, TOPIC
from quillcast.cli.rooted import ask_about, called, is_unknown, no_topic
from quillcast.cli.tables import counted
from quillcast.core.boxes import Drawn, drawn
from quillcast.core.status.traces import TraceHop
from quillcast.core.status.trees import TreeChannel, TreePeer, TreeStatus
from quillcast.live.discovery.questions import TreeQuestion


@click.command(short_help="Draw a topic's live tree.")
@TOPIC
@PEER
@JSON
@NETWORK
def command(topic: str, peer: str, network: str, as_json: bool) -> None:
    """Draw a topic's live tree: root, forwarders, subscribers.

    Draws a box around the members of each scope, with its policy, and names the channels by which bundles go.

    If topics with different root scopes have the name, draws the tree of each.
    """
    for root_scope, tree in ask_about(network, peer, TreeQuestion(topic), TreeStatus).items():
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
        yield from drawn({node: _drawn(peer, peers) for node, peer in peers.items()}, tree.root)
    for scope in sorted({peer.scope for peer in tree.peers if peer.changing}):
        yield f"scope {scope} is changing its policy: this shows the channels of both (quillcast scope topics {scope})"
    yield from map(no_answer, tree.unresponsive)
    if not tree.complete:
        yield "some peers did not answer in time: this is only a part of the tree"


def _drawn(peer: TreePeer, peers: Mapping[str, TreePeer]) -> Drawn:
    beside = (each for each in peer.channels if each.node_id not in peer.children)
    notes = tuple(f"also to {_end(each)} over channel {_channel(each)}" for each in beside)
    return Drawn(_label(peer, peers.get(peer.parent or "")), boxes(peer), peer.children, notes)


def boxes(peer: TreePeer | TraceHop) -> tuple[str, ...]:
    """The labels of the boxes around a peer, the outermost first."""
    if peer.scopes:
        return tuple(f"{each.name} ({each.policy})" for each in reversed(peer.scopes))
    return (peer.scope,) if peer.scope else ()


def _end(channel: TreeChannel) -> str:
    """Where a channel leads."""
    group, *pace = channel.address.split("?")
    return f"all members at once at {group}" if pace else channel.node_id[:8]


def _channel(channel: TreeChannel) -> str:
    return channel.label + (f" ({channel.filter})" if channel.filter else "")


def _label(peer: TreePeer, parent: TreePeer | None) -> str:
    over = parent.channels if parent is not None else ()
    parts = [f"channel {_channel(each)}" for each in over if each.node_id == peer.node_id]
    parts += ["root"] if peer.root else []
    parts += [counted(peer.subscriptions, "subscription")] if peer.subscriptions else []
    parts += ["forwards"] if peer.children and not (peer.root or peer.subscriptions) else []
    parts += ["source"] if peer.source else []
    behind = max((lag.behind_events for lag in peer.lags), default=0)
    parts += [f"{counted(behind, 'event')} behind"] if behind else []
    return f"{peer.node_id[:8]} {peer.address or ''}  {', '.join(parts)}".rstrip()
