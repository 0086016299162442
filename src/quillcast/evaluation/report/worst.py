"""The tree whose events are latest relative to IP multicast, and as much of it as can be drawn."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyarrow import compute, parquet

from quillcast.evaluation import metrics
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.network import Tree
from quillcast.evaluation.treetable import whole_trees

NODES_MAX = 20_000  # the largest tree that is fetched; a guess
DRAWN_MAX = 60  # the most peers that are readable on a page

Row = dict[str, Any]


class Worst(NamedTuple):
    """A tree to draw.

    `rows` and `subscribers` are in the form of `pictures.tree`. They contain `drawn` of the tree's `nodes`.
    """

    policy: str
    group: int
    members: int
    nodes: int
    rad: float
    rmd: float
    drawn: int
    rows: list[Row]
    subscribers: set[str]


def find(delays: Path, trees: Path, deployment: Deployment, policy: str) -> Worst | None:
    """A policy's tree with the worst ratio of averages that is small enough to be fetched; None if there is none."""
    all_rows = parquet.read_table(delays)
    fit = all_rows.filter((compute.field("nodes") <= NODES_MAX) & ~compute.field("rad").is_nan())
    if not fit.num_rows:
        return None
    (row,) = fit.sort_by([("rad", "descending"), ("group", "ascending")]).slice(0, 1).to_pylist()
    arrays = deployment.arrays()
    batches = parquet.read_table(trees, filters=compute.field("group") == row["group"]).sort_by("tree").to_batches()
    built = [tree for _, _, tree in whole_trees(iter(batches), len(arrays.peers))]
    tree = metrics.carried(built, row["source"])[0]
    late = metrics.delays_ms(arrays.tables, tree, row["source"])
    kept = _kept(tree, late)
    names = [f"#{peer} · {ms:.0f} ms" for peer, ms in zip(tree.nodes.tolist(), late.tolist(), strict=True)]
    depth = np.zeros(len(tree.nodes), np.int64)
    for node in range(1, len(tree.nodes)):
        depth[node] = depth[tree.parent[node]] + 1
    rows = [
        {
            "peer": names[node],
            "parent": names[tree.parent[node]] if node else None,
            "is_root": not node,
            "depth": int(depth[node]),
        }
        for node in kept
    ]
    subscribers = {names[node] for node in kept if tree.member[node]}
    told = (policy, row["group"], row["members"], row["nodes"], row["rad"], row["rmd"])
    return Worst(*told, len(kept), rows, subscribers)


def _kept(tree: Tree, late: Any) -> list[int]:
    """The latest members, and all nodes on their paths from the root."""
    kept: dict[int, None] = {}
    for node in np.argsort(-np.where(tree.member, late, -1), kind="stable").tolist():
        way = []
        at = node
        while at >= 0 and at not in kept:
            way.append(at)
            at = int(tree.parent[at])
        if len(kept) + len(way) > DRAWN_MAX:
            break
        kept |= dict.fromkeys(way)
    return sorted(kept)
