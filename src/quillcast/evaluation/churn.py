"""A fraction of all peers dies at once: the peers that are cut off, and the cost until all have a parent again.

A peer that lost its parent routes a Join towards the root, over the survivors' repaired routing tables. The first peer
on the path that is still connected to the root accepts it, and the peers before that one become forwarders (Scribe,
section 3.3.2). The subtree moves with the peer. If the root has died, the survivor nearest to the key replaces it. The
time to notice a death depends on heartbeats and is not counted.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.chance import fraction, mix
from quillcast.evaluation.network import Flags, Ints, Peers, Topology, Tree, frozen
from quillcast.evaluation.routing import preparing
from quillcast.evaluation.routing.pastry import Tables, Whole, Word, delay, next_hop, root_of

_DEATHS = 31  # purpose of the random draw
_FORWARDS = -2  # in `where`: a peer that was not in the tree and is now a forwarder


class Survivors(NamedTuple):
    """The peers that survive: their routing tables, and the new number of each former peer.

    `renumbered` is int32 [peers], with -1 for the dead.
    """

    tables: Tables
    renumbered: Ints


class Repair(NamedTuple):
    """The effect on one tree: members that died, members that lost the root, and Joins with their answers."""

    killed: int
    cut_off: int
    orphans: int
    messages: int
    max_ms: float
    mean_ms: float


def survivors(
    topology: Topology, peers: Peers, share: float, seed: int, digit_bits: int, leaf_set_size: int, quality: str
) -> tuple[Peers, Survivors]:
    """Find the survivors if each peer dies with probability `share`. Other arguments as for `preparing.tables`."""
    lives = _living(len(peers), share, seed)
    kept = Peers(ids=peers.ids[lives], place=peers.place[lives], domain=peers.domain[lives])
    renumbered = np.where(lives, np.cumsum(lives) - 1, -1).astype(np.int32)
    return kept, Survivors(preparing.tables(topology, kept, digit_bits, leaf_set_size, quality, seed), renumbered)


def save(folder: Path, kept: Peers, made: Survivors) -> None:
    """Write the survivors as arrays that all processes of a machine can map."""
    kept.save(folder / "peers")
    preparing.save(folder / "routing", made.tables)
    np.save(folder / "renumbered.npy", made.renumbered)


def load(folder: Path, topology: Topology) -> Survivors:
    """Open what `save` wrote."""
    kept = Peers.open(folder / "peers")
    renumbered = np.load(folder / "renumbered.npy", mmap_mode="r")
    return Survivors(preparing.load(folder / "routing", topology, kept), frozen(renumbered, np.int32))


def repair(alive: Survivors, tree: Tree, key: int, where: Ints) -> Repair:
    """Repair one group's tree as it was before the deaths.

    `where` is scratch space: an int32 for each survivor, all -1 before and after.
    """
    counts, times = _repair(alive.tables, alive.renumbered, tree.nodes, tree.parent, tree.member, np.uint64(key), where)
    killed, cut_off, orphans, messages = counts.tolist()
    return Repair(killed, cut_off, orphans, messages, float(times[0]), float(times[1] / orphans) if orphans else 0.0)


@njit(cache=True)
def _living(count: int, share: float, seed: int) -> Flags:
    lives = np.empty(count, np.bool_)
    for peer in range(count):
        lives[peer] = fraction(mix(seed, _DEATHS, peer)) >= share
    return lives


@njit(cache=True)
def _repair(
    tables: Tables, renumbered: Ints, nodes: Ints, parent: Ints, member: Flags, key: Word, where: Ints
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The counts of `Repair`; the longest and the total times."""
    counts, times = np.zeros(4, np.int64), np.zeros(2)
    head = _heads(renumbered, nodes, parent, where)
    for node in range(len(nodes)):
        if member[node]:
            counts[0] += head[node] < 0
            counts[1] += head[node] > 0 or (head[node] == 0 and renumbered[nodes[0]] < 0)
    joined = np.zeros(len(nodes), np.bool_)
    old_root = renumbered[nodes[0]]
    joined[0] = old_root >= 0
    root = old_root if old_root >= 0 else root_of(tables, key)
    target = tables.ids[root] if old_root >= 0 else key
    forwarders = [root]
    if where[root] < 0:
        where[root] = _FORWARDS
    for node in range(len(nodes)):
        if head[node] == node and not joined[node]:
            messages, ms = _rejoin(tables, renumbered[nodes[node]], root, target, head, joined, where, forwarders)
            joined[node] = True
            counts[2] += 1
            counts[3] += messages
            times[0] = max(times[0], ms)
            times[1] += ms
    for node in range(len(nodes)):
        if head[node] >= 0:
            where[renumbered[nodes[node]]] = -1
    for peer in forwarders:
        where[peer] = -1
    return counts, times


@njit(cache=True)
def _heads(renumbered: Ints, nodes: Ints, parent: Ints, where: Ints) -> Ints:
    """Each node's topmost ancestor with a living path between, -1 for the dead; `where` holds survivors' places."""
    head = np.full(len(nodes), -1, np.int32)
    for node in range(len(nodes)):
        peer = renumbered[nodes[node]]
        if peer >= 0:
            where[peer] = node
            above = parent[node]
            head[node] = head[above] if above >= 0 and head[above] >= 0 else node
    return head


@njit(cache=True)
def _rejoin(
    tables: Tables,
    peer: Whole,
    root: Whole,
    target: Word,
    head: Ints,
    joined: Flags,
    where: Ints,
    forwarders: list[int],
) -> tuple[int, float]:
    """Route an orphan's Join to the first peer connected to the root; returns the messages and their travel time."""
    messages, ms, at = 0, 0.0, peer
    while at != root:
        hop = next_hop(tables, at, target)
        if hop < 0:
            raise AssertionError("a route ended before the root: leaf sets are wrong")
        ms += delay(tables, at, hop)
        messages += 1
        at = hop
        there = where[at]
        if there == _FORWARDS or (there >= 0 and joined[head[there]]):
            break
        if there < 0:
            where[at] = _FORWARDS
            forwarders.append(at)
    return (messages + 1, ms + delay(tables, at, peer)) if messages else (0, 0.0)
