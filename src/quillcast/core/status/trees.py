"""A topic's live tree, from the answers of its peers."""

from quillcast.core.status.base import Status, TopicScope
from quillcast.core.status.topics import SubscriberLag, TopicSettings


class TreeChannel(Status, frozen=True):
    """A channel of a scope at a peer, which bundles enter by their records."""

    node_id: str
    """The peer that it leads to; for a multicast group, the hash of the address."""
    address: str
    """Where that peer listens, or the multicast group."""
    label: str
    """The labels of the two members, as in `scope members`, with a hyphen between them."""
    filter: str
    """What its filter accepts, as text; empty if it has none."""


class TreePeer(Status, frozen=True):
    """A peer of a topic's tree that answered."""

    node_id: str
    """The peer's nodeId."""
    address: str | None
    """Where it listens, if that is known."""
    root: bool
    """Whether it is the topic's root."""
    parent: str | None
    """Its parent's nodeId."""
    children: tuple[str, ...]
    """Its children's nodeIds."""
    subscriptions: int
    """Subscriptions of its process."""
    term: str
    """Its current term."""
    frontier: int
    """One past the last index of the term up to which all events have arrived."""
    lags: tuple[SubscriberLag, ...]
    """Subscriptions of its process, compared with the root; if there are many, those furthest behind."""
    streams: int = 0
    """Active streams of sources there, in a topic whose sources number the events."""
    source: bool = False
    """Whether it numbers the events of its own publishers."""
    scope: str = ""
    """The scope that it is a member of."""
    changing: bool = False
    """Whether that scope is changing the topic's policy; meanwhile, it has the channels of both policies."""
    scopes: tuple[TopicScope, ...] = ()
    """That scope and those around it, innermost first, with their policies."""
    channels: tuple[TreeChannel, ...] = ()
    """The channels from there. If there are none, bundles go from parent to child."""


class UnresponsivePeer(Status, frozen=True):
    """A peer that should be in the tree and did not answer: what others reported about it."""

    node_id: str
    """The peer's nodeId."""
    address: str | None
    """Where it listens, if that is known."""
    lost: bool
    """Whether its parent has lost it. Its lease is still running."""
    behind_events: int | None
    """Events that it and all peers below it have not acknowledged, according to their last report."""
    behind_s: float = 0.0
    """Age of the oldest of them in seconds, by the clock of its parent."""


class TreeStatus(Status, frozen=True):
    """A topic's live tree, as far as its peers answered in time."""

    topic: str
    """The topic's name."""
    complete: bool
    """Whether the root and all peers in the tree answered, or there is no tree."""
    root: str | None
    """NodeId of the root; if there are several, the one of the latest term."""
    settings: TopicSettings | None
    """The topic's settings. None for an unknown topic."""
    events: int
    """Known number of events of the topic, also under earlier roots."""
    peers: tuple[TreePeer, ...]
    """The peers that answered."""
    unresponsive: tuple[UnresponsivePeer, ...]
    """The peers that did not answer."""

    @property
    def lags(self) -> tuple[SubscriberLag, ...]:
        """The subscriptions of all peers that answered."""
        return tuple(lag for peer in self.peers for lag in peer.lags)
