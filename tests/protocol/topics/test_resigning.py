"""A root gives its topic to a closer peer: one input, then what is told, ordered and planned."""

from quillcast.protocol.topics.root.resigning import LookAgain, TransferDue
from quillcast.protocol.topics.root_messages import TransferLeadership
from quillcast.protocol.topics.state.effects import BecomeRoot
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, block, up
from tests.protocol.topics.parts import DESCRIPTOR, Parts

TOPIC = DESCRIPTOR.topic
CLOSER = BOB, ALICE, CAROL


def admits(world: Parts) -> None:
    """The root admits an event, which is not stable yet."""
    tree = world.trees[TOPIC]
    assert tree.root is not None
    tree.root.admit(CAROL, up(0, block(PAUL, 0)))


def test_a_root_that_resigns_tells_the_closest_other_peer_and_remembers_it() -> None:
    world = Parts(*CLOSER)
    tree = world.root()
    world.resigning.resign(tree)
    assert tree.root is None
    assert world.host.sent[0] == (BOB, TransferLeadership(DESCRIPTOR, FIRST, 0, 0, FIRST))
    assert world.intake.successors.of(TOPIC) == BOB


def test_a_root_without_other_peers_stays_root() -> None:
    world = Parts(ALICE)
    tree = world.root()
    world.resigning.resign(tree)
    assert tree.root is not None
    assert world.host.sent == []


def test_the_last_peer_of_a_network_ends_the_term_when_it_leaves() -> None:
    world = Parts(ALICE)
    tree = world.root()
    world.open_trees.leave()
    world.resigning.resign(tree)
    assert tree.root is None
    assert TOPIC not in world.trees


def test_a_topic_without_unstable_events_moves_at_once() -> None:
    world = Parts(*CLOSER)
    tree = world.root()
    world.moving_roots.leaf_set_changed()
    assert tree.root is None


def test_the_closest_peer_stays_root() -> None:
    world = Parts(ALICE, BOB)
    tree = world.root()
    world.moving_roots.leaf_set_changed()
    assert tree.root is not None
    assert not tree.root.closing


def test_a_topic_with_unstable_events_moves_once_they_are_stable_or_out_of_time() -> None:
    world = Parts(*CLOSER)
    tree = world.root()
    admits(world)
    world.moving_roots.leaf_set_changed()
    assert tree.root is not None
    assert tree.root.closing
    assert world.host.timers[-1] == (TransferDue(TOPIC, FIRST), world.config.linger_s)
    world.moving_roots.all_stable(tree.root)
    assert world.host.timers[-1] == (TransferDue(TOPIC, FIRST), 0.0)
    world.dispatch.timer(TransferDue(TOPIC, FIRST))
    assert tree.root is None


def test_a_root_that_is_the_closest_again_by_then_goes_on() -> None:
    world = Parts(*CLOSER)
    tree = world.root()
    admits(world)
    world.moving_roots.leaf_set_changed()
    world.ring.contacts = ALICE, BOB
    world.dispatch.timer(TransferDue(TOPIC, FIRST))
    assert tree.root is not None
    assert not tree.root.closing


def test_a_root_looks_again_for_a_closer_peer_that_is_suspected() -> None:
    world = Parts(*CLOSER)
    world.moving_roots.watch_closer(world.root())
    assert world.host.timers[-1] == (LookAgain(TOPIC, FIRST), world.config.ask_s)


def test_a_peer_that_is_about_to_leave_admits_nothing_more() -> None:
    world = Parts(*CLOSER)
    tree = world.root()
    world.moving_roots.close()
    assert tree.root is not None
    assert tree.root.closing
    world.moving_roots.all_stable(tree.root)
    assert not any(isinstance(timer, TransferDue) for timer in world.timers), "leaving has its own time"


def test_a_root_that_begins_a_session_takes_the_topic_over_from_itself() -> None:
    world = Parts(ALICE, BOB)
    tree = world.root()
    assert tree.root is not None
    world.next_sessions.begin(tree, tree.root, DESCRIPTOR)
    assert world.ordered[-1] == BecomeRoot(TOPIC, "transferred", (), DESCRIPTOR)
    assert tree.root is None
    offer = world.offers.take(TOPIC)
    assert offer is not None
    assert (offer.term, offer.root, offer.leases) == (FIRST, ALICE, {})


def test_a_session_that_is_called_off_leaves_the_root_open() -> None:
    world = Parts(ALICE, BOB)
    tree = world.root()
    assert tree.root is not None
    tree.root.stop()
    world.next_sessions.call_off(tree, tree.root)
    assert not tree.root.closing
