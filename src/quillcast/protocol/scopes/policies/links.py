"""Trees whose links serve every origin: a bundle spreads over them from wherever it begins.

One tree for all origins keeps the number of links between members small: each origin uses the same ones, in the
directions that lead away from it. Trees are built from what stands, so that a small change of the group changes few
links.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from quillcast.protocol.scopes.filters import Filter
from quillcast.protocol.scopes.policy import Group, WantedChannel

Links: TypeAlias = Mapping[int, Sequence[int]]
"""Of each member, those to which it has a link; a link has no direction."""

LabelPair: TypeAlias = tuple[int, int]
"""A link as it is used: from one member to another."""

HopCost: TypeAlias = Callable[[int, int], float]
"""What it costs to pass a bundle on from one member to another."""

_EXTRA_DEPTH = 2  # a guess: a tree this much deeper than it must be is built anew


def in_order(channels: Iterable[WantedChannel]) -> tuple[WantedChannel, ...]:
    """The channels in one order, however they were found."""
    return tuple(sorted(channels, key=lambda each: (-1 if each.origin is None else each.origin, *each[:2])))


def root_of(group: Group) -> int:
    """Where a tree for the whole group begins: at its first sender that also receives, or else at a receiver."""
    receivers = frozenset(group.receivers)
    return next((each for each in group.senders if each in receivers), group.receivers[0])


def present_tree(nodes: Sequence[int], present: Iterable[WantedChannel]) -> list[LabelPair]:
    """The present links as they lead away from one origin, the first of `nodes` if it is one. Others use the same."""
    by_origin: dict[int | None, list[LabelPair]] = {}
    for source, target, origin, _ in present:
        by_origin.setdefault(origin, []).append((source, target))
    another = min((each for each in by_origin if each is not None), default=None)
    return sorted(by_origin.get(nodes[0]) or by_origin.get(another, []))


def links_of(pairs: Iterable[LabelPair], among: Iterable[int]) -> Links:
    """The links between these members that join one of the pairs, in the order of `among`."""
    rank = {each: at for at, each in enumerate(among)}
    found: dict[int, dict[int, None]] = {each: {} for each in rank}
    for one, other in pairs:
        if one in rank and other in rank and one != other:
            found[one][other] = found[other][one] = None
    return {each: sorted(others, key=rank.__getitem__) for each, others in found.items()}


def spread(
    links: Links, group: Group, entry: int, filter_: Filter | None = None, *, origins: Iterable[int] | None = None
) -> Iterator[WantedChannel]:
    """The channels for each origin: away from it over all links. One without links begins at `entry`."""
    for origin in group.senders if origins is None else origins:
        start = origin
        if origin not in links and origin != entry:
            yield WantedChannel(origin, entry, origin, filter_)
            start = entry
        around: list[tuple[int, int | None]] = [(start, None)]
        for at, before in around:
            for other in links.get(at, ()):
                if other != before:
                    yield WantedChannel(at, other, origin, filter_)
                    around.append((other, at))


class TreeBuilder:
    """A tree to which members are added where they are reached soonest, with a bound on children."""

    def __init__(self, root: int, children_max: int, hop: HopCost, hop_min: float) -> None:
        """No hop may cost less than `hop_min`."""
        self.children_max, self.hop, self.hop_min = children_max, hop, hop_min
        self.parents: dict[int, int] = {}
        self.delays = {root: 0.0}
        self._children = {root: 0}
        self._open = [(0.0, 0, root)]  # those with room for children: when they are reached, and who came first

    def place(self, node: int, parent: int) -> None:
        """Add a member below a certain one, which has room."""
        self.parents[node] = parent
        self._children[node] = 0
        self._children[parent] += 1
        if self._children[parent] == self.children_max:
            self._open = [each for each in self._open if each[2] != parent]
        delay = self.delays[node] = self.delays[parent] + self.hop(parent, node)
        insort(self._open, (delay, len(self.delays), node))

    def attach(self, node: int) -> None:
        """Add a member where it is reached soonest."""
        soonest, best = float("inf"), self._open[0][2]
        for delay, _, parent in self._open:
            if delay + self.hop_min >= soonest:
                break
            if (reached := delay + self.hop(parent, node)) < soonest:
                soonest, best = reached, parent
        self.place(node, best)

    def keep(self, start: int, links: Links) -> None:
        """Add those that are linked to a member of the tree, and those linked to them, where there is room."""
        around = [start]
        for at in around:
            for other in links.get(at, ()):
                if other not in self.delays and self._children[at] < self.children_max:
                    self.place(other, at)
                    around.append(other)

    def links(self) -> Links:
        """The tree's links; of a lone root, none."""
        return links_of(self.parents.items(), self.delays)


def build_tree(
    nodes: Sequence[int], present: Sequence[LabelPair], children_max: int, hop: HopCost | None = None
) -> TreeBuilder:
    """A tree of these members from the first one, that keeps present links where there is room.

    Without `hop`, each hop costs the same.
    """
    links = links_of(present, nodes)
    tree = TreeBuilder(nodes[0], children_max, *((_one, 1.0) if hop is None else (hop, 0.0)))
    tree.keep(nodes[0], links)
    below = {target for source, target in present if source in links}
    for node in sorted(nodes, key=below.__contains__):  # those that lost their parent first: the others follow them
        if node not in tree.delays:
            tree.attach(node)
            tree.keep(node, links)
    return tree


def shallow(nodes: Sequence[int], present: Sequence[LabelPair], children_max: int) -> TreeBuilder:
    """A tree of these members from the first one, almost as shallow as it can be, that keeps most present links."""
    tree = build_tree(nodes, _refilled(nodes, present), children_max)
    if max(tree.delays.values()) > _depth(len(nodes), children_max) + _EXTRA_DEPTH:
        tree = build_tree(nodes, (), children_max)
    return tree


def _refilled(nodes: Sequence[int], present: Sequence[LabelPair]) -> list[LabelPair]:
    """The present links, with a new member or a leaf in the place of each that left: so the tree gets no deeper."""
    below: dict[int, list[int]] = {}
    for source, target in present:
        below.setdefault(source, []).append(target)
    targets, members = {target for _, target in present}, frozenset(nodes)
    order = [each for each in below if each not in targets]
    for at in order:
        order += below.get(at, ())
        if len(order) > len(below) + len(targets):  # it is no tree
            return []
    gone = [each for each in order if each not in members and len(below.get(each, ())) + (each in targets) > 1]
    known = frozenset(order)
    new = [each for each in nodes if each not in known]
    leaves = [each for each in reversed(order) if each in members and each not in below]
    refill = dict(zip(gone, [*new, *leaves], strict=False))
    moved = frozenset(refill.values())
    return [
        (refill.get(source, source), refill.get(target, target)) for source, target in present if target not in moved
    ]


def _depth(count: int, children_max: int) -> int:
    """The depth of the most shallow tree of so many members."""
    depth, level, left = 0, 1, count - 1
    while left > 0:
        depth, level = depth + 1, level * children_max
        left -= level
    return depth


def _one(_: int, __: int) -> float:
    return 1.0
