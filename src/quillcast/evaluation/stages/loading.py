"""The load of all groups on each peer, for policies that must know it beforehand."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame

from quillcast.evaluation import policies, schemas, stored, sums
from quillcast.evaluation.columns import Batches, column, record_batch
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.network import frozen
from quillcast.evaluation.policies.kernel import Load
from quillcast.evaluation.stages.grouped import by_task


def loads(groups: DataFrame, deployment: Deployment, policy: str, into: Path | None = None) -> DataFrame:
    """The load of all groups on each peer (`schemas.LOADS`), for policies that must know it beforehand.

    Arguments as for `trees`.
    """
    figures, policy = schemas.columns(schemas.LOADS)[1:], policies.portable(policy)

    def count(batches: Batches) -> Batches:
        arrays, builder = deployment.arrays(), policies.parse(policy)
        opened = stored.opened(batches, ["group"])
        numbers = [number for batch in opened for number in column(batch, "group").tolist()]
        load = builder.load(arrays.tables, (deployment.group(number) for number in numbers))
        yield from sums.partials("peer", [load.entries, load.trees, *load.capped.T], 0)

    def rows(kind: str, numbers: npt.NDArray[Any], total: sums.Sums) -> pa.RecordBatch:
        columns = {"peer": numbers} | dict(zip(figures, total, strict=True))
        return record_batch(schemas.LOADS, columns, len(numbers))

    counts = {"peer": len(deployment.arrays().peers)}
    partials = stored.in_tasks(by_task(groups, deployment), count, schemas.PARTIALS)
    return sums.added(partials, counts, len(figures), rows, schemas.LOADS, into)


def save_load(path: Path, count: int, folder: Path) -> None:
    """Write a table of `schemas.LOADS`, for `count` peers, as arrays that all processes of a machine can map."""
    table = parquet.read_table(path)
    load = Load.none(count)
    peers, entries, trees, *capped = (table[name].to_numpy() for name in schemas.columns(schemas.LOADS))
    load.put(peers, entries, trees, capped)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in load._asdict().items():
        np.save(folder / f"{name}.npy", array)


def open_load(folder: Path) -> Load:
    """Open what `save_load` wrote."""
    maps = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in Load._fields}
    return Load(**{name: frozen(array, array.dtype) for name, array in maps.items()})
