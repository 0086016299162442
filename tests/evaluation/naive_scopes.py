"""Slow, obvious twins of `scoped` and `improve`: dictionaries of parents, in single precision as the kernels reckon."""

import math
from collections import defaultdict

import numpy as np

from quillcast.evaluation.chance import below, mix
from quillcast.evaluation.network import Peers, Topology
from tests.evaluation.naive import Overlay

Parents = dict[int, int]
"""The parent of each peer in the tree; -1 for the root."""

LEVELS = range(1, 4)  # regions, domains, places


def regions(topology: Topology) -> list[int]:
    """The one place at which all of a place's traffic leaves its domain; where there is none such, a number for it."""
    told = []
    for place in range(topology.places):
        ways_out = set()
        for far in range(topology.places):
            out, here = -1, far
            while here != place:
                out = here if topology.domain[here] != topology.domain[place] else out
                here = int(topology.link_ends[topology.via[place, here]].sum()) - here
            ways_out |= {out} - {-1}
        told.append(ways_out.pop() if len(ways_out) == 1 else topology.places + int(topology.domain[place]))
    return told


class Scopes:
    """In which scope of a level each peer is: everything, its region, its domain, its place."""

    def __init__(self, topology: Topology, peers: Peers) -> None:
        region = regions(topology)
        at = [int(place) for place in peers.place]
        self._of = [(0, region[place], int(domain), place) for place, domain in zip(at, peers.domain, strict=True)]

    def of(self, peer: int, level: int) -> int:
        return self._of[peer][level]


def scoped(overlay: Overlay, scopes: Scopes, key: int, members: list[int], cap: int, stretch: float) -> Parents:
    """Each scope joins once, below its outer scope's entry point, by its member nearest to the root."""
    tree = Builder(overlay, overlay.root_of(key))
    joined = {tree.root}
    for level in LEVELS:
        room = cap - (4 - level) * cap // 8
        entered = {scopes.of(peer, level) for peer in tree.parent}
        outer: dict[int, int] = {}
        for peer in tree.parent:
            outer.setdefault(scopes.of(peer, level - 1), peer)
        without = {scopes.of(peer, level) for peer in members} - entered
        for scope in shuffled(sorted(without), key):
            there = [peer for peer in members if scopes.of(peer, level) == scope]
            entry = min(there, key=lambda peer: (overlay.delay(tree.root, peer), int(mix(key, 0, peer))))
            inside = [peer for peer in tree.parent if scopes.of(peer, level - 1) == scopes.of(entry, level - 1)]
            at = outer[scopes.of(entry, level - 1)]
            while (further := tree.on_the_way(at, entry, stretch, inside, room)) >= 0:
                at = further
            tree.attach(entry, at)
            joined.add(entry)
    queues: dict[int, list[int]] = defaultdict(list)
    for peer in tree.parent:
        queues[overlay.place[peer]] = queues[overlay.place[peer]] or [peer]
    for peer in [peer for peer in members if peer not in joined]:
        queue = queues[overlay.place[peer]]
        while len(tree.children[queue[0]]) >= cap:
            queue.pop(0)
        tree.attach(peer, queue[0])
        queue.append(peer)
    return tree.parent


def shuffled(scopes: list[int], key: int) -> list[int]:
    """Fisher and Yates, with the group's key for dice."""
    for last in range(len(scopes) - 1, 0, -1):
        other = int(below(mix(key, 1, last), last + 1))
        scopes[last], scopes[other] = scopes[other], scopes[last]
    return scopes


class Builder:
    """A tree while it grows; children are looked at from the newest on."""

    def __init__(self, overlay: Overlay, root: int) -> None:
        self.overlay, self.root = overlay, root
        self.parent: Parents = {root: -1}
        self.children: dict[int, list[int]] = defaultdict(list)
        self.late = {root: np.float32(0)}

    def attach(self, peer: int, parent: int) -> None:
        self.parent[peer] = parent
        self.children[parent].insert(0, peer)
        self.late[peer] = self.late[parent] + self.overlay.delay(parent, peer)

    def on_the_way(self, at: int, peer: int, stretch: float, inside: list[int], room: int) -> int:
        """The child to go on to; -1 to stay.

        It is the nearest that is nearer and no detour, or where there is no room the one by which the root is nearest.
        """
        fit = [child for child in self.children[at] if child in inside]
        apart = {child: self.overlay.delay(child, peer) for child in fit}
        most = float(self.overlay.delay(self.root, peer)) * stretch
        direct = [c for c in fit if self.late[c] + apart[c] <= most and apart[c] < self.overlay.delay(at, peer)]
        if direct:
            return min(direct, key=lambda child: apart[child])
        if len(self.children[at]) < room:
            return -1
        return min(fit, key=lambda child: self.late[child] + apart[child])


