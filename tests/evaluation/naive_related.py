"""Slow, obvious twins of the kernels of the related systems: dictionaries of peers, and no arrays."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np

from quillcast.evaluation.chance import below, mix
from quillcast.evaluation.network import Group, Tree
from quillcast.evaluation.policies.can import SPAN
from quillcast.evaluation.routing.pastry import Tables, cell, delay, next_hop

Parents = dict[int, int | None]
ID_DIGITS = 16


def parents_of(tree: Tree) -> Parents:
    return {
        int(node): None if above < 0 else int(tree.nodes[above])
        for node, above in zip(tree.nodes, tree.parent, strict=True)
    }


def by_peer(tree: Tree, values: np.ndarray) -> dict[int, int]:
    return {int(node): int(value) for node, value in zip(tree.nodes, values, strict=True)}


def ms(tables: Tables, a: int, b: int) -> float:
    return float(delay(tables, np.int32(a), np.int32(b)))


def drawn(seed: int, purpose: int, number: int, bound: int) -> int:
    return int(below(mix(seed, purpose, number), bound))


# --- what policies of members share


def creator(group: Group) -> int:
    return int(group.members[drawn(group.seed, 17, group.number, len(group.members))])


def in_random_order(group: Group, source: int) -> list[int]:
    others = [int(member) for member in group.members if member != source]
    order = list(range(len(others)))
    for last in range(len(others) - 1, 0, -1):
        other = drawn(group.seed, 32, last, last + 1)
        order[last], order[other] = order[other], order[last]
    return [source, *(others[at] for at in order)]


# --- plain trees


def creator_rooted(tables: Tables, group: Group) -> Parents:
    parents: Parents = {creator(group): None}
    key = tables.ids[creator(group)]
    for member in group.members:
        at = int(member)
        while at != creator(group):
            parents[at] = int(next_hop(tables, at, key))
            at = parents[at]
    return parents


def k_ary(nodes: list[int], k: int) -> Parents:
    parents: Parents = {nodes[0]: None}
    waiting = nodes[1:]
    for node in nodes:
        for child in waiting[:k]:
            parents[child] = node
        waiting = waiting[k:]
    return parents


def compact(tables: Tables, group: Group, children_max: int) -> Parents:
    """Shi, Turner and Waldvogel's compact tree, by trying all pairs at each step."""
    root = creator(group)
    parents, depth, came = {root: None}, {root: 0.0}, [root]
    while len(came) < len(group.members):
        open_ = [node for node in came if list(parents.values()).count(node) < children_max]
        best = min(
            (depth[node] + ms(tables, node, member), tables.place[member], member, came.index(node), node)
            for node in open_
            for member in map(int, group.members)
            if member not in depth
        )
        through, _, member, _, node = best
        parents[member], depth[member] = node, through
        came.append(member)
    return parents


# --- Bayeux


def digits(id_: int) -> str:
    return f"{int(id_):0{ID_DIGITS}x}"


def surrogate_prefixes(ids: list[str], key: str) -> Iterator[str]:
    """The prefixes that surrogate routing resolves, until one peer is left."""
    prefix = ""
    yield prefix
    while sum(id_.startswith(prefix) for id_ in ids) > 1:
        wanted = int(key[len(prefix)], 16)
        there = [f"{(wanted + step) % 16:x}" for step in range(16)]
        prefix += next(digit for digit in there if any(id_.startswith(prefix + digit) for id_ in ids))
        yield prefix


def tapestry_route(tables: Tables, start: int, key: int) -> list[int]:
    ids = [digits(id_) for id_ in tables.ids]
    route = [start]
    for prefix in surrogate_prefixes(ids, digits(key)):
        if not ids[route[-1]].startswith(prefix):
            route.append(int(cell(tables, route[-1], len(prefix) - 1, int(prefix[-1], 16))))
    return route


def bayeux(tables: Tables, group: Group) -> tuple[Parents, Counter[int], Counter[int]]:
    """The tree, the members that each node keeps, and the messages that it handled."""
    root = tapestry_route(tables, int(group.members[0]), group.key)[-1]
    parents: Parents = {root: None}
    kept: Counter[int] = Counter()
    handled: Counter[int] = Counter()
    for member in map(int, group.members):
        down = tapestry_route(tables, root, int(tables.ids[member]))
        for above, node in pairwise(down):
            assert parents.setdefault(node, above) == above
        kept.update(down[:-1])
        handled.update(down[:-1])
        handled.update(tapestry_route(tables, member, group.key)[1:])
    return parents, kept, handled


