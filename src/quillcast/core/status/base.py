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
