"""The stages of an evaluation, each from tables to a table (`schemas`), for runs and for notebooks.

The heavy work is done by compiled kernels that Spark calls with Arrow columns. Whole groups are the unit of
parallelism, and start in the order of their size. Randomness comes from (seed, group), so partitioning decides nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
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
from quillcast.pipeline.evaluate import churn, metrics, policies, schemas, workload
from quillcast.pipeline.evaluate.deployment import Deployment, Shipped
from quillcast.pipeline.evaluate.experiment import Publishers
from quillcast.pipeline.evaluate.network import Tree
from quillcast.pipeline.evaluate.policies.policy import Load
from quillcast.pipeline.evaluate.routing import Tables, frozen

Batches = Iterator[pa.RecordBatch]
Columns = dict[str, npt.NDArray[Any]]

SETTINGS = {"spark.sql.files.maxPartitionBytes": "1t", "spark.sql.files.openCostInBytes": "1t"}
"""Spark's settings with which a table's files are read whole, one in each task, and the largest first."""

TASKS = 32  # a guess: enough for balance on a dozen cores, and few enough that starting them costs nothing
TASK_MEMBERS_MIN = 50_000  # starting a task takes 0.08 s of CPU time, the work on so many members about as much
SLICE_ROWS = 1 << 19  # of a batch that a kernel hands to Spark
BLOCK = 1 << 16  # peers or links whose sums travel together
PUBLISHERS = 4  # of a group, where members publish; a guess

_TYPES = {
    "int": (pa.int32(), np.int32),
    "long": (pa.int64(), np.int64),
    "float": (pa.float32(), np.float32),
    "double": (pa.float64(), np.float64),
    "boolean": (pa.bool_(), np.bool_),
    "string": (pa.string(), np.object_),
    "binary": (pa.binary(), np.object_),
}


# --- the deployment as tables


def places(spark: SparkSession, deployment: Deployment) -> DataFrame:
    """The places of the topology (`schemas.PLACES`)."""

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

    return _numbered(spark, deployment.arrays().topology.places, rows, schemas.PLACES)


def links(spark: SparkSession, deployment: Deployment) -> DataFrame:
    """The core links of the topology (`schemas.LINKS`)."""

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

    return _numbered(spark, len(deployment.arrays().topology.link_ends), rows, schemas.LINKS)


def peers(spark: SparkSession, deployment: Deployment) -> DataFrame:
    """The peers (`schemas.PEERS`)."""

    def rows(first: int, last: int) -> Columns:
        attached = deployment.arrays().peers
        return {
            "peer": np.arange(first, last, dtype=np.int32),
            "id": attached.ids[first:last].view(np.int64),
            "place": attached.place[first:last],
            "domain": attached.domain[first:last],
        }

    return _numbered(spark, len(deployment.arrays().peers), rows, schemas.PEERS)


def groups(spark: SparkSession, deployment: Deployment) -> DataFrame:
    """The groups of the workload, and the tasks that they are worked on in (`schemas.GROUPS`)."""
    sizes = deployment.arrays().workload.sizes
    order = np.argsort(-sizes.astype(np.int64), kind="stable").astype(np.int32)
    task = tasks(sizes[order])

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
        }

    return _numbered(spark, len(sizes), rows, schemas.GROUPS, parts=1)


def tasks(sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Which task each group belongs to.

    Args:
        sizes: members of the groups, descending.

    A large group is a task of its own; small ones that follow each other share one.
    """
    least = max(int(sizes.sum(dtype=np.int64)) // TASKS, TASK_MEMBERS_MIN)
    task = np.empty(len(sizes), np.int32)
    number, members = 0, 0
    for at, size in enumerate(sizes.tolist()):
        if members and members + size > least:
            number, members = number + 1, 0
        task[at] = number
        members += size
    return task


# --- trees


def loads(groups: DataFrame, deployment: Deployment, policy: str) -> DataFrame:
    """What all groups ask of each peer (`schemas.LOADS`), for policies that must know it beforehand.

    Arguments as for `trees`.
    """
    figures = schemas.columns(schemas.LOADS)[1:]

    def count(batches: Batches) -> Batches:
        arrays, grower = deployment.arrays(), policies.parse(policy)
        numbers = [number for batch in batches for number in _array(batch, "group").tolist()]
        load = grower.load(arrays.tables, (deployment.group(number) for number in numbers))
        yield from _partials("peer", np.vstack([load.entries, load.trees, load.capped.T]).astype(np.float64), 0)

    def rows(kind: str, numbers: npt.NDArray[Any], sums: npt.NDArray[Any]) -> pa.RecordBatch:
        columns = {"peer": numbers} | dict(zip(figures, sums, strict=True))
        return _batch(schemas.LOADS, columns, len(numbers))

    counts = {"peer": len(deployment.arrays().peers)}
    return _added(_by_task(groups).mapInArrow(count, schemas.PARTIALS), counts, len(figures), rows, schemas.LOADS)


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
    for step, column in enumerate(schemas.columns(schemas.LOADS)[3:]):
        load.capped[peers, step] = table[column].to_numpy()
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in load._asdict().items():
        np.save(folder / f"{name}.npy", array)


def open_load(folder: Path) -> Load:
    """What `save_load` wrote."""
    maps = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in Load._fields}
    return Load(**{name: frozen(array, array.dtype) for name, array in maps.items()})


