"""Scopes as members of a scope, on whole peers: a campus with sites, each of which has its own policy."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Envelope, Kind
from quillcast.core.messages import Contact, Message
from quillcast.core.multicast import SCHEME, parse
from quillcast.protocol.overlay.messages import Relay
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.filters import Modulo
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import (
    Alive,
    ChannelRequest,
    Control,
    Registration,
    RegistrationRefused,
    TopicBounds,
)
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.delay_optimised import DelayOptimised
from quillcast.protocol.scopes.policies.ip_multicast import IpMulticast
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.state import Entering, MayLeave, ScopeConfig
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.sim.host import SimHost
from quillcast.sim.topology import Topology
from tests.protocol.test_scoping import LEASE_S, Network
from tests.protocol.topics.test_inspection import survey
from tests.protocol.topics.village import Reader

TOPIC = "news/today"


class Campus:
    """Machine 1 runs the managers of all scopes: the campus, its sites, and a laboratory in the first site."""

    def __init__(
        self, top: ScopePolicy, sites: ScopePolicy, laboratory: ScopePolicy | None = None, peers: int = 0,
        topology: Topology | None = None, **config: Any,
    ) -> None:  # fmt: skip
        """`config` is that of all scopes; `north`, `south` and `campus` are those of one more."""
        self.village, self.saved = Network(1, None, topology), dict[str, bytes]()
        self.manager = self.village.world.machines[1]
        policies = {"campus": top, "north": sites, "south": sites, "laboratory": laboratory}
        apart = {name: config.pop(name, {}) for name in ("north", "south", "campus")}
        self.configs = {name: _config(policy, config) for name, policy in policies.items() if policy is not None}
        for name, more in apart.items():
            self.configs[name] = self.configs[name]._replace(**more)
        self.owners = {"campus": (), "north": ("campus",), "south": ("campus",), "laboratory": ("north",)}
        for name in self.configs:
            self.manage(name)
        self.members = {name: [self.add(name) for _ in range(4)] for name in self.configs if name != "campus"}
        self.members["campus"] = [self.add("campus") for _ in range(peers)]
        self.village.run(15)

    def party(self, name: str) -> Party:
        return Party(scope_id(name.encode()), self.manager.contact, managed=True, name=name)

    def manage(self, name: str) -> None:
        config, saved = self.configs[name], self.saved.get(name)
        owners = map(self.party, self.owners[name])
        manager = ScopeManager.restored(saved, config) if saved else ScopeManager.new(self.party(name), owners, config)
        manager.state.secret = manager.state.secret or name.encode()
        self.village.act(1, lambda peer: peer.scoping.manage(manager, partial(self.save, name)))

    def save(self, name: str, state: bytes) -> bool:
        self.saved[name] = state
        return True

    def add(self, scope: str) -> int:
        machine = self.village.world.add()
        self.village.world.start(machine)
        self.village.act(machine.number, lambda peer: peer.scoping.join([self.party(scope)], LEASE_S))
        return machine.number

    def everybody(self) -> list[int]:
        return [number for members in self.members.values() for number in members]

    def subscribe(self, numbers: Sequence[int]) -> dict[int, Reader]:
        readers = {number: Reader() for number in numbers}
        for number, reader in readers.items():
            self.village.subscribe(number, TOPIC, reader)
        self.village.run(30)
        return readers

    def publish(self, count: int) -> list[bytes]:
        publisher, sent = self.village.publisher(0, TOPIC), [b"%d" % number for number in range(count)]
        for payload in sent:
            self.village.publish(0, publisher, payload)
            self.village.run(0.02)
        self.village.run(0.3)
        return sent

    def parents(self) -> dict[int, int | None]:
        numbers = {machine.node_id: machine.number for machine in self.village.world.machines}
        here = [number for number in self.everybody() if number in self.village.alive()]
        trees = {number: self.village.tree(number, TOPIC) for number in here}
        return {n: numbers[t.parent.node_id] for n, t in trees.items() if t is not None and t.parent is not None}

    def entered(self, scope: str) -> list[int]:
        """The peers in the span of a scope whose parent is outside of it."""
        span = {*self.members[scope], *(self.members.get("laboratory", ()) if scope == "north" else ())}
        return [number for number, parent in self.parents().items() if number in span and parent not in span]

    def domains(self, number: int) -> int:
        """In how many recovery domains a peer has an agent for the topic."""
        return len(self.village.peers[number].recovery.agents.of_topics.get(described(TOPIC).topic, ()))

    def crossings(self) -> list[int]:
        """The edges of the topic's tree that lead into each scope below the campus."""
        return [len(self.entered(scope)) for scope in self.configs if scope != "campus"]


