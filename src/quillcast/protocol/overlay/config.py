"""The settings of the overlay. Times are in seconds."""

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.ids import ID_BITS
from quillcast.core.numbers import check_numbers


class OverlayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Pastry's parameters and this peer's time-outs. All peers of a network share `digit_bits` and `leaf_set_size`."""

    digit_bits: int = 4
    """b: digits have base 2^b. Typical value: Pastry, Scribe section 2."""

    leaf_set_size: int = 16
    """l: half of the members are on each side. Typical value: Scribe section 2."""

    neighbourhood_size: int = 16
    """|M|, the number of nearest peers by proximity: 2^b, Pastry section 2.1 (Rowstron and Druschel, 2001)."""

    hops_max: int = 64
    """A routed message with this many hops is in a loop. Routes take log_2^b N hops: with b = 1, 20 for a million
    peers. A guess: three times that."""

    keep_alive_s: float = 5.0
    """A leaf-set member that was silent for this long is probed. A guess: a death is detected in 5 to 10 s."""

    maintenance_s: float = 60.0
    """Interval of maintenance rounds: each sends a digest to the right-hand neighbour and requests a row from one of
    its members. The first rounds after activation come sooner, after 1/16, 1/8, ... of it. A guess; FreePastry takes 15
    minutes, but its rounds cost more."""

    measured_per_state: int = 24
    """Peers from another peer's state that a joining peer measures at most to find a nearby one. A guess, above the 15
    of one row (Castro et al., 2003, nearest contact by rows)."""

    nearby_rounds: int = 4
    """How often a joining peer moves on to a nearer contact before it joins through it. A guess."""

    join_timeout_s: float = 3.0
    """First time-out of each step of an attempt to join; it grows to `join_timeout_max_s` with each attempt. A guess:
    ten slow round trips."""

    join_timeout_max_s: float = 30.0
    """Longest time-out of a step. A guess."""

    probe_tries: int = 4
    """Probes of a candidate for the leaf set before it counts as dead. A guess: with 5 % loss in each direction one in
    10,000 is missed, and returns with the next exchange of leaf sets."""

    route_timeout_max_s: float = 2.0
    """Upper bound of the time-out for the acknowledgement of one hop. A guess."""

    route_patience_s: float = 60.0
    """How long a peer tries to forward a message. A guess: several times what it takes to detect a death, or for a
    joining peer to become active."""

    pending_max: int = 4096
    """Messages that wait for the acknowledgement of the next hop. Above this number, messages are sent without retries.
    A guess."""

    held_max: int = 1024
    """Messages that wait until this peer is active. A guess."""

    seen_max: int = 4096
    """Routed messages remembered so that none is delivered twice. A guess: minutes of a busy peer's share."""

    remembered_max: int = 64
    """Lost peers that are remembered so that a partitioned network heals. A guess: four leaf sets."""

    probe_lost_s: float = 1.5
    """Interval of the rounds in which up to four lost peers are probed. A guess: after a partition, two peers hear of
    each other within 5 s of connectivity, and a peer sends fewer than three short messages per second to dead peers."""

    def __post_init__(self) -> None:
        check_numbers(self, "overlay", ("neighbourhood_size", "measured_per_state", "nearby_rounds", "remembered_max"))
        if self.digit_bits < 1 or self.digit_bits > 8 or ID_BITS % self.digit_bits:
            raise LocalError(f"overlay.digit_bits is {self.digit_bits}; use 1, 2, 4 or 8, which divide {ID_BITS}")
        if self.leaf_set_size < 2 or self.leaf_set_size % 2:
            raise LocalError(f"overlay.leaf_set_size is {self.leaf_set_size}; use an even number of at least 2")
