"""A forwarder that was restarted knows nothing of those that were below it: their leases go on without it."""

import pytest

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.stream_messages import Changes, Resend
from quillcast.protocol.topics.messages import Accepted, Farewell, Have, Join, Leave
from quillcast.protocol.topics.root.offers import Offer
from quillcast.protocol.topics.root_messages import TransferLeadership
from quillcast.protocol.topics.state.holders import UNKNOWN_PEER, Ended
from quillcast.protocol.topics.state.link_reports import (
    COUNT_BITS,
    LIVES_TOLD_APART_MAX,
    ChildReport,
    Move,
    MoveCount,
    ParentReport,
    decode,
    encode,
    first_number,
    joined_since,
    same_life,
)
from quillcast.protocol.topics.state.moves import arrivals, departures
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL
from tests.protocol.topics.parts import DESCRIPTOR, Parts, next_life

NUMBER = next_life(7)
RUN = b"this run"
DAVE = Contact(b"d" * 16, "dave")


def joined(world: Parts, tree: Tree, contact: Contact, have: Have | None, **options: int | bool) -> None:
    world.joins.adopt(Join(tree.topic, contact, have, DESCRIPTOR.digest, **options))


def says(world: Parts, tree: Tree, contact: Contact, **names: tuple[Move, ...]) -> None:
    world.reporting.changed(contact, tree.topic, encode(ChildReport(tree.term, 0, tree.term, **names)))


def awaited(tree: Tree) -> list[list[bytes]]:
    return [list(lease.awaited) for lease in tree.leases.orphaned.values()]


@pytest.mark.parametrize(
    ("have", "left"),
    [(None, [[UNKNOWN_PEER]]), (Have(FIRST, 0, own=False), [[UNKNOWN_PEER]]), (Have(FIRST, 0), [])],
    ids=["restarted", "restarted, and others joined it meanwhile", "not restarted"],
)
def test_a_child_that_comes_again_speaks_for_those_below_it_unless_it_was_restarted(
    have: Have | None, left: list[list[bytes]]
) -> None:
    world = Parts()
    tree = world.root()
    joined(world, tree, BOB, None)
    says(world, tree, BOB)
    world.children.remove(tree, BOB.node_id, "lost", lease=True)
    joined(world, tree, BOB, have)
    says(world, tree, BOB)
    assert awaited(tree) == left


def test_a_child_that_is_restarted_before_it_speaks_ends_no_lease_of_those_below_it() -> None:
    world = Parts()
    tree = world.root()
    joined(world, tree, BOB, None)
    says(world, tree, BOB)
    world.children.remove(tree, BOB.node_id, "lost", lease=True)
    joined(world, tree, BOB, Have(FIRST, 0))
    joined(world, tree, BOB, None)
    says(world, tree, BOB)
    assert awaited(tree) == [[UNKNOWN_PEER]]


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "still a child"])
@pytest.mark.parametrize(("number", "left"), [(NUMBER + 1, []), (next_life(NUMBER), [[UNKNOWN_PEER]])])
def test_a_child_that_was_restarted_and_comes_from_another_parent_ends_no_lease_of_those_below_it(
    number: int, left: list[list[bytes]], lost: bool
) -> None:
    world = Parts()
    tree = world.root()
    joined(world, tree, BOB, None, number=NUMBER)
    says(world, tree, BOB)
    if lost:
        world.children.remove(tree, BOB.node_id, "lost", lease=True)
    joined(world, tree, BOB, Have(FIRST, 0), number=number, moved=True)
    joined(world, tree, BOB, Have(FIRST, 0), number=number, moved=True)
    says(world, tree, BOB)
    assert awaited(tree) == left


