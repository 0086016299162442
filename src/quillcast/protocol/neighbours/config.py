"""What can be set about neighbours; times are seconds."""

import msgspec


class NeighbourConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How soon silence is noticed, and how long it is doubted before a neighbour is declared lost."""

    timeout_first_s: float = 1.0
    """Time-out while no round trip was measured: RFC 6298, section 2.1."""

    timeout_min_s: float = 0.2
    """Floor of the adaptive time-out: Linux's TCP_RTO_MIN. RFC 6298 says 1 s, too slow for repair within seconds."""

    timeout_max_s: float = 2.0
    """Ceiling of one time-out, so that one bad measurement cannot hide a death for long. A guess."""

    tries_max: int = 5
    """Questions without an answer until the neighbour is lost. A guess: at 5 % loss each way one neighbour in 100,000
    questions is lost wrongly."""

    suspect_after: int = 3
    """Questions without an answer until the neighbour is suspected (about three missed, as most detectors have it)."""

    pause_s: float = 1.0
    """A sweep that comes this much too late means that this very process stood still: everyone is asked again before
    anyone is declared lost. A guess, above usual garbage collection and scheduling."""

    digest_every_s: float = 30.0
    """A link whose other traffic makes heartbeats needless still carries one this often, for the streams' digests."""

    lost_max: int = 256
    """Lost neighbours kept in mind, so that any word from them is told as a recovery; the oldest are forgotten."""

    round_trips_max: int = 1024
    """Peers whose round trips are kept; the oldest are forgotten."""
