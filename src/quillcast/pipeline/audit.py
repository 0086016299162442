"""The audit: find out from peers' journals what happened to every event, and whether promises held (docs/audit.md)."""

from collections.abc import Callable, Sequence
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
"""The moment when the run ended."""


@dataclass(frozen=True)
class Audit:
    """The tables of an audit. docs/audit.md describes their columns."""

    records: DataFrame
    """Every journal record up to the end of the run (`RECORDS_SCHEMA`)."""
    topics: DataFrame
    """topic, name, delivery: the guarantee that the audit checks."""
    journals: DataFrame
    """One row per process: peer, started_ns, ended_ns, lived, records, missing, files, bytes, dropped_bytes, closed."""
    published: DataFrame
    """topic, publisher, events."""
    subscribers: DataFrame
    """One row per subscription: see `events.per_subscription`."""
    gaps: DataFrame
    """The lost ranges: topic, peer, started_ns, since, publisher, first, last, told."""
    delays: DataFrame
    """delay_ms, count: the number of events by their time from publish to delivery."""
    percentiles: DataFrame
    """p50_ms, p90_ms, p99_ms, max_ms over all deliveries."""
    repairs: DataFrame
    """One row per kill: see `trees.repairs`."""
    trees: DataFrame
    """The trees before and after each kill and at the end: see `trees.trees`."""
    counters: DataFrame
    """record, text, records, count: counters of all other records, such as repeats, repairs and drops."""
    verdicts: DataFrame
    """verdict, holds, figure, meaning."""
    cached: DataFrame

    def unpersist(self) -> None:
        """Free the memory of the records."""
        self.cached.unpersist()


def audit(
    spark: SparkSession,
    folder: Path,
    kills: Sequence[Kill] = (),
    *,
    end_ns: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Audit the journals below a folder, which every executor must see.

    `kills` are the peers that were killed on purpose. A peer that died otherwise counts as alive, and misses its
    events. Records after `end_ns` are ignored; by default it is the time of the last event's record. `say` is called
    with the name of each step. Raises `LocalError` if there are no journals.
    """
    paths = journal_files(folder)
    everything = read_records(spark, paths).cache()
    end_ns = life.last_event_ns(everything) if end_ns is None else end_ns
    records = everything.where(F.col("at_ns") <= end_ns)
    killed = kill_table(spark, kills)
    # A checkpoint cuts the plan of a small table. Otherwise every table derived from it would plan it again.
    processes = life.processes(records, killed).localCheckpoint()
    topics = life.topics(records).localCheckpoint()
    say("comparing what was due with what was delivered")
    subscriptions = life.subscriptions(records, processes, topics).localCheckpoint()
    deliveries = events.deliveries(records, subscriptions)
    runs = events.runs(records).localCheckpoint()
    streams = events.owed_streams(records, subscriptions).localCheckpoint()
    due = events.due(events.countable(records, processes), subscriptions, runs, streams)
    stretches = events.stretches(deliveries).localCheckpoint()
    told = events.told(records, subscriptions, runs)
    best_effort = not subscriptions.where("delivery = 'best_effort'").isEmpty()
    passed = events.passed(records, subscriptions, runs) if best_effort else told.where("false")
    pieces = events.compare(stretches, due, told, passed).localCheckpoint()
    delays = events.delays(deliveries).localCheckpoint()
    subscribers = events.per_subscription(subscriptions, pieces, stretches, delays).localCheckpoint()
    say("following the trees through kills and repairs")
    repaired = repairs(records, processes, killed).localCheckpoint()
    drawn = trees(states(records, processes, moments(repaired, end_ns))).localCheckpoint()
    journals = life.journals(everything, processes, read_files(spark, paths)).localCheckpoint()
    at_end = drawn.where(F.col("moment") == END)
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
        repairs=repaired,
        trees=drawn,
        counters=life.counters(records),
        verdicts=verdicts(
            {
                "journals": journals,
                "subscribers": subscribers,
                "strays": delays.where("subscription is null"),
                "conflicts": events.conflicts(runs),
                "repairs": repaired,
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
    """The moments at which trees are examined (`MOMENTS_SCHEMA`): `before n` and `after n` for each kill, and `end`."""
    name = F.col("kill").cast("string")
    before = repairs.select(F.concat(F.lit("before "), name).alias("moment"), F.col("kill_ns").alias("at_ns"))
    after = repairs.select(
        F.concat(F.lit("after "), name).alias("moment"), F.coalesce("repaired_ns", F.lit(end_ns)).alias("at_ns")
    )
    end = repairs.sparkSession.createDataFrame([(END, end_ns)], MOMENTS_SCHEMA)
    return before.union(after).union(end)
