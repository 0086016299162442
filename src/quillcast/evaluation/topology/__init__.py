"""The places of peers: generated and measured networks (docs/topologies.md)."""

import difflib
from importlib import resources
from pathlib import Path

from quillcast.core.errors import LocalError
from quillcast.evaluation import plugins
from quillcast.evaluation.network import Topology
from quillcast.evaluation.topology.files import places
from quillcast.evaluation.topology.graphs import Map
from quillcast.evaluation.topology.measured import Places

TOPOLOGIES = plugins.Kind(
    "topology",
    "quillcast.topologies",
    Topology,
    {
        "transit-stub": "quillcast.evaluation.topology.generator:transit_stub",
        "transit-stub-even": "quillcast.evaluation.topology.generator:transit_stub_even",
    },
)
"""Generators of topologies. They are called with the seed, and then with the arguments in parentheses."""

IN_THE_BOX = {
    "aws": "sim/data/aws-21-regions-rtt.csv",
    "wonderproxy": "evaluation/data/wonderproxy-217-cities-rtt.csv.gz",
    "topology-zoo": "evaluation/data/topology-zoo-143.jsonl.gz",
}


def load(name_or_path: str, seed: int) -> Topology:
    """The topology with this name.

    Args:
        name_or_path: `transit-stub`, or with sizes other than the papers' `transit-stub(10,5,10,10)`: transit domains,
    routers in each, stubs at each router, routers in each stub; `transit-stub-even`, the same with links of all kinds
    about equally long; `aws`, `wonderproxy`, `topology-zoo`; or the path of a file (see `files.read`). `#` and a
    word after a name or path choose a part of it, as in `topology-zoo#geant2012`, or give the unit or kind of its
    numbers: `rtt.txt#s`, `pairs.csv#rtt`. Or a generator from another package: `module:function(1,2)` (`TOPOLOGIES`).
        seed: for generated topologies.

    Raises `LocalError` if there is no such topology, or the file cannot be used.
    """
    if is_generated(name_or_path):
        made: Topology = TOPOLOGIES.make(name_or_path, seed)
        return made
    return _places(name_or_path).topology()


def is_generated(name_or_path: str) -> bool:
    """Whether a generator makes it. No generator may take the name of a built-in network."""
    return name_or_path not in IN_THE_BOX and TOPOLOGIES.knows(name_or_path)


def has_links(name_or_path: str, seed: int) -> bool:
    """Whether the topology is a graph, so that link stress is known. Arguments and errors as for `load`."""
    if is_generated(name_or_path):
        return load(name_or_path, seed).has_links
    return _places(name_or_path).has_links


def _places(name_or_path: str) -> Places | Map:
    name, _, part = name_or_path.partition("#")
    if name in IN_THE_BOX:
        if part and name != "topology-zoo":
            raise LocalError(f"topology {name} is one network, in a known unit; leave out #{part}")
        with resources.as_file(resources.files("quillcast") / IN_THE_BOX[name]) as path:
            return places(path, part)
    path = Path(name)
    if not path.is_file():
        raise LocalError(f"no topology or file is called {name!r}; {_known(name)}")
    return places(path, part)


def _known(name: str) -> str:
    names = [*TOPOLOGIES.names(), *IN_THE_BOX]
    nearest = difflib.get_close_matches(name, names, 1)
    return f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(names)}, or give the path of a file"
