"""A peer and its links."""

import msgspec

from quillcast.core.status.base import PeerContact, Status
from quillcast.core.status.scopes import Membership
from quillcast.core.status.topics import TopicStatus


class LinkStatus(PeerContact, frozen=True):
    """A link to a neighbour, as this end sees it."""

    connected: bool
    """Whether there is a connection."""
    suspected: bool
    """Whether the neighbour missed several probes."""
    round_trip_ms: float | None
    """Measured round-trip time in milliseconds. None if this end has not measured it."""
    credit_bytes: int
    """Bytes of bundles that may still be sent. Not positive while the link is blocked."""
    waiting_bytes: int
    """Bytes in the queue of this end."""
    held_bytes: int
    """Bytes of bundles that arrived and are charged to the neighbour's credit."""

    @property
    def state(self) -> str:
        """In one word: `up`, `down` or `suspected`."""
        return "suspected" if self.suspected else "up" if self.connected else "down"


class MemoryUse(Status, frozen=True):
    """Memory in use, and its bound."""

    used_bytes: int
    """Bytes in use."""
    limit_bytes: int
    """The most that may be in use."""

    @property
    def share(self) -> float:
        """The used part of the limit; 1 is full."""
        return self.used_bytes / self.limit_bytes


class Counters(Status, frozen=True):
    """What the peer has counted since it started."""

    bytes_in: int = 0
    """Bytes of bundles received."""
    bytes_out: int = 0
    """Bytes sent."""
    bundles_in: int = 0
    """Bundles received."""
    messages_in: int = 0
    """Control messages received."""
    repeats: int = 0
    """Events that arrived again and were not forwarded."""
    dropped: int = 0
    """Events that arrived and were discarded: of an old term, of a topic without a tree here, or beyond the buffers."""
    links_opened: int = 0
    """Links that were established, by either side. Many for few neighbours: links break or are replaced."""
    links_failed: int = 0
    """Links that could not be opened."""
    links_broken: int = 0
    """Links that closed because writing failed."""
    datagrams_in: int = 0
    """Datagrams received over multicast groups."""
    datagrams_out: int = 0
    """Datagrams sent to multicast groups."""
    datagrams_unsent: int = 0
    """Datagrams, or bundles too large for them, that could not be sent to a multicast group."""
    datagrams_refused: int = 0
    """Datagrams without proof that a member sent them, or with invalid content."""
    crowded_out: int = 0
    """Links closed because incomplete frames took too much memory."""
    admitted: int = 0
    """Machines admitted with a token."""
    unauthenticated_refused: int = 0
    """Connections refused because too many others were unauthenticated."""
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    """Connections closed because of what arrived on them, by reason."""


class Traffic(Status, frozen=True):
    """What the links have carried."""

    links: int
    """Open links."""
    counters: Counters
    """What was counted since the start."""


class JournalStatus(Status, frozen=True):
    """The journal of a peer."""

    path: str
    """Its current file."""
    failed: str | None
    """Why it ended; None while it is being written."""
    removed: int
    """How often its file was removed."""
    missed_records: int
    """Records that were not written because there was no folder."""


class NodeStatus(Status, frozen=True):
    """What a peer is, knows and does."""

    node_id: str
    """The peer's nodeId."""
    address: str
    """Where it listens, `host:port`."""
    network: str
    """The name of its network."""
    pid: int
    """Its process id."""
    uptime_s: float
    """Seconds since it started."""
    active: bool
    """Whether it has joined the network."""
    credential: str | None
    """Fingerprint of the network's credential. None in a network without one."""
    admits: bool
    """Whether it holds the credential, and so admits other machines."""
    looked_in: str
    """Where it looks for other peers of this machine."""
    unauthenticated: int
    """Connections that have not yet proven who is at the other end."""
    neighbours: tuple[LinkStatus, ...]
    """Its links."""
    leaf_set: tuple[PeerContact, ...]
    """The peers with the closest nodeIds."""
    topics: tuple[TopicStatus, ...]
    """The topics in which it takes part, by name."""
    buffers: MemoryUse
    """The buffers of all topics together."""
    unfinished: MemoryUse
    """Memory of incomplete frames."""
    counters: Counters
    """What was counted since the start."""
    problems: tuple[str, ...]
    """The latest problems of the last ten minutes, one line each."""
    journal: JournalStatus | None
    """The journal, if it writes one."""
    clients: int = 0
    """Applications that use it as their peer."""
    memberships: tuple[Membership, ...] = ()
    """The scopes that it is a member of, preferred one first."""
    manages: tuple[str, ...] = ()
    """The names of the scopes whose managers it runs."""
