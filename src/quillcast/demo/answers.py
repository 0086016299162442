"""The answers of a running demo to commands from other terminals."""

import msgspec


class Strike(msgspec.Struct, frozen=True):
    """A peer was killed, cut off or slowed down: the damage, and when it was repaired."""

    text: str
    """The fault and its victim."""
    children: int
    """Children that lost their parent."""
    trees: int
    """The number of trees in which that happened."""
    repaired_s: float | None
    """Seconds until all of them had a parent again. None if nothing broke, or it was not repaired in time."""
    how: str
    """Their new parents."""


class PeerShown(msgspec.Struct, frozen=True):
    """A peer of the demo."""

    name: str
    node_id: str
    role: str
    """In the busiest topic: `root`, `forwarder`, `subscriber` or `peer`."""
    publishes: bool
    children: int
    """In all topics."""
    state: str
    """`healthy`, `killed`, `cut off` or `slow`."""
