"""Topics, and a peer's part in them."""

from typing import Literal

from quillcast.core.status.base import PeerContact, Status

Role = Literal["root", "forwarder", "leaf", "publisher", "replica"]
IN_TREE: tuple[Role, ...] = ("root", "forwarder", "leaf")
"""The roles of peers that have a place in the topic's tree."""


class TopicSettings(Status, frozen=True):
    """The choices of a topic's owner, and who may use the topic."""

    delivery: str
    """`reliable` or `best_effort`."""
    order: str
    """`publisher` or `none`."""
    slow: str
    """What happens if a subscriber cannot keep up: `cut` or `wait`."""
    event_bytes_max: int
    """Largest payload of an event, bytes."""
    partition: str
    """What a root does if it cannot reach most replicas: `go_on` or `wait`."""
    admission: str = "root"
    """Who numbers the events: the `root`, or each publishing peer its own (`source`)."""
    root_scope: str = ""
    """The scope in which the topic is rooted; empty for the overlay."""
    owner: str | None = None
    """The owner's principal. None if the topic has no owner."""
    access: tuple[str, ...] = ()
    """The access list. Empty: everybody may publish and subscribe."""
    session: int = 0
    """The number of the session that has these settings."""
    session_state: str = "active"
    """`active`; `prepare` or `flushing` while another session follows; `closed` while no root admits events."""

    @property
    def reliable(self) -> bool:
        """Whether every subscriber is guaranteed every event."""
        return self.delivery == "reliable"


class Topic(Status, frozen=True):
    """A topic, and its settings."""

    name: str
    """Its name, with its creator's if it has one."""
    topic_id: str
    """The hash of its name and creator."""
    settings: TopicSettings
    """The choices of its owner."""


class SubscriberLag(Status, frozen=True):
    """How far one subscription is behind. An event is missing until the application is done with it."""

    topic: str
    """The topic's name."""
    node_id: str
    """The peer of the subscription."""
    name: str
    """The name that the application gave it, or empty."""
    number: int
    """Its number at its peer. 0 stands for all subscriptions of a peer that does not answer (`top`)."""
    behind_events: int
    """Events that the application has not processed yet."""
    behind_s: float
    """Age in seconds of the oldest such event at its peer, by the peer's clock."""
    stalled_s: float
    """Seconds for which the application has taken no events although some wait."""
    waiting_events: int
    """Events that wait for the application, including the one that it is processing."""
    waiting_bytes: int
    """Their size."""

    @property
    def label(self) -> str:
        """Its name, or else its number."""
        return self.name or (f"#{self.number}" if self.number else "(no answer)")


class PeerLag(Status, frozen=True):
    """How far a peer and all peers below it are behind, as its parent in the tree knows from its last report."""

    node_id: str
    """The peer's nodeId."""
    lost: bool
    """Whether its parent has lost it. Its lease is still running."""
    behind_events: int
    """Events that they have not acknowledged."""
    behind_s: float
    """Age of the oldest of them in seconds, by the parent's clock."""


class TopicStatus(Topic, frozen=True):
    """A peer's part in a topic. The fields from `parent` on are meaningful only for peers in the topic's tree."""

    role: Role
    """`root`, `forwarder` (has children) or `leaf` in the tree; else `publisher`, or `replica` (stores settings)."""
    publishers: int
    """Publishers of this process."""
    never_stable: int
    """Events that they discarded before these were stable, or published in a best-effort session that has ended."""
    events_per_s: float
    """Events that arrive per second, since the last query but over at least one second."""
    parent: PeerContact | None = None
    """The next peer towards the root."""
    children: tuple[PeerContact, ...] = ()
    """The children table."""
    subscriptions: int = 0
    """Subscriptions of this process."""
    depth: int | None = None
    """Steps to the root. None if not connected to it."""
    term: str | None = None
    """The time of one root: its counter, and the start of the root's nodeId."""
    frontier: int = 0
    """One past the last index of the term up to which all events have arrived."""
    known_end: int = 0
    """One past the last index of the term that this peer knows of."""
    stable: int = 0
    """The stable position: every live subscriber has the events below this index of the term."""
    events: int = 0
    """Known number of events of the topic, also under earlier roots. None is counted twice."""
    readmitted: int = 0
    """Events that another root admitted again, as far as this peer knows them."""
    buffered_bytes: int = 0
    """Size of the events that are buffered here."""
    lags: tuple[SubscriberLag, ...] = ()
    """The subscriptions of this process, compared with what this peer knows; furthest behind first."""
    waits_for: tuple[PeerLag, ...] = ()
    """Children that have not acknowledged all events, including lost ones whose lease is still running."""
    streams: int = 0
    """Active streams of sources here, in a topic whose sources number the events."""
    source: bool = False
    """Whether this peer numbers the events of its own publishers."""

    @property
    def in_tree(self) -> bool:
        """Whether the peer has a place in the topic's tree."""
        return self.role in IN_TREE
