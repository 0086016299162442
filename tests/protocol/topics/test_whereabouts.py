"""Leases of children that were lost, and that speak elsewhere: a peer asks them, and what follows."""

import pytest

from quillcast.protocol.neighbours.stream_messages import Changes, Resend
from quillcast.protocol.topics.messages import HasOtherParent, LeaseHeld, LeaseOver, NameAgain
from quillcast.protocol.topics.state.holders import SINCE, OrphanedLease
from quillcast.protocol.topics.state.link_reports import ChildReport, Move, encode, first_number
from quillcast.protocol.topics.state.moves import arrivals, departures
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, block, down
from tests.protocol.topics.parts import CONFIG, Parts, next_life
from tests.protocol.topics.test_invitations import parent_of, three_branches
from tests.protocol.topics.test_terms import NAME

RUN = b"this run"
EPOCH, NUMBER = RUN + bytes(4), next_life(first_number(RUN)) + 8


def lose(world: Parts, tree: Tree, number: int = 7) -> OrphanedLease:
    """The tree loses a child, Bob, that had come by this one of its moves and has no event."""
    child = world.child(tree, BOB)
    child.number = number
    world.children.links.add(BOB)
    world.children.remove(tree, BOB.node_id, "lost", lease=True)
    return tree.leases.orphaned[BOB.node_id]


def event_comes(tree: Tree) -> None:
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)


def round_at(world: Parts, time: float) -> list[object]:
    """What a round of housekeeping at a time sends."""
    world.host.time = time
    before = len(world.host.sent)
    world.whereabouts.housekeep(time, paused=False)
    return world.host.sent[before:]


def test_a_lost_child_is_asked_again_and_again_while_its_lease_holds_anything_back(world: Parts) -> None:
    tree = world.root()
    lease = lose(world, tree)
    world.schedule.wake(tree)
    assert round_at(world, CONFIG.tree_heartbeat_s) == [], "it lacks nothing"
    event_comes(tree)
    asked = [(BOB, LeaseHeld([(tree.topic, 7, (ALICE.node_id,))]))]
    assert round_at(world, CONFIG.tree_heartbeat_s) == asked
    assert departures(tree.leases, CAROL.node_id, world.host.time) == (), "it may be dead, and nobody need hear of it"
    assert round_at(world, 1.5 * CONFIG.tree_heartbeat_s) == []
    assert round_at(world, 2 * CONFIG.tree_heartbeat_s) == asked
    assert lease.until == CONFIG.lease_s


def test_a_child_whose_move_is_not_known_is_not_asked(world: Parts) -> None:
    """Nobody could tell whether it was restarted since, and so whether it speaks for those that were below it."""
    tree = world.root()
    lose(world, tree, number=0)
    world.schedule.wake(tree)
    event_comes(tree)
    assert round_at(world, CONFIG.tree_heartbeat_s) == []


def test_a_child_that_is_taken_back_without_a_join_keeps_the_number_of_its_move(world: Parts) -> None:
    tree = world.root()
    lose(world, tree)
    assert world.children.enter(tree, BOB, 0).number == 7


def test_those_above_are_told_of_a_lost_child_that_speaks_elsewhere(world: Parts) -> None:
    tree = world.root()
    lose(world, tree)
    world.schedule.take()
    world.whereabouts.speaks_elsewhere(BOB, HasOtherParent([(tree.topic, CAROL.node_id)]))
    (waiting,) = departures(tree.leases, ALICE.node_id, world.host.time)
    assert waiting.up_to == CAROL.node_id
    assert Move(BOB.node_id, 7).follows(waiting), "one Join may have gone to both parents"
    assert departures(tree.leases, CAROL.node_id, world.host.time) == ()
    assert world.schedule.take() == [tree.topic]


