"""What peers tell of themselves: one schema for `Node.status`, `Node.tree`, the commands, `--json` and metrics.

Ids are hexadecimal. Times are in seconds unless the name ends in `_ms`, and sizes in bytes. Peers of different versions
read each other's answers: unknown fields are ignored, and a field that is added later has a default.
"""

from typing import Any, Literal

import msgspec

Role = Literal["root", "forwarder", "leaf", "publisher", "replica"]
IN_TREE: tuple[Role, ...] = ("root", "forwarder", "leaf")
"""The roles of peers that have a place in the topic's tree."""


class Status(msgspec.Struct, frozen=True):
    """A part of what a peer tells."""


# --- a peer and its links


class PeerContact(Status, frozen=True):
    """A peer, and where it listens."""

    node_id: str
    """The peer's nodeId."""
    address: str
    """`host:port`."""


class LinkStatus(PeerContact, frozen=True):
    """The link to a neighbour, as this end sees it."""

    connected: bool
    """Whether there is a connection."""
    suspected: bool
    """Whether the neighbour missed several probes."""
    round_trip_ms: float | None
    """Measured round-trip time, milliseconds. None if this end has not measured it."""
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
    """What was counted since the peer started."""

    bytes_in: int = 0
    """Bytes of bundles received."""
    bytes_out: int = 0
    """Bytes sent."""
    bundles_in: int = 0
    """Bundles received."""
    messages_in: int = 0
    """Control messages received."""
    repeats: int = 0
    """Events that came again, and were not forwarded."""
    dropped: int = 0
    """Events that came and were discarded: of an old term, of a topic without a tree here, or beyond the buffers."""
    links_failed: int = 0
    """Links that could not be opened."""
    links_broken: int = 0
    """Links that closed because they could not be written to."""
    datagrams_in: int = 0
    """Datagrams received over multicast groups."""
    datagrams_out: int = 0
    """Datagrams sent to multicast groups."""
    datagrams_unsent: int = 0
    """Datagrams, or bundles too large for them, that could not be sent to a multicast group."""
    datagrams_refused: int = 0
    """Datagrams that came without proof that a member sent them, or that made no sense."""
    crowded_out: int = 0
    """Links closed because incomplete frames took too much memory."""
    admitted: int = 0
    """Machines admitted with a token."""
    unauthenticated_refused: int = 0
    """Connections refused because too many others had not proven who they are."""
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    """Connections closed for what came on them, by reason."""


class Traffic(Status, frozen=True):
    """What the links carry."""

    links: int
    """Open links."""
    counters: Counters
    """What was counted since the start."""


class JournalStatus(Status, frozen=True):
    """The journal of a peer."""

    path: str
    """Its current file."""
    failed: str | None
    """Why it ended; None while it is written."""
    removed: int
    """How often its file was removed."""
    missed_records: int
    """Records that were not written, because there was no folder."""


# --- topics


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
    """Events that they discarded before these were stable (`retain_bytes`, `retain_s`)."""
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


class NodeStatus(Status, frozen=True):
    """What a peer is, knows and does."""

    node_id: str
    """The peer's nodeId."""
    address: str
    """Where it listens, `host:port`."""
    network: str
    """The name of its network."""
    pid: int
    """Its process."""
    uptime_s: float
    """Seconds since it started."""
    active: bool
    """Whether it has joined the network."""
    credential: str | None
    """Fingerprint of the network's credential. None in a network without one."""
    admits: bool
    """Whether it holds the credential, and so admits other machines."""
    looked_in: str
    """Where it looks for peers of this machine."""
    unauthenticated: int
    """Connections that have not yet proven who is at the other end."""
    neighbours: tuple[LinkStatus, ...]
    """Its links."""
    leaf_set: tuple[PeerContact, ...]
    """The peers with the closest nodeIds."""
    topics: tuple[TopicStatus, ...]
    """The topics that it has a part in, by name."""
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
    """Applications of this machine that use it as their own."""
    memberships: tuple["Membership", ...] = ()
    """The scopes that it is a member of, the preferred one first."""
    manages: tuple[str, ...] = ()
    """The names of the scopes whose managers it runs."""


