"""The agents of one peer: one in each recovery domain that it is a member of, whatever topics that domain serves.

A domain may be a member of another one around it (QuickSilver, *Recovery Domains*). The peer that is its head has an
agent there, too, and so on outwards. An outer agent is of the same class as an inner one, and has the same two
interfaces: below it is a domain instead of a peer. That domain lacks what nobody in it holds.

Some protocols know only some members. A second agent in the same domain asks all members for what these do not hold, by
the protocol `srm`. So no request leaves a domain before all of it was searched, whatever its protocol.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference, intersection
from quillcast.core.trace import Mark
from quillcast.protocol.reliability.domain import (
    AgentContext,
    AgentDue,
    Bottom,
    Findings,
    RecoveryProtocol,
    RecoveryTimes,
    StreamId,
)
from quillcast.protocol.reliability.messages import AGENT_MESSAGES, AgentMessage, AgentWord, RingToken
from quillcast.protocol.reliability.protocols import BUILT_IN
from quillcast.protocol.reliability.protocols.along_tree import AlongTree

SEARCH = "srm"
"""The protocol by which all members are asked for what a domain's own protocol does not find."""
ASKING_ALL = ("ring", SEARCH)
"""The protocols that ask all members themselves."""
Protocols = Mapping[str, Callable[[AgentContext], RecoveryProtocol]]
"""Recovery protocols by name. Each makes an agent."""


class News(NamedTuple):
    """What no member can have yet, by the reports of this peer's neighbours: there is no point in asking for it."""

    new: list[Range]
    """What has come to nobody below: it is sought in no domain that is all below this peer."""
    for_long: RangeSet
    """What of this would have been sought in vain by now: those above are asked for it."""
    awaited: list[Range]
    """What has not come to the peer upstream either: that one has it sought, if it is in the same domain."""


NO_NEWS = News([], NO_RANGES, [])


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
        self.lacking: dict[StreamId, Sequence[Range]] = {}

    def lack(self, stream: StreamId, lacks: Sequence[Range]) -> None:
        """Its agents found that nobody in it holds these."""
        if lacks:
            self.lacking[stream] = lacks
        else:
            self.lacking.pop(stream, None)

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        """What its head can send of these ranges."""
        return self.head.holds(stream, among)

    def lacks(self, stream: StreamId) -> list[Range]:
        """What nobody in it holds."""
        return intersection(self.head.lacks(stream), RangeSet(self.lacking.get(stream, ())))

    def found(self, stream: StreamId) -> None:
        """The head requests it, and others in the domain of the head."""
        self.head.found(stream)


class Level:
    """An agent in a domain, what it looks for, and the domain that it speaks for; None: only for its peer."""

    __slots__ = ("agent", "sought", "within")

    def __init__(self, agent: RecoveryProtocol, within: InnerDomain | None = None) -> None:
        self.agent, self.within = agent, within
        self.sought: dict[StreamId, Sequence[Range]] = {}

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """Where in the domain these ranges are. The agent need not look while there are none."""
        if not lacks:
            self.filled(stream)
            return Findings((), neighbours, ())
        found = self.agent.find(stream, lacks, neighbours, at_border=at_border)
        begun = difference(lacks, RangeSet(found.lacks))  # without what it could ask nobody for
        self.sought[stream] = RangeSet([*self.seeks(stream, lacks), *begun]).ranges()
        return found._replace(neighbours=[*dict.fromkeys((*found.neighbours, *neighbours))])

    def seeks(self, stream: StreamId, lacks: Sequence[Range]) -> list[Range]:
        """Those of these ranges that it already looks for."""
        return intersection(lacks, RangeSet(self.sought.get(stream, ())))

    def filled(self, stream: StreamId) -> None:
        """Stop looking for any of it."""
        self.sought.pop(stream, None)
        self.agent.filled(stream)


