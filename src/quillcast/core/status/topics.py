"""Topics, and a peer's part in them."""

from typing import Literal

from quillcast.core.status.base import PeerContact, Status

Role = Literal["root", "forwarder", "leaf", "publisher", "replica"]
IN_TREE: tuple[Role, ...] = ("root", "forwarder", "leaf")
"""The roles of peers that have a place in the topic's tree."""


class TopicSettings(Status, frozen=True):
    """What a topic's owner chose, and who may use the topic."""

    delivery: str
    """`reliable` or `best_effort`."""
    order: str
    """`publisher` or `none`."""
    slow: str
    """What happens if a subscriber cannot keep up: `cut` or `wait`."""
    event_bytes_max: int
    """Largest payload of an event, bytes."""
    partition: str
    """What a root does that cannot reach most replicas: `go_on` or `wait`."""
    admission: str = "root"
    """Who numbers the events: the `root`, or each publishing peer its own (`source`)."""
    root_scope: str = ""
    """The scope that the topic is rooted at; empty: the overlay."""
    owner: str | None = None
    """The owner's principal. None if nobody owns the topic."""
    access: tuple[str, ...] = ()
    """The access list. Empty: everybody may publish and subscribe."""
    session: int = 0
    """The number of the session that has these settings."""
    session_state: str = "active"
    """`active`; `prepare` or `flushing` while another session follows; `closed` while no root admits events."""

    @property
    def reliable(self) -> bool:
        """Whether every subscriber is owed every event."""
        return self.delivery == "reliable"


class Topic(Status, frozen=True):
    """A topic, and its settings."""

    name: str
    """Its name, with its creator's if it has one."""
    topic_id: str
    """The hash of its name and creator."""
    settings: TopicSettings
    """What its owner chose."""


class SubscriberLag(Status, frozen=True):
    """How far one subscription is behind. An event is lacking until the application is done with it."""

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
    """Age of the oldest of them that its peer has, seconds, by the peer's clock."""
    stalled_s: float
    """For how long the application has taken nothing although events wait, seconds."""
    waiting_events: int
    """Events that wait for the application, and the one that it is working on."""
    waiting_bytes: int
    """Their size."""

    @property
    def label(self) -> str:
        """Its name, or else its number."""
        return self.name or (f"#{self.number}" if self.number else "(no answer)")


class PeerLag(Status, frozen=True):
    """How far a peer is behind, with all below it, as its parent in the tree knows from its last report."""

    node_id: str
    """The peer's nodeId."""
    lost: bool
    """Whether its parent lost it. Its lease is still running."""
    behind_events: int
    """Events that they have not acknowledged."""
    behind_s: float
    """Age of the oldest of them, seconds, by the parent's clock."""


class TopicStatus(Topic, frozen=True):
    """A peer's part in a topic. The fields from `parent` on have a meaning only for peers in the topic's tree."""

    role: Role
    """`root`, `forwarder` (has children) or `leaf` in the tree; else `publisher`, or `replica`: keeps the settings."""
    publishers: int
    """Publishers of this process."""
    never_stable: int
    """Events that they discarded before these were stable, or published in a best-effort session that is over."""
    events_per_s: float
    """Events that arrive per second, over the time since the last query but one second at least."""
    parent: PeerContact | None = None
    """The next peer towards the root."""
    children: tuple[PeerContact, ...] = ()
    """The children table."""
    subscriptions: int = 0
    """Subscriptions of this process."""
    depth: int | None = None
    """Steps to the root. None without a way there."""
    term: str | None = None
    """The time of one root: its counter, and the start of the root's nodeId."""
    frontier: int = 0
    """One past the last index of the term up to which everything has arrived."""
    known_end: int = 0
    """One past the last index of the term that this peer knows of."""
    stable: int = 0
    """The stable position: every live subscriber has the events below this index of the term."""
    events: int = 0
    """Events that the topic is known to have had, under earlier roots too. None is counted twice."""
    readmitted: int = 0
    """Events that another root admitted again, as far as this peer knows which they are."""
    buffered_bytes: int = 0
    """Size of the events that are buffered here."""
    lags: tuple[SubscriberLag, ...] = ()
    """The subscriptions of this process, compared with what this peer knows; the furthest behind first."""
    waits_for: tuple[PeerLag, ...] = ()
    """Children, and lost ones whose lease is still running, that have not acknowledged all events."""
    streams: int = 0
    """Streams of sources that go on here, in a topic whose sources number the events."""
    source: bool = False
    """Whether this peer numbers the events of its own publishers."""

    @property
    def in_tree(self) -> bool:
        """Whether the peer has a place in the topic's tree."""
        return self.role in IN_TREE
