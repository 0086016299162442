"""A topic is transferred to a peer: one message, then what is ordered, answered and kept."""

from quillcast.core.envelope import Term
from quillcast.protocol.topics.root.offers import Offer
from quillcast.protocol.topics.root_messages import TransferLeadership, Transferred
from quillcast.protocol.topics.state.effects import BecomeRoot, FindParent, LaterTermExists
from tests.protocol.recording import ALICE, BOB, CAROL, PAUL, SECOND
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts

SAID = TransferLeadership(DESCRIPTOR, SECOND, 0, 0)
TOPIC = DESCRIPTOR.topic
CLOSEST = ALICE, BOB, CAROL


def test_the_closest_peer_becomes_root_when_the_former_root_tells_it() -> None:
    world = Parts(*CLOSEST)
    world.dispatch.message(BOB, SAID)
    assert world.ordered == [BecomeRoot(TOPIC, "transferred")]
    assert world.host.sent == [(BOB, Transferred(TOPIC, SECOND))]
    assert world.offers.by_topic[TOPIC].root == BOB


def test_peers_to_wait_for_are_believed_only_of_the_root_itself() -> None:
    world = Parts(*CLOSEST)
    world.dispatch.message(CAROL, SAID)
    assert world.ordered == [BecomeRoot(TOPIC, "took_over")]
    offer = world.offers.by_topic[TOPIC]
    assert (offer.root, offer.hold_until) == (None, CONFIG.lease_s), "as if no root had said anything"


def test_a_peer_that_is_not_the_closest_keeps_the_topic_for_another() -> None:
    world = Parts(BOB, ALICE, CAROL)
    world.dispatch.message(BOB, SAID)
    assert world.ordered == []
    assert [*world.offers.by_topic] == [TOPIC]


def test_a_peer_with_subscriptions_joins_until_the_topic_has_a_root() -> None:
    world = Parts(BOB, ALICE, CAROL)
    tree = world.tree()
    world.child(tree, CAROL)
    world.dispatch.message(BOB, SAID)
    assert world.ordered == [FindParent(TOPIC)]


def test_a_root_that_is_told_of_a_later_term_may_not_go_on() -> None:
    world = Parts(*CLOSEST)
    tree = world.root()
    later = Term(7, BOB.node_id)
    world.dispatch.message(BOB, TransferLeadership(DESCRIPTOR, later, 0, 0))
    assert world.ordered == [LaterTermExists(TOPIC)]
    assert tree.heard == later


def test_the_next_root_waits_for_the_peers_that_the_former_root_names() -> None:
    world = Parts(*CLOSEST)
    tree = world.root()
    assert tree.root is not None
    said = TransferLeadership(
        DESCRIPTOR, SECOND, 3, 2, leases=(BOB.node_id, CAROL.node_id), lives=(1, 2), frontiers=((PAUL, 4),)
    )
    world.next_root.take_over(tree, tree.root, Offer(said, 9.0, BOB))
    assert tree.root.awaited == {BOB.node_id: 1, CAROL.node_id: 2}
    assert tree.root.stable_frontiers() == {PAUL: 4}
    assert tree.root.followed == (SECOND,)


def test_a_former_root_that_becomes_root_again_goes_by_what_it_said_itself() -> None:
    world = Parts(*CLOSEST)
    tree = world.tree()
    own = TransferLeadership(DESCRIPTOR, Term(3, ALICE.node_id), 5, 5)
    world.telling.tell(BOB, own)
    world.intake.successors.note(TOPIC, BOB)
    offer = world.next_root.take_offer(tree)
    assert offer is not None
    assert (offer.message, offer.root) == (own, ALICE)
    assert world.intake.successors.of(TOPIC) is None
    assert world.next_root.take_offer(tree) is None, "once"
