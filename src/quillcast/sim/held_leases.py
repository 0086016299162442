"""A judge of leases: that of a lost child ends soon after the child reports elsewhere in the tree.

A peer that loses a child holds its lease, which holds back stability, because the child may need later events. It
drops the lease early when it learns that the child has another parent (docs/decisions/leadership-transfer.md, *A child
that was lost*).
"""

from collections.abc import Iterator, Mapping

from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.memory.retention import reached, total
from quillcast.protocol.topics.state.link_reports import Move
from quillcast.protocol.topics.state.tree import Tree
from quillcast.sim.leases import JOINED_S
from quillcast.sim.observed import Observed
from quillcast.sim.world import Broken

Key = tuple[int, bytes, bytes]
"""A machine, a topic, and the child whose lease the machine's peer holds in it."""


class HeldLeases:
    """Since when peers have continuously held the leases of children that report elsewhere."""

    def __init__(self, run: Observed) -> None:
        self.run = run
        self.since: dict[Key, float] = {}

    def check(self) -> None:
        """Raise `Broken` if a child has reported elsewhere for longer than trees take to merge."""
        now, peers = self.run.world.now, {machine.number: peer for machine, peer in self.run.running()}
        numbers: dict[bytes, int] = {peer.host.me: number for number, peer in peers.items()}
        self.since = {key: self.since.get(key, now) for key in self._held(peers, numbers)}
        for (machine, topic, node), since in self.since.items():
            if now - since > JOINED_S:
                name = peers[machine].topics.trees[topic].descriptor.name
                raise Broken(
                    f"leases: peer {machine} holds back topic {name} for its former child {numbers[node]}, which has "
                    f"been in another place of the same tree since {since:.3f} s",
                    f"topic:{name}",
                )

    def _held(self, peers: dict[int, Peer], numbers: dict[bytes, int]) -> Iterator[Key]:
        for machine, peer in peers.items():
            for topic, tree in peer.topics.trees.items():
                for node, lease in tree.leases.orphaned.items():
                    holds = node in lease.awaited and reached(tree, lease.needed_from) < total(tree)
                    if holds and node in numbers and _speaks(peers[numbers[node]], topic, lease.move):
                        trees = {number: each.topics.trees.get(topic) for number, each in peers.items()}
                        if self._meet(_way_up(machine, trees, numbers), _way_up(numbers[node], trees, numbers)):
                            yield machine, topic, node

    def _meet(self, way: list[int], other: list[int]) -> bool:
        """Whether both paths lead to one root, and all machines on them can reach each other."""
        here = way[0]
        ends = way[-1] == other[-1] and here not in other
        return ends and all(self.run.reach.now_with(here, each) for each in (*way, *other))


def _speaks(peer: Peer, topic: bytes, former: Move | None) -> bool:
    """Whether a child has another parent, and still reports for all that were below it."""
    tree = peer.topics.trees.get(topic)
    if tree is None or tree.parent is None or former is None:
        return False
    return peer.topics.membership.is_of_this_life(topic, former.number)


def _way_up(machine: int, trees: Mapping[int, Tree | None], numbers: dict[bytes, int]) -> list[int]:
    """The machines from one up to the root of its tree, or as far as the path leads."""
    way = [machine]
    while (parent := _parent(trees[way[-1]])) in numbers and numbers[parent] not in way:
        way.append(numbers[parent])
    return way


def _parent(tree: Tree | None) -> bytes:
    return tree.parent.node_id if tree is not None and tree.parent is not None else b""
