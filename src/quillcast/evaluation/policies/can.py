"""Multicast by flooding in a content-addressable network made of the group's members.

S. Ratnasamy, M. Handley, R. Karp and S. Shenker, "Application-level multicast using content-addressable networks", NGC
2001: section 3.1 (a group's members form their own CAN) and 3.2 (the rules of directed flooding). The CAN itself is
that of Ratnasamy, Francis, Handley, Karp and Shenker, SIGCOMM 2001: sections 2.1 to 2.3, 3.1 (more dimensions), 3.2
(realities), 3.6 (landmarks) and 3.7 (more uniform partitioning). What is left out, and published figures:
docs/compared/can.md.

Different: taken literally, a node sends on the first copy only. So a node that hears along dimension 1 before dimension
2 sends nothing along dimension 2, and the members behind it depend on other paths. Here a later copy, though it
delivers nothing, is still sent in the directions that the node had not served, so every member is reached whatever the
delays.
"""

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.chance import Word, below, mix
from quillcast.evaluation.network import Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import (
    check_argument,
    in_random_order,
    sources,
    tree_of_members,
    without_membership,
)
from quillcast.evaluation.routing.pastry import Tables, Truth, Whole, delay, inner
from quillcast.evaluation.workload import creator

SPAN = 1 << 32  # side of the torus in every dimension: can be halved exactly 32 times
DIMENSIONS = 6  # NGC 2001, section 4: the CANs of its simulations
LANDMARKS = 4  # SIGCOMM 2001, section 3.6: their number in its simulations
_POINT, _LANDMARK = 0xCA17, 0xCA18
_CANDIDATES = 64  # peers among which landmarks far from each other are chosen; a guess

Longs = npt.NDArray[np.int64]


class Can(PolicyKernel):
    """Directed flooding from each publisher in a CAN of the members. Later copies are the tree's `extra`.

    Members enter the part of the space that belongs to their order of landmarks by delay; without landmarks anywhere.
    With several realities each member has a zone in each of as many independent spaces, and a publisher floods the one
    in which its events arrive soonest on average.
    """

    def __init__(self, dimensions: int = DIMENSIONS, landmarks: int = LANDMARKS, realities: int = 1) -> None:
        super().__init__()
        self.dimensions = check_argument("dimensions of can", dimensions, 1, 16)
        self.landmarks = check_argument("landmarks of can", landmarks, 0, 8)
        self.realities = check_argument("realities of can", realities, 1, 16)

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """A tree for each publisher: the paths of the first copy that each member receives."""
        nodes = in_random_order(group, creator(group))
        marks = _landmarks(tables, self.landmarks)
        realities = [
            _settle(_points(tables, nodes, np.uint64(group.seed), self.dimensions, marks, reality), True)
            for reality in range(self.realities)
        ]
        neighbours: Ints = np.stack([zones.neighbours for zones in realities]).sum(axis=0, dtype=np.int32)
        handled: Ints = np.stack([zones.handled for zones in realities]).sum(axis=0, dtype=np.int32)
        trees = []
        for start, source in sources(group, nodes):
            floods = [_flood(tables, nodes, zones, start) for zones in realities]
            order, parent, extra, _ = min(floods, key=lambda flood: flood.total_ms)
            tree = tree_of_members(nodes[order], parent, state=neighbours[order], joins=handled[order])
            trees.append(tree._replace(extra=nodes[extra].reshape(-1, 2), source=source))
        return without_membership(trees)


# --- where members enter


@njit(cache=True)
def _landmarks(tables: Tables, count: Whole) -> Ints:
    """Peers far from each other: each is the one of some random peers that is farthest from those before it."""
    chosen = np.empty(count, np.int32)
    for number in range(count):
        best_ms = np.float32(-1)
        for draw in range(_CANDIDATES):
            chance = mix(np.uint64(tables.seed), np.uint64(_LANDMARK), np.uint64(draw))
            peer = np.int32(below(chance, np.uint64(len(tables.ids))))
            apart = np.float32(np.inf)
            for before in range(number):
                apart = min(apart, delay(tables, chosen[before], peer))
            if apart > best_ms:
                chosen[number], best_ms = peer, apart
    return chosen