def trees(groups: DataFrame, deployment: Deployment, policy: str, load: Shipped | None = None) -> DataFrame:
    """The trees that a policy grows for groups (`schemas.TREES`), in a partition for each task.

    Args:
        groups: as `groups` made them, or some of them.
        deployment: where they are.
        policy: such as "scribe+remover(64)"; see `policies.parse`.
        load: where `save_load` wrote, for a policy that `needs_load`.
    """
    if policies.parse(policy).needs_load and load is None:
        raise LocalError(f"{policy} needs the load of all groups; make it with loads and save_load")

    def work(batches: Batches) -> Batches:
        for batch in batches:
            numbers, sizes = (_array(batch, column) for column in ("group", "members"))
            yield from grow(numbers[np.lexsort((numbers, -sizes))].tolist(), deployment, policy, load)

    return _by_task(groups).mapInArrow(work, schemas.TREES)


def grow(numbers: Sequence[int], deployment: Deployment, policy: str, load: Shipped | None = None) -> Batches:
    """The trees of these groups, one after another: what a task of `trees` does."""
    arrays, grower = deployment.arrays(), policies.parse(policy)
    known = open_load(load.here()) if load else None
    for number in numbers:
        for at, tree in enumerate(grower.trees(arrays.tables, deployment.group(number), known)):
            yield from tree_rows(number, at, tree)


def _by_task(groups: DataFrame) -> DataFrame:
    """The groups in a partition for each task."""
    last = groups.agg(F.max("task")).head()
    if last is None or last[0] is None:
        raise LocalError("there are no groups; ask for at least one")
    return groups.select("group", "members", "task").repartitionById(last[0] + 1, "task")


def tree_rows(group: int, number: int, tree: Tree) -> Batches:
    """A tree as rows of `schemas.TREES`."""
    nodes, extra = tree.nodes, tree.extra
    for first in range(0, len(nodes), SLICE_ROWS):
        part = slice(first, first + SLICE_ROWS)
        above = tree.parent[part]
        yield _batch(
            schemas.TREES,
            {
                "node": nodes[part],
                "parent": np.where(above >= 0, nodes[above], -1),
                "member": tree.member[part],
                "redundant": False,
                "state": tree.state[part],
                "joins": tree.joins[part],
                "group": group,
                "tree": number,
                "weight": tree.weight,
            },
            len(nodes[part]),
        )
    for first in range(0, len(extra), SLICE_ROWS):
        pairs = extra[first : first + SLICE_ROWS]
        told = {"node": pairs[:, 1], "parent": pairs[:, 0], "member": False, "redundant": True, "state": 0, "joins": 0}
        whose = {"group": group, "tree": number, "weight": tree.weight}
        yield _batch(schemas.TREES, told | whose, len(pairs))


