"""Scopes whose files say which members may publish and subscribe, on whole peers."""

from collections.abc import Mapping

import pytest

from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import Allowed, TopicRule
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import Orders, TopicBounds
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.rights import TOLD_MAX, why_not
from quillcast.protocol.scopes.state import ScopeConfig
from quillcast.protocol.scopes.uses import Doing, digest
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.publishing.publisher import Publisher
from tests.protocol.test_nested_scoping import TOPIC, Campus
from tests.protocol.test_scoping import LEASE_S, Site
from tests.protocol.topics.village import Reader, Writer

BOUNDS = (TopicBounds("news/#", publishes=True, subscribes=True),)
NORTH = {"organization": "North"}


class Guarded(Site):
    """A site whose file says who may use topics below `news`."""

    rule = TopicRule(pattern="news/#")
    certificates: Mapping[bytes, Mapping[str, str]] = {}

    def __init__(self, peers: int) -> None:
        self.told = list[str]()
        super().__init__(peers, Star())
        self.village.peers[self.outside].scoping.refused = self.told.append

    @property
    def config(self) -> ScopeConfig:
        return super().config._replace(rights=self.rights, attributes=self.attributes, bounds=BOUNDS)

    def rights(self, party: Party, attributes: Mapping[str, str], topic: str, doing: Doing) -> str:
        return why_not(self.rule, "site", party, attributes, topic, doing)

    def attributes(self, party: Party) -> Mapping[str, str]:
        return self.certificates.get(party.id, {})

    def node(self, number: int) -> str:
        return self.village.world.machines[number].node_id.hex()

    def let(self, **who: Allowed) -> None:
        """The file says otherwise now, and its manager is started again."""
        self.rule = TopicRule(pattern="news/#", **who)
        self.manage(ScopeManager.restored(self.saved, self.config))
        self.village.run(LEASE_S)

    def only(self, *numbers: int) -> Allowed:
        return Allowed(members=tuple(map(self.node, numbers)))

    def writer(self, number: int) -> tuple[Publisher, Writer]:
        writer = Writer()
        return self.village.act(number, lambda peer: peer.publisher(self.name, writer)), writer

    def publish_as(self, number: int, payload: bytes) -> Writer:
        publisher, writer = self.writer(number)
        self.village.publish(number, publisher, payload)
        self.village.run(2)
        return writer

    @property
    def run_by(self) -> ScopeManager:
        (manager, _) = self.village.peers[self.outside].scoping.managers[self.party.id]
        return manager

    def orders(self) -> list[Orders]:
        return [self.run_by.orders.told[self.run_by.members.labels[bytes.fromhex(self.node(n))]] for n in self.members]


def refusal(site: Guarded, number: int, verb: str) -> str:
    key = {"publish": "publishers", "subscribe": "subscribers"}[verb]
    return (
        f"scope site does not let member {site.node(number)} {verb} in topic {site.name}: add it to {key} in the rule "
        "for news/# in the scope's file, and run: quillcast scope reload site"
    )


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_member_without_the_right_to_publish_gets_the_error_and_nobody_else_notices(*, from_the_start: bool) -> None:
    site = Guarded(4)
    allowed, *others = site.members
    if from_the_start:
        site.let(publishers=site.only(allowed))
    readers = site.subscribe([allowed, others[0]])
    if not from_the_start:
        site.let(publishers=site.only(allowed))
    before = site.orders()
    stranger = site.publish_as(others[1], b"no")
    assert isinstance(stranger.error, AccessDenied)
    assert str(stranger.error) == refusal(site, others[1], "publish")
    assert site.publish_as(allowed, b"yes").error is None
    assert [reader.payloads for reader in readers.values()] == [[b"yes"]] * 2
    site.village.run(3 * LEASE_S)
    assert [
        orders for at, orders in enumerate(site.orders()) if at != 2 and orders.channels != before[at].channels
    ] == []
    assert site.told == [refusal(site, others[1], "publish")]
    assert site.publish_as(others[1], b"again").error is not None
    assert len(site.told) == 1, "the operator hears of it once"


def test_a_member_without_the_right_to_subscribe_gets_the_error_and_no_channel() -> None:
    site = Guarded(3)
    allowed, stranger, other = site.members
    site.let(subscribers=site.only(allowed, other))
    readers = site.subscribe(site.members)
    site.publish(b"a")
    assert [readers[number].payloads for number in site.members] == [[b"a"], [], [b"a"]]
    assert str(readers[stranger].error) == refusal(site, stranger, "subscribe")
    member = site.run_by.members.find(bytes.fromhex(site.node(stranger)))
    assert member is not None
    assert described(site.name).topic not in member.roles
    assert not list(site.village.peers[stranger].topics.subscribing.all())


