"""A peer as the root: bundles that come, publishers that send, and requests that wait."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, NO_TERM, UP, Envelope, Term
from quillcast.core.messages import Contact
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.root.offers import Offer
from quillcast.protocol.topics.root.sealing import Acknowledge, Seal
from quillcast.protocol.topics.root_messages import FindRoot, NotRoot, TransferLeadership
from quillcast.protocol.topics.state.effects import (
    AllStable,
    AwaitRoot,
    BecomeRoot,
    GapNoticed,
    Resign,
)
from quillcast.protocol.topics.state.holders import SINCE
from quillcast.protocol.topics.state.link_reports import Move
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, SECOND, WEATHER, block, up
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts


def test_a_bundle_with_a_gap_before_it_is_moved_and_the_gap_noticed(world: Parts) -> None:
    tree = world.root()
    assert world.table.move(tree.flow, Bundle(Envelope(tree.topic, DOWN, FIRST, 0), (block(PAUL, 0),)))
    assert world.ordered == []
    assert world.table.move(tree.flow, Bundle(Envelope(tree.topic, DOWN, FIRST, 2), (block(PAUL, 2),)))
    assert world.ordered == [GapNoticed(tree.topic)]


def test_a_bundle_of_a_later_term_that_ends_a_peers_part_in_the_topic_is_dropped(world: Parts) -> None:
    """A root that hears of a later term transfers the topic, and may have no more use for the topic."""
    tree = world.root()
    bundle = Bundle(Envelope(tree.topic, DOWN, SECOND, 0), (block(PAUL, 0),))
    world.orders.ordered = Forgetful(world, tree)
    world.table.arrive(BOB, bundle)
    assert (world.table.flows, world.budget.used_bytes) == ({}, 0)
    assert world.host.released == [(BOB.node_id, bundle.size)]


class Forgetful(list[object]):
    """Carries out the first order in the shortest way: the topic is forgotten."""

    def __init__(self, world: Parts, tree: Tree) -> None:
        self.world, self.tree = world, tree

    def append(self, effect: object) -> None:
        self.world.open_trees.forget(self.tree)


def test_publishers_hear_what_is_stable_once_all_leases_cover_it(world: Parts) -> None:
    tree = world.root()
    assert tree.root is not None
    tree.root.admit(BOB, up(0, block(PAUL, 0)))
    for bundle in tree.root.seal():
        world.table.move(tree.flow, bundle)
    tree.root.closing = True
    world.progress.advance_stable(tree, world.host.now())
    assert tree.flow.current.stable == 1
    assert world.sent == [(BOB, "Receipts")]
    assert world.ordered == [AllStable(tree.topic)]


def test_a_peer_that_is_not_root_returns_credit_and_names_the_likely_root(world: Parts) -> None:
    world.intake.successors.note(WEATHER, CAROL)
    bundle = up(0, block(PAUL, 0))
    world.intake.up(BOB, bundle)
    assert world.host.released == [(BOB.node_id, bundle.size)]
    assert world.host.sent == [(BOB, NotRoot(WEATHER, CAROL))]


def test_a_root_admits_events_and_seals_them_at_the_end_of_the_turn(world: Parts) -> None:
    tree = world.root(described("weather"))
    assert world.intake.trees.by_topic[tree.topic] is tree
    world.intake.publish_here(Bundle(Envelope(tree.topic, UP), (block(PAUL, 0),)))
    world.dispatch.timer(Seal(tree.topic))
    assert tree.frontier == 1
    assert [type(timer) for timer in world.timers if isinstance(timer, (Seal, Acknowledge))] == [Seal, Acknowledge]


def test_a_root_with_an_outdated_term_begins_a_later_one_or_transfers_leadership() -> None:
    for ring, ordered in ((ALICE, BecomeRoot), (BOB, Resign)):
        world = Parts(ring, CAROL)
        tree = world.root()
        world.candidacies.outdone(tree)
        assert [type(effect) for effect in world.ordered] == [ordered]
        assert (tree.root is None) == (ordered is BecomeRoot)


def test_a_request_for_a_root_that_this_peer_is_not_yet_waits(world: Parts) -> None:
    message = FindRoot(DESCRIPTOR.topic, BOB, None, NO_TERM)
    world.rendezvous.find(message)
    assert world.ordered == [AwaitRoot(DESCRIPTOR.topic, message)]


@pytest.mark.parametrize(("term", "holds"), [(FIRST._replace(node=PAUL), True), (SECOND, False), (FIRST, False)])
def test_a_root_that_the_topic_was_transferred_to_waits_for_leases_beside_the_roots_before_it(
    world: Parts, term: Term, *, holds: bool
) -> None:
    """A publisher comes from a root that was one at the same time as those, and spoke 2 s ago."""
    tree = world.root()
    assert tree.root is not None
    offer = Offer(TransferLeadership(tree.descriptor, SECOND, 0, 0, followed=(FIRST,)), world.host.time, BOB)
    tree.root.term = Term(3, CAROL.node_id)
    world.next_root.take_over(tree, tree.root, offer)
    world.rendezvous.find(FindRoot(tree.topic, BOB, None, term, spoke_s=2.0))
    assert tree.root.held_until == world.host.time + (CONFIG.lease_s - 2.0 if holds else 0.0)
    assert world.last_words.of(tree, tree.root).followed == (FIRST, SECOND)


def test_a_publisher_tells_for_how_long_the_events_of_earlier_terms_have_been_there(world: Parts) -> None:
    tree, term, earlier = world.root(), Term(1, CAROL.node_id), Term(1, BOB.node_id)
    tree.flow.begin(SECOND, 0, 0.0)
    world.rendezvous.find(
        FindRoot(tree.topic, BOB, None, term, settled=((earlier, 3, 40_000),), dropped=((term, 5, 2000),))
    )
    told = {each: (end, stable, there_ms) for each, end, _, stable, there_ms in tree.flow.held(world.host.time)}
    assert (told[earlier], told[term]) == ((3, 3, 40_000), (5, 0, 2000))


@pytest.mark.parametrize(
    ("went", "term", "past", "holds"),
    [
        (2, FIRST, (), False),
        (0, FIRST._replace(node=BOB.node_id), (), True),
        (2, SECOND, ((FIRST, 2),), False),
        (2, SECOND, ((FIRST, 1),), True),
        (2, SECOND, (), True),
        (0, SECOND, (), False),
    ],
    ids=["its own term", "its rival", "a later one", "that knew a part", "that knew nothing", "or nothing came"],
)
def test_who_is_handed_a_topic_holds_for_a_lease_if_it_was_in_the_tree_of_another_root(
    world: Parts, went: int, term: Term, past: tuple[tuple[Term, int], ...], holds: bool
) -> None:
    tree = world.tree()
    tree.flow.begin(FIRST, 0, 0.0, 0)
    tree.parent_has(went)
    told = tuple((*each, None) for each in past)
    sender = Contact(term.node, "before:1")
    world.next_root.received(sender, TransferLeadership(DESCRIPTOR, term, 5, 5, term, past=told))
    until = world.offers.by_topic[DESCRIPTOR.topic].hold_until
    assert until == world.host.time + (CONFIG.lease_s if holds else 0.0)


def test_a_topic_that_is_handed_to_a_peer_that_is_not_the_closest_is_kept(world: Parts) -> None:
    world.next_root.received(BOB, TransferLeadership(DESCRIPTOR, FIRST, 0, 0, FIRST, 0.0))
    assert list(world.offers.by_topic) == [DESCRIPTOR.topic]
    assert world.known.terms == {DESCRIPTOR.topic: FIRST}
    assert world.ordered == []


@pytest.mark.parametrize(
    ("after", "heard", "rival", "known", "waits_for"),
    [
        (SECOND, SECOND, False, False, [BOB.node_id]),
        (Term(3, BOB.node_id), SECOND, False, False, []),
        (SECOND, Term(3, BOB.node_id), False, False, []),
        (SECOND, SECOND, True, False, []),
        (SECOND, SECOND, False, True, []),
    ],
    ids=["late", "another was root between", "it knew of one between", "here were a rival's leases", "known already"],
)
def test_a_root_that_took_over_before_it_was_told_waits_only_for_those_that_are_named(
    world: Parts, after: Term, heard: Term, waits_for: list[bytes], *, rival: bool, known: bool
) -> None:
    tree = world.root()
    root = tree.root
    assert root is not None
    root.term, tree.heard = Term(4, CAROL.node_id), Term(4, CAROL.node_id)
    root.after, root.followed, root.hold_until = after, (SECOND,) * known, world.host.time + CONFIG.lease_s
    tree.flow.begin(root.term, 0, 0.0, 0)
    if rival:
        world.terms.recall(tree, FIRST, 5)
    message = TransferLeadership(DESCRIPTOR, SECOND, 2, 2, heard, 1.0, (CAROL.node_id, BOB.node_id))
    world.joins.adopt(Join(tree.topic, CAROL, None, DESCRIPTOR.digest))
    tree.leases.children[CAROL.node_id].spoken = SINCE
    world.next_root.received(BOB, message)
    assert list(root.awaited) == waits_for
    assert root.hold_until == world.host.time + CONFIG.lease_s
    root.heard_from([Move(BOB.node_id, 0)])
    assert root.hold_until == world.host.time + (1.0 if waits_for else CONFIG.lease_s)
