"""The client-host relation: the manager of a scope knows the clients of members, and says what they may do."""

from collections.abc import Sequence

import pytest

from quillcast.core.ids import topic_id
from quillcast.core.messages import Contact
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.clients import client_id, is_client_of
from quillcast.protocol.scopes.hosting import ClientHost
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import (
    Alive,
    ClientRights,
    Control,
    Deregistration,
    Orders,
    Registration,
    Role,
    TopicBounds,
)
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.state import ScopeConfig
from quillcast.protocol.scopes.uses import Doing, digest
from quillcast.protocol.topics.descriptor import described
from tests.protocol.scopes.network import Network, peer, scope
from tests.protocol.test_scoping import LEASE_S, Site
from tests.protocol.topics.village import Village


class Hosts(Site):
    """A site of two members, where clients may do this, and there are as many."""

    def __init__(self, rights: ClientRights = "both", clients_max: int = 0) -> None:
        self.rights, self.clients_max = rights, clients_max
        super().__init__(2, Star())

    @property
    def config(self) -> ScopeConfig:
        waits = self.rights != "both" or self.clients_max > 0
        return super().config._replace(
            clients=lambda topic: self.rights, clients_max=self.clients_max, bounds=(TopicBounds("#", clients=waits),)
        )

    def enter(self, name: str, at: int = 0) -> bytes:
        return self.village.peers[self.members[at]].scoping.hosting.enter(name)

    def begin(self, client: bytes, doing: Doing, at: int = 0) -> list[str]:
        """What the client is told."""
        told = list[str]()
        self.village.act(
            self.members[at], lambda peer: peer.scoping.client_begins(client, "news", doing, told, told.append)
        )
        return told

    def ids(self) -> list[bytes]:
        return [self.village.world.machines[number].node_id for number in self.members]

    @property
    def run_by(self) -> ScopeManager:
        (manager, _) = self.village.peers[self.outside].scoping.managers[self.party.id]
        return manager

    def known(self) -> dict[str, list[tuple[str, bool, bool]]]:
        """The clients by name, each with what it does."""
        return {
            each.party.name: [(role.name, role.publishes, role.subscribes) for role in each.roles.values()]
            for each in self.run_by.clients.known.values()
        }


def direct(site: Hosts, client: bytes, doing: Doing, at: int = 0, unreachable: Sequence[bytes] = ()) -> list[object]:
    """What the client is told of being served directly."""
    told = list[object]()
    site.village.act(
        site.members[at],
        lambda peer: peer.scoping.client_directs(
            client,
            "news",
            doing,
            told,
            digest(b"secret"),
            unreachable,
            told.append,
            lambda server, why: told.append(server or why),
        ),
    )
    return told


def test_a_manager_names_a_member_that_serves_a_client_past_its_host() -> None:
    site = Hosts()
    site.village.run(LEASE_S)
    scores, board = site.enter("scores"), site.enter("board", at=1)
    told = [direct(site, scores, "publishes"), direct(site, board, "subscribes", at=1)]
    assert told == [[], []], "the manager decides"
    site.village.run(1)
    first, second = (site.village.world.machines[number].contact for number in site.members)
    assert told == [["", second], ["", first]]
    for at, client, doing in ((1, scores, "publishes"), (0, board, "subscribes")):
        guest = site.village.peers[site.members[at]].scoping.direct.guests.enter(client, b"secret")
        assert guest is not None
        assert guest.may("news", doing)
    assert site.known() == {"scores": [("news", True, False)], "board": [("news", False, True)]}


def test_another_peer_is_named_at_once_when_the_manager_has_answered_for_the_topic() -> None:
    site = Hosts()
    site.village.run(LEASE_S)
    client, second = site.enter("board"), site.village.world.machines[site.members[1]].contact
    direct(site, client, "subscribes")
    site.village.run(1)
    hosting = site.village.peers[site.members[0]].scoping.hosting
    hosting.end(client, "news", "subscribes", object())
    assert hosting.clients[client].roles() == {}
    told = direct(site, client, "subscribes", unreachable=[second.node_id])
    first, why = told
    assert (first, "the client cannot reach" in str(why)) == ("", True)
    assert hosting.clients[client].roles()[topic_id("news")].direct == ("subscribes",)


def test_outside_of_scopes_the_peer_at_which_a_topic_is_rooted_serves_direct_publishers() -> None:
    village, found = Village(12), list[object]()
    for creator in range(1, 4):
        contact = village.world.machines[creator].contact
        name = f"{contact.node_id.hex()}:room"

        def seek(peer: Peer, name: str = name) -> None:
            client = peer.scoping.hosting.enter("scores")
            told = lambda server, why: found.append(server or why)  # noqa: E731
            peer.scoping.client_directs(client, name, "publishes", found, digest(b"secret"), (), lambda why: None, told)

        village.act(0, seek)
        village.run(1)
        assert found[-1] == contact


