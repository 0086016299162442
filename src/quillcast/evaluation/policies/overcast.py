"""Overcast: a tree for bandwidth.

J. Jannotti, D. Gifford, K. Johnson, M. F. Kaashoek and J. O'Toole, "Overcast: Reliable multicasting with an overlay
network", OSDI 2000: section 4.2 (the tree protocol), 4.3 (the up/down protocol), 5.1 (the bandwidths). What is left
out, and a published figure: docs/compared/overcast.md.

A node that joins starts at the root. It moves down below a child as long as the bandwidth back to the root stays about
as high (within 10 %); of several such children it takes the closest. Later it checks again: it moves below a sibling
that is about as good as its parent, or up to the grandparent if that is better.

Bandwidth is that of access links. All copies that a node sends share the node's link, and all copies that leave a
domain share the domain's link, as do all that enter it. The bandwidth back to the root is the least share on the path.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from quillcast.evaluation.network import Floats, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import in_random_order, tree_of_members
from quillcast.evaluation.routing.pastry import Ms, Tables, Whole, delay, inner
from quillcast.evaluation.workload import creator

NODE_MBIT, TRANSIT_MBIT, STUB_MBIT = 100.0, 45.0, 1.5  # section 5.1: Fast Ethernet in a stub, T3 in transit, T1 between
SLACK = 0.9  # section 4.2: bandwidths within 10 % of each other count as equal
ROUNDS = 10  # a guess: how often each node checks again; with 3 they get a twentieth less bandwidth

Mbit = Ms


class Overcast(PolicyKernel):
    """Each member as far below the creator, which is the source, as its bandwidth allows; no limit on children."""

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree."""
        nodes = in_random_order(group, creator(group))
        parent, joins = _build(tables, nodes, *_domains(tables, nodes), ROUNDS)
        return [tree_of_members(nodes, parent, state=_descendants(parent), joins=joins)]


def _domains(tables: Tables, nodes: Ints) -> tuple[Ints, Floats]:
    """The domain of each node, numbered from 0, and the bandwidth of each domain's link to the others.

    A domain with several exits is a transit domain, unless no domain is known to have a single one.
    """
    _, some, domain = np.unique(tables.domain[nodes], return_index=True, return_inverse=True)
    several = tables.region >= tables.routers
    transit = several[tables.place[nodes[some]]] & ~several.all()
    return domain.astype(np.int32), np.where(transit, TRANSIT_MBIT, STUB_MBIT).astype(np.float32)


class Links(NamedTuple):
    """The tree under construction, and how many copies share each link.

    Args:
        parent: of each node, int32 [nodes]; -1 for the root.
        front: the first child, int32 [nodes]; -1 for none.
        after: the next child of the same parent, int32 [nodes]; -1 for the last.
        before: the previous child, int32 [nodes]; -1 for the first.
        domain: of each node, int32 [nodes].
        children: their number, int32 [nodes].
        leaving: copies that leave each domain, int32 [nodes].
        entering: copies that enter each domain, int32 [nodes].
    """

    parent: Ints
    front: Ints
    after: Ints
    before: Ints
    domain: Ints
    mbit: Floats
    children: Ints
    leaving: Ints
    entering: Ints


@njit(cache=True)
def _build(tables: Tables, nodes: Ints, domain: Ints, mbit: Floats, rounds: Whole) -> tuple[Ints, Ints]:
    """Nodes join below node 0 in order; then each checks again, in the same order, for this many rounds.

    Returns each node's parent and the messages that it handled, int32 [nodes]: one for each probe that measured it, a
    birth certificate at every ancestor of a new node, and messages at the old and new parents of a node that moves.
    """
    count = len(nodes)
    handled, none = np.zeros(count, np.int32), np.full((4, count), -1, np.int32)
    shared = np.zeros((3, count), np.int32)
    links = Links(none[0], none[1], none[2], none[3], domain, mbit, shared[0], shared[1], shared[2])
    for node in range(1, count):
        at, back = np.int64(0), np.inf
        handled[0] += 1
        while True:
            below = _closest(tables, nodes, links, handled, node, at, back)
            if below < 0:
                break
            back = min(back, _share(links, at, below, 0))
            at = below
        _attach(links, node, at)
        while at >= 0:
            handled[at] += 1
            at = np.int64(links.parent[at])
    for _ in range(rounds):
        for node in range(1, count):
            _look_again(tables, nodes, links, handled, node)
    return links.parent, handled