def test_a_peer_with_another_parent_has_that_name_it_again(world: Parts) -> None:
    tree = world.tree()
    tree.parent, tree.path = CAROL, (PAUL, CAROL.node_id)
    world.terms.keep(tree)
    number = world.membership.moves.of(tree.topic)
    world.whereabouts.lease_held(BOB, LeaseHeld([(tree.topic, number, (PAUL, BOB.node_id))]))
    said = [(tree.topic, PAUL)]
    assert world.host.sent == [(BOB, HasOtherParent(said)), (CAROL, NameAgain(said, number))]


def test_a_peer_looks_for_another_parent_when_its_own_asks_where_it_is(world: Parts) -> None:
    """It is heard there no more, and still hears it. One question may have been asked before it was heard again."""
    tree = world.tree()
    tree.parent, tree.path = BOB, (BOB.node_id,)
    world.terms.keep(tree)
    world.membership.parents.add(BOB)
    number = world.membership.moves.of(tree.topic)
    parents = []
    for at in (0.0, 0.5, 10.0, 11.0):
        round_at(world, at * CONFIG.tree_heartbeat_s)
        world.whereabouts.lease_held(BOB, LeaseHeld([(tree.topic, number, ())]))
        parents.append(tree.parent)
    assert parents == [BOB, BOB, BOB, None]


def test_a_parent_that_asks_once_is_not_left_because_another_or_it_before_asked(world: Parts) -> None:
    tree = world.tree()
    world.terms.keep(tree)
    number = world.membership.moves.of(tree.topic)
    parents = []
    for at, parent in enumerate((BOB, CAROL, CAROL, CAROL)):
        tree.parent, tree.path = parent, (parent.node_id,)
        world.membership.parents.add(parent)
        round_at(world, at * CONFIG.tree_heartbeat_s)
        world.whereabouts.lease_held(parent, LeaseHeld([(tree.topic, number, ())]))
        parents.append(tree.parent)
    assert parents == [BOB, CAROL, None, CAROL]


def test_a_peer_that_needs_the_topic_no_more_says_so_if_no_lease_goes_on_below_it(world: Parts) -> None:
    topic = b"t" * 16
    number = world.membership.moves.of(topic)
    world.whereabouts.lease_held(BOB, LeaseHeld([(topic, number, ())]))
    assert world.host.sent == [(BOB, LeaseOver([(topic, number)]))]
    tree = world.tree()
    lose(world, tree)
    world.host.sent.clear()
    world.whereabouts.lease_held(BOB, LeaseHeld([(tree.topic, number, ())]))
    assert world.host.sent == []


def test_a_peer_that_was_restarted_since_does_not_speak_for_those_that_were_below_it(world: Parts) -> None:
    number = next_life(world.membership.moves.of(b"t" * 16))
    world.whereabouts.lease_held(BOB, LeaseHeld([(b"t" * 16, number, ())]))
    assert world.host.sent == []


def test_a_lease_is_over_when_the_child_says_so(world: Parts) -> None:
    tree = world.root()
    lose(world, tree)
    world.schedule.take()
    world.whereabouts.lease_over(CAROL, LeaseOver([(tree.topic, 7)]))
    assert list(tree.leases.orphaned) == [BOB.node_id]
    world.whereabouts.lease_over(BOB, LeaseOver([(tree.topic, 6)]))
    assert list(tree.leases.orphaned) == [BOB.node_id], "of an earlier one"
    world.whereabouts.lease_over(BOB, LeaseOver([(tree.topic, 7)]))
    assert tree.leases.orphaned == {}
    assert world.schedule.take() == [tree.topic]


def test_a_child_is_named_again(world: Parts) -> None:
    tree = world.root()
    child = world.child(tree, BOB)
    child.note_report(ChildReport(FIRST, 0, FIRST))
    child.number, child.up_to = 8, ALICE.node_id
    assert (child.spoken, arrivals(tree.leases, ALICE.node_id)) == (SINCE, ())
    world.whereabouts.name_again(BOB, NameAgain([(tree.topic, CAROL.node_id)]))
    assert arrivals(tree.leases, ALICE.node_id) == (Move(BOB.node_id, 8, CAROL.node_id),)


