"""What happened to every event, as ranges: published, due, delivered, reported lost (docs/audit.md).

Events are never listed one by one. Published, due and delivered events are ranges of sequences per publisher. Sets are
compared piece by piece, so a repeated event can never hide a missing one.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.pipeline.life import within
from quillcast.pipeline.ranges import coverage, merged

_MOVED = ("Admitted", "Delivered")


def deliveries(records: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """One row per delivered run: subscription (null if there was none), entry, publisher, first, last, delay_ms.

    The delay from publish to delivery is that of the run's first event, which waited longest. It is rounded to 0.01 ms,
    which bounds the cost of percentiles.
    """
    delay_ms = F.floor((F.col("at_ns") - F.col("published_ns")) / 1e4 + 0.5) / 100
    return within(records.where("record = 'Delivered'"), subscriptions).select(
        "subscription", "entry", "publisher", "first", (F.col("first") + F.col("count")).alias("last"),
        delay_ms.alias("delay_ms"),
    )  # fmt: skip


def stretches(deliveries: DataFrame) -> DataFrame:
    """Consecutive runs without a gap, merged: subscription, publisher, first, last, disordered.

    A complete stream is one stretch, however long. `disordered` counts its runs with an event that came after a later
    event of the same publisher.
    """
    line = Window.partitionBy("subscription", "publisher").orderBy("entry")
    highest = F.max("last").over(line.rowsBetween(Window.unboundedPreceding, -1))
    follows = F.col("first") == F.lag("last").over(line)
    number = F.sum(F.when(F.col("follows"), 0).otherwise(1)).over(line)
    return (
        deliveries.where("subscription is not null")
        .withColumns({"disordered": F.col("first") < highest - 1, "follows": follows})
        .withColumn("stretch", number)
        .groupBy("subscription", "publisher", "stretch")
        .agg(F.min("first").alias("first"), F.max("last").alias("last"), F.count_if("disordered").alias("disordered"))
        .drop("stretch")
    )


def runs(records: DataFrame) -> DataFrame:
    """Every run whose position is known, once: topic, publisher, first, last, term_counter, term_node, index.

    The root or a subscriber recorded it: a root that is killed loses its last records.
    """
    placed = records.where(F.col("record").isin(*_MOVED)).where("term_counter > 0")
    return placed.select(
        "topic", "publisher", "first", (F.col("first") + F.col("count")).alias("last"),
        "term_counter", "term_node", "index",
    ).distinct()  # fmt: skip


def published(records: DataFrame) -> DataFrame:
    """topic, publisher, events: the number of events that each publisher has published, according to any record."""
    known = merged(_ranges(records.where(F.col("record").isin("Published", *_MOVED))), ["topic", "publisher"])
    return known.groupBy("topic", "publisher").agg(F.sum(F.col("last") - F.col("first")).alias("events"))


def countable(records: DataFrame, processes: DataFrame) -> DataFrame:
    """The events that subscribers can rely on, as ranges: topic, publisher, first, last.

    These are events that a root admitted or that anyone received, and those of publishers that lived to the end.
    """
    dead = F.broadcast(processes.where("not lived").select("peer", "started_ns"))
    sealed = records.where("record = 'Published'").join(dead, ["peer", "started_ns"], "left_anti")
    moved = records.where(F.col("record").isin(*_MOVED))
    return merged(_ranges(sealed).union(_ranges(moved)), ["topic", "publisher"])


def _ranges(records: DataFrame) -> DataFrame:
    return records.select("topic", "publisher", "first", (F.col("first") + F.col("count")).alias("last"))


def owed_streams(records: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """The start of subscriptions in streams of sources: subscription, topic, term_counter, term_node, from_index."""
    began = within(records.where("record = 'StreamOwed'"), subscriptions).where("subscription is not null")
    return began.select("subscription", "topic", "term_counter", "term_node", F.col("index").alias("from_index"))


def due(events: DataFrame, subscriptions: DataFrame, runs: DataFrame, streams: DataFrame) -> DataFrame:
    """The events owed to each subscription of a living process: subscription, publisher, first, last.

    A publisher's events are older than the subscription up to the last event with a position before the subscription's.
    A root admits each publisher's events in order of sequence, so events readmitted in a later term do not count twice.
    In the stream of a source the subscription has a position of its own (`streams`, of `owed_streams`).
    """
    alive = subscriptions.where("lived").select(
        "subscription", "topic", F.struct("term_counter", "term_node", "index").alias("start")
    )
    latest = alive.groupBy("topic").agg(F.max("start").alias("latest"))
    early = runs.withColumn("place", F.struct("term_counter", "term_node", "index")).join(F.broadcast(latest), "topic")
    same_term = (F.col("term_counter") == F.col("start.term_counter")) & (
        F.col("term_node") == F.col("start.term_node")
    )
    end = F.least(F.col("last"), F.col("first") + F.col("start.index") - F.col("index"))
    floors = (
        early.where("place < latest")
        .join(F.broadcast(alive), "topic")
        .where("place < start")
        .select("subscription", "publisher", F.when(same_term, end).otherwise(F.col("last")).alias("floor"))
    )
    in_stream = F.least(F.col("last"), F.col("first") + F.col("from_index") - F.col("index"))
    before = (
        runs.join(F.broadcast(streams), ["topic", "term_counter", "term_node"])
        .where("index < from_index")
        .select("subscription", "publisher", in_stream.alias("floor"))
    )
    floors = floors.union(before).groupBy("subscription", "publisher").agg(F.max("floor").alias("floor"))
    owed = events.join(F.broadcast(alive), "topic").join(floors, ["subscription", "publisher"], "left")
    first = F.greatest("first", F.coalesce("floor", "first"))
    return owed.select("subscription", "publisher", first.alias("first"), "last").where("first < last")


def told(records: DataFrame, subscriptions: DataFrame, runs: DataFrame) -> DataFrame:
    """The events that subscribers were told they lost: subscription, publisher, first, last."""
    losses = within(records.where("record = 'Lost'"), subscriptions).where("subscription is not null")
    exact = losses.where("length(publisher) > 0").select("subscription", "publisher", "first", "last")
    uncertain = losses.where("publisher is null or length(publisher) = 0")
    places = uncertain.select("subscription", "topic", "term_counter", "term_node", "first", "last")
    return exact.unionByName(_at(places, runs))


def passed(records: DataFrame, subscriptions: DataFrame, runs: DataFrame) -> DataFrame:
    """The events that best-effort subscriptions skipped: subscription, publisher, first, last.

    An event with a later position in the same term was delivered, so the peer knew what came before it.
    """
    some = subscriptions.where("delivery = 'best_effort'")
    came = within(records.where("record = 'Delivered' and term_counter > 0"), some).where("subscription is not null")
    reach = came.groupBy("subscription", "topic", "term_counter", "term_node").agg(
        F.lit(0).alias("first"), F.max(F.col("index") + F.col("count")).alias("last")
    )
    return _at(reach, runs)


def _at(places: DataFrame, runs: DataFrame) -> DataFrame:
    """The events at ranges of positions (subscription, topic, term_counter, term_node, first, last)."""
    losses = places.alias("loss")
    start = F.greatest("loss.first", "run.index")
    end = F.least(F.col("loss.last"), F.col("run.index") + F.col("run.last") - F.col("run.first"))
    same_term = F.expr(
        "run.topic = loss.topic and run.term_counter = loss.term_counter and run.term_node = loss.term_node"
    )
    to_sequence = F.col("run.first") - F.col("run.index")
    return runs.alias("run").join(F.broadcast(losses), same_term & (start < end)).select(
        "loss.subscription", "run.publisher", (to_sequence + start).alias("first"), (to_sequence + end).alias("last")
    )  # fmt: skip


def compare(stretches: DataFrame, due: DataFrame, told: DataFrame, passed: DataFrame) -> DataFrame:
    """Each subscription's events piece by piece: subscription, publisher, first, last, due, copies, told, passed.

    All events of a piece have the same outcome: owed or not, delivered so many times, reported lost or not, skipped or
    not.
    """
    sets = {"due": due, "copies": stretches, "told": told, "passed": passed}
    return coverage(sets, ["subscription", "publisher"])


def per_subscription(subscriptions: DataFrame, pieces: DataFrame, stretches: DataFrame, delays: DataFrame) -> DataFrame:
    """The result of each subscription: topic, peer, started_ns, since, delivery, lived, counts and percentiles.

    The percentiles are p50_ms and p99_ms. The counts are expected, delivered, duplicated, lost, dropped, silent, extra
    and disordered; expected = delivered + lost + dropped. An event that was due and never arrived is lost, or dropped
    if only best effort was owed. `silent` counts those that were not reported to the subscriber; of dropped events only
    those that it skipped, because its peer may not know of the others. `extra` counts delivered events that were not
    due, such as events from before the start. `disordered` counts runs with an event that came after a later event of
    the same publisher.
    """
    size = F.col("last") - F.col("first")
    missing = "due > 0 and copies = 0"
    figures = {
        "expected": F.when(F.expr("due > 0"), size),
        "delivered": F.when(F.expr("due > 0 and copies > 0"), size),
        "duplicated": F.when(F.expr("copies > 1"), (F.col("copies") - 1) * size),
        "lost": F.when(F.expr(f"{missing} and delivery = 'reliable'"), size),
        "dropped": F.when(F.expr(f"{missing} and delivery = 'best_effort'"), size),
        "silent": F.when(F.expr(f"{missing} and told = 0 and (delivery = 'reliable' or passed > 0)"), size),
        "extra": F.when(F.expr("due = 0 and copies > 0"), size),
    }
    owed = F.broadcast(subscriptions.select("subscription", "delivery"))
    judged = pieces.join(owed, "subscription").groupBy("subscription")
    counts = judged.agg(*[F.sum(figure).alias(name) for name, figure in figures.items()])
    order = stretches.groupBy("subscription").agg(F.sum("disordered").alias("disordered"))
    times = delays.groupBy("subscription").agg(F.percentile("delay_ms", [0.5, 0.99], F.col("count")).alias("delay_ms"))
    joined = subscriptions
    for table in (counts, order, times):
        joined = joined.join(table, "subscription", "left")
    numbers = [F.coalesce(F.col(name), F.lit(0)).cast("bigint").alias(name) for name in (*figures, "disordered")]
    return joined.select(
        "topic", "peer", "started_ns", "since", "delivery", "lived", *numbers,
        F.col("delay_ms")[0].alias("p50_ms"), F.col("delay_ms")[1].alias("p99_ms"),
    )  # fmt: skip


def gaps(pieces: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """The lost ranges: topic, peer, started_ns, since, publisher, first, last, and whether they were reported."""
    lost = pieces.where("due > 0 and copies = 0").join(F.broadcast(subscriptions), "subscription")
    return lost.select(
        "topic", "peer", "started_ns", "since", "publisher", "first", "last", (F.col("told") > 0).alias("told")
    )


def delays(deliveries: DataFrame) -> DataFrame:
    """subscription, delay_ms, count: the number of events by their delay, in steps of 0.01 ms."""
    return deliveries.groupBy("subscription", "delay_ms").agg(F.sum(F.col("last") - F.col("first")).alias("count"))


def percentiles(delays: DataFrame) -> DataFrame:
    """p50_ms, p90_ms, p99_ms, max_ms over all deliveries, each run weighted by its events; null without deliveries."""
    points = F.percentile("delay_ms", [0.5, 0.9, 0.99, 1.0], F.col("count"))
    return delays.agg(points.alias("points")).select(
        *[F.col("points")[n].alias(name) for n, name in enumerate(("p50_ms", "p90_ms", "p99_ms", "max_ms"))]
    )


def rates(records: DataFrame, bucket_ns: int) -> DataFrame:
    """bucket_ns, topic, published, delivered: events per time bucket, which begins at a multiple of `bucket_ns`."""
    moved = records.where(F.col("record").isin("Published", "Delivered"))
    begin = F.col("at_ns") - F.col("at_ns") % bucket_ns
    counts = [
        F.coalesce(F.sum(F.when(F.col("record") == record, F.col("count"))), F.lit(0)).alias(name)
        for record, name in (("Published", "published"), ("Delivered", "delivered"))
    ]
    return moved.groupBy(begin.alias("bucket_ns"), "topic").agg(*counts)


def conflicts(runs: DataFrame) -> DataFrame:
    """Ranges of positions with more than one event: topic, term_counter, term_node, first, last, events."""
    term = ["topic", "term_counter", "term_node"]
    shift = F.col("index") - F.col("first")
    placed = runs.select(
        *term, "publisher", shift.alias("shift"), F.col("index").alias("first"), (F.col("last") + shift).alias("last")
    )
    return coverage({"events": merged(placed, [*term, "publisher", "shift"])}, term).where("events > 1")
