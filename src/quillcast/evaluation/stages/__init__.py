"""The stages of an evaluation, each from tables to a table (`schemas`), for runs and for notebooks.

The heavy work is done by compiled kernels that Spark calls with Arrow columns. Whole groups are the unit of
parallelism, and giant ones are split (`tasks`). Randomness comes from (seed, group), so partitioning decides nothing.
"""

from quillcast.evaluation.stages.deployed import groups, links, peers, places
from quillcast.evaluation.stages.growing import edges, grow, trees
from quillcast.evaluation.stages.loading import loads, open_load, save_load
from quillcast.evaluation.stages.mending import repairs
from quillcast.evaluation.stages.stressing import burden, histograms, stress
from quillcast.evaluation.stages.timing import delays, measure
from quillcast.evaluation.stages.warming import warm_up, warm_workers
from quillcast.evaluation.treetable import SETTINGS

__all__ = [
    "SETTINGS",
    "burden",
    "delays",
    "edges",
    "groups",
    "grow",
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
    "warm_up",
    "warm_workers",
]
