"""Groups with their members and publishers, each computed only from (seed, group)."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation import plugins
from quillcast.evaluation.chance import Word, below, finalise, mix
from quillcast.evaluation.network import Arrays, Group, Ids, Ints, Peers
from quillcast.evaluation.textfile import Table, UnknownLayout, read_text, table_of

Placement = Literal["uniform", "clustered", "given"]
Publishers = Literal["root", "creator", "members"]

RUST_TEAMS = "rust-teams"
"""The built-in real membership: the teams of the Rust project."""

EXPECTED = (
    "a table with a group and a subscriber on each line, separated by a tab, semicolon or comma, "
    'or JSON such as {"subscriber": ["group", ...]}'
)
"""The layouts of a file of memberships."""
PUBLISHERS = 4  # of a group, if members publish; a guess

GROUP_SIZE_MIN = 2  # of real groups: a root and one more peer that receives

_KEY, _MEMBERS, _SEED, _USERS, _PUBLISHERS, _DOMAINS, _CREATOR = range(11, 18)  # purposes of random draws


@dataclass(frozen=True, slots=True)
class Workload(Arrays):
    """The groups of a deployment.

    Args:
        sizes: members of each group, int32 [groups].
        offsets: where each group's users begin in `users`, int64 [groups + 1]; [0] if members are random.
        users: real subscribers, as numbers from 0, ascending in each group; int32 [memberships].
        placement: `uniform`: members are drawn from all peers; `clustered`: from the peers of whole random domains, as
    few as contain `spread` times the group; `given`: users are the peers of the same numbers.
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


WORKLOADS = plugins.Kind(
    "workload",
    "quillcast.workloads",
    Workload,
    {
        "uniform": "quillcast.evaluation.workload:uniform",
        "clustered": "quillcast.evaluation.workload:clustered",
        RUST_TEAMS: "quillcast.evaluation.workload:rust_teams",
    },
)
"""Generators of groups. They are called with the topology, the peers, the experiment's number of groups and the seed,
with its `size` by that name if it has one, and then with the arguments in parentheses. Those of other packages return
the result of `given`. Ours use only the number of peers."""


def given(groups: Iterable[npt.ArrayLike], name: str, *, group_names: Sequence[str] = ()) -> Workload:
    """Groups of these peers. Raises ValueError if a group is empty or has a peer twice."""
    members = [np.sort(np.asarray(group, np.int32)) for group in groups]
    if not members or any(not len(group) or (np.diff(group) == 0).any() or group[0] < 0 for group in members):
        raise ValueError("a workload needs at least one group, and the members of a group must be different peers")
    sizes = np.array([len(group) for group in members], np.int32)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    return Workload(sizes, offsets, np.concatenate(members), "given", 1.0, name, list(group_names))


def uniform(topology: object, peers: Sized, groups: int, seed: int, size: int | None = None) -> Workload:
    """Random members; by default the group of rank r has floor(N r^-1.25 + 0.5)."""
    return _of_size(len(peers), groups, size, "uniform")


def clustered(topology: object, peers: Sized, groups: int, seed: int, size: int | None = None) -> Workload:
    """Groups of the same sizes, with members from few random domains."""
    return _of_size(len(peers), groups, size, "clustered")


def _of_size(peers: int, groups: int, size: object, placement: Placement) -> Workload:
    if size is None:
        return power_law(peers, groups, placement=placement)
    if not isinstance(size, int):
        raise LocalError(f"the size in {placement}({size}) must be a number of members")
    return fixed(groups, size, placement=placement)


def rust_teams(topology: object, peers: Sized, groups: int, seed: int) -> Workload:
    """The teams of the Rust project, the largest first."""
    with resources.as_file(resources.files("quillcast.evaluation") / "data" / "rust-teams.tsv.gz") as path:
        return _real(_memberships(path), RUST_TEAMS, len(peers), groups)


def power_law(
    peers: int, groups: int, *, exponent: float = 1.25, placement: Placement = "uniform", spread: float = 2.0
) -> Workload:
    """Group sizes floor(N r^-1.25 + 0.5) for the ranks r from 1 (the evaluation of Scribe); no group is empty.

    N, the size of the largest group, is the number of peers.
    """
    ranks = np.arange(1, groups + 1, dtype=np.float64)
    sizes = np.maximum(np.floor(peers * ranks**-exponent + 0.5), 1).astype(np.int32)
    return _drawn(sizes, placement, spread, f"{groups:,} groups of {peers:,} r^-{exponent:g}")


def fixed(groups: int, size: int, *, placement: Placement = "uniform", spread: float = 2.0) -> Workload:
    """Groups of equal size."""
    return _drawn(np.full(groups, size, np.int32), placement, spread, f"{groups:,} groups of {size:,}")