def whole_trees(batches: Batches, peers: int) -> Iterator[tuple[int, int, Tree]]:
    """Each tree of a partition with its group and number.

    Args:
        batches: rows of `schemas.TREES`; those of a tree follow each other, as `trees` made them.
        peers: how many there are in the deployment.

    Raises ValueError where a partition holds a part of a tree.
    """
    place = np.empty(peers, np.int32)
    pieces: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        is_root = (_array(batch, "parent") < 0) & ~_array(batch, "redundant")
        begins = np.flatnonzero(is_root).tolist()
        if not pieces and not is_root[0]:
            raise ValueError(f"a tree was cut in two; read the table whole, with Spark's settings {SETTINGS}")
        edges = [*([] if begins[:1] == [0] else [0]), *begins, batch.num_rows]
        for first, last in pairwise(edges):
            if pieces and is_root[first]:
                yield _tree(pieces, place)
                pieces = []
            pieces.append(batch.slice(first, last - first))
    if pieces:
        yield _tree(pieces, place)


def _tree(pieces: Sequence[pa.RecordBatch], place: npt.NDArray[np.int32]) -> tuple[int, int, Tree]:
    """The tree of these rows; `place` is room for a number per peer."""

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([_array(piece, name) for piece in pieces])

    redundant, node, parent = column("redundant"), column("node"), column("parent")
    kept = ~redundant
    nodes, parents = np.ascontiguousarray(node[kept]), parent[kept]
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    above = np.where(parents >= 0, place[parents], -1).astype(np.int32)
    extra = np.stack([parent[redundant], node[redundant]], axis=1)
    first = pieces[0].slice(0, 1).to_pylist()[0]
    tree = Tree(
        nodes,
        above,
        np.ascontiguousarray(column("member")[kept]),
        first["weight"],
        np.ascontiguousarray(extra, np.int32),
        np.ascontiguousarray(column("state")[kept]),
        np.ascontiguousarray(column("joins")[kept]),
    )
    return first["group"], first["tree"], tree


# --- metrics


def delays(trees: DataFrame, deployment: Deployment, publishers: Publishers = "root") -> DataFrame:
    """Delays of each group's events, against IP multicast from the same source (`schemas.DELAYS`).

    Args:
        trees: as `trees` made them, or read from a table with `SETTINGS`.
        deployment: that they were grown in.
        publishers: whose events they are.
    """
    return trees.mapInArrow(lambda batches: measure(batches, deployment, publishers), schemas.DELAYS)


def measure(batches: Batches, deployment: Deployment, publishers: Publishers) -> Batches:
    """Delays in these trees: what a task of `delays` does."""
    arrays = deployment.arrays()
    for number, grown in _by_group(batches, len(arrays.peers)):
        sources = _sources(publishers, grown, number, deployment)
        rows = [_delays_of(arrays.tables, number, grown, source) for source in sources.tolist()]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        yield _batch(schemas.DELAYS, columns, len(rows))


def _delays_of(tables: Tables, number: int, grown: list[Tree], source: int) -> dict[str, Any]:
    """One row of `schemas.DELAYS`."""
    root = int(grown[0].nodes[0])
    members = grown[0].member
    parents = np.concatenate([tree.nodes[tree.parent[1:]] for tree in grown])
    children = np.unique(parents, return_counts=True)[1]
    return {
        "group": number,
        "source": source,
        "members": int(np.count_nonzero(members)),
        "nodes": len(np.unique(np.concatenate([tree.nodes for tree in grown]))) if grown[1:] else len(parents) + 1,
        "depth": max(_depth(tree.parent) for tree in grown),
        "children_max": int(children.max(initial=0)),
        "messages": sum(tree.weight * (len(tree.nodes) - 1 + len(tree.extra)) for tree in grown) + (source != root),
        "border_copies": sum(tree.weight * metrics.crossings(tables, tree) for tree in grown),
        **metrics.ratios(tables, grown, -1 if source == root else source)._asdict(),
    }


def stress(trees: DataFrame, deployment: Deployment, publishers: Publishers = "root") -> DataFrame:
    """What one event of each group asks of peers and of links (`schemas.STRESS`), a row for each of them.

    Arguments as for `delays`; of several publishers the first one counts.
    """

    def rows(kind: str, numbers: npt.NDArray[Any], sums: npt.NDArray[Any]) -> pa.RecordBatch:
        figures = schemas.columns(schemas.STRESS)[2:]
        if kind == "link":
            columns = {name: np.zeros(len(numbers)) for name in figures} | {"messages": sums[0], "ip_messages": sums[1]}
        else:
            columns = dict(zip(figures, sums, strict=True))
        rounded = {name: column.round(6) for name, column in columns.items()}  # sums of thirds depend on their order
        return _batch(schemas.STRESS, {"kind": kind, "number": numbers} | rounded, len(numbers))

    arrays = deployment.arrays()
    counts = {"peer": len(arrays.peers), "link": len(arrays.topology.link_ends)}
    partials = trees.mapInArrow(lambda batches: burden(batches, deployment, publishers), schemas.PARTIALS)
    return _added(partials, counts, 7, rows, schemas.STRESS)


