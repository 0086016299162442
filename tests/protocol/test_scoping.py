"""Scopes on whole peers: a site whose manager decides who is in the ring and who forwards to whom."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, UP
from quillcast.core.ids import ring_distance
from quillcast.core.messages import Contact, Message
from quillcast.core.multicast import SCHEME, parse
from quillcast.core.trace import Attached
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.reliability.recovery import Recovery
from quillcast.protocol.scopes.channels import KEY_BYTES, Party
from quillcast.protocol.scopes.hierarchy import ManagerMoved, scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import Reached
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.delay_optimised import DelayOptimised
from quillcast.protocol.scopes.policies.gossip import Gossip
from quillcast.protocol.scopes.policies.ip_multicast import IpMulticast
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.state import ScopeConfig
from quillcast.protocol.scoping.scoping import BEATS
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.messages import Invite
from quillcast.sim.host import SimHost
from quillcast.sim.network import isolated
from quillcast.sim.topology import Topology
from tests.params import kind, rest_long
from tests.protocol.topics.village import Reader, Village

LEASE_S = 4.0


class Network(Village):
    """All join the ring but the members of the site, who wait for orders."""

    def __init__(self, outside: int, config: Config | None, topology: Topology | None = None) -> None:
        self.outside = outside + 1  # and the manager's peer
        super().__init__(self.outside, config=config, topology=topology)

    def _start(self, host: SimHost) -> Peer:
        if host.machine.number < self.outside:
            return super()._start(host)
        peer = self.peers[host.machine.number] = Peer(host, self.config)
        return peer


class Site:
    """A village of which some machines are outside of a scope, one runs its manager, and the others are members."""

    def __init__(
        self, peers: int, policy: ScopePolicy, config: Config | None = None, *, outside: int = 1,
        recovery: str = "tree", topology: Topology | None = None,
    ) -> None:  # fmt: skip
        self.village = Network(outside, config, topology)
        self.policy, self.saved, self.outside, self.recovery = policy, b"", outside, recovery
        self.manager = self.village.world.machines[outside]
        self.party = Party(scope_id(b"site"), self.manager.contact, managed=True, name="site")
        self.around: list[int] = []  # peers of scopes around the site
        self.manage(ScopeManager.new(self.party, self.owners(), self.config))
        self.members = [self.add() for _ in range(peers)]
        self.village.run(10)
        ring = (*range(outside + 1), *[*self.around, *self.members][:3])
        self.ring = [self.village.world.machines[number].node_id for number in ring]
        self.name = self.rooted_at(0)

    def owners(self) -> Sequence[Party]:
        """The scopes that the site is a member of."""
        return ()

    def rooted_at(self, number: int) -> str:
        """A topic whose rendezvous point is this machine."""
        names, here = (f"news/{each}" for each in range(200)), self.village.world.machines[number].node_id
        return next(name for name in names if min(self.ring, key=lambda node: distance(node, name)) == here)

    @property
    def config(self) -> ScopeConfig:
        return ScopeConfig(lambda topic: self.policy, LEASE_S, recovery=lambda topic: self.recovery)

    def manage(self, manager: ScopeManager) -> None:
        manager.state.secret = manager.state.secret or bytes(KEY_BYTES)
        self.village.act(self.outside, lambda peer: peer.scoping.manage(manager, self.save))

    def save(self, state: bytes) -> bool:
        self.saved = state
        return True

    def add(self) -> int:
        """A new member."""
        return self.add_to(self.party)

    def add_to(self, scope: Party) -> int:
        """A new member of any scope."""
        machine = self.village.world.add()
        self.village.world.start(machine)
        self.village.act(machine.number, lambda peer: peer.scoping.join([scope], LEASE_S))
        return machine.number

    def in_ring(self) -> list[int]:
        return [number for number in self.members if not self.village.peers[number].overlay.outside]

    def subscribe(self, numbers: Iterable[int], name: str = "") -> dict[int, Reader]:
        readers = {number: Reader() for number in numbers}
        for number, reader in readers.items():
            self.village.subscribe(number, name or self.name, reader)
        self.village.run(10)
        return readers

    def parents(self, name: str = "") -> dict[int, int | None]:
        """The parent of each member in the topic's tree, by machine."""
        numbers = {machine.node_id: machine.number for machine in self.village.world.machines}
        alive, name = self.village.alive(), name or self.name
        trees = {number: self.village.tree(number, name) for number in self.members if number in alive}
        return {
            n: numbers[t.parent.node_id] if t.parent is not None else None for n, t in trees.items() if t is not None
        }

    def entered(self) -> list[int]:
        """The members whose parent is outside of the scope."""
        return [number for number, parent in self.parents().items() if parent is not None and parent < 2]

    def move(self, number: int, to: int) -> None:
        """Have a member become the child of another peer."""
        topic, contact = described(self.name).topic, self.village.world.machines[to].contact
        self.village.act(number, lambda peer: peer.topics.membership.move([topic], contact))

    def publish(self, *payloads: bytes) -> None:
        publisher = self.village.publisher(0, self.name)
        for payload in payloads:
            self.village.publish(0, publisher, payload)
        self.village.run(5)


