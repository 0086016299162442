"""The deployment as tables: places, links, peers and groups."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from quillcast.evaluation import schemas, stored, workload
from quillcast.evaluation.columns import Batches, Columns, column, record_batch
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.tasks import pieces as pieces_of
from quillcast.evaluation.tasks import tasks

PARTS_MAX, TASK_ROWS = 8, 50_000  # of a table whose rows are only copied; guesses
SLICE_ROWS = 1 << 19  # of a batch that a kernel passes to Spark


def places(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The places of the topology (`schemas.PLACES`).

    With `into`, tasks write the table there themselves, and the result names its files (`stored`).
    """

    def rows(first: int, last: int) -> Columns:
        topology = deployment.arrays().topology
        attachable = np.zeros(topology.routers, np.bool_)
        attachable[topology.attachable] = True
        names = np.array(topology.place_names or [str(place) for place in range(topology.routers)], np.object_)
        numbers = np.arange(first, last, dtype=np.int32)
        part = slice(first, last)
        return {
            "place": numbers,
            "domain": topology.domain[part],
            "attachable": attachable[part],
            "name": names[part],
        }

    return _numbered(spark, deployment.arrays().topology.routers, rows, schemas.PLACES, into)


def links(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The core links of the topology (`schemas.LINKS`). Arguments as for `places`."""

    def rows(first: int, last: int) -> Columns:
        topology = deployment.arrays().topology
        ends = topology.link_ends[first:last]
        numbers = np.arange(first, last, dtype=np.int32)
        return {
            "link": numbers,
            "from_place": ends[:, 0],
            "to_place": ends[:, 1],
            "delay_ms": topology.link_ms[first:last],
        }

    return _numbered(spark, len(deployment.arrays().topology.link_ends), rows, schemas.LINKS, into)


def peers(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The peers (`schemas.PEERS`). Arguments as for `places`."""

    def rows(first: int, last: int) -> Columns:
        attached = deployment.arrays().peers
        return {
            "peer": np.arange(first, last, dtype=np.int32),
            "id": attached.ids[first:last].view(np.int64),
            "place": attached.place[first:last],
            "domain": attached.domain[first:last],
        }

    return _numbered(spark, len(deployment.arrays().peers), rows, schemas.PEERS, into)


def groups(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The groups of the workload, and their tasks (`schemas.GROUPS`).

    Arguments as for `places`. Written by tasks, it has a file for each task of the following stages.
    """
    sizes, count = deployment.arrays().workload.sizes, len(deployment.arrays().peers)
    order = np.argsort(-sizes.astype(np.int64), kind="stable").astype(np.int32)
    task, pieces = tasks(sizes[order], count), pieces_of(sizes[order], count)

    def rows(first: int, last: int) -> Columns:
        numbers = order[first:last]
        keys = np.array([workload.key(int(number), deployment.seed) for number in numbers], np.uint64)
        names = deployment.arrays().workload.group_names or [""] * len(sizes)
        return {
            "group": numbers,
            "name": np.array([names[number] for number in numbers], np.object_),
            "key": keys.view(np.int64),
            "members": sizes[numbers],
            "task": task[first:last],
            "pieces": pieces[first:last],
        }

    if into is None:
        return _numbered(spark, len(sizes), rows, schemas.GROUPS, into, parts=1)
    into.mkdir(parents=True, exist_ok=True)
    edges = np.searchsorted(task, np.arange(task[-1] + 2)).tolist()

    def by_task(batches: Batches) -> Batches:
        for _ in batches:
            for number, (first, last) in enumerate(pairwise(edges)):
                yield from stored.write(_sliced(rows, schemas.GROUPS, first, last), schemas.GROUPS, into, number)

    return stored.in_tasks(spark.range(0, 1, 1, 1), by_task, schemas.FILES)


def _numbered(
    spark: SparkSession, count: int, rows: Callable[[int, int], Columns], schema: str, into: Path | None, parts: int = 0
) -> DataFrame:
    """A table whose rows are computed from their numbers, by ranges."""
    parts = parts or max(1, min(PARTS_MAX, count // TASK_ROWS))

    def compute(batches: Batches) -> Batches:
        for batch in batches:
            for part in column(batch, "id").tolist():
                first, last = count * part // parts, count * (part + 1) // parts
                yield from _sliced(rows, schema, first, last)

    return stored.mapped(spark.range(0, parts, 1, parts), compute, schema, into)


def _sliced(rows: Callable[[int, int], Columns], schema: str, first: int, last: int) -> Batches:
    for begin in range(first, last, SLICE_ROWS):
        end = min(begin + SLICE_ROWS, last)
        yield record_batch(schema, rows(begin, end), end - begin)