# --- a topic's tree


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
    """The term that it is in."""
    frontier: int
    """One past the last index of the term up to which everything has arrived."""
    lags: tuple[SubscriberLag, ...]
    """Subscriptions of its process, compared with the root: of many those that are furthest behind."""
    streams: int = 0
    """Streams of sources that go on there, in a topic whose sources number the events."""
    source: bool = False
    """Whether it numbers the events of its own publishers."""
    scope: str = ""
    """The scope that it is a member of."""


class UnresponsivePeer(Status, frozen=True):
    """A peer that should be in the tree and did not answer: what others said of it."""

    node_id: str
    """The peer's nodeId."""
    address: str | None
    """Where it listens, if that is known."""
    lost: bool
    """Whether its parent lost it. Its lease is still running."""
    behind_events: int | None
    """Events that it and all peers below it have not acknowledged, by their last report."""
    behind_s: float = 0.0
    """Age of the oldest of them, seconds, by the clock of its parent."""


class TreeStatus(Status, frozen=True):
    """A topic's live tree, as far as its peers answered in time."""

    topic: str
    """The topic's name."""
    complete: bool
    """Whether the root and everybody in the tree answered, or there is no tree."""
    root: str | None
    """NodeId of the root: of several, the one of the latest term."""
    settings: TopicSettings | None
    """The topic's settings. None for an unknown topic."""
    events: int
    """Events that the topic is known to have had, under earlier roots too."""
    peers: tuple[TreePeer, ...]
    """The peers that answered."""
    unresponsive: tuple[UnresponsivePeer, ...]
    """Those that did not."""

    @property
    def lags(self) -> tuple[SubscriberLag, ...]:
        """The subscriptions of all peers that answered."""
        return tuple(lag for peer in self.peers for lag in peer.lags)


# --- the way of a bundle


class TraceWay(PeerContact, frozen=True):
    """A channel from one peer to another, and what it made of a bundle."""

    why: str
    """Why the bundle did not take it: `waits` (for credit), `came from there`, `its filter`, ... Empty: it went."""
    channel: str
    """The label of the channel, if a scope ordered it."""
    filter: str
    """The channel's filter, in words."""
    record: str
    """The routing record with which the bundle went: origin and current member per level of scopes."""


class TraceHop(PeerContact, frozen=True):
    """A peer to which a bundle came, and what it did with it."""

    sender: str | None
    """NodeId of the peer that it came from. None where it began its way: at the root, or at its source."""
    at_ms: float
    """When it came, milliseconds after its first event was published. Each peer tells that by its own clock."""
    scope: str
    """The scope that the peer is a member of."""
    record: str
    """The routing record with which it came."""
    stopped: str
    """Why it ended here: `repeat` (another copy came before), `misrouted` and more. Empty: it went on."""
    repair: bool
    """Whether it came as a repair."""
    subscriptions: int
    """Subscriptions of the peer that took it."""
    waiting: int
    """Subscriptions of the peer in which it waits for room, or behind a gap."""
    ways: tuple[TraceWay, ...]
    """The channels from here."""


class TraceStatus(Status, frozen=True):
    """The way of one bundle of a topic."""

    topic: str
    """The topic's name."""
    known: bool
    """Whether there is such a topic."""
    complete: bool
    """Whether a bundle came, and all that it went to told of it."""
    events: int
    """Events in the bundle; 0 if none came in time."""
    size_bytes: int
    """Its size."""
    term: str
    """The term of its events."""
    first: int
    """The index of its first event in that term."""
    serial: int
    """The bundle's number, which filters divide bundles by."""
    published_ns: int
    """When its first event was published, by the publisher's clock: nanoseconds since 1970 UTC."""
    publisher: PeerContact | None
    """The peer that published its first events."""
    hops: tuple[TraceHop, ...]
    """In the order of their times."""
    unresponsive: tuple[PeerContact, ...]
    """Peers of the tree that do not answer, and those to which it went and that did not tell of it."""
    not_reached: tuple[PeerContact, ...]
    """Peers of the tree that it had not reached in time."""


# --- scopes


