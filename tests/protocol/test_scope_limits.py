"""Scopes that bound how many of their members publish and subscribe in a topic, on whole peers."""

import pytest

from quillcast.protocol.scopes import controller
from quillcast.protocol.scopes.messages import TopicBounds
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.state import Entering, ScopeConfig
from quillcast.protocol.scoping import scoping
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.publishing.publisher import Publisher
from tests.protocol.test_nested_scoping import TOPIC, Campus
from tests.protocol.test_scoping import LEASE_S, Site, distance
from tests.protocol.topics.village import Reader


class Bounded(Site):
    """A site whose file bounds topics below `news`."""

    bounds = Entering(publishers_max=2)

    @property
    def config(self) -> ScopeConfig:
        of = TopicBounds("news/#", bool(self.bounds.publishers_max), bool(self.bounds.subscribers_max))
        return super().config._replace(entering=lambda topic: self.bounds, bounds=(of,))

    def publisher(self, number: int, text: bytes) -> Publisher:
        publisher = self.village.publisher(number, self.name)
        self.village.publish(number, publisher, text)
        self.village.run(1)
        return publisher

    def bound(self, number: int) -> str:
        return self.village.peers[number].bound(described(self.name).topic)

    def close(self, number: int, publisher: Publisher) -> None:
        self.village.act(number, lambda peer: peer.close_publisher(publisher))


class Read(Bounded):
    """A site of which two members may subscribe."""

    bounds = Entering(subscribers_max=2)


@pytest.mark.parametrize("admission", ["root", "source"])
def test_no_more_members_publish_than_the_file_says_and_the_next_one_begins_when_one_ends(admission: str) -> None:
    site = Bounded(4, Star())
    site.village.act(0, lambda peer: peer.create(site.name, Settings(admission=admission), lambda answer: None))
    reader = site.subscribe([0])[0]
    first, *others = site.members
    leaving = site.publisher(first, b"a")
    for number, text in zip(others, (b"b", b"c", b"d"), strict=True):
        site.publisher(number, text)
    assert reader.payloads == [b"a", b"b"]
    assert [bool(site.bound(number)) for number in site.members] == [False, False, True, True]
    why = f"topic {site.name} has 2 of at most 2 publishers in scope site: wait until one ends, or raise publishers_max"
    assert site.bound(others[1]).startswith(why)
    site.close(first, leaving)
    site.village.run(3)
    assert reader.payloads == [b"a", b"b", b"c"]
    site.village.kill(others[0])
    site.village.run(3 * LEASE_S)
    assert reader.payloads == [b"a", b"b", b"c", b"d"], "a member that died makes room when its lease has ended"


def test_no_more_members_subscribe_than_the_file_says_and_the_next_one_begins_when_one_ends() -> None:
    site = Read(3, Star())
    readers = site.subscribe(site.members[1:])
    late = Reader()
    waiting = site.village.subscribe(site.members[0], site.name, late)
    site.village.run(2)
    site.publish(b"a")
    assert [reader.payloads for reader in readers.values()] == [[b"a"]] * 2
    assert (late.start, late.error) == (None, None), "it waits, though it came into the scope first"
    peer = site.village.peers[site.members[0]]
    assert peer.subscriptions(waiting) == 1
    assert [why.partition(":")[0] for why in peer.topics.subscribing.bounds().values()] == [
        f"topic {site.name} has 2 of at most 2 subscribers in scope site"
    ]
    (ending,) = site.village.tree(site.members[1], site.name).subscriptions
    site.village.act(site.members[1], lambda peer: peer.unsubscribe(ending))
    site.village.run(5)
    site.publish(b"b")
    assert late.payloads == [b"b"]


def test_what_has_begun_goes_on_without_the_manager_and_what_is_new_waits_for_it() -> None:
    site = Bounded(2, Star())
    reader = site.subscribe([0])[0]
    begun = site.publisher(site.members[0], b"a")
    site.village.kill(site.outside)
    site.village.run(2 * LEASE_S)
    site.village.publish(site.members[0], begun, b"b")
    site.publisher(site.members[1], b"c")
    site.village.run(5)
    assert reader.payloads == [b"a", b"b"]
    assert site.bound(site.members[1]) == "scope site is silent; the registration waits for its manager"


