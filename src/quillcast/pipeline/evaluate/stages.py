"""The stages of an evaluation, each from tables to a table (`schemas`), for runs and for notebooks.

The heavy work is done by compiled kernels that Spark calls with Arrow columns. Whole groups are the unit of
parallelism, and start in the order of their size. Randomness comes from (seed, group), so partitioning decides nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from quillcast.core.errors import LocalError
from quillcast.pipeline.evaluate import churn, metrics, policies, schemas, stored, sums, treetable, workload
from quillcast.pipeline.evaluate.columns import Batches, Columns, column, record_batch
from quillcast.pipeline.evaluate.deployment import Deployment, Shipped
from quillcast.pipeline.evaluate.experiment import Publishers
from quillcast.pipeline.evaluate.network import Tree
from quillcast.pipeline.evaluate.policies.policy import Load
from quillcast.pipeline.evaluate.routing import Tables, frozen

SETTINGS = treetable.SETTINGS

TASKS = 32  # a guess: enough for balance on a dozen cores, and few enough that starting them costs nothing
TASK_MEMBERS_MIN = 50_000  # starting a task takes 0.08 s of CPU time, the work on so many members about as much
TASK_PEERS = 4  # adding up over so many peers costs a task about as much as the work on one member
PIECE_MEMBERS_MIN = 4 * TASK_MEMBERS_MIN  # splitting a group costs two more rounds of tasks; a guess
PARTS_MAX, TASK_ROWS = 8, 50_000  # of a table whose rows are only copied: guesses
SLICE_ROWS = 1 << 19  # of a batch that a kernel hands to Spark
PUBLISHERS = 4  # of a group, where members publish; a guess


# --- the deployment as tables


def places(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The places of the topology (`schemas.PLACES`).

    Args:
        spark: the session.
        deployment: where they are.
        into: where tasks are to write the table themselves; the result then names its files (`stored`).
    """

    def rows(first: int, last: int) -> Columns:
        topology = deployment.arrays().topology
        attachable = np.zeros(topology.places, np.bool_)
        attachable[topology.attachable] = True
        names = np.array(topology.place_names or [str(place) for place in range(topology.places)], np.object_)
        numbers = np.arange(first, last, dtype=np.int32)
        part = slice(first, last)
        return {
            "place": numbers,
            "domain": topology.domain[part],
            "attachable": attachable[part],
            "name": names[part],
        }

    return _numbered(spark, deployment.arrays().topology.places, rows, schemas.PLACES, into)


