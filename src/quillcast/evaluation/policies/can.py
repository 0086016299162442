"""Multicast by flooding in a content-addressable network made of the group's members.

S. Ratnasamy, M. Handley, R. Karp and S. Shenker, "Application-level multicast using content-addressable networks", NGC
2001: section 3.1 (a group's members form their own CAN) and 3.2 (the rules of directed flooding). The CAN itself is
that of Ratnasamy, Francis, Handley, Karp and Shenker, SIGCOMM 2001, sections 2.1 to 2.3, with d = 2.

Simplified: members join one after the other through the creator and do not leave; zones are halved along alternating
dimensions, and the newcomer takes the half with its random point; the space is independent of delays (no landmarks, no
overloaded zones). Different: taken literally, a node sends on the first copy only. So a node that hears along dimension
1 before dimension 2 sends nothing along dimension 2, and the members behind it depend on other paths. Here a later
copy, though it delivers nothing, is still sent in the directions that the node had not served, so every member is
reached whatever the delays. That is 2 % more copies (in 900 groups of up to 1,000 members, no member was missed by the
literal rule either).
"""

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.chance import Word, below, mix
from quillcast.evaluation.network import Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import in_random_order, tree_of_members
from quillcast.evaluation.routing.pastry import Tables, Truth, Whole, delay, inner
from quillcast.evaluation.workload import creator

SPAN = 1 << 32  # side of the torus in both dimensions: can be halved exactly 32 times
_POINT = 0xCA17
_HALF_EDGES_PER_ZONE = 6  # Euler: if three zones of a torus meet at each point, there are three borders per zone


