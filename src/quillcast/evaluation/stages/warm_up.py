"""Warm-up before the first stage: compile kernels, and start workers."""

from collections.abc import Sequence

import numpy as np
from pyspark.sql import SparkSession

from quillcast.evaluation import policies, treetable
from quillcast.evaluation.columns import Batches
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.stages.building import giants_count
from quillcast.evaluation.stages.stressing import burden
from quillcast.evaluation.stages.timing import measure


def warm_up_kernels(deployment: Deployment, names: Sequence[str], metrics: Sequence[str] = ()) -> None:
    """Compile the kernels of tasks in this process, on the smallest group. Tasks find them in numba's cache."""
    arrays = deployment.arrays()
    smallest = int(np.argmin(arrays.workload.sizes))
    for name in names:
        policy = policies.parse(name)
        load = policy.load(arrays.tables, [deployment.group(smallest)]) if policy.needs_load else None
        built = policy.trees(arrays.tables, deployment.group(smallest), load)
        if policy.splittable and giants_count(deployment):
            group = deployment.group(smallest)
            policy.joined(arrays.tables, group, *policy.routes(arrays.tables, group, group.members), load)
        batches = list(treetable.tree_rows((smallest, at, tree) for at, tree in enumerate(built)))
        list(measure(iter(batches), deployment, metrics))
        list(burden(iter(batches), deployment))


def warm_up_workers(spark: SparkSession) -> None:
    """Have Spark and its workers load the libraries that the first stage would otherwise wait for."""
    spark.range(0, 2, 1, 2).mapInArrow(_same, "id long").collect()


def _same(batches: Batches) -> Batches:
    """A function of this module, so that a worker has to import the module."""
    return batches
