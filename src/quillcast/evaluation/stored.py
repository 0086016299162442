"""Tables that tasks write and read themselves, as Parquet files in a folder.

Java would handle each number of each row separately, which costs more than the kernels' work. For Spark such a table is
a few rows with the names of its files (`schemas.FILES`). On machines that do not see the folder, tasks return the
content of files, which `settle` writes, and read files from an archive that Spark ships.
"""

import gc
import io
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet
from pyspark import SparkFiles, TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.evaluation import schemas
from quillcast.evaluation.columns import Batches, Work, arrow_schema, record_batch

LOOKS = 64  # tasks that look for a folder: many times as many as executors of most clusters


def mapped(rows: DataFrame, work: Work, schema: str, into: Path | None) -> DataFrame:
    """Apply `work` to each partition; `schema` is that of its results.

    With `into`, tasks write the results there, and the returned rows name files.
    """
    if into is None:
        return in_tasks(rows, work, schema)
    into.mkdir(parents=True, exist_ok=True)  # machines that see it write there
    return in_tasks(rows, lambda batches: write(work(batches), schema, into), schemas.FILES)


def in_tasks(rows: DataFrame, work: Work, schema: str) -> DataFrame:
    """Apply a function to each partition, in Spark's tasks."""

    def settled(batches: Batches) -> Batches:
        yield from work(batches)
        _settle(work.__qualname__)

    return rows.mapInArrow(settled, schema)


@cache
def _settle(stage: str) -> None:
    """After a worker's first task of a stage, have it freeze its loaded objects.

    Spark makes it collect garbage after each task, which takes 0.07 s each time with numba and its kernels in memory.
    """
    gc.freeze()


def write(batches: Batches, schema: str, folder: Path, number: int | None = None) -> Batches:
    """Write a task's rows as one file, completely or not at all. Yields a row of `schemas.FILES`, or none without rows.

    Where the folder is not visible, the row has the file's content. `number` is that of the file; by default that of
    the task's partition.
    """
    if number is None:
        context = TaskContext.get()
        number = context.partitionId() if context else 0
    first = next(batches, None)
    if first is None and number:  # the first task always writes its file, so that readers find the columns
        return
    path = folder / f"part-{number:05}.parquet"
    written = folder / f".{path.name}.{uuid4().hex}" if folder.is_dir() else io.BytesIO()
    with parquet.ParquetWriter(written, arrow_schema(schema)) as writer:
        for batch in (each for part in ((first,), batches) for each in part if each is not None):
            writer.write_batch(batch)
    content = None
    if isinstance(written, io.BytesIO):
        content = written.getvalue()
    else:
        written.replace(path)
    bytes_ = path.stat().st_size if content is None else len(content)
    yield record_batch(schemas.FILES, {"path": str(path), "bytes": bytes_, "content": content}, 1)


def settle(rows: DataFrame) -> None:
    """Have tasks write a table whose rows name files, and write the files that tasks could not."""
    for row in rows.collect():
        if row["content"] is not None:
            Path(row["path"]).write_bytes(row["content"])


def is_visible(spark: SparkSession, folder: Path) -> bool:
    """Whether all machines with tasks see this folder, and not one of their own with the same name."""
    mark = folder / f".{uuid4().hex}"

    def look(batches: Batches) -> Batches:
        for batch in batches:
            yield record_batch("seen boolean", {"seen": mark.exists()}, batch.num_rows)

    mark.touch()
    try:
        rows = spark.range(0, LOOKS, 1, LOOKS).mapInArrow(look, "seen boolean").collect()
    finally:
        mark.unlink()
    return all(row["seen"] for row in rows)


def files(spark: SparkSession, folder: Path, archive: str = "") -> DataFrame:
    """The files of a table (`schemas.FILES`), one for each task, in the order of the tasks that wrote them.

    `archive` is the name of Spark's archive with the folder, if not all machines see it.
    """
    found = sorted(folder.glob("*.parquet"))
    sizes = {f"{archive}/{path.name}" if archive else str(path): path.stat().st_size for path in found}
    order = list(sizes)

    def named(values: list[Any]) -> Column:  # not a Python function, which would need another process for each task
        return F.element_at(F.array(*map(F.lit, values)), F.col("id").cast("int") + 1)

    numbers = spark.range(0, len(order), 1, len(order))
    return numbers.select(
        named(order).alias("path"),
        named([sizes[path] for path in order]).cast("long").alias("bytes"),
        F.lit(None).cast("binary").alias("content"),
    )


def read(named: DataFrame, schema: str) -> DataFrame:
    """The rows of a table whose files are named, read by tasks."""
    columns = schemas.columns(schema)
    return in_tasks(named, lambda batches: opened(batches, columns), schema)


def opened(batches: Batches, columns: list[str]) -> Batches:
    """These columns of the rows, or of the files that the rows name."""
    for batch in batches:
        if batch.schema.names != schemas.columns(schemas.FILES):
            yield batch.select(columns)
            continue
        for path, content in zip(batch.column("path").to_pylist(), batch.column("content").to_pylist(), strict=True):
            with parquet.ParquetFile(_here(path) if content is None else pa.BufferReader(content)) as file:
                for at in range(file.num_row_groups):
                    yield from _batches(file.read_row_group(at, columns))


def _here(path: str) -> str:
    """The file's path on this machine."""
    return path if Path(path).is_absolute() else SparkFiles.get(path)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches() if table.num_rows else []
