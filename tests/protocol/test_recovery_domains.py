"""A scope as a recovery domain: its members repair among themselves, and ask outside for what nobody inside has."""

from collections.abc import Callable, Iterator, Sequence
from functools import partialmethod

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Kind
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol import wire
from quillcast.protocol.overlay.messages import Routed
from quillcast.protocol.reliability.domain import AgentContext, Findings, Silent, StreamId
from quillcast.protocol.reliability.messages import AgentWord, Fetch, FetchFromRoot, FetchFromSource
from quillcast.protocol.reliability.protocols import BUILT_IN
from quillcast.protocol.reliability.protocols.along_tree import AlongTree
from quillcast.protocol.scopes.messages import RecoveryName
from quillcast.protocol.scopes.policies import BUILT_IN as POLICIES
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.topics.descriptor import Choice, Settings, described
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.stability.tree_reports import child_report
from quillcast.sim.host import SimHost
from tests.params import kind, rest_long
from tests.protocol.test_nested_scoping import Campus
from tests.protocol.test_scoping import EVENTS, Site


class Losses:
    """Bundles to one peer are lost, and requests for ranges are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.to = b""
        self.requests: list[tuple[int, bytes, Fetch]] = []
        self._send, self._carry = SimHost.send, SimHost.carry
        monkeypatch.setattr(SimHost, "send", partialmethod(_swapped, self.send))
        monkeypatch.setattr(SimHost, "carry", partialmethod(_swapped, self.carry))

    def send(self, host: SimHost, to: Contact, message: Message) -> None:
        if isinstance(message, Fetch):
            self.requests.append((host.machine.number, to.node_id, message))
        self._send(host, to, message)

    def carry(self, host: SimHost, to: Contact, bundle: Bundle) -> None:
        if to.node_id != self.to:
            self._carry(host, to, bundle)


def _swapped(host: SimHost, method: Callable[..., None], *args: object) -> None:
    method(host, *args)


def publish(site: Site, payloads: list[bytes]) -> None:
    _publish(site, site.village.publisher(0, site.name), payloads)


def _publish(site: Site, publisher: Publisher, payloads: list[bytes]) -> None:
    for payload in payloads:
        site.village.publish(0, publisher, payload)
        site.village.run(0.1)


def takes_over_behind(policy: ScopePolicy, losses: Losses, recovery: RecoveryName) -> tuple[Site, list[bytes]]:
    """A stand-by misses what its scope has, and takes over from the entry point. Returns what it has in the end."""
    site = Site(6, policy, recovery=recovery)
    readers = site.subscribe(site.members)
    entry, stand_by = site.members[:2]
    assert site.entered() == [entry]
    losses.to = site.village.world.machines[stand_by].node_id
    publish(site, EVENTS)
    site.village.kill(entry)
    site.village.run(0.5)
    losses.to, losses.requests = b"", []
    site.village.run(20)
    assert site.entered() == [stand_by]
    return site, readers[stand_by].payloads


@pytest.mark.parametrize("policy", [Mesh(), Ring()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("recovery", BUILT_IN)
def test_what_a_member_holds_is_not_asked_for_outside(
    policy: ScopePolicy, recovery: RecoveryName, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = Losses(monkeypatch)
    site, payloads = takes_over_behind(policy, losses, recovery)
    assert payloads == EVENTS
    members = {site.village.world.machines[number].node_id for number in site.members}
    inside = [request for request in losses.requests if request[1] in members]
    assert inside, "it has been asked for"
    assert [request for request in losses.requests if request[1] not in members] == []
    assert "asked_root" not in site.village.marks


class OneHasIt(Losses):
    """What is to go into a scope goes to one member instead of the entry point, and no member sends it but as a repair.

    Requests that cross the border are counted: by members, and for them on the way to a source.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, site: Site, holder: int) -> None:
        super().__init__(monkeypatch)
        machines = site.village.world.machines
        self.members = {machines[number].node_id for number in site.members}
        self.holder, self.misdirects, self.crossed = machines[holder].contact, True, list[Message]()
        self.only_there = set[int]()

    def send(self, host: SimHost, to: Contact, message: Message) -> None:
        inner = wire.decode(message.payload) if isinstance(message, Routed) else message
        asks = isinstance(inner, Fetch | FetchFromRoot | FetchFromSource)
        if asks and host.me in self.members and to.node_id not in self.members:
            self.crossed.append(message)
        super().send(host, to, message)

    def carry(self, host: SimHost, to: Contact, bundle: Bundle) -> None:
        first = bundle.envelope.first
        if bundle.envelope.kind == Kind.DOWN and to.node_id in self.members:
            if host.me not in self.members and self.misdirects:
                self.only_there.add(first)
                to = self.holder
            elif first in self.only_there:
                return
        super().carry(host, to, bundle)


