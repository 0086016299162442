"""Narada: a mesh of the members that improves itself, and a tree of shortest paths over it for each source.

Y. Chu, S. Rao and H. Zhang, "A case for end system multicast", SIGMETRICS 2000: section 3.1 (every member knows all
others), 3.2 (links are added by utility and dropped by consensus cost), 3.3 (data goes along the reverse shortest path
between source and member, as in DVMRP).

All members join first, each with links to some earlier members. Then come rounds in which every member sends a refresh
to each neighbour, with all that it knows of all members, and probes one random other, all with the distances at the
start of the round, because routing tables lag behind. Members do not leave or fail; instead of Narada's repair of
partitions, no link is dropped whose loss would partition the mesh. The paper gives its thresholds as functions of the
group's size and the number of neighbours without stating them. Those here are guesses, which keep most members at 3 to
6 neighbours, the range of the paper's experiments. What is left out, and a published figure: docs/compared/narada.md.
"""

import heapq

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.chance import Word, below, mix
from quillcast.evaluation.network import Flags, Floats, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import (
    check_argument,
    check_size,
    first,
    in_random_order,
    sources,
    tree_of_members,
    without_membership,
)
from quillcast.evaluation.routing.pastry import Ms, Tables, Truth, Whole, delay, inner
from quillcast.evaluation.workload import creator

MEMBERS_MAX = 256  # the largest group of the paper's simulations
FIRST_LINKS = 3  # a guess: section 3.1.1 says "a few"
ROUNDS = 12  # a guess: after that few links change
ADD, DROP = 0.02, 0.01  # guesses: utility, and consensus cost, for each member of the group and each neighbour
_JOIN, _PROBE = 0xA0, 0xA1


class Narada(PolicyKernel):
    """Shortest paths over Narada's mesh from each publisher, in groups of at most `members_max`.

    Every member keeps all others, and every join is announced to all: the algorithm is for small groups. Each event
    comes with this many rounds of refreshes, which are the tree's `extra`: 1 if there is an event in each refresh
    period, 0 if there are so many events that refreshes do not count.
    """

    def __init__(self, members_max: int = MEMBERS_MAX, refreshes: int = 0) -> None:
        super().__init__()
        self.members_max = check_argument("members_max of narada", members_max, 1, 8192)  # squared, four times
        self.refreshes = check_argument("refreshes of narada", refreshes, 0, 1000)

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """A tree for each publisher. Raises `GroupTooLarge`."""
        check_size(f"narada({self.members_max})", group, self.members_max, "its cost grows with the square of the size")
        nodes = in_random_order(group, creator(group))
        hop, joins, linked = _mesh(np.uint64(group.seed), _latencies(tables, nodes), ROUNDS)
        refresh = np.tile(nodes[np.argwhere(linked)], (self.refreshes, 1))  # each link in both directions
        trees = []
        for start, source in sources(group, nodes):
            order = first(start, np.arange(len(nodes), dtype=np.int32))
            parent = np.argsort(order)[hop[order, start]].astype(np.int32)
            parent[0] = -1
            state = np.full(len(nodes), len(nodes) - 1, np.int32)
            tree = tree_of_members(nodes[order], parent, state=state, joins=joins[order])
            trees.append(tree._replace(extra=refresh, source=source))
        return without_membership(trees)


@njit(cache=True)
def _latencies(tables: Tables, nodes: Ints) -> Floats:
    """One-way delays between all members, float32 [members, members]."""
    count = len(nodes)
    latency = np.empty((count, count), np.float32)
    for a in range(count):
        for b in range(count):
            latency[a, b] = delay(tables, nodes[a], nodes[b])
    return latency


