"""Recovery protocols: whom a member of a recovery domain asks first for what it lacks.

`Recovery` does the rest, whatever the protocol: it asks one after the other as they refuse, and those above the domain
only for what nobody inside has.
"""

from collections.abc import Sequence
from random import Random
from typing import Protocol

from quillcast.core.messages import Contact


class RecoveryProtocol(Protocol):
    """How the members of a domain repair among themselves."""

    def order(self, members: Sequence[Contact]) -> list[Contact]:
        """All these members, those to ask first in front. They come in the tree's order."""
        ...


class AlongTree:
    """Ask the peer upstream first, as RMTP does. What is missing below one peer comes there once."""

    def order(self, members: Sequence[Contact]) -> list[Contact]:
        """All these members, as they are."""
        return list(members)


class AntiEntropy:
    """Ask members in random order, as in gossip. The load is spread, and no member has to have more than others."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def order(self, members: Sequence[Contact]) -> list[Contact]:
        """All these members, at random."""
        return self.random.sample(members, len(members))
