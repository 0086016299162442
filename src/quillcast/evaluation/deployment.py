"""A deployment's arrays in a folder: written once, mapped by all processes of a machine, shipped to other machines."""

import tarfile
from collections.abc import Callable, Sized
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quillcast.core.errors import LocalError
from quillcast.evaluation import churn
from quillcast.evaluation.experiment import Experiment, Publishers
from quillcast.evaluation.network import Group, Ints, Peers, Topology
from quillcast.evaluation.peers import attach, clusters
from quillcast.evaluation.plugins import OURS
from quillcast.evaluation.routing import pastry, preparing
from quillcast.evaluation.topology import load as load_topology
from quillcast.evaluation.workload import WORKLOADS, Workload, group, key, publishers, real

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPOLOGY, PEERS, ROUTING, WORKLOAD = "topology", "peers", "routing", "workload"
SURVIVORS = "survivors"  # present if there is churn


class Arrays(NamedTuple):
    """All arrays of a deployment that kernels use."""

    topology: Topology
    peers: Peers
    tables: pastry.Tables
    workload: Workload


@dataclass(frozen=True)
class Shipped:
    """A folder that is visible where a task runs, or is shipped there by Spark.

    `archive` is the name of Spark's archive; empty if all machines see the folder.
    """

    folder: str
    archive: str = ""

    def here(self) -> Path:
        """The folder on this machine. Raises `LocalError` if it is neither visible nor shipped."""
        if Path(self.folder).is_dir():
            return Path(self.folder)
        if not self.archive:
            raise LocalError(f"this machine cannot access {self.folder}; ship it, or choose a folder that all see")
        from pyspark import SparkFiles

        return Path(SparkFiles.get(self.archive))


def ship(spark: "SparkSession", folder: Path, archive: Path) -> Shipped:
    """Write a folder as an archive, and have Spark ship it to machines that do not see the folder."""
    with tarfile.open(archive, "w") as made:
        for path in sorted(folder.iterdir()):
            made.add(path, path.name)
    if hasattr(spark, "_jvm"):
        spark.sparkContext.addArchive(str(archive))
    else:
        spark.addArtifacts(str(archive), archive=True)
    return Shipped(str(folder), archive.name)


@dataclass(frozen=True)
class Deployment:
    """The location of a deployment's arrays, the seed for the members of groups, and the kind of publishers."""

    shipped: Shipped
    seed: int
    publishers: Publishers = "root"

    def arrays(self) -> Arrays:
        """The arrays, mapped. Raises `LocalError` if they are neither visible nor shipped."""
        return _open(self.shipped)

    def group(self, number: int) -> Group:
        """A group with its members and its publishers, which are the same peers whatever the policy."""
        arrays = self.arrays()
        made = group(arrays.workload, number, arrays.peers, self.seed)
        root = int(pastry.root_of(arrays.tables, np.uint64(made.key)))
        return made._replace(publishers=publishers(self.publishers, made, root))

    def sources(self, number: int) -> Ints:
        """The publishers of a group."""
        if self.publishers != "root":
            return self.group(number).publishers
        root = pastry.root_of(self.arrays().tables, np.uint64(key(number, self.seed)))
        return np.array([root], np.int32)


@lru_cache(maxsize=2)
def _open(shipped: Shipped) -> Arrays:
    """Mapped once per process."""
    folder = shipped.here()
    topology, peers = Topology.open(folder / TOPOLOGY), Peers.open(folder / PEERS)
    return Arrays(topology, peers, preparing.load(folder / ROUTING, topology, peers), Workload.open(folder / WORKLOAD))


def make_topology(experiment: Experiment, folder: Path, made: Path) -> None:
    """Write the topology to `made`. `folder` has the previous parts, as for all makers. Raises `LocalError`."""
    load_topology(experiment.topology, experiment.seed).save(made)


def make_peers(experiment: Experiment, folder: Path, made: Path) -> None:
    """Write the peers."""
    _attached(experiment, Topology.open(folder / TOPOLOGY)).save(made)


def _attached(experiment: Experiment, topology: Topology) -> Peers:
    attached = attach(topology, experiment.peers, experiment.seed)
    return clusters(topology, attached) if experiment.overlay.domains == "found" else attached


def make_routing(experiment: Experiment, folder: Path, made: Path) -> None:
    """Write the routing tables."""
    overlay, topology, attached = experiment.overlay, Topology.open(folder / TOPOLOGY), Peers.open(folder / PEERS)
    sizes = overlay.digit_bits, overlay.leaf_set_size
    preparing.save(made, preparing.tables(topology, attached, *sizes, overlay.quality, experiment.seed))


def make_workload(experiment: Experiment, folder: Path, made: Path) -> None:
    """Write the groups."""
    workload_of(experiment, lambda: (Topology.open(folder / TOPOLOGY), Peers.open(folder / PEERS))).save(made)


def make_survivors(experiment: Experiment, folder: Path, made: Path) -> None:
    """Write the survivors, for an experiment with churn."""
    if experiment.churn is None:
        raise LocalError(f"{experiment.name} has no churn; add its fraction")
    overlay, topology, attached = experiment.overlay, Topology.open(folder / TOPOLOGY), Peers.open(folder / PEERS)
    sizes = overlay.digit_bits, overlay.leaf_set_size
    share, seed = experiment.churn.fraction, experiment.seed
    kept, alive = churn.survivors(topology, attached, share, seed, *sizes, overlay.quality)
    churn.save(made, kept, alive)


MAKERS = {TOPOLOGY: make_topology, PEERS: make_peers, ROUTING: make_routing, WORKLOAD: make_workload}
"""The function that makes each part, in order."""


def workload_of(experiment: Experiment, network: Callable[[], tuple[Topology, Peers]] | None = None) -> Workload:
    """The groups of an experiment. Raises `LocalError` if they are impossible.

    `network` returns the topology and the peers for a generator of another package; by default they are made again.
    """
    asked = experiment.workload
    size: dict[str, Any] = {} if asked.size is None else {"size": asked.size}
    if not WORKLOADS.knows(asked.members):
        if size:
            raise LocalError(f"the groups of {asked.members} have sizes of their own; leave size out")
        return real(Path(asked.members), experiment.peers, groups=asked.groups)
    arguments: tuple[object, Sized] = (None, range(experiment.peers))  # enough for our own
    if WORKLOADS.package(asked.members) != OURS:
        arguments = network() if network else _network(experiment)
    made: Workload = WORKLOADS.make(asked.members, *arguments, asked.groups, experiment.seed, **size)
    return made


def _network(experiment: Experiment) -> tuple[Topology, Peers]:
    topology = load_topology(experiment.topology, experiment.seed)
    return topology, _attached(experiment, topology)
