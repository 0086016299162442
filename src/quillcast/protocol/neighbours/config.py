"""The settings of the neighbours layer. Times are in seconds."""

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.numbers import check_numbers


class NeighbourConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How soon silence is detected, and how long it lasts before a neighbour is declared lost."""

    timeout_first_s: float = 1.0
    """Time-out before a round trip was measured: RFC 6298, section 2.1."""

    timeout_min_s: float = 0.2
    """Lower bound of the adaptive time-out: TCP_RTO_MIN of Linux. RFC 6298 has 1 s, too slow for repair in seconds."""

    timeout_max_s: float = 2.0
    """Upper bound of a time-out. A guess."""

    repeat_max_s: float = 0.6
    """A heartbeat is repeated after at most this time, however long round trips were: a busy link seldom measures them,
    and one bad measurement must not hide a death. Answers that take longer still count. With `tries_max`, silence ends
    after 3 s, and on a tree's link within 5 s (7 s if round trips take a second, or heartbeats are lost): before its
    parent's buffers are full and its patience is over."""

    tries_max: int = 5
    """Unanswered heartbeats until a neighbour is lost. A guess: with 5 % loss in each direction, one neighbour in
    100,000 rounds of heartbeats is lost wrongly."""

    suspect_after: int = 3
    """Unanswered heartbeats until a neighbour is suspected (about three, as in most detectors)."""

    pause_s: float = 1.0
    """If the silence check runs this much too late, this process was paused: all neighbours get a new heartbeat before
    any is declared lost. A guess, above usual garbage collection and scheduling."""

    digest_every_s: float = 30.0
    """A link whose other traffic makes heartbeats unnecessary still carries one this often, for the digests of the
    streams."""

    lost_max: int = 256
    """Lost neighbours that are remembered, so that a message from one is reported as a recovery; the oldest are
    forgotten."""

    round_trips_max: int = 1024
    """Peers whose round-trip times are remembered; the oldest are forgotten."""

    def __post_init__(self) -> None:
        check_numbers(self, "neighbours", ("lost_max",))
        if self.timeout_min_s > self.timeout_max_s:
            raise LocalError(
                f"neighbours.timeout_min_s is {self.timeout_min_s:g}; use at most neighbours.timeout_max_s, "
                f"{self.timeout_max_s:g}"
            )


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How fast changes are sent, and how many of them are remembered."""

    flush_s: float = 0.1
    """Changes are sent to a neighbour at most once in this time; the first one after a pause is sent at once. A guess,
    far below the time that a repair may take."""

    log_changes_max: int = 1024
    """Changes of one stream that are remembered for resending (at times only half as many). A copy that misses more is
    sent buckets. A guess: 8 bytes each."""

    page_bytes_max: int = 60_000
    """Size of changes or entries in one message, so that it stays below 64 KiB with its head. Larger entries are
    rejected."""

    map_bytes_max: int = 16 << 20
    """Size of keys and values of one map: more than twice the size for 100,000 topics. A neighbour that sends more
    violates the protocol."""

    copies_bytes_max: int = 64 << 20
    """Size of the maps of all neighbours together: ten times the size for 100,000 topics. Beyond that the largest one
    is given up, and its neighbour violates the protocol if it sends more than any other."""

    ask_again_s: float = 1.0
    """A request without an answer is repeated after this time, then after twice this time, and so on. A guess."""

    questions_max: int = 5
    """Requests in a row. After the last one, the neighbour's next mark starts over. A guess: 31 s."""

    def __post_init__(self) -> None:
        check_numbers(self, "streams", ("flush_s", "log_changes_max"))
