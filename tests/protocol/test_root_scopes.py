"""Topics that are rooted at a scope: their rendezvous points are members, and nothing of them leaves the scope."""

from typing import Any

import pytest

from quillcast.core.messages import by_distance
from quillcast.protocol.scopes.hierarchy import NoRootScope, TwoRootScopes
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.state import SEATS_MAX, ScopeConfig
from quillcast.protocol.topics.descriptor import Settings, described
from tests.protocol.test_nested_scoping import TOPIC, Campus, rooted
from tests.protocol.test_scoping import Site, distance
from tests.protocol.topics.test_inspection import survey
from tests.protocol.topics.village import Reader, Writer

ROOTS = (("news/#", True), ("#", False))


class Rooted(Site):
    """A site that is the root scope of the topics below news."""

    @property
    def config(self) -> ScopeConfig:
        return super().config._replace(roots=ROOTS)

    def publish_inside(self, number: int, *payloads: bytes) -> None:
        publisher = self.village.publisher(number, self.name)
        self.village.publish(number, publisher, *payloads)
        self.village.run(5)

    def closest(self) -> int:
        """The member of those with a seat whose id is closest to the topic's."""
        machines = [self.village.world.machines[number] for number in self.members[:SEATS_MAX]]
        contacts = {machine.contact: machine.number for machine in machines if machine.host is not None}
        return contacts[by_distance(contacts, described(self.name).topic)[0]]


@pytest.mark.parametrize("policy", [Chain(), Ring()])
def test_a_member_is_the_rendezvous_point_and_nothing_leaves_the_scope(policy: ScopePolicy) -> None:
    site = Rooted(6, policy)
    readers = site.subscribe(site.members)
    site.publish_inside(site.members[5], b"a", b"b")
    assert all(reader.payloads == [b"a", b"b"] for reader in readers.values())
    assert site.village.root(site.name) == site.closest()
    assert all(site.village.unaware(number, site.name) for number in (0, 1)), "peers outside hear of it"


def test_what_does_not_fit_the_rule_is_rooted_at_the_overlay() -> None:
    site = Rooted(4, Star())
    site.name = "sport"
    site.subscribe(site.members)
    site.publish(b"a")
    assert site.village.peers[site.members[0]].topics.known.describe("sport").settings.root_scope == ""


@pytest.mark.parametrize("silently", [False, True])
def test_another_member_is_the_rendezvous_point_when_one_dies_and_nothing_is_lost(*, silently: bool) -> None:
    site = Rooted(6, Star())
    readers, dead = site.subscribe(site.members), site.closest()
    writing = next(number for number in site.members if number != dead)
    site.publish_inside(writing, b"before")
    site.village.kill(dead, silently=silently)
    site.publish_inside(writing, b"meanwhile")
    site.village.run(15)
    site.publish_inside(writing, b"after")
    del readers[dead]
    assert site.village.root(site.name) == site.closest() != dead
    assert all(reader.payloads == [b"before", b"meanwhile", b"after"] for reader in readers.values())
    assert not any(reader.losses for reader in readers.values())


def test_a_rendezvous_point_that_leaves_hands_the_topic_over_and_delays_nobody() -> None:
    site = Rooted(4, Star())
    site.subscribe(site.members)
    first = site.closest()
    writing = next(number for number in site.members if number != first)
    publisher = site.village.publisher(writing, site.name)
    site.village.act(first, lambda peer: peer.leave())
    site.village.run(0.1)
    site.village.publish(writing, publisher, b"a")
    site.village.run(3.5)
    assert not publisher.retained, "the next one waits for leases"


def test_another_member_takes_over_while_the_manager_is_down() -> None:
    site = Rooted(5, Star())
    readers, dead = site.subscribe(site.members), site.closest()
    writing = next(number for number in site.members if number != dead)
    site.village.kill(1)
    site.village.kill(dead)
    site.village.run(10)
    site.publish_inside(writing, b"after")
    del readers[dead]
    assert all(reader.payloads == [b"after"] for reader in readers.values())


def test_a_newcomer_that_is_closer_is_handed_the_topic() -> None:
    site = Rooted(2, Star())
    readers, first = site.subscribe(site.members), site.closest()
    site.publish_inside(first, b"before")
    while site.closest() == first and len(site.members) < SEATS_MAX:
        site.members.append(site.add())
    assert site.closest() != first
    site.village.run(10)
    site.publish_inside(first, b"after")
    assert site.village.root(site.name) == site.closest()
    assert all(reader.payloads == [b"before", b"after"] for reader in readers.values())


