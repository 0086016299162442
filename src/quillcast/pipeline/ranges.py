"""Arithmetic of half-open ranges [first, last) on tables, at a cost per range (docs/design.md, decision 3).

Each function walks a line of numbers from left to right, once per group: a range opens at `first` and closes at `last`,
and a running sum counts the open ranges. Where one range ends and another begins at the same number, nothing changes
and no row is kept.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)


def merged(ranges: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The union of each group's ranges: disjoint, and not adjacent. Columns: the keys, first, last."""
    line = Window.partitionBy(*keys).orderBy("at")
    is_open = F.sum("copies").over(line)
    turns = (
        _turns({"copies": ranges}, keys)
        .select(*keys, "at", is_open.alias("after"), (is_open - F.col("copies")).alias("before"))
        .where("before = 0 or after = 0")
    )
    pairs = turns.select(*keys, F.col("at").alias("first"), F.lead("at").over(line).alias("last"), "after")
    return pairs.where("after > 0").drop("after")


def coverage(sets: Mapping[str, DataFrame], keys: Sequence[str]) -> DataFrame:
    """Cut each group's line where any set changes, and count how often each piece occurs in each set.

    Columns: the keys, first, last, and a count per name in `sets`. Pieces that are in no set are left out.
    """
    line = Window.partitionBy(*keys).orderBy("at")
    counts = [F.sum(name).over(line).alias(name) for name in sets]
    pieces = _turns(sets, keys).select(
        *keys, F.col("at").alias("first"), F.lead("at").over(line).alias("last"), *counts
    )
    return pieces.where(reduce(lambda some, name: some | (F.col(name) > 0), sets, F.lit(False)))


def _turns(sets: Mapping[str, DataFrame], keys: Sequence[str]) -> DataFrame:
    """Where on each group's line ranges open or close: the keys, `at`, and the change per set."""

    def steps(name: str, ranges: DataFrame) -> DataFrame:
        both = [(F.col("first"), 1), (F.col("last"), -1)]
        at_and_step = F.explode(F.array(*[F.struct(at.alias("at"), F.lit(step).alias("step")) for at, step in both]))
        exploded = ranges.where("first < last").select(*keys, at_and_step.alias("turn"))
        columns = [(F.col("turn.step") if name == other else F.lit(0)).alias(other) for other in sets]
        return exploded.select(*keys, F.col("turn.at").alias("at"), *columns)

    every = reduce(DataFrame.union, [steps(name, ranges) for name, ranges in sets.items()])
    summed = every.groupBy(*keys, "at").agg(*[F.sum(name).alias(name) for name in sets])
    return summed.where(" or ".join(f"{name} <> 0" for name in sets))
