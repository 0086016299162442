"""Naive unicast: each publisher sends directly to each member."""

import numpy as np

from quillcast.evaluation.network import Group, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel, tree_of
from quillcast.evaluation.policies.members import first, publishers
from quillcast.evaluation.routing.pastry import Tables


class Unicast(PolicyKernel):
    """One message per member from the publisher, which keeps the list.

    Chu, Rao and Zhang compare with it as naive unicast ("A case for end system multicast", SIGMETRICS 2000, section 2).
    """

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """A tree for each publisher: the other members below it."""
        return [star(publisher, group)._replace(source=publisher) for publisher in publishers(group)]


def star(root: int, group: Group) -> Tree:
    """The tree in which the root sends to each member."""
    nodes = first(root, group.members)
    member = np.ones(len(nodes), np.bool_)
    member[0] = len(nodes) == len(group.members)
    parent = np.zeros(len(nodes), np.int32)
    parent[0] = -1
    return tree_of(nodes, parent, member)
