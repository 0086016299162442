"""Policies of other packages, asked in parallel to the peer that runs a scope's manager.

A manager asks within an input of its peer, and a peer never waits. So `LastGood` answers at once, with the policy's
answer to the same question. If there is none, it says that an answer will come, and the existing channels stay.
`PolicyBeside` sends the questions of all topics to the policy's process, one after the other. Each answer is an input
of its own, after which the manager composes the topic again.

Two questions are the same if they are about the same group, if the current channels are those at the time of the
question or those of its answer, and if all round trips that the policy asked for are the same.
"""

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakValueDictionary

from quillcast.core.errors import LocalError
from quillcast.live.scopes import orders
from quillcast.live.scopes.agents import Wait
from quillcast.live.scopes.confined import ConfinedPolicy, row, too_long
from quillcast.live.scopes.socketline import SocketLine, Surroundings
from quillcast.protocol.scopes.conformance import Nonconforming, check_channels
from quillcast.protocol.scopes.policy import (
    AnswerComes,
    Delivery,
    Group,
    PolicyStopped,
    RoundTrips,
    WantedChannel,
)

Row = tuple[float | None, ...]


class Question(NamedTuple):
    """A question to a policy."""

    group: Group
    present: tuple[WantedChannel, ...]
    round_trips: RoundTrips


class PolicyAnswer(NamedTuple):
    """A policy's answer, and the round trips that it used."""

    group: Group
    present: tuple[WantedChannel, ...]
    channels: tuple[WantedChannel, ...]
    rows: dict[int, Row]

    def is_to(self, question: Question) -> bool:
        """Whether this is the answer to that question."""
        group, present, round_trips = question
        return (
            group == self.group
            and present in (self.present, self.channels)
            and all(row(source, group, round_trips) == known for source, known in self.rows.items())
        )


class LastGood:
    """A `ScopePolicy` in one topic: repeats its policy's answer. Raises `NoAnswer` until there is one."""

    def __init__(self, policy: "PolicyBeside", topic: bytes) -> None:
        self.policy, self.topic = policy, topic
        self.delivery, self.mechanism = policy.delivery, policy.mechanism
        self.answer: PolicyAnswer | None = None

    def __repr__(self) -> str:
        return repr(self.policy)

    def fan_out_max(self, group: Group) -> int:
        """The size of the group. The answers are checked against the policy's own bound."""
        return len(group.members)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        """The policy's answer to this question. Raises `AnswerComes` and `PolicyStopped`."""
        question = Question(group, present, round_trips)
        if self.answer is None or not self.answer.is_to(question):
            self.policy.ask(self, question)
            raise AnswerComes(f"an answer of policy {self.policy.name}")
        return self.answer.channels


class Asked(NamedTuple):
    """The question that the policy is working on."""

    asker: LastGood
    question: Question
    rows: dict[int, Row]
    """The round trips that it was given."""
    patience: Wait


class PolicyBeside:
    """A policy in its own process, and the questions of topics to it. Close it."""

    def __init__(self, policy: ConfinedPolicy, tell: Callable[[str], object], called: str = "") -> None:
        """`tell` gets the reason if it is stopped. `called` is the same for the same policy after a restart."""
        self.policy, self._tell, self._called = policy, tell, called
        self.name, self.delivery, self.mechanism = policy.name, policy.delivery, policy.mechanism
        self.waiting: dict[LastGood, Question] = {}
        self.asked: Asked | None = None
        self._line: SocketLine[orders.OrderAnswer] | None = None
        self._topics: WeakValueDictionary[bytes, LastGood] = WeakValueDictionary()
        self._answered: Callable[[bytes], object] = _nobody
        self._stopped = ""

    delivery: Delivery

    def __repr__(self) -> str:
        return self._called

    @property
    def is_stopped(self) -> bool:
        """Whether it did something that is not allowed, so that its process was ended."""
        return bool(self._stopped)

    def of_topic(self, topic: bytes) -> LastGood:
        """The policy in a topic, as long as it is in use there."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = LastGood(self, topic)
        return known

    def fan_out_max(self, group: Group) -> int:
        """As for a topic."""
        return self.of_topic(b"").fan_out_max(group)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        """As for a topic. Raises `NoAnswer`."""
        return self.of_topic(b"").channels(group, present, round_trips)

    def serve(self, surroundings: Surroundings, answered: Callable[[bytes], object]) -> None:
        """Begin to ask. `answered` is called, in an input, with each topic that has an answer or will not get one."""
        if self._line is None and not self._stopped:
            self._answered = answered
            self._line = SocketLine(surroundings, self.policy.process, orders.ANSWERS, self._came, self._stop)
            surroundings.hand(self._go_on)

    def ask(self, asker: LastGood, question: Question) -> None:
        """Ask for a topic, replacing its previous question. Raises `PolicyStopped`."""
        if self._stopped:
            raise PolicyStopped(self._stopped)
        self.waiting.pop(asker, None)
        asked = self.asked
        if asked is None or asked.asker is not asker or asked.question[:2] != question[:2]:
            self.waiting[asker] = question
            if self._line is not None:
                self._line.surroundings.hand(self._go_on)  # after the input that asks

    def close(self) -> None:
        """End the process."""
        self._rest()
        self.waiting.clear()
        if self._line is not None:
            self._line.close()
            self._line = None
        self.policy.close()

    # ---- inputs

    def _go_on(self) -> None:
        """Send the next question."""
        if self.asked is None and self.waiting and (line := self._line) is not None:
            asker = next(iter(self.waiting))
            question, limit_s = self.waiting.pop(asker), self.policy.limit_s
            self.asked = Asked(asker, question, {}, line.wait(limit_s, lambda: self._stop(too_long(limit_s))))
            try:
                line.send(orders.AskChannels(question.group, question.present))
            except LocalError as error:
                self._stop(str(error))

    def _came(self, answer: orders.OrderAnswer) -> None:
        """Handle an answer or question of the process."""
        match answer, self.asked:
            case orders.AskRoundTrips(source), Asked(_, question, rows) if self._line is not None:
                rows[source] = row(source, question.group, question.round_trips)
                self._line.send(orders.RoundTripsAre(rows[source]))
            case orders.ChannelsAre(), Asked() as asked:
                self._take(asked, answer)
            case orders.PolicyFailed(why), _:
                self._stop(why)
            case _ if self._line is not None:
                self._stop(f"it sends {type(answer).__name__}, which nobody asked for")

    def _take(self, asked: Asked, answer: orders.ChannelsAre) -> None:
        group, present, _ = asked.question
        try:
            check_channels(group, answer.channels, answer.bound, self.mechanism)
        except Nonconforming as broken:
            self._stop(str(broken))
            return
        self._rest()
        asked.asker.answer = PolicyAnswer(group, present, answer.channels, asked.rows)
        self._answered(asked.asker.topic)
        self._go_on()

    def _stop(self, why: str) -> None:
        """End the process because of a fault, and notify the topics that use it."""
        if self._line is not None:
            self.close()
            self._stopped = str(self.policy.stop(why))
            self._tell(f"{self._stopped}; the last good channels stay")
            for topic in list(self._topics):
                self._answered(topic)

    def _rest(self) -> None:
        if self.asked is not None:
            self.asked.patience.end()
            self.asked = None


def _nobody(_: bytes) -> None:
    """No manager uses it yet."""
