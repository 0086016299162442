"""Repair trees after many deaths."""

from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame

from quillcast.evaluation import churn, schemas, stored, treetable, workload
from quillcast.evaluation.columns import Batches, record_batch
from quillcast.evaluation.deployment import Deployment, Shipped
from quillcast.evaluation.stages.grouped import by_group


def repairs(trees: DataFrame, deployment: Deployment, survivors: Shipped, into: Path | None = None) -> DataFrame:
    """The repair of the trees after many deaths (`schemas.CHURN`); the other arguments are those of `delays`.

    `survivors` is where `deployment.make_survivors` wrote.
    """

    def work(batches: Batches) -> Batches:
        arrays = deployment.arrays()
        alive = churn.load(survivors.here(), arrays.topology)
        where = np.full(len(alive.tables.ids), -1, np.int32)
        for number, built in by_group(batches, len(arrays.peers), treetable.SHAPE):
            key = int(workload.key(number, deployment.seed))
            keys = [key if tree.source < 0 else int(arrays.peers.ids[tree.source]) for tree in built]
            repaired = [churn.repair(alive, tree, key, where) for tree, key in zip(built, keys, strict=True)]
            orphans = sum(each.orphans for each in repaired)
            told = {
                "group": number,
                "killed": repaired[0].killed,
                "cut_off": max(each.cut_off for each in repaired),
                "orphans": orphans,
                "messages": sum(each.messages for each in repaired),
                "max_ms": max(each.max_ms for each in repaired),
                "mean_ms": sum(each.mean_ms * each.orphans for each in repaired) / max(1, orphans),
            }
            yield record_batch(schemas.CHURN, told, 1)

    return stored.mapped(trees, work, schemas.CHURN, into)