def _config(policy: ScopePolicy, config: dict[str, Any]) -> ScopeConfig:
    return ScopeConfig(lambda topic: policy, LEASE_S, **config)


POLICIES = [
    (Chain(), Star()), (KAry(), Ring()), (Ring(), Star()), (Mesh(), Stripes(stripes=3)),
    (Star(), Mesh()),
]  # fmt: skip


@pytest.mark.parametrize(("campus", "sites", "peers"), [(*each, 3) for each in POLICIES] + [(Ring(), Star(), 0)])
def test_a_bundle_goes_through_scopes_in_scopes_as_each_of_them_wants(
    campus: ScopePolicy, sites: ScopePolicy, peers: int
) -> None:
    nested = Campus(campus, sites, Chain(), peers)
    readers = nested.subscribe(nested.everybody())
    assert nested.crossings() == [1, 1, 1]
    sent = nested.publish(30)
    assert all(reader.payloads == sent for reader in readers.values())
    marks = nested.village.world.journal.marks
    assert "asked_for_range" not in marks
    assert nested.village.dropped("misrouted") == 0


def test_the_tree_names_scopes_from_the_inside_out_their_policies_and_the_channels_beside_it() -> None:
    nested = Campus(Chain(), Ring(), KAry(fan_out=2), 3)
    nested.subscribe(nested.everybody())
    branches = survey(nested.village, 0, TOPIC)
    nodes = {machine.node_id: machine.number for machine in nested.village.world.machines}
    around = {nodes[node]: [*map(astuple, branch.carriers)] for node, branch in branches.items()}
    campus, north, south = ("campus", "chain"), ("north", "ring"), ("south", "ring")
    assert [around[nested.members[name][0]] for name in nested.members] == [
        [north, campus], [south, campus], [("laboratory", "k_ary"), north, campus], [campus],
    ]  # fmt: skip
    assert around[0] == []
    ways = {nodes[node]: [way for way in branch.channels if not way.filter] for node, branch in branches.items()}
    inside = {number: {nodes[way.to.node_id] for way in ways[number]} for number in nested.members["south"]}
    assert [len(to & {*inside}) for to in inside.values()] == [2, 2, 2, 2]
    assert {nodes[child.node_id] for branch in branches.values() for child in branch.children} == {*nested.everybody()}


class Far:
    """A site is far from the campus, and near to another site."""

    def __init__(self, *far: int) -> None:
        self.far = far

    def delay_s(self, a: int, b: int) -> float:
        return 0.08 if {min(a, b), max(a, b)} & {*self.far} and max(a, b) == 10 else 0.005


@pytest.mark.parametrize("far", ["north", "south"])
def test_a_campus_goes_by_the_round_trips_between_its_sites(far: str) -> None:
    sites = {"north": range(2, 6), "south": range(6, 10)}
    nested = Campus(DelayOptimised(), Star(), peers=1, topology=Far(*sites[far]))
    readers = nested.subscribe(nested.everybody())
    (near,) = [name for name in sites if name != far]
    (manager, _) = nested.village.peers[1].scoping.managers[nested.party("campus").id]
    called = {label: each.party.name for label, each in manager.state.members.items()}
    channels = manager.state.topics[described(TOPIC).topic].channels
    assert {(called[each.source], called[each.target]) for each in channels} == {("", near), (near, far)}
    sent = nested.publish(30)
    assert all(reader.payloads == sent for reader in readers.values())


