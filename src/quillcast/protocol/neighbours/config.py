"""What can be set about neighbours; times are seconds."""

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.numbers import check_numbers


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

    def __post_init__(self) -> None:
        check_numbers(self, "neighbours", ("lost_max",))
        if self.timeout_min_s > self.timeout_max_s:
            raise LocalError(
                f"neighbours.timeout_min_s is {self.timeout_min_s:g}; use at most neighbours.timeout_max_s, "
                f"{self.timeout_max_s:g}"
            )


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How fast changes go out, and how much is remembered of them."""

    flush_s: float = 0.1
    """Changes to one neighbour go at most once in so long; the first after a pause at once. A guess, far below what a
    repair may take."""

    log_changes_max: int = 1024
    """Changes of one stream remembered for resending, at times only half of it; who lacks more is sent buckets. A
    guess: 8 bytes each."""

    page_bytes_max: int = 60_000
    """Changes or entries in one message, so that with its head it stays below 64 KiB. A larger entry is refused."""

    map_bytes_max: int = 64 << 20
    """Keys and values of one map: ten times what 100,000 topics take. Who tells more breaks the protocol."""

    ask_again_s: float = 1.0
    """A question without an answer is asked again after so long, then twice as long, and so on. A guess."""

    questions_max: int = 5
    """Questions in a row; after the last one the neighbour's next mark begins anew. A guess: 31 s."""

    def __post_init__(self) -> None:
        check_numbers(self, "streams", ("flush_s", "log_changes_max"))
