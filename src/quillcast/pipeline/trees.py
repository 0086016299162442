"""The topics' trees at chosen moments, and how fast they were repaired after each kill."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

MOMENTS_SCHEMA = "moment string, at_ns bigint"
"""Named times at which trees are examined."""

KILLS_SCHEMA = "kill int, peer binary, kill_ns bigint, what string"
"""Peers that were killed on purpose, numbered from 1 in order of time."""

_WALKED_SCHEMA = "moment string, topic binary, peer binary, parent binary, is_root boolean, depth int, children int"

_CHANGES = ("Attached", "Detached", "BecameRoot", "ResignedRoot")


def states(records: DataFrame, processes: DataFrame, moments: DataFrame) -> DataFrame:
    """The state of each live peer in each topic at each moment: moment, topic, peer, parent, is_root.

    A root is a peer that became root, and neither resigned nor found a parent since. A member that has no parent and is
    not a root is an orphan. A peer that left the tree itself is not a member.
    """
    order = F.struct("started_ns", "entry")
    place = F.col("record").isin("Attached", "Detached")
    last_root_change = F.col("record").isin("Attached", "BecameRoot", "ResignedRoot")
    last = (
        records.where(F.col("record").isin(*_CHANGES))
        .join(F.broadcast(processes.select("peer", "started_ns", "ended_ns")), ["peer", "started_ns"])
        .withColumnRenamed("at_ns", "changed_ns")
        .join(F.broadcast(moments), F.expr("changed_ns <= at_ns and (ended_ns is null or ended_ns >= at_ns)"))
        .groupBy("moment", "topic", "peer")
        .agg(
            F.max_by(F.when(place, F.struct("record", "other", "text")), F.when(place, order)).alias("place"),
            F.max_by("record", F.when(last_root_change, order)).alias("last_root_change"),
        )
    )
    is_root = F.coalesce(F.col("last_root_change") == "BecameRoot", F.lit(False))
    parent = F.when(~is_root & (F.col("place.record") == "Attached"), F.col("place.other"))
    state = last.select(
        "moment", "topic", "peer", parent.alias("parent"), is_root.alias("is_root"), F.col("place.text").alias("why")
    )
    return state.where("is_root or parent is not null or why <> 'left'").drop("why")


def trees(state: DataFrame) -> DataFrame:
    """The trees in these states: one row per moment, topic and peer of its tree.

    `depth` is the number of steps below the root, and null for a peer without a path to a root; `children` counts those
    in this topic, `children_all` those in all topics.
    """
    walked = state.groupBy("moment", "topic").applyInArrow(_walk, _WALKED_SCHEMA)
    loads = walked.groupBy("moment", "peer").agg(F.sum("children").cast("int").alias("children_all"))
    return walked.join(loads, ["moment", "peer"]).select(
        "moment", "topic", "peer", "parent", "is_root", "depth", "children", "children_all"
    )


def shapes(trees: DataFrame) -> DataFrame:
    """One row per moment and topic: peers, depth_max, depth_mean, children_max, children_mean (if not 0)."""
    return trees.groupBy("moment", "topic").agg(
        F.count(F.lit(1)).alias("peers"),
        F.max("depth").alias("depth_max"),
        F.avg("depth").alias("depth_mean"),
        F.max("children").alias("children_max"),
        F.avg(F.when(F.col("children") > 0, F.col("children"))).alias("children_mean"),
    )


def shown(trees: DataFrame, kills: DataFrame, topics: DataFrame, peers_max: int) -> DataFrame:
    """The trees worth drawing, one topic before and after each kill: columns of `trees`, and kill.

    It is the topic named in the kill's description, else the one in which the victim had the most children. Trees of
    more than `peers_max` peers are left out.
    """
    victims = kills.select("kill", "peer", "what", _moment("before ").alias("moment"))
    is_named = F.expr("instr(what, name) > 0")
    chosen = (
        trees.join(F.broadcast(victims), ["moment", "peer"])
        .join(F.broadcast(topics), "topic")
        .groupBy("kill")
        .agg(F.max_by("topic", F.struct(is_named, "children", "is_root", "topic")).alias("topic"))
        .withColumn("moment", F.explode(F.array(_moment("before "), _moment("after "))))
    )
    small = shapes(trees).where(F.col("peers") <= peers_max).select("moment", "topic")
    return trees.join(F.broadcast(small), ["moment", "topic"]).join(F.broadcast(chosen), ["moment", "topic"])


def _moment(when: str) -> Column:
    return F.concat(F.lit(when), F.col("kill").cast("string"))


def repairs(records: DataFrame, processes: DataFrame, kills: DataFrame) -> DataFrame:
    """How each kill was repaired; one row per kill.

    Columns: the kill's (`KILLS_SCHEMA`); topics, the number of topics with the victim in their tree; roots, the number
    of those of which it was root; children, the (topic, child) pairs below it; unrepaired, those that are alive and
    found no parent; by_fallback, those that joined a fallback; repaired_ns, when the last child had a parent again that
    accepted it; repair_s, from the kill until then (0 without children, null while any is unrepaired).

    A child is repaired when another parent accepts it or it becomes root. It needs no repair if it left the tree,
    stopped, or was killed itself first.
    """
    moments = kills.select(F.col("kill").cast("string").alias("moment"), F.col("kill_ns").alias("at_ns"))
    state = states(records, processes, moments).withColumn("kill", F.col("moment").cast("int")).drop("moment")
    victims = kills.select("kill", F.col("peer").alias("victim"), "kill_ns")
    below = state.join(F.broadcast(victims), "kill").where("parent = victim")
    orphans = below.select("kill", "victim", "kill_ns", "topic", "peer")
    found = _first_answers(records, orphans)
    ended = processes.groupBy("peer").agg(F.max("ended_ns").alias("ended_ns"))
    fates = orphans.join(found, ["kill", "topic", "peer"], "left").join(F.broadcast(ended), "peer", "left")
    answered = F.col("answer.record").isin("Attached", "BecameRoot")
    excused = F.coalesce(F.col("answer.record") == "Detached", F.col("ended_ns") > F.col("kill_ns"), F.lit(False))
    summed = fates.groupBy("kill").agg(
        F.count(F.lit(1)).alias("children"),
        F.count_if(~F.coalesce(answered, F.lit(False)) & ~excused).alias("unrepaired"),
        F.count_if(answered & (F.col("answer.text") == "fallback")).alias("by_fallback"),
        F.max(F.when(answered, F.col("answer.at_ns"))).alias("repaired_ns"),
    )
    parts = (
        state.join(F.broadcast(kills), ["kill", "peer"])
        .groupBy("kill")
        .agg(F.count(F.lit(1)).alias("topics"), F.count_if("is_root").alias("roots"))
    )
    names = ("topics", "roots", "children", "unrepaired", "by_fallback")
    counts = [F.coalesce(F.col(name), F.lit(0)).alias(name) for name in names]
    seconds = F.when(F.col("unrepaired") == 0, F.coalesce((F.col("repaired_ns") - F.col("kill_ns")) / 1e9, F.lit(0.0)))
    return (
        kills.join(parts, "kill", "left")
        .join(summed, "kill", "left")
        .select(*kills.columns, *counts, "repaired_ns")
        .withColumn("repair_s", seconds)
        .orderBy("kill")
    )


def _first_answers(records: DataFrame, orphans: DataFrame) -> DataFrame:
    """What first ended each orphan's search: kill, topic, peer, answer (at_ns, record, text)."""
    changes = records.where(F.col("record").isin(*_CHANGES)).select("topic", "peer", "at_ns", "record", "other", "text")
    return (
        changes.join(F.broadcast(orphans), ["topic", "peer"])
        .where("at_ns > kill_ns")
        .where(
            "record = 'Attached' and other <> victim or record = 'BecameRoot' or record = 'Detached' and text = 'left'"
        )
        .groupBy("kill", "topic", "peer")
        .agg(F.min(F.struct("at_ns", "record", "text")).alias("answer"))
    )


def depths(parents: Mapping[bytes, bytes | None], roots: list[bytes]) -> dict[bytes, int]:
    """Each peer's number of steps below its root. Peers without a path to a root are left out."""
    children: dict[bytes, list[bytes]] = {}
    for peer, parent in parents.items():
        if parent is not None:
            children.setdefault(parent, []).append(peer)
    found: dict[bytes, int] = {}
    level, depth = list(roots), 0
    while level:
        found |= dict.fromkeys(level, depth)
        level = [child for peer in level for child in children.get(peer, []) if child not in found]
        depth += 1
    return found


def _walk(members: pa.Table) -> pa.Table:
    """One tree: each peer's depth and children."""
    peers, parents = members["peer"].to_pylist(), members["parent"].to_pylist()
    roots = [peer for peer, is_root in zip(peers, members["is_root"].to_pylist(), strict=True) if is_root]
    depth = depths(dict(zip(peers, parents, strict=True)), roots)
    return (
        members.select(["moment", "topic", "peer", "parent", "is_root"])
        .append_column("depth", pa.array([depth.get(peer) for peer in peers], pa.int32()))
        .append_column("children", pa.array([parents.count(peer) for peer in peers], pa.int32()))
    )
