"""The cost and delay of a tree, relative to IP multicast: merged shortest paths from the same source.

Delays are one-way, over the access link at either end. Links are counted in both directions together.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.network import Flags, Floats, Ints, Peers, Topology, Tree, frozen
from quillcast.evaluation.routing.pastry import Tables, Whole, delay

Counts = npt.NDArray[np.float64]


class Ratios(NamedTuple):
    """The delays of a source's events relative to IP multicast from there.

    `rmd` is the ratio of the maxima, `rad` that of the averages (Scribe, section 6.1), over all members except the
    source. NaN if there are no other members.
    """

    rmd: float
    rad: float
    max_ms: float
    mean_ms: float
    ip_max_ms: float
    ip_mean_ms: float


# --- delay


def delays_ms(tables: Tables, tree: Tree, source: int = -1) -> Floats:
    """The arrival time of an event at each of the tree's nodes, float32 [nodes].

    A `source` that is not the root sends the event directly to the root, whose address it knows (Scribe, section 3.3);
    -1 is the root itself.
    """
    return _tree_delays(tables, tree.nodes, tree.parent, source)


def ratios(tables: Tables, trees: list[Tree], source: int = -1) -> Ratios:
    """Delays of a group's events relative to IP multicast from the same source, from the source to each member.

    -1 as the source is the root of each tree, as in Scribe's evaluation. If several trees carry a share each, averages
    are weighted by the shares, and the maximum is that of all trees.
    """
    counted = 0.0
    total = np.zeros(4)
    for tree in trees:
        receivers, *sums = _sums(tables, tree.nodes, tree.parent, tree.member, source).tolist()
        counted += tree.weight * receivers
        total[::2] += tree.weight * np.array(sums[::2])
        total[1::2] = np.maximum(total[1::2], sums[1::2])
    if counted == 0:
        return Ratios(*[float("nan")] * 6)
    late, latest, ip, ip_latest = total.tolist()
    return Ratios(latest / ip_latest, late / ip, latest, late / counted, ip_latest, ip / counted)


def carried(trees: list[Tree], source: int) -> list[Tree]:
    """The trees that carry the events of a source."""
    return [tree for tree in trees if tree.source in (-1, source)]


@njit(cache=True)
def _tree_delays(tables: Tables, nodes: Ints, parent: Ints, source: Whole) -> Floats:
    late = np.empty(len(nodes), np.float32)
    late[0] = 0 if source < 0 else delay(tables, source, nodes[0])
    for node in range(1, len(nodes)):
        above = parent[node]
        late[node] = late[above] + delay(tables, nodes[above], nodes[node])
    return late


@njit(cache=True)
def _sums(tables: Tables, nodes: Ints, parent: Ints, member: Flags, source: Whole) -> Counts:
    """The number of receivers, sum and maximum of their delays, then both by IP multicast."""
    late = _tree_delays(tables, nodes, parent, source)
    origin = nodes[0] if source < 0 else source
    result = np.zeros(5)
    for node in range(len(nodes)):
        if member[node] and nodes[node] != origin:
            direct = delay(tables, origin, nodes[node])
            result[0] += 1
            result[1] += late[node]
            result[2] = max(result[2], late[node])
            result[3] += direct
            result[4] = max(result[4], direct)
    return result


# --- stress


def add_node_stress(tree: Tree, tables_count: Ints, entries_count: Ints, forwarded: Counts) -> None:
    """Add a tree's load on its peers: non-empty children tables, the entries in them, and messages sent for one event.

    The first two are int32 [peers], `forwarded` is float64 [peers].
    """
    _add_node_stress(tree.nodes, tree.parent, tree.weight, tree.extra, tables_count, entries_count, forwarded)


def add_link_stress(
    topology: Topology,
    peers: Peers,
    tree: Tree,
    messages_core: Counts,
    messages_access: Counts,
    sources: Sequence[int] = (),
) -> None:
    """Add the messages that one event in this tree sends over physical links.

    `messages_core` is for links between routers, float64 [links]; `messages_access` for the link between a peer and its
    place, float64 [peers]. It is the mean event of `sources`, which send to the root; by default one of the root.
    """
    edges = np.stack([tree.nodes[tree.parent[1:]], tree.nodes[1:]], axis=1)
    sent = np.array([(source, tree.nodes[0]) for source in sources if source != tree.nodes[0]], np.int32)
    for pairs, weight in (
        (edges, tree.weight),
        (tree.extra, tree.weight),
        (sent.reshape(-1, 2), tree.weight / max(1, len(sources))),
    ):
        _add_link_stress(*_graph(topology, peers), pairs, weight, messages_core, messages_access)


def ip_link_stress(
    topology: Topology,
    peers: Peers,
    source: int,
    members: Ints,
    messages_core: Counts,
    messages_access: Counts,
    weight: float = 1.0,
) -> None:
    """Add the messages of IP multicast: each link of the merged shortest paths from the source carries an event once.

    Arguments as for `add_link_stress`. The event counts `weight` times.
    """
    reached = np.zeros(topology.routers, np.bool_)
    _add_ip_stress(*_graph(topology, peers), source, members, reached, weight, messages_core, messages_access)


def crossings(tables: Tables, tree: Tree) -> int:
    """The number of copies of an event that cross the border of a domain."""
    domain = tables.domain[tree.nodes]
    inside = int(np.count_nonzero(domain[1:] != domain[tree.parent[1:]]))
    return inside + int(np.count_nonzero(tables.domain[tree.extra[:, 0]] != tables.domain[tree.extra[:, 1]]))


def _graph(topology: Topology, peers: Peers) -> tuple[npt.NDArray[Any], Ints, Ints]:
    """The arrays with the links of paths, in the form that kernels take."""
    return frozen(topology.via, topology.via.dtype), frozen(topology.link_ends, np.int32), frozen(peers.place, np.int32)


@njit(cache=True)
def _add_node_stress(
    nodes: Ints, parent: Ints, weight: float, extra: Ints, tables_count: Ints, entries_count: Ints, forwarded: Counts
) -> None:
    counted = np.zeros(len(nodes), np.bool_)
    for node in range(1, len(nodes)):
        above = parent[node]
        if not counted[above]:
            counted[above] = True
            tables_count[nodes[above]] += 1
        entries_count[nodes[above]] += 1
        forwarded[nodes[above]] += weight
    for at in range(len(extra)):
        forwarded[extra[at, 0]] += weight


@njit(cache=True)
def _add_link_stress(
    via: npt.NDArray[Any],
    link_ends: Ints,
    place: Ints,
    pairs: Ints,
    weight: float,
    messages_core: Counts,
    messages_access: Counts,
) -> None:
    for at in range(len(pairs)):
        messages_access[pairs[at, 0]] += weight
        messages_access[pairs[at, 1]] += weight
        if len(via):
            source, here = place[pairs[at, 0]], place[pairs[at, 1]]
            while here != source:
                link = via[source, here]
                messages_core[link] += weight
                here = link_ends[link, 0] + link_ends[link, 1] - here


@njit(cache=True)
def _add_ip_stress(
    via: npt.NDArray[Any],
    link_ends: Ints,
    place: Ints,
    source: Whole,
    members: Ints,
    reached: Flags,
    weight: float,
    messages_core: Counts,
    messages_access: Counts,
) -> None:
    home = place[source]
    reached[home] = True
    sent = False
    for member in members:
        if member == source:
            continue
        sent = True
        messages_access[member] += weight
        here = place[member]
        while len(via) and not reached[here]:
            reached[here] = True
            link = via[home, here]
            messages_core[link] += weight
            here = link_ends[link, 0] + link_ends[link, 1] - here
    if sent:
        messages_access[source] += weight
