"""The roles: which peers publish, subscribe, or may be killed. Assigned once the overlay is complete."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

Parents = Mapping[bytes, bytes | None]
"""A topic's tree: each member's parent; None for the root."""

ATTEMPTS = 200  # assignments that are tried; a guess: among so few peers they repeat soon
SPARE_FORWARDERS = 4  # inner peers kept without a role: two victims, and more in case a repair changes the tree
PEERS_MIN = 4


class Roles(NamedTuple):
    """The peers by role. `spare` peers, the root among them, only forward for others; victims are chosen from them."""

    publishers: list[bytes]
    subscribers: list[bytes]
    spare: list[bytes]


def assign_roles(trial: Parents, seed: int) -> Roles:
    """Assign roles to the peers of a trial tree that all joined, so that two forwarders below its root are spare.

    Tries `ATTEMPTS` assignments derived from `seed`. Takes the one that keeps the most of two spare forwarders, and
    then the most children below them.
    """
    random = Random(seed)
    spare = [*roots(trial), *_inner(trial)[:SPARE_FORWARDERS]][: len(trial) // 2]
    others = [peer for peer in sorted(trial) if peer not in spare]
    publishers_count = max(1, len(trial) // 5)

    def draw() -> Roles:
        order = random.sample(others, len(others))
        return Roles(order[:publishers_count], order[publishers_count:], spare)

    return max((draw() for _ in range(ATTEMPTS)), key=lambda roles: _worth(trial, roles))


def forwarders(parents: Parents, among: Sequence[bytes]) -> list[bytes]:
    """Those of `among` that have a parent and children in the tree, those with most children first."""
    children = children_of(parents)
    inner = [peer for peer in among if parents.get(peer) is not None and children.get(peer)]
    return sorted(inner, key=lambda peer: (-len(children[peer]), peer))


def children_of(parents: Parents) -> dict[bytes, list[bytes]]:
    """Each parent's children."""
    children: dict[bytes, list[bytes]] = {}
    for peer, parent in sorted(parents.items()):
        if parent is not None:
            children.setdefault(parent, []).append(peer)
    return children


def roots(parents: Parents) -> list[bytes]:
    """The peers without a parent: one, except while the root changes."""
    return sorted(peer for peer, parent in parents.items() if parent is None)


def _inner(trial: Parents) -> list[bytes]:
    """The forwarders below the root, those on which most others depend first."""
    below: dict[bytes, int] = {}
    for peer in trial:
        for ancestor in _ancestors(trial, peer):
            below[ancestor] = below.get(ancestor, 0) + 1
    inner = [peer for peer in below if trial[peer] is not None]
    return sorted(inner, key=lambda peer: (-below[peer], peer))


def _worth(trial: Parents, roles: Roles) -> tuple[int, int]:
    """The quality of an assignment: spare forwarders that remain, up to two, and children below them."""
    left = {peer: trial[peer] for member in roles.subscribers for peer in (member, *_ancestors(trial, member))}
    children = children_of(left)
    useful = forwarders(left, roles.spare)
    return min(2, len(useful)), sum(len(children[peer]) for peer in useful[:2])


def _ancestors(parents: Parents, peer: bytes) -> Iterator[bytes]:
    while (parent := parents.get(peer)) is not None:
        yield parent
        peer = parent