def distance(node: bytes, name: str) -> int:
    return ring_distance(node, described(name).topic)


def test_three_members_have_a_place_in_the_ring_and_the_others_reach_it_through_them() -> None:
    site = Site(6, Star())
    assert site.in_ring() == site.members[:3]
    assert all(site.village.peers[number].active for number in site.members)
    ring = {site.village.world.machines[number].node_id for number in (0, 1, *site.members[:3])}
    for number in (0, 1, *site.members[:3]):
        assert {contact.node_id for contact in site.village.peers[number].overlay.leaf_set} | {
            site.village.world.machines[number].node_id
        } == ring


def test_a_scope_hangs_below_one_peer_in_the_shape_that_its_policy_wants() -> None:
    site = Site(6, Chain())
    readers = site.subscribe(site.members)
    site.publish(b"a", b"b")
    assert all(reader.payloads == [b"a", b"b"] for reader in readers.values())
    parents = site.parents()
    assert [parent for parent in parents.values() if parent not in site.members] == [0], "one edge crosses the border"
    above = list(parents.values())
    assert all(above.count(number) <= 1 for number in site.members), "each serves one other"


def test_nobody_invites_a_member_whom_its_manager_did_not_tell_to() -> None:
    site = Site(4, Chain())
    site.subscribe(site.members)
    before, topic = site.parents(), described(site.name).topic
    outside = site.village.peers[1]
    for number in site.members:
        contact = site.village.world.machines[number].contact
        for invitation in (b"", bytes(8)):
            said = Invite([topic], invitation)
            site.village.act(1, lambda peer, contact=contact, said=said: peer.host.send(contact, said))
    site.village.act(site.members[0], lambda peer: peer.host.send(outside.host.contact, Invite([topic], bytes(8))))
    site.village.run(2)
    assert site.parents() == before
    assert site.village.world.journal.marks["uninvited"] == 9


def test_a_member_that_never_heard_of_a_topic_takes_in_whom_it_invites() -> None:
    site = Site(5, Star())
    invited, inviter = site.members[3:]
    site.subscribe([invited])
    topic, contact = described(site.name).topic, site.village.world.machines[invited].contact
    (manager, _) = site.village.peers[site.outside].scoping.managers[site.party.id]
    assert topic not in site.village.peers[inviter].topics.descriptors
    said = Invite([topic], manager.state.invitation(contact.node_id))
    site.village.act(inviter, lambda peer: peer.host.send(contact, said))
    site.village.run(0.5)
    assert site.parents()[invited] == inviter


def test_a_member_that_two_peers_invite_moves_ever_more_rarely() -> None:
    """One of them goes by orders of before, and invites it again as soon as it has lost it."""
    site = Site(4, Star())
    site.subscribe(site.members)
    above = site.parents()
    entry = site.entered()[0]
    moving, other = [number for number in site.members if number != entry][:2]
    assert above[moving] == entry
    for _ in range(60):
        if site.parents()[moving] == entry:
            site.move(moving, other)
        site.village.run(1)
    moves = [each for _, number, each in site.village.world.journal.records if number == moving]
    assert 4 <= sum(isinstance(each, Attached) for each in moves) <= 16


def test_a_scope_moves_up_where_a_peer_nearer_to_the_root_has_room() -> None:
    site = Site(6, Chain())
    readers = {1: Reader()}
    site.village.subscribe(1, site.name, readers[1])
    readers |= site.subscribe(site.members)
    entry = next(number for number, parent in site.parents().items() if parent == 0)
    site.move(entry, 1)
    site.village.run(0.5)
    assert site.parents()[entry] == 1
    site.village.run(5)
    assert site.parents()[entry] == 0
    asked = site.village.world.journal.marks["climbs"]
    site.publish(b"a")
    assert all(reader.payloads == [b"a"] for reader in readers.values())
    site.village.run(30)
    assert site.village.world.journal.marks["climbs"] == asked, "a child of the root does not ask, and nobody inside"


