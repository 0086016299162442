"""What peers hold of a topic's events, read from their buffers: the truth about who could still serve them."""

from collections.abc import Iterator

from quillcast.core.bundle import Block, Bundle
from quillcast.core.ranges import RangeSet
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.state.tree import Tree


def bundles(tree: Tree) -> Iterator[Bundle]:
    """What a peer keeps of a topic for others: the log of the current term, and past terms."""
    yield from tree.flow.log.bundles()
    for past in tree.flow.past.values():
        yield from past.bundles


def held(peer: Peer, topic: bytes, publisher: bytes) -> RangeSet:
    """The sequences of a publisher that a peer holds, as part of the tree or as the publisher's own peer."""
    return RangeSet((block.first, block.last) for block in _blocks(peer, topic) if block.publisher == publisher)


def positions(peer: Peer, topic: bytes, term: object) -> RangeSet:
    """The positions of a term whose events a peer holds."""
    tree = peer.topics.trees.get(topic)
    kept = bundles(tree) if tree is not None else ()
    return RangeSet((each.envelope.first, each.last) for each in kept if each.envelope.term == term)


def _blocks(peer: Peer, topic: bytes) -> Iterator[Block]:
    tree = peer.topics.trees.get(topic)
    if tree is not None:
        for bundle in bundles(tree):
            yield from bundle.blocks
        if tree.root is not None:
            yield from tree.root.waiting
    for publisher in peer.topics.publishing.publishers.get(topic, {}).values():
        yield from publisher.retained


def kept_bytes(peer: Peer) -> tuple[int, int]:
    """Bytes of all that a peer keeps for others, for local subscribers or to admit it, and of the largest bundle."""
    kept: dict[int, int] = {}
    largest = 0
    for bundle in _kept(peer):
        largest = max(largest, bundle.size)
        kept.update((id(block), block.size) for block in bundle.blocks)
    kept.update((id(block), block.size) for block in peer.early_blocks())
    return sum(kept.values()), largest


def _kept(peer: Peer) -> Iterator[Bundle]:
    for tree in peer.topics.trees.values():
        yield from bundles(tree)
        for edge in tree.subscriptions:
            yield from edge.channel.backlog
            for term_cursor in edge.term_cursors():
                yield from term_cursor.waiting.values()
