"""The leases below a peer, and what is kept for them: one input, then what has become of them."""

import pytest

from quillcast.core.envelope import NO_TERM
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.policy import ChannelSpec
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.memory.retention import acknowledged_position, end_lease, last_holder, trim
from quillcast.protocol.topics.policy.channels import install, take_out, way_to
from quillcast.protocol.topics.state.holders import Child, Ended
from quillcast.protocol.topics.state.leases import NO_LEASES, Leases
from quillcast.protocol.topics.state.link_reports import Move
from quillcast.protocol.topics.state.moves import arrivals, departures, newcomers
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, RecordingHost, block, down

NUMBER = (1 << 32) + 1
MOVE = Move(BOB.node_id, NUMBER, ALICE.node_id)


def a_child(contact: Contact = BOB, acknowledged: int = 0) -> Child:
    return Child(RecordingHost(), contact, 0, FIRST if acknowledged else NO_TERM, acknowledged)


def with_an_orphan(*, until: float = 30.0, named_from: float = 0.0) -> Leases:
    leases = Leases()
    leases.orphan(a_child(), until, (BOB.node_id,), move=MOVE, named_from=named_from)
    return leases


def a_tree(*acknowledged: int) -> Tree:
    """Three events of the first term came here, and the children have acknowledged so many."""
    tree = Tree(bytes(16), described("weather"), Budget(1 << 20))
    tree.flow.begin(FIRST, 0, 30.0)
    for index in range(3):
        tree.flow.move(down(FIRST, index, block(PAUL, index)), tree.flow.current)
    for contact, position in zip((BOB, CAROL), acknowledged, strict=False):
        tree.enter(a_child(contact, position))
    return tree


def test_leaves_share_leases_that_nobody_can_enter_anything_into() -> None:
    assert a_tree().leases is NO_LEASES
    for change in (
        lambda: NO_LEASES.enter(a_child()),
        lambda: NO_LEASES.orphan(a_child(), 30.0, (BOB.node_id,)),
        lambda: NO_LEASES.note_ended(BOB.node_id, Ended(30.0)),
        lambda: NO_LEASES.resume(with_an_orphan().orphaned),
    ):
        with pytest.raises(TypeError, match="open the tree's own first"):
            change()
    assert (NO_LEASES.expire(1.0), NO_LEASES.note_arrived([MOVE]), NO_LEASES.live(1.0)) == (False, False, [])


def test_a_child_that_comes_again_replaces_its_former_entry() -> None:
    leases, first, second = Leases(), a_child(), a_child()
    assert (leases.enter(first), leases.enter(second), leases.take_out(BOB.node_id)) == (None, first, second)
    assert (leases.take_out(BOB.node_id), leases.children) == (None, {})


@pytest.mark.parametrize(("number", "ends"), [(NUMBER, False), (NUMBER + 1, True)])
def test_a_lease_ends_by_a_later_move_that_the_parent_reports(number: int, ends: bool) -> None:
    leases = with_an_orphan()
    assert leases.note_arrived([Move(BOB.node_id, number)]) == ends
    assert (BOB.node_id not in leases.orphaned) == ends


def test_a_lease_without_a_child_ends_in_time() -> None:
    leases = with_an_orphan(until=30.0)
    assert (leases.expire(29.0), len(leases.live(29.0)), leases.live(30.0)) == (False, 1, [])
    leases.prolong(40.0)
    assert (leases.expire(30.0), leases.expire(40.0), leases.orphaned) == (False, True, {})


def test_who_left_in_good_order_is_remembered_until_it_is_back() -> None:
    leases = with_an_orphan()
    leases.note_ended(BOB.node_id, Ended(9.0, MOVE))
    assert (leases.orphaned, leases.ends) == ({}, (MOVE,))
    leases.is_back(BOB.node_id)
    assert leases.ends == ()


def test_the_parent_is_told_who_moved_away_unless_it_is_the_last_one_to_be_told() -> None:
    leases = with_an_orphan(named_from=2.0)
    assert departures(leases, CAROL.node_id, 1.0) == (), "it is not to be named yet"
    assert departures(leases, CAROL.node_id, 2.0) == (MOVE,)
    assert departures(leases, ALICE.node_id, 2.0) == (), "peers above know both parents"


def test_who_came_and_left_is_told_with_its_move_or_else_by_name() -> None:
    leases = Leases()
    leases.note_ended(BOB.node_id, Ended(9.0, MOVE))
    leases.note_ended(CAROL.node_id, Ended(9.0))
    assert (arrivals(leases, CAROL.node_id), newcomers(leases, 1.0)) == ((MOVE,), (CAROL.node_id,))


def test_what_a_lease_needs_is_not_acknowledged_and_the_slowest_one_is_cut_first() -> None:
    tree = a_tree(1, 2)
    assert acknowledged_position(tree, 0.0) == 1
    slowest = last_holder(tree, 0.0)
    assert slowest is tree.leases.children[BOB.node_id]
    end_lease(tree, slowest, 0.0)
    assert acknowledged_position(tree, 0.0) == 2


def test_what_is_stable_and_needed_by_nobody_is_discarded() -> None:
    tree = a_tree(1, 2)
    assert trim(tree, 0.0) == 0, "nothing is stable"
    tree.flow.current.settle(3)
    assert trim(tree, 0.0) > 0
    assert [bundle.last for bundle in tree.flow.log.bundles()] == [2, 3], "a child still needs the second event"


def test_a_channel_leads_to_each_child_that_the_policy_wants_until_the_child_is_gone() -> None:
    tree = a_tree(1, 2)
    install(tree, [ChannelSpec(BOB)])
    child = tree.leases.children[BOB.node_id]
    assert (tree.flow.channels, way_to(tree, BOB.node_id)) == ((child.channel,), child.channel)
    assert take_out(tree, BOB.node_id) is child
    assert (tree.flow.channels, way_to(tree, BOB.node_id)) == ((), None)
