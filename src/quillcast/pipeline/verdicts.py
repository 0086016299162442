"""The promises, and whether the journals confirm them."""

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)


class Promise(NamedTuple):
    """A promise as a figure that must be zero (or, with `some`, must not be zero)."""

    name: str
    table: str
    figure: str
    """The figure as a Spark expression: an aggregate of the table."""
    meaning: str
    some: bool = False


PROMISES = (
    Promise("something to prove", "subscribers", "sum(expected)", "deliveries that were due", some=True),
    Promise("nothing lost", "subscribers", "sum(lost)", "events due in a reliable topic and never delivered"),
    Promise("no silent loss", "subscribers", "sum(silent)", "lost or dropped events that a subscriber was not told of"),
    Promise("nothing repeated", "subscribers", "sum(duplicated)", "additional deliveries of an event"),
    Promise("order kept", "subscribers", "sum(disordered)", "runs with an event after a later one of its publisher"),
    Promise("nothing unasked", "strays", "sum(count)", "events delivered without a subscription"),
    Promise("one event per position", "conflicts", "sum(last - first)", "positions assigned to more than one event"),
    Promise("kills repaired", "repairs", "sum(unrepaired)", "children of killed peers that found no parent again"),
    Promise("trees whole", "end", "count_if(depth is null)", "peers without a path to a root at the end"),
    Promise("one root", "roots", "count_if(roots <> 1)", "topics with no root or several roots at the end"),
    Promise(
        "journals whole", "journals", "count_if(missing > 0 or dropped_bytes > 0 and (lived or peer is null))",
        "processes whose journal is incomplete for a reason other than a kill",
    ),
)  # fmt: skip


def verdicts(tables: Mapping[str, DataFrame]) -> DataFrame:
    """verdict, holds, figure, meaning: one row per promise."""

    def verdict(promise: Promise) -> DataFrame:
        figure = F.coalesce(F.expr(promise.figure), F.lit(0)).cast("bigint").alias("figure")
        holds = (F.col("figure") > 0 if promise.some else F.col("figure") == 0).alias("holds")
        name, meaning = F.lit(promise.name).alias("verdict"), F.lit(promise.meaning).alias("meaning")
        return tables[promise.table].agg(figure).select(name, holds, "figure", meaning)

    return reduce(DataFrame.union, map(verdict, PROMISES))
