"""SplitStream: a forest of Scribe trees, each of which carries a share of the events.

M. Castro, P. Druschel, A.-M. Kermarrec, A. Nandi, A. Rowstron and A. Singh, "SplitStream: High-bandwidth multicast in
cooperative environments", SOSP 2003: section 3.1 (stripeIds differ in the first digit, so inner nodes of one tree are
leaves of the others), 3.2.1 (a node over its limit drops a child, which tries its siblings), 3.2.2 (the spare capacity
group).

Simplified: members join one after the other, all stripes at once. Every node may have `children_max` children in all
stripes together, and all receive as much as they send. The anycast to the spare capacity group, which in the paper
searches the group's Scribe tree from where the orphan is, takes the nearest member that fits in the orphan's domain; if
there is none, the nearest of the first few that fit, from a random one on. In the paper every peer is a member. Here
peers on the routes that are not members also forward, within the limit, but offer no spare capacity. If nobody has room
for an orphan, its parent drops another child instead. If that fails for all of them, the paper's orphan misses the
stripe; here its parent keeps it, over the limit.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.chance import Word, below, mix
from quillcast.evaluation.network import Flags, Group, Ids, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel, tree_of
from quillcast.evaluation.policies.members import check_argument, in_random_order
from quillcast.evaluation.policies.scribe import union_of_routes
from quillcast.evaluation.routing.pastry import ID_BITS, Ms, Tables, Truth, Whole, delay, inner, shared_digits

STRIPES = 16  # section 5.1: as many as a digit has values
ANYCAST_NEAR = 1024  # a guess: how many nodes of the orphan's domain the search asks
ANYCAST_FITS = 8  # a guess: how many members with room it compares elsewhere
PUSH_DOWNS_MAX = 64  # a guess: an orphan then turns to the spare capacity group
_FOREST = 33  # purpose of the random draw
_OUTSIDE = -2  # the parent of a node that is not in a tree

Grid = npt.NDArray[np.int32]


class Stripes(PolicyKernel):
    """SplitStream with n stripes: n trees, each with weight 1 / n.

    Args:
        n: the number of stripes, at most the number of values of a digit.
        children_max: the most children of a node in all stripes together; by default n, so that every node sends as
    much as it receives (section 5.1, configuration 16 x 16).
    """

    def __init__(self, n: int = STRIPES, children_max: int | None = None) -> None:
        super().__init__()
        self.n = check_argument("n of stripes", n, 1, 256)
        self.children_max = check_argument(
            "children_max of stripes", n if children_max is None else children_max, 1, 1 << 30
        )

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """A tree for each stripe. Raises `LocalError` if there are more stripes than digits."""
        keys = stripe_keys(group.key, self.n, tables.digit_bits)
        where = self.scratch.where(len(tables.ids))
        routes = [union_of_routes(tables, key, group.members, where) for key in keys]
        nodes = np.unique(np.concatenate([stripe[0] for stripe in routes]))
        planned = np.full((self.n, len(nodes)), _OUTSIDE, np.int32)
        for number, (peers, parent, _) in enumerate(routes):
            local = np.searchsorted(nodes, peers)
            planned[number, local] = np.where(parent >= 0, local[parent], -1)
        joining = np.searchsorted(nodes, in_random_order(group, int(group.members[0]))).astype(np.int32)
        near = _domains(tables.domain[nodes])
        forest = _build(tables, nodes, near, planned, joining, keys, self.children_max, np.uint64(group.seed))
        return [_stripe(nodes, forest, number, 1 / self.n) for number in range(self.n)]


def stripe_keys(key: int, count: int, digit_bits: int) -> Ids:
    """The stripes' keys, uint64 [count]: the group's key with different first digits, as far apart as possible."""
    digits = 1 << digit_bits
    if count > digits:
        raise LocalError(
            f"{count} stripes differ in the first digit of their keys, which has {digits} values; use at most {digits}"
        )
    shift = 64 - digit_bits
    first, rest = int(key) >> shift, int(key) & ((1 << shift) - 1)
    return np.array([(first + number * digits // count) % digits << shift | rest for number in range(count)], np.uint64)


def _stripe(nodes: Ints, forest: "Forest", number: int, weight: float) -> Tree:
    """One stripe's tree, from arrays over the nodes of all stripes."""
    parent = forest.parent[number]
    inside = np.flatnonzero(parent != _OUTSIDE)
    root = int(np.flatnonzero(parent == -1)[0])
    inside = np.concatenate((np.array([root]), inside[inside != root]))
    place = np.full(len(nodes), -1, np.int32)
    place[inside] = np.arange(len(inside))
    above = parent[inside]
    up = np.where(above >= 0, place[above], -1).astype(np.int32)
    return tree_of(nodes[inside], up, forest.joined[inside], weight=weight, joins=forest.handled[number, inside])