def burden(batches: Batches, deployment: Deployment, publishers: Publishers) -> Batches:
    """What these trees ask of peers and links, as `schemas.PARTIALS`: what a task of `stress` does."""
    topology, attached, _, _ = deployment.arrays()
    peers, links = len(attached), len(topology.link_ends)
    tables, entries = np.zeros(peers, np.int32), np.zeros(peers, np.int32)
    of_peers, of_links = np.zeros((5, peers)), np.zeros((2, links))
    forwarded, state, joins, access, ip_access = of_peers
    core, ip_core = of_links
    for number, grown in _by_group(batches, peers):
        root, source = int(grown[0].nodes[0]), int(_sources(publishers, grown, number, deployment)[0])
        for at, tree in enumerate(grown):
            metrics.add_node_stress(tree, tables, entries, forwarded)
            sender = source if at == 0 and source != root else -1
            metrics.add_link_stress(topology, attached, tree, core, access, sender)
            state[tree.nodes] += tree.state
            joins[tree.nodes] += tree.joins
        members = grown[0].nodes[grown[0].member]
        metrics.ip_link_stress(topology, attached, source, members, ip_core, ip_access)
    yield from _partials("peer", np.vstack([tables, entries, of_peers]), 0)
    yield from _partials("link", of_links, _blocks(peers))


def warm_up(deployment: Deployment, names: Sequence[str], publishers: Publishers) -> None:
    """Have this process compile what tasks will call, on the smallest group; they find it in numba's cache."""
    arrays = deployment.arrays()
    smallest = int(np.argmin(arrays.workload.sizes))
    for name in names:
        policy = policies.parse(name)
        load = policy.load(arrays.tables, [deployment.group(smallest)]) if policy.needs_load else None
        grown = policy.trees(arrays.tables, deployment.group(smallest), load)
        batches = [batch for at, tree in enumerate(grown) for batch in tree_rows(smallest, at, tree)]
        list(measure(iter(batches), deployment, publishers))
        list(burden(iter(batches), deployment, publishers))


def repairs(trees: DataFrame, deployment: Deployment, survivors: Shipped) -> DataFrame:
    """What it takes to mend the trees after many deaths (`schemas.CHURN`).

    Args:
        trees: as for `delays`.
        deployment: that they were grown in.
        survivors: where `deployment.make_survivors` wrote.
    """

    def work(batches: Batches) -> Batches:
        arrays = deployment.arrays()
        alive = churn.load(survivors.here(), arrays.topology)
        where = np.full(len(alive.tables.ids), -1, np.int32)
        for number, grown in _by_group(batches, len(arrays.peers)):
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
            yield _batch(schemas.CHURN, told, 1)

    return trees.mapInArrow(work, schemas.CHURN)


def histograms(stress: DataFrame) -> DataFrame:
    """How many peers and links bear which load (`schemas.HISTOGRAMS`)."""
    figures = schemas.columns(schemas.STRESS)[2:]

    def count(batches: Batches) -> Batches:
        for batch in batches:
            kinds = _array(batch, "kind")
            for kind in ("peer", "link"):
                chosen = kinds == kind
                for figure in figures if kind == "peer" else ("messages", "ip_messages"):
                    values, counts = np.unique(_array(batch, figure)[chosen].astype(np.float64), return_counts=True)
                    columns = {"kind": kind, "figure": figure, "value": values, "count": counts}
                    yield _batch(schemas.HISTOGRAMS, columns, len(values))

    counted = stress.mapInArrow(count, schemas.HISTOGRAMS)
    return counted.groupBy("kind", "figure", "value").agg(F.sum("count").alias("count"))


def _by_group(batches: Batches, peers: int) -> Iterator[tuple[int, list[Tree]]]:
    """Each group of a partition with all its trees."""
    number = -1
    grown: list[Tree] = []
    for group, _, tree in whole_trees(batches, peers):
        if grown and group != number:
            yield number, grown
            grown = []
        number = group
        grown.append(tree)
    if grown:
        yield number, grown


