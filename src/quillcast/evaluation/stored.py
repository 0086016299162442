"""Tables that tasks write and read themselves, as Parquet files in a folder that all machines see.

Java would handle each number of each row on its own, which costs more than what the kernels do. To Spark such a table
is a few rows that name its files (`schemas.FILES`).
"""

import gc
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.evaluation import schemas
from quillcast.evaluation.columns import Batches, Work, arrow_schema, record_batch


def mapped(rows: DataFrame, work: Work, schema: str, into: Path | None) -> DataFrame:
    """What a function makes of each partition.

    Args:
        rows: what it works on.
        work: the function.
        schema: of what it makes.
        into: where tasks write that, so that the result names files; None: the result is the rows themselves.
    """
    if into is None:
        return in_tasks(rows, work, schema)
    return in_tasks(rows, lambda batches: write(work(batches), schema, into), schemas.FILES)


def in_tasks(rows: DataFrame, work: Work, schema: str) -> DataFrame:
    """What a function makes of each partition, called in the tasks of Spark."""

    def settled(batches: Batches) -> Batches:
        yield from work(batches)
        _settle(work.__qualname__)

    return rows.mapInArrow(settled, schema)


@cache
def _settle(stage: str) -> None:
    """After its first task of a stage a worker keeps what it has loaded.

    Spark has it collect garbage after each task, which with numba and its kernels in memory takes 0.07 s each time.
    """
    gc.freeze()


def write(batches: Batches, schema: str, folder: Path, number: int | None = None) -> Batches:
    """Write a task's rows as one file, complete or not at all; a row of `schemas.FILES`, or none if it has no rows.

    Args:
        batches: the rows.
        schema: theirs.
        folder: of the table.
        number: of the file; None: that of the task's partition.
    """
    if number is None:
        context = TaskContext.get()
        number = context.partitionId() if context else 0
    first = next(batches, None)
    if first is None and number:  # the first task writes its file in any case, so that readers find the columns
        return
    path = folder / f"part-{number:05}.parquet"
    written = folder / f".{path.name}.{uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    with parquet.ParquetWriter(written, arrow_schema(schema)) as writer:
        for batch in (each for part in ((first,), batches) for each in part if each is not None):
            writer.write_batch(batch)
    bytes_ = written.stat().st_size
    written.replace(path)
    yield record_batch(schemas.FILES, {"path": str(path), "bytes": bytes_}, 1)


def files(spark: SparkSession, folder: Path) -> DataFrame:
    """The files of a table (`schemas.FILES`), each for a task of its own, in the order of those that wrote them."""
    sizes = {str(path): path.stat().st_size for path in sorted(folder.glob("*.parquet"))}
    order = list(sizes)

    def named(values: list[Any]) -> Column:  # no function of ours: that would be a further process beside each task's
        return F.element_at(F.array(*map(F.lit, values)), F.col("id").cast("int") + 1)

    numbers = spark.range(0, len(order), 1, len(order))
    return numbers.select(
        named(order).alias("path"), named([sizes[path] for path in order]).cast("long").alias("bytes")
    )


def read(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """The rows of a table, read by tasks."""
    columns = schemas.columns(schema)
    return in_tasks(files(spark, folder), lambda batches: opened(batches, columns), schema)


def opened(batches: Batches, columns: list[str]) -> Batches:
    """These columns of the rows, or of the files that the rows name."""
    for batch in batches:
        if batch.schema.names != schemas.columns(schemas.FILES):
            yield batch.select(columns)
            continue
        for path in batch.column("path").to_pylist():
            with parquet.ParquetFile(path) as file:
                for at in range(file.num_row_groups):
                    yield from _batches(file.read_row_group(at, columns))


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches() if table.num_rows else []
