"""Collapse: a peer that is not a member and has one child leaves the tree (Scribe, section 5.4)."""

import numpy as np
from numba import njit

from quillcast.evaluation.network import Flags, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, Modifier, tree_of
from quillcast.evaluation.routing.pastry import Tables


class Collapse(Modifier):
    """Replaces long paths through peers that only forward to one child by one hop. The root stays."""

    def change(self, tables: Tables, group: Group, tree: Tree, load: Load | None) -> Tree:
        """The tree without them. Remaining nodes also handled the removed nodes' Joins and leaves."""
        keep = stays(tree.parent, tree.member)
        nodes, parent = without(tree.nodes, tree.parent, keep)
        gone = np.bincount(parent[1:], (~keep[tree.parent])[keep][1:], minlength=len(nodes))
        joins = tree.joins[keep] + gone.astype(np.int32)
        made = tree_of(nodes, parent, tree.member[keep], weight=tree.weight, joins=joins)
        return made._replace(extra=tree.extra, source=tree.source)


def stays(parent: Ints, member: Flags) -> Flags:
    """The nodes that stay: the root, members, and those with no child or several, bool [nodes]."""
    keep = member | (np.bincount(parent[1:], minlength=len(parent)) != 1)
    keep[0] = True
    return np.asarray(keep, np.bool_)


@njit(cache=True)
def without(nodes: Ints, parent: Ints, keep: Flags) -> tuple[Ints, Ints]:
    """The tree of the kept nodes: each is placed below its nearest kept ancestor. Parents come first."""
    place = np.empty(len(nodes), np.int32)
    kept_nodes, kept_parent = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int32)
    count = 0
    for node in range(len(nodes)):
        above = place[parent[node]] if node else np.int32(-1)
        place[node] = above
        if keep[node]:
            kept_nodes[count], kept_parent[count] = nodes[node], above
            place[node] = count
            count += 1
    return kept_nodes[:count], kept_parent[:count]