class Corners:
    """Members 1 and 2 are each next to one of the two peers outside, and all other ways are long."""

    def delay_s(self, a: int, b: int) -> float:
        return 0.005 if {a, b} in ({0, 4}, {1, 5}) else 0.04


def test_each_topic_has_the_entry_point_that_is_nearest_to_its_parent_outside() -> None:
    site = Site(7, Chain(), topology=Corners(), outside=2)
    names = [site.rooted_at(0), site.rooted_at(1)]
    for name in names:
        site.subscribe(site.members[3:6], name)
    site.village.run(30)
    assert [site.parents(names[0])[4], site.parents(names[1])[5]] == [0, 1]
    for name in names:
        outside = [number for number, parent in site.parents(name).items() if parent in (0, 1)]
        assert len(outside) == 1, "one edge crosses the border"
    site.subscribe(site.members[6:], names[0])
    site.village.run(5)
    assert [number for number, parent in site.parents(names[0]).items() if parent in (0, 1)] == [4]


def test_when_a_topics_own_entry_point_is_lost_its_scope_hangs_below_another_of_the_three() -> None:
    site = Site(7, Star(), topology=Corners(), outside=2)
    readers = site.subscribe(site.members[3:])
    site.village.run(30)
    assert site.parents()[4] == 0
    site.village.kill(4)
    site.village.run(3)
    publisher = site.village.publisher(0, site.name)
    site.village.publish(0, publisher, b"a")
    site.village.run(3)
    assert all(reader.payloads == [b"a"] for reader in readers.values())
    site.village.run(20)
    assert len([number for number, parent in site.parents().items() if parent in (0, 1)]) == 1


def test_an_entry_point_that_does_not_subscribe_itself_moves_up_too() -> None:
    site = Site(6, Star())
    site.village.subscribe(1, site.name, Reader())
    site.subscribe(site.members[3:])
    entry = next(number for number, parent in site.parents().items() if parent == 0)
    assert entry in site.members[:3]
    site.move(entry, 1)
    site.village.run(0.5)
    assert site.parents()[entry] == 1
    site.village.run(5)
    assert site.parents()[entry] == 0


def test_a_scope_asks_ever_more_rarely_where_nobody_nearer_to_the_root_has_room() -> None:
    site = Site(3, Star(), Config(topics=TopicConfig(children_per_topic_max=1)))
    site.village.subscribe(1, site.name, Reader())
    site.village.run(5)
    site.subscribe(site.members[:1])
    assert site.parents()[site.members[0]] == 1
    site.village.run(60)
    assert site.parents()[site.members[0]] == 1
    assert site.village.world.journal.marks["climbs"] == 7, "after 1, 2, 4, 8, 16 and 32 s"


def test_members_measure_the_round_trips_to_each_other_for_a_policy_that_asks_for_them() -> None:
    site = Site(4, DelayOptimised())
    site.subscribe(site.members)
    (manager, _) = site.village.peers[site.outside].scoping.managers[site.party.id]
    members = manager.members.labels
    trips = manager.measuring.round_trips.seconds
    measured = {(label, to) for label, known in trips.items() for to in known if to in members}
    assert len(measured) == 6, "each of the pairs"
    assert None not in [trip for known in trips.values() for trip in known.values()]


def test_a_stand_by_gets_a_place_in_the_ring_when_a_member_there_dies() -> None:
    site = Site(6, Star())
    readers = site.subscribe(site.members)
    site.village.kill(site.members[0])
    site.village.run(30)
    alive = [number for number in site.members[1:] if not site.village.peers[number].overlay.outside]
    assert alive == site.members[1:4]
    site.publish(b"after")
    assert all(readers[number].payloads == [b"after"] for number in site.members[1:])


@pytest.mark.parametrize("admission", ["root", "source"])
def test_a_member_without_a_place_in_the_ring_gets_one_for_its_own_topics_and_is_their_root(admission: str) -> None:
    site = Site(6, Star())
    village, creator = site.village, site.members[5]
    name, answers = f"{village.world.machines[creator].node_id.hex()}:room", []
    assert village.peers[creator].overlay.outside
    village.act(creator, lambda peer: peer.create(name, Settings(admission=admission), answers.append))
    village.run(5)
    readers = site.subscribe([0, *site.members[2:5]], name)
    assert (village.root(name), [each.settings.admission for each in answers]) == (creator, [admission])
    publishers = {number: village.publisher(number, name) for number in (1, site.members[4], creator)}
    village.run(5)
    for number, publisher in publishers.items():
        village.publish(number, publisher, b"from %d" % number)
    village.run(5)
    sent = [b"from %d" % number for number in publishers]
    assert all(sorted(reader.payloads) == sorted(sent) for reader in readers.values())
    assert [publisher.stable for publisher in publishers.values()] == [1, 1, 1]
    village.kill(creator)
    village.run(20)
    assert village.root(name) != creator
    village.publish(1, publishers[1], b"still there")
    village.run(5)
    assert all(reader.payloads[3:] == [b"still there"] for reader in readers.values())


