"""A scope as a receiver: who asked for channels into it, and what they were answered."""

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from quillcast.protocol.scopes.channels import Spec
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import ChannelAnswer, ChannelRequest
from quillcast.protocol.scopes.state import ScopeState, Sender


class Receiver:
    """The senders to one scope. An answer is told again whenever it changes (renegotiation)."""

    def __init__(self, state: ScopeState, rate: int) -> None:
        """At most `rate` bytes per second may enter through one sender; 0: no limit."""
        self.state, self.rate = state, rate
        self.answers: dict[bytes, ChannelAnswer] = {}  # by sender
        self.heard_at: dict[bytes, float] = {}
        self.numbers = count(1)

    def begin(self, now: float) -> None:
        """All leases begin anew."""
        self.heard_at = dict.fromkeys(self.state.senders, now)

    def asked(self, message: ChannelRequest, now: float) -> tuple[bytes, ...]:
        """A sender asked: the topics in which that is new."""
        id_, old = message.sender.id, self.state.senders.get(message.sender.id)
        if not message.topics:
            return self.forget(id_)
        self.heard_at[id_] = now
        new = Sender(message.sender, message.serial, message.topics, message.rate)
        if new == old:
            return ()
        self.state.senders[id_] = new
        self.answers.pop(id_, None)
        return tuple(dict.fromkeys((*new.topics, *(old.topics if old is not None else ()))))

    def forget(self, id_: bytes) -> tuple[bytes, ...]:
        """A sender is gone: the topics that it sent in."""
        self.answers.pop(id_, None)
        self.heard_at.pop(id_, None)
        sender = self.state.senders.pop(id_, None)
        return sender.topics if sender is not None else ()

    def of(self, topic: bytes) -> list[Sender]:
        """The senders in a topic."""
        return [sender for sender in self.state.senders.values() if topic in sender.topics]

    def repeat(self, id_: bytes) -> Iterator[Send]:
        """A sender that asks again may have missed the answer."""
        if id_ in self.answers:
            yield Send(self.state.senders[id_].party, self.answers[id_])

    def silent(self, since: float) -> list[bytes]:
        """Who has not asked since then."""
        return [id_ for id_, at in self.heard_at.items() if at < since]

    def settle(self, composed: Iterable[bytes], specification: Callable[[bytes], Spec]) -> Iterator[Send]:
        """Answer the senders of these topics for which something changed."""
        topics = dict.fromkeys(composed)
        for id_, sender in self.state.senders.items():
            old = self.answers.get(id_)
            if old is None or not topics.keys().isdisjoint(sender.topics):
                answer = self._answer(sender, specification)
                if old is None or (old.specs, old.rate) != (answer.specs, answer.rate):
                    self.answers[id_] = answer
                    yield Send(sender.party, answer)

    def _answer(self, sender: Sender, specification: Callable[[bytes], Spec]) -> ChannelAnswer:
        specs = tuple((topic, specification(topic)) for topic in sender.topics if topic in self.state.topics)
        rate = min(filter(None, (sender.rate, self.rate)), default=0)
        return ChannelAnswer(self.state.scope.id, self.state.epoch, next(self.numbers), sender.serial, specs, rate)
