"""What the peers of one machine do together (`topic list`, `topic show`, `top`)."""

from quillcast.core.status.base import Status
from quillcast.core.status.peers import LinkStatus, MemoryUse
from quillcast.core.status.topics import SubscriberLag, Topic


class TopicSummary(Topic, frozen=True):
    """What the peers of one machine together know of a topic."""

    root: str | None
    """NodeId of the root, if it is known."""
    events: int
    """Known number of events of the topic."""
    peers: int
    """Peers of this machine in its tree."""
    subscriptions: int
    """Their subscriptions."""
    publishers: int
    """Their publishers."""


class TopicActivity(TopicSummary, frozen=True):
    """The activity of a topic between two queries to the peers of a machine."""

    events_per_s: float
    """Events per second at the peer that received most."""
    unstable: int | None
    """Events that are not stable yet. None if the root is on another machine, or the topic is not reliable."""


class PeerActivity(Status, frozen=True):
    """The activity of a peer between two queries."""

    node_id: str
    """The peer's nodeId."""
    address: str
    """Where it listens."""
    pid: int
    """Its process id."""
    uptime_s: float
    """Seconds since it started."""
    active: bool
    """Whether it has joined the network."""
    cpu_share: float
    """CPU time per elapsed time; 1 is one core."""
    memory_bytes: int
    """Resident memory of its process."""
    neighbours: int
    """Its links."""
    suspected: int
    """Neighbours that are suspected."""
    topics: int
    """Topics in which it takes part."""
    events_per_s: float
    """Events that arrived per second, in all topics."""
    in_bytes_per_s: float
    """Bytes of bundles received per second."""
    out_bytes_per_s: float
    """Bytes sent per second."""
    waiting_bytes: int
    """Bytes in the queues of its links."""
    buffers: MemoryUse
    """The buffers of all topics together."""
    dropped: int
    """Events discarded since the start."""
    problems: tuple[str, ...]
    """The latest problems of the last ten minutes."""


class PeerLink(Status, frozen=True):
    """A link of one of the peers."""

    node_id: str
    """The peer at this end."""
    link: LinkStatus
    """The link, with the neighbour at the other end."""


class Activity(Status, frozen=True):
    """The activity of the peers of one machine and network between two queries."""

    network: str
    """The name of the network."""
    seconds: float
    """Time between the queries."""
    peers: tuple[PeerActivity, ...]
    """The peers that answered."""
    topics: tuple[TopicActivity, ...]
    """Their topics, by name."""
    subscribers: tuple[SubscriberLag, ...]
    """Their subscriptions, furthest behind first."""
    links: tuple[PeerLink, ...]
    """Links that are down, suspected, or have a queue."""
    unresponsive: tuple[str, ...]
    """NodeIds of peers that do not answer."""
