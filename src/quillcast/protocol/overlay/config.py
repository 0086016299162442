"""What can be set about the overlay; times are seconds."""

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.ids import ID_BITS
from quillcast.core.numbers import check_numbers


class OverlayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Pastry's parameters and this peer's patience. All peers of a network share `digit_bits` and `leaf_set_size`."""

    digit_bits: int = 4
    """b: digits are of base 2^b. Typical value: Pastry, Scribe section 2."""

    leaf_set_size: int = 16
    """l: half of them on either side. Typical value: Scribe section 2."""

    neighbourhood_size: int = 16
    """|M|, the nearest peers by proximity: 2^b, Pastry section 2.1 (Rowstron and Druschel, 2001)."""

    hops_max: int = 64
    """A routed message that took this many hops goes in circles. Routes take log_2^b N; with b = 1 a million peers take
    20. A guess, three times that."""

    keep_alive_s: float = 5.0
    """A leaf-set member that was silent for so long is asked for a sign of life. A guess: death shows in 5 to 10 s."""

    maintenance_s: float = 60.0
    """Between two rounds of maintenance: a digest to the right-hand neighbour, a row from some member of it. Rounds
    after activation come sooner, at 1/16, 1/8, ... of it. A guess; FreePastry takes 15 minutes, ours are cheaper."""

    measured_per_state: int = 24
    """Peers out of another's state that a joining peer measures at most, looking for a nearby one. A guess, above the
    15 of one row (Castro et al., 2003, nearest contact by rows)."""

    nearby_rounds: int = 4
    """How often a joining peer moves on to a nearer contact before it joins through it. A guess."""

    join_timeout_s: float = 3.0
    """First patience with each step of an attempt to join; grows to `join_timeout_max_s` from attempt to attempt. A
    guess: ten slow round trips."""

    join_timeout_max_s: float = 30.0
    """Longest patience with a step. A guess."""

    probe_tries: int = 4
    """Questions to a would-be member of the leaf set until it counts as dead. A guess: at 5 % loss each way one in
    10,000 is missed, and comes back with the next exchange of leaf sets."""

    route_timeout_max_s: float = 2.0
    """Ceiling of the time-out for the acknowledgement of one hop. A guess."""

    route_patience_s: float = 60.0
    """How long one peer tries to pass one message on. A guess: several times what it takes to notice a death, or for a
    joining peer to become active."""

    pending_max: int = 4096
    """Messages that wait for their next hop's acknowledgement; over it they are sent without a second try. A guess."""

    held_max: int = 1024
    """Messages that wait for this peer's activation. A guess."""

    seen_max: int = 4096
    """Routed messages kept in mind so that none is delivered twice. A guess: minutes of a busy peer's share."""

    remembered_max: int = 64
    """Lost peers kept in mind, so that a split network heals. A guess: four leaf sets."""

    probe_lost_s: float = 1.5
    """Between two rounds in which up to four lost peers are probed. A guess: after a split two peers hear of each other
    within 5 s of connectivity, and what a peer sends to the dead stays below three short messages a second."""

    def __post_init__(self) -> None:
        check_numbers(self, "overlay", ("neighbourhood_size", "measured_per_state", "nearby_rounds", "remembered_max"))
        if self.digit_bits < 1 or self.digit_bits > 8 or ID_BITS % self.digit_bits:
            raise LocalError(f"overlay.digit_bits is {self.digit_bits}; use 1, 2, 4 or 8, which divide {ID_BITS}")
        if self.leaf_set_size < 2 or self.leaf_set_size % 2:
            raise LocalError(f"overlay.leaf_set_size is {self.leaf_set_size}; use an even number of at least 2")
