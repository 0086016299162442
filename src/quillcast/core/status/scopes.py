"""Scopes, as their members and managers know them."""

from typing import Any

from quillcast.core.status.base import PeerContact, Status


class Membership(PeerContact, frozen=True):
    """A peer's place in a scope that it is a member of. `node_id` and `address` are those of the manager's peer."""

    scope: str
    """The scope's name."""
    in_ring: bool
    """Whether the peer has a place in the network's ring; other members reach the ring through those that have."""
    epoch: int
    """The epoch of the manager's latest orders; 0 before the first."""
    unresponsive: bool
    """Whether the manager is silent. The channels stay as they are."""
    obstacle: str
    """Why the peer does not take part; empty if it does."""


class ScopeMember(PeerContact, frozen=True):
    """A member of a scope. If the member is a scope, `node_id` is the scope's id."""

    label: int
    """Its number in channels and routing records."""
    in_ring: bool
    """Whether it has a place in the network's ring."""
    heard_s: float
    """Seconds since it was last heard from."""
    topics: tuple[str, ...]
    """The topics in which it takes part."""
    scope: str = ""
    """The member's name, if it is a scope."""
    clients: int = 0
    """The applications that use it as their peer (`quillcast.connect`). They are not members, and never forward."""
    refused: tuple[str, ...] = ()
    """Registrations that were refused for lack of rights since it or the manager started, one sentence each."""


class ScopeClient(Status, frozen=True):
    """An application that uses a member of a scope as its peer (`quillcast.connect`)."""

    name: str
    """The name that it gave itself."""
    host: str
    """NodeId of the member."""
    heard_s: float
    """Seconds since the member last reported it."""
    topics: tuple[str, ...]
    """The topics in which it publishes or subscribes."""
    receives: str = ""
    """How it receives: `proxy` through the member, `direct` from another peer; empty if it does not."""
    publishes: str = ""
    """How it publishes, likewise."""


class Superscope(PeerContact, frozen=True):
    """A scope of which another one is a member. `node_id` and `address` are those of the peer that runs its manager."""

    name: str
    """Its name."""
    epoch: int
    """The epoch of its orders; 0 before the first."""
    unresponsive: bool
    """Whether its manager is silent."""
    obstacle: str
    """Why it does not admit the scope; empty if it does."""


class ScopeRule(Status, frozen=True):
    """The rule for the topics that match a pattern. The first rule that matches a topic applies."""

    pattern: str
    """The pattern of the topics."""
    policy: str
    """The forwarding policy."""
    parameters: dict[str, Any]
    """Its parameters."""
    is_set: bool
    """Whether it was set while the scope was in use; otherwise it is a rule of the scope's file."""
    lets_in: tuple[str, ...] = ()
    """Its filter and limits, in sentences."""
    recovery: str = ""
    """How members repair its topics. Empty in a rule that was set: the file's rules apply."""
    rights: tuple[str, ...] = ()
    """Which members may publish and subscribe, in sentences; empty if all may."""


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
    """The rule that applies. None if the scope does not carry the topic."""
    publishers: int
    """Registered members that publish."""
    subscribers: int
    """Registered members that subscribe."""
    entries: tuple[str, ...]
    """NodeIds of the entry point and its stand-bys."""
    channels: tuple[ScopeChannel, ...]
    """The channels between members."""
    waits_for: str
    """Why the scope does not carry it yet; empty if it does."""
    change: str = ""
    """The progress of a change of its policy, or why that ended; empty without one."""
    recovery: str = "tree"
    """How members repair it, according to the scope's file."""
    root_scope: str = ""
    """The scope in which the topic is rooted; empty for the overlay."""
    stopped: str = ""
    """Why its policy was stopped, and what to do; empty if it was not."""


class SenderRate(Status, frozen=True):
    """The limits that a scope and a sender agreed on for bundles from that sender."""

    topic: str
    """The topic; empty for all topics together."""
    bytes_per_s: int | None
    """Bytes per second. None: no limit."""
    bundles_per_s: int | None
    """Bundles per second. None: no limit."""