@inner
def _look_again(tables: Tables, nodes: Ints, links: Links, handled: Ints, node: Whole) -> None:
    """Move below a sibling that is about as good as the parent, else up to a grandparent that is better."""
    at: Whole = np.int64(links.parent[node])
    _detach(links, node)
    back = _back(links, at)
    handled[at] += 1
    target: Whole = _closest(tables, nodes, links, handled, node, at, back)
    if target < 0 and at > 0:
        above: Whole = np.int64(links.parent[at])
        handled[above] += 1
        if SLACK * min(_back(links, above), _share(links, above, node, 1)) > min(back, _share(links, at, node, 1)):
            target = above
    if target >= 0:
        handled[at] += 1
        handled[target] += 1
    _attach(links, node, at if target < 0 else target)


@inner
def _closest(tables: Tables, nodes: Ints, links: Links, handled: Ints, node: Whole, at: Whole, back: Mbit) -> Whole:
    """The closest child of `at` through which the node has about the same bandwidth as from `at` itself; -1 if none.

    `back` is the bandwidth of `at`. All children are measured.
    """
    enough = SLACK * min(back, _share(links, at, node, 1))
    best: Whole = -1
    best_ms = np.inf
    child = links.front[at]
    while child >= 0:
        handled[child] += 1
        through = min(back, _share(links, at, child, 0), _share(links, child, node, 1))
        apart = np.float64(delay(tables, nodes[child], nodes[node]))
        if through >= enough and (apart < best_ms or (apart == best_ms and child < best)):
            best, best_ms = np.int64(child), apart
        child = links.after[child]
    return best


@inner
def _share(links: Links, sender: Whole, receiver: Whole, more: Whole) -> Mbit:
    """The bandwidth of one copy from a node to another, if so many more share the links."""
    share = NODE_MBIT / (links.children[sender] + more)
    away, home = links.domain[sender], links.domain[receiver]
    if away != home:
        outward, inward = links.leaving[away] + more, links.entering[home] + more
        share = min(share, links.mbit[away] / outward, links.mbit[home] / inward)
    return share


@inner
def _back(links: Links, node: Whole) -> Mbit:
    """The bandwidth of a node back to the root."""
    least = np.inf
    while node > 0:
        least = min(least, _share(links, links.parent[node], node, 0))
        node = links.parent[node]
    return least


@inner
def _attach(links: Links, node: Whole, to: Whole) -> None:
    links.parent[node] = to
    links.before[node], links.after[node] = -1, links.front[to]
    if links.front[to] >= 0:
        links.before[links.front[to]] = node
    links.front[to] = node
    _count(links, node, 1)


@inner
def _detach(links: Links, node: Whole) -> None:
    _count(links, node, -1)
    if links.before[node] >= 0:
        links.after[links.before[node]] = links.after[node]
    else:
        links.front[links.parent[node]] = links.after[node]
    if links.after[node] >= 0:
        links.before[links.after[node]] = links.before[node]


@inner
def _count(links: Links, node: Whole, copies: Whole) -> None:
    """Add to the copies that share the links to a node from its parent."""
    above = links.parent[node]
    links.children[above] += copies
    if links.domain[above] != links.domain[node]:
        links.leaving[links.domain[above]] += copies
        links.entering[links.domain[node]] += copies


@njit("int32[::1](int32[::1])", cache=True)
def _descendants(parent: Ints) -> Ints:
    """The number of nodes below each node, as in Overcast's status tables (section 4.3)."""
    count = len(parent)
    waiting, below = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for node in range(1, count):
        waiting[parent[node]] += 1
    for leaf in range(1, count):
        node = leaf
        while node > 0 and waiting[node] == 0:  # all its children are counted
            waiting[node] = -1
            above = parent[node]
            below[above] += below[node] + 1
            waiting[above] -= 1
            node = above
    return below