def test_in_a_scope_the_entry_point_serves_direct_clients_also_in_a_topic_that_is_rooted_at_its_creator() -> None:
    network, creator = Network(), "ab" * 16
    network.add_scope("X")
    site = network.add_scope("Q", ["X"])
    topic = described(f"{creator}:news").topic
    for name in "CDE":
        controller = network.add_peer(name, ["Q"])
        network.settle()
        role = Role(topic, scope("X").id, subscribes=name == "E", has_publishers=name == "C", name="news")
        network.carry_out(peer(name).id, controller.take_part(role))
        network.settle()
    (entry,) = (site.state.members[label].party for label in site.state.topics[topic].entries[:1])
    assert entry.name == "E"
    wish = Role(topic, scope("X").id, subscribes=True, name=f"{creator}:news", direct=("subscribes",))
    client = Party(client_id(peer("D").id, 1), peer("D").contact, name="board")
    (told,) = site.received(Registration(scope("Q").id, client, 1, (wish,)), network.now)
    assert told.message.assignments[0].servers[0] == entry.contact


def test_a_client_that_may_not_do_something_is_not_served_directly_either() -> None:
    site = Hosts("publish")
    site.village.run(LEASE_S)
    told = direct(site, site.enter("board"), "subscribes")
    site.village.run(1)
    assert told == [
        "clients may only publish in topic news, as the file of scope site says: use a member of the scope instead"
    ]


def test_direct_clients_count_among_those_that_a_scope_may_have() -> None:
    site = Hosts(clients_max=1)
    site.village.run(LEASE_S)
    first, second = direct(site, site.enter("first"), "subscribes"), direct(site, site.enter("second"), "subscribes")
    site.village.run(1)
    assert first == ["", site.village.world.machines[site.members[1]].contact]
    (why,) = second
    assert str(why).startswith("scope site has 1 of at most 1 clients")


def test_a_client_waits_for_a_silent_manager_before_it_is_served_directly_and_then_is() -> None:
    site = Hosts()
    site.village.run(LEASE_S)
    site.village.kill(site.outside)
    site.village.run(2 * LEASE_S)
    told = direct(site, site.enter("board"), "subscribes")
    site.village.run(2 * LEASE_S)
    (why,) = site.village.peers[site.members[0]].scoping.hosting.obstacles()
    assert (told, why.partition(": ")[2]) == ([], "scope site is silent; the registration waits for its manager")
    site.village.world.start(site.manager)
    site.manage(ScopeManager.restored(site.saved, site.config))
    site.village.run(2 * LEASE_S)
    assert told == ["", site.village.world.machines[site.members[1]].contact]


def test_a_client_whose_peer_is_no_member_yet_gets_no_answer_for_a_refusal_would_be_for_good() -> None:
    site = Hosts(clients_max=1)
    site.village.run(LEASE_S)
    host = site.village.world.machines[site.members[0]].contact
    client = Party(client_id(host.node_id, 1), host, name="board")
    registration = Registration(site.party.id, client, 1)
    orders = next(each for each in site.village.peers[site.members[0]].scoping.controller.membership._obeyed())
    clients, member = site.run_by.clients, site.run_by.members.find(host.node_id)
    assert not [*clients.registered(registration, None, orders, 0.0)]
    assert [type(each.message) for each in clients.registered(registration, member, orders, 0.0)] == [Orders]


def test_a_manager_knows_the_clients_of_members_and_what_they_do_until_they_leave() -> None:
    site = Hosts()
    scores, board = site.enter("scores"), site.enter("board", at=1)
    assert site.begin(scores, "publishes") == [""]
    assert site.begin(board, "subscribes", at=1) == [""]
    site.village.run(LEASE_S)
    assert site.known() == {"scores": [("news", True, False)], "board": [("news", False, True)]}
    hosts = {each.party.name: each.host.party.id for each in site.run_by.clients.known.values()}
    assert [hosts[name] for name in ("scores", "board")] == site.ids()
    site.village.act(site.members[0], lambda peer: peer.scoping.client_left(scores))
    site.village.run(1)
    assert list(site.known()) == ["board"]


def test_no_client_of_a_peer_that_was_restarted_is_taken_for_one_of_before() -> None:
    """Another peer may still serve that one, and would take the newcomer for it: it lets a client connect once."""
    host = Contact(b"h" * 16, "host:1")
    first, second = (ClientHost(lambda: host, bytes([run]) * 8).enter("board") for run in (1, 2))
    assert first != second
    assert all(is_client_of(each, host.node_id) for each in (first, second))


