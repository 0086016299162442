"""What a root tells the next one of its term (docs/delivery.md, *Roots that move*)."""

import msgspec

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.messages import NEWCOMERS_MAX
from quillcast.protocol.topics.root_messages import FOLLOWED_MAX, AnotherFollows, TransferLeadership
from quillcast.protocol.topics.state.link_reports import MoveCount
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.trees import Trees

FRONTIERS_MAX = 4096  # publishers named in a transfer, the latest; a guess: 100 kB. Events of others arrive again


class LastWords:
    """Says what the next root must know of a term that ends here."""

    __slots__ = ("host", "known", "moves", "source_streams", "trees")

    def __init__(
        self, host: Host, known: KnownTopics, trees: Trees, moves: MoveCount, source_streams: SourceStreams
    ) -> None:  # fmt: skip
        self.host, self.known, self.trees = host, known, trees
        self.moves, self.source_streams = moves, source_streams

    def of(self, tree: Tree, root: Root) -> TransferLeadership:
        """Return what a root knows."""
        now, past = self.host.now(), tree.flow.past
        hold_until = max(root.awaited_until if root.awaited else root.hold_until, root.paused_until)
        leases = dict(root.awaited)
        if self.follows(tree, root):  # it moves too, and speaks for the peers below it
            leases[self.host.me] = self.moves.of(tree.topic)
        frontiers = tuple(root.stable_frontiers().items())[-FRONTIERS_MAX:]
        ends = tree.leases.ends[-NEWCOMERS_MAX:]
        return TransferLeadership(
            tree.descriptor, root.term, root.index, root.stable, self.known.latest(tree), max(0.0, hold_until - now),
            tuple(leases), frontiers, tuple([move.peer for move in ends]),
            past.aged(past.ends(), now), past.aged(past.forgotten_lately(), now),
            self.source_streams.ended(tree),
            self.known.outliving(tree.topic), root.followed, tuple(leases.values()), tree.flow.there_for(now),
            tuple([move.number for move in ends]),
        )  # fmt: skip

    def follows(self, tree: Tree, root: Root) -> bool:
        """Whether this peer will be a child of the next root, or, if it leaves, say farewell to it."""
        if self.trees.leaving:
            return bool(tree.leases.children or tree.leases.orphaned)
        return tree.needed or root.index > 0


def numbered(message: TransferLeadership | AnotherFollows) -> dict[bytes, int]:
    """Return the peers to wait for that a message names, with the known numbers of their last moves."""
    return dict(zip(message.leases, (*message.lives, *[0] * len(message.leases)), strict=False))


def without(to: Contact, message: TransferLeadership) -> TransferLeadership:
    """Return the message for the next root, which does not wait for itself."""
    leases = numbered(message)
    leases.pop(to.node_id, None)
    return msgspec.structs.replace(message, leases=tuple(leases), lives=tuple(leases.values()))


def followed_by(message: TransferLeadership, term: Term) -> TransferLeadership:
    """Return what the root of a later term without events would say."""
    last = (message.term, message.index, message.there_ms)
    past = (*message.past[1 - 2 * ENDS_TOLD_MAX :], last) if message.index else message.past
    followed = (*message.followed, message.term)[-FOLLOWED_MAX:]
    return msgspec.structs.replace(message, term=term, index=0, stable=0, past=past, followed=followed, there_ms=0)
