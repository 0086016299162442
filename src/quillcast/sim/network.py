"""The network between machines: delays and disturbances. `links.py` transmits over it."""

from collections.abc import Callable, Collection
from random import Random
from typing import NamedTuple

from quillcast.sim.topology import Topology

RETRANSMIT_S_MIN = 0.2  # the shortest retransmission time-out of Linux's TCP (TCP_RTO_MIN)
RETRANSMIT_S_MAX = 3.0  # a restored link is noticed within this time; a guess: TCP may take as long as the outage
REORDER_DELAYS = 4.0  # a datagram out of order is late by up to this many delays; a guess


class Quality(NamedTuple):
    """Disturbances of one direction between two machines. Probabilities from 0 to 1, for each thing sent."""

    loss: float = 0.0
    """In a stream a lost packet is retransmitted after a time-out; a lost datagram is gone."""
    duplication: float = 0.0
    """Datagrams only."""
    reordering: float = 0.0
    """Datagrams only."""
    jitter: float = 0.0
    """Delays are longer by up to this fraction."""
    slow_s: float = 0.0
    """Seconds added to each delay."""
    bytes_per_s: float = 0.0
    """Bytes of bundles per second; 0 means as much as a fast link carries."""


UNDISTURBED = Quality()
Cut = Callable[[int, int], bool]
"""Whether what machine `a` sends to machine `b` is dropped."""


class Network:
    """Delays between machines, the quality of paths, and which paths are cut.

    As **streams** (the default), each ordered pair of machines is first in, first out, and loss causes delay, as with
    TCP. As **datagrams**, things are lost, duplicated and reordered one by one.
    """

    def __init__(
        self, topology: Topology, random: Random, *, quality: Quality = UNDISTURBED, datagrams: bool = False
    ) -> None:
        self.random, self.datagrams = random, datagrams
        self.delay_s = topology.delay_s
        """Undisturbed delay in seconds from machine `a` to machine `b`."""
        self._usual = None if quality == UNDISTURBED else quality
        self._special: dict[tuple[int, int], Quality | None] = {}
        self._cuts: dict[int, Cut] = {}
        self._cut_number = 0

    @property
    def calm(self) -> bool:
        """Whether no path is cut or disturbed."""
        return self._usual is None and not self._cuts and not self._special

    @property
    def cuts(self) -> bool:
        """Whether any path is cut."""
        return bool(self._cuts)

    def quality(self, a: int, b: int) -> Quality | None:
        """The disturbance from `a` to `b`; None if there is none."""
        return self._special.get((a, b), self._usual)

    def disturb(self, a: int, b: int, quality: Quality | None) -> None:
        """Set the quality of the path from `a` to `b`; None restores the default."""
        if quality is None:
            self._special.pop((a, b), None)
        else:
            self._special[a, b] = None if quality == UNDISTURBED else quality

    def cut(self, cut: Cut) -> int:
        """Drop everything that `cut` selects. Returns the number for `heal`."""
        self._cut_number += 1
        self._cuts[self._cut_number] = cut
        return self._cut_number

    def heal(self, number: int) -> None:
        """Remove a cut."""
        self._cuts.pop(number, None)

    def blocked(self, a: int, b: int) -> bool:
        """Whether what `a` sends to `b` is dropped now."""
        return bool(self._cuts) and any(cut(a, b) for cut in self._cuts.values())

    def delays(self, delay_s: float, quality: Quality) -> tuple[float, ...]:
        """Arrival times of a datagram, in seconds from now: () if it is lost, two numbers if it is duplicated.

        `delay_s` is the undisturbed delay.
        """
        random = self.random.random
        if random() < quality.loss:
            return ()
        delay_s = delay_s * (1 + quality.jitter * random()) + quality.slow_s
        if random() < quality.reordering:
            delay_s *= 1 + REORDER_DELAYS * random()
        if random() < quality.duplication:
            return (delay_s, delay_s * (1 + REORDER_DELAYS * random()))
        return (delay_s,)

    def stream_delay_s(self, delay_s: float, quality: Quality) -> float:
        """Arrival time of bytes of a stream, in seconds from now.

        A packet is sent until it arrives; each time-out is twice the previous one (RFC 6298, section 5.5).
        """
        random = self.random.random
        delay_s = delay_s * (1 + quality.jitter * random()) + quality.slow_s
        late_s, timeout_s = 0.0, max(RETRANSMIT_S_MIN, 2 * delay_s)
        while late_s < RETRANSMIT_S_MAX and random() < quality.loss:
            late_s += timeout_s
            timeout_s *= 2
        return delay_s + late_s


def partition(side: Collection[int]) -> Cut:
    """Nothing passes between these machines and the others."""
    inside = frozenset(side)
    return lambda a, b: (a in inside) != (b in inside)


def one_way(senders: Collection[int], receivers: Collection[int]) -> Cut:
    """Nothing passes from these machines to those."""
    here, there = frozenset(senders), frozenset(receivers)
    return lambda a, b: a in here and b in there


def isolated(machine: int) -> Cut:
    """Nothing reaches or leaves this machine."""
    return lambda a, b: machine in (a, b)