@pytest.mark.parametrize(("number", "named_by"), [(NUMBER + 1, NUMBER + 1), (next_life(NUMBER), NUMBER)])
def test_a_child_that_asked_another_parent_in_vain_is_named_by_the_number_that_it_gave_there(
    world: Parts, number: int, named_by: int
) -> None:
    """That one waits for a move with this number at least. In its next life the child speaks for others."""
    tree = world.root()
    report = encode(ChildReport(FIRST, 0, FIRST))
    world.streams.receive(BOB, Changes(EPOCH, 0, 1, ((tree.topic, report),)))
    world.reporting.changed(BOB, tree.topic, report)
    tree.leases.children[BOB.node_id].number = NUMBER
    world.whereabouts.name_again(BOB, NameAgain([(tree.topic, CAROL.node_id)], number))
    world.reporting.changed(BOB, tree.topic, report)
    assert arrivals(tree.leases, ALICE.node_id) == (Move(BOB.node_id, named_by, CAROL.node_id),)


def test_a_child_counts_the_moves_for_which_it_was_taken_in_vain(world: Parts) -> None:
    tree, moves = world.tree(), world.membership.moves
    tree.parent = CAROL
    number = moves.next(tree.topic)  # which the Join named that it was taken in for
    world.terms.keep(tree)
    world.whereabouts.lease_held(BOB, LeaseHeld([(tree.topic, number, ())]))
    assert world.host.sent[-1] == (CAROL, NameAgain([(tree.topic, b"")], number))
    world.whereabouts.lease_held(BOB, LeaseHeld([(tree.topic, number - 1, ())]))
    assert moves.of(tree.topic) == number


@pytest.mark.parametrize(
    ("number", "named"),
    [(NUMBER, (Move(BOB.node_id, NUMBER, CAROL.node_id),)), (first_number(b"earlier "), ()), (0, ())],
    ids=["of this run", "of a run before a restart", "none"],
)
def test_a_child_that_was_taken_back_without_a_join_is_named_by_the_number_that_it_says_once_it_speaks_again(
    world: Parts, number: int, named: tuple[Move, ...]
) -> None:
    tree = world.root()
    report = encode(ChildReport(FIRST, 0, FIRST))
    world.streams.receive(BOB, Changes(EPOCH, 0, 1, ((tree.topic, report),)))
    world.reporting.changed(BOB, tree.topic, report)
    world.whereabouts.name_again(BOB, NameAgain([(tree.topic, CAROL.node_id)], number))
    asked = [to for to, message in world.host.sent if isinstance(message, Resend)]
    assert (arrivals(tree.leases, ALICE.node_id), asked) == ((), [BOB] if named else []), (
        "what it said before may be old"
    )
    world.reporting.changed(BOB, tree.topic, report)
    assert arrivals(tree.leases, ALICE.node_id) == named


def test_a_child_that_may_have_been_restarted_meanwhile_gets_no_number(world: Parts) -> None:
    tree = world.root()
    report = encode(ChildReport(FIRST, 0, FIRST))
    world.streams.receive(BOB, Changes(EPOCH, 0, 1, ((tree.topic, report),)))
    world.streams.receive(BOB, Changes(EPOCH, 2, 3, ()))
    world.reporting.changed(BOB, tree.topic, report)
    world.whereabouts.name_again(BOB, NameAgain([(tree.topic, CAROL.node_id)], NUMBER))
    assert tree.leases.children[BOB.node_id].number == 0


def test_what_a_lost_child_holds_back_is_stable_soon_after_it_can_be_asked() -> None:
    village, (root, first, _, mover), publisher = three_branches()
    cut = village.world.cut(lambda a, b: {a, b} == {first, mover})
    village.run(8)
    assert parent_of(village, mover) not in (None, first)
    village.publish(root, publisher, b"one")
    village.run(4)
    assert (publisher.stable, list(village.tree(first, NAME).leases.orphaned)) == (
        0,
        [village.world.machines[mover].node_id],
    )
    village.world.heal(cut)
    village.run(4)
    assert publisher.stable == 1
