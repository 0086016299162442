"""Peers attached to the places of a topology."""

from dataclasses import replace

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.chance import below, mix
from quillcast.evaluation.network import Ids, Ints, Peers, Topology
from quillcast.evaluation.topology.clusters import clusters_of

_IDS, _PLACES = 1, 2  # purposes of random draws
PEERS_MAX = 2**31 - 1


def attach(topology: Topology, count: int, seed: int) -> Peers:
    """Peers with random nodeIds at random attachable places, all equally likely. Equal seeds give equal peers.

    Raises `LocalError` if the count is not from 1 to 2^31 - 1.
    """
    if not 1 <= count <= PEERS_MAX:
        raise LocalError(f"a deployment of {count:,} peers is not possible; use a number from 1 to {PEERS_MAX:,}")
    ids = _draw_ids(count, seed)
    ids.sort()
    place = _draw_places(np.asarray(topology.attachable), count, seed)
    return Peers(ids=ids, place=place, domain=topology.domain[place])


def clusters(topology: Topology, peers: Peers, *, count: int | None = None) -> Peers:
    """The same peers in domains found from measured delays, instead of the topology's true labels.

    Peers at one place share a domain. `count` is the number of clusters of places, a tenth of them by default
    (`topology.clusters`).
    """
    found = clusters_of(topology.delay_ms, topology.coordinates, count)
    return replace(peers, domain=found[peers.place])


@njit(cache=True)
def _draw_ids(count: int, seed: int) -> Ids:
    ids = np.empty(count, np.uint64)
    for number in range(count):
        ids[number] = mix(seed, _IDS, number)
    return ids


@njit(cache=True)
def _draw_places(attachable: Ints, count: int, seed: int) -> Ints:
    place = np.empty(count, np.int32)
    for number in range(count):
        place[number] = attachable[below(mix(seed, _PLACES, number), len(attachable))]
    return place
