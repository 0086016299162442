"""The bounds of a live peer's links and queues."""

import msgspec

from quillcast.core.numbers import check_numbers
from quillcast.protocol.security.tokens import TOKEN_LIFE_S


class LiveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and time-outs of one peer. Raise `window_bytes` for links with a long round trip."""

    window_bytes: int = 4 << 20
    """Bytes of bundles from a neighbour that this peer may hold; each link has its own window."""

    write_bytes_max: int = 1 << 20
    """Bytes a link hands to its socket ahead of the kernel before it reports no room; a guess: a few milliseconds."""

    unread_bytes_max: int = 16 << 20
    """Control bytes that wait for a peer that does not read, or for a new link; beyond that, it is closed. A guess."""

    unfinished_bytes_max: int = 64 << 20
    """Bytes of all large frames that have not fully arrived; beyond that, the link that waited longest is closed."""

    local_ipc: bool = True
    """Links between peers of one machine use a Unix socket and shared memory, if both sides have this on."""

    yield_cpu: bool = True
    """After sending events, a peer yields the CPU to the processes that they wake (docs/live.md, *Turns*)."""

    unauthenticated_max: int = 128
    """Number of unauthenticated connections; beyond that, the oldest are closed. A guess."""

    connect_timeout_s: float = 5.0
    """From the first packet to a proven identity. A guess: three lost packets' worth of TCP's retries."""

    unanswered_timeout_s: float = 20.0
    """How long sent bytes may stay unacknowledged before the link breaks (TCP_USER_TIMEOUT); a guess."""

    close_timeout_s: float = 2.0
    """How long links may take to write their queues when the peer stops; a guess."""

    measure_timeout_s: float = 5.0
    """How long a `Host.measure` waits for its answer; a guess."""

    join_timeout_s: float = 30.0
    """How long a node waits to become part of the overlay before it gives up; a guess. Members of scopes wait as long
    as `Node(wait_for_network=...)` says."""

    leave_timeout_s: float = 10.0
    """How long a graceful leave may take; a guess: children move within a few round trips."""

    token_life_s: float = TOKEN_LIFE_S
    """How long a join line is valid."""

    publish_bytes: int = 768 << 10
    """A publisher's open batch is sealed at this size, with 80 bytes for each event; measured, see docs/live.md."""

    subscription_bytes: int = 4 << 20
    """Bytes of blocks that wait for a subscription's reader; beyond that, the topic's `slow` setting applies."""

    client_bytes: int = 32 << 20
    """Unread bytes of events of all subscriptions of a client of this peer; beyond that, the oldest are dropped and
    reported as lost. A guess: a program may be stopped for some seconds."""

    def __post_init__(self) -> None:
        check_numbers(self, "live")
