"""What the figures of Scribe's evaluation depend on: the same groups with other routing tables and networks.

The deployment is that of `scribe-2002`. Runs only kernels in this process, without Spark and report: a row takes
seconds. The default rows show the reasons that docs/evaluation.md gives for differences from published figures.
--policy, --seeds, --topology, --quality, --digit-bits and --leaf-set-size select others. --json prints one object on
the last line.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from quillcast.evaluation import deployment, experiment, policies, stages, sums
from quillcast.evaluation.chance import mix
from quillcast.evaluation.columns import column
from quillcast.evaluation.report.figures import RATIOS
from quillcast.evaluation.routing.pastry import route
from quillcast.evaluation.treetable import tree_rows

LOOKUPS, HOPS = 200_000, 5  # as in Pastry, section 3.1
QUALITIES = ("ideal", "sampled(16)", "sampled(4)", "sampled(1)", "join")
TOPOLOGIES = ("transit-stub", "transit-stub(10,5,2,50)", "transit-stub(10,5,50,2)", "wonderproxy", "aws")
LEAF_SETS = (8, 16, 32)

Row = dict[str, Any]


def figures(asked: experiment.Experiment) -> Row:
    """The figures of the first policy of an experiment."""
    with deployed(asked) as made:
        return {
            "policy": asked.policies[0],
            "topology": asked.topology,
            "quality": asked.overlay.quality,
            "leaf_set_size": asked.overlay.leaf_set_size,
            "publishers": asked.workload.publishers,
            "seed": asked.seed,
            **costs(asked.policies[0], made),
            **_hops(made.arrays()),
        }


@contextmanager
def deployed(asked: experiment.Experiment) -> Iterator[deployment.Deployment]:
    """The deployment of an experiment, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        for part, make in deployment.MAKERS.items():
            make(asked, Path(folder), Path(folder, part))
        yield deployment.Deployment(deployment.Shipped(folder), asked.seed, asked.workload.publishers)


def costs(name: str, made: deployment.Deployment) -> Row:
    """Delays and loads of a policy."""
    policy, (_, _, tables, workload) = policies.parse(name), made.arrays()
    most = getattr(policy.kernel, "members_max", None) or len(tables.ids)
    groups = np.flatnonzero(workload.sizes <= most).tolist()
    for number in groups[-1:]:
        policy.trees(tables, made.group(number), policy.load(tables, []) if policy.needs_load else None)  # compiled
    began_s = time.process_time()
    load = policy.load(tables, map(made.group, groups)) if policy.needs_load else None
    built = [(number, policy.trees(tables, made.group(number), load)) for number in groups]
    seconds = time.process_time() - began_s  # one thread
    rows = list(tree_rows((number, at, tree) for number, trees in built for at, tree in enumerate(trees)))
    joins = sum(int(tree.joins.sum()) for _, trees in built for tree in trees) / int(workload.sizes[groups].sum())
    told = {"groups": len(groups), "cpu_seconds": round(seconds, 1), "joins": round(joins, 2)}
    return told | _delays(rows, made) | _stress(rows, made)


def _delays(rows: list[pa.RecordBatch], made: deployment.Deployment) -> Row:
    told = list(stages.measure(iter(rows), made))
    ratios = {name: np.concatenate([column(batch, name) for batch in told]) for name in RATIOS}
    spread = {
        name: [round(float(np.nanmedian(each)), 3), round(float(np.nanmax(each)), 3)] for name, each in ratios.items()
    }
    return spread | {"children_max": max(int(column(batch, "children_max").max()) for batch in told)}


def _stress(rows: list[pa.RecordBatch], made: deployment.Deployment) -> Row:
    """Sums over all groups, as returned by tasks of the stage `stress`."""
    arrays = made.arrays()
    peers, links = len(arrays.peers), len(arrays.topology.link_ends)
    added = {"peer": np.zeros((7, peers)), "link": np.zeros((2, links))}
    first_block = {"peer": 0, "link": sums.blocks(peers)}
    for batch in stages.burden(iter(rows), made):
        for row in batch.to_pylist():
            numbers, values = sums.unpacked(row)
            first = (row["block"] - first_block[row["kind"]]) * sums.BLOCK
            added[row["kind"]][:, first + numbers.astype(np.int64)] += values
    tables, entries, _, state, _, access, ip_access = added["peer"]
    core, ip_core = added["link"]
    over_ip = (core.sum() + access.sum()) / (ip_core.sum() + ip_access.sum())
    return {
        "tables": [round(float(tables.mean()), 2), float(np.median(tables)), int(tables.max())],
        "entries": [round(float(entries.mean()), 2), float(np.median(entries)), int(entries.max())],
        "state": [round(float(state.mean()), 2), float(np.median(state)), int(state.max())],
        "messages_over_ip": round(float(over_ip), 3),
        "core_link_over_ip": round(float(core.max() / ip_core.max()), 2) if links else None,
    }


def _hops(arrays: deployment.Arrays) -> Row:
    """Shares of lookups from random peers to random keys that take 1 to 5 hops."""
    counts = np.zeros(64)
    for lookup in range(LOOKUPS):
        peer = int(mix(1, 2, lookup)) % len(arrays.peers)
        counts[len(route(arrays.tables, peer, np.uint64(mix(3, 4, lookup)))) - 1] += 1
    mean = float((counts * np.arange(64)).sum() / LOOKUPS)
    return {"hops": round(mean, 3), "hop_shares": (counts[1 : HOPS + 1] / LOOKUPS).round(4).tolist()}


def wanted(options: argparse.Namespace) -> Iterator[experiment.Experiment]:
    """The experiments to run."""
    plain = experiment.load("scribe-2002")
    plain = msgspec.structs.replace(plain, published=())
    if options.publishers:
        workload = msgspec.structs.replace(plain.workload, publishers=options.publishers)
        plain = msgspec.structs.replace(plain, workload=workload)
    chosen = (options.topology, options.quality, options.leaf_set_size, options.digit_bits, options.seeds)
    if any(values is not None for values in chosen) or options.policy != ["scribe"]:
        combinations: Any = itertools.product(
            options.topology or ["transit-stub"], options.quality or ["ideal"], options.leaf_set_size or [16],
            options.digit_bits or [4], options.seeds or [1], options.policy,
        )  # fmt: skip
    else:
        combinations = [("transit-stub", quality, 16, 4, 1, "scribe") for quality in QUALITIES]
        combinations += [(topology, "ideal", 16, 4, 1, "scribe") for topology in TOPOLOGIES[1:]]
        combinations += [("transit-stub", "ideal", size, 4, 1, "scribe") for size in LEAF_SETS if size != 16]
    for topology, quality, leaf_set_size, digit_bits, seed, policy in combinations:
        overlay = experiment.Overlay(quality=quality, leaf_set_size=leaf_set_size, digit_bits=digit_bits)
        asked = msgspec.structs.replace(plain, policies=(policy,), topology=topology, seed=seed, overlay=overlay)
        yield asked.checked("the options")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--policy", nargs="+", default=["scribe"])
    parser.add_argument("--publishers", choices=["root", "creator", "members"])
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--topology", nargs="+", metavar="NAME")
    parser.add_argument("--quality", nargs="+")
    parser.add_argument("--leaf-set-size", type=int, nargs="+", metavar="L")
    parser.add_argument("--digit-bits", type=int, nargs="+", metavar="B")
    options = parser.parse_args()
    rows = []
    for asked in wanted(options):
        rows.append(figures(asked))
        print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps({"benchmark": "figures", "results": rows}))


if __name__ == "__main__":
    main()