def test_a_topic_that_no_rule_bounds_waits_for_nobody_and_the_manager_does_not_hear_of_its_publishers() -> None:
    site = Bounded(2, Star())
    publisher = site.village.publisher(site.members[0], "elsewhere")
    site.village.publish(site.members[0], publisher, b"a")
    site.village.run(1)
    assert publisher.admitted == 1
    (manager, _) = site.village.peers[site.outside].scoping.managers[site.party.id]
    assert not manager.state.topics


def test_a_bound_that_is_new_ends_nothing_that_has_begun() -> None:
    site = Bounded(3, Star())
    site.bounds = Entering()
    site.village.run(2 * LEASE_S)
    (manager, _) = site.village.peers[site.outside].scoping.managers[site.party.id]
    manager.config = manager.config._replace(bounds=())
    manager.orders.owe(manager.state.members)
    site.village.run(LEASE_S)
    reader = site.subscribe([0])[0]
    publishers = [site.publisher(number, b"a") for number in site.members[:2]]
    site.bounds = Entering(publishers_max=1)
    site.village.act(site.outside, lambda peer: peer.scoping.manage(manager, site.save))
    manager.config = site.config
    manager.orders.owe(manager.state.members)
    site.village.run(2 * LEASE_S)
    for number, publisher in zip(site.members, publishers, strict=False):
        site.village.publish(number, publisher, b"b")
    site.publisher(site.members[2], b"c")
    assert reader.payloads == [b"a", b"a", b"b", b"b"]


def test_a_scope_counts_as_one_of_the_publishers_of_its_superscope() -> None:
    bounds = {"entering": lambda topic: Entering(publishers_max=1), "bounds": (TopicBounds("#", publishes=True),)}
    nested = Campus(Star(), Star(), None, 1, campus=bounds)
    reader = Reader()
    nested.village.subscribe(0, TOPIC, reader)
    nested.village.run(2)
    writers = [*nested.members["north"][:2], nested.members["south"][0], nested.members["campus"][0]]
    for number in writers:
        publisher = nested.village.publisher(number, TOPIC)
        nested.village.publish(number, publisher, b"%d" % number)
        nested.village.run(3)
    assert reader.payloads == [b"%d" % number for number in nested.members["north"][:2]]
    topic = described(TOPIC).topic
    why = [nested.village.peers[number].bound(topic).partition(":")[0] for number in writers]
    assert why == ["", "", *[f"topic {TOPIC} has 1 of at most 1 publishers in scope campus"] * 2]


def test_a_peer_that_is_itself_the_root_waits_too_and_begins_when_one_ends() -> None:
    site = Bounded(4, Star())
    root, *others = site.members
    ring = [site.village.world.machines[number].node_id for number in (0, 1, *site.members[:3])]
    names = (f"news/{number}" for number in range(100))
    here = site.village.world.machines[root].node_id
    site.name = next(name for name in names if min(ring, key=lambda node: distance(node, name)) == here)
    reader = site.subscribe([0])[0]
    leaving, _ = [site.publisher(number, b"%d" % number) for number in others[:2]]
    site.publisher(root, b"late")
    site.close(others[0], leaving)
    site.village.run(3)
    assert reader.payloads == [*(b"%d" % number for number in others[:2]), b"late"]


def test_a_peer_says_once_that_channels_lead_to_more_addresses_than_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (controller, scoping):
        monkeypatch.setattr(module, "LEAVES_MAX", 0)
    site, told = Site(3, Star()), list[str]()
    for number in site.members:
        site.village.peers[number].scoping.refused = told.append
    site.subscribe(site.members)
    site.village.run(2 * LEASE_S)
    assert [why.split(":")[0] for why in told] == [
        "1 of the channels ordered of this peer lead to more than 0 addresses",
        "2 of the channels ordered of this peer lead to more than 0 addresses",
    ]
    assert site.village.world.journal.marks["channels_cut"] == len(told)