class Improving:
    """Peers that look for better parents, in rounds from the root down.

    Args:
        overlay: where peers are.
        scopes: which nobody leaves that it shares with its parent, but those that are too late.
        nodes: the tree's peers, in the order in which it lists them.
        parents: by peer.
        members: who subscribed.
    """

    def __init__(self, overlay: Overlay, scopes: Scopes, nodes: list[int], parents: Parents, members: set[int]) -> None:
        self.overlay, self.scopes, self.nodes, self.members = overlay, scopes, nodes, members
        self.parent, self.root = dict(parents), nodes[0]

    def rounds(self, count: int, cap: int, weight: float, weight_late: float, reach: float, mean_max: float) -> Parents:
        direct = [self.overlay.delay(self.root, peer) for peer in self.members]
        self.cap, self.weight, self.late_max = cap, weight, float(reach * float(max(direct, default=0)))
        self.weight_late, self.sum_max = weight_late, mean_max * sum(map(float, direct))
        for _ in range(count):
            if not self.round():
                break
        return self.parent

    def round(self) -> bool:
        self.children: dict[int, list[int]] = {peer: [] for peer in self.nodes}
        for peer in reversed(self.nodes):
            if peer != self.root:
                self.children[self.parent[peer]].insert(0, peer)
        order = [self.root]
        for peer in order:
            order += self.children[peer]
        self.measure(order)
        if sum(float(self.late[peer]) for peer in self.members) > self.sum_max:
            self.weight = self.weight_late
        moved = False
        for peer in order[1:]:
            above = self.parent[peer]
            self.late[peer] = self.late[above] + self.overlay.delay(above, peer)
            if self.overlay.place[peer] != self.overlay.place[above]:
                better = self.best(peer)
                if better is not None:
                    self.move(peer, better)
                    moved = True
        return moved

    def measure(self, order: list[int]) -> None:
        self.late = {self.root: np.float32(0)}
        for peer in order[1:]:
            self.late[peer] = self.late[self.parent[peer]] + self.overlay.delay(self.parent[peer], peer)
        self.height = {peer: np.float32(0) for peer in order}
        for peer in reversed(order[1:]):
            above = self.parent[peer]
            reach = self.height[peer] + self.late[peer] - self.late[above]
            self.height[above] = max(self.height[above], reach)

    def members_below(self, peer: int) -> int:
        return (peer in self.members) + sum(self.members_below(child) for child in self.children[peer])

    def best(self, peer: int) -> int | None:
        """Out of siblings, grandparent, parent's siblings, in this order, the first by which most is gained."""
        above = self.parent[peer]
        known = list(self.children[above])
        if above != self.root:
            grandparent = self.parent[above]
            known += [grandparent, *self.children[grandparent]]
        gains = {other: self.gain(peer, other) for other in known}
        better = [other for other in gains if gains[other] > np.float32(1e-3)]
        return max(better, key=lambda other: gains[other]) if better else None

    def gain(self, peer: int, other: int) -> float:
        above = self.parent[peer]
        if other in (peer, above) or len(self.children[other]) >= self.cap:
            return -1.0
        now, then = self.late[peer] - self.late[above], self.overlay.delay(other, peer)
        later = self.late[other] + then - self.late[peer]
        latest = self.late[peer] + self.height[peer]
        if float(latest) > self.late_max and later < 0:
            return np.float32(self.late_max - float(later))
        level = max(at for at in range(3) if self.scopes.of(above, at) == self.scopes.of(peer, at))
        if self.scopes.of(other, level) != self.scopes.of(peer, level):
            return -1.0
        if later > 0 and float(latest + later) > self.late_max:
            return -1.0
        nearer = 0.2 * self.late_max * math.log((float(now) + 1e-6) / (float(then) + 1e-6))
        return np.float32(nearer - self.weight * math.sqrt(self.members_below(peer)) * float(later))

    def move(self, peer: int, better: int) -> None:
        self.children[self.parent[peer]].remove(peer)
        self.children[better].insert(0, peer)
        self.parent[peer] = better
        apart = self.overlay.delay(better, peer)
        self.late[peer] = self.late[better] + apart
        self.height[better] = max(self.height[better], self.height[peer] + apart)
