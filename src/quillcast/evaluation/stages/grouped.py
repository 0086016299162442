"""The input of stages: groups by task, and trees by group."""

from collections.abc import Iterator

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.evaluation import schemas, stored, treetable
from quillcast.evaluation.columns import Batches
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.network import Tree
from quillcast.evaluation.tasks import tasks


def by_task(groups: DataFrame, deployment: Deployment) -> DataFrame:
    """Groups as rows, in a partition for each task; or the files of the table, one for each task."""
    if groups.columns == schemas.columns(schemas.FILES):
        return groups
    arrays = deployment.arrays()
    count = int(tasks(np.sort(arrays.workload.sizes)[::-1], len(arrays.peers))[-1]) + 1
    return groups.select("group", "members", "task", "pieces").repartitionById(count, F.col("task"))


def by_group(batches: Batches, peers: int, needed: list[str]) -> Iterator[tuple[int, list[Tree]]]:
    """Each group of a partition with all its trees."""
    number = -1
    built: list[Tree] = []
    for group, _, tree in treetable.whole_trees(stored.opened(batches, needed), peers):
        if built and group != number:
            yield number, built
            built = []
        number = group
        built.append(tree)
    if built:
        yield number, built
