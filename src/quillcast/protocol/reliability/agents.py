"""The agents of one peer: one in each recovery domain that it is a member of, whatever topics that domain serves."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.reliability.domain import AgentDue, Bottom, Post, RecoveryProtocol, RecoveryTimes
from quillcast.protocol.reliability.messages import AGENT_MESSAGES, AgentMessage, AgentWord, RingToken
from quillcast.protocol.reliability.protocols import BUILT_IN
from quillcast.protocol.reliability.protocols.along_tree import AlongTree

TREE = AlongTree()
"""The agent in topics of no scope, and where a scope's manager orders a protocol that is not known here."""


Protocols = Mapping[str, Callable[[Post], RecoveryProtocol]]
"""Recovery protocols by name. Each makes an agent."""


class Domain(NamedTuple):
    """A recovery domain that this peer is a member of."""

    scope: bytes
    """The scope whose members it has."""
    protocol: str
    """The name of its recovery protocol."""
    others: tuple[Contact, ...]
    """The members that come after this one in their circle, the next one first; not all of many."""


class Agents:
    """Makes agents as domains are ordered, and passes them what is for them."""

    __slots__ = ("agents", "bottom", "host", "of_topics", "others", "times")

    def __init__(self, host: Host, times: RecoveryTimes, bottom: Bottom, dispatch: Dispatch) -> None:
        self.host, self.times, self.bottom = host, times, bottom
        self.agents: dict[tuple[bytes, str], RecoveryProtocol] = {}
        self.of_topics: dict[bytes, RecoveryProtocol] = {}
        self.others: Protocols = {}  # that other packages offer
        dispatch.on_messages(AGENT_MESSAGES, self._received)
        dispatch.on_timer(AgentDue, self._due)

    def follow(self, domains: Mapping[bytes, Domain]) -> None:
        """By topic: the domain that it is repaired in from now on. Agents of other domains end."""
        former, self.agents, self.of_topics = self.agents, {}, {}
        for topic, domain in domains.items():
            key = domain.scope, domain.protocol
            make = BUILT_IN.get(domain.protocol) or self.others.get(domain.protocol)
            if make is None:
                self.host.trace(Mark("recovery_protocol_unknown"))
                continue
            if key not in self.agents:
                post = Post(self.host, self.times, domain.scope, self.bottom)
                self.agents[key] = former.get(key) or make(post)
                self.agents[key].follow(domain.others)
            self.of_topics[topic] = self.agents[key]
        for key, agent in former.items():
            if key not in self.agents:
                agent.end()

    def of(self, topic: bytes) -> RecoveryProtocol:
        """The agent that a topic is repaired by."""
        return self.of_topics.get(topic, TREE)

    def link_lost(self, node: bytes) -> None:
        """A peer cannot be reached."""
        for agent in self.agents.values():
            agent.link_lost(node)

    def _received(self, sender: Contact, message: AgentMessage) -> None:
        agent = self.agents.get((message.scope, _protocol_of(message)))
        if agent is not None:  # else this peer is not, or not any more, a member
            agent.received(sender, message)

    def _due(self, timer: AgentDue) -> None:
        agent = self.agents.get((timer.scope, timer.protocol))
        if agent is not None:
            agent.due(timer.what)


def _protocol_of(message: AgentMessage) -> str:
    if isinstance(message, AgentWord):
        return message.protocol
    return "ring" if isinstance(message, RingToken) else "srm"
