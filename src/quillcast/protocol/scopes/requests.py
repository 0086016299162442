"""A party as a sender: which scopes it asked for channels, and what their managers answered.

Receivers renegotiate at any time by answering again. What was answered last stays in use while a receiver is silent.
"""

from collections.abc import Iterator, Mapping

import msgspec

from quillcast.protocol.scopes.channels import Party, Spec
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import ChannelAnswer, ChannelRequest


class Asked(msgspec.Struct):
    """A scope that was asked."""

    party: Party
    topics: dict[bytes, None]
    serial: int = 0
    answer: ChannelAnswer | None = None


class Requests:
    """The requests of one sender."""

    def __init__(self, me: Party, asked: dict[bytes, Asked]) -> None:
        self.me, self.asked = me, asked
        self.unasked: dict[bytes, None] = dict.fromkeys(asked)  # scopes that are to be asked

    def spec(self, scope: Party, topic: bytes) -> Spec | None:
        """What a scope answered for a topic."""
        asked = self.asked.get(scope.id)
        specs = asked.answer.specs if asked is not None and asked.answer is not None else ()
        return next((spec for of, spec in specs if of == topic), None)

    def want(self, wanted: Mapping[Party, dict[bytes, None]]) -> Iterator[Send]:
        """Ask these scopes for channels for these topics, and forget the others."""
        scopes = dict[bytes, tuple[Party, dict[bytes, None]]]()  # orders may name a scope under an old address, too
        for party, topics in wanted.items():
            scopes[party.id] = party, scopes[party.id][1] | topics if party.id in scopes else topics
        for id_, (party, topics) in scopes.items():
            asked = self.asked.setdefault(id_, Asked(party, {}))
            asked.party = party
            if asked.topics != topics:
                asked.topics, asked.serial = topics, asked.serial + 1
                self.unasked[id_] = None
        for id_ in [id_ for id_ in self.asked if id_ not in scopes]:
            forgotten = self.asked.pop(id_)
            self.unasked.pop(id_, None)
            yield Send(forgotten.party, ChannelRequest(id_, self.me, forgotten.serial + 1))

    def answered(self, answer: ChannelAnswer) -> bool:
        """An answer came: is it news? One of an old manager is not obeyed."""
        asked = self.asked.get(answer.receiver)
        if asked is None:
            return False
        held = (asked.answer.epoch, asked.answer.number) if asked.answer is not None else (0, 0)
        if (answer.epoch, answer.number) <= held:
            return False
        asked.answer = answer
        return True

    def settle(self) -> Iterator[Send]:
        """Send what is to be asked."""
        unasked, self.unasked = self.unasked, {}
        for id_ in unasked:
            asked = self.asked[id_]
            yield Send(asked.party, ChannelRequest(id_, self.me, asked.serial, tuple(asked.topics)))

    def beat(self) -> None:
        """Ask again: it is the sign of life for receivers."""
        self.unasked = dict.fromkeys(self.asked)
