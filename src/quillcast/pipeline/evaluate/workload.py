"""Who subscribes to what: groups, their members and publishers, each computed from (seed, group) alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.pipeline.evaluate.chance import Word, finalise, mix
from quillcast.pipeline.evaluate.network import Group, Ids, Ints, Peers, _Arrays

Placement = Literal["uniform", "clustered"]
Publishers = Literal["root", "creator", "members"]

_KEY, _MEMBERS, _SEED, _USERS, _PUBLISHERS, _DOMAINS = range(11, 17)  # what chance is asked for


@dataclass(frozen=True, slots=True)
class Workload(_Arrays):
    """The groups of a deployment.

    Args:
        sizes: members of each group, int32 [groups].
        offsets: where each group's users begin in `users`, int64 [groups + 1]; [0] where members are drawn.
        users: real subscribers, as numbers from 0, ascending in each group; int32 [memberships].
        placement: `uniform`: members are drawn from all peers; `clustered`: from the peers of as few whole domains,
            taken at random, as hold at least `spread` times the group.
        spread: how thinly a clustered group is spread over its domains, at least 1.
        name: for people.
        group_names: for people; empty, or one per group.
    """

    sizes: Ints
    offsets: npt.NDArray[np.int64]
    users: Ints
    placement: Placement
    spread: float
    name: str
    group_names: list[str]

    def __len__(self) -> int:
        return len(self.sizes)


def power_law(
    peers: int, groups: int, *, exponent: float = 1.25, placement: Placement = "uniform", spread: float = 2.0
) -> Workload:
    """Group sizes floor(N r^-1.25 + 0.5) for the ranks r from 1 (the evaluation of Scribe); none is empty.

    Args:
        peers: N, the size of the largest group.
        groups: how many.
        exponent: how fast sizes fall.
        placement: see `Workload`.
        spread: see `Workload`.
    """
    ranks = np.arange(1, groups + 1, dtype=np.float64)
    sizes = np.maximum(np.floor(peers * ranks**-exponent + 0.5), 1).astype(np.int32)
    return _drawn(sizes, placement, spread, f"{groups:,} groups of {peers:,} r^-{exponent:g}")


def fixed(groups: int, size: int, *, placement: Placement = "uniform", spread: float = 2.0) -> Workload:
    """Groups that are all of one size."""
    return _drawn(np.full(groups, size, np.int32), placement, spread, f"{groups:,} groups of {size:,}")


def _drawn(sizes: Ints, placement: Placement, spread: float, name: str) -> Workload:
    if not len(sizes) or sizes.min() < 1:
        raise LocalError("a workload needs at least one group, and each group a member; give larger numbers")
    if spread < 1:
        raise LocalError(f"members cannot be spread over {spread} times their number; give a spread of at least 1")
    offsets, users = np.zeros(1, np.int64), np.zeros(0, np.int32)
    return Workload(sizes, offsets, users, placement, spread, name, [])


def key(number: int, seed: int) -> Word:
    """The first 64 bits of a group's topicId."""
    return mix(seed, _KEY, number)


def group(workload: Workload, number: int, peers: Peers, seed: int) -> Group:
    """A group with its members, and a seed for what a policy leaves to chance."""
    return Group(number, key(number, seed), members(workload, number, peers, seed), mix(seed, _SEED, number))


def members(workload: Workload, number: int, peers: Peers, seed: int) -> Ints:
    """The peers that subscribe to a group, ascending, int32; depends on (seed, number), whoever asks.

    Raises `LocalError` if the group is larger than the deployment.
    """
    size, count = int(workload.sizes[number]), len(peers)
    if size > count:
        raise LocalError(f"group {number} has {size:,} members, the deployment {count:,} peers; give more peers")
    return _sample(count, size, mix(seed, _MEMBERS, number))


def publishers(kind: Publishers, members: Ints, root: int, number: int, seed: int, count: int = 1) -> Ints:
    """The peers from which a group's events come, int32.

    Args:
        kind: `root`: the group's root; `creator`: one member, who made the group; `members`: some members.
        members: of the group.
        root: of the group.
        number: of the group.
        seed: of the workload.
        count: how many, where members publish; fewer if the group is smaller.
    """
    if kind == "root":
        return np.array([root], np.int32)
    wanted = 1 if kind == "creator" else min(count, len(members))
    return members[_sample(len(members), wanted, mix(seed, _PUBLISHERS, number))]


def _sample(count: int, size: int, seed: int) -> Ints:
    """Some of the numbers from 0, ascending: the first `size` of a random permutation."""
    if size == count:
        return np.arange(count, dtype=np.int32)
    drawn = permuted(count, size, seed)
    if size < count // 16:
        drawn.sort()
        return drawn
    taken = np.zeros(count, np.bool_)
    taken[drawn] = True
    return np.flatnonzero(taken).astype(np.int32)


@njit("uint64(uint64, uint64, uint64, uint64[::1])", cache=True)
def _scramble(word: Word, left: Word, right: Word, keys: Ids) -> Word:
    """Four rounds over the upper `left` and the lower `right` bits of a word, in turn."""
    one = np.uint64(1)
    upper, lower = word >> right, word & ((one << right) - one)
    for turn in range(0, 4, 2):
        upper ^= finalise(keys[turn] + lower) & ((one << left) - one)
        lower ^= finalise(keys[turn + 1] + upper) & ((one << right) - one)
    return (upper << right) | lower


@njit("int32[::1](int64, int64, uint64)", cache=True)
def permuted(count: int, size: int, seed: int) -> Ints:
    """The first `size` places of a random permutation of the numbers under `count`, computed one by one.

    A Feistel network permutes the next power of two; who leaves the range walks on until back in it (Black and
    Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    bits = 2
    while (1 << bits) < count:
        bits += 1
    left, right = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    keys = np.empty(4, np.uint64)
    for turn in range(4):
        keys[turn] = mix(seed, 0, turn)
    places = np.empty(size, np.int32)
    for at in range(size):
        place: Word = np.uint64(at)
        while True:
            place = _scramble(place, left, right, keys)
            if place < np.uint64(count):
                break
        places[at] = place
    return places