def publish_by_sources(nested: Campus, numbers: Sequence[int]) -> list[bytes]:
    """Publish what sources number, once members know them; the readers have it 0.3 s later, or it was asked for."""
    publishers = {number: nested.village.publisher(number, TOPIC) for number in numbers}
    nested.village.run(10)
    sent = [b"%d of %d" % (event, number) for event in range(10) for number in numbers]
    for payload in sent:
        number = int(payload.split()[-1])
        nested.village.publish(number, publishers[number], payload)
        nested.village.run(0.02)
    nested.village.run(0.3)
    return sent


def rooted(nested: Campus) -> None:
    """All topics are rooted at the campus."""
    nested.configs["campus"] = nested.configs["campus"]._replace(roots=(("#", True),))
    nested.village.act(1, lambda peer: peer.scoping.managers.clear())
    for name in nested.configs:
        nested.manage(name)
    nested.village.run(10)


@pytest.mark.parametrize("is_rooted", [False, True])
@pytest.mark.parametrize(("campus", "sites"), POLICIES)
def test_so_do_those_of_sources_in_both_directions(campus: ScopePolicy, sites: ScopePolicy, *, is_rooted: bool) -> None:
    """Of a site in which nobody subscribes, one publisher passes on what the others send."""
    nested = Campus(campus, sites, Chain(), 3)
    if is_rooted:
        rooted(nested)
    at, settings = nested.members["north"][0], Settings(admission="source")
    nested.village.act(at, lambda peer: peer.create(TOPIC, settings, lambda answer: None))
    nested.village.run(2)
    silent = nested.members["south"]
    readers = nested.subscribe([number for number in nested.everybody() if number not in silent])
    inside = [*silent[1:], nested.members["laboratory"][2]]
    sent = publish_by_sources(nested, inside if is_rooted else [0, *inside])
    assert all(sorted(reader.payloads) == sorted(sent) for reader in readers.values())
    marks = nested.village.world.journal.marks
    assert "asked_for_range" not in marks
    assert nested.village.dropped("misrouted") == 0
    if is_rooted:
        forwarding = [nested.village.tree(number, TOPIC).forwards for number in silent[1:]]
        assert sorted(forwarding) == [False, False, True]


@pytest.mark.parametrize(
    "config",
    [{"entry_points": 2}, {"replicas": 2}, {"entry_points": 2, "replicas": 2, "split": True}],
    ids="+".join,
)
def test_several_entry_points_and_delegates_share_the_bundles(config: dict[str, Any]) -> None:
    nested = Campus(Chain(), Ring(), Star(), 3, **config)
    readers = nested.subscribe(nested.everybody())
    assert nested.crossings() == [1, 1, 1]
    sent = nested.publish(30)
    assert all(reader.payloads == sent for reader in readers.values())
    assert "asked_for_range" not in nested.village.world.journal.marks


