"""The agents of one peer: one in each recovery domain that it is a member of, whatever topics that domain serves.

A domain may be a member of another one around it (QuickSilver, *Recovery Domains*). The peer that is its head has an
agent in that one, too, and so on outwards. An outer agent is of the same class as an inner one, and has the same two
interfaces: below it is a domain instead of a peer. That domain lacks what nobody in it holds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet, intersection
from quillcast.core.trace import Mark
from quillcast.protocol.reliability.domain import (
    AgentDue,
    Bottom,
    Findings,
    Post,
    RecoveryProtocol,
    RecoveryTimes,
    StreamId,
)
from quillcast.protocol.reliability.messages import AGENT_MESSAGES, AgentMessage, AgentWord, RingToken
from quillcast.protocol.reliability.protocols import BUILT_IN
from quillcast.protocol.reliability.protocols.along_tree import AlongTree

Protocols = Mapping[str, Callable[[Post], RecoveryProtocol]]
"""Recovery protocols by name. Each makes an agent."""


class Domain(NamedTuple):
    """A recovery domain that this peer is a member of, for itself or as the head of the domain within."""

    scope: bytes
    """The scope whose members it has."""
    protocol: str
    """The name of its recovery protocol."""
    others: tuple[Contact, ...]
    """The members that come after this one in their circle, the next one first; not all of many."""


class InnerDomain:
    """A domain as the member of the one around it: the bottom interface of its head's agent there."""

    def __init__(self, head: Bottom) -> None:
        self.head = head
        self.lacking: dict[StreamId, Sequence[Range]] = {}  # what nobody in it holds, as its own agent found

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        """What its head can send of these ranges."""
        return self.head.holds(stream, among)

    def lacks(self, stream: StreamId) -> list[Range]:
        """What nobody in it holds."""
        return intersection(self.head.lacks(stream), RangeSet(self.lacking.get(stream, ())))

    def found(self, stream: StreamId) -> None:
        """The head requests it, and others in the domain of the head."""
        self.head.found(stream)


class Level(NamedTuple):
    """An agent, and the domain that it speaks for; None: it speaks for its peer alone."""

    agent: RecoveryProtocol
    within: InnerDomain | None = None

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """Where in the domain the ranges are that its member lacks. It need not look while the member lacks nothing."""
        if not lacks:
            self.filled(stream)
            return Findings((), neighbours, ())
        if self.within is not None:
            self.within.lacking[stream] = lacks
        return self.agent.find(stream, lacks, neighbours, at_border=at_border)

    def seeks(self, stream: StreamId, lacks: Sequence[Range]) -> list[Range]:
        """Of what the domain within lacks: what it looks for already."""
        sought = self.within.lacking.get(stream, ()) if self.within is not None else ()
        return intersection(lacks, RangeSet(sought))

    def filled(self, stream: StreamId) -> None:
        """Its member lacks nothing of it any more."""
        if self.within is not None:
            self.within.lacking.pop(stream, None)
        self.agent.filled(stream)


TREE = Level(AlongTree())
"""Of topics of no scope, and where a scope's manager orders a protocol that is not known here."""


class Agents:
    """Makes agents as domains are ordered, and passes them what is for them."""

    __slots__ = ("_others", "agents", "bottom", "host", "of_topics", "times")

    def __init__(self, host: Host, times: RecoveryTimes, bottom: Bottom, dispatch: Dispatch) -> None:
        self.host, self.times, self.bottom = host, times, bottom
        self.agents: dict[tuple[bytes, str], Level] = {}
        self.of_topics: dict[bytes, tuple[Level, ...]] = {}
        self._others: Protocols = {}
        dispatch.on_messages(AGENT_MESSAGES, self._received)
        dispatch.on_timer(AgentDue, self._due)

    def offer(self, others: Protocols) -> None:
        """Let domains have these protocols of other packages, too."""
        self._others = others

    def follow(self, domains: Mapping[bytes, Sequence[Domain]]) -> None:
        """By topic: the domains that it is repaired in from now on, the innermost first. Agents of others end."""
        former, self.agents, self.of_topics = self.agents, {}, {}
        for topic, nested in domains.items():
            innermost, *around = nested
            levels = [self._level(innermost, former, None)]
            levels += [self._level(domain, former, InnerDomain(self.bottom)) for domain in around]
            self.of_topics[topic] = tuple(levels)
        for key, level in former.items():
            if key not in self.agents:
                level.agent.end()

    def _level(self, domain: Domain, former: Mapping[tuple[bytes, str], Level], within: InnerDomain | None) -> Level:
        key = domain.scope, domain.protocol
        if key in self.agents:
            return self.agents[key]
        make = BUILT_IN.get(domain.protocol) or self._others.get(domain.protocol)
        if make is None:
            self.host.trace(Mark("recovery_protocol_unknown"))
            return TREE
        post = Post(self.host, self.times, domain.scope, within or self.bottom)
        level = self.agents[key] = former.get(key) or Level(make(post), within)
        level.agent.follow(domain.others)
        return level

    def of(self, topic: bytes) -> tuple[Level, ...]:
        """The agents that a topic is repaired by, from the innermost domain outwards."""
        return self.of_topics.get(topic, (TREE,))

    def find(
        self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Sequence[Contact]], upstream: Contact | None,
        beyond: Callable[[Findings], list[Range]],
    ) -> Iterator[Findings]:  # fmt: skip
        """Where ranges are, domain by domain outwards: an agent looks for what nobody in the domains within holds.

        `neighbours` are those in the topic's tree, by the innermost domain that they are in. Those that an agent does
        not name come last: the peer upstream has a say in what is given up, and must be among them. `beyond` says what
        of an agent's findings nobody in its domain is about to send. What was sought around once, is until it is found:
        there may be other neighbours inside by then, who have to be asked first.
        """
        inside: list[Contact] = []
        found: Findings | None = None
        for level, near in zip_longest(self.of(stream.topic), neighbours):
            inside += near or ()
            at = level or TREE
            if found is not None:
                lacks = RangeSet([*beyond(found), *at.seeks(stream, found.lacks)]).ranges()
            found = at.find(stream, lacks, near or (), at_border=upstream not in inside)
            found = found._replace(neighbours=[*dict.fromkeys((*found.neighbours, *(near or ())))])
            yield found

    def filled(self, stream: StreamId) -> None:
        """Nothing of a stream is lacking here any more. Its topic may have had other agents when they were asked."""
        for level in self.agents.values():
            level.filled(stream)

    def link_lost(self, node: bytes) -> None:
        """A peer cannot be reached."""
        for level in self.agents.values():
            level.agent.link_lost(node)

    def _received(self, sender: Contact, message: AgentMessage) -> None:
        level = self.agents.get((message.scope, _protocol_of(message)))
        if level is not None:  # else this peer is not, or not any more, a member
            level.agent.received(sender, message)

    def _due(self, timer: AgentDue) -> None:
        level = self.agents.get((timer.scope, timer.protocol))
        if level is not None:
            level.agent.due(timer.what)


def _protocol_of(message: AgentMessage) -> str:
    if isinstance(message, AgentWord):
        return message.protocol
    return "ring" if isinstance(message, RingToken) else "srm"