@pytest.mark.parametrize("gone", ["", "lost", "moved"], ids=["still a child", "lost", "moved"])
@pytest.mark.parametrize("life", ["same", "next"])
def test_a_join_that_comes_twice_is_no_restart(gone: str, life: str) -> None:
    """The first answer was slow, so the child asked again, from before it had anything; others came below it since."""
    world = Parts()
    tree = world.root()
    assert tree.root is not None
    joined(world, tree, BOB, None, number=NUMBER)
    says(world, tree, BOB)
    if gone:
        world.children.remove(tree, BOB.node_id, gone, lease=True)
    tree.root.awaited = {BOB.node_id: NUMBER}
    joined(world, tree, BOB, None, number=NUMBER if life == "same" else next_life(NUMBER))
    says(world, tree, BOB)
    left = life == "next"
    assert (awaited(tree), [*tree.root.awaited]) == ([[UNKNOWN_PEER]] * left, [UNKNOWN_PEER] * left)


@pytest.mark.parametrize(
    ("number", "left"),
    [(first_number(RUN) + 3, []), (NUMBER, [[BOB.node_id]]), (0, [[BOB.node_id]])],
    ids=["joined in this run", "joined in a former run", "not known"],
)
def test_a_young_peer_that_is_no_child_leaves_a_lease_behind_only_in_a_former_run(
    number: int, left: list[list[bytes]]
) -> None:
    """The parent's answer was late, and the child has left the topic meanwhile."""
    world = Parts()
    tree = world.root()
    joined(world, tree, BOB, None, number=number)
    says(world, tree, BOB)
    world.children.left(BOB, Leave(tree.topic, run=RUN))
    assert (awaited(tree), tree.leases.children) == (left, {})


def test_what_a_child_said_before_it_came_speaks_for_nobody_until_it_says_it_again() -> None:
    """It may have been restarted since, or the others elsewhere."""
    world = Parts()
    tree = world.root()
    report = ChildReport(tree.term, 0, tree.term, arrivals=(Move(CAROL.node_id, NUMBER),))
    world.streams.receive(BOB, Changes(bytes(12), 0, 1, ((tree.topic, encode(report)),)))
    joined(world, tree, CAROL, None)
    says(world, tree, CAROL)
    world.children.remove(tree, CAROL.node_id, "lost", lease=True)
    tree.leases.orphaned[CAROL.node_id].awaited[BOB.node_id] = None
    joined(world, tree, BOB, Have(FIRST, 0), number=NUMBER, moved=True)
    assert [to for to, message in world.host.sent if isinstance(message, Resend)] == [BOB]
    assert (awaited(tree), arrivals(tree.leases, PAUL)) == ([[CAROL.node_id, BOB.node_id]], ())
    world.schedule.take()
    says(world, tree, BOB, arrivals=report.arrivals)
    assert (awaited(tree), arrivals(tree.leases, PAUL)) == ([], (Move(BOB.node_id, NUMBER), *report.arrivals))
    assert world.schedule.take() == [tree.topic]


@pytest.mark.parametrize(("number", "left"), [(NUMBER + 1, []), (next_life(NUMBER), [[UNKNOWN_PEER]])])
def test_a_former_child_that_others_name_speaks_for_those_below_it_unless_it_was_restarted(
    number: int, left: list[list[bytes]]
) -> None:
    world = Parts()
    tree = world.root()
    joined(world, tree, CAROL, None)
    joined(world, tree, BOB, None, number=NUMBER)
    says(world, tree, BOB)
    world.children.remove(tree, BOB.node_id, "lost", lease=True)
    says(world, tree, CAROL, arrivals=(Move(BOB.node_id, number),))
    assert awaited(tree) == left


def lost_and_then_above(world: Parts, *, leaf: bool = False) -> Tree:
    """Bob was a child here, with others below it, and is now above this peer's parent."""
    tree = world.root()
    joined(world, tree, BOB, None, number=NUMBER + 1)
    says(world, tree, BOB)
    world.streams.receive(
        BOB, Changes(bytes(12), 0, 1, ((tree.topic, encode(ChildReport(FIRST, 0, FIRST, leaf=leaf))),))
    )
    world.children.remove(tree, BOB.node_id, "lost", lease=True)
    tree.root, tree.parent = None, CAROL
    world.schedule.take()
    says_above(world, tree)
    return tree


def says_above(world: Parts, tree: Tree, *arrivals: Move) -> None:
    report = ParentReport(tree.term, 0, 0, (BOB.node_id, CAROL.node_id), (), arrivals=arrivals)
    world.reporting.changed(CAROL, tree.topic, encode(report))