class Agents:
    """Makes agents as domains are ordered, and passes them what is for them."""

    __slots__ = ("_others", "agents", "bottom", "host", "inner", "of_topics", "times", "tree")

    def __init__(self, host: Host, times: RecoveryTimes, bottom: Bottom, dispatch: Dispatch) -> None:
        self.host, self.times, self.bottom = host, times, bottom
        self.tree = Level(AlongTree())  # of topics of no scope
        self.agents: dict[tuple[bytes, str], Level] = EMPTY
        self.inner: dict[bytes, InnerDomain] = EMPTY  # by scope around: the domain within
        self.of_topics: dict[bytes, tuple[tuple[Level, ...], ...]] = EMPTY
        self._others: Protocols = EMPTY
        dispatch.on_messages(AGENT_MESSAGES, self._received)
        dispatch.on_timer(AgentDue, self._due)

    def offer(self, others: Protocols) -> None:
        """Let domains also use these protocols of other packages."""
        self._others = others

    def follow(self, domains: Mapping[bytes, Sequence[Domain]]) -> None:
        """By topic, the domains that repair it from now on, the innermost first. Agents of others end."""
        former, self.agents, self.of_topics = self.agents, {}, {}
        around = {domain.scope for nested in domains.values() for domain in nested[1:]}
        self.inner = {scope: self.inner.get(scope) or InnerDomain(self.bottom) for scope in sorted(around)}
        for topic, nested in domains.items():
            self.of_topics[topic] = tuple(self._in_domain(domain, former) for domain in nested)
        for key, level in former.items():
            if key not in self.agents:
                level.agent.end()

    def _in_domain(self, domain: Domain, former: Mapping[tuple[bytes, str], Level]) -> tuple[Level, ...]:
        """The agents in a domain, in the order in which they look."""
        if domain.protocol not in BUILT_IN and domain.protocol not in self._others:
            self.host.trace(Mark("recovery_protocol_unknown"))
            domain = domain._replace(protocol="tree")
        protocols = [domain.protocol, *([SEARCH] if domain.protocol not in ASKING_ALL else [])]
        return tuple(self._level(domain._replace(protocol=each), former) for each in protocols)

    def _level(self, domain: Domain, former: Mapping[tuple[bytes, str], Level]) -> Level:
        key = domain.scope, domain.protocol
        if key in self.agents:
            return self.agents[key]
        within = self.inner.get(domain.scope)
        make = BUILT_IN.get(domain.protocol) or self._others[domain.protocol]
        context = AgentContext(self.host, self.times, domain.scope, within or self.bottom)
        level = former.get(key)
        if level is not None and level.within is not within:
            level.agent.end()  # it spoke for its peer alone and now for a domain, or the reverse
            level = None
        level = self.agents[key] = level or Level(make(context), within)
        level.agent.follow(domain.others)
        return level

    def of(self, topic: bytes) -> tuple[tuple[Level, ...], ...]:
        """The agents that repair a topic, by domain from the innermost outwards."""
        return self.of_topics.get(topic, ((self.tree,),))

    def seeks(self, topic: bytes) -> bool:
        """Do agents ask members of a domain for what is missing?"""
        return topic in self.of_topics

    def find(
        self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Sequence[Contact]], upstream: Contact | None,
        beyond: Callable[[Findings], list[Range]], news: News = NO_NEWS,
    ) -> Iterator[Findings]:  # fmt: skip
        """Where ranges are, domain by domain outwards: an agent looks for what those before it do not find.

        `neighbours` are those in the topic's tree, by the innermost domain that they are in. Those that an agent does
        not name come last: the peer upstream takes part in giving up, and must be among them. `beyond` says what
        of an agent's findings nobody is about to send. What an agent has begun to look for, it looks for until that is
        found: otherwise new neighbours would have to be asked first each time.
        """
        inside: list[Contact] = []
        found, ripe = None, NO_RANGES
        for levels, near in zip_longest(self.of(stream.topic), neighbours, fillvalue=()):
            inside += near
            at_border = upstream not in inside
            for number, level in enumerate(levels or (self.tree,)):
                if found is not None:
                    lacks = RangeSet([*beyond(found), *level.seeks(stream, found.lacks), *ripe]).ranges()
                lacks, ripe = difference(lacks, RangeSet(news.new if at_border else news.awaited)), NO_RANGES
                if level.within is not None and not number:
                    level.within.lack(stream, lacks)
                found = level.find(stream, lacks, near, at_border=at_border)
                yield found
            ripe = news.for_long if at_border else NO_RANGES

    def filled(self, stream: StreamId) -> None:
        """Nothing of a stream is missing here any longer. Its topic may have had other agents when they were asked."""
        for within in self.inner.values():
            within.lack(stream, [])
        for level in (self.tree, *self.agents.values()):
            level.filled(stream)

    def link_lost(self, node: bytes) -> None:
        """A peer cannot be reached."""
        for level in self.agents.values():
            level.agent.link_lost(node)

    def _received(self, sender: Contact, message: AgentMessage) -> None:
        level = self.agents.get((message.scope, _protocol_of(message)))
        if level is not None:  # otherwise this peer is not a member, or no longer
            level.agent.received(sender, message)

    def _due(self, timer: AgentDue) -> None:
        level = self.agents.get((timer.scope, timer.protocol))
        if level is not None:
            level.agent.due(timer.what)


def _protocol_of(message: AgentMessage) -> str:
    if isinstance(message, AgentWord):
        return message.protocol
    return "ring" if isinstance(message, RingToken) else "srm"