class ScopeSender(PeerContact, frozen=True):
    """A peer or scope that asked for channels into a scope. If it is a scope, `node_id` is the scope's id."""

    scope: str
    """The scope's name; empty if it is a peer."""
    topics: tuple[str, ...]
    """The topics that it sends."""
    rates: tuple[SenderRate, ...]
    """The limits that it must keep."""


class ScopeStatus(PeerContact, frozen=True):
    """A scope, as its manager knows it. `node_id` and `address` are those of the peer that runs the manager."""

    name: str
    """The scope's name."""
    scope_id: str
    """The hash of its name."""
    file: str
    """The file that describes it."""
    epoch: int
    """How many times the manager has started."""
    lease_s: float
    """A member is removed when it has been silent for this long."""
    members: tuple[ScopeMember, ...]
    """Its members, in the order in which they entered."""
    rules: tuple[ScopeRule, ...]
    """Its rules: those that were set, then those of the file."""
    topics: tuple[ScopeTopic, ...]
    """The topics in which members take part, by name."""
    members_max: int | None = None
    """The maximum number of members. None: no limit."""
    clients: tuple[ScopeClient, ...] = ()
    """The clients of its members."""
    clients_max: int | None = None
    """The maximum number of clients. None: no limit."""
    about: tuple[str, ...] = ()
    """Who is admitted, and the limits of the whole scope, in sentences."""
    superscopes: tuple[Superscope, ...] = ()
    """The scopes that it is a member of, preferred one first."""
    senders: tuple[ScopeSender, ...] = ()
    """Peers and scopes with their own channels into it, in the order of their requests."""
    withheld: int = 0
    """Number of topics shown only to members: those with a root scope or an access list for subscribers."""
    challenge: str = ""
    """What an operator's next change from another machine must contain; new after each change."""


class ScopeMemory(PeerContact, frozen=True):
    """What a member last knew of a scope. `node_id` and `address` are those of the peer that ran the manager."""

    name: str
    """The scope's name."""
    epoch: int
    """The epoch of the manager's latest orders; 0 if there were none."""
    heard_s: float
    """Seconds since the member last heard from the manager."""
    ring: tuple[PeerContact, ...]
    """The members with a place in the network's ring."""
    told_by: PeerContact
    """The member that answered."""


class ScopeView(Status, frozen=True):
    """What a peer found out about a scope."""

    status: ScopeStatus | None = None
    """The scope as its manager knows it. None if the manager did not answer."""
    memory: ScopeMemory | None = None
    """If the manager did not answer, what a member last knew; None if no member answered."""
    problem: str = ""
    """Why there is no answer, in a sentence."""
    unknown: bool = False
    """Whether no peer knows the scope."""


class PolicyChange(Status, frozen=True):
    """The result of `scope policy set` or `unset`."""

    scope: str
    """The scope's name."""
    pattern: str
    """The given pattern of topics."""
    rules: tuple[ScopeRule, ...]
    """All rules as they are now."""
    topics: tuple["TopicPolicy", ...]
    """The topics in use to which another rule now applies."""


class ScopeReload(Status, frozen=True):
    """The result of `scope reload`: what differs since the manager read the scope's file before."""

    scope: str
    """The scope's name."""
    file: str
    """The file."""
    before: tuple[str, ...]
    """What no longer holds, in sentences."""
    now: tuple[str, ...]
    """What holds now, in sentences."""
    topics: tuple["TopicPolicy", ...]
    """The topics in use with another policy."""
    dismissed: tuple[str, ...]
    """The members that are no longer admitted: nodeIds, and names of scopes."""


class TopicPolicy(Status, frozen=True):
    """The policy of a topic before and after a change."""

    name: str
    """The topic's name."""
    before: ScopeRule | None
    """The rule until now; None: the scope did not carry the topic."""
    after: ScopeRule | None
    """The rule from now on."""