# --- Overcast


def overcast(tables: Tables, group: Group, rounds: int) -> tuple[Parents, Counter[int]]:
    """The tree, and the messages that each node handled."""
    order = in_random_order(group, creator(group))
    root = order[0]
    parents: Parents = {root: None}
    handled: Counter[int] = Counter()

    def closest(node: int, at: int) -> int | None:
        children = [child for child, above in parents.items() if above == at]
        handled.update(children)
        enough = 0.9 * bandwidth(tables, parents | {node: at}, node, idle=node)
        good = [
            (ms(tables, child, node), order.index(child), child)
            for child in children
            if min(bandwidth(tables, parents, child), bandwidth(tables, parents | {node: child}, node, idle=node))
            >= enough
        ]
        return min(good)[2] if good else None

    for node in order[1:]:
        at = root
        handled[root] += 1
        while (below_ := closest(node, at)) is not None:
            at = below_
        parents[node] = at
        above: int | None = at
        while above is not None:
            handled[above] += 1
            above = parents[above]
    for node in order[1:] * rounds:
        at = parents.pop(node)
        handled[at] += 1
        target = closest(node, at)
        if target is None and at != root:
            grandparent = parents[at]
            handled[grandparent] += 1
            here, there = (bandwidth(tables, parents | {node: above}, node, idle=node) for above in (at, grandparent))
            if 0.9 * there > here:
                target = grandparent
        if target is not None:
            handled.update((at, target))
        parents[node] = at if target is None else target
    return parents, handled


def bandwidth(tables: Tables, parents: Parents, node: int, idle: int | None = None) -> float:
    """A node's bandwidth back to the root in Mbit/s. What comes to `idle` loads only the last hop."""
    least = float("inf")
    while (above := parents[node]) is not None:
        copies = [(up, child) for child, up in parents.items() if up is not None and (child != idle or child == node)]
        least = min(least, 100 / sum(up == above for up, _ in copies))
        away, home = tables.domain[above], tables.domain[node]
        if away != home:
            least = min(
                least,
                link_mbit(tables, above)
                / sum(tables.domain[up] == away != tables.domain[child] for up, child in copies),
                link_mbit(tables, node)
                / sum(tables.domain[up] != home == tables.domain[child] for up, child in copies),
            )
        node = above
    return least


def link_mbit(tables: Tables, peer: int) -> float:
    """The link of a peer's domain: faster if the domain has several exits, unless all have."""
    several = tables.region >= tables.routers
    return 45 if several[tables.place[peer]] and not several.all() else 1.5


# --- Narada


def narada(
    tables: Tables, group: Group, rounds: int, add: float, drop: float, source: int
) -> tuple[Parents, Counter[int], set[tuple[int, int]]]:
    """The source's tree, the messages that each node handled, and the links of the mesh in both directions."""
    order = in_random_order(group, creator(group))
    count = len(order)
    latency = [[ms(tables, a, b) for b in order] for a in order]
    links: dict[int, set[int]] = {node: set() for node in range(count)}
    handled: Counter[int] = Counter()

    def link(a: int, b: int) -> None:
        links[a].add(b)
        links[b].add(a)

    for new in range(1, count):
        handled.update(range(new + 1))
        for draw in range(3):
            other = drawn(group.seed, 0xA0, new * 3 + draw, new)
            if other not in links[new]:
                handled[other] += 1
            link(new, other)
    for number in range(rounds):
        distance, hop = shortest(latency, links)
        before = {node: set(neighbours) for node, neighbours in links.items()}
        handled.update({node: len(neighbours) for node, neighbours in links.items()})
        for node in range(count):
            other = drawn(group.seed, 0xA1, number * count + node, count)
            if other == node or other in links[node]:
                continue
            handled[other] += 1
            utility = sum(
                max((now - (latency[node][other] + then)) / now, 0)
                for target, (now, then) in enumerate(zip(distance[node], distance[other], strict=True))
                if target != node
            )
            if utility > add * count * (len(links[node]) + len(links[other])) / 2:
                link(node, other)
        drop_links(links, before, hop, drop)
    _, hop = shortest(latency, links)
    at = order.index(source)
    parents: Parents = {order[node]: None if node == at else order[hop[node][at]] for node in range(count)}
    mesh = {(order[node], order[other]) for node, others in links.items() for other in others}
    return parents, Counter({order[node]: messages for node, messages in handled.items()}), mesh


