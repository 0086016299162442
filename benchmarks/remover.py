"""The link stress that Scribe's bottleneck remover adds: events alone, and with the Joins of the dropped children.

The remover works as its authors describe it (docs/compared/scribe.md), one child at a time over all groups, on the
deployment of `scribe-2002`. `policies.remover` instead processes each group separately. Kernels only, without Spark.
"""

import argparse
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from quillcast.evaluation import deployment, experiment, metrics, policies
from quillcast.evaluation.network import Ints, Peers, Topology, Tree
from quillcast.evaluation.routing.pastry import Tables

NONE = np.array([-1], np.int32)  # no edges: the pairs of `extra` alone count


class Relieved(NamedTuple):
    """Pairs of sender and receiver, int32 [any, 2]: of events along the new trees, and of all Joins to siblings."""

    events: Ints
    joins: Ints


def relieve(tables: Tables, trees: Iterable[Tree], limit: int) -> Relieved:
    """Peers with more than `limit` children over all groups drop one after another, until none has more.

    An overloaded peer takes its largest children table and drops the farthest child in it. The child joins the sibling
    through which the delay to the old parent is least. That sibling may then be overloaded.
    """
    children: dict[int, dict[int, list[int]]] = {}
    count = np.zeros(len(tables.ids), np.int64)
    for group, tree in enumerate(trees):
        for parent, child in zip(tree.nodes[tree.parent[1:]].tolist(), tree.nodes[1:].tolist(), strict=True):
            children.setdefault(parent, {}).setdefault(group, []).append(child)
            count[parent] += 1
    joins: list[tuple[int, int]] = []
    overloaded = deque(np.flatnonzero(count > limit).tolist())
    while overloaded:
        parent = overloaded.popleft()
        groups = children[parent]
        while count[parent] > limit:
            largest = max(groups, key=lambda group: (len(groups[group]), -group))
            if len(groups[largest]) == 1:
                break  # a child in each of too many groups, and no siblings
            child, sibling = _drop(tables, parent, groups[largest])
            joins.append((child, sibling))
            children.setdefault(sibling, {}).setdefault(largest, []).append(child)
            count[parent] -= 1
            count[sibling] += 1
            if count[sibling] == limit + 1:
                overloaded.append(sibling)
    events = [(parent, child) for parent, groups in children.items() for each in groups.values() for child in each]
    return Relieved(np.array(events, np.int32), np.array(joins, np.int32).reshape(-1, 2))


def _drop(tables: Tables, parent: int, table: list[int]) -> tuple[int, int]:
    """Remove the farthest child from a children table; returns it, and the sibling that it joins."""
    apart, places = tables.delay_ms, tables.place[table]
    far = np.where(np.equal(table, parent), -1, apart[tables.place[parent], places])
    dropped = int(far.argmax())
    through = far + apart[places, places[dropped]]
    through[dropped] = np.inf
    sibling = table[int(through.argmin())]
    return table.pop(dropped), sibling


class Stress(NamedTuple):
    """Messages over all links and on the worst one: before, of events after, and with the Joins."""

    before: tuple[float, float]
    events: tuple[float, float]
    with_joins: tuple[float, float]


def stress(topology: Topology, peers: Peers, tables: Tables, trees: list[Tree], limit: int) -> Stress:
    """The link stress of one event per group."""
    relieved = relieve(tables, trees, limit)
    edges = np.concatenate([np.stack([tree.nodes[tree.parent[1:]], tree.nodes[1:]], axis=1) for tree in trees])
    alone = trees[0]._replace(nodes=trees[0].nodes[:1], parent=NONE)
    told = []
    for pairs in (edges, relieved.events, np.concatenate([relieved.events, relieved.joins])):
        core, access = np.zeros(len(topology.link_ends)), np.zeros(len(peers))
        metrics.add_link_stress(topology, peers, alone._replace(extra=pairs), core, access)
        told.append((float(core.sum() + access.sum()), float(max(core.max(initial=0), access.max()))))
    return Stress(*told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--quality", nargs="+", default=["ideal", "join"])
    options = parser.parse_args()
    for quality in options.quality:
        for seed in options.seeds:
            asked = experiment.load("scribe-2002")
            asked = msgspec.structs.replace(asked, seed=seed, overlay=experiment.Overlay(quality=quality))
            with tempfile.TemporaryDirectory() as folder:
                for part, make in deployment.MAKERS.items():
                    make(asked, Path(folder), Path(folder, part))
                deployed = deployment.Deployment(deployment.Shipped(folder), seed)
                arrays, scribe = deployed.arrays(), policies.parse("scribe")
                trees = [scribe.trees(arrays.tables, deployed.group(n))[0] for n in range(len(arrays.workload))]
                found = stress(arrays.topology, arrays.peers, arrays.tables, trees, options.limit)
            for name, (messages, worst) in found._asdict().items():
                over = f"{messages / found.before[0] - 1:+.1%}, worst link {worst / found.before[1] - 1:+.1%}"
                sys.stdout.write(f"{quality} seed {seed} {name}: {messages:,.0f} ({over})\n")


if __name__ == "__main__":
    main()
