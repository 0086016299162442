"""A policy, a topology, a workload and a metric for `quillcast evaluate`, in a package of their own."""

import numpy as np

from quillcast.evaluation.measures import Metric
from quillcast.evaluation.network import Group, Peers, Topology, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel, tree_of
from quillcast.evaluation.routing.pastry import Tables, root_of
from quillcast.evaluation.topology.graphs import of_links
from quillcast.evaluation.workload import Workload, given


class ByDomain(PolicyKernel):
    """The root sends an event to one member of each domain, which sends it to the others of its domain."""

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree: nodes are peers, the root first; parents are indexes of nodes."""
        root = int(root_of(tables, np.uint64(group.key)))
        nodes = np.concatenate([[root], group.members[group.members != root]]).astype(np.int32)
        _, firsts, domain = np.unique(tables.domain[nodes], return_index=True, return_inverse=True)
        parent = firsts[domain].astype(np.int32)
        parent[firsts] = 0
        parent[0] = -1
        return [tree_of(nodes, parent, np.isin(nodes, group.members))]


def ring(seed: int, places: int = 24, around_ms: int = 120) -> Topology:
    """Places on a ring, each linked to the next, four in a domain; once around takes `around_ms`."""
    here = np.arange(places, dtype=np.int32)
    ends, ms = np.stack([here, (here + 1) % places], axis=1), np.full(places, around_ms / places, np.float32)
    return of_links(ends, ms, f"a ring of {places}", domain=here // 4, routers=places)


def neighbours(topology: Topology, peers: Peers, groups: int, seed: int, size: int = 20) -> Workload:
    """Groups of the peers nearest to a random place."""
    homes = np.random.default_rng(seed).integers(topology.places, size=groups)
    far = (topology.delay_ms[home, peers.place] for home in homes)
    return given((np.argsort(ms, kind="stable")[:size] for ms in far), f"{groups} groups of {size} neighbours")


class Inside(Metric):
    """The share of an event's copies that stay in a domain."""

    def measure(self, tables: Tables, group: Group, trees: list[Tree], source: int) -> float:
        """One value for each group and source, from the trees that carry the source's events."""
        pairs = [(tables.domain[tree.nodes[1:]], tables.domain[tree.nodes[tree.parent[1:]]]) for tree in trees]
        shares = [tree.weight * float(np.mean(to == of)) for tree, (to, of) in zip(trees, pairs, strict=True)]
        return sum(shares)
