"""Tables that tasks write and read themselves, as Parquet files in a folder that all machines see.

Java would handle each number of each row separately, which costs more than the kernels' work. For Spark such a table is
a few rows with the names of its files (`schemas.FILES`).
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
    """Apply `work` to each partition; `schema` is that of its results.

    With `into`, tasks write the results there, and the returned rows name files.
    """
    if into is None:
        return in_tasks(rows, work, schema)
    return in_tasks(rows, lambda batches: write(work(batches), schema, into), schemas.FILES)


def in_tasks(rows: DataFrame, work: Work, schema: str) -> DataFrame:
    """Apply a function to each partition, in Spark's tasks."""

    def settled(batches: Batches) -> Batches:
        yield from work(batches)
        _settle(work.__qualname__)

    return rows.mapInArrow(settled, schema)


@cache
def _settle(stage: str) -> None:
    """After its first task of a stage, have a worker freeze what it has loaded.

    Spark makes it collect garbage after each task, which takes 0.07 s each time with numba and its kernels in memory.
    """
    gc.freeze()


def write(batches: Batches, schema: str, folder: Path, number: int | None = None) -> Batches:
    """Write a task's rows as one file, completely or not at all. Yields a row of `schemas.FILES`, or none without rows.

    `number` is that of the file; by default that of the task's partition.
    """
    if number is None:
        context = TaskContext.get()
        number = context.partitionId() if context else 0
    first = next(batches, None)
    if first is None and number:  # the first task always writes its file, so that readers find the columns
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
    """The files of a table (`schemas.FILES`), one for each task, in the order of the tasks that wrote them."""
    sizes = {str(path): path.stat().st_size for path in sorted(folder.glob("*.parquet"))}
    order = list(sizes)

    def named(values: list[Any]) -> Column:  # not a Python function, which would need another process for each task
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
