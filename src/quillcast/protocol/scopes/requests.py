"""A party as a sender: the scopes that it asked for channels, and their managers' answers.

Both sides can renegotiate at any time: a receiver answers again, and a sender asks again when its topics or rates
change. The last answer stays in use while a receiver is silent.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from quillcast.protocol.scopes.channels import Ask, Party, Rate, Spec
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import INVITATIONS_MAX, ChannelAnswer, ChannelRequest


class ChannelWish(NamedTuple):
    """A request to a scope: channels for these topics, and the most that will be sent over them."""

    topics: dict[bytes, None]
    rates: dict[Rate, None]
    invitations: dict[bytes, None]
    """They show which owners of the scope want them."""

    def add(self, topic: bytes, rates: Iterable[Rate], invitation: bytes) -> None:
        """Add a channel with these rates."""
        self.topics[topic] = None
        self.invitations[invitation] = None
        self.rates.update(dict.fromkeys(rates))


class Asked(msgspec.Struct):
    """A scope that was asked for channels."""

    party: Party
    topics: dict[bytes, None]
    serial: int = 0
    answer: ChannelAnswer | None = None
    rates: tuple[Rate, ...] = ()
    invitations: tuple[bytes, ...] = ()


class Requests:
    """The requests of one sender."""

    def __init__(self, me: Party, asked: dict[bytes, Asked]) -> None:
        self.me, self.asked = me, asked
        self.unasked: dict[bytes, None] = dict.fromkeys(asked)  # scopes with a pending request

    def spec(self, ask: Ask, topic: bytes) -> Spec | None:
        """What a scope answered for a topic."""
        asked = self.asked.get(ask.scope.id)
        specs = asked.answer.specs if asked is not None and asked.answer is not None else ()
        return next((spec for of, spec in specs if of == topic), None)

    def want(self, wanted: Mapping[Party, ChannelWish]) -> Iterator[Send]:
        """Ask these scopes for these channels, and forget the others."""
        scopes = dict[bytes, tuple[Party, ChannelWish]]()  # orders may also name a scope under an old address
        for party, more in wanted.items():
            _, known = scopes.get(party.id, (party, ChannelWish({}, {}, {})))
            topics, invitations = known.topics | more.topics, known.invitations | more.invitations
            scopes[party.id] = party, ChannelWish(topics, known.rates | more.rates, invitations)
        for id_, (party, (topics, rates, invitations)) in scopes.items():
            asked, shown = self.asked.setdefault(id_, Asked(party, {})), (*invitations,)[:INVITATIONS_MAX]
            asked.party = party
            if (asked.topics, asked.rates, asked.invitations) != (topics, (*rates,), shown):
                asked.topics, asked.rates, asked.invitations = topics, (*rates,), shown
                asked.serial += 1
                self.unasked[id_] = None
        for id_ in [id_ for id_ in self.asked if id_ not in scopes]:
            former = self.asked.pop(id_)
            self.unasked.pop(id_, None)
            yield Send(former.party, ChannelRequest(id_, self.me, former.serial + 1))

    def answered(self, answer: ChannelAnswer) -> bool:
        """An answer came: is it news? An old manager's answer does not count."""
        asked = self.asked.get(answer.receiver)
        if asked is None:
            return False
        held = (asked.answer.epoch, asked.answer.number) if asked.answer is not None else (0, 0)
        if (answer.epoch, answer.number) <= held:
            return False
        asked.answer = answer
        return True

    def settle(self) -> Iterator[Send]:
        """Send the pending requests."""
        unasked, self.unasked = self.unasked, {}
        for id_ in unasked:
            asked = self.asked[id_]
            topics = tuple(asked.topics)
            yield Send(asked.party, ChannelRequest(id_, self.me, asked.serial, topics, asked.rates, asked.invitations))

    def beat(self) -> None:
        """Ask again: this is the keep-alive for receivers."""
        self.unasked = dict.fromkeys(self.asked)
