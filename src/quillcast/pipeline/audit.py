"""The audit: from peers' journals, what happened to every event, and whether the promises held (docs/audit.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.pipeline import events, life
from quillcast.pipeline.journals import journal_files, read_files, read_records
from quillcast.pipeline.run import Kill
from quillcast.pipeline.trees import KILLS_SCHEMA, MOMENTS_SCHEMA, repairs, states, trees
from quillcast.pipeline.verdicts import verdicts

END = "end"
"""The moment at which the run ended."""


@dataclass(frozen=True)
class Audit:
    """The tables that an audit makes. docs/audit.md says what their columns mean."""

    records: DataFrame
    """Every journal record up to the end of the run (`RECORDS_SCHEMA`)."""
    topics: DataFrame
    """topic, name, delivery: the guarantee that it was judged by."""
    journals: DataFrame
    """One row per process: peer, started_ns, ended_ns, lived, records, missing, files, bytes, dropped_bytes, closed."""
    published: DataFrame
    """topic, publisher, events."""
    subscribers: DataFrame
    """One row per subscription: see `events.per_subscription`."""
    gaps: DataFrame
    """The lost ranges: topic, peer, started_ns, since, publisher, first, last, told."""
    delays: DataFrame
    """delay_ms, count: how many events took how long from publish to delivery."""
    percentiles: DataFrame
    """p50_ms, p90_ms, p99_ms, max_ms over all deliveries."""
    repairs: DataFrame
    """One row per kill: see `trees.repairs`."""
    trees: DataFrame
    """The trees before and after each kill and at the end: see `trees.TREES_SCHEMA`."""
    counters: DataFrame
    """record, text, records, count: what else was noted, such as repeats, repairs and drops."""
    verdicts: DataFrame
    """verdict, holds, figure, meaning."""
    cached: DataFrame

    def unpersist(self) -> None:
        """Give back the memory that the records take."""
        self.cached.unpersist()


def audit(spark: SparkSession, folder: Path, kills: Sequence[Kill] = (), *, end_ns: int | None = None) -> Audit:
    """Audit the journals below a folder.

    Args:
        spark: the session.
        folder: where the journals are; every executor must see it.
        kills: peers that were killed on purpose. A peer that died otherwise counts as alive, and misses its events.
        end_ns: records after this time do not count. None: the time of the last event's record.

    Raises `LocalError` if there are no journals.
    """
    paths = journal_files(folder)
    everything = read_records(spark, paths).cache()
    end_ns = life.last_event_ns(everything) if end_ns is None else end_ns
    records = everything.where(F.col("at_ns") <= end_ns)
    killed = kill_table(spark, kills)
    # A checkpoint ends the plan behind a small table, which else every table made of it would plan again.
    processes = life.processes(records, killed).localCheckpoint()
    topics = life.topics(records).localCheckpoint()
    subscriptions = life.subscriptions(records, processes, topics).localCheckpoint()
    deliveries = events.deliveries(records, subscriptions)
    runs = events.runs(records).localCheckpoint()
    due = events.due(events.countable(records, processes), subscriptions, runs)
    stretches = events.stretches(deliveries).localCheckpoint()
    told = events.told(records, subscriptions, runs)
    best_effort = not subscriptions.where("delivery = 'best_effort'").isEmpty()
    passed = events.passed(records, subscriptions, runs) if best_effort else told.where("false")
    pieces = events.compare(stretches, due, told, passed).localCheckpoint()
    delays = events.delays(deliveries).localCheckpoint()
    subscribers = events.per_subscription(subscriptions, pieces, stretches, delays).localCheckpoint()
    mended = repairs(records, processes, killed).localCheckpoint()
    grown = trees(states(records, processes, moments(mended, end_ns))).localCheckpoint()
    journals = life.journals(everything, processes, read_files(spark, paths)).localCheckpoint()
    at_end = grown.where(F.col("moment") == END)
    return Audit(
        cached=everything,
        records=records,
        topics=topics,
        journals=journals,
        published=events.published(records),
        subscribers=subscribers,
        gaps=events.gaps(pieces, subscriptions),
        delays=delays.groupBy("delay_ms").agg(F.sum("count").alias("count")),
        percentiles=events.percentiles(delays),
        repairs=mended,
        trees=grown,
        counters=life.counters(records),
        verdicts=verdicts(
            {
                "journals": journals,
                "subscribers": subscribers,
                "strays": delays.where("subscription is null"),
                "conflicts": events.conflicts(runs),
                "repairs": mended,
                "end": at_end,
                "roots": at_end.groupBy("topic").agg(F.count_if("is_root").alias("roots")),
            }
        ),
    )


def kill_table(spark: SparkSession, kills: Sequence[Kill]) -> DataFrame:
    """The kills as a table (`KILLS_SCHEMA`)."""
    in_order = sorted(kills, key=lambda kill: kill.at_ns)
    rows = [(number, kill.peer, kill.at_ns, kill.what) for number, kill in enumerate(in_order, 1)]
    return spark.createDataFrame(rows, KILLS_SCHEMA)


def moments(repairs: DataFrame, end_ns: int) -> DataFrame:
    """When to look at the trees (`MOMENTS_SCHEMA`): `before n` and `after n` for each kill, and `end`."""
    name = F.col("kill").cast("string")
    before = repairs.select(F.concat(F.lit("before "), name).alias("moment"), F.col("kill_ns").alias("at_ns"))
    after = repairs.select(
        F.concat(F.lit("after "), name).alias("moment"), F.coalesce("repaired_ns", F.lit(end_ns)).alias("at_ns")
    )
    end = repairs.sparkSession.createDataFrame([(END, end_ns)], MOMENTS_SCHEMA)
    return before.union(after).union(end)
