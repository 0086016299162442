"""A deployment's arrays in a folder: written once, mapped by every process of a machine, shipped where they lack."""

import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quillcast.core.errors import LocalError
from quillcast.pipeline.evaluate import routing
from quillcast.pipeline.evaluate.experiment import Experiment
from quillcast.pipeline.evaluate.network import Group, Peers, Topology
from quillcast.pipeline.evaluate.peers import attach
from quillcast.pipeline.evaluate.topology import load as load_topology
from quillcast.pipeline.evaluate.workload import Placement, Workload, fixed, group, power_law

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPOLOGY, PEERS, ROUTING, WORKLOAD = "topology", "peers", "routing", "workload"
PARTS = (TOPOLOGY, PEERS, ROUTING, WORKLOAD)


class Arrays(NamedTuple):
    """All that kernels ask of a deployment."""

    topology: Topology
    peers: Peers
    tables: routing.Tables
    workload: Workload


@dataclass(frozen=True)
class Shipped:
    """A folder that is seen where a task runs, or brought there by Spark.

    Args:
        folder: where it is.
        archive: the name under which Spark brings it; empty if all machines see it.
    """

    folder: str
    archive: str = ""

    def here(self) -> Path:
        """The folder on this machine. Raises `LocalError` where it is neither seen nor brought."""
        if Path(self.folder).is_dir():
            return Path(self.folder)
        if not self.archive:
            raise LocalError(f"this machine does not see {self.folder}; ship it, or choose a folder that all see")
        from pyspark import SparkFiles

        return Path(SparkFiles.get(self.archive))


def ship(spark: "SparkSession", folder: Path, archive: Path) -> Shipped:
    """Have Spark bring a folder to machines that do not see it, as an archive that is written for that."""
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
    """Where the arrays of a deployment are.

    Args:
        shipped: holds a folder for each of `PARTS`.
        seed: decides who is in which group.
    """

    shipped: Shipped
    seed: int

    def arrays(self) -> Arrays:
        """The arrays, mapped. Raises `LocalError` where they are neither seen nor shipped."""
        return _open(self.shipped.here())

    def group(self, number: int) -> Group:
        """A group with its members."""
        arrays = self.arrays()
        return group(arrays.workload, number, arrays.peers, self.seed)


@lru_cache(maxsize=2)
def _open(folder: Path) -> Arrays:
    """Mapped once per process."""
    topology, peers = Topology.open(folder / TOPOLOGY), Peers.open(folder / PEERS)
    return Arrays(topology, peers, routing.load(folder / ROUTING, topology, peers), Workload.open(folder / WORKLOAD))


def make(experiment: Experiment, part: str, made: Path, folder: Path) -> None:
    """Make one part of an experiment's deployment.

    Args:
        experiment: what is asked for.
        part: one of `PARTS`.
        made: the new folder to write it into.
        folder: where the parts before it are.

    Raises `LocalError` if it cannot be made.
    """
    match part:
        case "topology":
            load_topology(experiment.topology, experiment.seed).save(made)
        case "peers":
            attach(Topology.open(folder / TOPOLOGY), experiment.peers, experiment.seed).save(made)
        case "routing":
            overlay = experiment.overlay
            tables = routing.tables(
                Topology.open(folder / TOPOLOGY),
                Peers.open(folder / PEERS),
                overlay.digit_bits,
                overlay.leaf_set_size,
                overlay.quality,
                experiment.seed,
            )
            routing.save(made, tables)
        case "workload":
            workload_of(experiment).save(made)
        case _:
            raise ValueError(part)


def workload_of(experiment: Experiment) -> Workload:
    """The groups that an experiment asks for. Raises `LocalError` if there are none such."""
    asked = experiment.workload
    if asked.members not in {"uniform", "clustered"}:
        raise LocalError(f"workload.members is {asked.members}; there are: uniform, clustered")
    placement: Placement = "clustered" if asked.members == "clustered" else "uniform"
    if asked.size is not None:
        return fixed(asked.groups, asked.size, placement=placement)
    return power_law(experiment.peers, asked.groups, placement=placement)
