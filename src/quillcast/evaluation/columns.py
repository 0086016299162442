"""Batches of rows for kernels: numpy arrays on one side, Arrow columns on the other."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Batches], Batches]
Columns = dict[str, npt.NDArray[Any]]

_TYPES = {
    "int": (pa.int32(), np.int32),
    "long": (pa.int64(), np.int64),
    "float": (pa.float32(), np.float32),
    "double": (pa.float64(), np.float64),
    "boolean": (pa.bool_(), np.bool_),
    "string": (pa.string(), np.object_),
    "binary": (pa.binary(), np.object_),
    "array<int>": (pa.list_(pa.int32()), np.int32),
    "array<boolean>": (pa.list_(pa.bool_()), np.bool_),
}


def arrow_schema(schema: str) -> pa.Schema:
    """The Arrow schema of such columns."""
    return pa.schema([(name, _TYPES[kind][0]) for name, kind in (told.split() for told in schema.split(", "))])


def record_batch(schema: str, values: dict[str, Any], count: int) -> pa.RecordBatch:
    """A batch of `count` rows. A single value is used for all of them.

    A column of arrays is a list of arrays, in which None is null.
    """
    arrays = []
    for told in schema.split(", "):
        name, kind = told.split()
        arrow, plain = _TYPES[kind]
        value = values[name]
        if pa.types.is_list(arrow):
            arrays.append(_lists(value, arrow, plain))
        else:
            if not isinstance(value, np.ndarray):
                value = np.full(count, value, plain) if plain is not np.object_ else np.array([value] * count, plain)
            arrays.append(pa.array(value.astype(plain, copy=False), arrow))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def _lists(values: list[npt.NDArray[Any] | None], arrow: pa.DataType, plain: Any) -> pa.ListArray:
    """A column of arrays."""
    lengths = np.array([0 if value is None else len(value) for value in values], np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    whole = np.concatenate([np.empty(0, plain), *[value for value in values if value is not None]])
    nulls = np.array([value is None for value in values])
    mask = pa.array(nulls) if nulls.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(whole.astype(plain, copy=False)), arrow, mask=mask)


def column(batch: pa.RecordBatch, column: str) -> npt.NDArray[Any]:
    """A column of numbers or of strings."""
    values: npt.NDArray[Any] = batch.column(column).to_numpy(zero_copy_only=False)
    return values


def lists(batch: pa.RecordBatch, column: str) -> list[npt.NDArray[Any] | None]:
    """A column of arrays; null is None."""
    held = batch.column(column)
    offsets = held.offsets.to_numpy().tolist()
    whole = held.values.to_numpy(zero_copy_only=False)
    if not held.null_count:
        return [whole[first:last] for first, last in pairwise(offsets)]
    present = held.is_valid().to_pylist()
    edges = zip(offsets[:-1], offsets[1:], present, strict=True)
    return [whole[first:last] if there else None for first, last, there in edges]