@njit(cache=True)
def _mesh(seed: Word, latency: Floats, rounds: Whole) -> tuple[Ints, Ints, Flags]:
    """Build and improve the mesh. Returns first hops from all members to all others, messages handled, and links.

    Every existing member hears of a join once. In each round a member handles a refresh from each neighbour. A member
    that is asked for a link or probed handles one more message.
    """
    count = len(latency)
    linked = np.zeros((count, count), np.bool_)
    handled = np.zeros(count, np.int32)
    for new in range(1, count):
        handled[: new + 1] += 1  # they hear of the new member, and it of them
        for draw in range(FIRST_LINKS):
            other = np.int64(below(mix(seed, np.uint64(_JOIN), np.uint64(new * FIRST_LINKS + draw)), np.uint64(new)))
            if not linked[new, other]:
                linked[new, other] = linked[other, new] = True
                handled[other] += 1
    for number in range(rounds):
        distance, hop = _shortest(latency, linked)
        before = linked.copy()
        degree = linked.sum(axis=1)
        handled += degree.astype(np.int32)
        for node in range(count):
            draw = mix(seed, np.uint64(_PROBE), np.uint64(number * count + node))
            other = np.int64(below(draw, np.uint64(count)))
            if other == node or linked[node, other]:
                continue
            handled[other] += 1
            threshold = ADD * count * (degree[node] + degree[other]) / 2
            if _utility(latency, distance, node, other) > threshold:
                linked[node, other] = linked[other, node] = True
                degree[node] += 1
                degree[other] += 1
        _drop(before, linked, degree, hop)
    _, hop = _shortest(latency, linked)
    return hop, handled, linked


@inner
def _utility(latency: Floats, distance: npt.NDArray[np.float64], node: Whole, other: Whole) -> Ms:
    """The utility of a link to the other: the sum over all members of the share of delay that it saves."""
    utility = 0.0
    for target in range(len(latency)):
        now = distance[node, target]
        then = np.float64(latency[node, other]) + distance[other, target]
        if then < now:
            utility += (now - then) / now
    return utility


@njit(cache=True)
def _drop(before: Flags, linked: Flags, degree: npt.NDArray[np.int64], hop: Ints) -> None:
    """Each member in turn drops the link that both ends use least, if its use is small and the mesh stays whole.

    `before` are the links whose use is known, with the next hops over them. Changes `linked` and `degree`.
    """
    count = len(linked)
    uses = np.zeros((count, count), np.int32)
    for node in range(count):
        for target in range(count):
            if target != node:
                uses[node, hop[node, target]] += 1
    for node in range(count):
        least, least_cost = -1, 0
        for other in range(count):
            if before[node, other] and linked[node, other]:
                cost = max(uses[node, other], uses[other, node])
                if least < 0 or cost < least_cost:
                    least, least_cost = other, cost
        if least < 0 or least_cost >= DROP * count * (degree[node] + degree[least]) / 2:
            continue
        linked[node, least] = linked[least, node] = False
        if _reaches(linked, node, least):
            degree[node] -= 1
            degree[least] -= 1
        else:
            linked[node, least] = linked[least, node] = True


@njit(cache=True)
def _reaches(linked: Flags, source: Whole, target: Whole) -> Truth:
    """Whether there is a path over the mesh."""
    count = len(linked)
    seen = np.zeros(count, np.bool_)
    seen[source] = True
    found = np.empty(count, np.int64)
    found[0] = source
    end, at = 1, 0
    while at < end:
        node = found[at]
        at += 1
        if linked[node, target]:
            return True
        for other in range(count):
            if linked[node, other] and not seen[other]:
                seen[other] = True
                found[end] = other
                end += 1
    return False


@njit(cache=True)
def _shortest(latency: Floats, linked: Flags) -> tuple[npt.NDArray[np.float64], Ints]:
    """Distances over the mesh between all members, and each path's first hop (Dijkstra, towards each target)."""
    count = len(linked)
    starts = np.zeros(count + 1, np.int64)
    others = np.empty(linked.sum(), np.int64)
    for node in range(count):
        end = starts[node]
        for other in range(count):
            if linked[node, other]:
                others[end] = other
                end += 1
        starts[node + 1] = end
    distance = np.full((count, count), np.inf)
    hop = np.full((count, count), -1, np.int32)
    for target in range(count):
        to_target, hops = np.full(count, np.inf), np.full(count, -1, np.int32)
        to_target[target] = 0.0
        queue = [(0.0, target)]
        while len(queue) > 0:
            near, node = heapq.heappop(queue)
            if near > to_target[node]:
                continue
            for place in range(starts[node], starts[node + 1]):
                other = others[place]
                there = np.float64(latency[other, node]) + near
                if there < to_target[other]:
                    to_target[other], hops[other] = there, node
                    heapq.heappush(queue, (there, other))
        distance[:, target], hop[:, target] = to_target, hops
    return distance, hop
