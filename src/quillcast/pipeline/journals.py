"""Journals as tables. Each task reads its files in Arrow; a torn file yields its complete batches."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quillcast.core import journal
from quillcast.core.errors import LocalError, Malformed
from quillcast.pipeline import reading
from quillcast.pipeline.reading import SUFFIX

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536  # rows handed to Spark at once; larger batches gain nothing
TASK_BYTES = 16 << 20  # a guess: one second of work

_SPARK_TYPES = {"binary": "binary", "int64": "bigint", "double": "double", "string": "string", "ids": "array<binary>"}

RECORDS_SCHEMA = ", ".join(f"`{name}` {_SPARK_TYPES[kind]}" for name, (kind, _) in journal.COLUMNS.items())
"""One row per record; the columns are those of the journal itself."""

FILES_SCHEMA = "file string, peer binary, started_ns bigint, bytes bigint, dropped_bytes bigint, closed boolean"
"""One row per file: its owner (null if it has no complete batch), its size, the bytes lost by a crash or damage, and
whether its writer closed it."""


def journal_files(folder: Path) -> list[Path]:
    """All journal files below a folder. Raises `LocalError` if there are none, or if one is not a journal."""
    if not folder.is_dir():
        raise LocalError(f"{folder} is not a folder; name the folder that peers wrote their journals into")
    paths = sorted(folder.rglob(f"*{SUFFIX}"))
    if not paths:
        raise LocalError(f"{folder} has no journals (*{SUFFIX}); name the folder that peers wrote them into")
    for path in paths:
        with path.open("rb") as file:
            try:
                reading.whole(file.read(2 * len(journal.beginning())))
            except Malformed as error:
                raise LocalError(f"{path} is not a journal of this version: {error}") from error
    return paths


def read_records(spark: "SparkSession", paths: Sequence[Path]) -> "DataFrame":
    """The records of these files (`RECORDS_SCHEMA`). Every task must be able to open the paths."""
    return _of_files(spark, paths).mapInArrow(_records, RECORDS_SCHEMA)


def read_files(spark: "SparkSession", paths: Sequence[Path]) -> "DataFrame":
    """The state of these files (`FILES_SCHEMA`)."""
    return _of_files(spark, paths).mapInArrow(_files, FILES_SCHEMA)


def _of_files(spark: "SparkSession", paths: Sequence[Path]) -> "DataFrame":
    rows = [(str(path.absolute()),) for path in paths]
    tasks = 2 + sum(path.stat().st_size for path in paths) // TASK_BYTES
    return spark.createDataFrame(rows, "file string").repartition(min(len(paths), tasks))


def _records(files: Iterable["pyarrow.RecordBatch"]) -> Iterator["pyarrow.RecordBatch"]:
    for path in _paths(files):
        yield from _coalesced(reading.batches(path.read_bytes()))


def _coalesced(batches: Iterable["pyarrow.RecordBatch"]) -> Iterator["pyarrow.RecordBatch"]:
    """The same rows in larger batches: a journal's own batches may hold a single record."""
    waiting: list[pyarrow.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield _joined(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list["pyarrow.RecordBatch"]) -> "pyarrow.RecordBatch":
    import pyarrow as pa

    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _files(files: Iterable["pyarrow.RecordBatch"]) -> Iterator["pyarrow.RecordBatch"]:
    import pyarrow as pa

    for path in _paths(files):
        data = path.read_bytes()
        whole, first = reading.whole(data), next(reading.batches(data), None)
        row = {
            "file": str(path),
            "peer": first["peer"][0].as_py() if first else None,
            "started_ns": first["started_ns"][0].as_py() if first else None,
            "bytes": len(data),
            "dropped_bytes": whole.dropped_bytes,
            "closed": whole.closed,
        }
        types = [pa.string(), pa.binary(), pa.int64(), pa.int64(), pa.int64(), pa.bool_()]
        yield pa.RecordBatch.from_pylist([row], schema=pa.schema(list(zip(row, types, strict=True))))


def _paths(files: Iterable["pyarrow.RecordBatch"]) -> Iterator[Path]:
    for batch in files:
        yield from map(Path, batch["file"].to_pylist())