def sent_between_sites(nested: Campus, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of bundles that each member of a site sends to members of the other one, the most first."""
    nested.subscribe(nested.everybody())
    machines = nested.village.world.machines
    sites = {machines[number].node_id: site for site, members in nested.members.items() for number in members}
    sent, carry = Counter[bytes](), SimHost.carry

    def counted(host: SimHost, to: Contact, bundle: Bundle) -> None:
        here, there = sites.get(host.me), sites.get(to.node_id)
        if here is not None and there not in (None, here):
            sent[host.me] += bundle.size
        carry(host, to, bundle)

    monkeypatch.setattr(SimHost, "carry", counted)
    nested.publish(60)
    return [size for _, size in sent.most_common()]


def test_two_replicas_halve_what_one_sends_into_another_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = sent_between_sites(Campus(Chain(), Star(), None), monkeypatch)
    monkeypatch.undo()
    halves = sent_between_sites(Campus(Chain(), Star(), None, replicas=2), monkeypatch)
    assert [size / whole for size in halves] == [pytest.approx(0.5, abs=0.05)] * 2


@pytest.mark.parametrize("large", [False, True])
def test_senders_outside_reach_all_members_of_a_site_at_once(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quillcast.sim.host.DATAGRAM_LOSS", 0.0)
    nested = Campus(Star(), IpMulticast(), None, 2, south={"multicast": True})
    readers = nested.subscribe(nested.everybody())
    assert nested.crossings() == [1, 1]
    sent, carried, carry = Counter[tuple[int, str]](), list[bytes](), SimHost.carry

    def counted(host: SimHost, to: Contact, bundle: Bundle) -> None:
        if bundle.envelope.kind is not Kind.UP and to.address.startswith(SCHEME):
            sent[host.number, to.address[-16:]] += 1
        carry(host, to, bundle)

    monkeypatch.setattr(SimHost, "carry", counted)
    carried = nested.publish(10)
    if large:
        publisher = nested.village.publisher(0, TOPIC)
        carried.append(bytes(parse(IpMulticast().mechanism).bundle_bytes_max))
        nested.village.publish(0, publisher, carried[-1])
        nested.village.run(1)
    assert all(reader.payloads == carried for reader in readers.values())
    assert "asked_for_range" not in nested.village.world.journal.marks
    south = nested.party("south").id.hex()
    assert {group: count for (_, group), count in sent.items() if group in south} == {south[-16:]: 10}
    assert {number for number, _ in sent}.isdisjoint(nested.members["south"]), "they do not pass it on"


def test_only_who_is_to_send_into_a_site_is_told_the_key_of_its_group() -> None:
    nested = Campus(Star(), IpMulticast(), None, 2, south={"multicast": True})
    nested.subscribe(nested.everybody())
    south, topic = nested.party("south"), described(TOPIC).topic
    (manager, _), stranger = nested.village.peers[1].scoping.managers[south.id], nested.village.peers[0].host.contact
    senders, invitation = dict(manager.state.senders), manager.state.invitation(stranger.node_id)
    for shown in (b"", invitation):
        asks = ChannelRequest(south.id, Party(stranger.node_id, stranger), 1, (topic,), invitations=(shown,))
        nested.village.act(0, lambda peer, asks=asks: peer.host.send(south.contact, Control(south.id, asks)))
    nested.village.run(0.5)
    assert senders.keys() == manager.state.senders.keys() == manager.receiver.answers.keys()
    assert len(senders) == 1
    assert nested.village.world.journal.marks["uninvited_sender"] == 2


def test_what_is_lost_on_the_way_into_a_site_by_multicast_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quillcast.sim.host.DATAGRAM_LOSS", 0.3)
    nested = Campus(Star(), IpMulticast(), None, 2, south={"multicast": True})
    readers = nested.subscribe(nested.everybody())
    sent = nested.publish(20)
    nested.village.run(5)
    assert all(reader.payloads == sent for reader in readers.values())
    assert nested.crossings() == [1, 1]


def test_a_newcomer_registers_once_for_all_its_topics_and_waits_for_invitations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    campus, sent, send = Campus(Chain(), Star(), peers=3), list[Message](), SimHost.send
    *others, newcomer = campus.members["north"]
    names = [f"news/{number}" for number in range(4)]
    for number in others:
        for name in names:
            campus.village.subscribe(number, name, Reader())
    campus.village.run(30)

    def note(host: SimHost, to: Contact, message: Message) -> None:
        if host.machine.number == newcomer:
            sent.append(message.message if isinstance(message, Control) else message)
        send(host, to, message)

    monkeypatch.setattr(SimHost, "send", note)
    readers = [Reader() for _ in names * 2]
    for name, reader in zip(names * 2, readers, strict=True):
        campus.village.subscribe(newcomer, name, reader)
    campus.village.run(0.9)
    assert all(reader.start for reader in readers)
    assert len({each.serial for each in sent if isinstance(each, Registration)}) == 1
    assert not [each for each in sent if isinstance(each, Relay)]


def test_a_newcomer_whose_manager_says_nothing_asks_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    campus = Campus(Chain(), Star(), peers=3)
    campus.subscribe(campus.members["north"][:3])
    campus.village.kill(1, silently=True)
    reader = Reader()
    campus.village.subscribe(campus.members["north"][3], TOPIC, reader)
    campus.village.run(2)
    assert reader.start
    campus.village.run(LEASE_S)
    late = Reader()
    campus.village.subscribe(campus.members["south"][3], TOPIC, late)
    campus.village.run(0.9)
    assert late.start, "it does not wait for a manager that is known to be silent"
    sent = campus.publish(3)
    campus.village.run(3)
    assert [reader.payloads, late.payloads] == [sent, sent]


@pytest.mark.parametrize("silently", [False, True])
def test_data_goes_on_when_an_entry_point_and_all_managers_die(silently: bool) -> None:
    nested = Campus(Star(), Ring(), Chain(), 3)
    readers = nested.subscribe(nested.everybody())
    (entry,) = nested.entered("north")
    nested.village.kill(1)
    nested.village.kill(entry, silently=silently)
    del readers[entry]
    nested.village.run(6)
    sent = nested.publish(30)
    nested.village.run(5)
    assert {n: len(reader.payloads) for n, reader in readers.items()} == dict.fromkeys(readers, len(sent))
    nested.village.world.start(nested.manager)
    for name in nested.configs:
        nested.manage(name)
    nested.village.run(40)
    assert nested.crossings() == [1, 1, 1]


def test_a_superscope_follows_a_manager_that_moves_with_its_state_and_no_other() -> None:
    nested = Campus(Star(), Chain(), None, 3)
    readers = nested.subscribe(nested.everybody())
    campus, _ = nested.village.peers[1].scoping.managers[nested.party("campus").id]
    north, _ = nested.village.peers[1].scoping.managers.pop(nested.party("north").id)
    here = nested.village.world.machines[0].contact
    party = Party(north.state.scope.id, here, managed=True, name="north")
    stranger = ScopeManager.new(party, [nested.party("campus")], nested.configs["north"])
    stranger.state.secret = b"another"
    told = list[str]()
    nested.village.peers[0].scoping.obstructed = lambda scope, owner, why: told.append(f"{owner}: {why}")
    nested.village.act(0, lambda peer: peer.scoping.manage(stranger, lambda state: True))
    nested.village.run(8)
    (line,) = told
    assert line.startswith("campus: scope 'north' has a manager at ")
    assert "does not prove that it took over" in stranger.membership.owners[campus.state.scope.id].refused
    moved = ScopeManager.restored(nested.saved["north"], nested.configs["north"], scope=party)
    nested.village.act(0, lambda peer: peer.scoping.manage(moved, lambda state: True))
    nested.village.run(10)
    (member,) = [each for each in campus.state.members.values() if each.party.name == "north"]
    assert (member.party.contact, moved.membership.owners[campus.state.scope.id].refused) == (here, "")
    assert nested.crossings() == [1, 1]
    sent = nested.publish(10)
    assert all(reader.payloads == sent for reader in readers.values())


def best_effort(nested: Campus) -> None:
    nested.village.act(0, lambda peer: peer.create(TOPIC, Settings(delivery="best_effort"), lambda answer: None))
    nested.village.run(2)


HALF = Entering(Modulo(2, (0,)))


def test_a_superscope_ends_a_manager_that_returns_with_old_state_even_if_no_member_does() -> None:
    campus = Campus(Star(), Star())
    for number in campus.members["north"]:
        campus.village.kill(number)
    backup, north = campus.saved["north"], campus.party("north").id
    for _ in range(2):
        campus.manage("north")
        campus.village.run(2)
    campus.saved["north"] = backup
    campus.manage("north")
    campus.village.run(1)
    assert north not in campus.village.peers[1].scoping.managers
    campus.manage("north")
    campus.village.run(2 * LEASE_S)
    assert north in campus.village.peers[1].scoping.managers, "it goes on in a later epoch"


def test_a_filter_of_a_scope_decides_what_enters_it() -> None:
    nested = Campus(Star(), Chain(), Star(), 3, north={"entering": lambda topic: HALF})
    best_effort(nested)
    readers = nested.subscribe(nested.everybody())
    sent = nested.publish(30)
    inside = nested.members["north"] + nested.members["laboratory"]
    got = {number: len(reader.payloads) for number, reader in readers.items()}
    assert {number: 15 if number in inside else 30 for number in readers} == got
    nested.village.run(10)
    assert all(len(readers[number].payloads) == 15 for number in inside), "nobody asks for the others"
    assert len(sent) == 30


def test_what_the_topmost_scope_lets_in_its_entry_points_decide() -> None:
    nested = Campus(Star(), Chain(), None, 3, entering=lambda topic: HALF)
    best_effort(nested)
    outside = Reader()
    nested.village.subscribe(1, TOPIC, outside)
    readers = nested.subscribe(nested.members["campus"])
    nested.publish(30)
    assert {number: len(reader.payloads) for number, reader in readers.items()} == dict.fromkeys(readers, 15)
    assert len(outside.payloads) == 30


def test_subscribers_of_a_reliable_topic_are_owed_what_a_filter_would_stop() -> None:
    nested = Campus(Star(), Chain(), None, 3, north={"entering": lambda topic: HALF})
    nested.subscribe(nested.members["north"][:1])
    controller = nested.village.peers[nested.members["north"][0]].scoping.controller
    assert controller is not None
    why = controller.membership.assignment(described(TOPIC).topic).why
    assert f"the rule for topic {TOPIC} in the file of scope north has a filter, but subscribers" in why


@pytest.mark.parametrize("peers", [0, 3])
@pytest.mark.parametrize("in_all", [False, True])
def test_who_sends_into_a_scope_keeps_to_its_rate(peers: int, *, in_all: bool) -> None:
    slow = Entering(bundles_per_s=10)
    apart = {"in_all": slow} if in_all else {"entering": lambda topic: slow}
    nested = Campus(Star(), Ring(), Chain(), peers, north=apart)
    readers = nested.subscribe(nested.everybody())
    inside = [*nested.members["north"], *nested.members["laboratory"]]
    if not peers:  # bundles come from the overlay: its entry point keeps to the rate, as nobody else does
        inside.remove(*nested.entered("north"))
    sent = nested.publish(30)
    within = {number: len(readers[number].payloads) for number in inside}
    assert all(5 < count < 20 for count in within.values()), "that was about one second"
    assert all(readers[number].payloads == sent for number in nested.members["south"] if peers)
    nested.village.run(4)
    assert all(reader.payloads == sent for reader in readers.values())


@pytest.mark.parametrize("split", [False, True])
def test_a_bundle_that_goes_to_the_entry_point_and_to_a_group_counts_once_for_the_rate(
    *, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quillcast.sim.host.DATAGRAM_LOSS", 0.0)
    slow = {"entering": lambda topic: Entering(bundles_per_s=10), "multicast": True}
    nested = Campus(Star(), IpMulticast(), None, 0, south=slow, replicas=2, split=split)
    readers = nested.subscribe([*nested.members["north"], *nested.members["south"]])
    nested.publish(60)
    nested.village.run(1.5)
    members = nested.members["south"][1:]  # the first one, where bundles enter, asks for more
    assert {25 <= len(readers[number].payloads) <= 35 for number in members} == {True}, "that was three seconds"


def test_a_sender_keeps_to_what_its_own_scope_lets_out_and_follows_its_file() -> None:
    nested = Campus(
        Star(), Ring(), north={"leaving": lambda topic: MayLeave(bundles_per_s=10)},
        south={"entering": lambda topic: Entering(bundles_per_s=1000)},
    )  # fmt: skip
    readers = nested.subscribe(nested.everybody())
    south, _ = nested.village.peers[1].scoping.managers[nested.party("south").id]

    def in_time() -> list[int]:
        """How many events of 30 come to each member of the south within a second."""
        before = len(readers[nested.members["south"][0]].payloads)
        sent = nested.publish(30)
        assert all(readers[number].payloads[-30:] == sent for number in nested.members["north"])
        counts = [len(readers[number].payloads) - before for number in nested.members["south"]]
        nested.village.run(4)
        return counts

    def agreed() -> list[int]:
        return [rate.bundles_per_s for answer in south.receiver.answers.values() for _, spec in answer.specs
                for part in spec.parts for rate in part.rates]  # fmt: skip

    assert agreed() == [10]
    assert all(5 < count < 20 for count in in_time())
    nested.configs["north"] = nested.configs["north"]._replace(leaving=lambda topic: MayLeave(bundles_per_s=2000))
    nested.manage("north")
    nested.village.run(2)
    assert agreed() == [1000]
    assert in_time() == [30] * 4
    assert all(len(reader.payloads) == 60 for reader in readers.values())


def test_repairs_over_a_channel_into_a_scope_count_by_its_rate() -> None:
    nested = Campus(Star(), Ring(), north={"entering": lambda topic: Entering(bundles_per_s=10)})
    nested.subscribe(nested.everybody())
    (entry,) = nested.entered("north")
    (child, *_) = nested.village.tree(entry, TOPIC).leases.children
    peer, topic = nested.village.peers[entry], described(TOPIC).topic
    (gate,) = peer.scoping.installing.rate_limits.gates.values()
    group = peer.recovery.groups.find(topic)
    assert group is not None
    assert gate.is_full(peer.host.now())
    for _ in range(4):
        group.repairers.repaired(child, Bundle(Envelope(topic, Kind.REPAIR), []))
    assert not gate.is_full(peer.host.now())


@pytest.mark.parametrize("in_all", [False, True])
@pytest.mark.parametrize("scope", ["campus", "north"])
def test_what_members_publish_leaves_up_the_overlays_tree_at_the_rate_of_the_file(scope: str, *, in_all: bool) -> None:
    slow = MayLeave(bundles_per_s=10)
    nested = Campus(Star(), Ring(), **{scope: {"out_of_all": slow} if in_all else {"leaving": lambda topic: slow}})
    settings = Settings(admission="source")
    nested.village.act(0, lambda peer: peer.create(TOPIC, settings, lambda answer: None))
    readers = nested.subscribe([0, *nested.members["north"], *nested.members["south"]])
    writer = nested.members["north"][1]
    publisher = nested.village.publisher(writer, TOPIC)
    nested.village.publish(writer, publisher, b"first")
    nested.village.run(2)
    for number in range(30):
        nested.village.publish(writer, publisher, b"%d" % number)
        nested.village.run(0.02)
    nested.village.run(0.3)
    within = {number: len(reader.payloads) - 1 for number, reader in readers.items()}
    assert all(within[number] == 30 for number in nested.members["north"])
    assert 2 < within[0] < 20
    nested.village.run(8)
    assert all(len(reader.payloads) == 31 for reader in readers.values())


def test_no_more_subscribe_in_a_scope_than_its_file_says() -> None:
    bounds = {"entering": lambda topic: Entering(subscribers_max=2), "bounds": (TopicBounds("#", subscribes=True),)}
    nested = Campus(Star(), Chain(), None, 3, north=bounds)
    first, second, third, _ = nested.members["north"]
    readers = nested.subscribe([first, second, third])
    nested.publish(2)
    assert [len(reader.payloads) for reader in readers.values()] == [2, 2, 0]
    manager, _ = nested.village.peers[1].scoping.managers[nested.party("north").id]
    (kept,) = manager.state.topics.values()
    assert len(kept.entries) == 2
    controller = nested.village.peers[third].scoping.controller
    assert controller is not None
    assert (
        "has 2 of at most 2 subscribers in scope north" in controller.membership.assignment(described(TOPIC).topic).why
    )


def test_a_manager_believes_no_other_peer_that_speaks_for_a_member_scope() -> None:
    nested = Campus(Star(), Star())
    campus, north = nested.party("campus"), nested.party("north")
    manager, _ = nested.village.peers[1].scoping.managers[campus.id]
    stranger = replace(north, contact=nested.village.peers[0].host.contact)
    heard_at = manager.members.heard_at[north.id]
    for word in (Alive(campus.id, stranger, 1, 1), Registration(campus.id, stranger, 99)):
        nested.village.act(0, lambda peer, word=word: peer.host.send(campus.contact, Control(campus.id, word)))
    nested.village.run(0.2)
    member = manager.members.find(north.id)
    assert member is not None
    assert (member.party, manager.members.heard_at[north.id]) == (north, heard_at)


def test_a_scope_that_its_superscope_no_longer_admits_is_told_at_once_and_believes_nobody_else() -> None:
    nested, told = Campus(Star(), Star(), peers=3), list[str]()
    readers = nested.subscribe(nested.everybody())
    campus, north = nested.party("campus"), nested.party("north")
    nested.village.act(
        1, lambda peer: peer.scoping.tell(_nothing, lambda scope, owner, why: told.append(why), _nothing)
    )
    word = Control(north.id, RegistrationRefused(campus.id, 99, "go away"))
    nested.village.act(0, lambda peer: peer.host.send(north.contact, word))
    nested.village.run(0.2)
    assert told == []
    only_south = nested.configs["campus"]._replace(refusal=lambda party, *_: f"not {party.name}" * (party == north))
    nested.village.act(1, lambda peer: peer.scoping.reconfigure(campus.id, only_south))
    nested.village.run(0.2)
    member = nested.village.peers[nested.members["north"][3]].scoping.controller
    assert member is not None
    assert (told, member.membership.assignment(described(TOPIC).topic).why) == (["not north"], "not north")
    sent = nested.publish(3)
    assert all(reader.payloads == sent for reader in readers.values()), "north is in the overlay's tree"


def test_a_scope_whose_file_names_another_superscope_leaves_the_former_one_at_once() -> None:
    nested = Campus(Star(), Star())
    (campus, _), saved = nested.village.peers[1].scoping.managers[nested.party("campus").id], nested.saved["north"]
    manager = ScopeManager.restored(saved, nested.configs["north"], owners=())
    nested.village.act(1, lambda peer: peer.scoping.manage(manager, partial(nested.save, "north")))
    nested.village.run(0.2)
    assert campus.members.find(nested.party("north").id) is None
    assert campus.members.find(nested.party("south").id) is not None


def _nothing(*_: object) -> None: ...


@pytest.mark.parametrize("admission", ["root", "source"])
def test_a_member_of_a_scope_within_scopes_is_the_root_of_topics_that_name_it_as_their_creator(admission: str) -> None:
    campus = Campus(KAry(), KAry(), KAry(), 2)
    village, creator = campus.village, campus.members["laboratory"][-1]
    name, readers = f"{village.world.machines[creator].node_id.hex()}:room", dict[int, Reader]()
    assert village.peers[creator].overlay.outside
    village.act(creator, lambda peer: peer.create(name, Settings(admission=admission), lambda answer: None))
    village.run(8)
    for number in (0, *campus.everybody()):
        village.subscribe(number, name, readers.setdefault(number, Reader()))
    village.run(30)
    publishers = {number: village.publisher(number, name) for number in (0, creator, campus.members["south"][-1])}
    village.run(5)
    for number, publisher in publishers.items():
        village.publish(number, publisher, b"of %d" % number)
    village.run(5)
    assert village.root(name) == creator
    sent = sorted(b"of %d" % number for number in publishers)
    assert all(sorted(reader.payloads) == sent for reader in readers.values())
    assert [publisher.stable for publisher in publishers.values()] == [1, 1, 1]


def test_an_entry_point_outside_of_the_ring_looks_for_a_nearer_parent_too() -> None:
    """It joins through a member of its site that forwards for it alone, and is below the root in the end."""
    nested = Campus(Star(), Star())
    village, (ring, *_, reader) = nested.village, nested.members["north"]
    assert village.peers[reader].overlay.outside
    nested.subscribe([reader])
    assert nested.parents() == {reader: village.root(TOPIC)}
    assert village.tree(ring, TOPIC) is None
