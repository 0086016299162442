"""Assign groups to tasks: tasks of about equal cost, and groups that are too large for one task.

The unit of cost is a member of a group of all peers, in which each route ends at the next peer: building the tree of a
million members takes a quarter of a second. In a smaller group routes are longer, and each step misses the processor's
caches more often, so costs grow with the square of the steps: six microseconds for each member of a group of 17 among a
million peers, compared with a quarter of one.
"""

import numpy as np
import numpy.typing as npt

TASKS = 16  # a guess: enough for balance on a dozen cores
TASK_COST_MIN = 200_000  # starting a task takes a tenth of the time of this much work
TASK_PEERS = 8  # in a task that adds up over all peers, this many of them cost about as much as one member
SPLIT = 2  # a group that costs more than this many tasks is split, which takes further rounds of tasks; a guess
_DIGIT = 16  # b = 4, whatever the overlay has, since costs are estimates


def costs(sizes: npt.NDArray[np.int32], peers: int) -> npt.NDArray[np.float64]:
    """The cost of groups of these sizes, independent of the policy."""
    members = np.maximum(sizes.astype(np.float64), 1)
    steps = np.log(np.maximum(peers / members, 1)) / np.log(_DIGIT)
    return np.asarray(members * (1 + steps * steps), np.float64)


def share(sizes: npt.NDArray[np.int32], peers: int) -> float:
    """The target cost of a task, for all groups of a deployment."""
    return max(float(costs(sizes, peers).sum()) / TASKS, TASK_COST_MIN, peers / TASK_PEERS)


def tasks(sizes: npt.NDArray[np.int32], peers: int) -> npt.NDArray[np.int32]:
    """The task of each group, from the groups' sizes, descending, and the number of peers in the deployment.

    A large group is a task of its own. Consecutive small groups share a task.
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
    """The number of pieces of each group: 1 unless it is split. Split groups have their own tasks."""
    shares = costs(sizes, peers) / share(sizes, peers)
    return np.where(shares > SPLIT, np.ceil(shares), 1).astype(np.int32)
