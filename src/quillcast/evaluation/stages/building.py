"""Build the trees of each group."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.core.errors import LocalError
from quillcast.evaluation import policies, schemas, stored, treetable
from quillcast.evaluation.columns import Batches, column, record_batch
from quillcast.evaluation.deployment import Deployment, Shipped
from quillcast.evaluation.stages.deployed import SLICE_ROWS
from quillcast.evaluation.stages.grouped import by_task
from quillcast.evaluation.stages.loading import open_load
from quillcast.evaluation.tasks import pieces

GROUPS_NEEDED = "group int, members int, task int, pieces int"
NEEDED = schemas.columns(GROUPS_NEEDED)


def trees(
    groups: DataFrame, deployment: Deployment, policy: str, load: Shipped | None = None, into: Path | None = None
) -> DataFrame:
    """The trees of groups under a policy (`schemas.TREES`), in a partition for each task.

    `load` is where `save_load` wrote, for a policy that `needs_load`. With `into`, tasks write the table there
    themselves, and the result names its files (`stored`).
    """
    builder = policies.parse(policy)
    if builder.needs_load and load is None:
        raise LocalError(f"{policy} needs the load of all groups; make it with loads and save_load")

    policy = policies.portable(policy)
    giants = giants_count(deployment) if builder.splittable else 0

    def work(batches: Batches) -> Batches:
        for batch in stored.opened(batches, NEEDED):
            numbers, sizes, task = (column(batch, name) for name in ("group", "members", "task"))
            order = np.lexsort((numbers, -sizes))
            yield from build_trees(numbers[order[task[order] >= giants]].tolist(), deployment, policy, load)

    rest = stored.mapped(by_task(groups, deployment), work, schemas.TREES, into)
    if not giants:
        return rest
    rows = stored.in_tasks(groups, lambda batches: stored.opened(batches, NEEDED), GROUPS_NEEDED)
    return _giants(rows.where(rows.task < giants), giants, deployment, policy, load, into).unionAll(rest)


def giants_count(deployment: Deployment) -> int:
    """The number of groups that are split. They are the largest, so they have the first tasks, one each."""
    arrays = deployment.arrays()
    return int(np.count_nonzero(pieces(arrays.workload.sizes, len(arrays.peers)) > 1))


def _giants(
    groups: DataFrame, count: int, deployment: Deployment, policy: str, load: Shipped | None, into: Path | None
) -> DataFrame:
    """The trees of split groups: their members' routes, found piece by piece, and joined."""
    arrays = deployment.arrays()
    most = int(pieces(arrays.workload.sizes, len(arrays.peers)).max())

    def find(batches: Batches) -> Batches:
        tables, builder = deployment.arrays().tables, policies.parse(policy)
        for batch in batches:
            for row in batch.to_pylist():
                group, parts = deployment.group(row["group"]), row.pop("pieces")
                first, last = (len(group.members) * (row["piece"] + end) // parts for end in (0, 1))
                part = group.members[first:last]
                nodes, parents = builder.routes(tables, group, part)
                for first in range(0, len(nodes), SLICE_ROWS):
                    cut = slice(first, first + SLICE_ROWS)
                    yield record_batch(
                        schemas.ROUTES, row | {"nodes": nodes[cut].tobytes(), "parents": parents[cut].tobytes()}, 1
                    )

    def join(batches: Batches) -> Batches:
        arrays, builder = deployment.arrays(), policies.parse(policy)
        known = open_load(load.here()) if load else None
        rows = sorted((row for batch in batches for row in batch.to_pylist()), key=itemgetter("group", "piece"))
        for number, parts in groupby(rows, key=itemgetter("group")):
            found = [(np.frombuffer(row["nodes"], np.int32), np.frombuffer(row["parents"], np.int32)) for row in parts]
            nodes, parents = (np.concatenate(column) for column in zip(*found, strict=True))
            made = builder.joined(arrays.tables, deployment.group(number), nodes, parents, known)
            yield from treetable.tree_rows((number, at, tree) for at, tree in enumerate(made))

    told = groups.selectExpr("group", "task", "pieces", "explode(sequence(0, pieces - 1)) as piece")
    spread = told.repartitionById(most, F.expr(f"pmod(task + piece, {most})"))
    routes = stored.in_tasks(spread, find, schemas.ROUTES).repartitionById(count, "task")
    return stored.mapped(routes, join, schemas.TREES, into)


def build_trees(numbers: Sequence[int], deployment: Deployment, policy: str, load: Shipped | None = None) -> Batches:
    """The trees of these groups, one after another: the work of a task of `trees`."""
    arrays, builder = deployment.arrays(), policies.parse(policy)
    known = open_load(load.here()) if load else None
    yield from treetable.tree_rows(
        (number, at, tree)
        for number in numbers
        for at, tree in enumerate(builder.trees(arrays.tables, deployment.group(number), known))
    )


def edges(trees: DataFrame) -> DataFrame:
    """A row for each message that an event causes, and one for each root (`schemas.EDGES`)."""
    carried = trees.selectExpr("group", "tree", "weight", "inline(arrays_zip(nodes, parents, member))").selectExpr(
        "group", "tree", "nodes as node", "parents as parent", "member", "false as redundant", "weight"
    )
    further = trees.selectExpr("group", "tree", "weight", "inline(arrays_zip(extra_from, extra_to))").selectExpr(
        "group", "tree", "extra_to as node", "extra_from as parent", "false as member", "true as redundant", "weight"
    )
    return carried.unionAll(further)
