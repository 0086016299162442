"""A tree of members that minimises delay from its root with a limit on children.

S. Shi, J. Turner and M. Waldvogel, "Dimensioning server access bandwidth and multicast routing in overlay networks",
NOSSDAV 2001, section 4: the compact-tree heuristic for the degree-limited tree of least diameter (which is NP-hard).
Like Prim's algorithm it adds one member at a time, and always the one that can have the least delay from the root.

Peers at one place are equivalent for the algorithm, so it runs over places: members times places steps, not members
squared. Simplified: the root builds the tree at once, with all members and delays known. So this is a bound for
protocols, not a protocol.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.network import Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import check_argument, first, planned
from quillcast.evaluation.routing.pastry import Ms, Tables, Whole, inner, way_ms
from quillcast.evaluation.workload import creator

CHILDREN_MAX = 16  # children_per_topic_max, as everywhere in this project


class DelayOptimised(PolicyKernel):
    """The compact tree of the members, rooted at the creator, with at most `children_max` children each."""

    def __init__(self, children_max: int = CHILDREN_MAX) -> None:
        super().__init__()
        self.children_max: int = check_argument("children_max of delay_optimised", children_max, 1, 1 << 30)

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree."""
        nodes = first(creator(group), group.members)
        sites, site = np.unique(tables.place[nodes], return_inverse=True)
        order, parent = _compact(tables, sites, site.astype(np.int32), self.children_max)
        return [planned(nodes[order], parent)]


@njit(cache=True)
def _compact(tables: Tables, sites: Ints, site: Ints, children_max: Whole) -> tuple[Ints, Ints]:
    """Build the tree from node 0. Returns the nodes in the order in which they were added, and each one's parent.

    Of parents with equal delay the earliest is taken; of members the one with the smallest site, then the smallest
    number.

    Args:
        tables: delays between places.
        sites: the places with members, int32 [sites].
        site: the site of each node, int32 [nodes], as an index into `sites`.
        children_max: of each node.
    """
    count = len(site)
    waiting = np.full(count, -1, np.int32)  # the next node of the same site
    front = np.full(len(sites), -1, np.int32)
    for node in range(count - 1, 0, -1):
        waiting[node] = front[site[node]]
        front[site[node]] = node
    order, parent = np.empty(count, np.int32), np.full(count, -1, np.int32)
    depth, kids = np.zeros(count), np.zeros(count, np.int32)  # by index in the tree
    behind = np.full(count, -1, np.int32)  # the next node added at the same site
    latest = np.full(len(sites), -1, np.int32)
    opened = np.full(len(sites), -1, np.int32)  # the earliest node of a site that may have more children
    best, best_parent = np.full(len(sites), np.inf), np.full(len(sites), -1, np.int32)
    for position in range(count):
        at = 0
        if position > 0:
            at = _least(tables, sites, front, best, best_parent, opened, depth, kids, children_max)
        node = front[at] if position else 0
        if position == 0:
            at = site[0]
        else:
            above = best_parent[at]
            front[at] = waiting[node]
            parent[position] = above
            depth[position] = best[at]
            kids[above] += 1
            if kids[above] == children_max:
                home = site[order[above]]
                opened[home] = behind[above]
        order[position] = node
        if latest[at] >= 0:
            behind[latest[at]] = position
        latest[at] = position
        if opened[at] < 0:
            opened[at] = position
            for other in range(len(sites)):
                if front[other] >= 0:
                    through = depth[position] + _between(tables, sites[at], sites[other])
                    if through < best[other]:
                        best[other], best_parent[other] = through, position
    return order, parent


@inner
def _least(
    tables: Tables,
    sites: Ints,
    front: Ints,
    best: npt.NDArray[np.float64],
    best_parent: Ints,
    opened: Ints,
    depth: npt.NDArray[np.float64],
    kids: Ints,
    children_max: Whole,
) -> Whole:
    """The site whose next member can have the least delay.

    The `best` of a site whose best parent is full is too low. It is corrected only when it is the least of all.
    """
    while True:
        least = -1
        for other in range(len(sites)):
            if front[other] >= 0 and (least < 0 or best[other] < best[least]):
                least = other
        if kids[best_parent[least]] < children_max:
            return least
        best[least], best_parent[least] = np.inf, -1
        for other in range(len(sites)):
            above = opened[other]
            if above >= 0:
                through = depth[above] + _between(tables, sites[other], sites[least])
                if through < best[least] or (through == best[least] and above < best_parent[least]):
                    best[least], best_parent[least] = through, above


@inner
def _between(tables: Tables, source: Whole, target: Whole) -> Ms:
    """One-way delay between peers at two places, like `pastry.delay` between two peers."""
    return np.float64(np.float32(way_ms(tables, source, target) + np.float32(2 * tables.access_ms)))