def real(path: Path, peers: int, *, groups: int | None = None) -> Workload:
    """Real membership, the largest groups first; groups of one are left out.

    Args:
        path: a file (plain or gzipped): a table with a group and a subscriber in its first two
    columns (Debian's dependencies); or JSON, one object from each subscriber to its groups (Deezer's genres).
        peers: of the deployment; at least as many as subscribers, because each becomes a different random peer.
        groups: the maximum number of groups; None: all.

    Raises `LocalError` if there is no such file, it has another format, has no group of two, or has too many
    subscribers.
    """
    return _real(_memberships(path), path.name.split(".")[0], peers, groups)


def is_real(members: str) -> bool:
    """Whether an experiment's `members` name real membership."""
    return members == RUST_TEAMS or not WORKLOADS.knows(members)


def _real(memberships: Iterable[tuple[str, str]], name: str, peers: int, groups: int | None) -> Workload:
    subscribers: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for group_name, subscriber in memberships:
        subscribers[group_name][subscriber] = None
    largest = sorted(subscribers, key=lambda group_name: (-len(subscribers[group_name]), group_name))
    heard = [group_name for group_name in largest if len(subscribers[group_name]) >= GROUP_SIZE_MIN]
    kept = heard[:groups]
    if not kept:
        raise LocalError(f"membership {name} has no group of {GROUP_SIZE_MIN} or more; name another")
    numbers: dict[str, int] = {}
    users = [sorted(numbers.setdefault(user, len(numbers)) for user in subscribers[one]) for one in kept]
    if len(numbers) > peers:
        raise LocalError(f"membership {name} has {len(numbers):,} subscribers for {peers:,} peers; use more peers")
    sizes = np.array([len(group_users) for group_users in users], np.int32)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    in_order = np.array([user for group_users in users for user in group_users], np.int32)
    counts = {"of one": len(largest) - len(heard), "smaller ones": len(heard) - len(kept)}
    left_out = [f"{count:,} {what} left out" for what, count in counts.items() if count]
    told = "; ".join([f"{name}, {len(kept):,} groups", *left_out])
    return Workload(sizes, offsets, in_order, "uniform", 1.0, told, kept)


def _memberships(path: Path) -> list[tuple[str, str]]:
    """Pairs of a group and a subscriber."""
    text = read_text(path, "membership", f"name another file, or {', '.join(WORKLOADS.names())}")
    try:
        return _of_json(json.loads(text)) if text.lstrip().startswith(("{", "[")) else _of_table(table_of(text))
    except UnknownLayout as error:
        raise LocalError(f"membership {path}: {error}; expected: {EXPECTED}") from error
    except ValueError as error:
        raise LocalError(f"membership {path} is damaged: {error}; repair it or name another file") from error


def _of_json(told: Any) -> list[tuple[str, str]]:
    if not isinstance(told, dict) or not all(isinstance(names, list) for names in told.values()):
        raise UnknownLayout("it is JSON, but not an object from each subscriber to a list of groups")
    return [(str(group_name), user) for user, names in told.items() for group_name in names]


def _of_table(table: Table) -> list[tuple[str, str]]:
    """The first two columns of a table. A first line whose cells occur in no other line is its header."""
    if any(len(row) < 2 for row in table.rows) or (not table.separator and any(len(row) > 2 for row in table.rows)):
        raise UnknownLayout(f"it is {table}")
    pairs = [(row[0], row[1]) for row in table.rows]
    (group_name, user), rest = pairs[0], pairs[1:]
    return pairs if any(group_name == other[0] or user == other[1] for other in rest) else rest


def _drawn(sizes: Ints, placement: Placement, spread: float, name: str) -> Workload:
    if not len(sizes) or sizes.min() < 1:
        raise LocalError("a workload needs at least one group, and each group a member; use larger numbers")
    if spread < 1:
        raise LocalError(f"members cannot be spread over {spread} times their number; use a spread of at least 1")
    offsets, users = np.zeros(1, np.int64), np.zeros(0, np.int32)
    return Workload(sizes, offsets, users, placement, spread, name, [])


def key(number: int, seed: int) -> Word:
    """The first 64 bits of a group's topicId."""
    return mix(seed, _KEY, number)


def group(workload: Workload, number: int, peers: Peers, seed: int) -> Group:
    """A group with its members, and a seed for the random choices of a policy."""
    return Group(number, key(number, seed), members(workload, number, peers, seed), mix(seed, _SEED, number))


def members(workload: Workload, number: int, peers: Peers, seed: int) -> Ints:
    """The peers that subscribe to a group, ascending, int32. They depend only on (seed, number).

    Raises `LocalError` if the deployment has too few peers.
    """
    size, count = int(workload.sizes[number]), len(peers)
    if len(workload.users):
        return _real_members(workload, number, count, mix(seed, _USERS, 0))
    if size > count:
        raise LocalError(f"group {number} needs {size:,} peers, the deployment has {count:,}; use more peers")
    if workload.placement == "clustered":
        return _clustered(peers, size, size * workload.spread, mix(seed, _DOMAINS, number), mix(seed, _MEMBERS, number))
    return _sample(count, size, mix(seed, _MEMBERS, number))