def drop_links(links: dict[int, set[int]], before: dict[int, set[int]], hop: list[list[int]], threshold: float) -> None:
    """Each member in turn drops the link whose ends use it least, unless that would part the mesh."""
    for node, mine in links.items():
        costs = [(max(uses(hop, node, other), uses(hop, other, node)), other) for other in mine & before[node]]
        cost, other = min(costs, default=(len(links), node))
        if cost >= threshold * len(links) * (len(mine) + len(links[other])) / 2:
            continue
        mine.remove(other)
        links[other].remove(node)
        if other not in reached(links, node):
            mine.add(other)
            links[other].add(node)


def uses(hop: list[list[int]], node: int, neighbour: int) -> int:
    return sum(hop[node][target] == neighbour for target in range(len(hop)) if target != node)


def reached(links: dict[int, set[int]], start: int) -> set[int]:
    found = {start}
    while more := {other for node in found for other in links[node]} - found:
        found |= more
    return found


def shortest(latency: list[list[float]], links: dict[int, set[int]]) -> tuple[list[list[float]], list[list[int]]]:
    """Distances by Bellman and Ford, and first hops; of equal ones that which is nearer to the target."""
    count = len(latency)
    distance = [[0.0 if node == target else float("inf") for target in range(count)] for node in range(count)]
    changed = True
    while changed:
        changed = False
        for node in range(count):
            for other in links[node]:
                for target in range(count):
                    through = latency[node][other] + distance[other][target]
                    if through < distance[node][target]:
                        distance[node][target], changed = through, True
    hop = [
        [
            -1
            if node == target
            else min((latency[node][b] + distance[b][target], distance[b][target], b) for b in links[node])[2]
            for target in range(count)
        ]
        for node in range(count)
    ]
    return distance, hop


# --- CAN

Zone = tuple[tuple[int, int], ...]  # (low, size) in each dimension
Way = tuple[int, int]  # a dimension, and up or down


def gap(point: int, interval: tuple[int, int]) -> int:
    low, size = interval
    return min(min((point - at) % SPAN, (at - point) % SPAN) for at in (low, low + size - 1)) * (
        (point - low) % SPAN >= size
    )


def squared(point: list[int], zone: Zone) -> float:
    """The square of the distance from the zone to the point."""
    return sum(float(gap(here, interval)) ** 2 for here, interval in zip(point, zone, strict=True))


def abuts(a: Zone, b: Zone, way: Way) -> bool:
    """Is b next to a on this side?"""
    along, sign = way
    first, second = (a, b) if sign > 0 else (b, a)
    if sum(first[along]) % SPAN != second[along][0]:
        return False
    overlaps = [max(x[0], y[0]) < min(sum(x), sum(y)) for x, y in zip(a, b, strict=True)]
    return not overlaps[along] and sum(overlaps) == len(a) - 1


def ways(dimensions: int) -> list[Way]:
    return [(along, sign) for along in range(dimensions) for sign in (1, -1)]


def neighbours(zones: list[Zone], at: int) -> list[int]:
    return [b for b in range(len(zones)) if any(abuts(zones[at], zones[b], way) for way in ways(len(zones[at])))]


def landmarks(tables: Tables, count: int) -> list[int]:
    """Each is the one of some random peers that is farthest from those before it."""
    candidates = [drawn(int(tables.seed), 0xCA18, draw, len(tables.ids)) for draw in range(64)]
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(max(candidates, key=lambda peer: min((ms(tables, a, peer) for a in chosen), default=0)))
    return chosen


def entrance(tables: Tables, peer: int, number: int, seed: int, dimensions: int, marks: list[int]) -> list[int]:
    """A random point of the portion for the peer's order of landmarks."""
    portion = [(0, SPAN)] * dimensions
    left = list(marks)
    for step in range(len(marks) - 1):
        nearest = min(left, key=lambda mark: ms(tables, peer, mark))
        low, size = portion[step % dimensions]
        size //= len(left)
        portion[step % dimensions] = (low + left.index(nearest) * size, size)
        left.remove(nearest)
    return [low + drawn(seed, 0xCA17, dimensions * number + along, size) for along, (low, size) in enumerate(portion)]