def links(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The core links of the topology (`schemas.LINKS`). Arguments as for `places`."""

    def rows(first: int, last: int) -> Columns:
        topology = deployment.arrays().topology
        ends = topology.link_ends[first:last]
        numbers = np.arange(first, last, dtype=np.int32)
        return {
            "link": numbers,
            "from_place": ends[:, 0],
            "to_place": ends[:, 1],
            "delay_ms": topology.link_ms[first:last],
        }

    return _numbered(spark, len(deployment.arrays().topology.link_ends), rows, schemas.LINKS, into)


def peers(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The peers (`schemas.PEERS`). Arguments as for `places`."""

    def rows(first: int, last: int) -> Columns:
        attached = deployment.arrays().peers
        return {
            "peer": np.arange(first, last, dtype=np.int32),
            "id": attached.ids[first:last].view(np.int64),
            "place": attached.place[first:last],
            "domain": attached.domain[first:last],
        }

    return _numbered(spark, len(deployment.arrays().peers), rows, schemas.PEERS, into)


def groups(spark: SparkSession, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The groups of the workload, and the tasks that they are worked on in (`schemas.GROUPS`).

    Arguments as for `places`.
    """
    sizes = deployment.arrays().workload.sizes
    order = np.argsort(-sizes.astype(np.int64), kind="stable").astype(np.int32)
    task, piece = tasks(sizes[order], len(deployment.arrays().peers)), piece_members(deployment)

    def rows(first: int, last: int) -> Columns:
        numbers = order[first:last]
        keys = np.array([workload.key(int(number), deployment.seed) for number in numbers], np.uint64)
        names = deployment.arrays().workload.group_names or [""] * len(sizes)
        return {
            "group": numbers,
            "name": np.array([names[number] for number in numbers], np.object_),
            "key": keys.view(np.int64),
            "members": sizes[numbers],
            "task": task[first:last],
            "pieces": -(-sizes[numbers] // piece),
        }

    return _numbered(spark, len(sizes), rows, schemas.GROUPS, into, parts=1)


def tasks(sizes: npt.NDArray[np.int32], peers: int) -> npt.NDArray[np.int32]:
    """Which task each group belongs to.

    Args:
        sizes: members of the groups, descending.
        peers: how many there are in the deployment.

    A large group is a task of its own; small ones that follow each other share one.
    """
    least = _task_members(sizes, peers)
    task = np.empty(len(sizes), np.int32)
    number, members = 0, 0
    for at, size in enumerate(sizes.tolist()):
        if members and members + size > least:
            number, members = number + 1, 0
        task[at] = number
        members += size
    return task


def piece_members(deployment: Deployment) -> int:
    """So many members of a group have their routes found by one task; a group of more is split."""
    arrays = deployment.arrays()
    return max(_task_members(arrays.workload.sizes, len(arrays.peers)), PIECE_MEMBERS_MIN)


def _task_members(sizes: npt.NDArray[np.int32], peers: int) -> int:
    """How many members' work is worth a task."""
    return max(int(sizes.sum(dtype=np.int64)) // TASKS, TASK_MEMBERS_MIN, peers // TASK_PEERS)


# --- trees


def loads(groups: DataFrame, deployment: Deployment, policy: str, into: Path | None = None) -> DataFrame:
    """What all groups ask of each peer (`schemas.LOADS`), for policies that must know it beforehand.

    Arguments as for `trees`.
    """
    figures = schemas.columns(schemas.LOADS)[1:]

    def count(batches: Batches) -> Batches:
        arrays, grower = deployment.arrays(), policies.parse(policy)
        numbers = [number for batch in batches for number in column(batch, "group").tolist()]
        load = grower.load(arrays.tables, (deployment.group(number) for number in numbers))
        yield from sums.partials("peer", [load.entries, load.trees, *load.capped.T], 0)

    def rows(kind: str, numbers: npt.NDArray[Any], total: sums.Sums) -> pa.RecordBatch:
        columns = {"peer": numbers} | dict(zip(figures, total, strict=True))
        return record_batch(schemas.LOADS, columns, len(numbers))

    counts = {"peer": len(deployment.arrays().peers)}
    partials = _by_task(groups, deployment).mapInArrow(count, schemas.PARTIALS)
    return sums.added(partials, counts, len(figures), rows, schemas.LOADS, into)


def save_load(path: Path, count: int, folder: Path) -> None:
    """Write a table of `schemas.LOADS` as arrays that all processes of a machine can map.

    Args:
        path: the table.
        count: how many peers there are.
        folder: where to write them.
    """
    table = parquet.read_table(path)
    load = Load.none(count)
    peers = table["peer"].to_numpy()
    load.entries[peers], load.trees[peers] = table["entries"].to_numpy(), table["trees"].to_numpy()
    for step, name in enumerate(schemas.columns(schemas.LOADS)[3:]):
        load.capped[peers, step] = table[name].to_numpy()
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in load._asdict().items():
        np.save(folder / f"{name}.npy", array)


def open_load(folder: Path) -> Load:
    """What `save_load` wrote."""
    maps = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in Load._fields}
    return Load(**{name: frozen(array, array.dtype) for name, array in maps.items()})


def trees(
    groups: DataFrame, deployment: Deployment, policy: str, load: Shipped | None = None, into: Path | None = None
) -> DataFrame:
    """The trees that a policy grows for groups (`schemas.TREES`), in a partition for each task.

    Args:
        groups: as `groups` made them, or some of them.
        deployment: where they are.
        policy: such as "scribe+remover(64)"; see `policies.parse`.
        load: where `save_load` wrote, for a policy that `needs_load`.
        into: where tasks are to write the table themselves; the result then names its files (`stored`).
    """
    grower = policies.parse(policy)
    if grower.needs_load and load is None:
        raise LocalError(f"{policy} needs the load of all groups; make it with loads and save_load")

    def work(batches: Batches) -> Batches:
        for batch in batches:
            numbers, sizes = (column(batch, name) for name in ("group", "members"))
            yield from grow(numbers[np.lexsort((numbers, -sizes))].tolist(), deployment, policy, load)

    giants = _giants_count(deployment) if grower.splittable else 0
    if not giants:
        return stored.mapped(_by_task(groups, deployment), work, schemas.TREES, into)
    rest = stored.mapped(_by_task(groups.where(groups.task >= giants), deployment, giants), work, schemas.TREES, into)
    return _giants(groups.where(groups.task < giants), giants, deployment, policy, load, into).unionAll(rest)


def _giants_count(deployment: Deployment) -> int:
    """How many groups are split. They are the largest, so theirs are the first tasks, one for each."""
    return int(np.count_nonzero(deployment.arrays().workload.sizes > piece_members(deployment)))


def _giants(
    groups: DataFrame, count: int, deployment: Deployment, policy: str, load: Shipped | None, into: Path | None
) -> DataFrame:
    """The trees of groups that are split: their members' routes, found piece by piece, and joined."""
    size = piece_members(deployment)
    most = -(-int(deployment.arrays().workload.sizes.max()) // size)

    def find(batches: Batches) -> Batches:
        tables, base = deployment.arrays().tables, policies.parse(policy).splittable
        assert base is not None
        for batch in batches:
            for row in batch.to_pylist():
                group = deployment.group(row["group"])
                part = group.members[row["piece"] * size : (row["piece"] + 1) * size]
                nodes, parents = base.routes(tables, group, part)
                for first in range(0, len(nodes), SLICE_ROWS):
                    cut = slice(first, first + SLICE_ROWS)
                    yield record_batch(
                        schemas.ROUTES, row | {"nodes": nodes[cut].tobytes(), "parents": parents[cut].tobytes()}, 1
                    )

    def join(batches: Batches) -> Batches:
        arrays, grower = deployment.arrays(), policies.parse(policy)
        known = open_load(load.here()) if load else None
        rows = sorted((row for batch in batches for row in batch.to_pylist()), key=itemgetter("group", "piece"))
        for number, pieces in groupby(rows, key=itemgetter("group")):
            told = [(np.frombuffer(row["nodes"], np.int32), np.frombuffer(row["parents"], np.int32)) for row in pieces]
            nodes, parents = (np.concatenate(column) for column in zip(*told, strict=True))
            made = grower.joined(arrays.tables, deployment.group(number), nodes, parents, known)
            yield from treetable.tree_rows((number, at, tree) for at, tree in enumerate(made))

    pieces = groups.selectExpr("group", "task", "explode(sequence(0, pieces - 1)) as piece")
    spread = pieces.repartitionById(most, F.expr(f"pmod(task + piece, {most})"))
    routes = spread.mapInArrow(find, schemas.ROUTES).repartitionById(count, "task")
    return stored.mapped(routes, join, schemas.TREES, into)


def grow(numbers: Sequence[int], deployment: Deployment, policy: str, load: Shipped | None = None) -> Batches:
    """The trees of these groups, one after another: what a task of `trees` does."""
    arrays, grower = deployment.arrays(), policies.parse(policy)
    known = open_load(load.here()) if load else None
    yield from treetable.tree_rows(
        (number, at, tree)
        for number in numbers
        for at, tree in enumerate(grower.trees(arrays.tables, deployment.group(number), known))
    )


def _by_task(groups: DataFrame, deployment: Deployment, first: int = 0) -> DataFrame:
    """Groups in a partition for each task from the first one on."""
    arrays = deployment.arrays()
    count = int(tasks(np.sort(arrays.workload.sizes)[::-1], len(arrays.peers))[-1]) + 1 - first
    chosen = groups.select("group", "members", "task")
    return chosen.repartitionById(max(1, count), F.expr(f"task - {first}"))


def edges(trees: DataFrame) -> DataFrame:
    """A row for each message that an event costs, and one for each root (`schemas.EDGES`).

    Args:
        trees: as `trees` made them, or read from a table.
    """
    carried = trees.selectExpr("group", "tree", "weight", "inline(arrays_zip(nodes, parents, member))").selectExpr(
        "group", "tree", "nodes as node", "parents as parent", "member", "false as redundant", "weight"
    )
    further = trees.selectExpr("group", "tree", "weight", "inline(arrays_zip(extra_from, extra_to))").selectExpr(
        "group", "tree", "extra_to as node", "extra_from as parent", "false as member", "true as redundant", "weight"
    )
    return carried.unionAll(further)


# --- metrics


def delays(
    trees: DataFrame, deployment: Deployment, publishers: Publishers = "root", into: Path | None = None
) -> DataFrame:
    """Delays of each group's events, against IP multicast from the same source (`schemas.DELAYS`).

    Args:
        trees: as `trees` made them, or read from a table with `SETTINGS`, or the files of one.
        deployment: that they were grown in.
        publishers: whose events they are.
        into: where tasks are to write the table themselves; the result then names its files (`stored`).
    """
    return stored.mapped(trees, lambda batches: measure(batches, deployment, publishers), schemas.DELAYS, into)


def measure(batches: Batches, deployment: Deployment, publishers: Publishers) -> Batches:
    """Delays in these trees: what a task of `delays` does."""
    arrays = deployment.arrays()
    rows = [
        _delays_of(arrays.tables, number, grown, source)
        for number, grown in _by_group(batches, len(arrays.peers), treetable.SHAPE)
        for source in _sources(publishers, grown, number, deployment).tolist()
    ]
    if rows:
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        yield record_batch(schemas.DELAYS, columns, len(rows))


def _delays_of(tables: Tables, number: int, grown: list[Tree], source: int) -> dict[str, Any]:
    """One row of `schemas.DELAYS`."""
    root = int(grown[0].nodes[0])
    members = grown[0].member
    if grown[1:]:
        parents = np.concatenate([tree.nodes[tree.parent[1:]] for tree in grown])
        children = np.unique(parents, return_counts=True)[1]
        nodes = len(np.unique(np.concatenate([tree.nodes for tree in grown])))
    else:
        children, nodes = np.bincount(grown[0].parent[1:]), len(grown[0].nodes)
    return {
        "group": number,
        "source": source,
        "members": int(np.count_nonzero(members)),
        "nodes": nodes,
        "depth": max(_depth(tree.parent) for tree in grown),
        "children_max": int(children.max(initial=0)),
        "messages": sum(tree.weight * (len(tree.nodes) - 1 + len(tree.extra)) for tree in grown) + (source != root),
        "border_copies": sum(tree.weight * metrics.crossings(tables, tree) for tree in grown),
        **metrics.ratios(tables, grown, -1 if source == root else source)._asdict(),
    }


def stress(
    trees: DataFrame, deployment: Deployment, publishers: Publishers = "root", into: Path | None = None
) -> DataFrame:
    """What one event of each group asks of peers and of links (`schemas.STRESS`), a row for each of them.

    Arguments as for `delays`; of several publishers the first one counts.
    """

    def rows(kind: str, numbers: npt.NDArray[Any], total: sums.Sums) -> pa.RecordBatch:
        figures = schemas.columns(schemas.STRESS)[2:]
        if kind == "link":
            columns = {name: np.zeros(len(numbers)) for name in figures} | {
                "messages": total[0],
                "ip_messages": total[1],
            }
        else:
            columns = dict(zip(figures, total, strict=True))
        rounded = {name: values.round(6) for name, values in columns.items()}  # sums of thirds depend on their order
        return record_batch(schemas.STRESS, {"kind": kind, "number": numbers} | rounded, len(numbers))

    arrays = deployment.arrays()
    counts = {"peer": len(arrays.peers), "link": len(arrays.topology.link_ends)}
    partials = trees.mapInArrow(lambda batches: burden(batches, deployment, publishers), schemas.PARTIALS)
    return sums.added(partials, counts, 7, rows, schemas.STRESS, into)


def burden(batches: Batches, deployment: Deployment, publishers: Publishers) -> Batches:
    """What these trees ask of peers and links, as `schemas.PARTIALS`: what a task of `stress` does."""
    topology, attached, _, _ = deployment.arrays()
    peers, links = len(attached), len(topology.link_ends)
    tables, entries = np.zeros(peers, np.int32), np.zeros(peers, np.int32)
    of_peers, of_links = np.zeros((5, peers)), np.zeros((2, links))
    forwarded, state, joins, access, ip_access = of_peers
    core, ip_core = of_links
    for number, grown in _by_group(batches, peers, schemas.columns(schemas.TREES)):
        root, source = int(grown[0].nodes[0]), int(_sources(publishers, grown, number, deployment)[0])
        for at, tree in enumerate(grown):
            metrics.add_node_stress(tree, tables, entries, forwarded)
            sender = source if at == 0 and source != root else -1
            metrics.add_link_stress(topology, attached, tree, core, access, sender)
            state[tree.nodes] += tree.state
            joins[tree.nodes] += tree.joins
        members = grown[0].nodes[grown[0].member]
        metrics.ip_link_stress(topology, attached, source, members, ip_core, ip_access)
    yield from sums.partials("peer", [tables, entries, *of_peers], 0)
    yield from sums.partials("link", [core, ip_core], sums.blocks(peers))


def warm_up(deployment: Deployment, names: Sequence[str], publishers: Publishers) -> None:
    """Have this process compile what tasks will call, on the smallest group; they find it in numba's cache."""
    arrays = deployment.arrays()
    smallest = int(np.argmin(arrays.workload.sizes))
    for name in names:
        policy = policies.parse(name)
        load = policy.load(arrays.tables, [deployment.group(smallest)]) if policy.needs_load else None
        grown = policy.trees(arrays.tables, deployment.group(smallest), load)
        if policy.splittable and _giants_count(deployment):
            group = deployment.group(smallest)
            policy.joined(arrays.tables, group, *policy.splittable.routes(arrays.tables, group, group.members), load)
        batches = list(treetable.tree_rows((smallest, at, tree) for at, tree in enumerate(grown)))
        list(measure(iter(batches), deployment, publishers))
        list(burden(iter(batches), deployment, publishers))


def repairs(trees: DataFrame, deployment: Deployment, survivors: Shipped, into: Path | None = None) -> DataFrame:
    """What it takes to mend the trees after many deaths (`schemas.CHURN`).

    Args:
        trees: as for `delays`.
        deployment: that they were grown in.
        survivors: where `deployment.make_survivors` wrote.
        into: where tasks are to write the table themselves; the result then names its files (`stored`).
    """

    def work(batches: Batches) -> Batches:
        arrays = deployment.arrays()
        alive = churn.load(survivors.here(), arrays.topology)
        where = np.full(len(alive.tables.ids), -1, np.int32)
        for number, grown in _by_group(batches, len(arrays.peers), treetable.SHAPE):
            key = int(workload.key(number, deployment.seed))
            mended = [churn.repair(alive, tree, key, where) for tree in grown]
            orphans = sum(each.orphans for each in mended)
            told = {
                "group": number,
                "killed": mended[0].killed,
                "cut_off": max(each.cut_off for each in mended),
                "orphans": orphans,
                "messages": sum(each.messages for each in mended),
                "max_ms": max(each.max_ms for each in mended),
                "mean_ms": sum(each.mean_ms * each.orphans for each in mended) / max(1, orphans),
            }
            yield record_batch(schemas.CHURN, told, 1)

    return stored.mapped(trees, work, schemas.CHURN, into)


def histograms(stress: DataFrame, into: Path | None = None) -> DataFrame:
    """How many peers and links bear which load (`schemas.HISTOGRAMS`).

    Args:
        stress: as `stress` made it, or the files of it.
        into: where tasks are to write the table themselves; the result then names its files (`stored`).
    """
    figures = schemas.columns(schemas.STRESS)[2:]

    def count(batches: Batches) -> Batches:
        for batch in stored.opened(batches, schemas.columns(schemas.STRESS)):
            kinds = column(batch, "kind")
            for kind in ("peer", "link"):
                chosen = kinds == kind
                for figure in figures if kind == "peer" else ("messages", "ip_messages"):
                    values, counts = np.unique(column(batch, figure)[chosen].astype(np.float64), return_counts=True)
                    columns = {"kind": kind, "figure": figure, "value": values, "count": counts}
                    yield record_batch(schemas.HISTOGRAMS, columns, len(values))

    def add(batches: Batches) -> Batches:
        counts: Counter[tuple[str, str, float]] = Counter()
        for batch in batches:
            for kind, figure, value, count in zip(*(each.to_pylist() for each in batch.columns), strict=True):
                counts[kind, figure, value] += count
        kinds, names, values = (np.array(each) for each in zip(*sorted(counts), strict=True))
        of_each = np.array([counts[key] for key in sorted(counts)])
        columns = {"kind": kinds, "figure": names, "value": values, "count": of_each}
        yield record_batch(schemas.HISTOGRAMS, columns, len(counts))

    counted = stress.mapInArrow(count, schemas.HISTOGRAMS).repartition(1)
    return stored.mapped(counted, add, schemas.HISTOGRAMS, into)


def _by_group(batches: Batches, peers: int, needed: list[str]) -> Iterator[tuple[int, list[Tree]]]:
    """Each group of a partition with all its trees."""
    number = -1
    grown: list[Tree] = []
    for group, _, tree in treetable.whole_trees(stored.opened(batches, needed), peers):
        if grown and group != number:
            yield number, grown
            grown = []
        number = group
        grown.append(tree)
    if grown:
        yield number, grown


def _sources(kind: Publishers, grown: list[Tree], number: int, deployment: Deployment) -> npt.NDArray[np.int32]:
    """The peers whose events a group carries."""
    if kind == "root":  # whatever the members are
        return grown[0].nodes[:1]
    return workload.publishers(kind, deployment.group(number), int(grown[0].nodes[0]), PUBLISHERS)


@njit("int64(int32[::1])", cache=True)
def _depth(parent: npt.NDArray[np.int32]) -> int:
    """The most steps from the root to a node."""
    depth = np.zeros(len(parent), np.int32)
    deepest = 0
    for node in range(1, len(parent)):
        depth[node] = depth[parent[node]] + 1
        deepest = max(deepest, depth[node])
    return deepest


# --- beginnings


def warm_workers(spark: SparkSession) -> None:
    """Have Spark and its workers load what the first stage would else wait for."""
    spark.range(0, 2, 1, 2).mapInArrow(_same, "id long").collect()


def _same(batches: Batches) -> Batches:
    """Being of this module, it makes a worker import it."""
    return batches


# --- rows and columns


def _numbered(
    spark: SparkSession, count: int, rows: Callable[[int, int], Columns], schema: str, into: Path | None, parts: int = 0
) -> DataFrame:
    """A table whose rows are computed from their numbers, by ranges."""
    parts = parts or max(1, min(PARTS_MAX, count // TASK_ROWS))

    def compute(batches: Batches) -> Batches:
        for batch in batches:
            for part in column(batch, "id").tolist():
                first, last = count * part // parts, count * (part + 1) // parts
                for begin in range(first, last, SLICE_ROWS):
                    end = min(begin + SLICE_ROWS, last)
                    yield record_batch(schema, rows(begin, end), end - begin)

    return stored.mapped(spark.range(0, parts, 1, parts), compute, schema, into)
