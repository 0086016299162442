"""Sealing at the end of a turn, and what follows: one input, and what was ordered of the host."""

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import UP, Envelope
from quillcast.protocol.topics.query_messages import Survey
from quillcast.protocol.topics.root.sealing import Acknowledge, Seal
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import BOB, CAROL, PAUL, PAULA, block
from tests.protocol.topics.parts import Parts


def admit(world: Parts, tree: Tree, publisher: bytes = PAUL) -> Bundle:
    """A bundle that BOB sent, and the root admitted."""
    assert tree.root is not None
    bundle = Bundle(Envelope(tree.topic, UP), (block(publisher, 0),))
    tree.root.admit(BOB, bundle)
    world.sealing.admitted(tree, tree.root, BOB.node_id, bundle.size)
    return bundle


def test_what_is_admitted_in_one_turn_is_sealed_once(world: Parts) -> None:
    tree = world.root()
    for publisher in (PAUL, PAULA):
        admit(world, tree, publisher)
    assert world.timers == [Seal(tree.topic)]
    world.sealing.seal(Seal(tree.topic))
    assert tree.frontier == 2
    assert world.timers[0] == Seal(tree.topic)
    assert world.timers[-1] == Acknowledge(tree.topic)


def test_the_turn_after_is_sealed_again(world: Parts) -> None:
    tree = world.root()
    for publisher in (PAUL, PAULA):
        admit(world, tree, publisher)
        world.sealing.seal(Seal(tree.topic))
    assert world.timers.count(Seal(tree.topic)) == 2


def test_credit_and_receipts_go_back_when_the_bundles_have_left(world: Parts) -> None:
    tree = world.root()
    bundle = admit(world, tree)
    world.sealing.seal(Seal(tree.topic))
    assert (world.host.released, world.sent) == ([], [])
    world.sealing.acknowledge(Acknowledge(tree.topic))
    assert (world.host.released, world.sent) == ([(BOB.node_id, bundle.size)], [(BOB, "Receipts")])
    assert world.sealing.unsealed == {}


def test_credit_goes_back_though_the_root_went_before_the_turn_was_over(world: Parts) -> None:
    tree = world.root()
    bundle = admit(world, tree)
    tree.root = None
    world.sealing.seal(Seal(tree.topic))
    assert world.host.released == [(BOB.node_id, bundle.size)]
    assert world.sealing.unsealed == {}


def test_a_topic_that_went_meanwhile_is_neither_sealed_nor_acknowledged(world: Parts) -> None:
    world.sealing.seal(Seal(PAUL))
    world.sealing.acknowledge(Acknowledge(PAUL))
    assert (world.timers, world.sent) == ([], [])


def test_what_a_root_admitted_leaves_before_its_term_ends(world: Parts) -> None:
    tree = world.root()
    assert tree.root is not None
    bundle = admit(world, tree)
    world.sealing.finish(tree, tree.root)
    assert tree.frontier == 1
    assert (world.host.released, world.sent) == ([(BOB.node_id, bundle.size)], [(BOB, "Receipts")])


def test_who_seals_next_is_asked_to_mark_the_bundle_that_somebody_follows(world: Parts) -> None:
    tree = world.root()
    world.tracing.ask(Survey(tree.topic, BOB, 1, trace_s=5.0))
    world.sealing.pass_marks_on(tree.topic, CAROL)
    assert world.sent == [(CAROL, "Survey")]
