"""Recovery agents of other packages. Each runs in its own process, which is killed if it does something not allowed.

An agent is asked within an input of its peer, and a peer never waits. So `ConfinedAgent` passes inputs on and answers
with the agent's latest findings. Until it has findings, its answer is that it is still searching. When the agent's
answer comes, that is an input, and repairs continue. The process carries out one order after another. An agent is
stopped if it

- raises an exception, ends its process, or needs more memory than it may use,
- takes longer than `ANSWER_LIMIT_S` for an order,
- sends or sets timers more often than `WORDS_MAX` and `TIMERS_MAX` allow, or sends messages that are too long,
- names peers that are not members of its domain, or ranges that its member does not lack.

Until its process has started, and after it was stopped, the member repairs along the tree. One line says why it was
stopped.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from quillcast.core.host import Timer
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet, difference, intersection
from quillcast.core.trace import Mark
from quillcast.live.scopes import agentorders
from quillcast.live.scopes.process import ANSWER_LIMIT_S, START_LIMIT_S
from quillcast.protocol.reliability.domain import AgentContext, AgentDue, Findings, Holder, StreamId
from quillcast.protocol.reliability.messages import WORD_BYTES_MAX, AgentWord
from quillcast.protocol.reliability.protocols.along_tree import AlongTree

QUESTIONS_MAX = 16_384  # in one `gap_s`; a guess: some per stream and message
WORDS_MAX = 256  # in one `gap_s`; a guess: some per member and stream that it knows
TIMERS_MAX = 256  # likewise
_TREE = AlongTree()
_SOUGHT = Findings((), (), ())


class Wait(Protocol):
    """A running time-out."""

    def end(self) -> None:
        """Stop waiting."""
        ...


class AgentLine(Protocol):
    """The connection to an agent's process. Messages from there are inputs of the peer."""

    def send(self, message: msgspec.Struct) -> None: ...
    def wait(self, time_s: float, function: Callable[[], object]) -> Wait: ...
    def close(self) -> None: ...


class LineListener(NamedTuple):
    """Receives the events of a line."""

    came: Callable[[agentorders.FromAgent], None]
    failed: Callable[[str], None]
    """The line is no longer usable; the text says why."""


class ConfinedAgent:
    """An agent of another package, as its peer sees it."""

    def __init__(
        self, name: str, reference: str, context: AgentContext, open_line: Callable[[LineListener], AgentLine],
        tell: Callable[[str], object],
    ) -> None:  # fmt: skip
        """`tell` gets a line if the agent is stopped."""
        self.name, self.context, self.tell = name, context, tell
        self.gate = _Gate(context)
        self.is_made = self.is_over = False
        self.waiting: deque[agentorders.Task] = deque()
        self.order: agentorders.Task | None = None  # the order in progress
        self.patience: Wait | None = None
        self.found: dict[StreamId, Findings] = {}  # for the streams with gaps
        self.answered: StreamId | None = None  # the stream whose repairs are now continuing with these findings
        self.line = open_line(LineListener(self._came, self._stop))
        seed = context.host.random.getrandbits(63)
        self._order(agentorders.MakeAgent(name, reference, context.host.contact, context.scope, context.times, seed))

    # ---- the peer's inputs

    def follow(self, others: tuple[Contact, ...]) -> None:
        """The members of the circle have changed."""
        self.gate.others = dict.fromkeys(each.node_id for each in others)
        self._order(agentorders.Follow(others))

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """Return the agent's latest findings and make it search again. Without an agent, ask the neighbours."""
        if self.is_over or not self.is_made:
            return _TREE.find(stream, lacks, neighbours, at_border=at_border)
        self.gate.neighbours = dict.fromkeys(each.node_id for each in neighbours)
        found = self.found.setdefault(stream, _SOUGHT)
        if stream != self.answered and not any(
            isinstance(each, agentorders.Find) and each.stream == stream for each in self.waiting
        ):
            self._order(agentorders.Find(stream, [*lacks], tuple(neighbours), at_border))
        holders = [Holder(each.contact, some) for each in found.holders if (some := intersection(lacks, each.ranges))]
        return Findings(holders, found.neighbours, intersection(lacks, RangeSet(found.lacks)))

    def filled(self, stream: StreamId) -> None:
        """A stream has no more gaps."""
        if self.found.pop(stream, None) is not None:
            self._order(agentorders.Filled(stream))

    def received(self, sender: Contact, message: Message) -> None:
        """Another member's agent sent a message. Messages that arrive too fast are dropped."""
        self.gate.heard(sender)
        if isinstance(message, AgentWord) and len(self.waiting) < WORDS_MAX:
            self._order(agentorders.Heard(sender, message.body))

    def due(self, what: object) -> None:
        """Its timer is due."""
        if isinstance(what, int):
            self._order(agentorders.Due(what))

    def link_lost(self, node: bytes) -> None:
        """A peer cannot be reached."""
        self._order(agentorders.LinkLost(node))

    def end(self) -> None:
        """End the process: the member has left this domain."""
        if not self.is_over:
            self.is_over = True
            self.waiting.clear()
            self._rest()
            self.line.close()

    # ---- the process

    def _order(self, task: agentorders.Task) -> None:
        if not self.is_over:
            self.waiting.append(task)
            self._go_on()

    def _go_on(self) -> None:
        """Give the next order if the last one has been carried out."""
        if self.order is None and self.waiting:
            self.order = self.waiting.popleft()
            limit_s = START_LIMIT_S if isinstance(self.order, agentorders.MakeAgent) else ANSWER_LIMIT_S
            self.patience = self.line.wait(limit_s, lambda: self._stop(f"it took longer than {limit_s:g} s for a call"))
            self.line.send(agentorders.Begin(self.context.host.now(), self.order))

    def _rest(self) -> None:
        self.order = None
        if self.patience is not None:
            self.patience.end()
            self.patience = None

    def _stop(self, why: str) -> None:
        if not self.is_over:
            self.end()
            self.tell(f"recovery protocol {self.name} was stopped: {why}; members repair along the tree")

    def _came(self, message: agentorders.FromAgent) -> None:
        if not self.is_over:
            try:
                self._carry_out(message)
            except agentorders.Misbehaved as fault:
                self._stop(str(fault))

    def _carry_out(self, message: agentorders.FromAgent) -> None:
        """Handle a question or message of the process."""
        bottom, host = self.context.bottom, self.context.host
        self.gate.count()
        match message:
            case agentorders.AskHolds(stream, among):
                self.line.send(agentorders.RangesAre([*bottom.holds(stream, among)]))
            case agentorders.AskLacks(stream):
                self.line.send(agentorders.RangesAre([*bottom.lacks(stream)]))
            case agentorders.AskRoundTrip(node):
                self.line.send(agentorders.RoundTripIs(host.proximity(node)))
            case agentorders.Say(to, body):
                self.gate.check_word(to, body)
                host.send(to, AgentWord(self.context.scope, self.name, body))
            case agentorders.SetTimer(number, delay_s):
                self.gate.check_timer()
                host.set_timer(self._timer(number), max(0.0, delay_s))
            case agentorders.MarkIt(name):
                host.trace(Mark(name))
            case agentorders.Found(stream):
                bottom.found(stream)
            case agentorders.FindingsAre(findings):
                self._is_found(findings)
            case agentorders.Done():
                self.is_made = True
                self._rest()
                self._go_on()
            case agentorders.AgentFailed(why):
                self._stop(why)

    def _timer(self, number: int) -> Timer:
        return AgentDue(self.context.scope, self.name, number)

    def _is_found(self, findings: Findings) -> None:
        """Keep the findings, and continue repairs with them."""
        order = self.order
        if not isinstance(order, agentorders.Find):
            raise agentorders.Misbehaved("it sent an answer that nobody asked for")
        for contact in (*(each.contact for each in findings.holders), *findings.neighbours):
            self.gate.check(contact)
        if beyond := difference(findings.lacks, RangeSet(order.lacks)):
            raise agentorders.Misbehaved(f"it seeks {beyond[0]}, which its member does not lack")
        if order.stream in self.found and self.found[order.stream] != findings:
            self.found[order.stream], self.answered = findings, order.stream
            try:
                self.context.bottom.found(order.stream)
            finally:
                self.answered = None