class Can(PolicyKernel):
    """Directed flooding from the creator in a CAN of the members, d = 2. Later copies are the tree's `extra`."""

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree: the paths of the first copy that each member receives."""
        nodes = in_random_order(group, creator(group))
        zones = _settle(np.uint64(group.seed), len(nodes))
        order, parent, extra = _flood(tables, nodes, zones)
        tree = tree_of_members(nodes[order], parent, state=zones.neighbours[order], joins=zones.handled[order])
        return [tree._replace(extra=nodes[extra].reshape(-1, 2))]


class Zones(NamedTuple):
    """The members' zones, each `size` wide from `low` in both dimensions, and their neighbours as linked lists.

    Args:
        low: int64 [members, 2].
        size: int64 [members, 2], powers of two.
        head: where each member's list begins, int32 [members]; -1 if it is empty.
        to: the neighbour in an entry, int32 [entries].
        after: the next entry of the same list, int32 [entries]; -1 for the last.
        neighbours: the number of neighbours of each, int32 [members].
        handled: messages that each received while all joined, int32 [members].
    """

    low: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    head: Ints
    to: Ints
    after: Ints
    neighbours: Ints
    handled: Ints


@njit(cache=True)
def _settle(seed: Word, count: Whole) -> Zones:
    """Members join in the order of their numbers: each request travels from member 0 to a random point (CAN, 2.2)."""
    zones = _empty(count)
    free: Whole = np.int64(0)  # the first of the unused entries, which also form a list
    touched = np.empty(count, np.int64)
    for new in range(1, count):
        x = np.int64(below(mix(seed, np.uint64(_POINT), np.uint64(2 * new)), np.uint64(SPAN)))
        y = np.int64(below(mix(seed, np.uint64(_POINT), np.uint64(2 * new + 1)), np.uint64(SPAN)))
        at = _owner(zones, x, y)
        around = 0
        entry = zones.head[at]
        while entry >= 0:  # remove the old zone's borders, and notify its neighbours
            other = np.int64(zones.to[entry])
            touched[around] = other
            around += 1
            zones.handled[other] += 1
            free = _unlink(zones, other, at, free)
            entry = zones.after[entry]
        while zones.head[at] >= 0:
            free = _unlink(zones, at, np.int64(zones.to[zones.head[at]]), free)
        _split(zones, at, new, x, y)
        free = _link(zones, at, new, free)
        for place in range(around):
            other = touched[place]
            if _borders(zones, at, other):
                free = _link(zones, at, other, free)
            if _borders(zones, new, other):
                free = _link(zones, new, other, free)
    return zones


@njit(cache=True)
def _empty(count: Whole) -> Zones:
    """Room for this many zones; the first has the whole space."""
    entries = _HALF_EDGES_PER_ZONE * count + 64
    after = np.arange(1, entries + 1).astype(np.int32)
    after[entries - 1] = -1
    size = np.zeros((count, 2), np.int64)
    size[0] = SPAN
    return Zones(
        np.zeros((count, 2), np.int64),
        size,
        np.full(count, -1, np.int32),
        np.empty(entries, np.int32),
        after,
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
    )


@inner
def _owner(zones: Zones, x: Whole, y: Whole) -> Whole:
    """The owner of a point: greedy routing from member 0 to the neighbour nearest to the point (CAN, section 2.1)."""
    at: Whole = np.int64(0)
    zones.handled[at] += 1
    left = _distance(zones, at, x, y)
    while left > 0:
        best: Whole = -1
        entry = zones.head[at]
        while entry >= 0:
            other = np.int64(zones.to[entry])
            there = _distance(zones, other, x, y)
            if there < left or (there == left and best >= 0 and other < best):
                best, left = other, there
            entry = zones.after[entry]
        at = best  # never -1: the straight path to the point leaves the zone into a nearer neighbour
        zones.handled[at] += 1
    return at


@inner
def _distance(zones: Zones, zone: Whole, x: Whole, y: Whole) -> Whole:
    """The distance from the zone to the point, along both dimensions of the torus."""
    return _gap(x, zones.low[zone, 0], zones.size[zone, 0]) + _gap(y, zones.low[zone, 1], zones.size[zone, 1])


@inner
def _gap(point: Whole, low: Whole, size: Whole) -> Whole:
    """The distance from an interval of a circle to a point of it; 0 inside."""
    inside = (point - low) % SPAN
    return 0 if inside < size else min(inside - size + 1, SPAN - inside)


@inner
def _split(zones: Zones, old: Whole, new: Whole, x: Whole, y: Whole) -> None:
    """Halve a zone, first along dimension 0, then along 1. The newcomer takes the half with its point."""
    low, size = zones.low, zones.size
    dimension = 0 if size[old, 0] == size[old, 1] else 1
    size[old, dimension] //= 2
    for side in range(2):
        low[new, side], size[new, side] = low[old, side], size[old, side]
    point = x if dimension == 0 else y
    upper = low[old, dimension] + size[old, dimension]
    low[new if point >= upper else old, dimension] = upper


@inner
def _borders(zones: Zones, a: Whole, b: Whole) -> Truth:
    """Whether the zones abut along one dimension, and overlap along the other."""
    return _abuts(zones, a, b, 0) or _abuts(zones, a, b, 1)


@inner
def _abuts(zones: Zones, a: Whole, b: Whole, dimension: Whole) -> Truth:
    return _next_to(zones, a, b, dimension) or _next_to(zones, b, a, dimension)


@inner
def _next_to(zones: Zones, a: Whole, b: Whole, dimension: Whole) -> Truth:
    """Whether b begins in this dimension where a ends, and they overlap in the other one."""
    return (
        (zones.low[a, dimension] + zones.size[a, dimension]) % SPAN == zones.low[b, dimension]
        and not _overlap(zones, a, b, dimension)
        and _overlap(zones, a, b, 1 - dimension)
    )


@inner
def _overlap(zones: Zones, a: Whole, b: Whole, dimension: Whole) -> Truth:
    low, size = zones.low, zones.size
    return (
        low[a, dimension] < low[b, dimension] + size[b, dimension]
        and low[b, dimension] < low[a, dimension] + size[a, dimension]
    )


@inner
def _link(zones: Zones, a: Whole, b: Whole, free: Whole) -> Whole:
    """Add each to the other's list; returns the first entry that is now unused."""
    return _enter(zones, b, a, _enter(zones, a, b, free))