def test_a_topic_moves_to_its_creator_when_that_begins_to_use_it() -> None:
    site = Site(6, Star())
    village, creator = site.village, site.members[5]
    name, reader = f"{village.world.machines[creator].node_id.hex()}:room", Reader()
    readers = site.subscribe([0, site.members[4]], name)
    publisher = village.publisher(1, name)
    village.publish(1, publisher, b"before")
    village.run(5)
    assert village.root(name) != creator
    assert village.peers[creator].overlay.outside
    village.subscribe(creator, name, reader)
    village.run(10)
    assert village.root(name) == creator
    village.publish(1, publisher, b"after")
    village.run(5)
    assert [each.payloads for each in readers.values()] == [[b"before", b"after"]] * 2
    assert reader.payloads == [b"after"]


@pytest.mark.parametrize(("silently", "within_s"), [(False, 1.0), (True, 6.0)])
@pytest.mark.parametrize("policy", [Star(), KAry(), Chain()])
def test_a_stand_by_takes_over_from_an_entry_point_without_the_manager(
    policy: ScopePolicy, *, silently: bool, within_s: float
) -> None:
    site = Site(9, policy)
    readers = site.subscribe(site.members)
    publisher = site.village.publisher(0, site.name)
    (entry,) = site.entered()
    site.village.kill(1)
    site.village.kill(entry, silently=silently)
    del readers[entry]
    for step in range(round(within_s / 0.1)):
        site.village.publish(0, publisher, b"%d" % step)
        site.village.run(0.1)
        assert len(site.entered()) <= 1, "one edge crosses the border, at all times"
    assert all(len(reader.payloads) > 0 for reader in readers.values()), f"data flows after {within_s:g} s"
    site.village.run(30)
    assert site.entered() == [site.members[1]], "the first stand-by"
    assert all(reader.payloads == [b"%d" % each for each in range(step + 1)] for reader in readers.values())


class Ticker:
    """Publishes ten times a second."""

    def __init__(self, site: Site) -> None:
        self.village, self.sent = site.village, list[bytes]()
        self.publisher = site.village.publisher(0, site.name)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.sent.append(b"%d" % len(self.sent))
            self.village.publish(0, self.publisher, self.sent[-1])
            self.village.run(0.1)


NOTICED_S = 2 * LEASE_S / BEATS
"""In its second sign of life after a pause an entry point knows whether a manager has answered."""


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("policy", rest_long([Star(), KAry(), Chain(), Mesh()], 1, kind))
def test_an_entry_point_that_returns_while_no_manager_answers_hangs_below_its_stand_by(
    policy: ScopePolicy, *, removed: bool
) -> None:
    """`removed`: the manager has given its place to the stand-by before it dies, and the returned one does not know."""
    site = Site(9, policy)
    readers, ticker = site.subscribe(site.members), Ticker(site)
    (entry,) = site.entered()
    paused = site.village.world.machines[entry].host
    assert paused is not None
    paused.pause()
    if not removed:
        site.village.kill(1)
    ticker.run(3 * LEASE_S)
    if removed:
        site.village.kill(1)
    paused.resume()
    ticker.run(NOTICED_S + 0.1)
    stand_by, parents = site.members[1], site.parents()
    for _ in range(200):
        ticker.run(0.1)
        assert site.entered() == [stand_by], "one edge crosses the border"
        assert site.parents() == parents, "nobody moves any more"
    site.village.world.start(site.manager)
    site.manage(ScopeManager.restored(site.saved, site.config))
    ticker.run(20)
    assert len(site.entered()) == 1
    assert all(reader.payloads == ticker.sent for reader in readers.values())


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("policy", rest_long([Star(), KAry(), Chain(), Mesh()], 1, kind))
def test_an_entry_point_that_was_cut_off_hangs_below_the_one_that_took_its_place(
    policy: ScopePolicy, *, named: bool
) -> None:
    """It was never silent itself. `named`: the manager names the other one, and is lost before the cut heals."""
    site = Site(9, policy)
    readers, ticker = site.subscribe(site.members), Ticker(site)
    (entry,) = site.entered()
    if not named:
        site.village.kill(1)
    cut = site.village.world.cut(isolated(entry))
    ticker.run(3 * LEASE_S)
    if named:
        site.village.kill(1)
    ticker.run(2 * LEASE_S)
    site.village.world.heal(cut)
    ticker.run(4 * LEASE_S)
    stand_by, parents = site.members[1], site.parents()
    for _ in range(200):
        ticker.run(0.1)
        assert site.entered() == [stand_by], "one edge crosses the border"
        assert site.parents() == parents, "nobody moves any more"
    site.village.world.start(site.manager)
    site.manage(ScopeManager.restored(site.saved, site.config))
    ticker.run(20)
    assert len(site.entered()) == 1
    assert all(reader.payloads == ticker.sent for reader in readers.values())


