"""Scopes: what their members and managers know."""

from typing import Any

from quillcast.core.status.base import PeerContact, Status


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
    """A member of a scope. Of a scope, `node_id` is the scope's id."""

    label: int
    """Its number in channels and routing records."""
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
    stopped: str = ""
    """Why its policy was stopped, and what to do; empty if it was not."""


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
    withheld: int = 0
    """Topics that only members of the scope are shown: those with a root scope or an access list for subscribers."""
    challenge: str = ""
    """What an operator's next change from another machine has to name; another one after each change."""


class ScopeMemory(PeerContact, frozen=True):
    """What a member last knew of a scope. `node_id` and `address` are those of the peer that ran the manager."""

    name: str
    """The scope's name."""
    epoch: int
    """The epoch of the manager's latest orders; 0 if there were none."""
    heard_s: float
    """Seconds since the member heard of the manager."""
    ring: tuple[PeerContact, ...]
    """The members with a place in the network's ring."""
    told_by: PeerContact
    """The member."""


class ScopeView(Status, frozen=True):
    """What a peer found out about a scope."""

    status: ScopeStatus | None = None
    """The scope as its manager knows it. None: it did not answer."""
    memory: ScopeMemory | None = None
    """Without an answer of the manager, what a member last knew; None if none could be asked."""
    problem: str = ""
    """Why there is no answer, in a sentence."""
    unknown: bool = False
    """Does nobody know such a scope?"""


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