@pytest.mark.parametrize(("number", "left"), [(NUMBER + 1, []), (next_life(NUMBER), [[BOB.node_id]])])
def test_a_former_child_above_speaks_for_those_below_it_unless_it_was_restarted(
    number: int, left: list[list[bytes]]
) -> None:
    world = Parts()
    tree = lost_and_then_above(world)
    assert awaited(tree) == [[BOB.node_id]]
    assert departures(tree.leases, world.host.me, world.host.time) == (Move(BOB.node_id, NUMBER, BOB.node_id),)
    assert world.schedule.take() == [tree.topic], "those above are asked"
    says_above(world, tree, Move(BOB.node_id, number))
    assert awaited(tree) == left
    assert bool(world.schedule.take()) is not bool(left)


def test_one_with_nobody_below_it_ends_its_lease_itself() -> None:
    world = Parts()
    assert awaited(lost_and_then_above(world, leaf=True)) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_parent_that_was_a_child_says_in_its_answer_whether_it_speaks_for_those_that_were_below_it(
    *, restarted: bool
) -> None:
    world = Parts()
    tree = world.root()
    joined(world, tree, BOB, None, number=NUMBER + 1)
    says(world, tree, BOB)
    world.children.remove(tree, BOB.node_id, "moved", lease=True, up_to=b"")
    tree.root = None
    world.terms.keep(tree)
    number = next_life(NUMBER) if restarted else NUMBER + 1
    world.membership.accepted(BOB, Accepted(tree.topic, tree.term, 0, (BOB.node_id,), (), number=number))
    assert awaited(tree) == ([[BOB.node_id]] if restarted else [])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_peer_above_says_so_to_those_that_were_its_parents_unless_it_was_restarted(*, restarted: bool) -> None:
    world = Parts()
    tree, moves = world.root(), world.progress.moves
    moves.moves += 1
    former = Move(moves.me, moves.of(tree.topic) - 1, moves.me)
    moves.begin_life(tree.topic if restarted else b"o" * 16)
    joined(world, tree, CAROL, None)
    says(world, tree, CAROL, departures=(former,))
    world.progress.tell(tree)
    report = decode(world.streams.telling(CAROL.node_id)[tree.topic])
    assert isinstance(report, ParentReport)
    assert report.arrivals == (() if restarted else (moves.latest(tree.topic),))


def test_a_new_forwarder_says_what_its_first_children_have_and_that_this_is_not_its_own() -> None:
    world = Parts()
    tree = world.tree()
    joined(world, tree, BOB, Have(FIRST, 3))
    joined(world, tree, CAROL, Have(FIRST, 2))
    assert world.membership.join_message(tree, fault=False).have == Have(FIRST, 2, own=False)


@pytest.mark.parametrize("directly", [True, False], ids=["it joins", "another names it"])
@pytest.mark.parametrize(("number", "left"), [(NUMBER + 1, []), (next_life(NUMBER), [[UNKNOWN_PEER]])])
def test_a_peer_that_a_leaving_one_named_speaks_for_those_below_it_unless_it_was_restarted(
    number: int, left: list[list[bytes]], directly: bool
) -> None:
    world = Parts()
    tree = world.root()
    joined(world, tree, DAVE, None, number=NUMBER)
    says(world, tree, DAVE)
    leave = Leave(tree.topic, moved=True, leases=(BOB.node_id,), lives=(NUMBER,))
    world.children.left(DAVE, leave)
    if directly:
        joined(world, tree, BOB, Have(FIRST, 0), number=number, moved=True)
        says(world, tree, BOB)
    else:
        joined(world, tree, CAROL, None)
        says(world, tree, CAROL, arrivals=(Move(BOB.node_id, number),))
    assert awaited(tree) == left


