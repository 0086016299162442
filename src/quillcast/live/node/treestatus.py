"""A topic's live tree, as structs of `core.status`, from its peers' answers to a survey."""

from collections.abc import Iterable, Mapping

from quillcast.core.envelope import NO_TERM
from quillcast.core.status.base import TopicScope
from quillcast.core.status.trees import TreeChannel, TreePeer, TreeStatus, UnresponsivePeer
from quillcast.live.node.topicstatus import subscriber_lag, term_shown, topic_settings
from quillcast.protocol.scopes.messages import Carrier, ShownChannel
from quillcast.protocol.topics.query_messages import Branch, Reader
from quillcast.protocol.topics.stability.lag import events_together, unacknowledged

Branches = Mapping[bytes, Branch]
"""The answers of peers, by nodeId."""


def is_whole(branches: Branches) -> bool:
    """Whether the root and every named child answered, or there is no peer that could."""
    if any(says_none(branch) for branch in branches.values()):
        return True
    return any(branch.root for branch in branches.values()) and not unanswered(branches)


def tree_status(name: str, branches: Branches, addresses: Mapping[bytes, str]) -> TreeStatus:
    """The tree of a topic; `addresses` are those known here."""
    inside = {node: branch for node, branch in sorted(branches.items()) if not says_none(branch)}
    roots = sorted((node for node, branch in inside.items() if branch.root), key=lambda node: inside[node].term)
    root = inside[roots[-1]] if roots else None
    named = {child.node_id: child.address for branch in branches.values() for child in branch.children}
    addresses = {**named, **addresses}
    known = [branch.descriptor for branch in branches.values() if branch.descriptor is not None]
    return TreeStatus(
        topic=name,
        complete=is_whole(branches),
        root=roots[-1].hex() if roots else None,
        settings=topic_settings(max(known, key=lambda each: each.version)) if known else None,
        events=events_together((branch.events, branch.readmitted) for branch in inside.values()),
        peers=tuple(_peer(name, node, addresses.get(node), branch, root) for node, branch in inside.items()),
        unresponsive=tuple(_unresponsive(node, addresses.get(node), inside, root) for node in unheard(inside)),
    )


def says_none(branch: Branch) -> bool:
    """Whether the peer closest to the topic says that it has no tree."""
    return branch.term == NO_TERM and not branch.parent and not branch.root


def unanswered(branches: Branches) -> set[bytes]:
    """Peers that others name as their parent or child, but that did not answer."""
    children = {child.node_id for branch in branches.values() for child in branch.children}
    parents = {branch.parent for branch in branches.values() if branch.parent}
    return (children | parents) - branches.keys()


def unheard(branches: Branches) -> list[bytes]:
    """Peers that should be in the tree and did not answer: named as parent or child, or lost with a lease."""
    lost = {lease.node for branch in branches.values() for lease in branch.leases if lease.lost}
    return sorted(unanswered(branches) | (lost - branches.keys()))


def _peer(topic: str, node: bytes, address: str | None, branch: Branch, root: Branch | None) -> TreePeer:
    return TreePeer(
        node_id=node.hex(),
        address=address,
        root=branch.root,
        parent=branch.parent.hex() or None,
        children=tuple(child.node_id.hex() for child in branch.children),
        subscriptions=branch.subscribers,
        term=term_shown(branch.term),
        frontier=branch.frontier,
        lags=tuple(subscriber_lag(topic, node, each, _end_for(branch, each, root)) for each in branch.readers),
        streams=branch.streams,
        source=branch.source,
        scope=branch.scope,
        changing=branch.changing,
        scopes=shown_scopes(branch.carriers),
        channels=tuple(map(_channel, branch.channels)),
    )


def shown_scopes(carriers: Iterable[Carrier]) -> tuple[TopicScope, ...]:
    """The scopes that carry a topic at a peer."""
    return tuple(TopicScope(each.scope, each.policy) for each in carriers)


def _channel(channel: ShownChannel) -> TreeChannel:
    return TreeChannel(channel.to.node_id.hex(), channel.to.address, channel.label, channel.filter)


def _end_for(branch: Branch, reader: Reader, root: Branch | None) -> int:
    """The position that a peer's subscription must reach: the root's frontier; if in an earlier term, all of that."""
    if root is None or root.descriptor is None or not root.descriptor.settings.reliable:
        return 0
    return root.frontier if branch.term == root.term else max(branch.frontier, reader.taken) + root.frontier


def _unresponsive(node: bytes, address: str | None, branches: Branches, root: Branch | None) -> UnresponsivePeer:
    """A peer that did not answer, from the last peer that named it."""
    said = [lease for branch in branches.values() for lease in branch.leases if lease.node == node]
    lease = max(said, key=lambda each: (each.term, each.acknowledged), default=None)
    return UnresponsivePeer(
        node_id=node.hex(),
        address=address,
        lost=lease is not None and lease.lost,
        behind_events=None if lease is None or root is None else unacknowledged(lease, root.term, root.frontier),
        behind_s=0.0 if lease is None else round(lease.behind_s, 3),
    )