def can_zones(points: list[list[int]], *, uniform: bool = True) -> tuple[list[Zone], Counter[int]]:
    """Everybody's zone, and the messages that each handled."""
    zones: list[Zone] = [((0, SPAN),) * len(points[0])]
    handled: Counter[int] = Counter()
    for point in points[1:]:

        def left(zone: int, point: list[int] = point) -> float:
            return squared(point, zones[zone])

        def volume(zone: int) -> int:
            return prod(size for _, size in zones[zone])

        at = 0
        handled[at] += 1
        while left(at) > 0:
            at = min(neighbours(zones, at), key=lambda other: (left(other), other))
            handled[at] += 1
        if uniform and (largest := max([at, *neighbours(zones, at)], key=volume)) != at:
            at = largest
            handled[at] += 1
        handled.update(neighbours(zones, at))
        along = max(range(len(point)), key=lambda side: zones[at][side][1])
        low, size = zones[at][along][0], zones[at][along][1] // 2
        halves = [(*zones[at][:along], (low + start, size), *zones[at][along + 1 :]) for start in (0, size)]
        upper = gap(point[along], (low + size, size)) <= gap(point[along], (low, size))
        zones[at] = halves[not upper]
        zones.append(halves[upper])
    return zones, handled


def can(
    tables: Tables, group: Group, dimensions: int, marks: int, source: int, realities: int = 1
) -> tuple[Parents, list[tuple[int, int]], Counter[int], Counter[int]]:
    """The tree of first copies, the later copies, how many neighbours each has, and messages handled."""
    order = in_random_order(group, creator(group))
    chosen = landmarks(tables, marks)
    degree: Counter[int] = Counter()
    handled: Counter[int] = Counter()
    floods: list[tuple[float, Parents, list[tuple[int, int]]]] = []
    for reality in range(realities):
        numbered = enumerate(order, reality * len(order))
        points = [entrance(tables, peer, number, group.seed, dimensions, chosen) for number, peer in numbered]
        zones, messages = can_zones(points)
        degree.update({order[node]: len(neighbours(zones, node)) for node in range(len(order))})
        handled.update({order[node]: count for node, count in messages.items()})
        floods.append(flooded(tables, order, zones, order.index(source)))
    _, parents, later = min(floods, key=lambda flood: flood[0])
    return parents, later, degree, handled