def test_clients_are_gone_with_their_host_or_when_it_speaks_of_them_no_more() -> None:
    site = Hosts()
    one = site.enter("one")
    site.enter("two", at=1)
    site.village.run(LEASE_S)
    del site.village.peers[site.members[0]].scoping.hosting.clients[one]
    site.village.run(2 * LEASE_S)
    assert list(site.known()) == ["two"]
    site.village.kill(site.members[1], silently=True)
    site.village.run(3 * LEASE_S)
    assert site.known() == {}


@pytest.mark.parametrize(
    ("rights", "publishing", "subscribing"),
    [("publish", "", "only publish"), ("subscribe", "only subscribe", ""), ("none", "neither publish", "neither")],
)
def test_a_client_may_do_in_a_topic_what_the_file_says(rights: ClientRights, publishing: str, subscribing: str) -> None:
    site = Hosts(rights)
    client = site.enter("board")
    told = [*site.begin(client, "publishes"), *site.begin(client, "subscribes")]
    assert told == [], "the manager decides"
    publishes, subscribes = site.begin(client, "publishes"), site.begin(client, "subscribes")
    site.village.run(1)
    for whys, expected in ((publishes, publishing), (subscribes, subscribing)):
        (why,) = whys
        assert (expected in why) if expected else not why
        assert not expected or why.endswith("as the file of scope site says: use a member of the scope instead")


def test_a_scope_has_no_more_clients_than_its_file_says() -> None:
    site = Hosts(clients_max=1)
    first, second = site.enter("first"), site.enter("second", at=1)
    told = site.begin(first, "publishes")
    site.village.run(1)
    refused = site.begin(second, "publishes", at=1)
    site.village.run(1)
    assert (told, refused[0].partition(":")[0]) == ([""], "scope site has 1 of at most 1 clients")
    site.village.act(site.members[0], lambda peer: peer.scoping.client_left(first))
    site.village.run(LEASE_S)
    again = site.begin(second, "subscribes", at=1)
    site.village.run(1)
    assert again == [""]


def test_what_a_client_does_goes_on_without_the_manager_and_what_is_new_waits_where_that_is_to_decide() -> None:
    site = Hosts(clients_max=2)
    client = site.enter("board")
    begun = site.begin(client, "subscribes")
    site.village.run(1)
    site.village.kill(site.outside)
    site.village.run(2 * LEASE_S)
    new = site.begin(client, "publishes")
    site.village.run(LEASE_S)
    hosting = site.village.peers[site.members[0]].scoping.hosting
    assert (begun, new) == ([""], [])
    (why,) = hosting.obstacles()
    assert why == "client board waits in topic news: scope site is silent; the registration waits for its manager"
    site.village.world.start(site.manager)
    site.manage(ScopeManager.restored(site.saved, site.config))
    site.village.run(2 * LEASE_S)
    assert new == [""], "the manager has come back, and clients were registered anew"
    assert list(site.known()) == ["board"]


def test_a_use_that_ends_while_it_waits_is_forgotten() -> None:
    site = Hosts(clients_max=2)
    client = site.enter("board")
    told = site.begin(client, "publishes")
    site.village.peers[site.members[0]].scoping.hosting.end(client, "news", "publishes", told)
    site.village.run(LEASE_S)
    assert told == []
    assert site.known() == {"board": []}


def test_clients_that_come_and_go_between_signs_of_life_cost_the_manager_nothing() -> None:
    site = Hosts()
    site.village.run(LEASE_S)
    saved, site.saved = site.saved, b""
    for number in range(100):
        client = site.enter(f"short {number}")
        site.begin(client, "publishes")
        site.village.act(site.members[0], lambda peer, client=client: peer.scoping.client_left(client))
    site.village.run(LEASE_S)
    assert (site.known(), site.saved) == ({}, b""), saved


def test_nobody_speaks_for_the_clients_of_another_peer() -> None:
    site = Hosts()
    mine = site.enter("mine")
    site.village.run(LEASE_S)
    contact = site.village.world.machines[site.members[1]].contact
    impostor, scope = Party(mine, contact, name="other"), site.party.id
    stranger = Party(client_id(contact.node_id, 7), contact, managed=True)
    for word in (
        Registration(scope, impostor, 9, (Role(bytes(16)),), "client"),
        Alive(scope, impostor, 1, 1),
        Deregistration(scope, mine),
        Registration(scope, stranger, 1, (), "client"),
    ):
        site.village.act(
            site.members[1], lambda peer, word=word: peer.host.send(site.party.contact, Control(scope, word))
        )
    site.village.run(0.5)
    assert site.known() == {"mine": []}