@njit(cache=True)
def _points(tables: Tables, nodes: Ints, seed: Word, dimensions: Whole, landmarks: Ints, reality: Whole) -> Longs:
    """The random point at which each member enters the space of a reality, int64 [members, dimensions].

    With m landmarks there are m! orders, and as many equal portions of the space: it is divided into m parts along the
    first dimension, each into m - 1 parts along the second, and so on (SIGCOMM 2001, section 3.6).
    """
    points = np.empty((len(nodes), dimensions), np.int64)
    low, size = np.empty(dimensions, np.int64), np.empty(dimensions, np.int64)
    left = np.empty(len(landmarks), np.int32)
    for node in range(len(nodes)):
        low[:], size[:] = 0, SPAN
        left[:] = landmarks
        for parts in range(len(landmarks), 1, -1):
            nearest = 0
            for other in range(1, parts):
                if delay(tables, nodes[node], left[other]) < delay(tables, nodes[node], left[nearest]):
                    nearest = other
            along = (len(landmarks) - parts) % dimensions
            size[along] //= parts
            low[along] += nearest * size[along]
            left[nearest : parts - 1] = left[nearest + 1 : parts].copy()
        for along in range(dimensions):
            number = dimensions * (reality * len(nodes) + node) + along
            draw = mix(seed, np.uint64(_POINT), np.uint64(number))
            points[node, along] = low[along] + np.int64(below(draw, np.uint64(size[along])))
    return points


# --- zones


class Zones(NamedTuple):
    """The members' zones, each `size` wide from `low` in every dimension, and their neighbours as linked lists.

    Args:
        low: int64 [members, dimensions].
        size: int64 [members, dimensions], powers of two.
        head: where each member's list begins, int32 [members]; -1 if it is empty.
        to: the neighbour in an entry, int32 [entries].
        after: the next entry of the same list, int32 [entries]; -1 for the last.
        neighbours: the number of neighbours of each, int32 [members].
        handled: messages that each received while all joined, int32 [members].
    """

    low: Longs
    size: Longs
    head: Ints
    to: Ints
    after: Ints
    neighbours: Ints
    handled: Ints


@njit(cache=True)
def _settle(points: Longs, uniform: Truth) -> Zones:
    """Members join in the order of their numbers: each request travels from member 0 to the member's point (CAN, 2.2).

    If `uniform`, the point's owner passes the request to the neighbour with the largest zone, if that is larger than
    its own (SIGCOMM 2001, section 3.7).
    """
    count, dimensions = points.shape
    zones = _empty(count, dimensions)
    free: Whole = np.int64(0)  # the first of the unused entries, which also form a list
    used = 0  # entries
    touched = np.empty(count, np.int64)
    for new in range(1, count):
        at = _owner(zones, points[new])
        if uniform:
            at = _largest(zones, at)
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
        used -= 2 * around
        if used + 4 * around + 2 > len(zones.to):
            zones, free = _enlarged(zones, 4 * around + 2, free)
        _split(zones, at, new, points[new])
        free = _link(zones, at, new, free)
        used += 2
        for place in range(around):
            for half in (at, np.int64(new)):
                if _side(zones, half, touched[place]) >= 0:
                    free = _link(zones, half, touched[place], free)
                    used += 2
    return zones


@njit(cache=True)
def _empty(count: Whole, dimensions: Whole) -> Zones:
    """Zones with a first one that has the whole space."""
    entries = 4 * count + 64
    after = np.arange(1, entries + 1).astype(np.int32)
    after[entries - 1] = -1
    size = np.zeros((count, dimensions), np.int64)
    size[0] = SPAN
    return Zones(
        np.zeros((count, dimensions), np.int64),
        size,
        np.full(count, -1, np.int32),
        np.empty(entries, np.int32),
        after,
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
    )