@inner
def _enter(zones: Zones, one: Whole, other: Whole, free: Whole) -> Whole:
    if free < 0:
        raise AssertionError("a torus has more borders than it can have")
    following = np.int64(zones.after[free])
    zones.to[free] = other
    zones.after[free] = zones.head[one]
    zones.head[one] = free
    zones.neighbours[one] += 1
    return following


@inner
def _unlink(zones: Zones, one: Whole, other: Whole, free: Whole) -> Whole:
    """Remove the other from this one's list; returns the first entry that is now unused."""
    before, entry = np.int64(-1), np.int64(zones.head[one])
    while zones.to[entry] != other:
        before, entry = entry, np.int64(zones.after[entry])
    if before < 0:
        zones.head[one] = zones.after[entry]
    else:
        zones.after[before] = zones.after[entry]
    zones.after[entry] = free
    zones.neighbours[one] -= 1
    return entry


@njit(cache=True)
def _flood(tables: Tables, nodes: Ints, zones: Zones) -> tuple[Ints, Ints, Ints]:
    """Flood from member 0. Returns members in order of arrival, each one's sender in that order, and later copies.

    A message along dimension i continues in the same direction and to both sides of every lower dimension (Ratnasamy et
    al., section 3.2). The source sends to both sides of both.
    """
    count = len(nodes)
    place = np.full(count, -1, np.int32)
    served = np.zeros((count, 4), np.bool_)
    order, parent = np.empty(count, np.int32), np.full(count, -1, np.int32)
    extra = np.empty(2 * len(zones.to), np.int32)
    extras = 0
    queue = [(0.0, np.int64(0), np.int64(-1), np.int64(0))]  # time, receiver, sender, direction
    received = 0
    while len(queue) > 0:
        now, at, sender, came = heapq.heappop(queue)
        if place[at] < 0:
            place[at] = received
            order[received] = at
            parent[received] = place[sender] if sender >= 0 else -1
            received += 1
        else:
            extra[extras], extra[extras + 1] = sender, at
            extras += 2
        for way in range(4):  # dimension 0 up and down, then 1
            onward = sender < 0 or way == came or way // 2 < came // 2
            if not onward or served[at, way]:
                continue
            served[at, way] = True
            if sender >= 0 and _half_way(zones, at, way):
                continue
            entry = zones.head[at]
            while entry >= 0:
                other = np.int64(zones.to[entry])
                if _direction(zones, at, other) == way:
                    when = now + np.float64(delay(tables, nodes[at], nodes[other]))
                    heapq.heappush(queue, (when, np.int64(other), at, np.int64(way)))
                entry = zones.after[entry]
    return order[:received], parent[:received], extra[:extras]


@inner
def _direction(zones: Zones, at: Whole, other: Whole) -> Whole:
    """The side on which the neighbour is; the first of two if it is on both."""
    for way in range(4):
        first, second = (at, other) if way % 2 == 0 else (other, at)
        if _next_to(zones, first, second, way // 2):
            return way
    return -1


@inner
def _half_way(zones: Zones, at: Whole, way: Whole) -> Truth:
    """Whether the zone reaches half-way round from the source's point in this direction."""
    dimension = way // 2
    point = zones.low[0, dimension] + zones.size[0, dimension] // 2
    low, size = zones.low[at, dimension], zones.size[at, dimension]
    inside = (point - low) % SPAN
    if inside < size:  # the point's own rows or columns
        return (size - inside if way % 2 == 0 else inside) >= SPAN // 2
    before = (low - point) % SPAN if way % 2 == 0 else (point - low - size) % SPAN
    return before + size >= SPAN // 2
