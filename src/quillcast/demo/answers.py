"""What commands in other terminals ask of a running demo, and its answers."""

import msgspec

from quillcast.live.discovery.questions import PeerQuestion


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


class KillQuestion(PeerQuestion, frozen=True, tag="kill"):
    """Kill a peer: a `Strike`."""

    peer: str


class PartitionQuestion(PeerQuestion, frozen=True, tag="partition"):
    """Cut a peer off for a time: a `Strike`."""

    peer: str
    seconds: float


class SlowQuestion(PeerQuestion, frozen=True, tag="slow"):
    """Slow a peer down for a time: a `Strike`."""

    peer: str
    seconds: float


class PeersQuestion(PeerQuestion, frozen=True, tag="peers"):
    """The peers: a list of `PeerShown`."""


class EndQuestion(PeerQuestion, frozen=True, tag="end"):
    """End the demo."""


QUESTIONS: tuple[type[PeerQuestion], ...] = (KillQuestion, PartitionQuestion, SlowQuestion, PeersQuestion, EndQuestion)
