"""Gossip as the recovery protocol: a peer asks any member for what it lacks."""

from collections.abc import Sequence
from random import Random

from quillcast.core.messages import Contact
from quillcast.core.ranges import Range
from quillcast.protocol.reliability.domain import Findings, Silent, StreamId


class AntiEntropy(Silent):
    """Members ask the members that they know in random order, which spreads the load."""

    def __init__(self, random: Random) -> None:
        self.random, self.others = random, tuple[Contact, ...]()

    def follow(self, others: tuple[Contact, ...]) -> None:
        """Ask these members, too."""
        self.others = others

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """Any member may hold it."""
        known = [*dict.fromkeys((*neighbours, *self.others))]
        return Findings((), self.random.sample(known, len(known)), lacks)