def test_an_entry_point_keeps_its_place_if_all_members_were_silent_together() -> None:
    site = Site(9, KAry())
    readers, parents, ticker = site.subscribe(site.members), site.parents(), Ticker(site)
    site.village.kill(1)
    hosts = [site.village.world.machines[number].host for number in site.members]
    for host in hosts:
        host.pause()
    ticker.run(2 * LEASE_S)
    for host in hosts:
        host.resume()
    ticker.run(60)
    site.village.run(5)
    assert site.parents() == parents
    assert all(reader.payloads == ticker.sent for reader in readers.values())


def test_an_orphan_above_the_stand_by_finds_another_parent() -> None:
    site = Site(4, Chain())
    stand_by, below = site.members[1], site.members[3]
    readers = site.subscribe([site.members[0], below])
    site.village.kill(1)
    readers[stand_by] = Reader()
    site.village.subscribe(stand_by, site.name, readers[stand_by])
    site.village.run(LEASE_S / 4)  # the entry point does not doubt its orders yet
    site.move(stand_by, below)
    site.village.run(1)
    assert site.parents() == {site.members[0]: 0, below: site.members[0], stand_by: below}
    site.village.kill(site.members[0])
    site.village.run(5)
    assert site.parents()[below] == 0
    site.publish(b"a")
    assert readers[stand_by].payloads == readers[below].payloads == [b"a"]


def test_data_goes_on_without_the_manager_and_it_comes_back_as_the_same_one() -> None:
    site = Site(6, Star())
    readers = site.subscribe(site.members)
    site.village.kill(1)
    site.village.run(20)
    site.publish(b"without a manager")
    late = Reader()
    newcomer = site.add()
    site.village.subscribe(newcomer, site.name, late)
    site.village.run(10)
    controller = site.village.peers[newcomer].scoping.controller
    assert controller is not None
    assert late.start is None
    assert "scope site is silent" in controller.membership.assignment(described(site.name).topic).why
    site.village.world.start(site.manager)
    site.manage(ScopeManager.restored(site.saved, site.config))
    site.village.run(30)
    assert late.start is not None
    site.publish(b"with it again")
    assert all(reader.payloads == [b"without a manager", b"with it again"] for reader in readers.values())
    assert late.payloads == [b"with it again"]


def test_a_manager_moves_to_another_peer_and_the_old_one_ends_when_it_returns() -> None:
    site = Site(6, Star())
    readers, old_state = site.subscribe(site.members), site.saved
    site.village.kill(1)
    site.village.run(6)
    here = site.village.world.machines[0].contact
    party = Party(site.party.id, here, managed=True, name="site")
    moved = ScopeManager.restored(old_state, site.config, scope=party)
    site.village.act(0, lambda peer: peer.scoping.manage(moved, site.save))
    site.village.run(2 * LEASE_S)
    owners = [site.village.peers[number].scoping.controller.membership.owners for number in site.members]
    assert [owner[party.id].party.contact for owner in owners] == [here] * 6
    assert len(moved.state.members) == 6
    site.village.world.start(site.manager)
    old = ScopeManager.restored(old_state, site.config)
    site.village.act(1, lambda peer: peer.scoping.manage(old, lambda state: True))
    site.village.run(2 * LEASE_S)
    assert site.village.peers[1].scoping.managers == {}
    with pytest.raises(ManagerMoved, match="moved to the peer at"):
        ScopeManager.restored(old.saved(), site.config)
    assert len(moved.state.members) == 6
    site.publish(b"after all that")
    assert all(reader.payloads == [b"after all that"] for reader in readers.values())


