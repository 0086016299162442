"""What is done before the first stage, so that it need not wait: compiling, and starting workers."""

from collections.abc import Sequence

import numpy as np
from pyspark.sql import SparkSession

from quillcast.evaluation import policies, treetable
from quillcast.evaluation.columns import Batches
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.experiment import Publishers
from quillcast.evaluation.stages.building import giants_count
from quillcast.evaluation.stages.stressing import burden
from quillcast.evaluation.stages.timing import measure


def warm_up_kernels(deployment: Deployment, names: Sequence[str], publishers: Publishers) -> None:
    """Have this process compile what tasks will call, on the smallest group; they find it in numba's cache."""
    arrays = deployment.arrays()
    smallest = int(np.argmin(arrays.workload.sizes))
    for name in names:
        policy = policies.parse(name)
        load = policy.load(arrays.tables, [deployment.group(smallest)]) if policy.needs_load else None
        built = policy.trees(arrays.tables, deployment.group(smallest), load)
        if policy.splittable and giants_count(deployment):
            group = deployment.group(smallest)
            policy.joined(arrays.tables, group, *policy.splittable.routes(arrays.tables, group, group.members), load)
        batches = list(treetable.tree_rows((smallest, at, tree) for at, tree in enumerate(built)))
        list(measure(iter(batches), deployment, publishers))
        list(burden(iter(batches), deployment, publishers))


def warm_up_workers(spark: SparkSession) -> None:
    """Have Spark and its workers load what the first stage would else wait for."""
    spark.range(0, 2, 1, 2).mapInArrow(_same, "id long").collect()


def _same(batches: Batches) -> Batches:
    """Being of this module, it makes a worker import it."""
    return batches
