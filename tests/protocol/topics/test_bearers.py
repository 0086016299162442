"""On whose behalf peers publish: warrants are shown, then some peers may publish."""

from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.security.access import entry
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.root.bearers import Bearers
from tests.protocol.recording import ALICE, BOB, CAROL

OWNER, FRIEND, STRANGER = (Credentials.new() for _ in range(3))
LISTED = Descriptor("weather", access=(entry("publish", FRIEND.principal),), owner_key=OWNER.public_key)
TOPIC = LISTED.topic


def shown(bearers: Bearers, *nodes: bytes, who: Credentials = FRIEND, to: Descriptor = LISTED) -> list[bool]:
    """Whether these peers may publish, once they have shown a principal's warrants."""
    for node in nodes:
        bearers.note(TOPIC, to, node, [who.warrant(node, TOPIC)])
    return [bearers.may_publish(TOPIC, LISTED, node) for node in nodes]


def test_a_peer_may_publish_once_it_has_shown_a_warrant_of_a_principal_on_the_list() -> None:
    bearers = Bearers(4)
    assert not bearers.may_publish(TOPIC, LISTED, ALICE.node_id)
    assert shown(bearers, ALICE.node_id) == [True]


def test_a_warrant_of_another_principal_or_another_peer_counts_for_nothing() -> None:
    bearers = Bearers(4)
    assert shown(bearers, ALICE.node_id, who=STRANGER) == [False]
    bearers.note(TOPIC, LISTED, BOB.node_id, [FRIEND.warrant(ALICE.node_id, TOPIC)])
    assert not bearers.may_publish(TOPIC, LISTED, BOB.node_id)


def test_a_principal_that_a_later_list_leaves_out_may_no_longer_publish() -> None:
    bearers = Bearers(4)
    shown(bearers, ALICE.node_id)
    later = Descriptor("weather", access=(entry("publish", STRANGER.principal),), owner_key=OWNER.public_key)
    assert not bearers.may_publish(TOPIC, later, ALICE.node_id)


def test_nothing_is_noted_in_a_topic_without_a_list() -> None:
    bearers = Bearers(4)
    shown(bearers, ALICE.node_id, to=Descriptor("weather"))
    assert not bearers.shown


def test_the_peer_that_was_noted_first_makes_room_for_another() -> None:
    assert shown(Bearers(2), ALICE.node_id, BOB.node_id, CAROL.node_id) == [False, True, True]


def test_a_topic_that_is_rooted_elsewhere_is_forgotten() -> None:
    bearers = Bearers(4)
    shown(bearers, ALICE.node_id)
    bearers.forget(TOPIC)
    assert not bearers.may_publish(TOPIC, LISTED, ALICE.node_id)