def test_who_uses_the_topic_outside_is_told_which_root_scope_it_has_wherever_its_root_would_be() -> None:
    site = Rooted(4, Star())
    site.subscribe(site.members)
    ring = [site.village.world.machines[number].node_id for number in (0, 1, *site.members[:3])]
    closest: dict[bytes, list[str]] = {}
    for name in [site.name, *(f"news/{number}" for number in range(40))]:
        closest.setdefault(min(ring, key=lambda node: distance(node, name)), []).append(name)
    assert len(closest) == len(ring)
    for name, other in [names[:2] for names in closest.values()]:
        site.village.subscribe(0, name, reader := Reader())
        publisher = site.village.publisher(0, other)
        site.village.publish(0, publisher, b"a")
        site.village.run(5)
        why = "is rooted at scope site, and only members of that scope can use it"
        assert f"topic {name} {why}" in str(reader.error)
        assert isinstance(listener := publisher.listener, Writer)
        assert f"topic {other} {why}" in str(listener.error)


def test_who_asks_outside_is_told_nothing_of_the_topic_wherever_its_root_would_be() -> None:
    site = Rooted(4, Star())
    for name in names_by_closest(site):
        for asker in (0, 1):
            [branch] = survey(site.village, asker, name).values()
            assert (branch.root, branch.children, branch.descriptor) == (False, [], None)
        for asker in site.members[2:4]:
            branches = survey(site.village, asker, name).values()
            assert sum(branch.subscribers for branch in branches) == 3


def test_who_changes_the_topic_outside_is_told_at_once_wherever_its_root_would_be() -> None:
    site = Rooted(4, Star())
    names, answers = names_by_closest(site), list[Any]()
    for name in names:
        site.village.act(0, lambda peer, name=name: peer.change(name, {"slow": "wait"}, answers.append))
        site.village.run(3)
        assert all(site.village.unaware(number, name) for number in (0, 1))
    assert len(answers) == len(names)
    for name, answer in zip(names, answers, strict=True):
        outside = f"topic {name} is rooted at scope site, and only members of that scope can use it"
        assert str(answer).startswith((outside, f"there is no topic '{name}'"))
    assert sum("site" in str(answer) for answer in answers) >= 3, "no member is on the way to its peers"
    site.village.act(site.members[3], lambda peer: peer.change(names[0], {"slow": "wait"}, answers.append))
    site.village.run(3)
    assert answers[-1].settings.slow == "wait"


def names_by_closest(site: Rooted) -> list[str]:
    """A topic of the site for each peer of the ring, which is closest to it. Three members subscribe to all."""
    nodes = [site.village.world.machines[number].node_id for number in (0, 1, *site.members[:3])]
    closest: dict[bytes, str] = {}
    for name in (f"news/{number}" for number in range(40)):
        closest.setdefault(min(nodes, key=lambda node: distance(node, name)), name)
    assert len(closest) == len(nodes)
    for member in site.members[:3]:
        for name in closest.values():
            site.village.subscribe(member, name, Reader())
    site.village.run(5)
    return list(closest.values())


def test_a_topic_with_another_root_scope_than_the_files_say_is_refused_with_both_names() -> None:
    site = Rooted(3, Star())

    def create(number: int, root_scope: str) -> Any:
        settings = Settings(root_scope=root_scope)
        return site.village.act(number, lambda peer: peer.create(site.name, settings, answers.append))

    answers: list[Any] = []
    with pytest.raises(TwoRootScopes, match="is rooted at scope site, and cannot be rooted at scope attic too"):
        create(site.members[0], "attic")
    with pytest.raises(NoRootScope, match="cannot be rooted at scope site: this peer is in no scope"):
        create(0, "site")
    create(site.members[0], "site")
    create(site.members[1], "")
    site.village.run(5)
    assert [answer.settings.root_scope for answer in answers] == ["site", "site"]


def test_sources_number_the_events_of_a_topic_that_is_rooted_at_a_scope() -> None:
    site, answers = Rooted(4, Star()), list[Any]()
    settings = Settings(admission="source")
    site.village.act(site.members[0], lambda peer: peer.create(site.name, settings, answers.append))
    site.village.run(5)
    readers = site.subscribe(site.members)
    for number in site.members[:2]:
        site.publish_inside(number, b"%d" % number)
    assert all(
        sorted(reader.payloads) == [b"%d" % number for number in site.members[:2]] for reader in readers.values()
    )
    assert all(site.village.unaware(number, site.name) for number in (0, 1))


@pytest.mark.parametrize("sites", [Star(), Ring()])
def test_a_topic_that_is_rooted_at_a_superscope_goes_through_all_scopes_below_it(sites: ScopePolicy) -> None:
    nested = Campus(Star(), sites)
    rooted(nested)
    readers = nested.subscribe(nested.everybody())
    writing = nested.members["south"][3]
    publisher = nested.village.publisher(writing, TOPIC)
    for number in range(20):
        nested.village.publish(writing, publisher, b"%d" % number)
        nested.village.run(0.1)
    nested.village.run(2)
    assert all(reader.payloads == [b"%d" % number for number in range(20)] for reader in readers.values())
    assert nested.village.root(TOPIC) in nested.everybody()
    assert all(nested.village.unaware(number, TOPIC) for number in (0, 1))
