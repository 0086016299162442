"""What became of every event, in ranges: published, due, delivered, told as lost (docs/audit.md).

Events are never spelt out. What was published, was due and was delivered are ranges of sequences per publisher, and
sets are compared piece by piece, so that a repeated event can never hide a missing one.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.pipeline.life import SUBSCRIPTION, within
from quillcast.pipeline.ranges import coverage, merged

_MOVED = ("Admitted", "Delivered")


def deliveries(records: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """One row per run handed over: `SUBSCRIPTION`, entry, publisher, first, last, delay_ms.

    The delay, from publish to delivery, is that of the run's first event, which waited longest; it is taken in steps
    of 0.01 ms, which bounds what a percentile costs.
    """
    delay_ms = F.floor((F.col("at_ns") - F.col("published_ns")) / 1e4 + 0.5) / 100
    return within(records.where("record = 'Delivered'"), subscriptions).select(
        *SUBSCRIPTION, "entry", "publisher", "first", (F.col("first") + F.col("count")).alias("last"),
        delay_ms.alias("delay_ms"),
    )  # fmt: skip


def runs(records: DataFrame) -> DataFrame:
    """Every run whose position is known, once: topic, publisher, first, last, term_counter, term_node, index.

    The root noted it, or a subscriber did: a root that was killed takes its last records along.
    """
    placed = records.where(F.col("record").isin(*_MOVED)).where("term_counter > 0")
    return placed.select(
        "topic", "publisher", "first", (F.col("first") + F.col("count")).alias("last"),
        "term_counter", "term_node", "index",
    ).distinct()  # fmt: skip


def published(records: DataFrame) -> DataFrame:
    """topic, publisher, events: how many each publisher is known to have published, whoever noted it."""
    known = merged(_ranges(records.where(F.col("record").isin("Published", *_MOVED))), ["topic", "publisher"])
    return known.groupBy("topic", "publisher").agg(F.sum(F.col("last") - F.col("first")).alias("events"))


def countable(records: DataFrame, processes: DataFrame) -> DataFrame:
    """The events that subscribers can count on, as ranges: topic, publisher, first, last.

    Those that a root admitted or anybody got, and those of publishers that lived to the end.
    """
    dead = F.broadcast(processes.where("not lived").select("peer", "started_ns"))
    sealed = records.where("record = 'Published'").join(dead, ["peer", "started_ns"], "left_anti")
    moved = records.where(F.col("record").isin(*_MOVED))
    return merged(_ranges(sealed).union(_ranges(moved)), ["topic", "publisher"])


def _ranges(records: DataFrame) -> DataFrame:
    return records.select("topic", "publisher", "first", (F.col("first") + F.col("count")).alias("last"))


def due(events: DataFrame, subscriptions: DataFrame, runs: DataFrame) -> DataFrame:
    """What each subscription that lived is owed: `SUBSCRIPTION`, publisher, first, last.

    A publisher's events were before the subscription up to the last one that is known to have had a position before
    the subscription's: a root admits each publisher in the order of its sequences, so what a later term admits again
    does not count twice.
    """
    alive = F.broadcast(subscriptions.where("lived").drop("lived", "until", "at_ns"))
    start, term = alive.alias("start"), F.struct("run.term_counter", "run.term_node")
    start_term = F.struct("start.term_counter", "start.term_node")
    before = F.when(term < start_term, F.col("run.last")).otherwise(
        F.least(F.col("run.last"), F.col("run.first") + F.col("start.index") - F.col("run.index"))
    )
    is_before = (term < start_term) | ((term == start_term) & (F.col("run.index") < F.col("start.index")))
    floors = (
        runs.alias("run")
        .join(start, (F.col("run.topic") == F.col("start.topic")) & is_before)
        .groupBy(*[F.col(f"start.{name}") for name in SUBSCRIPTION], "publisher")
        .agg(F.max(before).alias("floor"))
    )
    owed = events.join(alive.select(*SUBSCRIPTION), "topic").join(floors, [*SUBSCRIPTION, "publisher"], "left")
    first = F.greatest("first", F.coalesce("floor", "first"))
    return owed.select(*SUBSCRIPTION, "publisher", first.alias("first"), "last").where("first < last")


def told(records: DataFrame, subscriptions: DataFrame, runs: DataFrame) -> DataFrame:
    """The events that subscribers were told they lost: `SUBSCRIPTION`, publisher, first, last."""
    losses = within(records.where("record = 'Lost'"), subscriptions).where("since is not null").alias("loss")
    start = F.greatest("loss.first", "run.index")
    end = F.least(F.col("loss.last"), F.col("run.index") + F.col("run.last") - F.col("run.first"))
    same_term = F.expr(
        "run.topic = loss.topic and run.term_counter = loss.term_counter and run.term_node = loss.term_node"
    )
    to_sequence = F.col("run.first") - F.col("run.index")
    return runs.alias("run").join(F.broadcast(losses), same_term & (start < end)).select(
        *[F.col(f"loss.{name}") for name in SUBSCRIPTION], "run.publisher",
        (to_sequence + start).alias("first"), (to_sequence + end).alias("last"),
    )  # fmt: skip


def compare(deliveries: DataFrame, due: DataFrame, told: DataFrame) -> DataFrame:
    """Each subscription's events piece by piece: `SUBSCRIPTION`, publisher, first, last, due, copies, told.

    Within a piece all events fare alike: owed or not, handed over so many times, told as lost or not.
    """
    handed = deliveries.where("since is not null")
    return coverage({"due": due, "copies": handed, "told": told}, [*SUBSCRIPTION, "publisher"])


def per_subscription(subscriptions: DataFrame, pieces: DataFrame, deliveries: DataFrame) -> DataFrame:
    """How each subscription fared: `SUBSCRIPTION`, lived, the counts below, p50_ms, p99_ms.

    The counts are expected, delivered, duplicated, lost, silent, extra and disordered; expected = delivered + lost.
    `silent` are the lost events that the subscriber was not told of; `extra` are events handed over that were not due,
    such as those before the start; `disordered` counts runs with an event that came after a later one of its publisher.
    """
    size = F.col("last") - F.col("first")

    def sum_of(condition: str, value: Column = size) -> Column:
        return F.coalesce(F.sum(F.when(F.expr(condition), value)), F.lit(0))

    counts = pieces.groupBy(*SUBSCRIPTION).agg(
        sum_of("due > 0").alias("expected"),
        sum_of("due > 0 and copies > 0").alias("delivered"),
        sum_of("copies > 1", (F.col("copies") - 1) * size).alias("duplicated"),
        sum_of("due > 0 and copies = 0").alias("lost"),
        sum_of("due > 0 and copies = 0 and told = 0").alias("silent"),
        sum_of("due = 0 and copies > 0").alias("extra"),
    )
    highest = F.max("last").over(
        Window.partitionBy(*SUBSCRIPTION, "publisher").orderBy("entry").rowsBetween(Window.unboundedPreceding, -1)
    )
    handed = deliveries.where("since is not null").withColumn("disordered", F.col("first") < highest - 1)
    times = handed.groupBy(*SUBSCRIPTION).agg(
        F.count_if("disordered").alias("disordered"), F.percentile("delay_ms", [0.5, 0.99], size).alias("delay_ms")
    )
    return (
        subscriptions.select(*SUBSCRIPTION, "lived")
        .join(counts, SUBSCRIPTION, "left")
        .join(times, SUBSCRIPTION, "left")
        .select(
            *SUBSCRIPTION, "lived",
            *[
                F.coalesce(F.col(name), F.lit(0)).cast("bigint").alias(name)
                for name in ("expected", "delivered", "duplicated", "lost", "silent", "extra", "disordered")
            ],
            F.col("delay_ms")[0].alias("p50_ms"), F.col("delay_ms")[1].alias("p99_ms"),
        )
    )  # fmt: skip


def gaps(pieces: DataFrame) -> DataFrame:
    """The lost ranges: `SUBSCRIPTION`, publisher, first, last, and whether the subscriber was told."""
    lost = pieces.where("due > 0 and copies = 0")
    return lost.select(*SUBSCRIPTION, "publisher", "first", "last", (F.col("told") > 0).alias("told"))


def delays(deliveries: DataFrame) -> DataFrame:
    """delay_ms, count: how many events took how long, in steps of 0.01 ms."""
    return deliveries.groupBy("delay_ms").agg(F.sum(F.col("last") - F.col("first")).alias("count"))


def percentiles(delays: DataFrame) -> DataFrame:
    """p50_ms, p90_ms, p99_ms, max_ms over all deliveries, each run weighted by its events; nulls without any."""
    points = F.percentile("delay_ms", [0.5, 0.9, 0.99, 1.0], F.col("count"))
    return delays.agg(points.alias("points")).select(
        *[F.col("points")[n].alias(name) for n, name in enumerate(("p50_ms", "p90_ms", "p99_ms", "max_ms"))]
    )


def rates(records: DataFrame, bucket_ns: int) -> DataFrame:
    """bucket_ns, topic, published, delivered: events per stretch of time that begins at a multiple of `bucket_ns`."""
    moved = records.where(F.col("record").isin("Published", "Delivered"))
    begin = F.col("at_ns") - F.col("at_ns") % bucket_ns
    counts = [
        F.coalesce(F.sum(F.when(F.col("record") == record, F.col("count"))), F.lit(0)).alias(name)
        for record, name in (("Published", "published"), ("Delivered", "delivered"))
    ]
    return moved.groupBy(begin.alias("bucket_ns"), "topic").agg(*counts)


def conflicts(runs: DataFrame) -> DataFrame:
    """Ranges of positions that more than one event was given: topic, term_counter, term_node, first, last, events."""
    term = ["topic", "term_counter", "term_node"]
    shift = F.col("index") - F.col("first")
    placed = runs.select(
        *term, "publisher", shift.alias("shift"), F.col("index").alias("first"), (F.col("last") + shift).alias("last")
    )
    return coverage({"events": merged(placed, [*term, "publisher", "shift"])}, term).where("events > 1")
