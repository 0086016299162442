"""The load of events on peers and links."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from quillcast.evaluation import metrics, schemas, stored, sums
from quillcast.evaluation.columns import Batches, column, record_batch
from quillcast.evaluation.deployment import Deployment
from quillcast.evaluation.stages.grouped import by_group


def stress(trees: DataFrame, deployment: Deployment, into: Path | None = None) -> DataFrame:
    """The load of one event of each group on peers and links (`schemas.STRESS`), a row for each of them.

    Arguments as for `delays`; all publishers of a group publish equally often.
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
    partials = stored.in_tasks(trees, lambda batches: burden(batches, deployment), schemas.PARTIALS)
    return sums.added(partials, counts, 7, rows, schemas.STRESS, into)


def burden(batches: Batches, deployment: Deployment) -> Batches:
    """The load of these trees on peers and links, as `schemas.PARTIALS`: the work of a task of `stress`."""
    topology, attached, _, _ = deployment.arrays()
    peers, links = len(attached), len(topology.link_ends)
    tables, entries = np.zeros(peers, np.int32), np.zeros(peers, np.int32)
    of_peers, of_links = np.zeros((5, peers)), np.zeros((2, links))
    forwarded, state, joins, access, ip_access = of_peers
    core, ip_core = of_links
    for number, built in by_group(batches, peers, schemas.columns(schemas.TREES)):
        publishers = deployment.sources(number).tolist()
        for whole in built:
            sources = publishers if whole.source < 0 else [whole.source]
            tree = whole._replace(weight=whole.weight * len(sources) / len(publishers))
            metrics.add_node_stress(tree, tables, entries, forwarded)
            for source in sources:
                forwarded[source] += (source != tree.nodes[0]) * tree.weight / len(sources)
            metrics.add_link_stress(topology, attached, tree, core, access, sources)
            state[tree.nodes] += tree.state
            joins[tree.nodes] += tree.joins
        members = built[0].nodes[built[0].member]
        for source in publishers:
            metrics.ip_link_stress(topology, attached, source, members, ip_core, ip_access, 1 / len(publishers))
    yield from sums.partials("peer", [tables, entries, *of_peers], 0)
    yield from sums.partials("link", [core, ip_core], sums.blocks(peers))


def histograms(stress: DataFrame, into: Path | None = None) -> DataFrame:
    """The number of peers and links by load (`schemas.HISTOGRAMS`), from the result of `stress` or its files.

    With `into`, tasks write the table there themselves, and the result names its files (`stored`).
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

    counted = stored.in_tasks(stress, count, schemas.HISTOGRAMS).repartition(1)
    return stored.mapped(counted, add, schemas.HISTOGRAMS, into)