def test_a_topic_that_only_members_without_a_right_use_is_not_the_scopes() -> None:
    site = Guarded(2)
    site.let(subscribers=Allowed(members=()), publishers=Allowed(members=()))
    (reader,) = site.subscribe(site.members[:1]).values()
    assert isinstance(reader.error, AccessDenied)
    assert site.publish_as(site.members[1], b"no").error is not None
    assert not site.run_by.state.topics


def test_who_may_subscribe_and_not_publish_goes_on_to_receive() -> None:
    site = Guarded(2)
    first, second = site.members
    site.let(publishers=site.only(first))
    readers = site.subscribe(site.members)
    assert site.publish_as(second, b"no").error is not None
    site.publish_as(first, b"a")
    site.village.run(2 * LEASE_S)
    site.publish_as(first, b"b")
    assert [reader.payloads for reader in readers.values()] == [[b"a", b"b"]] * 2


def test_a_right_that_is_taken_away_ends_what_began_with_it_and_given_again_lets_it_begin() -> None:
    site = Guarded(3)
    first, second, third = site.members
    readers = site.subscribe([second, third])
    publisher, writer = site.writer(first)
    site.village.publish(first, publisher, b"a")
    site.village.run(2)
    site.let(publishers=site.only(second), subscribers=site.only(third))
    assert str(writer.error) == refusal(site, first, "publish")
    assert str(readers[second].error) == refusal(site, second, "subscribe")
    site.publish_as(second, b"b")
    assert (readers[second].payloads, readers[third].payloads) == ([b"a"], [b"a", b"b"])
    site.let(publishers=site.only(first), subscribers=site.only(second, third))
    (late,) = site.subscribe([second]).values()
    assert site.publish_as(first, b"c").error is None
    assert (late.payloads, readers[third].payloads) == ([b"c"], [b"a", b"b", b"c"])


def test_a_certificate_gives_the_right_which_a_manager_that_comes_back_knows_before_members_register_again() -> None:
    site = Guarded(2)
    first, second = site.members
    site.certificates = {bytes.fromhex(site.node(first)): NORTH}
    readers, (publisher, writer), (_, other) = site.subscribe(site.members), site.writer(first), site.writer(second)
    site.village.run(2)
    site.certificates = {}
    site.let(publishers=Allowed(certificate=NORTH))
    site.village.publish(first, publisher, b"a")
    site.village.run(2)
    assert [reader.payloads for reader in readers.values()] == [[b"a"]] * 2
    assert writer.error is None
    assert "with a certificate that has organization = North" in str(other.error)
    site.name = "news/another"
    assert site.publish_as(first, b"b").error is not None, "a new registration shows the certificate that it has now"


def test_a_client_has_no_right_that_its_host_lacks_and_is_served_by_nobody_without_it() -> None:
    site = Guarded(4)
    host, unable, able, _ = site.members
    site.let(publishers=site.only(host, able))

    def ask(at: int, doing: Doing) -> list[object]:
        told = list[object]()
        scoping = site.village.peers[at].scoping
        client = site.village.act(at, lambda peer: scoping.hosting.enter("board"))
        site.village.act(
            at,
            lambda peer: scoping.client_directs(
                client, site.name, doing, told, digest(b"secret"), (), told.append,
                lambda server, why: told.append(server or why),
            ),
        )  # fmt: skip
        site.village.run(3)
        return told

    assert ask(host, "publishes") == ["", site.village.world.machines[able].contact]
    assert ask(unable, "publishes") == [refusal(site, unable, "publish")]


def test_a_scope_without_a_right_in_its_superscope_refuses_its_own_members() -> None:
    rule = TopicRule(pattern="#", publishers=Allowed(members=("south",)))
    rights = {
        "rights": lambda party, attributes, topic, doing: why_not(rule, "campus", party, attributes, topic, doing),
        "bounds": (TopicBounds("#", publishes=True),),
    }
    nested = Campus(Star(), Star(), None, 1, campus=rights)
    reader = Reader()
    nested.village.subscribe(nested.members["north"][1], TOPIC, reader)
    nested.village.run(2)
    writers = {scope: Writer() for scope in ("north", "south")}
    for scope, writer in writers.items():
        number = nested.members[scope][0]
        publisher = nested.village.act(number, lambda peer, writer=writer: peer.publisher(TOPIC, writer))
        nested.village.publish(number, publisher, scope.encode())
        nested.village.run(5)
    assert reader.payloads == [b"south"]
    assert writers["south"].error is None
    assert str(writers["north"].error).startswith(
        f"scope campus does not let member north publish in topic {TOPIC}: add it to publishers in the rule for #"
    )


def test_the_operator_is_told_of_so_many_refusals_of_one_member_and_no_more() -> None:
    site = Guarded(1)
    site.let(subscribers=Allowed(members=()))
    (number,) = site.members
    for at in range(TOLD_MAX + 5):
        site.village.subscribe(number, f"news/{at}", Reader())
    site.village.run(3)
    assert len(site.told) == TOLD_MAX
    site.village.kill(number)
    site.village.run(3 * LEASE_S)
    assert not site.run_by.rights.told
