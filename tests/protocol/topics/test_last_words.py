"""What a root says to the next one: one tree, then the message."""

from quillcast.protocol.topics.root.last_words import followed_by, numbered, without
from quillcast.protocol.topics.root_messages import AnotherFollows, TransferLeadership
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, SECOND, WEATHER
from tests.protocol.topics.parts import DESCRIPTOR, Parts


def test_a_root_without_events_that_nobody_needs_names_no_peer_to_wait_for(world: Parts) -> None:
    tree = world.root()
    assert tree.root is not None
    assert world.last_words.of(tree, tree.root) == TransferLeadership(DESCRIPTOR, FIRST, 0, 0, FIRST)


def test_a_root_that_stays_in_the_tree_is_waited_for_with_all_below_it(world: Parts) -> None:
    tree = world.root()
    world.child(tree, BOB)
    assert tree.root is not None
    assert numbered(world.last_words.of(tree, tree.root)) == {ALICE.node_id: world.progress.moves.of(tree.topic)}


def test_a_root_that_leaves_is_waited_for_only_if_it_has_to_say_farewell(world: Parts) -> None:
    tree = world.root()
    world.open_trees.leave()
    assert tree.root is not None
    assert not world.last_words.follows(tree, tree.root)
    world.child(tree, BOB)
    assert world.last_words.follows(tree, tree.root)


def test_a_next_root_does_not_wait_for_itself() -> None:
    said = TransferLeadership(DESCRIPTOR, FIRST, 0, 0, leases=(BOB.node_id, CAROL.node_id), lives=(3, 4))
    told = without(BOB, said)
    assert (told.leases, told.lives) == ((CAROL.node_id,), (4,))


def test_peers_are_waited_for_even_if_the_number_of_their_last_move_is_unknown() -> None:
    said = AnotherFollows(WEATHER, FIRST, BOB, (BOB.node_id, CAROL.node_id), (3,))
    assert numbered(said) == {BOB.node_id: 3, CAROL.node_id: 0}


def test_a_term_with_events_is_a_past_one_to_the_root_of_the_next_term() -> None:
    said = TransferLeadership(DESCRIPTOR, FIRST, 5, 4, there_ms=7)
    after = followed_by(said, SECOND)
    assert (after.term, after.index, after.stable, after.there_ms) == (SECOND, 0, 0, 0)
    assert (after.past, after.followed) == (((FIRST, 5, 7),), (FIRST,))
    assert followed_by(after, FIRST).past == after.past, "a term without events need not be known"
