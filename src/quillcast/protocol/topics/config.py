"""Settings of a peer for topics. Every time is in seconds, every size in bytes."""

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.numbers import check_numbers

MIB = 1 << 20
LACKS_MAX = 64  # ranges that a root asks one publisher for at a time; a guess
MAY_BE_ZERO = (
    "fallbacks", "ask_patience_s", "transfer_s", "compare_s", "patience_s", "report_s", "leave_s", "linger_s",
    "gap_s", "give_up_s",
)  # fmt: skip


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Times, windows and bounds of trees, roots and publishers."""

    auto_create: bool = True  # docs/delivery.md, *Ids*: a bare name is created on first use
    lease_s: float = 30.0  # docs/delivery.md, *Who keeps what*
    replicas: int = 5  # Scribe, section 3.2: root state on the k = 5 closest peers
    ask_s: float = 0.5  # a replica that did not answer the root is asked again after this time; a guess
    ask_patience_s: float = 1.0  # ... and after this long most answers are enough: a guess
    transfer_s: float = 3.0  # a peer that is to become root by a transfer waits this long for the transfer; a guess
    compare_s: float = 1.0  # neighbours compare root state this long after a change, to batch changes; a guess
    tree_heartbeat_s: float = 2.0  # heartbeats between parent and child; a guess: silence is noticed in 4 to 5 s
    join_timeout_s: float = 1.0  # first wait for a parent's answer, doubled up to join_timeout_max_s; a guess
    join_timeout_max_s: float = 4.0
    report_s: float = 0.1  # how often frontiers and acknowledged positions travel along a busy tree link; a guess
    report_bytes: int = 8 * MIB  # ... or after this many bytes arrived, were taken or became stable. 3 MiB took a tenth
    # more processor time for 10 kB events than 6. Each level of a tree keeps that much more
    housekeeping_s: float = 1.0  # how often leases, past terms, and agreement of parents and children are checked
    budget_bytes: int = 64 * MIB  # all buffers of a peer together (docs/delivery.md: one budget per peer). They must
    # hold two of the largest blocks that any peer publishes
    patience_s: float = 2.0  # docs/delivery.md, *Slowness*: publishers are held back this long before a cut
    window_bytes: int = 4 * MIB  # what a publisher may have in transit to the root without a receipt
    retain_bytes: int = 64 * MIB  # what a publisher keeps until it is stable
    retain_s: float = 120.0  # ... and how long at most; a guess: four leases
    receipt_timeout_s: float = 2.0  # a publisher looks for the root again when nothing was admitted for this long
    remind_s: float = 10.0  # a publisher asks about events that were admitted and are not stable; a guess
    admissions_max: int = 4096  # publishers that a root knows per topic (docs/topics.md); a guess: under 2 MB
    idle_topics_max: int = 1024  # topics that a peer knows but neither uses nor keeps for others; a guess: 400 kB
    topics_max: int = 1 << 18  # topics that a peer knows from others; a guess: 500 MB if it is in the trees of all
    streams_max: int = 1024  # live streams per topic, beyond which new sources wait; four times as many at most
    bundle_bytes: int = 256 * 1024  # the root seals at most about this much into one bundle
    fallbacks: int = 3  # parents named to children in case theirs dies; a guess. 0: rejoin as in the paper
    children_per_topic_max: int = 16  # docs/design.md, section 4: hard
    past_terms_s: float = 60.0  # how long bundles of past terms are kept for repair: two leases
    leave_s: float = 5.0  # how long a leaving peer waits for its events to be stable and its children to move
    linger_s: float = 1.0  # ... and how long of that, at most, for events that are already admitted; a guess
    gap_s: float = 0.5  # how long a gap may exist before it is asked for again; a guess: some round trips
    give_up_s: float = 5.0  # a gap that every source refused for this long is lost; a guess: time for several repairs

    def __post_init__(self) -> None:
        check_numbers(self, "topics", MAY_BE_ZERO)
        if self.join_timeout_s > self.join_timeout_max_s:
            raise LocalError(
                f"topics.join_timeout_s is {self.join_timeout_s:g}; use at most topics.join_timeout_max_s, "
                f"{self.join_timeout_max_s:g}"
            )
