"""Processes, their subscriptions, and the state of their journals."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)


def processes(records: DataFrame, kills: DataFrame) -> DataFrame:
    """peer, started_ns, ended_ns, lived: every process that wrote a journal, and when it ended.

    It ended when it stopped, was killed, or a later process of the same peer started. `lived`: none of these happened
    before the run ended.
    """
    began = records.groupBy("peer", "started_ns").agg(
        F.min(F.when(F.col("record") == "Stopped", F.col("at_ns"))).alias("stopped_ns")
    )
    later = F.lead("started_ns").over(Window.partitionBy("peer").orderBy("started_ns"))
    killed = (
        began.join(F.broadcast(kills.select("peer", "kill_ns")), "peer")
        .where("kill_ns >= started_ns")
        .groupBy("peer", "started_ns")
        .agg(F.min("kill_ns").alias("kill_ns"))
    )
    ended = F.least("stopped_ns", "kill_ns", "later_ns")
    return (
        began.withColumn("later_ns", later)
        .join(killed, ["peer", "started_ns"], "left")
        .select("peer", "started_ns", ended.alias("ended_ns"), ended.isNull().alias("lived"))
    )


def subscriptions(records: DataFrame, processes: DataFrame, topics: DataFrame) -> DataFrame:
    """One row per subscription, numbered from 1.

    Columns: subscription, topic, peer, started_ns, number, delivery, since, until, term_counter, term_node, index,
    lived. `delivery` is the guarantee: reliable unless the subscriber asked for less or the topic guarantees less.

    It lasts from the entry `since` to before the entry `until` (null: to the end of the process), and is owed every
    event from its position on. `lived`: it existed when the run ended.
    """
    line = Window.partitionBy("peer", "started_ns", "topic", "number").orderBy("entry")
    changes = records.where(F.col("record").isin("Subscribed", "Unsubscribed"))
    changes = changes.withColumn("former", F.lag("record", 1, "Unsubscribed").over(line)).where("record <> former")
    held = changes.withColumn("until", F.lead("entry").over(line)).where("record = 'Subscribed'")
    subscription = F.row_number().over(Window.orderBy("topic", "peer", "started_ns", "entry"))
    given = topics.select("topic", F.col("delivery").alias("given"))
    owed = F.when(F.col("given") == "best_effort", F.col("given")).otherwise(F.col("delivery"))
    known = held.join(F.broadcast(processes), ["peer", "started_ns"]).join(F.broadcast(given), "topic")
    return known.select(
        subscription.alias("subscription"), "topic", "peer", "started_ns", "number", owed.alias("delivery"),
        F.col("entry").alias("since"), "until", "term_counter", "term_node", "index",
        (F.col("lived") & F.col("until").isNull()).alias("lived"),
    )  # fmt: skip


def within(rows: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """The same records with one more column: the subscription that they belong to, or null."""
    belongs = F.expr(  # <=> also matches journals whose subscriptions have no numbers
        "row.topic = held.topic and row.peer = held.peer and row.started_ns = held.started_ns "
        "and row.number <=> held.number and row.entry > held.since and (held.until is null or row.entry < held.until)"
    )
    return (
        rows.alias("row")
        .join(F.broadcast(subscriptions.alias("held")), belongs, "left")
        .select("row.*", "held.subscription")
    )


def topics(records: DataFrame) -> DataFrame:
    """topic, name, delivery: each topic's name, and its guarantee by the latest descriptor that any peer knew.

    Topics without a known name are shown by the start of their id, and count as reliable.
    """
    some = records.where("topic is not null").where(~F.col("record").isin("Routed", "Rerouted"))
    named = F.col("record") == "Named"
    name = F.coalesce(F.min(F.when(named, F.col("text"))), F.lower(F.substring(F.hex("topic"), 1, 8)))
    latest = F.max(F.when(named, F.struct("number", "at_ns", "delivery")))["delivery"]
    delivery = F.coalesce(latest, F.lit("reliable"))
    return some.groupBy("topic").agg(name.alias("name"), delivery.alias("delivery"))


def journals(records: DataFrame, processes: DataFrame, files: DataFrame) -> DataFrame:
    """One row per process: peer, started_ns, ended_ns, lived, records, missing, files, bytes, dropped_bytes, closed.

    `missing` counts records that are in no file, as the numbering shows: they were rotated away, or their file is not
    here. Files without a complete batch belong to nobody: the row without a peer.
    """
    key = ["peer", "started_ns"]
    held = records.groupBy(*key).agg(
        F.count(F.lit(1)).alias("records"), (F.max("entry") + 1 - F.count(F.lit(1))).alias("missing")
    )
    state = files.groupBy(*key).agg(
        F.count(F.lit(1)).alias("files"), F.sum("bytes").alias("bytes"), F.sum("dropped_bytes").alias("dropped_bytes"),
        F.max_by("closed", "file").alias("closed"),
    )  # fmt: skip
    numbers = [F.coalesce(F.col(name), F.lit(0)).alias(name) for name in ("records", "missing")]
    return state.join(held, key, "left").join(processes, key, "left").select(
        *key, "ended_ns", F.coalesce("lived", F.lit(False)).alias("lived"), *numbers,
        "files", "bytes", "dropped_bytes", "closed",
    )  # fmt: skip


def counters(records: DataFrame) -> DataFrame:
    """record, text, records, count: how often each other kind of record was written, by its why, how, where or source.

    `count` is the sum of the records' own counts (events, for repeats, repairs and drops); null if they have none.
    """
    kinds = (
        "Attached", "BecameRoot", "Detached", "Dropped", "Lost", "Mark", "Recovered", "Repaired", "Repeated",
        "Rerouted", "Suspected",
    )  # fmt: skip
    counted = F.coalesce(F.col("count"), F.col("last") - F.col("first"))
    return (
        records.where(F.col("record").isin(*kinds))
        .groupBy("record", "text")
        .agg(F.count(F.lit(1)).alias("records"), F.sum(counted).alias("count"))
    )


def last_event_ns(records: DataFrame) -> int:
    """When an event was last published, admitted or delivered; the time of the last record if there were no events."""
    moved = F.col("record").isin("Published", "Admitted", "Delivered")
    row = records.agg(F.max(F.when(moved, F.col("at_ns"))), F.max("at_ns")).first()
    assert row is not None
    return int(row[0] or row[1] or 0)
