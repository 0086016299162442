"""What each member of a scope is ordered, and what it was told of that."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

import msgspec

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import superimposed
from quillcast.protocol.scopes.composition import Part
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import GroupKey, Orders, Succession
from quillcast.protocol.scopes.state import ScopeState


class OrderBook:
    """The orders of one scope: a part per member and topic. Orders of one epoch have numbers that only grow."""

    def __init__(self, state: ScopeState) -> None:
        self.state = state
        self.succession: Succession | None = None  # that the manager runs here
        self.parts: dict[int, dict[bytes, Part]] = {label: {} for label in state.members}
        self.told: dict[int, Orders] = {}
        self.owed: dict[int, None] = dict.fromkeys(state.members)  # members that are to be told
        self.numbers = count(1)

    def owe(self, labels: Iterable[int]) -> None:
        """Tell these members their orders; they may be new."""
        for label in labels:
            self.parts.setdefault(label, {})
            self.owed[label] = None

    def remove(self, label: int) -> None:
        """A member is gone."""
        for held in (self.told, self.owed, self.parts):
            held.pop(label, None)

    def owe_keys(self) -> None:
        """Tell the members of multicast groups the keys, which are others now."""
        self.owe([label for label, told in self.told.items() if told.groups])

    def update(self, topic: bytes, parts: Mapping[int, Part]) -> bool:
        """These are all parts in a topic from now on: did that change anything?"""
        changed = [label for label, held in self.parts.items() if held.get(topic) != parts.get(label)]
        for label in changed:
            self.owed[label] = None
            if label in parts:
                self.parts[label][topic] = parts[label]
            else:
                del self.parts[label][topic]
        return bool(changed)

    def numbers_in(self, topic: bytes) -> dict[int, int]:
        """The members that have a part in a topic, with the number of what each was told last."""
        return {label: self.told[label].number for label, parts in self.parts.items() if topic in parts}

    def settle(self, above: tuple[bytes, ...], ring: tuple[Contact, ...]) -> Iterator[Send]:
        """Tell the members that are to be told."""
        owed, self.owed = self.owed, {}
        return (self._tell(label, above, ring) for label in owed)

    def repeat(self, label: int, held: tuple[int, int]) -> Iterator[Send]:
        """A member has the orders of this epoch and number: tell it those that it was told, if they are others."""
        told = self.told[label]
        if held != (told.epoch, told.number):
            yield Send(self.state.members[label].party, told)

    def _tell(self, label: int, above: tuple[bytes, ...], ring: tuple[Contact, ...]) -> Send:
        member, told, parts = self.state.members[label], self.told.get(label), self.parts[label].values()
        channels = superimposed(channel for part in parts for channel in part.channels)
        standings = tuple(part.standing for part in parts)
        number = told.number if told is not None else 0
        mechanisms = dict.fromkeys(mechanism for part in parts for mechanism in part.mechanisms)
        groups = tuple(GroupKey(mechanism, self.state.key(mechanism)) for mechanism in mechanisms)
        scope, epoch = self.state.scope, self.state.epoch
        orders = Orders(
            scope, epoch, number, member.serial, label, above, standings, channels, ring, groups, self.succession
        )
        if orders != told:
            orders = self.told[label] = msgspec.structs.replace(orders, number=next(self.numbers))
        return Send(member.party, orders)
