"""Which groups are worked on together: tasks that cost about the same, and groups that are too large for one.

The cost of a group is told in members of a group of all, where each route ends at the next peer: finding the tree of a
million takes a quarter of a second. In a smaller group routes are longer, and each step of one misses the processor's
caches more often, so that costs grow with the square of the steps: six microseconds for each member of a group of 17
among a million peers, against a quarter of one.
"""

import numpy as np
import numpy.typing as npt

TASKS = 16  # a guess: enough for balance on a dozen cores
TASK_COST_MIN = 200_000  # starting a task takes a tenth of the time that this much work takes
TASK_PEERS = 8  # one that adds up over all peers, has so many of them cost it about as much as one member does
SPLIT = 2  # a group that costs more than so many tasks is split: that takes further rounds of tasks; a guess
_DIGIT = 16  # b = 4, whatever the overlay has: it is a guess at costs


def costs(sizes: npt.NDArray[np.int32], peers: int) -> npt.NDArray[np.float64]:
    """What groups of so many members cost, whatever the policy."""
    members = np.maximum(sizes.astype(np.float64), 1)
    steps = np.log(np.maximum(peers / members, 1)) / np.log(_DIGIT)
    return np.asarray(members * (1 + steps * steps), np.float64)


def share(sizes: npt.NDArray[np.int32], peers: int) -> float:
    """What a task should cost, among all groups of a deployment."""
    return max(float(costs(sizes, peers).sum()) / TASKS, TASK_COST_MIN, peers / TASK_PEERS)


def tasks(sizes: npt.NDArray[np.int32], peers: int) -> npt.NDArray[np.int32]:
    """Which task each group belongs to.

    Args:
        sizes: members of the groups, descending.
        peers: how many there are in the deployment.

    A large group is a task of its own; small ones that follow each other share one.
    """
    most = share(sizes, peers)
    task = np.empty(len(sizes), np.int32)
    number, spent = 0, 0.0
    for at, cost in enumerate(costs(sizes, peers).tolist()):
        if spent and spent + cost > most:
            number, spent = number + 1, 0.0
        task[at] = number
        spent += cost
    return task


def pieces(sizes: npt.NDArray[np.int32], peers: int) -> npt.NDArray[np.int32]:
    """In how many pieces each group is worked on, 1 unless it is a giant. Giants have a task for themselves."""
    shares = costs(sizes, peers) / share(sizes, peers)
    return np.where(shares > SPLIT, np.ceil(shares), 1).astype(np.int32)