class Membership(PeerContact, frozen=True):
    """A peer's place in a scope that it is a member of. `node_id` and `address` are those of the manager's peer."""

    scope: str
    """The scope's name."""
    in_ring: bool
    """Whether the peer has a place in the network's ring; other members reach it through those that have."""
    epoch: int
    """The epoch of the manager's latest orders; 0 before the first."""
    unresponsive: bool
    """Whether the manager gives no sign of life. The channels stay as they are."""
    obstacle: str
    """Why the peer takes no part; empty if it does."""


class ScopeMember(PeerContact, frozen=True):
    """A member or client of a scope. Of a scope, `node_id` is the scope's id."""

    label: int
    """Its number in channels and routing records."""
    relation: str
    """`member` or `client`."""
    in_ring: bool
    """Whether it is one of those that have a place in the network's ring."""
    heard_s: float
    """Seconds since its last sign of life."""
    topics: tuple[str, ...]
    """The topics that it takes part in."""
    scope: str = ""
    """The name of a member that is a scope."""
    clients: int = 0
    """The applications that use it as their peer (`quillcast.connect`). They are no members, and never forward."""
    refused: tuple[str, ...] = ()
    """What it registered for without a right to it since it or the manager began, in a sentence each."""


class ScopeClient(Status, frozen=True):
    """An application that uses a member of a scope as its peer (`quillcast.connect`)."""

    name: str
    """What it calls itself."""
    host: str
    """NodeId of the member."""
    heard_s: float
    """Seconds since the member spoke of it."""
    topics: tuple[str, ...]
    """The topics in which it publishes or subscribes."""
    receives: str = ""
    """The pattern by which it receives: `proxy` through the member, `direct` from another peer; empty: it does not."""
    publishes: str = ""
    """The pattern by which it publishes."""


class Superscope(PeerContact, frozen=True):
    """A scope that another one is a member of. `node_id` and `address` are those of the peer that runs its manager."""

    name: str
    """Its name."""
    epoch: int
    """The epoch of its orders; 0 before the first."""
    unresponsive: bool
    """Whether its manager gives no sign of life."""
    obstacle: str
    """Why it does not admit the scope; empty if it does."""


class ScopeRule(Status, frozen=True):
    """How the topics of a pattern go. The first rule that fits a topic decides."""

    pattern: str
    """The topics."""
    policy: str
    """The forwarding policy."""
    parameters: dict[str, Any]
    """Its parameters."""
    is_set: bool
    """Whether it was set while the scope was in use; otherwise it is a rule of the scope's file."""
    lets_in: tuple[str, ...] = ()
    """Its filter and bounds, in sentences."""
    recovery: str = ""
    """How members repair its topics. Empty in a rule that was set: the rules of the file say how."""
    rights: tuple[str, ...] = ()
    """Which members may publish and subscribe, in sentences; none if all may."""


class ScopeChannel(Status, frozen=True):
    """A channel between two members."""

    source: str
    """NodeId of the member that forwards."""
    target: str
    """NodeId of the member that it forwards to."""


class ScopeTopic(Status, frozen=True):
    """A topic in a scope."""

    name: str
    """Its name."""
    topic_id: str
    """The hash of its name and creator."""
    rule: ScopeRule | None
    """The rule that decides. None: the scope does not carry the topic."""
    publishers: int
    """Members that publish, as they registered."""
    subscribers: int
    """Members that subscribe."""
    entries: tuple[str, ...]
    """NodeIds of the entry point and its stand-bys."""
    channels: tuple[ScopeChannel, ...]
    """The channels between members."""
    waits_for: str
    """Why the scope does not carry it yet; empty if it does."""
    change: str = ""
    """How far a change of its policy has come, or why it ended; empty without one."""
    recovery: str = "tree"
    """How members repair it, as the scope's file says."""
    root_scope: str = ""
    """The scope that the topic is rooted at; empty: the overlay."""


class SenderRate(Status, frozen=True):
    """What a scope and a sender agreed on: the most that may enter from it."""

    topic: str
    """The topic; empty: all topics together."""
    bytes_per_s: int | None
    """Bytes per second. None: no limit."""
    bundles_per_s: int | None
    """Bundles per second. None: no limit."""