@njit(cache=True)
def _enlarged(zones: Zones, needed: Whole, free: Whole) -> tuple[Zones, Whole]:
    """The zones with at least twice the entries, and the first unused entry."""
    entries, more = len(zones.to), max(len(zones.to), needed)
    to = np.concatenate((zones.to, np.empty(more, np.int32)))
    after = np.concatenate((zones.after, np.arange(entries + 1, entries + more + 1).astype(np.int32)))
    after[entries + more - 1] = free
    grown = Zones(zones.low, zones.size, zones.head, to, after, zones.neighbours, zones.handled)
    return grown, np.int64(entries)


@inner
def _owner(zones: Zones, point: Longs) -> Whole:
    """The owner of a point: greedy routing from member 0 to the neighbour nearest to the point (CAN, section 2.1)."""
    at: Whole = np.int64(0)
    zones.handled[at] += 1
    left = _distance(zones, at, point)
    while left > 0:
        best: Whole = -1
        entry = zones.head[at]
        while entry >= 0:
            other = np.int64(zones.to[entry])
            there = _distance(zones, other, point)
            if there < left or (there == left and best >= 0 and other < best):
                best, left = other, there
            entry = zones.after[entry]
        at = best  # never -1: the straight path to the point leaves the zone into a nearer neighbour
        zones.handled[at] += 1
    return at


@inner
def _largest(zones: Zones, at: Whole) -> Whole:
    """The zone with the largest volume of a zone and its neighbours: the zone itself, or the first by number."""
    best: Whole = at
    most = _volume(zones, at)
    entry = zones.head[at]
    while entry >= 0:
        other = np.int64(zones.to[entry])
        volume = _volume(zones, other)
        if volume > most or (volume == most and best != at and other < best):
            best, most = other, volume
        entry = zones.after[entry]
    zones.handled[best] += 0 if best == at else 1
    return best


@inner
def _volume(zones: Zones, zone: Whole) -> float:
    volume = 1.0
    for along in range(zones.size.shape[1]):
        volume *= np.float64(zones.size[zone, along])
    return volume


@inner
def _distance(zones: Zones, zone: Whole, point: Longs) -> float:
    """The square of the Euclidean distance from the zone to the point of the torus."""
    total = 0.0
    for along in range(len(point)):
        total += np.float64(_gap(point[along], zones.low[zone, along], zones.size[zone, along])) ** 2
    return total


@inner
def _gap(point: Whole, low: Whole, size: Whole) -> Whole:
    """The distance from an interval of a circle to a point of it; 0 inside."""
    inside = (point - low) % SPAN
    return 0 if inside < size else min(inside - size + 1, SPAN - inside)


@inner
def _split(zones: Zones, old: Whole, new: Whole, point: Longs) -> None:
    """Halve a zone along the first of its widest dimensions. The newcomer takes the half nearer to its point."""
    low, size = zones.low, zones.size
    along = 0
    for other in range(size.shape[1]):
        low[new, other], size[new, other] = low[old, other], size[old, other]
        if size[old, other] > size[old, along]:
            along = other
    size[old, along] //= 2
    size[new, along] //= 2
    half = size[old, along]
    upper = low[old, along] + half
    nearer = _gap(point[along], upper, half) <= _gap(point[along], low[old, along], half)
    low[new if nearer else old, along] = upper


@inner
def _side(zones: Zones, a: Whole, b: Whole) -> Whole:
    """The side of zone a on which zone b is: twice the dimension along which they abut, plus 1 if b is below; else -1.

    They overlap in all other dimensions. If b is on both sides, it counts as above.
    """
    apart: Whole = -1
    for along in range(zones.low.shape[1]):
        if not _overlap(zones, a, b, along):
            if apart >= 0:
                return -1
            apart = along
    if apart < 0:
        return -1
    low, size = zones.low, zones.size
    if (low[a, apart] + size[a, apart]) % SPAN == low[b, apart]:
        return 2 * apart
    return 2 * apart + 1 if (low[b, apart] + size[b, apart]) % SPAN == low[a, apart] else -1