@pytest.mark.parametrize("directly", [True, False], ids=["it joins", "another names it"])
@pytest.mark.parametrize(("number", "left"), [(NUMBER + 1, []), (next_life(NUMBER), [UNKNOWN_PEER])])
def test_a_peer_that_the_root_before_named_speaks_for_those_below_it_unless_it_was_restarted(
    number: int, left: list[bytes], directly: bool
) -> None:
    world = Parts()
    tree = world.root()
    assert tree.root is not None
    offer = Offer(TransferLeadership(DESCRIPTOR, FIRST, 0, 0, leases=(BOB.node_id,), lives=(NUMBER,)), 9.0, DAVE)
    if directly:
        world.next_root.take_over(tree, tree.root, offer)
        joined(world, tree, BOB, Have(FIRST, 0), number=number, moved=True)
        assert list(tree.root.awaited) in ([BOB.node_id], left), "it may have another parent"
        says(world, tree, BOB)
    else:
        joined(world, tree, CAROL, None)
        says(world, tree, CAROL, arrivals=(Move(BOB.node_id, number),))
        world.next_root.take_over(tree, tree.root, offer)
    assert list(tree.root.awaited) == left


@pytest.mark.parametrize("word", ["it left", "it said farewell", "another names it", "a former root names it"])
@pytest.mark.parametrize(
    ("number", "left"),
    [(NUMBER, []), (NUMBER + 1, [BOB.node_id]), (next_life(NUMBER), [BOB.node_id])],
    ids=["of the same move", "of a later one", "of a later life"],
)
def test_a_word_on_an_earlier_move_ends_no_lease_of_a_later_one(word: str, number: int, left: list[bytes]) -> None:
    """A peer left in good order, or moved, and came back elsewhere, to a peer that now leaves and names it."""
    world = Parts()
    tree = world.root()
    assert tree.root is not None
    match word:
        case "it left":
            joined(world, tree, BOB, None, number=NUMBER, moved=True)
            says(world, tree, BOB)
            world.children.left(BOB, Leave(tree.topic, number=NUMBER))
        case "it said farewell":
            world.children.parted(tree, BOB, Farewell(tree.topic, number=NUMBER - 1))
        case "another names it":
            joined(world, tree, CAROL, None)
            says(world, tree, CAROL, arrivals=(Move(BOB.node_id, NUMBER),))
        case _:
            term = Term(1, CAROL.node_id)
            message = TransferLeadership(DESCRIPTOR, term, 0, 0, ended=(BOB.node_id,), ended_by=(NUMBER,))
            world.overlay.leaf_set.add(CAROL)
            world.next_root.received(CAROL, message)
    joined(world, tree, DAVE, None)
    says(world, tree, DAVE)
    world.children.left(DAVE, Leave(tree.topic, moved=True, leases=(BOB.node_id,), lives=(number,)))
    named = TransferLeadership(DESCRIPTOR, FIRST, 0, 0, leases=(BOB.node_id,), lives=(number,))
    world.next_root.take_over(tree, tree.root, Offer(named, 9.0, DAVE))
    assert awaited(tree) == ([left] if left else [])
    assert list(tree.root.awaited) == left


def test_a_peer_that_leaves_names_the_latest_move_of_whom_it_speaks_for() -> None:
    """Two former children may both have spoken for the same peer."""
    world = Parts()
    tree = world.tree()
    for contact, number in ((CAROL, NUMBER + 1), (DAVE, NUMBER)):
        joined(world, tree, contact, None)
        child = world.children.enter(tree, contact, 0)
        tree.open_leases().orphan(child, 9.0, (BOB.node_id,), numbers={BOB.node_id: number})
    world.membership.trees.leave_behind(tree.topic, tree.leases.orphaned)
    assert world.membership.last_word(tree.topic).lives == (NUMBER + 1,)


def test_a_root_that_left_and_came_back_is_waited_for_when_it_transfers_the_topic() -> None:
    """Others may still name it as one that left, and so may itself, of what the root before it said."""
    world = Parts()
    tree = world.tree()
    tree.open_leases().note_ended(BOB.node_id, Ended(1.0))
    tree.open_leases().note_ended(CAROL.node_id, Ended(1.0))
    ended = (BOB.node_id, world.host.me, DAVE.node_id)
    message = TransferLeadership(DESCRIPTOR, Term(1, BOB.node_id), 0, 0, leases=(BOB.node_id,), ended=ended)
    world.overlay.leaf_set.add(BOB)
    world.next_root.received(BOB, message)
    assert list(tree.leases.ended) == [CAROL.node_id, DAVE.node_id]