class _Gate:
    """Checks an agent's requests against the limits. Its methods raise `Misbehaved`."""

    def __init__(self, context: AgentContext) -> None:
        self.context = context
        self.others: dict[bytes, None] = {}
        self.neighbours: dict[bytes, None] = {}
        self.spoke: dict[bytes, None] = {}  # members that have sent something but are unknown here
        self.since, self.messages, self.words, self.timers = context.host.now(), 0, 0, 0

    def heard(self, sender: Contact) -> None:
        """The agent of a member of the domain has sent something."""
        self.spoke.pop(sender.node_id, None)
        self.spoke[sender.node_id] = None
        if len(self.spoke) > WORDS_MAX:
            del self.spoke[next(iter(self.spoke))]

    def check(self, contact: Contact) -> None:
        """Check that this is a member, as far as known."""
        node = contact.node_id
        if node not in self.others and node not in self.neighbours and node not in self.spoke:
            raise agentorders.Misbehaved(f"it names {contact.address}, which is not a member of its domain")

    def check_word(self, to: Contact, body: bytes) -> None:
        """Check that it may send this."""
        self.words += 1
        if self.words > WORDS_MAX:
            raise agentorders.Misbehaved(f"it sends more than {WORDS_MAX} words in {self.context.times.gap_s:g} s")
        if len(body) > WORD_BYTES_MAX:
            raise agentorders.Misbehaved(
                f"it sends {len(body)} bytes in one word; at most {WORD_BYTES_MAX} are allowed"
            )
        self.check(to)

    def check_timer(self) -> None:
        """Check that it may set another timer."""
        self.timers += 1
        if self.timers > TIMERS_MAX:
            raise agentorders.Misbehaved(f"it sets more than {TIMERS_MAX} timers in {self.context.times.gap_s:g} s")

    def count(self) -> None:
        """Count a question or message."""
        now, gap_s = self.context.host.now(), self.context.times.gap_s
        if now - self.since >= gap_s:
            self.since, self.messages, self.words, self.timers = now, 0, 0, 0
        self.messages += 1
        if self.messages > QUESTIONS_MAX:
            raise agentorders.Misbehaved(f"it sends more than {QUESTIONS_MAX} questions and answers in {gap_s:g} s")
