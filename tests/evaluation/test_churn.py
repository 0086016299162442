"""Deaths and repairs, against a slow and obvious twin."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from quillcast.evaluation import churn, policies, workload
from quillcast.evaluation.peers import attach
from quillcast.evaluation.routing import pastry, preparing
from quillcast.evaluation.topology import load

PEERS, SEED = 400, 3


def repaired(alive: churn.Survivors, tree: Any, key: int) -> tuple[int, int, int, int, float]:
    """Killed and cut-off members, orphans, messages, the longest time."""
    number = {int(peer): int(alive.renumbered[peer]) for peer in tree.nodes}
    peers = tree.nodes.tolist()
    parent = {peers[at]: peers[above] if above >= 0 else None for at, above in enumerate(tree.parent.tolist())}

    def hears(peer: int) -> bool:
        while number[peer] >= 0:
            if parent[peer] is None:
                return True
            peer = parent[peer]
        return False

    def below(peer: int) -> set[int]:
        found = {peer}
        for other in peers:
            if parent[other] in found and number[other] >= 0:
                found.add(other)
        return found

    members = [peer for peer, subscribed in zip(peers, tree.member.tolist(), strict=True) if subscribed]
    killed = sum(number[peer] < 0 for peer in members)
    cut_off = sum(number[peer] >= 0 and not hears(peer) for peer in members)
    root_lives = number[peers[0]] >= 0
    target = alive.tables.ids[number[peers[0]]] if root_lives else np.uint64(key)
    hearing = {number[peer] for peer in peers if hears(peer)} | {int(pastry.root_of(alive.tables, target))}
    orphans = [
        peer
        for peer in peers
        if number[peer] >= 0 and (parent[peer] is None or number[parent[peer]] < 0) and not hears(peer)
    ]
    in_tree = {number[peer] for peer in peers}
    messages, longest = 0, 0.0
    for orphan in orphans:
        way = pastry.route(alive.tables, number[orphan], target).tolist()
        end = next(at for at, peer in enumerate(way) if peer in hearing and (at or len(way) == 1))
        ms = sum(float(pastry.delay(alive.tables, a, b)) for a, b in pairwise(way[: end + 1]))
        longest = max(longest, ms + float(pastry.delay(alive.tables, way[end], way[0])))
        messages += end + (end > 0)
        hearing |= {peer for peer in way[:end] if peer not in in_tree} | {number[peer] for peer in below(orphan)}
    return killed, cut_off, len(orphans), messages, longest


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("name", ["scribe", "creator_rooted", "k_ary(4)"])
def test_repairs_agree_with_the_twin(name: str, share: float) -> None:
    topology = load("transit-stub(2,2,2,3)", SEED)
    peers = attach(topology, PEERS, SEED)
    tables = preparing.tables(topology, peers)
    _, alive = churn.survivors(topology, peers, share, SEED, 4, 16, "ideal")
    groups = workload.power_law(PEERS, 30)
    where = np.full(len(alive.tables.ids), -1, np.int32)
    roots_died = 0
    for number in range(len(groups)):
        group = workload.group(groups, number, peers, SEED)
        (tree,) = policies.parse(name).trees(tables, group)
        told = churn.repair(alive, tree, int(group.key), where)
        killed, cut_off, orphans, messages, longest = repaired(alive, tree, int(group.key))
        assert told[:4] == (killed, cut_off, orphans, messages)
        assert told.max_ms == pytest.approx(longest, rel=1e-5)
        assert (where == -1).all()
        roots_died += int(alive.renumbered[tree.nodes[0]] < 0)
    assert roots_died


def test_the_share_of_the_dead_is_as_asked() -> None:
    topology = load("transit-stub(2,2,2,3)", SEED)
    kept, alive = churn.survivors(topology, attach(topology, 20_000, SEED), 0.25, SEED, 4, 16, "ideal")
    assert len(kept) == pytest.approx(15_000, rel=0.02)
    assert alive.renumbered[alive.renumbered >= 0].tolist() == list(range(len(kept)))
