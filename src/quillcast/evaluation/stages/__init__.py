"""The stages of an evaluation, each from tables to a table (`schemas`), for runs and for notebooks.

Compiled kernels do the heavy work. Spark calls them with Arrow columns. Whole groups are the unit of parallelism, and
the largest ones are split (`tasks`). Randomness depends only on (seed, group), so partitioning does not affect results.
"""

from quillcast.evaluation.stages.building import build_trees, edges, trees
from quillcast.evaluation.stages.deployed import groups, links, peers, places
from quillcast.evaluation.stages.loading import loads, open_load, save_load
from quillcast.evaluation.stages.repairing import repairs
from quillcast.evaluation.stages.stressing import burden, histograms, stress
from quillcast.evaluation.stages.timing import delays, measure
from quillcast.evaluation.stages.warm_up import warm_up_kernels, warm_up_workers
from quillcast.evaluation.treetable import SETTINGS

__all__ = [
    "SETTINGS",
    "build_trees",
    "burden",
    "delays",
    "edges",
    "groups",
    "histograms",
    "links",
    "loads",
    "measure",
    "open_load",
    "peers",
    "places",
    "repairs",
    "save_load",
    "stress",
    "trees",
    "warm_up_kernels",
    "warm_up_workers",
]
