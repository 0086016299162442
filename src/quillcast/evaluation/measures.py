"""Further figures of each group, computed from its trees: those that an experiment lists as its `metrics`."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation import plugins, schemas
from quillcast.evaluation.network import Flags, Group, Ints, Tree
from quillcast.evaluation.routing.pastry import Tables, Whole


class Metric(ABC):
    """A figure of a group's events. To add one, derive a class in any package and name it like a policy."""

    @abstractmethod
    def measure(self, tables: Tables, group: Group, trees: list[Tree], source: int) -> float:
        """The value for the events of one source, from the trees that carry them; NaN if there is none."""


METRICS = plugins.Kind("metric", "quillcast.metrics", Metric, {"hops": "quillcast.evaluation.measures:Hops"})


class Hops(Metric):
    """Messages between peers one after another, from the source to a member, on average over the other members."""

    def measure(self, tables: Tables, group: Group, trees: list[Tree], source: int) -> float:
        """Trees count by their weight. A source that is not the root sends to the root first."""
        counted = [(tree.weight, *_hops(tree.nodes, tree.parent, tree.member, source)) for tree in trees]
        members = sum(weight * count for weight, _, count in counted)
        return sum(weight * hops for weight, hops, _ in counted) / members if members else float("nan")


class Measured:
    """The metrics of an experiment, each a column of the table of delays."""

    def __init__(self, names: Sequence[str]) -> None:
        self.columns = {column_of(name): METRICS.make(name) for name in names}
        taken = [name for name in self.columns if name in schemas.columns(schemas.DELAYS)]
        if taken or len(self.columns) < len(names):
            raise LocalError(f"metrics {', '.join(names)}: two figures have the same name; rename the class of one")

    @property
    def schema(self) -> str:
        """The columns, to be appended to `schemas.DELAYS`."""
        return "".join(f", {name} double" for name in self.columns)

    def of(self, tables: Tables, group: Group, trees: list[Tree], source: int) -> dict[str, float]:
        """The values of one row."""
        values = {}
        for name, metric in self.columns.items():
            what = f"metric {name} failed on group {group.number} of {len(group.members):,} members"
            with plugins.blaming(metric, what):
                values[name] = float(metric.measure(tables, group, trees, source))
        return values


def column_of(name: str) -> str:
    """The name of a metric's column: its class or entry point, with its arguments."""
    return re.sub(r"\W+", "_", name.rpartition(":")[2]).strip("_")


@njit(cache=True)
def _hops(nodes: Ints, parent: Ints, member: Flags, source: Whole) -> tuple[int, int]:
    """The sum of the hops to all members but the source, and their number."""
    depth = np.zeros(len(nodes), np.int32)
    depth[0] = nodes[0] != source
    total, members = 0, 0
    for node in range(len(nodes)):
        if node:
            depth[node] = depth[parent[node]] + 1
        if member[node] and nodes[node] != source:
            total += depth[node]
            members += 1
    return total, members