@pytest.mark.parametrize(("number", "stays"), [(NUMBER, True), (next_life(NUMBER), False)])
def test_a_root_that_left_after_it_had_transferred_the_topic_is_not_waited_for(number: int, *, stays: bool) -> None:
    """Its word may come after its farewell. If it came back since, it is waited for."""
    world = Parts()
    tree = world.tree()
    tree.open_leases().note_ended(BOB.node_id, Ended(1.0, Move(BOB.node_id, NUMBER + 1)))
    message = TransferLeadership(
        DESCRIPTOR, Term(1, BOB.node_id), 0, 0, leases=(BOB.node_id,), lives=(number,)
    )  # fmt: skip
    world.overlay.leaf_set.add(BOB)
    world.next_root.received(BOB, message)
    assert (BOB.node_id in tree.leases.ended) == stays


@pytest.mark.parametrize("late", [False, True], ids=["it joins after the word", "it joins before the word"])
def test_a_root_waits_for_a_peer_that_declined_a_place_at_it_until_another_names_that(*, late: bool) -> None:
    """It is between two parents: what the other one reports does not speak for it yet."""
    world = Parts()
    tree = world.root()
    assert tree.root is not None
    offer = Offer(TransferLeadership(DESCRIPTOR, FIRST, 0, 0, leases=(BOB.node_id,), lives=(NUMBER,)), 9.0, DAVE)
    if not late:
        world.next_root.take_over(tree, tree.root, offer)
    joined(world, tree, BOB, Have(FIRST, 0), number=NUMBER + 1, moved=True)
    if late:
        world.next_root.take_over(tree, tree.root, offer)
    world.children.remove(tree, BOB.node_id, "lost", lease=True)
    joined(world, tree, BOB, Have(FIRST, 0), number=NUMBER + 2, moved=True)
    world.children.left(BOB, Leave(tree.topic, declined=True, number=NUMBER + 2))
    assert BOB.node_id not in tree.leases.children
    assert (list(tree.root.awaited), awaited(tree)) == ([BOB.node_id], [[BOB.node_id]])
    joined(world, tree, CAROL, None)
    says(world, tree, CAROL, arrivals=(Move(BOB.node_id, NUMBER + 2),))
    assert (list(tree.root.awaited), awaited(tree)) == ([], [])


def test_a_peer_that_leaves_others_behind_in_a_topic_speaks_for_those_below_it_in_others() -> None:
    world = Parts()
    tree, moves = world.tree(), world.membership.moves
    world.children.enter(tree, BOB, 0)
    world.children.remove(tree, BOB.node_id, "lost", lease=True)
    other = b"o" * 16
    before, elsewhere = moves.of(tree.topic), moves.of(other)
    world.membership.close(tree)
    assert same_life(moves.of(other), elsewhere)
    assert not same_life(moves.of(tree.topic), before)
    assert joined_since(moves.next(tree.topic), before)


def test_a_peer_counts_no_move_for_which_it_never_asked() -> None:
    """It would count from then on as if it had been restarted."""
    moves, topic = MoveCount(b"m" * 16, b"r" * 16), b"t" * 16
    asked = moves.next(topic)
    moves.count(topic, asked | (1 << COUNT_BITS) - 1)
    assert moves.of(topic) == asked
    assert same_life(moves.next(topic), asked)


def test_a_peer_that_left_others_behind_in_too_many_topics_speaks_for_nobody_from_before() -> None:
    moves = MoveCount(b"m" * 16, b"r" * 16)
    numbers = [moves.of(b"o" * 16)]
    for topic in range(LIVES_TOLD_APART_MAX):
        moves.begin_life(topic.to_bytes(16, "big"))
        numbers.append(moves.of(topic.to_bytes(16, "big")))
    assert same_life(moves.of(b"o" * 16), numbers[0])
    moves.begin_life(b"l" * 16)
    assert len(moves.life_in) <= LIVES_TOLD_APART_MAX
    assert not any(same_life(moves.of(b"o" * 16), number) for number in numbers)
    assert all(moves.of(b"o" * 16) > number for number in numbers)