def test_a_manager_that_returns_with_old_state_ends_and_goes_on_if_it_is_started_again() -> None:
    site = Site(4, Star())
    backup = site.saved
    for _ in range(3):
        site.manage(ScopeManager.restored(site.saved, site.config))
        site.village.run(1)
    latest, _ = site.village.peers[1].scoping.managers[site.party.id]
    site.manage(ScopeManager.restored(backup, site.config))
    site.village.run(1)
    assert site.village.peers[1].scoping.managers == {}
    again = ScopeManager.restored(site.saved, site.config)
    assert again.state.epoch > latest.state.epoch
    site.manage(again)
    site.village.run(2 * LEASE_S)
    assert len(again.state.members) == 4
    assert site.village.peers[1].scoping.managers.keys() == {site.party.id}


def test_nobody_takes_a_scope_over_without_its_key() -> None:
    site = Site(4, Star())
    thief = ScopeManager.restored(site.saved, site.config)
    thief.state.scope = Party(site.party.id, site.village.world.machines[0].contact, managed=True, name="site")
    thief.state.secret, thief.state.epoch = b"another", 99
    site.village.act(0, lambda peer: peer.scoping.manage(thief, lambda state: True))
    site.village.run(2 * LEASE_S)
    owners = [site.village.peers[number].scoping.controller.membership.owners for number in site.members]
    assert [owner[site.party.id].party.contact for owner in owners] == [site.manager.contact] * 4
    assert site.village.peers[1].scoping.managers.keys() == {site.party.id}


def spread(site: Site, payloads: Iterable[bytes]) -> None:
    """Publish these, each in a bundle of its own, and wait for less than the time after which gaps are repaired."""
    publisher = site.village.publisher(0, site.name)
    for payload in payloads:
        site.village.publish(0, publisher, payload)
        site.village.run(0.02)
    site.village.run(0.3)


def carried_beside(site: Site) -> int:
    """The channels that lead past the topic's tree."""
    trees = [site.village.tree(number, site.name) for number in site.members]
    return sum(len(tree.beside) for tree in trees if tree is not None)


EVENTS = [b"%d" % number for number in range(40)]


@pytest.mark.parametrize("policy", [Ring(), Mesh(), Stripes(stripes=3)])
def test_bundles_take_the_channels_of_a_policy_that_is_no_tree(policy: ScopePolicy) -> None:
    site = Site(8, policy)
    readers = site.subscribe(site.members)
    assert carried_beside(site) > len(site.members) // 2
    spread(site, EVENTS)
    assert {number: reader.payloads for number, reader in readers.items()} == dict.fromkeys(readers, EVENTS)
    assert "asked_for_range" not in site.village.world.journal.marks


def by_sources(site: Site, *numbers: int) -> Callable[[bytes], list[bytes]]:
    """Have sources number the topic's events, and publish at these machines: what each call publishes."""
    site.village.act(0, lambda peer: peer.create(site.name, Settings(admission="source"), lambda answer: None))
    site.village.run(2)
    publishers = {number: site.village.publisher(number, site.name) for number in numbers}

    def publish(payload: bytes) -> list[bytes]:
        for number, publisher in publishers.items():
            site.village.publish(number, publisher, b"%d %s" % (number, payload))
        site.village.run(0.02)
        return [b"%d %s" % (number, payload) for number in publishers]

    return publish


BESIDE_THE_TREE = [Ring(), Mesh(), Stripes(stripes=3), Gossip(), DelayOptimised(per_origin=True)]