@inner
def _overlap(zones: Zones, a: Whole, b: Whole, along: Whole) -> Truth:
    low, size = zones.low, zones.size
    return low[a, along] < low[b, along] + size[b, along] and low[b, along] < low[a, along] + size[a, along]


@inner
def _link(zones: Zones, a: Whole, b: Whole, free: Whole) -> Whole:
    """Add each to the other's list; returns the first entry that is now unused."""
    return _enter(zones, b, a, _enter(zones, a, b, free))


@inner
def _enter(zones: Zones, one: Whole, other: Whole, free: Whole) -> Whole:
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


# --- flooding


class Flood(NamedTuple):
    """How an event spreads through the zones.

    Args:
        order: the members in order of arrival, int32 [members].
        parent: the place of each one's sender in that order, int32 [members]; -1 for the publisher.
        extra: sender and receiver of each later copy, one after the other, int32 [twice the copies].
        total_ms: the sum of the delays of all first copies.
    """

    order: Ints
    parent: Ints
    extra: Ints
    total_ms: float


@njit(cache=True)
def _flood(tables: Tables, nodes: Ints, zones: Zones, start: Whole) -> Flood:
    """Flood from one member.

    A message along dimension i continues in the same direction and to both sides of every lower dimension (NGC 2001,
    section 3.2). The source sends to both sides of all. Of several zones that border on another one along the first
    dimension, only that with the other's corner sends to it.
    """
    count, ways = len(nodes), 2 * zones.low.shape[1]
    place = np.full(count, -1, np.int32)
    served = np.zeros((count, ways), np.bool_)
    order, parent = np.empty(count, np.int32), np.full(count, -1, np.int32)
    extra = np.empty(2 * zones.neighbours.sum(), np.int32)
    extras, total_ms = 0, 0.0
    queue = [(0.0, np.int64(start), np.int64(-1), np.int64(0))]  # time, receiver, sender, direction
    received = 0
    while len(queue) > 0:
        now, at, sender, came = heapq.heappop(queue)
        if place[at] < 0:
            place[at] = received
            order[received] = at
            parent[received] = place[sender] if sender >= 0 else -1
            received += 1
            total_ms += now
        else:
            extra[extras], extra[extras + 1] = sender, at
            extras += 2
        entry = zones.head[at]
        while entry >= 0:
            other = np.int64(zones.to[entry])
            way = _side(zones, at, other)
            entry = zones.after[entry]
            onward = (sender < 0 or way == came or way // 2 < came // 2) and not served[at, way]
            if (
                onward
                and (way > 1 or _holds_corner(zones, at, other))
                and (sender < 0 or not _half_way(zones, start, at, way))
            ):
                when = now + np.float64(delay(tables, nodes[at], nodes[other]))
                heapq.heappush(queue, (when, np.int64(other), at, np.int64(way)))
        for way in range(ways):
            served[at, way] |= sender < 0 or way == came or way // 2 < came // 2
    return Flood(order[:received], parent[:received], extra[:extras], total_ms)


@inner
def _holds_corner(zones: Zones, at: Whole, other: Whole) -> Truth:
    """Whether the zone has the lowest coordinates of the other one in all dimensions but the first."""
    low, size = zones.low, zones.size
    for along in range(1, low.shape[1]):
        if not low[at, along] <= low[other, along] < low[at, along] + size[at, along]:
            return False
    return True


@inner
def _half_way(zones: Zones, start: Whole, at: Whole, way: Whole) -> Truth:
    """Whether a zone reaches halfway round from the source's point in this direction."""
    along = way // 2
    point = zones.low[start, along] + zones.size[start, along] // 2
    low, size = zones.low[at, along], zones.size[at, along]
    inside = (point - low) % SPAN
    if inside < size:  # the point's own rows or columns
        return (size - inside if way % 2 == 0 else inside) >= SPAN // 2
    before = (low - point) % SPAN if way % 2 == 0 else (point - low - size) % SPAN
    return before + size >= SPAN // 2
