"""A virtual cluster: a scope whose members are managed by other scopes too (figure 5).

Alice and Bob sit in the cafeteria, Charlie, Dave and Erin in the library. Each place is a scope with a policy of its
own. Alice and Charlie are in one virtual room, Bob, Charlie and Dave in another: scopes that care for their topics,
wherever the members sit.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import pytest

from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.hierarchy import TwoRootScopes, scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import ClientRights, TopicBounds
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.state import ScopeConfig
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.messages import Join, Rejoin
from tests.protocol.test_scoping import LEASE_S, Network
from tests.protocol.topics.village import Reader

PLACES: dict[str, tuple[ScopePolicy, str]] = {"cafeteria": (Star(), "tree"), "library": (Chain(), "ring")}
ROOMS: dict[str, tuple[ScopePolicy, str]] = {"room-1": (Ring(), "srm"), "room-2": (Mesh(), "tree")}
PEOPLE = {
    "alice": ("cafeteria", "room-1"),
    "bob": ("cafeteria", "room-2"),
    "charlie": ("library", "room-1", "room-2"),
    "dave": ("library", "room-2"),
    "erin": ("library",),
}

HALL = "hall"  # a topic that all rooms root at themselves


class Cluster:
    """Machine 0 is outside of all scopes, machine 1 runs all managers."""

    def __init__(self, clients: Mapping[str, ClientRights] = MappingProxyType({})) -> None:
        """`clients`: what those of members may do, by the scope."""
        self.clients = clients
        self.village, self.saved = Network(1, None), dict[str, bytes]()
        self.manager = self.village.world.machines[1]
        for name in (*PLACES, *ROOMS):
            self.manage(name)
        self.numbers = {name: self.add(scopes) for name, scopes in PEOPLE.items()}
        self.village.run(15)

    def party(self, name: str) -> Party:
        return Party(scope_id(name.encode()), self.manager.contact, managed=True, name=name)

    def manage(self, name: str) -> None:
        policy, recovery = (PLACES | ROOMS)[name]
        roots = ((f"{name}/#", True), (HALL, True)) if name in ROOMS else (("#", False),)
        carried = (name, HALL) if name in ROOMS else ""
        config = ScopeConfig(
            lambda topic: policy if topic.startswith(carried) else None, LEASE_S, roots=roots,
            recovery=lambda topic: recovery, clients=lambda topic: self.clients.get(name, "both"),
            bounds=(TopicBounds("#", clients=name in self.clients),),
        )  # fmt: skip
        saved = self.saved.get(name)
        manager = ScopeManager.restored(saved, config) if saved else ScopeManager.new(self.party(name), (), config)
        manager.state.secret = manager.state.secret or name.encode()
        self.village.act(1, lambda peer: peer.scoping.manage(manager, partial(self.save, name)))

    def save(self, name: str, state: bytes) -> bool:
        self.saved[name] = state
        return True

    def add(self, scopes: Sequence[str]) -> int:
        machine = self.village.world.add()
        self.village.world.start(machine)
        self.village.act(machine.number, lambda peer: peer.scoping.join(map(self.party, scopes), LEASE_S))
        return machine.number

    def subscribe(self, topic: str, *people: str) -> dict[str, Reader]:
        readers = {name: Reader() for name in people}
        for name, reader in readers.items():
            self.village.subscribe(self.numbers[name], topic, reader)
        self.village.run(10)
        return readers

    def publish(self, name: str, topic: str, payload: bytes) -> None:
        publisher = self.village.publisher(self.numbers.get(name, 0), topic)
        self.village.publish(self.numbers.get(name, 0), publisher, payload)
        self.village.run(5)

    def unaware(self, topic: str, *people: str) -> bool:
        return all(self.village.unaware(self.numbers.get(name, 0), topic) for name in people)


def test_topics_of_a_room_go_between_its_members_wherever_they_sit_and_nobody_else_hears_of_them() -> None:
    cluster = Cluster()
    first = cluster.subscribe("room-1/chat", "alice", "charlie")
    second = cluster.subscribe("room-2/chat", "bob", "charlie", "dave")
    cluster.publish("alice", "room-1/chat", b"one")
    cluster.publish("dave", "room-2/chat", b"two")
    scoping = cluster.village.peers[cluster.numbers["charlie"]].scoping
    names = [scoping.name(described(topic).topic) for topic in ("room-1/chat", "room-2/chat", "news")]
    assert names == ["room-1", "room-2", "library"]
    assert {name: reader.payloads for name, reader in first.items()} == {"alice": [b"one"], "charlie": [b"one"]}
    assert [reader.payloads for reader in second.values()] == [[b"two"]] * 3
    assert cluster.unaware("room-1/chat", "bob", "dave", "erin", "nobody")
    assert cluster.unaware("room-2/chat", "alice", "erin", "nobody")
    assert cluster.village.root("room-1/chat") in (cluster.numbers["alice"], cluster.numbers["charlie"])


def test_a_topic_that_two_running_scopes_root_at_themselves_is_refused_to_members_of_both() -> None:
    """Their files were never checked together."""
    cluster = Cluster()
    with pytest.raises(
        TwoRootScopes, match="topic hall is rooted at scope room-1, and cannot be rooted at scope room-2"
    ):
        cluster.subscribe(HALL, "charlie")
    asked = cluster.subscribe(HALL, "bob", "alice")  # Charlie would be the rendezvous point of both rooms
    why = (
        "topic hall is rooted at scope room-1, and cannot be rooted at scope room-2 too: use another topic, or say root"
    )
    assert [str(reader.error).startswith(why) for reader in asked.values()] == [True, True]


def test_all_other_topics_go_through_the_scope_of_the_place() -> None:
    cluster = Cluster()
    readers = cluster.subscribe("news", *PEOPLE)
    cluster.publish("nobody", "news", b"a")
    cluster.publish("charlie", "news", b"b")
    assert [reader.payloads for reader in readers.values()] == [[b"a", b"b"]] * len(PEOPLE)
    (managers, members) = cluster.village.peers[1].scoping.managers, cluster.numbers
    topics = {manager.state.scope.name: len(manager.state.topics) for manager, _ in managers.values()}
    assert topics == {"cafeteria": 1, "library": 1, "room-1": 0, "room-2": 0}
    assert not any(cluster.village.peers[number].overlay.outside for number in members.values()), "three of each place"


def test_each_room_repairs_and_survives_by_its_own_rules() -> None:
    cluster = Cluster()
    readers = cluster.subscribe("room-2/chat", "bob", "charlie", "dave")
    dead = cluster.village.root("room-2/chat")
    assert dead is not None
    names = {number: name for name, number in cluster.numbers.items()}
    cluster.village.kill(dead, silently=True)
    cluster.village.run(20)
    writer = next(name for name in readers if cluster.numbers[name] != dead)
    cluster.publish(writer, "room-2/chat", b"after")
    assert [reader.payloads for name, reader in readers.items() if name != names[dead]] == [[b"after"]] * 2


def test_a_member_of_a_room_goes_on_there_while_the_manager_of_all_is_down_and_after_it_is_back() -> None:
    cluster = Cluster()
    readers = cluster.subscribe("room-1/chat", "alice", "charlie")
    cluster.village.kill(1)
    cluster.village.run(2 * LEASE_S)
    cluster.publish("charlie", "room-1/chat", b"without")
    cluster.village.world.start(cluster.manager)
    for name in (*PLACES, *ROOMS):
        cluster.manage(name)
    cluster.village.run(3 * LEASE_S)
    cluster.publish("alice", "room-1/chat", b"with")
    assert [reader.payloads for reader in readers.values()] == [[b"without", b"with"]] * 2


def test_clients_have_the_rights_that_the_room_gives_in_its_topics_and_those_of_the_place_elsewhere() -> None:
    cluster = Cluster(clients={"room-1": "none"})
    scoping = cluster.village.peers[cluster.numbers["alice"]].scoping
    client = cluster.village.act(cluster.numbers["alice"], lambda peer: scoping.hosting.enter("board"))
    told = dict[str, list[str]]()
    for topic in ("room-1/chat", "news"):
        answers = told[topic] = list[str]()
        begin = partial(scoping.client_begins, client, topic, "subscribes", answers, answers.append)
        cluster.village.act(cluster.numbers["alice"], lambda peer, begin=begin: begin())
    cluster.village.run(3)
    assert told["news"] == [""]
    (why,) = told["room-1/chat"]
    assert why.startswith("clients may neither publish nor subscribe in topic room-1/chat, as the file of scope room-1")


def test_the_entry_point_of_a_place_takes_no_part_in_a_topic_of_a_room_that_it_is_not_in() -> None:
    """A member of both that lost its parent, an entry point of the place, may turn to the next one."""
    cluster = Cluster()
    cluster.subscribe("room-1/chat", "alice", "charlie")
    charlie, erin = cluster.numbers["charlie"], cluster.numbers["erin"]
    child = cluster.village.world.machines[charlie].contact
    descriptor = cluster.village.peers[charlie].topics.known.describe("room-1/chat")
    assert descriptor.settings.root_scope == "room-1"
    orphan = Rejoin(child, b"", [Join(descriptor.topic, child, descriptor=descriptor)])
    cluster.village.act(erin, lambda peer: peer.message(child, orphan))
    cluster.village.run(10)
    assert cluster.unaware("room-1/chat", "erin")
    assert cluster.village.root("room-1/chat") in (cluster.numbers["alice"], charlie)
