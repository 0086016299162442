"""A scope as a receiver: the senders that asked for channels into it, and the answers."""

from collections.abc import Callable, Iterable, Iterator
from itertools import count

from quillcast.protocol.scopes.channels import Party, Rate, Spec
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import ChannelAnswer, ChannelRequest
from quillcast.protocol.scopes.state import ScopeState, Sender

EARLY_MAX = 64  # requests that are kept until an owner's orders come; a guess


class Receiver:
    """The senders to one scope. An answer is sent again whenever it changes (renegotiation)."""

    def __init__(self, state: ScopeState) -> None:
        self.state = state
        self.answers: dict[bytes, ChannelAnswer] = {}  # by sender
        self.heard_at: dict[bytes, float] = {}
        self.numbers = count(1)
        self.early: dict[bytes, ChannelRequest] = {}  # by sender: the last request, if no owner has invited it yet

    def begin(self, now: float) -> None:
        """All leases start again."""
        self.heard_at = dict.fromkeys(self.state.senders, now)

    def asked(self, message: ChannelRequest, now: float) -> tuple[bytes, ...]:
        """A sender asked for topics: those in which that is new."""
        id_, old = message.sender.id, self.state.senders.get(message.sender.id)
        self.heard_at[id_] = now
        self.early.pop(id_, None)  # an older one must not replace this one later
        new = Sender(message.sender, message.serial, message.topics, message.rates)
        if new == old:
            return ()
        self.state.keep_sender(new)
        self.answers.pop(id_, None)
        return tuple(dict.fromkeys((*new.topics, *(old.topics if old is not None else ()))))

    def is_known(self, party: Party) -> bool:
        """Whether a sender asked, or a request of it waits, and its manager still runs at the same peer."""
        sender, early = self.state.senders.get(party.id), self.early.get(party.id)
        known = sender.party if sender is not None else early.sender if early is not None else None
        return known is not None and known.contact.node_id == party.contact.node_id

    def forget(self, id_: bytes) -> tuple[bytes, ...]:
        """A sender is gone: the topics in which it sent."""
        self.answers.pop(id_, None)
        self.early.pop(id_, None)
        self.heard_at.pop(id_, None)
        sender = self.state.forget_sender(id_)
        return sender.topics if sender is not None else ()

    def rates(self) -> dict[bytes, tuple[Rate, ...]]:
        """By sender: the most that it will send."""
        return {id_: sender.rates for id_, sender in self.state.senders.items()}

    def keep_early(self, message: ChannelRequest) -> None:
        """A request is not invited. The owner's orders may follow; if too many wait for that, the first one goes."""
        self.early.pop(message.sender.id, None)
        self.early[message.sender.id] = message
        if len(self.early) > EARLY_MAX:
            del self.early[next(iter(self.early))]

    def take_early(self, is_invited: Callable[[ChannelRequest], bool]) -> list[ChannelRequest]:
        """The kept requests that are invited by now. They are kept no longer."""
        return [self.early.pop(each.sender.id) for each in list(self.early.values()) if is_invited(each)]

    def of(self, topic: bytes) -> list[Sender]:
        """The senders in a topic."""
        return [sender for sender in self.state.senders.values() if topic in sender.topics]

    def repeat(self, id_: bytes) -> Iterator[Send]:
        """A sender that asks again may have missed the answer."""
        if id_ in self.answers:
            yield Send(self.state.senders[id_].party, self.answers[id_])

    def silent(self, since: float) -> list[bytes]:
        """The senders that have not asked since then."""
        return [id_ for id_, at in self.heard_at.items() if at < since]

    def settle(self, composed: Iterable[bytes], specification: Callable[[bytes, bytes], Spec]) -> Iterator[Send]:
        """Answer the senders of these topics for which something changed.

        `specification` is that of a topic's channels for a sender.
        """
        topics = dict.fromkeys(composed)
        for id_, sender in self.state.senders.items():
            old = self.answers.get(id_)
            if old is None or not topics.keys().isdisjoint(sender.topics):
                answer = self._answer(sender, specification)
                if old is None or old.specs != answer.specs:
                    self.answers[id_] = answer
                    yield Send(sender.party, answer)

    def _answer(self, sender: Sender, specification: Callable[[bytes, bytes], Spec]) -> ChannelAnswer:
        topics = [topic for topic in sender.topics if topic in self.state.topics]
        specs = tuple((topic, specification(topic, sender.party.id)) for topic in topics)
        return ChannelAnswer(self.state.scope.id, self.state.epoch, next(self.numbers), specs)