@pytest.mark.parametrize("policy", rest_long((each() for each in POLICIES.values()), 4, kind))
@pytest.mark.parametrize("recovery", BUILT_IN)
@pytest.mark.parametrize(
    ("admission", "later"),
    [
        ("root", 34),
        ("source", 0),
        pytest.param("root", 0, marks=pytest.mark.long),
        pytest.param("source", 34, marks=pytest.mark.long),
    ],
)
def test_nothing_crosses_the_border_for_what_one_member_holds_whoever_that_is(
    policy: ScopePolicy, recovery: RecoveryName, admission: Choice, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder is as far from the entry point as can be, and nobody next to that one has it.

    Later events may come to the entry point, or these are the last ones, of which only reports tell.
    """
    site = Site(7, policy, recovery=recovery)
    site.village.act(0, lambda peer: peer.create(site.name, Settings(admission=admission), lambda answer: None))
    readers = site.subscribe(site.members)
    publisher = site.village.publisher(0, site.name)
    _publish(site, publisher, EVENTS[:3])
    site.village.run(2)
    parents, (entry,) = site.parents(), site.entered()
    leaves = [number for number in site.members if number not in parents.values()]
    holder = max(leaves, key=lambda number: len(list(_way(parents, number))))
    has_it = OneHasIt(monkeypatch, site, holder)
    _publish(site, publisher, EVENTS[3:6])
    has_it.misdirects = False
    _publish(site, publisher, EVENTS[6 : 6 + later])
    assert len(has_it.only_there) == 3
    site.village.run(20)
    assert [reader.payloads for reader in readers.values()] == [EVENTS[: 6 + later]] * len(readers)
    assert site.entered() == [entry]
    assert has_it.requests, "members asked each other"
    assert has_it.crossed == []
    assert "asked_root" not in site.village.marks


def _way(parents: dict[int, int | None], number: int | None) -> Iterator[int]:
    """The peers above a member."""
    while number is not None and (number := parents.get(number)) is not None:
        yield number


def takes_over_with_its_site_behind(losses: Losses, recovery: RecoveryName) -> Campus:
    """The south has what the north had. Of the north only the laboratory is left, which missed it and takes over.

    Events come to its head again once it has agents in all three domains.
    """
    nested = Campus(Ring(), Star(), Star(), recovery=lambda topic: recovery)
    village, machines = nested.village, nested.village.world.machines
    readers = nested.subscribe([*nested.members["north"], *nested.members["south"]])
    readers |= nested.subscribe(nested.members["laboratory"])
    (head,) = nested.entered("laboratory")
    losses.to = machines[head].node_id
    nested.publish(30)
    for number in nested.members["north"]:
        village.kill(number)
    while nested.parents().get(head) != 0 or nested.domains(head) != 3:
        village.run(0.1)
    losses.to, losses.requests = b"", []
    village.run(20)
    assert all(len(readers[number].payloads) == 30 for number in nested.everybody() if number in village.alive())
    return nested


@pytest.mark.parametrize("recovery", BUILT_IN)
def test_what_another_site_holds_is_not_asked_for_outside_the_campus(
    recovery: RecoveryName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of the laboratory, of the north and of the campus asks in the domain of each of them."""
    losses = Losses(monkeypatch)
    nested = takes_over_with_its_site_behind(losses, recovery)
    machines, inside = nested.village.world.machines, nested.everybody()
    assert losses.requests
    assert {to for _, to, _ in losses.requests} <= {machines[number].node_id for number in inside}
    assert "asked_root" not in nested.village.marks


@pytest.mark.parametrize("recovery", ["tree", "ring", "srm"])
def test_a_scope_reports_as_if_it_were_one_peer_and_nothing_that_a_member_has_not(recovery: RecoveryName) -> None:
    """A member falls silent: what the scope acknowledges stands still until the member's lease has ended."""
    site = Site(6, KAry(fan_out=2), recovery=recovery)
    site.subscribe(site.members)
    (entry,) = site.entered()
    tree = site.village.tree(entry, site.name)
    assert tree is not None
    publish(site, EVENTS[:10])
    site.village.run(2)
    assert child_report(tree, b"", site.village.world.now).acknowledged == 10
    leaf = next(number for number in reversed(site.members) if number not in site.parents().values())
    site.village.kill(leaf, silently=True)
    publish(site, EVENTS[10:20])
    site.village.run(20)
    report = child_report(tree, b"", site.village.world.now)
    assert (report.acknowledged, report.frontier) == (10, 20)
    site.village.run(20)
    assert child_report(tree, b"", site.village.world.now).acknowledged == 20


class Greeter(Silent):
    """An agent of another package's protocol, which greets the member after its own."""

    def __init__(self, context: AgentContext) -> None:
        self.context, self.greeted = context, list[bytes]()

    def follow(self, others: tuple[Contact, ...]) -> None:
        for other in others[:1]:
            self.context.host.send(other, AgentWord(self.context.scope, "greeter", b"hello"))

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        return Findings((), neighbours, lacks)

    def received(self, sender: Contact, message: Message) -> None:
        assert isinstance(message, AgentWord)
        self.greeted.append(message.body)


def test_agents_of_another_packages_protocol_speak_where_that_is_installed() -> None:
    site = Site(4, Star(), recovery="greeter")
    *those_with, without = site.members
    for number in those_with:
        site.village.peers[number].recovery.agents.offer({"greeter": Greeter})
    site.subscribe(site.members)
    topic = described(site.name).topic
    agents = {number: site.village.peers[number].recovery.agents.of(topic)[0][0].agent for number in site.members}
    assert isinstance(agents[without], AlongTree)
    others = [agent for number, agent in agents.items() if number != without]
    greeted = [agent.greeted for agent in others if isinstance(agent, Greeter)]
    assert len(greeted) == 3
    assert b"hello" in [word for words in greeted for word in words]