def _domains(domain: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The last four fields of `Forest`, from each node's domain."""
    by_domain = np.argsort(domain, kind="stable").astype(np.int32)
    rank = np.empty_like(by_domain)
    rank[by_domain] = np.arange(len(domain), dtype=np.int32)
    _, first, inverse, size = np.unique(domain[by_domain], return_index=True, return_inverse=True, return_counts=True)
    own = inverse[rank]
    return by_domain, rank, first[own].astype(np.int32), size[own].astype(np.int32)


class Forest(NamedTuple):
    """The stripes' trees under construction.

    Args:
        parent: int32 [stripes, nodes]; -1 for a root, -2 for a node that is not in the tree.
        front: each one's latest child, int32 [stripes, nodes]; -1 if it has none.
        after: the next child of the same parent, int32 [stripes, nodes].
        handled: joins that each node received, int32 [stripes, nodes].
        children: of each node in all stripes together, int32 [nodes].
        joined: the members that have joined, bool [nodes].
        spare: the spare capacity group, int32 [members]: all members with room, and some that have none left. A full
    member stays full, because it drops a child only for another one.
        spares: the size of that group, int64 [1].
        draws: the number of random draws so far, int64 [1].
        by_domain: the nodes in the order of their domains, int32 [nodes].
        rank: each node's place in that order, int32 [nodes].
        begin: where the domain of each node begins in that order, int32 [nodes].
        size: the number of nodes in the domain of each node, int32 [nodes].
    """

    parent: Grid
    front: Grid
    after: Grid
    handled: Grid
    children: Ints
    joined: Flags
    spare: Ints
    spares: npt.NDArray[np.int64]
    draws: npt.NDArray[np.int64]
    by_domain: Ints
    rank: Ints
    begin: Ints
    size: Ints


@njit(cache=True)
def _build(
    tables: Tables,
    nodes: Ints,
    near: tuple[Ints, Ints, Ints, Ints],
    planned: Grid,
    joining: Ints,
    keys: Ids,
    children_max: Whole,
    seed: Word,
) -> Forest:
    """Members join all stripes in order, and a node with too many children drops one.

    Args:
        tables: ids and delays.
        nodes: the peers of all stripes, int32 [nodes].
        near: the nodes by domain, as the fields of the forest.
        planned: each one's parent by Scribe's routes, int32 [stripes, nodes]; -1 for a root, -2 if it has none.
        joining: the members in order, int32 [members].
        keys: uint64 [stripes].
        children_max: of a node in all stripes together.
        seed: of random choices.
    """
    stripes, count = planned.shape
    forest = Forest(
        np.where(planned == -1, np.int32(-1), np.int32(_OUTSIDE)),
        np.full((stripes, count), -1, np.int32),
        np.full((stripes, count), -1, np.int32),
        np.zeros((stripes, count), np.int32),
        np.zeros(count, np.int32),
        np.zeros(count, np.bool_),
        np.empty(len(joining), np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        *near,
    )
    path = np.empty(count, np.int64)
    for member in joining:
        forest.joined[member] = True
        forest.spare[forest.spares[0]] = member
        forest.spares[0] += 1
        for stripe in range(stripes):
            steps, at = 0, np.int64(member)
            while forest.parent[stripe, at] == _OUTSIDE:
                path[steps] = at
                steps += 1
                at = np.int64(planned[stripe, at])
            for step in range(steps - 1, -1, -1):
                _join(tables, nodes, keys, children_max, seed, forest, np.int64(stripe), path[step], at)
                at = path[step]
    return forest


@inner
def _join(
    tables: Tables,
    nodes: Ints,
    keys: Ids,
    children_max: Whole,
    seed: Word,
    forest: Forest,
    stripe: Whole,
    child: Whole,
    parent: Whole,
) -> None:
    """Accept a child. A child that is dropped for it moves below a sibling, or to a node with room (section 3.2)."""
    for _ in range(PUSH_DOWNS_MAX):
        _attach(forest, stripe, child, parent)
        if forest.children[parent] <= children_max:
            return
        stripe, child = _given_up(tables, nodes, keys, seed, forest, stripe, child, parent)
        _detach(forest, stripe, child)
        sibling = _sibling(tables, nodes, keys, seed, forest, stripe, parent)
        if sibling < 0:
            break
        parent = sibling
    else:
        _attach(forest, stripe, child, parent)
        if forest.children[parent] <= children_max:
            return
        _detach(forest, stripe, child)
    if _finds_room(tables, nodes, children_max, seed, forest, stripe, child):
        return
    for other_stripe in range(len(keys)):  # other children that the parent could drop
        other = np.int64(forest.front[other_stripe, parent])
        while other >= 0:
            following = np.int64(forest.after[other_stripe, other])
            _detach(forest, other_stripe, other)
            _attach(forest, stripe, child, parent)
            if _finds_room(tables, nodes, children_max, seed, forest, np.int64(other_stripe), other):
                return
            _detach(forest, stripe, child)
            _attach(forest, np.int64(other_stripe), other, parent)
            other = following
    _attach(forest, stripe, child, parent)


@inner
def _given_up(
    tables: Tables, nodes: Ints, keys: Ids, seed: Word, forest: Forest, stripe: Whole, child: Whole, parent: Whole
) -> tuple[Whole, Whole]:
    """The stripe and the child that a parent drops after it has accepted this child (section 3.2.1).

    First children of stripes whose key shares no digit with the parent, then the child whose id shares the fewest
    digits with the key; the new child if it is one of those, else any.
    """
    id_, bits = tables.ids[nodes[parent]], tables.digit_bits
    if shared_digits(id_, keys[stripe], bits) == 0:
        return stripe, child
    fits, least = 0, np.int64(ID_BITS)
    for other in range(len(keys)):
        foreign = shared_digits(id_, keys[other], bits) == 0
        entry = forest.front[other, parent]
        while entry >= 0:
            shared = np.int64(-1 if foreign else shared_digits(tables.ids[nodes[entry]], keys[other], bits))
            if shared < least:
                fits, least = 0, shared
            fits += shared == least
            entry = forest.after[other, entry]
    if shared_digits(tables.ids[nodes[child]], keys[stripe], bits) == least:
        return stripe, child
    chosen = _draw(forest, seed, fits)
    for other in range(len(keys)):
        foreign = shared_digits(id_, keys[other], bits) == 0
        entry = forest.front[other, parent]
        while entry >= 0:
            shared = np.int64(-1 if foreign else shared_digits(tables.ids[nodes[entry]], keys[other], bits))
            if shared == least:
                if chosen == 0:
                    return np.int64(other), np.int64(entry)
                chosen -= 1
            entry = forest.after[other, entry]
    return stripe, child


@inner
def _sibling(tables: Tables, nodes: Ints, keys: Ids, seed: Word, forest: Forest, stripe: Whole, parent: Whole) -> Whole:
    """A child of the parent in the stripe whose id begins like the stripe's key; -1 if there is none."""
    fits = 0
    for turn in range(2):
        chosen = _draw(forest, seed, fits) if turn and fits else np.int64(-1)
        entry = forest.front[stripe, parent]
        while entry >= 0:
            if shared_digits(tables.ids[nodes[entry]], keys[stripe], tables.digit_bits) > 0:
                if turn == 0:
                    fits += 1
                elif chosen == 0:
                    return np.int64(entry)
                chosen -= turn
            entry = forest.after[stripe, entry]
    return np.int64(-1)


@inner
def _finds_room(
    tables: Tables, nodes: Ints, children_max: Whole, seed: Word, forest: Forest, stripe: Whole, orphan: Whole
) -> Truth:
    """Attach the orphan to a node of the spare capacity group: the nearest of its domain, else of the first few found.

    These nodes have room, receive the stripe, and are not below the orphan, which would be a loop.
    """
    best, best_ms, fits = np.int64(-1), np.float32(np.inf), 0
    begin, size = np.int64(forest.begin[orphan]), np.int64(forest.size[orphan])
    asked: Whole = min(size, ANYCAST_NEAR)
    for step in range(1, asked):
        node = np.int64(forest.by_domain[begin + (forest.rank[orphan] - begin + step) % size])
        if forest.joined[node] and forest.children[node] < children_max and _receives(forest, stripe, node):
            best, best_ms = _nearer(tables, nodes, orphan, node, best, best_ms)
    left = forest.spares[0] if best < 0 else np.int64(0)
    at = _draw(forest, seed, left) if left else np.int64(0)
    while left > 0 and fits < ANYCAST_FITS:
        left -= 1
        if at >= forest.spares[0]:
            at = np.int64(0)
        node = np.int64(forest.spare[at])
        if forest.children[node] >= children_max:
            forest.spares[0] -= 1
            forest.spare[at] = forest.spare[forest.spares[0]]
            continue
        at += 1
        if _receives(forest, stripe, node):
            fits += 1
            best, best_ms = _nearer(tables, nodes, orphan, node, best, best_ms)
    if best < 0:
        return False
    _attach(forest, stripe, orphan, best)
    return True


@inner
def _nearer(tables: Tables, nodes: Ints, orphan: Whole, node: Whole, best: Whole, best_ms: Ms) -> tuple[Whole, Ms]:
    """The nearer of two nodes to the orphan, and its delay; of equally near ones the first."""
    apart = delay(tables, nodes[node], nodes[orphan])
    if apart < best_ms or (apart == best_ms and node < best):
        return node, apart
    return best, best_ms


@inner
def _receives(forest: Forest, stripe: Whole, node: Whole) -> Truth:
    """Whether there is a path from the stripe's root to the node."""
    while forest.parent[stripe, node] >= 0:
        node = np.int64(forest.parent[stripe, node])
    return forest.parent[stripe, node] == -1


@inner
def _attach(forest: Forest, stripe: Whole, child: Whole, parent: Whole) -> None:
    forest.parent[stripe, child] = parent
    forest.after[stripe, child] = forest.front[stripe, parent]
    forest.front[stripe, parent] = child
    forest.children[parent] += 1
    forest.handled[stripe, parent] += 1


@inner
def _detach(forest: Forest, stripe: Whole, child: Whole) -> None:
    parent = np.int64(forest.parent[stripe, child])
    before, entry = np.int64(-1), np.int64(forest.front[stripe, parent])
    while entry != child:
        before, entry = entry, np.int64(forest.after[stripe, entry])
    if before < 0:
        forest.front[stripe, parent] = forest.after[stripe, child]
    else:
        forest.after[stripe, before] = forest.after[stripe, child]
    forest.parent[stripe, child] = _OUTSIDE
    forest.children[parent] -= 1


@inner
def _draw(forest: Forest, seed: Word, bound: Whole) -> Whole:
    """A random number below the bound."""
    forest.draws[0] += 1
    return np.int64(below(mix(seed, np.uint64(_FOREST), np.uint64(forest.draws[0])), np.uint64(bound)))