def _real_members(workload: Workload, number: int, count: int, seed: Word) -> Ints:
    users = np.array(workload.users[workload.offsets[number] : workload.offsets[number + 1]])
    if users[-1] >= count:
        raise LocalError(f"group {number} needs {users[-1] + 1:,} peers, the deployment has {count:,}; use more peers")
    return users if workload.placement == "given" else np.sort(permuted(count, users, seed))


def _clustered(peers: Peers, size: int, pool_size: float, domain_seed: Word, seed: Word) -> Ints:
    """Some of the peers in as many random domains as together hold `pool_size`."""
    order, first = _by_domain(_Same(peers.domain))
    domains = permuted(len(first) - 1, np.arange(len(first) - 1, dtype=np.int32), domain_seed)
    held = np.cumsum(first[domains + 1] - first[domains])
    taken = domains[: int(np.searchsorted(held, min(pool_size, len(peers)))) + 1]
    pool = np.sort(np.concatenate([order[first[domain] : first[domain + 1]] for domain in taken]))
    return pool[_sample(len(pool), size, seed)]


class _Same:
    """An array that equals only itself."""

    __slots__ = ("array",)

    def __init__(self, array: Ints) -> None:
        self.array = array

    def __hash__(self) -> int:
        return id(self.array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.array is self.array


class _Domains(NamedTuple):
    """Peers in the order of their domains, and where each domain begins (and the last one ends)."""

    order: Ints
    first: npt.NDArray[np.int64]


@lru_cache(maxsize=1)  # called again for each group
def _by_domain(domain: _Same) -> _Domains:
    order = np.argsort(domain.array, kind="stable").astype(np.int32)
    ends = np.cumsum(np.bincount(domain.array), dtype=np.int64)
    return _Domains(order, np.concatenate([np.zeros(1, np.int64), ends]))


def creator(group: Group) -> int:
    """The peer that created the group. If that is not given, a member drawn by the group's seed."""
    if group.creator >= 0:
        return group.creator
    count = np.uint64(len(group.members))
    return int(group.members[int(below(mix(group.seed, _CREATOR, group.number), count))])


def publishers(kind: Publishers, group: Group, root: int, count: int = PUBLISHERS) -> Ints:
    """The peers that publish a group's events, int32: `root`, the creator, or at most `count` members."""
    if kind == "root":
        return np.array([root], np.int32)
    if kind == "creator":
        return np.array([creator(group)], np.int32)
    chosen = _sample(len(group.members), min(count, len(group.members)), mix(group.seed, _PUBLISHERS, group.number))
    return group.members[chosen]


def _sample(count: int, size: int, seed: int) -> Ints:
    """Some of the numbers from 0, ascending: the first `size` of a random permutation."""
    if size == count:
        return np.arange(count, dtype=np.int32)
    drawn = permuted(count, np.arange(size, dtype=np.int32), seed)
    if size < count // 16:
        drawn.sort()
        return drawn
    taken = np.zeros(count, np.bool_)
    taken[drawn] = True
    return np.flatnonzero(taken).astype(np.int32)


@njit("uint64(uint64, uint64, uint64, uint64[::1])", cache=True)
def _scramble(word: Word, left: Word, right: Word, keys: Ids) -> Word:
    """Four rounds on the upper `left` and the lower `right` bits of a word, alternating."""
    one = np.uint64(1)
    upper, lower = word >> right, word & ((one << right) - one)
    for turn in range(0, 4, 2):
        upper ^= finalise(keys[turn] + lower) & ((one << left) - one)
        lower ^= finalise(keys[turn + 1] + upper) & ((one << right) - one)
    return (upper << right) | lower


@njit("int32[::1](int64, int32[::1], uint64)", cache=True)
def permuted(count: int, numbers: Ints, seed: Word) -> Ints:
    """The images of some numbers under a random permutation of the numbers below `count`, computed one by one.

    A Feistel network permutes the next power of two. A result outside the range is permuted again until it is inside
    (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    bits = 2
    while (1 << bits) < count:
        bits += 1
    left, right = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    keys = np.empty(4, np.uint64)
    for turn in range(4):
        keys[turn] = mix(seed, 0, turn)
    places = np.empty(len(numbers), np.int32)
    for at in range(len(numbers)):
        place: Word = np.uint64(numbers[at])
        while True:
            place = _scramble(place, left, right, keys)
            if place < np.uint64(count):
                break
        places[at] = place
    return places
