"""Recovery agents of other packages: they run in the peer, and are stopped when they do what no agent may.

An agent answers within the input that asks it, so it has no process of its own, as filters have none. What it says and
answers passes through `GuardedAgent`, and what it raises ends there. An agent is stopped that

- raises an exception,
- takes longer than `CALL_LIMIT_S` for a call (afterwards: a call that never ends stops its peer),
- sends or sets timers more often than `WORDS_MAX` and `TIMERS_MAX` allow, or sends words longer than a message may be,
- names peers that are no members of its domain, or ranges that its member does not lack.

From then on the member repairs along the tree, and one line says why. That protects the peer from mistakes, not from
attacks: install only what you trust.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from time import perf_counter
from typing import Any, NoReturn

from quillcast.core.host import Timer
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet, difference
from quillcast.core.trace import Record
from quillcast.protocol.reliability.domain import AgentDue, Findings, Post, RecoveryProtocol, StreamId
from quillcast.protocol.reliability.messages import WORD_BYTES_MAX, AgentWord
from quillcast.protocol.reliability.protocols.along_tree import AlongTree

CALL_LIMIT_S = 0.25  # a guess: the peer does nothing else meanwhile
WORDS_MAX = 256  # in one `gap_s`; a guess: some per member and stream that it knows
TIMERS_MAX = 256  # likewise
_TREE = AlongTree()


class _Misbehaved(Exception):
    """The agent did what no agent may; the text says what."""


class GuardedAgent:
    """An agent of another package, and what stands between it and its peer."""

    def __init__(
        self, name: str, make: Callable[[Post], RecoveryProtocol], post: Post, tell: Callable[[str], object],
        clock: Callable[[], float] = perf_counter,
    ) -> None:  # fmt: skip
        """`tell` is given a line if the agent is stopped. `clock` measures how long its calls take, in seconds."""
        self.name, self.tell, self.clock = name, tell, clock
        self.gate = _Gate(name, post)
        self.agent: RecoveryProtocol | None = None
        with self._guard():
            self.agent = make(Post(self.gate, post.times, post.scope, post.bottom))

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Stop the agent if a call goes wrong, or takes too long."""
        began = self.clock()
        try:
            yield
        except _Misbehaved as fault:
            self._stop(str(fault))
        except Exception as error:  # noqa: BLE001  another package's code may raise anything
            self._stop(f"it raised {type(error).__name__}: {' '.join(str(error).split())}")
        if self.agent is None:
            return
        if self.gate.fault:  # the agent went on all the same
            self._stop(self.gate.fault)
        elif (took_s := self.clock() - began) > CALL_LIMIT_S:
            self._stop(f"a call took {took_s:.1f} s, longer than {CALL_LIMIT_S:g} s")

    def _stop(self, why: str) -> None:
        self.agent, self.gate.fault = None, why
        self.tell(f"recovery protocol {self.name} was stopped: {why}; members repair along the tree")

    def follow(self, others: tuple[Contact, ...]) -> None:
        """Members come or go."""
        self.gate.others = dict.fromkeys(each.node_id for each in others)
        with self._guard():
            if self.agent is not None:
                self.agent.follow(others)

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """What the agent finds; what neighbours are asked for, if there is none any more."""
        found: Findings | None = None
        self.gate.neighbours = dict.fromkeys(each.node_id for each in neighbours)
        with self._guard():
            if self.agent is not None:
                found = self._checked(self.agent.find(stream, lacks, neighbours, at_border=at_border), lacks)
        if found is None or self.agent is None:
            return _TREE.find(stream, lacks, neighbours, at_border=at_border)
        return found

    def _checked(self, found: Any, lacks: list[Range]) -> Findings:
        if not isinstance(found, Findings):
            raise _Misbehaved(f"its answer is a {type(found).__name__} instead of Findings")
        for contact in (*(each.contact for each in found.holders), *found.neighbours):
            self.gate.check(contact)
        if beyond := difference(found.lacks, RangeSet(lacks)):
            raise _Misbehaved(f"it seeks {beyond[0]}, which its member does not lack")
        return found

    def filled(self, stream: StreamId) -> None:
        """Nothing of a stream is lacking."""
        with self._guard():
            if self.agent is not None:
                self.agent.filled(stream)

    def received(self, sender: Contact, message: Message) -> None:
        """Another member's agent spoke."""
        self.gate.heard(sender)
        with self._guard():
            if self.agent is not None:
                self.agent.received(sender, message)

    def due(self, what: Any) -> None:
        """Its timer is due."""
        with self._guard():
            if self.agent is not None:
                self.agent.due(what)

    def link_lost(self, node: bytes) -> None:
        """A peer cannot be reached."""
        with self._guard():
            if self.agent is not None:
                self.agent.link_lost(node)


class _Gate:
    """The host that the agent sees. It lets through what an agent may order."""

    def __init__(self, name: str, post: Post) -> None:
        self.name, self.post, self.host = name, post, post.host
        self.me: NodeId = post.host.me
        self.contact: Contact = post.host.contact
        self.random: Random = post.host.random
        self.others: dict[bytes, None] = {}
        self.neighbours: dict[bytes, None] = {}
        self.spoke: dict[bytes, None] = {}  # members that are not among those that this one is told of
        self.since, self.words, self.timers = post.host.now(), 0, 0
        self.fault = ""  # what it did that no agent may: nothing passes any more

    def heard(self, sender: Contact) -> None:
        """An agent of the domain is there."""
        self.spoke.pop(sender.node_id, None)
        self.spoke[sender.node_id] = None
        if len(self.spoke) > WORDS_MAX:
            del self.spoke[next(iter(self.spoke))]

    def check(self, contact: Contact) -> None:
        """Is this a member, as far as it can be known? Raises `_Misbehaved`."""
        node = contact.node_id
        if node not in self.others and node not in self.neighbours and node not in self.spoke:
            self._close(f"it names {contact.address}, which is no member of its domain")

    def _close(self, fault: str) -> NoReturn:
        self.fault = self.fault or fault
        raise _Misbehaved(self.fault)

    def now(self) -> float:
        return self.host.now()

    def proximity(self, node: bytes) -> float | None:
        return self.host.proximity(node)

    def trace(self, record: Record) -> None:
        self.host.trace(record)

    def send(self, to: Contact, message: Message) -> None:
        """Send a word to another member."""
        self._count()
        self.words += 1
        if not isinstance(message, AgentWord):
            self._close(f"it sends a {type(message).__name__} instead of an AgentWord")
        if len(message.body) > WORD_BYTES_MAX:
            self._close(f"it sends {len(message.body)} bytes in one word; at most {WORD_BYTES_MAX} are allowed")
        if self.words > WORDS_MAX:
            self._close(f"it sends more than {WORDS_MAX} words in {self.post.times.gap_s:g} s")
        self.check(to)
        self.host.send(to, AgentWord(self.post.scope, self.name, message.body))

    def set_timer(self, timer: Timer, delay_s: float) -> None:
        """Set a timer of the agent."""
        self._count()
        self.timers += 1
        if not isinstance(timer, AgentDue):
            self._close(f"it sets a {type(timer).__name__} instead of an AgentDue")
        if self.timers > TIMERS_MAX:
            self._close(f"it sets more than {TIMERS_MAX} timers in {self.post.times.gap_s:g} s")
        self.host.set_timer(AgentDue(self.post.scope, self.name, timer.what), delay_s)

    def _count(self) -> None:
        if self.fault:
            self._close(self.fault)
        if self.host.now() - self.since >= self.post.times.gap_s:
            self.since, self.words, self.timers = self.host.now(), 0, 0
