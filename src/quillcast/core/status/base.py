"""What every answer of a peer about itself is made of."""

import msgspec


class Status(msgspec.Struct, frozen=True):
    """A part of what a peer tells."""


class PeerContact(Status, frozen=True):
    """A peer, and where it listens."""

    node_id: str
    """The peer's nodeId."""
    address: str
    """`host:port`."""


class TopicScope(Status, frozen=True):
    """A scope that carries a topic."""

    name: str
    """The scope's name."""
    policy: str
    """The policy by which it carries the topic, as its file calls it. Empty if the peer was not told."""
