"""Trees as rows of a table (`schemas.TREES`) and back: a row per tree, or per part of a large tree."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quillcast.evaluation import schemas
from quillcast.evaluation.columns import Batches, column, lists, record_batch
from quillcast.evaluation.network import Ints, Tree
from quillcast.evaluation.policies.kernel import children_counts

SETTINGS = {"spark.sql.files.maxPartitionBytes": "1t", "spark.sql.files.openCostInBytes": "1t"}
"""Spark's settings for reading each file of a table whole, one in each task, the largest first."""

PART_NODES = 1 << 17  # in one row: half a megabyte in each of its arrays
BATCH_NODES = 1 << 18  # sent together; small trees share a batch, which costs as much as a thousand nodes

SHAPE = [name for name in schemas.columns(schemas.TREES) if name not in {"state", "joins"}]
"""The columns needed to know how events travel."""

_ARRAYS = ("nodes", "parents", "member", "state", "joins", "extra_from", "extra_to")


class _Row(NamedTuple):
    """A row of `schemas.TREES`."""

    group: int
    tree: int
    part: int
    size: int
    weight: float
    nodes: Ints
    parents: Ints
    member: npt.NDArray[np.bool_]
    state: Ints | None
    joins: Ints | None
    extra_from: Ints
    extra_to: Ints
    source: int


def tree_rows(trees: Iterable[tuple[int, int, Tree]]) -> Batches:
    """Trees as rows of `schemas.TREES`. Each is given with its group and number."""
    waiting: list[_Row] = []
    nodes = 0
    for group, number, tree in trees:
        for row in _rows(group, number, tree):
            waiting.append(row)
            nodes += len(row.nodes) + len(row.extra_to)
            if nodes >= BATCH_NODES:
                yield _batch(waiting)
                waiting, nodes = [], 0
    if waiting:
        yield _batch(waiting)


def _rows(group: int, number: int, tree: Tree) -> Iterator[_Row]:
    nodes, extra = tree.nodes, tree.extra
    parents = np.where(tree.parent >= 0, nodes[tree.parent], -1).astype(np.int32)
    children = children_counts(tree)
    state, joins = (None if np.array_equal(kept, children) else kept for kept in (tree.state, tree.joins))
    parts = zip_longest(range(0, len(nodes), PART_NODES), range(0, len(extra), PART_NODES), fillvalue=len(nodes))
    for part, (at, extra_at) in enumerate(parts):
        cut, extra_cut = slice(at, at + PART_NODES), slice(extra_at, extra_at + PART_NODES)
        yield _Row(
            group, number, part, len(nodes), tree.weight, nodes[cut], parents[cut], tree.member[cut],
            None if state is None else state[cut], None if joins is None else joins[cut],
            extra[extra_cut, 0], extra[extra_cut, 1], tree.source,
        )  # fmt: skip


def _batch(rows: list[_Row]) -> pa.RecordBatch:
    columns: dict[str, Any] = {}
    for name in _Row._fields:
        values = [getattr(row, name) for row in rows]
        columns[name] = values if name in _ARRAYS else np.array(values)
    return record_batch(schemas.TREES, columns, len(rows))


def whole_trees(batches: Batches, peers: int) -> Iterator[tuple[int, int, Tree]]:
    """Each tree of a partition with its group and number, from rows of `schemas.TREES`.

    `state` and `joins` may be left out. The parts of a tree are consecutive, as in the result of `tree_rows`; raises
    ValueError if one is incomplete.
    """
    place = np.empty(peers, np.int32)
    parts: list[dict[str, Any]] = []
    for row in _read(batches):
        if row["part"] == 0 and parts:
            yield _tree(parts, place)
            parts = []
        if row["part"] != len(parts):
            raise _cut()
        parts.append(row)
    if parts:
        yield _tree(parts, place)


def _read(batches: Batches) -> Iterator[dict[str, Any]]:
    """The rows, with numpy arrays."""
    for each in batches:
        names = each.schema.names
        columns = [lists(each, name) if name in _ARRAYS else column(each, name).tolist() for name in names]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _tree(parts: list[dict[str, Any]], place: Ints) -> tuple[int, int, Tree]:
    """The tree in these rows; `place` is scratch space with a number per peer."""

    def joined(name: str) -> npt.NDArray[Any]:
        pieces = [part[name] for part in parts]
        return np.ascontiguousarray(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))

    first = parts[0]
    nodes, parents = joined("nodes"), joined("parents")
    if len(nodes) != first["size"]:
        raise _cut()
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    above = place[parents]
    above[0] = -1
    children = np.bincount(above[1:], minlength=len(nodes)).astype(np.int32)
    state, joins = (children if first.get(name) is None else joined(name) for name in ("state", "joins"))
    extra = np.empty((sum(len(part["extra_to"]) for part in parts), 2), np.int32)
    if len(extra):
        extra[:, 0], extra[:, 1] = joined("extra_from"), joined("extra_to")
    member = joined("member").astype(np.bool_, copy=False)
    tree = Tree(nodes, above, member, first["weight"], extra, state, joins, first["source"])
    return first["group"], first["tree"], tree


def _cut() -> ValueError:
    return ValueError(f"a tree was cut in two; read the table whole, with Spark's settings {SETTINGS}")
