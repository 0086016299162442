"""The parts of every answer of a peer about itself."""

import msgspec


class Status(msgspec.Struct, frozen=True):
    """A part of a peer's answer."""


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
    """The policy by which it carries the topic, with the name from the scope's file. Empty if the peer was not told."""