def flooded(
    tables: Tables, order: list[int], zones: list[Zone], start: int
) -> tuple[float, Parents, list[tuple[int, int]]]:
    """The sum of the delays of first copies, their tree, and the later copies."""
    point = [low + size // 2 for low, size in zones[start]]
    all_ways = ways(len(point))
    total_ms = 0.0
    parents: Parents = {}
    later: list[tuple[int, int]] = []
    served: set[tuple[int, Way]] = set()
    under_way: list[tuple[float, int, int | None, int]] = [(0.0, start, None, -1)]
    while under_way:
        now, at, sender, came = min(under_way, key=lambda copy: (copy[0], copy[1], -1 if copy[2] is None else copy[2]))
        under_way.remove((now, at, sender, came))
        if at in parents:
            later.append((order[sender], order[at]))
        else:
            parents[at] = sender
            total_ms += now
        for number, way in enumerate(all_ways):
            if sender is not None and number != came and way[0] >= all_ways[came][0]:
                continue
            if (at, way) in served:
                continue
            served.add((at, way))
            if sender is not None and travelled(zones[at], point, way) >= SPAN // 2:
                continue
            under_way += [
                (now + ms(tables, order[at], order[other]), other, at, number)
                for other in neighbours(zones, at)
                if next(side for side in all_ways if abuts(zones[at], zones[other], side)) == way
                and (way[0] > 0 or holds_corner(zones[at], zones[other]))
            ]
    peers = {order[node]: None if above is None else order[above] for node, above in parents.items()}
    return total_ms, peers, later


def holds_corner(zone: Zone, other: Zone) -> bool:
    return all(low <= corner < low + size for (low, size), (corner, _) in zip(zone[1:], other[1:], strict=True))


def travelled(zone: Zone, source: list[int], way: Way) -> int:
    """How far the zone's far side is from the source, in this direction."""
    along, sign = way
    low, size = zone[along]
    point = source[along]
    if (point - low) % SPAN < size:
        return low + size - point if sign > 0 else point - low
    return ((low - point) % SPAN if sign > 0 else (point - low - size) % SPAN) + size


# --- SplitStream


def shared(a: int, b: int) -> int:
    return next((at for at, (x, y) in enumerate(zip(digits(a), digits(b), strict=True)) if x != y), ID_DIGITS)


class Forest:
    """SplitStream's trees: per stripe each node's parent and its children, the latest first."""

    def __init__(self, tables: Tables, group: Group, keys: list[int], children_max: int) -> None:
        self.tables, self.keys, self.children_max, self.seed = tables, keys, children_max, group.seed
        self.parents: list[Parents] = []
        self.children: list[dict[int, list[int]]] = [{} for _ in keys]
        self.handled: list[Counter[int]] = [Counter() for _ in keys]
        self.spare: list[int] = []
        self.joined: list[int] = []
        self.draws = 0
        routes = [{int(member): self.route(int(member), key) for member in group.members} for key in keys]
        self.parents = [{next(iter(stripe.values()))[-1]: None} for stripe in routes]
        self.nodes = sorted({node for stripe in routes for route in stripe.values() for node in route})
        for member in in_random_order(group, int(group.members[0])):
            self.spare.append(member)
            self.joined.append(member)
            for stripe, way in enumerate(routes):
                route = way[member]
                end = next(at for at, node in enumerate(route) if node in self.parents[stripe])
                for at in range(end - 1, -1, -1):
                    self.join(stripe, route[at], route[at + 1])

    def route(self, start: int, key: int) -> list[int]:
        way = [start]
        while (hop := int(next_hop(self.tables, way[-1], np.uint64(key)))) >= 0:
            way.append(hop)
        return way

    def of(self, stripe: int, node: int) -> list[int]:
        return self.children[stripe].setdefault(node, [])

    def total(self, node: int) -> int:
        return sum(len(self.of(stripe, node)) for stripe in range(len(self.keys)))

    def id(self, node: int) -> int:
        return int(self.tables.ids[node])

    def draw(self, bound: int) -> int:
        self.draws += 1
        return drawn(self.seed, 33, self.draws, bound)

    def attach(self, stripe: int, child: int, parent: int) -> None:
        self.parents[stripe][child] = parent
        self.of(stripe, parent).insert(0, child)
        self.handled[stripe][parent] += 1

    def detach(self, stripe: int, child: int) -> None:
        self.of(stripe, self.parents[stripe].pop(child)).remove(child)

    def join(self, stripe: int, child: int, parent: int) -> None:
        for _ in range(64):
            self.attach(stripe, child, parent)
            if self.total(parent) <= self.children_max:
                return
            stripe, child = self.given_up(stripe, child, parent)
            self.detach(stripe, child)
            fits = [node for node in self.of(stripe, parent) if shared(self.id(node), self.keys[stripe]) > 0]
            if not fits:
                break
            parent = fits[self.draw(len(fits))]
        else:
            raise AssertionError("too small an example to push down so often")
        if self.finds_room(stripe, child):
            return
        for other_stripe in range(len(self.keys)):
            for other in list(self.of(other_stripe, parent)):
                self.detach(other_stripe, other)
                self.attach(stripe, child, parent)
                if self.finds_room(other_stripe, other):
                    return
                self.detach(stripe, child)
                self.attach(other_stripe, other, parent)
        self.attach(stripe, child, parent)

    def given_up(self, stripe: int, child: int, parent: int) -> tuple[int, int]:
        def rank(of_stripe: int, node: int) -> int:
            foreign = shared(self.id(parent), self.keys[of_stripe]) == 0
            return -1 if foreign else shared(self.id(node), self.keys[of_stripe])

        all_ = [(other, node) for other in range(len(self.keys)) for node in self.of(other, parent)]
        least = min(rank(*pair) for pair in all_)
        if rank(stripe, child) == least:
            return stripe, child
        fits = [pair for pair in all_ if rank(*pair) == least]
        return fits[self.draw(len(fits))]

    def receives(self, stripe: int, node: int | None) -> bool:
        while node in self.parents[stripe]:
            node = self.parents[stripe][node]
        return node is None

    def finds_room(self, stripe: int, orphan: int) -> bool:
        home = self.tables.domain[orphan]
        near = [node for node in self.joined if self.tables.domain[node] == home]
        fits = [node for node in near if self.total(node) < self.children_max and self.receives(stripe, node)]
        left = 0 if fits else len(self.spare)
        at = self.draw(left) if left else 0
        while left > 0 and len(fits) < 8:
            left -= 1
            at = at if at < len(self.spare) else 0
            node = self.spare[at]
            if self.total(node) >= self.children_max:
                last = self.spare.pop()
                if at < len(self.spare):
                    self.spare[at] = last
                continue
            at += 1
            if self.receives(stripe, node):
                fits.append(node)
        if not fits:
            return False
        self.attach(stripe, orphan, min(fits, key=lambda node: (ms(self.tables, node, orphan), node)))
        return True
