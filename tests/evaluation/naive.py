"""Slow, obvious twins of the kernels: lists, dictionaries and words of the papers instead of arrays."""

from collections import defaultdict

import numpy as np

from quillcast.evaluation.chance import below, mix
from quillcast.evaluation.network import Peers, Topology, Tree

BITS = 64


class Overlay:
    """Pastry over a deployment, from the definitions (Scribe, section 2)."""

    def __init__(self, topology: Topology, peers: Peers, b: int = 4, l: int = 16, seed: int = 0, k: int = 0) -> None:  # noqa: E741
        self.topology, self.b, self.l, self.seed, self.k = topology, b, l, seed, k
        self.ids = [int(id_) for id_ in peers.ids]
        self.place = [int(place) for place in peers.place]
        self.given: dict[tuple[int, int, int], int] | None = None

    def digits(self, id_: int) -> list[int]:
        return [(id_ >> (BITS - self.b * (at + 1))) & ((1 << self.b) - 1) for at in range(BITS // self.b)]

    def shared(self, a: int, b: int) -> int:
        same = 0
        for x, y in zip(self.digits(a), self.digits(b), strict=True):
            if x != y:
                break
            same += 1
        return same

    def distance(self, a: int, b: int) -> int:
        return min((a - b) % 2**BITS, (b - a) % 2**BITS)

    def way_ms(self, source: int, target: int) -> float:
        """In single precision, as the kernels reckon: two ways that are as long must stay so."""
        if len(self.topology.coordinates):
            a, b = self.topology.coordinates[source], self.topology.coordinates[target]
            return np.float32(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** np.float32(0.5))
        return np.float32(self.topology.delay_ms[source, target])

    def delay(self, a: int, b: int) -> float:
        if a == b:
            return np.float32(0)
        return self.way_ms(self.place[a], self.place[b]) + np.float32(2 * self.topology.access_ms)

    def proximity(self, home: int, there: int) -> float:
        return (self.way_ms(home, there) + self.way_ms(there, home)) / 2

    def root_of(self, key: int) -> int:
        return min(range(len(self.ids)), key=lambda peer: (self.distance(self.ids[peer], key), self.ids[peer]))

    def cell(self, peer: int, row: int, digit: int) -> int:
        """The nearest with the prefix: home first, then by a hash of places; at one place whom the hash names."""
        if self.given is not None:
            return self.given.get((peer, row, digit), -1)
        prefix = [*self.digits(self.ids[peer])[:row], digit]
        fit = [other for other, id_ in enumerate(self.ids) if self.digits(id_)[: row + 1] == prefix]
        if not fit:
            return -1
        home, draw = self.place[peer], int(mix(self.seed, peer, fit[0]))
        if self.k and len(fit) > self.k:
            samples = []
            for sample in range(self.k):
                draw = int(mix(draw, sample, fit[0]))
                samples.append(fit[int(below(draw, len(fit)))])
            return min(samples, key=lambda other: self.proximity(home, self.place[other]))
        places = {self.place[other] for other in fit}
        best = min(places, key=lambda at: (self.proximity(home, at), at != home, int(mix(self.seed, home, at))))
        there = [other for other in fit if self.place[other] == best]
        return there[int(below(draw, len(there)))]

    def leaf_set(self, peer: int) -> list[int]:
        count = len(self.ids)
        return [(peer + step) % count for step in range(-self.l // 2, self.l // 2 + 1)]

    def next_hop(self, peer: int, key: int) -> int:
        count, here = len(self.ids), self.ids[peer]
        right = (self.ids[(peer + self.l // 2) % count] - here) % 2**BITS
        left = (here - self.ids[(peer - self.l // 2) % count]) % 2**BITS
        if count - 1 < self.l or (key - here) % 2**BITS <= right or (here - key) % 2**BITS <= left:
            root = self.root_of(key)
            return -1 if root == peer else root
        row = self.shared(here, key)
        hop = self.cell(peer, row, self.digits(key)[row])
        if hop >= 0:
            return hop
        known = {peer, *self.leaf_set(peer)}
        for deeper in range(row, BITS // self.b):
            known |= {self.cell(peer, deeper, d) for d in range(1 << self.b) if d != self.digits(here)[deeper]}
        known.discard(-1)
        return min(known, key=lambda p: (-self.shared(self.ids[p], key), self.distance(self.ids[p], key), self.ids[p]))

    def route(self, peer: int, key: int) -> list[int]:
        way = [peer]
        while (hop := self.next_hop(way[-1], key)) >= 0:
            way.append(hop)
        return way


def scribe(overlay: Overlay, key: int, members: list[int]) -> dict[int, int]:
    """The parent of each peer on the members' routes; the root's is -1."""
    parents = {overlay.root_of(key): -1}
    for member in members:
        way = overlay.route(member, key)
        parents.update(zip(way, [*way[1:], -1], strict=True))
    return parents


def parents_of(tree: Tree) -> dict[int, int]:
    """A tree as a dictionary: the parent of each peer; the root's is -1."""
    return {
        int(node): -1 if above < 0 else int(tree.nodes[above])
        for node, above in zip(tree.nodes, tree.parent, strict=True)
    }


def children_of(parents: dict[int, int]) -> dict[int, list[int]]:
    children = defaultdict(list)
    for node, above in parents.items():
        if above >= 0:
            children[above].append(node)
    return children


def collapse(parents: dict[int, int], members: set[int]) -> dict[int, int]:
    """Take out a peer that is no member and has one child, as long as there is one."""
    parents = dict(parents)
    while True:
        children = children_of(parents)
        gone = [p for p, above in parents.items() if above >= 0 and p not in members and len(children[p]) == 1]
        if not gone:
            return parents
        parents[children[gone[0]][0]] = parents.pop(gone[0])


def shed(overlay: Overlay, parents: dict[int, int], room: dict[int, int], number: dict[int, int]) -> dict[int, int]:
    """From the root down, drop the farthest children over a peer's room, each to the sibling that is best."""
    parents = dict(parents)
    waiting = [node for node, above in parents.items() if above < 0]
    while waiting:
        node = waiting.pop(0)
        children = [child for child, above in parents.items() if above == node]
        children.sort(key=lambda child: (overlay.delay(node, child), number[child]))
        if len(children) > room[node]:
            kept = children[: max(1, room[node])]
            if not any(room[child] for child in kept):
                with_room = [child for child in children if room[child]]
                kept = [*kept[:-1], *with_room[:1]] if with_room else kept
            for child in children:
                if child not in kept:
                    takers = [other for other in kept if room[other]] or kept
                    parents[child] = min(
                        takers,
                        key=lambda to: overlay.delay(node, to) + overlay.delay(to, child),
                    )
            children = kept
        waiting += children
    return parents


def delays(overlay: Overlay, parents: dict[int, int], source: int | None = None) -> dict[int, float]:
    """When an event of the source, or of the root, arrives at each peer."""
    late = {}
    for node in parents:
        late[node] = 0.0
        at = node
        while parents[at] >= 0:
            late[node] += overlay.delay(parents[at], at)
            at = parents[at]
        if source is not None:
            late[node] += overlay.delay(source, at)
    return late


def way(topology: Topology, source: int, target: int) -> list[int]:
    """The links between two places."""
    links = []
    while target != source:
        links.append(int(topology.via[source, target]))
        a, b = (int(end) for end in topology.link_ends[links[-1]])
        target = a if target == b else b
    return links


def ip_links(overlay: Overlay, source: int, members: list[int]) -> set[int]:
    """The links of the merged shortest paths."""
    ways = (way(overlay.topology, overlay.place[source], overlay.place[member]) for member in members)
    return {link for links in ways for link in links}
