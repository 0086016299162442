"""Delays of events."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from pyspark.sql import DataFrame

from quillcast.evaluation import metrics, schemas, stored, treetable
from quillcast.evaluation.columns import Batches, record_batch
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.experiment import Publishers
from quillcast.evaluation.measures import METRICS, Measured
from quillcast.evaluation.network import Tree
from quillcast.evaluation.routing.pastry import Tables
from quillcast.evaluation.stages.grouped import by_group, sources


def delays(
    trees: DataFrame,
    deployment: Deployment,
    publishers: Publishers = "root",
    into: Path | None = None,
    metrics: Sequence[str] = (),
) -> DataFrame:
    """Delays of each group's events, relative to IP multicast from the same source (`schemas.DELAYS`).

    Each of the `metrics` is a further column. `trees` are the result of `trees`, or read from a table with `SETTINGS`,
    or the files of one. With `into`, tasks write the table there themselves, and the result names its files (`stored`).
    """
    metrics = [METRICS.portable(name) for name in metrics]
    return stored.mapped(
        trees,
        lambda batches: measure(batches, deployment, publishers, metrics),
        schemas.DELAYS + Measured(metrics).schema,
        into,
    )


def measure(batches: Batches, deployment: Deployment, publishers: Publishers, metrics: Sequence[str] = ()) -> Batches:
    """Delays in these trees: the work of a task of `delays`."""
    arrays, measured = deployment.arrays(), Measured(metrics)
    rows = [
        _delays_of(arrays.tables, number, built, source)
        | measured.of(arrays.tables, deployment.group(number), built, source)
        for number, built in by_group(batches, len(arrays.peers), treetable.SHAPE)
        for source in sources(publishers, built, number, deployment).tolist()
    ]
    if rows:
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        yield record_batch(schemas.DELAYS + measured.schema, columns, len(rows))


def _delays_of(tables: Tables, number: int, built: list[Tree], source: int) -> dict[str, Any]:
    """One row of `schemas.DELAYS`."""
    root = int(built[0].nodes[0])
    members = built[0].member
    if built[1:]:
        parents = np.concatenate([tree.nodes[tree.parent[1:]] for tree in built])
        children = np.unique(parents, return_counts=True)[1]
        nodes = len(np.unique(np.concatenate([tree.nodes for tree in built])))
    else:
        children, nodes = np.bincount(built[0].parent[1:]), len(built[0].nodes)
    return {
        "group": number,
        "source": source,
        "members": int(np.count_nonzero(members)),
        "nodes": nodes,
        "depth": max(_depth(tree.parent) for tree in built),
        "children_max": int(children.max(initial=0)),
        "messages": sum(tree.weight * (len(tree.nodes) - 1 + len(tree.extra)) for tree in built) + (source != root),
        "border_copies": sum(tree.weight * metrics.crossings(tables, tree) for tree in built),
        **metrics.ratios(tables, built, -1 if source == root else source)._asdict(),
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
