"""The policy on a small deployment, without Spark."""

import numpy as np
from by_domain import ByDomain, Inside, neighbours, ring

from quillcast.evaluation.peers import attach
from quillcast.evaluation.routing.preparing import tables
from quillcast.evaluation.workload import group

TOPOLOGY = ring(1, 20)
PEERS = attach(TOPOLOGY, 100, 1)
TABLES = tables(TOPOLOGY, PEERS, 4, 16, "ideal", 1)
GROUP = group(neighbours(TOPOLOGY, PEERS, 5, 1, size=30), 2, PEERS, 1)


def test_each_domain_gets_an_event_once_from_outside() -> None:
    (tree,) = ByDomain().trees(TABLES, GROUP, None)
    to, of = TABLES.domain[tree.nodes[1:]], TABLES.domain[tree.nodes[tree.parent[1:]]]
    entered = to[to != of]
    assert len(entered) == len(np.unique(entered))
    assert set(tree.nodes[tree.member]) == set(GROUP.members)


def test_the_metric_is_the_share_of_copies_inside_domains() -> None:
    trees = ByDomain().trees(TABLES, GROUP, None)
    domains = len(np.unique(TABLES.domain[trees[0].nodes]))
    copies = len(trees[0].nodes) - 1
    assert Inside().measure(TABLES, GROUP, trees, int(trees[0].nodes[0])) == (copies - domains + 1) / copies
