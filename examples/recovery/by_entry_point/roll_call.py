"""A recovery protocol: a member asks all others that it knows for missing events, and those that hold them answer."""

from collections.abc import Sequence

import msgspec

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet, difference, intersection
from quillcast.protocol.reliability.domain import AgentContext, Findings, KnownHolders, Silent, StreamId, held_by
from quillcast.protocol.reliability.messages import AgentWord

RANGES_MAX = 64  # named in one message


class Question(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Who holds some of these?"""

    topic: bytes
    term: Term
    ranges: tuple[Range, ...]


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """I hold these."""

    topic: bytes
    term: Term
    ranges: tuple[Range, ...]


_decoder = msgspec.msgpack.Decoder(Question | Answer)


class RollCall(Silent):
    """One member's agent."""

    def __init__(self, context: AgentContext) -> None:
        self.host, self.times, self.scope, self.bottom = context
        self.others: tuple[Contact, ...] = ()
        self.known = KnownHolders()
        self.asked: dict[StreamId, RangeSet] = {}  # positions that the others were asked for
        self.asked_at: dict[StreamId, float] = {}

    def follow(self, others: tuple[Contact, ...]) -> None:
        """Set the members to ask."""
        self.others = others

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """Ask for newly missing positions. Those that nobody names for a while are missing in the whole domain."""
        now, holders = self.host.now(), self.known.holders(stream, lacks)
        asked = self.asked.setdefault(stream, RangeSet())
        unknown = difference(lacks, asked)[:RANGES_MAX]
        if unknown:
            asked.update(unknown)
            self.asked_at[stream] = now
            self._say_to_all(Question(*stream, tuple(unknown)))
        patience_s = self.times.gap_s * (1 if at_border else 2)
        if self.others and now - self.asked_at.get(stream, now) < patience_s:
            return Findings(holders, (), ())
        return Findings(holders, neighbours, difference(intersection(lacks, asked), held_by(holders)))

    def filled(self, stream: StreamId) -> None:
        """Forget earlier questions."""
        self.known.forget(stream)
        self.asked.pop(stream, None)
        self.asked_at.pop(stream, None)

    def received(self, sender: Contact, message: Message) -> None:
        """Answer a question, or record an answer."""
        assert isinstance(message, AgentWord)
        word = _decoder.decode(message.body)
        stream = StreamId(word.topic, word.term)
        if isinstance(word, Answer):
            self.known.note(stream, sender, intersection(self.bottom.lacks(stream), RangeSet(word.ranges)))
            self.bottom.found(stream)
        elif held := self.bottom.holds(stream, [*word.ranges][:RANGES_MAX]):
            self._say(sender, Answer(*stream, tuple(held[:RANGES_MAX])))

    def _say_to_all(self, word: Question) -> None:
        for other in self.others:
            self._say(other, word)

    def _say(self, to: Contact, word: Question | Answer) -> None:
        self.host.send(to, AgentWord(self.scope, "roll_call", msgspec.msgpack.encode(word)))