class ScopeSender(PeerContact, frozen=True):
    """A peer or scope that asked for channels into a scope. Of a scope, `node_id` is the scope's id."""

    scope: str
    """The scope's name; empty if it is a peer."""
    topics: tuple[str, ...]
    """The topics in which it sends."""
    rates: tuple[SenderRate, ...]
    """What it has to keep to."""


class ScopeStatus(PeerContact, frozen=True):
    """A scope, as its manager knows it. `node_id` and `address` are those of the peer that runs the manager."""

    name: str
    """The scope's name."""
    scope_id: str
    """The hash of its name."""
    file: str
    """The file that describes it."""
    epoch: int
    """How many times the manager has begun."""
    lease_s: float
    """A member that is silent for so long is removed."""
    members: tuple[ScopeMember, ...]
    """Its members and clients, in the order in which they came."""
    rules: tuple[ScopeRule, ...]
    """How topics go: the rules that were set, and then those of the file."""
    topics: tuple[ScopeTopic, ...]
    """The topics that members take part in, by name."""
    members_max: int | None = None
    """The most members. None: no limit."""
    clients: tuple[ScopeClient, ...] = ()
    """The clients of its members."""
    clients_max: int | None = None
    """The most clients. None: no limit."""
    about: tuple[str, ...] = ()
    """Who is admitted, and the bounds of the whole scope, in sentences."""
    superscopes: tuple[Superscope, ...] = ()
    """The scopes that it is a member of, the preferred one first."""
    senders: tuple[ScopeSender, ...] = ()
    """Who sends into it over channels of its own, in the order in which they asked."""


class PolicyChange(Status, frozen=True):
    """What `scope policy set` or `unset` changed."""

    scope: str
    """The scope's name."""
    pattern: str
    """The topics that it was asked for."""
    rules: tuple[ScopeRule, ...]
    """All rules as they are now."""
    topics: tuple["TopicPolicy", ...]
    """The topics in use that another rule decides for now."""


class TopicPolicy(Status, frozen=True):
    """The policy of a topic before and after a change."""

    name: str
    """The topic's name."""
    before: ScopeRule
    """The rule until now."""
    after: ScopeRule
    """The rule from now on."""


# --- what the peers of one machine do together (`topic list`, `topic show`, `top`)


class TopicSummary(Topic, frozen=True):
    """What the peers of one machine know of a topic together."""

    root: str | None
    """NodeId of the root, if it is known."""
    events: int
    """Events that the topic is known to have had."""
    peers: int
    """Peers of this machine in its tree."""
    subscriptions: int
    """Their subscriptions."""
    publishers: int
    """Their publishers."""


class TopicActivity(TopicSummary, frozen=True):
    """What happened in a topic between two looks at the peers of a machine."""

    events_per_s: float
    """Events per second at the peer where most arrived."""
    unstable: int | None
    """Events that are not stable yet. None if the root is elsewhere, or the topic is not reliable."""


class PeerActivity(Status, frozen=True):
    """What a peer did between two looks."""

    node_id: str
    """The peer's nodeId."""
    address: str
    """Where it listens."""
    pid: int
    """Its process."""
    uptime_s: float
    """Seconds since it started."""
    active: bool
    """Whether it has joined the network."""
    cpu_share: float
    """CPU time per time; 1 is one core."""
    memory_bytes: int
    """Resident memory of its process."""
    neighbours: int
    """Its links."""
    suspected: int
    """Neighbours that are suspected."""
    topics: int
    """Topics that it has a part in."""
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
    """A link of one of several peers."""

    node_id: str
    """The peer at this end."""
    link: LinkStatus
    """The link, with the neighbour at the other end."""


class Activity(Status, frozen=True):
    """What the peers of one machine and network did between two looks."""

    network: str
    """The name of the network."""
    seconds: float
    """Time between the looks."""
    peers: tuple[PeerActivity, ...]
    """The peers that answered."""
    topics: tuple[TopicActivity, ...]
    """Their topics, by name."""
    subscribers: tuple[SubscriberLag, ...]
    """Their subscriptions, the furthest behind first."""
    links: tuple[PeerLink, ...]
    """Links that are down, suspected, or have a queue."""
    unresponsive: tuple[str, ...]
    """NodeIds of peers that do not answer."""