def _sources(kind: Publishers, grown: list[Tree], number: int, deployment: Deployment) -> npt.NDArray[np.int32]:
    """The peers whose events a group carries."""
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


# --- sums over all groups


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def _partials(kind: str, sums: npt.NDArray[np.float64], first_block: int) -> Batches:
    """What a task adds to sums, as rows of `schemas.PARTIALS`.

    Args:
        kind: of what is counted.
        sums: float64 [figures, how many there are].
        first_block: of this kind.
    """
    count = sums.shape[1]
    for block in range(_blocks(count)):
        part = sums[:, block * BLOCK : (block + 1) * BLOCK]
        used = np.flatnonzero(part.any(axis=0))
        values = {"kind": kind, "block": first_block + block, "numbers": used.astype(np.uint32).tobytes()}
        yield _batch(schemas.PARTIALS, values | {"sums": part[:, used].tobytes()}, 1)


def _added(
    partials: DataFrame,
    counts: dict[str, int],
    figures: int,
    rows: Callable[[str, npt.NDArray[Any], npt.NDArray[Any]], pa.RecordBatch],
    schema: str,
) -> DataFrame:
    """The sums of all tasks.

    Args:
        partials: rows of `schemas.PARTIALS`; blocks of each kind follow those of the kind before it.
        counts: how many there are of each kind.
        figures: how many are counted, at most.
        rows: makes rows of `schema` of a kind, of numbers, and of their sums, float64 [figures, numbers].
        schema: of the result.
    """
    first_block, blocks = {}, 0
    for kind, count in counts.items():
        first_block[kind] = blocks
        blocks += _blocks(count)

    def add(batches: Batches) -> Batches:
        totals: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                numbers = np.frombuffer(row["numbers"], np.uint32)
                sums = np.frombuffer(row["sums"])
                if (row["kind"], row["block"]) not in totals:
                    totals[row["kind"], row["block"]] = np.zeros((figures, BLOCK))
                if len(numbers):
                    sums = sums.reshape(-1, len(numbers))
                    totals[row["kind"], row["block"]][: len(sums), numbers] += sums
        for (kind, block), total in totals.items():
            first = (block - first_block[kind]) * BLOCK
            used = min(BLOCK, counts[kind] - first)
            yield rows(kind, np.arange(first, first + used), total[:, :used])

    return partials.repartitionById(min(blocks, TASKS), "block").mapInArrow(add, schema)


def warm_workers(spark: SparkSession, path: Path) -> None:
    """Have Spark and its workers load what the first stage would else wait for, by a small table written there."""
    spark.range(0, 2, 1, 2).mapInArrow(_same, "id long").write.parquet(str(path))


def _same(batches: Batches) -> Batches:
    """Being of this module, it makes a worker import it."""
    return batches


# --- rows and columns


def _numbered(
    spark: SparkSession, count: int, rows: Callable[[int, int], Columns], schema: str, parts: int = 8
) -> DataFrame:
    """A table whose rows are computed from their numbers, by ranges."""

    def compute(batches: Batches) -> Batches:
        for batch in batches:
            for part in _array(batch, "id").tolist():
                first, last = count * part // parts, count * (part + 1) // parts
                for begin in range(first, last, SLICE_ROWS):
                    end = min(begin + SLICE_ROWS, last)
                    yield _batch(schema, rows(begin, end), end - begin)

    return spark.range(0, parts, 1, parts).mapInArrow(compute, schema)


def _batch(schema: str, values: dict[str, Any], count: int) -> pa.RecordBatch:
    """A batch of these columns; a single value stands for equal ones in all rows."""
    fields, arrays = [], []
    for column in schema.split(", "):
        name, kind = column.split()
        arrow, plain = _TYPES[kind]
        value = values[name]
        if not isinstance(value, np.ndarray):
            value = np.full(count, value, plain) if plain is not np.object_ else np.array([value] * count, plain)
        fields.append(pa.field(name, arrow))
        arrays.append(pa.array(value.astype(plain, copy=False), arrow))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(batch: pa.RecordBatch, column: str) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = batch.column(column).to_numpy(zero_copy_only=False)
    return array
