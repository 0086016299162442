"""Sums over all groups, per peer or core link.

Each task adds up its own groups, and packs the sums that are not zero for the tasks that add up all.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from quillcast.evaluation import schemas
from quillcast.evaluation.columns import Batches, record_batch
from quillcast.evaluation.stored import mapped

BLOCK = 1 << 16  # peers or links whose sums are sent together
PARTS_MAX = 32  # partitions of the total sums; a guess
_WHOLE = ("u1", "u2", "u4")

Sums = npt.NDArray[np.float64]


def blocks(count: int) -> int:
    """The number of blocks for this many peers or links."""
    return -(-count // BLOCK)


def partials(kind: str, figures: Sequence[npt.NDArray[Any]], first_block: int) -> Batches:
    """A task's share of the sums (`schemas.PARTIALS`), from an array per figure with a number for each peer or link."""
    for block in range(blocks(len(figures[0]))):
        parts = [figure[block * BLOCK : (block + 1) * BLOCK] for figure in figures]
        touched = parts[0] != 0
        for part in parts[1:]:
            touched |= part != 0
        used = np.flatnonzero(touched)
        packed = [_packed(part[used]) for part in parts]
        values = {
            "kind": kind,
            "block": first_block + block,
            "types": "".join(column.dtype.str[1:] for column in packed),
            "numbers": used.astype(np.uint16).tobytes(),
            "sums": b"".join(column.tobytes() for column in packed),
        }
        yield record_batch(schemas.PARTIALS, values, 1)


def _packed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in the smallest type that holds all of them exactly."""
    most = values.max(initial=0)
    for kind in _WHOLE:
        if most <= np.iinfo(kind).max:
            narrow = values.astype(kind)
            return narrow if np.array_equal(narrow, values) else values.astype("f8")
    return values.astype("f8")


def unpacked(row: dict[str, Any]) -> tuple[npt.NDArray[np.uint16], list[npt.NDArray[Any]]]:
    """The numbers of a row of `schemas.PARTIALS`, and each figure's sums."""
    numbers, sums, at = np.frombuffer(row["numbers"], np.uint16), [], 0
    for first in range(0, len(row["types"]), 2):
        kind = np.dtype(row["types"][first : first + 2])
        sums.append(np.frombuffer(row["sums"], kind, len(numbers), at))
        at += kind.itemsize * len(numbers)
    return numbers, sums


def added(
    parts: DataFrame,
    counts: dict[str, int],
    figures: int,
    rows: Callable[[str, npt.NDArray[Any], Sums], pa.RecordBatch],
    schema: str,
    into: Path | None = None,
) -> DataFrame:
    """The sums of all tasks, from rows of `schemas.PARTIALS`; blocks of each kind follow those of the previous kind.

    `counts` is the number of peers or links of each kind, `figures` the most figures of one. `rows` makes rows of
    `schema` from a kind, numbers, and their sums, float64 [figures, numbers]. With `into`, tasks write them there
    (`stored`).
    """
    first_block, number = {}, 0
    for kind, count in counts.items():
        first_block[kind] = number
        number += blocks(count)

    def add(batches: Batches) -> Batches:
        totals: dict[tuple[str, int], Sums] = {}
        for each in batches:
            for row in each.to_pylist():
                total = totals.setdefault((row["kind"], row["block"]), np.zeros((figures, BLOCK)))
                numbers, sums = unpacked(row)
                for figure, values in enumerate(sums):
                    total[figure, numbers] += values
        for (kind, block), total in totals.items():
            first = (block - first_block[kind]) * BLOCK
            used = min(BLOCK, counts[kind] - first)
            yield rows(kind, np.arange(first, first + used), total[:, :used])

    return mapped(parts.repartitionById(min(number, PARTS_MAX), "block"), add, schema, into)