@pytest.mark.parametrize("policy", BESIDE_THE_TREE, ids=lambda policy: type(policy).__name__)
def test_so_do_those_of_sources_inside_and_outside(policy: ScopePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(9, policy)
    inside, only_publishes = site.members[4], site.members[8]
    publish = by_sources(site, 0, inside, only_publishes)
    readers = site.subscribe(site.members[:8])
    outside = Reader()
    site.village.subscribe(0, site.name, outside)
    site.village.run(5)
    recorded, carry = Counter[bool](), SimHost.carry

    def noted(host: SimHost, to: Contact, bundle: Bundle) -> None:
        inside = host.number in site.members and to != site.village.world.machines[0].contact
        recorded[bool(bundle.envelope.record)] += inside and bundle.envelope.kind is DOWN
        carry(host, to, bundle)

    monkeypatch.setattr(SimHost, "carry", noted)
    sent = [payload for event in EVENTS for payload in publish(event)]
    site.village.run(0.3 if policy.delivery != "lossy" else 5)
    for reader in (*readers.values(), outside):
        assert sorted(reader.payloads) == sorted(sent)
    assert recorded[False] == 0
    assert recorded[True] >= len(sent) * (len(readers) - 1)
    if policy.delivery != "lossy":
        assert "asked_for_range" not in site.village.world.journal.marks
    assert site.village.dropped("misrouted") == 0


@pytest.mark.parametrize("policy", [Ring(), Mesh()])
def test_with_redundant_channels_the_loss_of_a_member_delays_nobody(policy: ScopePolicy) -> None:
    site = Site(8, policy)
    readers = site.subscribe(site.members)
    forwarder = next(n for n in site.members[3:] if site.village.tree(n, site.name).beside)
    site.village.kill(forwarder)
    spread(site, EVENTS)
    assert all(reader.payloads == EVENTS for number, reader in readers.items() if number != forwarder)


def change_under_load(site: Site, policy: ScopePolicy, publish: Callable[[], object]) -> None:
    """Change the policy, and publish until the change is complete and a little longer."""
    swaps = site.village.peers[1].scoping.managers[site.party.id][0].swaps
    site.policy = policy
    site.village.act(1, lambda peer: peer.scoping.policies_changed(site.party.id))
    for _ in range(300):
        publish()
        if swaps.running == {} and [*swaps.in_force.values()] == [policy]:
            break
    else:
        raise AssertionError(f"after 6 s, {swaps.in_force} are in force, and {swaps.running} is being changed")
    for _ in range(50):
        publish()


POLICIES = [Star(), Ring(), IpMulticast(), Stripes(stripes=3), KAry(fan_out=2), Mesh(), Chain()]


@pytest.mark.parametrize("first", [Star(), Mesh(), Chain()], ids=lambda policy: type(policy).__name__)
def test_with_recovery_switched_off_policies_change_under_load_and_nothing_is_lost(
    first: ScopePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recovery, "_look", lambda recovery, timer: None)  # it notices nothing that is missing
    monkeypatch.setattr("quillcast.sim.host.DATAGRAM_LOSS", 0.0)
    site = Site(8, first)
    readers = site.subscribe(site.members)
    publisher, sent, parents = site.village.publisher(0, site.name), list[bytes](), site.parents()

    def publish() -> None:
        sent.append(b"%d" % len(sent))
        site.village.publish(0, publisher, sent[-1])
        site.village.run(0.02)

    for policy in [each for each in POLICIES if each != first]:
        change_under_load(site, policy, publish)
        assert site.parents() == parents, "nobody moves in the tree"
    site.village.run(0.3)
    assert all(reader.payloads == sent for reader in readers.values())
    assert "asked_for_range" not in site.village.world.journal.marks


@pytest.mark.parametrize("answered", [True, False])
def test_when_a_policy_changes_no_bundle_has_to_open_a_link(*, answered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members open the links of new channels before they acknowledge them. One that gets no answer does so, too."""
    site, opened, carry, send = Site(8, Ring()), list[int](), SimHost.carry, SimHost.send

    def carried(host: SimHost, to: Contact, bundle: Bundle) -> None:
        if to.node_id not in host.links and to.node_id != host.me:
            opened.append(host.number)
        carry(host, to, bundle)

    def sent(host: SimHost, to: Contact, message: Message) -> None:
        if answered or not isinstance(message, Reached):
            send(host, to, message)

    monkeypatch.setattr(SimHost, "send", sent)
    readers = site.subscribe(site.members)
    spread(site, EVENTS)
    monkeypatch.setattr(SimHost, "carry", carried)
    site.policy = Stripes(stripes=3)
    site.village.act(1, lambda peer: peer.scoping.policies_changed(site.party.id))
    site.village.run(5)
    manager = site.village.peers[1].scoping.managers[site.party.id][0]
    assert [*manager.swaps.in_force.values()] == [site.policy]
    spread(site, EVENTS)
    assert opened == []
    assert all(reader.payloads == [*EVENTS, *EVENTS] for reader in readers.values())


@pytest.mark.parametrize("first", rest_long([Mesh(), Chain()], 1, kind))
def test_nor_is_anything_that_sources_number(first: ScopePolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "_look", lambda recovery, timer: None)
    monkeypatch.setattr("quillcast.sim.host.DATAGRAM_LOSS", 0.0)
    site = Site(9, first)
    publish = by_sources(site, 0, site.members[4], site.members[8])
    readers, sent = site.subscribe(site.members[:8]), list[bytes]()
    for policy in [first, *(each for each in POLICIES if each != first), DelayOptimised(per_origin=True)]:
        change_under_load(site, policy, lambda: sent.extend(publish(b"%d" % len(sent))))
    site.village.run(0.3)
    assert all(sorted(reader.payloads) == sorted(sent) for reader in readers.values())
    assert "asked_for_range" not in site.village.world.journal.marks


def multicast(site: Site, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Bundles that go to the group from now on, and those that go over links of the site: who sends each."""
    to_all, to_one, carry = list[int](), list[int](), SimHost.carry

    def counted(host: SimHost, to: Contact, bundle: Bundle) -> None:
        within = host.number in site.members and bundle.envelope.kind is not UP
        (to_all if to.address.startswith(SCHEME) else to_one if within else []).append(host.number)
        carry(host, to, bundle)

    monkeypatch.setattr(SimHost, "carry", counted)
    return to_all, to_one


def test_over_ip_multicast_one_member_sends_each_bundle_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quillcast.sim.host.DATAGRAM_LOSS", 0.0)
    site = Site(8, IpMulticast())
    readers = site.subscribe(site.members)
    to_all, to_one = multicast(site, monkeypatch)
    spread(site, EVENTS)
    assert {number: reader.payloads for number, reader in readers.items()} == dict.fromkeys(readers, EVENTS)
    assert to_all == site.entered() * len(EVENTS)
    assert to_one == []
    large = bytes(parse(IpMulticast().mechanism).bundle_bytes_max)
    spread(site, [large])
    assert all(reader.payloads == [*EVENTS, large] for reader in readers.values())
    assert len(to_all) == len(EVENTS)
    assert len(to_one) == len(site.members) - 1, "over links of the tree"
    assert "asked_for_range" not in site.village.world.journal.marks


def test_what_ip_multicast_loses_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quillcast.sim.host.DATAGRAM_LOSS", 0.3)
    site = Site(8, IpMulticast())
    readers = site.subscribe(site.members)
    to_all, to_one = multicast(site, monkeypatch)
    spread(site, EVENTS)
    site.village.run(5)
    assert all(reader.payloads == EVENTS for reader in readers.values())
    assert len(to_all) == len(EVENTS)
    assert 0.2 * 7 * len(EVENTS) < len(to_one) < 0.5 * 7 * len(EVENTS)


def test_who_leaves_a_scope_has_no_key_of_its_group_any_more() -> None:
    site = Site(5, IpMulticast())
    site.subscribe(site.members)
    leaver, *others = (site.village.peers[number] for number in site.members[::-1])
    (before,) = {key for peer in (leaver, *others) for key in peer.scoping.groups.values()}
    site.village.act(site.members[-1], lambda peer: peer.scoping.leave())
    site.village.run(LEASE_S)
    assert leaver.scoping.groups == {}
    (after,) = {key for peer in others for key in peer.scoping.groups.values()}
    assert before != after


def test_gossip_reaches_all_with_the_help_of_repair() -> None:
    site = Site(12, Gossip(fan_out=2, view=6))
    readers = site.subscribe(site.members)
    spread(site, EVENTS)
    site.village.run(5)
    assert all(reader.payloads == EVENTS for reader in readers.values())


def test_who_enters_a_mesh_while_events_flow_gets_them_over_channels() -> None:
    """What it repairs seems to begin there, where no bundle returns to; those from outside begin at the entry point."""
    site = Site(11, Mesh(), outside=2)
    site.subscribe(site.members[:10])
    reader, publisher, marks = Reader(), site.village.publisher(0, site.name), site.village.world.journal.marks
    for number in range(40):
        if number == 5:
            site.village.subscribe(site.members[10], site.name, reader)
        if number == 25:
            asked = marks.get("asked_for_range", 0)
        site.village.publish(0, publisher, b"%d" % number)
        site.village.run(0.5)
    assert reader.payloads[-15:] == [b"%d" % number for number in range(25, 40)]
    assert marks.get("asked_for_range", 0) == asked


def test_a_peer_is_consistent_only_if_its_publishers_and_the_managers_here_are() -> None:
    site = Site(2, Star())
    peer = site.village.peers[1]
    publisher = site.village.publisher(1, site.name)
    peer.check()
    publisher.retained_bytes += 1
    with pytest.raises(AssertionError):
        peer.check()
    publisher.retained_bytes -= 1
    peer.scoping.managers[site.party.id][0].state.next_label = 0
    with pytest.raises(AssertionError):
        peer.check()
