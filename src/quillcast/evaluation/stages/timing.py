"""Delays of events."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from pyspark.sql import DataFrame

from quillcast.evaluation import metrics, schemas, stored, treetable
from quillcast.evaluation.columns import Batches, record_batch
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.measures import METRICS, Measured
from quillcast.evaluation.network import Tree
from quillcast.evaluation.routing.pastry import Tables
from quillcast.evaluation.stages.grouped import by_group


def delays(
    trees: DataFrame, deployment: Deployment, into: Path | None = None, metrics: Sequence[str] = ()
) -> DataFrame:
    """Delays of each group's events, relative to IP multicast from the same source (`schemas.DELAYS`).

    Each of the `metrics` is a further column. `trees` are the result of `trees`, or read from a table with `SETTINGS`,
    or the files of one. With `into`, tasks write the table there themselves, and the result names its files (`stored`).
    """
    names = [METRICS.portable(name) for name in metrics]
    schema = schemas.DELAYS + Measured(names).schema
    return stored.mapped(trees, lambda batches: measure(batches, deployment, names), schema, into)


def measure(batches: Batches, deployment: Deployment, names: Sequence[str] = ()) -> Batches:
    """Delays in these trees: the work of a task of `delays`."""
    arrays, measured = deployment.arrays(), Measured(names)
    rows = [
        row | measured.of(arrays.tables, group, metrics.carried(built, row["source"]), row["source"])
        for number, built in by_group(batches, len(arrays.peers), treetable.SHAPE)
        for group in (deployment.group(number),)
        for row in _delays_of(arrays.tables, number, built, deployment.sources(number).tolist())
    ]
    if rows:
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        yield record_batch(schemas.DELAYS + measured.schema, columns, len(rows))


def _delays_of(tables: Tables, number: int, built: list[Tree], sources: list[int]) -> Iterator[dict[str, Any]]:
    """The rows of a group in `schemas.DELAYS`."""
    trees: list[Tree] = []
    for source in sources:
        if not trees or len(trees) < len(built):  # otherwise it shares the trees of the previous source
            trees = metrics.carried(built, source)
            alike = _alike(tables, trees)
        sent = [tree for tree in trees if tree.nodes[0] != source]
        border = [tree for tree in sent if tables.domain[tree.nodes[0]] != tables.domain[source]]
        yield {
            **alike,
            **metrics.ratios(tables, trees, source)._asdict(),
            "group": number,
            "source": source,
            "messages": alike["messages"] + sum(tree.weight for tree in sent),
            "border_copies": alike["border_copies"] + sum(tree.weight for tree in border),
        }


def _alike(tables: Tables, trees: list[Tree]) -> dict[str, Any]:
    """The values that are equal for all sources that share these trees: everything from the roots on."""
    if trees[1:]:
        parents = np.concatenate([tree.nodes[tree.parent[1:]] for tree in trees])
        children = np.unique(parents, return_counts=True)[1]
        nodes = len(np.unique(np.concatenate([tree.nodes for tree in trees])))
    else:
        children, nodes = np.bincount(trees[0].parent[1:]), len(trees[0].nodes)
    from_root = metrics.ratios(tables, trees)
    return {
        "members": int(np.count_nonzero(trees[0].member)),
        "nodes": nodes,
        "depth": max(_depth(tree.parent) for tree in trees),
        "children_max": int(children.max(initial=0)),
        "messages": sum(tree.weight * (len(tree.nodes) - 1 + len(tree.extra)) for tree in trees),
        "border_copies": sum(tree.weight * metrics.crossings(tables, tree) for tree in trees),
        "rmd_from_root": from_root.rmd,
        "rad_from_root": from_root.rad,
    }


@njit("int64(int32[::1])", cache=True)
def _depth(parent: npt.NDArray[np.int32]) -> int:
    """The greatest number of steps from the root to a node."""
    depth = np.zeros(len(parent), np.int32)
    deepest = 0
    for node in range(1, len(parent)):
        depth[node] = depth[parent[node]] + 1
        deepest = max(deepest, depth[node])
    return deepest
