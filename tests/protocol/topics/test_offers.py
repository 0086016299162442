"""Topics that were transferred to a peer which is not root yet: something changes, then what it tells whom."""

import pytest

from quillcast.protocol.topics.root.offers import Offer
from quillcast.protocol.topics.root_messages import AnotherFollows, TransferLeadership, TransferRefused
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, SECOND
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts

SAID = TransferLeadership(DESCRIPTOR, SECOND, 0, 0)
EARLIER = TransferLeadership(DESCRIPTOR, FIRST, 0, 0)
TOPIC = DESCRIPTOR.topic


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        (Offer(EARLIER, 1.0, None), Offer(SAID, 2.0, None), 2.0),
        (Offer(SAID, 1.0, BOB), Offer(EARLIER, 2.0, CAROL), 1.0),
        (Offer(SAID, 1.0, None), Offer(SAID, 2.0, CAROL), 2.0),
        (Offer(SAID, 1.0, CAROL), Offer(SAID, 2.0, None), 1.0),
        (Offer(EARLIER, 1.0, CAROL), Offer(SAID, 2.0, None), 2.0),
    ],
    ids=["later term", "earlier term", "from the root itself", "passed on", "later term, passed on"],
)
def test_what_the_root_of_the_latest_term_says_is_kept(world: Parts, first: Offer, then: Offer, kept: float) -> None:
    world.offers.keep(first)
    world.offers.keep(then)
    assert world.offers.by_topic[TOPIC].hold_until == kept


def test_a_term_that_others_know_is_kept_when_its_offer_is_repeated(world: Parts) -> None:
    world.offers.keep(Offer(SAID, 1.0, CAROL))
    world.offers.note_term(TOPIC, FIRST)
    world.offers.keep(Offer(SAID, 2.0, CAROL))
    assert world.offers.take(TOPIC) == Offer(SAID, 2.0, CAROL, FIRST)
    assert world.offers.take(TOPIC) is None


def test_a_topic_is_passed_on_to_a_closer_peer_and_the_former_root_is_asked_to_tell_it_too() -> None:
    world = Parts(BOB, ALICE)
    world.offers.keep(Offer(SAID, 1.0, CAROL))
    world.offers.leaf_set_changed()
    assert world.host.sent == [(CAROL, AnotherFollows(TOPIC, SECOND, BOB, (), ())), (BOB, SAID)]
    assert not world.offers.by_topic


def test_the_closest_peer_passes_nothing_on() -> None:
    world = Parts(ALICE, BOB)
    world.offers.keep(Offer(SAID, 1.0, CAROL))
    world.offers.leaf_set_changed()
    assert (world.host.sent, [*world.offers.by_topic]) == ([], [TOPIC])


def test_a_peer_whose_own_term_is_known_speaks_as_its_root() -> None:
    """Otherwise the next root would wait in vain for what was admitted in it."""
    world = Parts(BOB, ALICE)
    world.offers.keep(Offer(EARLIER, CONFIG.lease_s, CAROL))
    world.offers.note_term(TOPIC, SECOND)
    world.offers.leaf_set_changed()
    [(to, said)] = world.host.sent
    assert isinstance(said, TransferLeadership)
    assert (to, said.term, said.followed, said.hold_s) == (BOB, SECOND, (FIRST,), CONFIG.lease_s)
    assert world.telling.take_vouched(TOPIC) == said


def test_a_peer_that_leaves_accepts_no_topic(world: Parts) -> None:
    world.open_trees.leave()
    assert world.offers.refuses(BOB, SAID)
    assert world.host.sent == [(BOB, TransferRefused(TOPIC, SECOND))]


def test_a_peer_that_keeps_what_it_tells_itself_is_the_root_that_says_it(world: Parts) -> None:
    world.host.time = 5.0
    world.offers.keep_own(TransferLeadership(DESCRIPTOR, FIRST, 0, 0, hold_s=2.0))
    assert world.offers.take(TOPIC) == Offer(TransferLeadership(DESCRIPTOR, FIRST, 0, 0, hold_s=2.0), 7.0, ALICE)
