"""Functions for policies whose trees consist of members only, without other forwarders."""

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.chance import Word, below, mix
from quillcast.evaluation.network import Group, Ints, Tree
from quillcast.evaluation.policies.kernel import tree_of
from quillcast.evaluation.workload import creator

_ORDER = 32  # purpose of the random draw


class GroupTooLarge(LocalError):
    """The group has more members than this policy can be evaluated for. The message names all three."""


def check_size(policy: str, group: Group, most: int, why: str) -> None:
    """Raise `GroupTooLarge` if the group has more than `most` members; `why` says what grows too fast."""
    if len(group.members) > most:
        raise GroupTooLarge(
            f"group {group.number} has {len(group.members):,} members, and {policy} is evaluated "
            f"for at most {most:,}, as {why}; leave it out, or take smaller groups"
        )


def check_argument(what: str, value: object, least: int, most: int) -> int:
    """A policy's argument as a number. Raises `LocalError` if it is not a number from `least` to `most`."""
    if not isinstance(value, int) or not least <= value <= most:
        raise LocalError(f"{what} is {value}; it must be a number from {least:,} to {most:,}")
    return value


def publishers(group: Group) -> list[int]:
    """The peers that publish in the group; the creator if they are unspecified."""
    return group.publishers.tolist() or [creator(group)]


def sources(group: Group, nodes: Ints) -> list[tuple[int, int]]:
    """For a system in which every member can send: the index in `nodes` where each tree starts, and its `source`.

    A tree for each publisher. If one of them is not a member, all send to the first node.
    """
    place = {int(node): at for at, node in enumerate(nodes)}
    starts = [(place.get(publisher, -1), publisher) for publisher in publishers(group)]
    return starts if all(at >= 0 for at, _ in starts) else [(0, -1)]


def without_membership(trees: list[Tree]) -> list[Tree]:
    """Trees over one membership. Only the first one counts its entries and messages."""
    none = np.zeros_like(trees[0].state)
    return [trees[0], *(tree._replace(state=none, joins=none) for tree in trees[1:])]


def first(root: int, others: Ints) -> Ints:
    """The root, and then the others in their order without the root, int32."""
    return np.concatenate((np.array([root], np.int32), others[others != root]), dtype=np.int32)


def in_random_order(group: Group, source: int) -> Ints:
    """The source, and then the other members in random order by the group's seed: the order in which they join."""
    nodes = first(source, group.members)
    nodes[1:] = nodes[1:][_shuffle(np.uint64(group.seed), len(nodes) - 1)]
    return nodes


@njit("int32[::1](uint64, int64)", cache=True)
def _shuffle(seed: Word, count: int) -> Ints:
    """The numbers below `count` in random order (Fisher and Yates)."""
    order = np.arange(count).astype(np.int32)
    for last in range(count - 1, 0, -1):
        other = np.int64(below(mix(seed, np.uint64(_ORDER), np.uint64(last)), np.uint64(last + 1)))
        order[last], order[other] = order[other], order[last]
    return order


def tree_of_members(nodes: Ints, parent: Ints, *, state: Ints | None = None, joins: Ints | None = None) -> Tree:
    """The `Tree` of nodes that all subscribed, the first of them its root. Other arguments as for `tree_of`."""
    return tree_of(nodes, parent, np.ones(len(nodes), np.bool_), state=state, joins=joins)


def planned(nodes: Ints, parent: Ints) -> Tree:
    """A tree that its root planned with all members known: each member asks it for a parent to join."""
    asked = np.bincount(parent[1:], minlength=len(nodes)).astype(np.int32)
    asked[0] += len(nodes) - 1
    return tree_of_members(nodes, parent, joins=asked)
