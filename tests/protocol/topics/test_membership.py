"""A peer as child, parent and subscriber: one input, then what was sent, set, and ordered of parts above."""

import msgspec
import pytest

from quillcast.core.envelope import RELIABLE_STREAMS, Kind, Term
from quillcast.core.messages import Contact
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.forwarding.discarding import lose
from quillcast.protocol.security.access import entry, key_of
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.membership.membership import ASKED_MAX, REFERRALS_MAX, UNANSWERED, JoinTimeout
from quillcast.protocol.topics.messages import Accepted, Have, Join, JoinWithdrawn, Leave, Orphaned, Refused, Rejoin
from quillcast.protocol.topics.policy.channels import take_out
from quillcast.protocol.topics.root.replication import RivalDue
from quillcast.protocol.topics.stability.tree_reports import child_report
from quillcast.protocol.topics.state.effects import (
    BecomeRoot,
    FindParent,
    GapNoticed,
    LaterTermExists,
    LeaveIfIdle,
    NeighbourLost,
    ParentAccepted,
    PlaceTaken,
    RivalKnown,
    TopicFailed,
    WarrantRefused,
)
from quillcast.protocol.topics.state.link_reports import ChildReport, ParentReport, StreamUp, encode, joined_since
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, SECOND, Notes, block, down
from tests.protocol.topics.parts import BY_SOURCE, CONFIG, DESCRIPTOR, STREAM, Parts, next_life

DAVE = Contact(b"d" * 16, "127.0.0.1:4")


def test_a_subscription_without_a_tree_looks_for_a_parent(world: Parts) -> None:
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    assert world.ordered == [FindParent(tree.topic)]
    world.subscribing.unsubscribe(subscription)
    assert world.ordered == [FindParent(tree.topic), LeaveIfIdle(tree.topic)]


@pytest.mark.parametrize(
    ("start", "lost", "got"), [("earliest", [(1, 1, 2, "unavailable")], [b"0", b"2"]), ("now", [], [])]
)
def test_a_subscription_to_the_earliest_events_is_told_what_was_given_up_beyond_a_gap_and_others_begin_behind_it(
    world: Parts, start: str, lost: list[tuple[int, int, int, str]], got: list[bytes]
) -> None:
    world.subscribing.subscribe("weather", Notes())
    tree, notes = world.trees[DESCRIPTOR.topic], Notes()
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), ()))
    tree.flow.move(down(FIRST, 2, block(PAUL, 2)), tree.flow.current)
    lose(tree.flow, FIRST, [(1, 2)])
    notes.turn_over = world.subscribing.subscribe("weather", notes, start=start).tell_losses
    world.subscribing.start_waiting(tree, ())  # the parent keeps no more than is here
    assert notes.lost_ == lost
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    assert notes.got == got
    tree.flow.move(down(FIRST, 3, block(PAUL, 3)), tree.flow.current)
    assert notes.got == [*got, b"3"]


def test_a_peer_that_was_accepted_by_the_settings_of_a_former_start_asks_for_the_present_ones(world: Parts) -> None:
    world.subscribing.subscribe("weather", Notes())
    accepted = Accepted(DESCRIPTOR.topic, FIRST, 0, (BOB.node_id,), (), version=DESCRIPTOR.version)
    world.membership.accepted(BOB, accepted)
    assert (BOB, "Rejoin") not in world.sent
    world.membership.accepted(BOB, msgspec.structs.replace(accepted, version=DESCRIPTOR.version + 1))
    assert (BOB, "Rejoin") in world.sent


def test_a_forwarder_that_takes_a_child_in_looks_for_a_parent_itself(world: Parts) -> None:
    world.joins.adopt(Join(DESCRIPTOR.topic, BOB, None, b"", DESCRIPTOR))
    tree = world.trees[DESCRIPTOR.topic]
    assert (world.ordered, list(tree.waiting)) == ([FindParent(tree.topic)], [BOB.node_id])
    assert world.host.sent == []


@pytest.mark.parametrize(("kept", "has", "start"), [((1, 4), 3, 1), ((1, 4), 5, 1), ((4, 4), 5, 5), ((2, 2), 1, 1)])
@pytest.mark.parametrize("of_source", [False, True])
def test_a_child_that_asks_for_the_earliest_events_begins_with_the_first_that_its_parent_keeps_though_it_is_ahead(
    world: Parts, kept: tuple[int, int], has: int, start: int, *, of_source: bool
) -> None:
    """What its parent lacks yet comes there, too. One that keeps nothing names nothing that is in transit."""
    tree = world.root()
    term = STREAM if of_source else FIRST
    stream = tree.flow.begin_beside(STREAM, 0) if of_source else tree.flow.current
    for index in range(kept[1]):
        tree.flow.move(down(term, index, block(PAUL, index)), stream)
    tree.flow.release(kept[0], term=term)
    if of_source:
        assert world.source_streams.starts(tree, {STREAM: has}, new=False, earliest=True) == [(STREAM, start, kept[1])]
        return
    world.joins.adopt(Join(tree.topic, BOB, Have(FIRST, has), DESCRIPTOR.digest, earliest=True), direct=True)
    assert [answer.start for _, answer in world.host.sent if isinstance(answer, Accepted)] == [start]


@pytest.mark.parametrize("begins", [3, 0], ids=["as a newcomer", "as one from an earlier term"])
def test_newcomers_begin_behind_what_was_there_when_a_parent_took_this_peer_in(world: Parts, begins: int) -> None:
    """A child that was here under an earlier root is owed all of this term, which may be gone: they are not."""
    world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, SECOND, begins, (BOB.node_id,), (), newest=3))
    world.joins.adopt(Join(tree.topic, CAROL, Have(FIRST, 5), DESCRIPTOR.digest), direct=True)
    world.reporting.changed(BOB, tree.topic, encode(ParentReport(SECOND, begins, begins, (BOB.node_id,), (), ())))
    world.joins.adopt(Join(tree.topic, DAVE, None, DESCRIPTOR.digest), direct=True)
    answers = [(to, answer.start, answer.newest) for to, answer in world.host.sent if isinstance(answer, Accepted)]
    assert answers == [(CAROL, 0, 3), (DAVE, 3, 3)]
    late = world.subscribing.subscribe("weather", Notes())
    assert (tree.frontier, late.frontier(SECOND)) == (0, 3)


def test_a_root_accepts_a_child_at_once(world: Parts) -> None:
    tree = world.root()
    world.joins.adopt(Join(tree.topic, BOB, None, DESCRIPTOR.digest))
    assert list(tree.leases.children) == [BOB.node_id]
    assert (BOB, "Accepted") in world.sent


def test_a_source_asks_for_events_while_it_speaks_for_a_lease_of_a_peer_that_is_gone(world: Parts) -> None:
    tree = world.tree(Descriptor("weather", Settings(admission="source")))
    assert world.membership.join_message(tree, fault=False).sends_only
    child = world.child(tree, BOB)
    take_out(tree, BOB.node_id)
    tree.open_leases().orphan(child, 30.0, (BOB.node_id,))
    assert not world.membership.join_message(tree, fault=False).sends_only


def test_a_peer_whose_parent_still_owes_it_the_earliest_events_asks_for_them_when_it_settles(world: Parts) -> None:
    tree = world.tree()
    tree.parent = BOB
    world.subscribing.subscribe("weather", Notes(), start="earliest")
    tree.doubt()
    del world.host.sent[:], world.ordered[:]
    world.membership.settled(tree)
    assert world.ordered == [PlaceTaken(tree.topic)]
    assert world.sent == [(BOB, "Rejoin")]


def test_a_newcomer_learns_which_streams_are_over(world: Parts) -> None:
    """Else another parent would tell it later, and it would take that for a loss."""
    tree = world.root(Descriptor("weather", Settings(admission="source")))
    over = Term(RELIABLE_STREAMS, bytes(16))
    tree.flow.open_past().note_over(over, 5)
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest))
    (accepted,) = [message for _, message in world.host.sent if isinstance(message, Accepted)]
    assert accepted.ended == ((over, 5, ()),)


def test_a_newcomer_learns_for_how_long_the_events_of_streams_have_been_there(world: Parts) -> None:
    tree, streams = world.root(BY_SOURCE), [STREAM, STREAM._replace(counter=STREAM.counter + 1)]
    for term in streams:
        world.source_streams.learn(tree, term, 0)
        tree.flow.others[term].give_up([(0, 2)])
    tree.flow.others[STREAM].milestones.note(2, world.host.time)
    world.host.time += 20.0
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest))
    (accepted,) = [message for _, message in world.host.sent if isinstance(message, Accepted)]
    assert accepted.milestones == (((2, 20.0),), ())


def test_a_parent_learns_it_from_a_child_through_whom_it_hears_of_a_stream(world: Parts) -> None:
    """Its subscriptions may have begun later than these events, and so may those of peers to whom it passes it on."""
    tree = world.root(BY_SOURCE)
    world.host.time = 30.0
    join = Join(tree.topic, BOB, None, tree.descriptor.digest, streams=((STREAM, 2, 0),), milestones=(((2, 20.0),),))
    world.joins.adopt(join)
    assert world.source_streams.dates.milestones(tree, STREAM, (0, 2)) == ((2, 20.0),)
    tree.leases.children[BOB.node_id].streams[STREAM] = StreamUp(2, 2, 2, alive=True)
    further = msgspec.structs.replace(join, child=CAROL, streams=((STREAM, 9, 0),), milestones=(((9, 20.0),),))
    world.joins.adopt(further)
    assert world.source_streams.dates.milestones(tree, STREAM, (0, 9)) == ((2, 20.0),), "its source is elsewhere"


def test_a_newcomer_needs_nothing_of_a_stream_that_is_over_there(world: Parts) -> None:
    tree = world.root(BY_SOURCE)
    world.source_streams.learn(tree, STREAM, 0)
    tree.flow.others[STREAM].give_up([(0, 2)])
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest, ended=((STREAM, 2, ()),)))
    assert tree.leases.children[BOB.node_id].needed_from(STREAM) == 2


def test_a_forwarder_passes_on_what_children_that_wait_for_its_parent_say_of_it(world: Parts) -> None:
    tree = world.tree(BY_SOURCE)
    other = STREAM._replace(counter=STREAM.counter + 1)
    world.source_streams.learn(tree, STREAM, 0)
    tree.flow.others[STREAM].give_up([(0, 2)])
    tree.flow.others[STREAM].milestones.note(2, world.host.time)
    world.host.time += 20.0
    digest = tree.descriptor.digest
    world.joins.adopt(Join(tree.topic, BOB, None, digest, streams=((other, 3, 0),), milestones=(((3, 5.0),),)))
    join = world.membership.join_message(tree, fault=False)
    assert join.streams == ((STREAM, 2, 0), (other, 3, 0))
    assert join.milestones == (((2, 20.0),), ((3, 5.0),))


def test_however_many_streams_there_are_a_newcomer_is_told_few_milestones(world: Parts) -> None:
    tree = world.root(BY_SOURCE)
    for number in range(300):
        world.source_streams.learn(tree, STREAM._replace(counter=STREAM.counter + number), 0)
    for stream in tree.flow.others.values():
        stream.give_up([(0, 9)])
        for index in range(10):
            stream.milestones.note(index, 2.0 * index)
    world.host.time = 18.0
    told = world.source_streams.dates.milestones_known(
        tree, world.source_streams.starts(tree, {}, new=True, earliest=False)
    )
    assert [len(each) for each in told] == [2] * 300


def test_a_join_is_routed_to_the_topic_until_a_parent_answers(world: Parts) -> None:
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.join(tree)
    world.membership.timed_out(JoinTimeout(tree.topic, tree.attempt))
    assert [type(message) for message, _ in world.ring.routed] == [Join, Join]
    assert [type(timer) for timer in world.timers] == [JoinTimeout, JoinTimeout]


def test_a_peer_that_is_refused_again_and_again_asks_once_in_a_while(world: Parts) -> None:
    """Each refusal was followed by two Joins at once, and these by as many refusals."""
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.join(tree)
    for _ in range(9):
        world.repair._refused(CAROL, Refused(tree.topic, "loop"))
    assert len(world.ring.routed) == UNANSWERED + 1
    assert world.sent == [(CAROL, "Rejoin")], "one peer beside the root"
    world.membership.timed_out(JoinTimeout(tree.topic, tree.attempt))
    assert len(world.ring.routed) == UNANSWERED + 2


def test_two_that_are_full_and_name_each_other_do_not_keep_a_peer_busy(world: Parts) -> None:
    world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.join(tree)
    for _ in range(REFERRALS_MAX):
        world.repair._refused(BOB, Refused(tree.topic, "full", (CAROL,)))
        world.repair._refused(CAROL, Refused(tree.topic, "full", (BOB,)))
    asked = [to for to, message in world.host.sent if isinstance(message, Rejoin)]
    assert asked == [CAROL, BOB] * (REFERRALS_MAX // 2)
    world.membership.timed_out(JoinTimeout(tree.topic, tree.attempt))
    world.repair._refused(BOB, Refused(tree.topic, "full", (CAROL,)))
    assert len([to for to, message in world.host.sent if isinstance(message, Rejoin)]) == len(asked) + 1


def test_the_peer_that_is_the_closest_itself_becomes_root() -> None:
    world = Parts(ALICE, BOB)
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.join(tree)
    assert world.ordered == [BecomeRoot(tree.topic, "created")]
    assert world.ring.routed == []


def test_an_accepted_child_tells_its_parent_and_looks_at_what_that_reported(world: Parts) -> None:
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), ()))
    assert (tree.parent, tree.term) == (BOB, FIRST)
    assert world.ordered == [PlaceTaken(tree.topic), ParentAccepted(tree.topic, BOB)]


@pytest.mark.parametrize("young", [True, False])
def test_a_supposed_child_that_needs_nothing_says_so(world: Parts, *, young: bool) -> None:
    """One that began within a lease may have had others below it in a former run: it says in which it speaks."""
    membership, world.host.time = world.membership, CONFIG.lease_s * (0.9 if young else 2)
    membership.accepted(BOB, Accepted(DESCRIPTOR.topic, FIRST, 0, (BOB.node_id,), ()))
    number, run = membership.moves.of(DESCRIPTOR.topic), world.host.incarnation if young else b""
    assert world.host.sent == [(BOB, Leave(DESCRIPTOR.topic, run=run, number=number))]


@pytest.mark.parametrize("loop", [False, True], ids=["it has another parent", "the parent is below it"])
def test_a_word_that_refuses_a_parent_is_about_all_joins_before_and_none_after(world: Parts, *, loop: bool) -> None:
    tree, membership = world.tree(), world.membership
    world.terms.keep(tree)
    tree.parent = None if loop else CAROL
    asked = membership.join_message(tree, fault=False, moved=True).number
    membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (ALICE.node_id,) if loop else (BOB.node_id,), ()))
    ((_, word),) = world.host.sent
    assert isinstance(word, Leave)
    tree.parent = None
    again = membership.join_message(tree, fault=False).number
    assert not joined_since(asked, word.number)
    assert joined_since(again, word.number)


def test_an_answer_to_a_join_from_before_the_peer_left_makes_nobody_its_parent(world: Parts) -> None:
    """The other answered a repeated Join before it heard that this peer had left, and is about to remove it."""
    membership, tree = world.membership, world.tree()
    world.terms.keep(tree)
    first = membership.join_message(tree, fault=False).number
    answer = Accepted(tree.topic, FIRST, 0, (BOB.node_id,), (), child_number=first)
    membership.accepted(BOB, answer)
    membership.close(tree)
    tree = world.tree()
    world.terms.keep(tree)
    membership.accepted(BOB, answer)
    assert world.host.sent[-1] == (BOB, Leave(tree.topic, moved=True, number=first))
    second = membership.join_message(tree, fault=False).number
    membership.accepted(BOB, answer)
    assert tree.parent is None
    assert world.host.sent[-1] == (BOB, Leave(tree.topic, moved=True, number=first))
    assert joined_since(second, first), "so its new Join remains"
    membership.accepted(BOB, msgspec.structs.replace(answer, child_number=second))
    assert tree.parent == BOB


def test_an_answer_to_a_former_invitation_moves_nobody(world: Parts) -> None:
    membership, tree = world.membership, world.tree()
    world.terms.keep(tree)
    membership.accepted(CAROL, Accepted(tree.topic, FIRST, 0, (CAROL.node_id,), ()))
    membership.move([tree.topic], BOB)
    former = membership.invited[tree.topic].number
    membership.declined(tree.topic, BOB)
    membership.moves.settle(tree.topic)
    membership.move([tree.topic], BOB)
    answer = Accepted(tree.topic, FIRST, 0, (BOB.node_id,), (), child_number=former)
    membership.accepted(BOB, answer)
    assert tree.parent == CAROL
    membership.accepted(BOB, msgspec.structs.replace(answer, child_number=membership.invited[tree.topic].number))
    assert tree.parent == BOB


@pytest.mark.parametrize(("again", "said"), [(7, 8), (0, 8), (9, 9)], ids=["an old Join", "no number", "a later Join"])
def test_a_parent_says_by_which_move_a_child_is_in_its_table(world: Parts, again: int, said: int) -> None:
    tree = world.root()
    for number in (8, again):
        world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest, number=number))
    (*_, last) = [message for _, message in world.host.sent if isinstance(message, Accepted)]
    assert last.child_number == said == tree.leases.children[BOB.node_id].number


@pytest.mark.parametrize("found", [True, False], ids=["it has a parent", "it needs the topic no longer"])
def test_peers_that_did_not_answer_hear_that_nobody_waits_for_them(world: Parts, *, found: bool) -> None:
    membership, tree = world.membership, world.tree()
    world.terms.keep(tree)
    for other in (BOB, CAROL, DAVE):
        membership.join_directly([tree], other, lost=b"")
    world.repair._refused(CAROL, Refused(tree.topic, "orphan"))
    world.host.sent.clear()
    if found:
        membership.accepted(DAVE, Accepted(tree.topic, FIRST, 0, (DAVE.node_id,), ()))
    else:
        membership.close(tree)
    withdrawn = [(to, message) for to, message in world.host.sent if isinstance(message, JoinWithdrawn)]
    word = JoinWithdrawn(tree.topic, membership.moves.of(tree.topic))
    assert withdrawn == [(BOB, word)] if found else [(BOB, word), (DAVE, word)]
    assert membership.asked == {}


def test_two_peers_that_ask_each_other_do_not_wait_for_each_other(world: Parts) -> None:
    membership, tree = world.membership, world.tree()
    tree.await_parent(Join(tree.topic, BOB, number=8), 0.0)
    tree.begin_attempt()
    membership.join_directly([tree], BOB, lost=b"")
    world.host.sent.clear()
    membership.timed_out(JoinTimeout(tree.topic, tree.attempt))
    assert [(to, type(message)) for to, message in world.host.sent] == [(BOB, JoinWithdrawn)]


def test_a_peer_asks_one_that_waits_for_it_because_that_one_may_have_a_parent(world: Parts) -> None:
    tree = world.tree()
    tree.await_parent(Join(tree.topic, BOB, number=8), 0.0)
    tree.begin_attempt()
    world.repair._refused(CAROL, Refused(tree.topic, "full", (BOB,)))
    assert [(to, type(message)) for to, message in world.host.sent] == [(BOB, Rejoin)]


def test_peers_that_nothing_else_needs_do_not_wait_for_each_other_in_a_ring() -> None:
    ring = (ALICE, BOB, CAROL)
    worlds = {each: Parts(DAVE, *ring, me=each) for each in ring}  # Dave, the root, answers nobody
    trees = {each: world.tree() for each, world in worlds.items()}
    for child, parent in zip(ring, (*ring[1:], ring[0]), strict=True):
        worlds[child].membership.join_directly([trees[child]], parent, lost=b"")
        (join,) = [join for _, each in worlds[child].host.sent if isinstance(each, Rejoin) for join in each.joins]
        trees[parent].await_parent(join, 0.0)
    for each, world in worlds.items():
        world.host.sent.clear()
        world.membership.timed_out(JoinTimeout(trees[each].topic, trees[each].attempt))
        for to, word in world.host.sent:
            if isinstance(word, JoinWithdrawn):
                worlds[to].children.withdrawn(each, word)
    assert not any(tree.needed for tree in trees.values())


def test_a_peer_that_needs_the_topic_itself_waits_for_those_that_it_asked(world: Parts) -> None:
    membership, tree = world.membership, world.tree()
    world.terms.keep(tree)
    tree.await_parent(Join(tree.topic, BOB, number=8), 0.0)
    tree.begin_attempt()
    membership.join_directly([tree], CAROL, lost=b"")
    world.host.sent.clear()
    membership.timed_out(JoinTimeout(tree.topic, tree.attempt))
    assert JoinWithdrawn not in [type(message) for _, message in world.host.sent]
    assert membership.join_message(tree, fault=False).unresponsive == (CAROL.node_id,)


def test_a_peer_withdraws_from_the_first_that_it_asked_when_they_become_too_many(world: Parts) -> None:
    membership, tree = world.membership, world.tree()
    world.terms.keep(tree)
    others = [Contact(bytes([number]) * 16, f"127.0.0.1:{number}") for number in range(1, ASKED_MAX + 2)]
    for other in others:
        membership.join_directly([tree], other, lost=b"")
    ((first, word),) = [(to, word) for to, word in world.host.sent if isinstance(word, JoinWithdrawn)]
    assert first == others[0]
    assert joined_since(membership.join_message(tree, fault=False).number, word.number)


def test_a_repeated_invitation_leaves_the_answer_to_the_first_one_good(world: Parts) -> None:
    membership, tree = world.membership, world.tree()
    world.terms.keep(tree)
    membership.accepted(CAROL, Accepted(tree.topic, FIRST, 0, (CAROL.node_id,), ()))
    membership.move([tree.topic], BOB)
    first = membership.invited[tree.topic].number
    membership.moves.moves += 1  # by another topic
    membership.move([tree.topic], BOB)
    membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), (), child_number=first))
    assert tree.parent == BOB


def test_a_parent_says_the_number_of_a_lost_child_that_an_old_join_brings_back(world: Parts) -> None:
    tree = world.root()
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest, number=8))
    world.children.lost(BOB)
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest, number=7))
    (*_, last) = [message for _, message in world.host.sent if isinstance(message, Accepted)]
    assert last.child_number == 8 == tree.leases.children[BOB.node_id].number


def test_a_newcomer_that_is_root_or_has_stopped_asking_waits_for_no_invitation(world: Parts) -> None:
    world.ring.awaits_invitation = True
    membership, tree = world.membership, world.tree()
    world.terms.keep(tree)
    membership.join(tree)
    assert world.ring.routed == []
    tree.stop_joining()
    world.host.sent.clear()
    membership.move([tree.topic], BOB)
    assert world.host.sent == []
    membership.join(tree)
    assert world.ring.routed != []


def test_a_peer_that_only_a_withdrawn_join_needed_leaves(world: Parts) -> None:
    tree = world.tree()
    tree.await_parent(Join(tree.topic, BOB, number=8), 0.0)
    world.children.withdrawn(BOB, JoinWithdrawn(tree.topic, 7))
    assert list(tree.waiting) == [BOB.node_id], "it has asked again since"
    world.children.withdrawn(CAROL, JoinWithdrawn(tree.topic, 8))
    assert list(tree.waiting) == [BOB.node_id]
    world.children.withdrawn(BOB, JoinWithdrawn(tree.topic, 8))
    assert world.ordered == [LeaveIfIdle(tree.topic)]
    assert not tree.needed


def test_a_word_that_a_child_left_is_old_once_it_has_joined_again(world: Parts) -> None:
    tree = world.root()
    child = world.children.enter(tree, BOB, 0)
    child.number = 8
    for number, stays in ((7, True), (8, False)):
        world.children.left(BOB, Leave(tree.topic, number=number))
        assert (BOB.node_id in tree.leases.children) == stays
    child = world.children.enter(tree, BOB, 0)
    child.number = next_life(8) + 1
    world.children.left(BOB, Leave(tree.topic, moved=True, leases=(CAROL.node_id,), number=8))
    assert BOB.node_id in tree.leases.children, "it left others behind, and came again"


def test_a_peer_that_closes_a_topic_says_how_many_parents_it_had(world: Parts) -> None:
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), ()))
    number = world.membership.moves.of(tree.topic)
    world.membership.close(tree)
    assert world.host.sent[-1] == (BOB, Leave(tree.topic, number=number))


def test_a_refusal_of_a_join_without_a_warrant_is_not_for_a_subscriber_that_has_one(world: Parts) -> None:
    owner, friend = Credentials.new(), Credentials.new()
    descriptor = owner.own(Descriptor("orders", access=(entry("subscribe", friend.principal),)))
    tree = world.tree(descriptor)
    warrant = friend.warrant(world.host.me, tree.topic)
    tree.subscriptions = (Subscription(world.host, tree.topic, Notes(), 1, Wish("now", None, warrant)),)
    world.repair._refused(CAROL, Refused(tree.topic, "denied", rule="list"))
    assert not [order for order in world.ordered if isinstance(order, TopicFailed)]
    world.repair._refused(CAROL, Refused(tree.topic, "denied", rule="list", key=warrant.key))
    assert [order.topic for order in world.ordered if isinstance(order, TopicFailed)] == [tree.topic]


def test_a_refusal_ends_only_the_subscriptions_on_behalf_of_whom_this_peer_had_asked(world: Parts) -> None:
    stranger, friend = Credentials.new(), Credentials.new()
    tree = world.tree(Descriptor("orders"))  # its list is not known here
    warrants = [each.warrant(world.host.me, tree.topic) for each in (stranger, friend)]
    for number, warrant in enumerate([*warrants, None]):
        tree.begin_later(Subscription(world.host, tree.topic, Notes(), number, Wish("now", None, warrant)))

    def refused() -> list[int]:
        """It is refused on behalf of whom it asks, and asks for others. The numbers of subscriptions that are left."""
        shown = world.membership.join_message(tree, fault=False).warrant
        world.repair._refused(CAROL, Refused(tree.topic, "denied", rule="list", key=key_of(shown)))
        order = world.ordered.pop()
        assert isinstance(order, WarrantRefused), order
        world.subscribing.fail(tree, order.error, order.key)
        return [*tree.unstarted]

    assert refused() == [1, 2]
    assert refused() == [2]
    tree.begin_later(Subscription(world.host, tree.topic, Notes(), 0, Wish("now", None, warrants[0])))
    world.repair._refused(CAROL, Refused(tree.topic, "denied", rule="list", key=warrants[1].key))
    assert not any(isinstance(order, TopicFailed) for order in world.ordered), "an answer to an earlier Join"
    tree.take_unstarted(0)
    world.repair._refused(CAROL, Refused(tree.topic, "denied", rule="list"))
    assert isinstance(world.ordered[-1], TopicFailed)


def test_of_several_subscribers_a_peer_asks_on_behalf_of_one_whom_the_list_allows(world: Parts) -> None:
    owner, stranger, friend = (Credentials.new() for _ in range(3))
    tree = world.tree(owner.own(Descriptor("orders", access=(entry("subscribe", friend.principal),))))
    warrants = [None, *(each.warrant(world.host.me, tree.topic) for each in (stranger, friend))]
    for number, warrant in enumerate(warrants):
        tree.begin_later(Subscription(world.host, tree.topic, Notes(), number, Wish("now", None, warrant)))
    assert world.membership.join_message(tree, fault=False).warrant == warrants[2]
    tree.take_unstarted(2)
    assert world.membership.join_message(tree, fault=False).warrant == warrants[1], "it is told why not"


def test_a_child_report_of_a_later_term_outdoes_the_root(world: Parts) -> None:
    tree = world.root()
    world.child(tree, BOB)
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, SECOND)))
    assert world.ordered == [LaterTermExists(tree.topic)]


def test_a_root_that_has_outbid_a_rival_keeps_its_term_for_a_while_when_a_child_knows_of_a_later_one() -> None:
    """Else two roots that reach each other through others only would begin terms in turn, as fast as reports pass."""
    world = Parts()
    tree = world.root()
    assert tree.root is not None
    tree.root.outbids = True
    world.child(tree, BOB)
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, SECOND)))
    assert world.ordered == [RivalKnown(tree.topic, SECOND)]
    world.replication.heard_of_rival(tree.topic, SECOND)
    assert world.ordered == [RivalKnown(tree.topic, SECOND)]
    assert tree.root.held_until == world.host.time + CONFIG.lease_s
    world.dispatch.timer(RivalDue(tree.topic))
    assert world.ordered == [RivalKnown(tree.topic, SECOND), LaterTermExists(tree.topic)]


def test_a_report_of_what_is_missing_here_makes_this_peer_look_for_it(world: Parts) -> None:
    tree = world.tree()
    tree.parent = BOB
    world.reporting.changed(BOB, tree.topic, encode(ParentReport(FIRST, 5, 0, (BOB.node_id,), ())))
    assert (tree.term, tree.parent_frontier) == (FIRST, 5)
    assert world.ordered == [GapNoticed(tree.topic)]


def test_a_peer_reports_how_far_a_term_came_to_those_below_it(world: Parts) -> None:
    tree = world.tree()
    tree.parent = BOB
    world.child(tree, CAROL)
    world.terms.enter(tree, FIRST, 0)
    for reach in (7, 5):
        world.reporting.changed(CAROL, tree.topic, encode(ChildReport(FIRST, 0, FIRST, reach=reach)))
        assert child_report(tree, world.host.me, world.host.time).reach == 7
    world.reporting.changed(CAROL, tree.topic, encode(ChildReport(SECOND, 0, SECOND, frontier=2)))
    world.terms.enter(tree, SECOND, 0)
    assert child_report(tree, world.host.me, world.host.time).reach == 2, "she was there first"


def test_a_peer_that_joins_learns_settings_from_whoever_took_it_in_before_it_hears_of_that(world: Parts) -> None:
    """When it hears of that, there may be others already, with a list on which it stands again."""
    tree, settings = world.tree(), Descriptor("weather", Settings(slow="wait"), version=1)
    tree.begin_attempt()
    world.reporting.changed(BOB, tree.topic, encode(ParentReport(FIRST, 5, 0, (BOB.node_id,), (), descriptor=settings)))
    assert tree.descriptor == settings
    assert tree.parent is None


def test_a_supposed_child_of_a_peer_without_a_tree_is_rejected(world: Parts) -> None:
    world.reporting.changed(BOB, DESCRIPTOR.topic, encode(ChildReport(FIRST, 0, FIRST)))
    assert world.host.sent == [(BOB, Orphaned([DESCRIPTOR.topic], ()))]


def test_a_parent_is_no_child_whatever_it_reports_and_even_if_it_leaves_itself_out_of_the_path(world: Parts) -> None:
    tree = world.tree()
    world.terms.keep(tree)
    tree.await_parent(Join(tree.topic, Contact(BOB.node_id, "127.0.0.1:9"), None, b""), 0.0)
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (CAROL.node_id,), ()))
    world.joins.accept_waiting(tree, ())
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST)))
    world.joins.adopt(Join(tree.topic, Contact(BOB.node_id, "127.0.0.1:9"), None, b""))
    assert tree.leases.children == {}


@pytest.mark.parametrize(("parents_term", "stays"), [(FIRST, True), (SECOND, False)])
def test_a_peer_stays_that_holds_events_of_a_later_term_than_its_parent_knows(
    world: Parts, monkeypatch: pytest.MonkeyPatch, parents_term: Term, stays: bool
) -> None:
    """It may be the last that has them: the parent may be owed them once it hears of the term."""
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, SECOND, 0, (BOB.node_id,), ()))
    tree.flow.move(down(SECOND, 0, block(PAUL, 0)), tree.flow.current)
    report = ParentReport(parents_term, 0, 0, (BOB.node_id,), ())
    monkeypatch.setattr(world.membership.parents, "told", lambda node, topic: report)
    world.subscribing.unsubscribe(subscription)
    world.membership.leave_if_idle(tree)
    assert (tree.keeping_until is not None) == stays
    if stays:
        tree.keeping_until = None
        world.membership.leave_if_idle(tree, anyway=True)
    assert tree.topic not in world.trees


@pytest.mark.parametrize(("stable", "held", "stays"), [(0, (), True), (1, (), False), (0, ((0, 1),), False)])
def test_a_peer_stays_that_holds_unstable_events_of_an_ended_term_that_its_parent_lacks(
    world: Parts, stable: int, held: tuple[tuple[int, int], ...], stays: bool
) -> None:
    """The parent became root without them, and may be owed them."""
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), ()))
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    world.terms.enter(tree, SECOND, 0)
    tree.flow.settle(FIRST, stable)
    tree.parent_held = ((FIRST, 1, held, 0, None),)
    world.subscribing.unsubscribe(subscription)
    world.membership.leave_if_idle(tree)
    assert (tree.keeping_until is not None, tree.topic in world.trees) == (stays, stays)


def the_last_copy(world: Parts, term: Term = FIRST) -> Tree:
    """An event of an ended term is kept here, and was not stable. Nobody here wants the topic any more."""
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, term, 0, (BOB.node_id,), ()))
    tree.flow.move(down(term, 0, block(PAUL, 0)), tree.flow.current)
    world.terms.enter(tree, SECOND, 0)
    world.subscribing.unsubscribe(subscription)
    return tree


@pytest.mark.parametrize("process", [True, False], ids=["its process ends", "the topic's list does not let it stay"])
@pytest.mark.parametrize(("known", "room"), [(True, 1), (True, 0), (False, 1)])
def test_a_peer_that_must_leave_stays_until_its_parent_has_the_last_copies(
    world: Parts, *, process: bool, known: bool, room: int
) -> None:
    tree = the_last_copy(world)
    tree.note_denied(denied=not process)
    world.open_trees.leaving, world.host.rooms[BOB.node_id] = process, room
    tree.parent_held = ((FIRST, 1, (), 0, None),) if known else ()
    world.membership.leave_if_idle(tree)
    handed = [(to, bundle.envelope.kind, bundle.envelope.first) for to, bundle in world.host.carried]
    assert handed == ([(BOB, Kind.REPAIR, 0)] if known and room else []), "else the parent asks for them"
    assert world.schedule.take() == [tree.topic], "it is told what is here"
    for held in ((), ((0, 1),)):
        assert tree.topic in world.trees
        report = ParentReport(SECOND, 0, 0, (BOB.node_id,), (), ((FIRST, 1, held, 0, None),))
        world.reporting.changed(BOB, tree.topic, encode(report))
    assert tree.topic not in world.trees


def test_a_peer_that_may_stay_leaves_as_soon_as_its_parent_has_what_it_stays_for(world: Parts) -> None:
    """The parent may have had it all the time, and its report may just be a moment behind."""
    tree = the_last_copy(world)
    world.membership.leave_if_idle(tree)
    for held in ((), ((0, 1),)):
        assert tree.topic in world.trees
        report = ParentReport(SECOND, 0, 0, (BOB.node_id,), (), ((FIRST, 1, held, 0, None),))
        world.reporting.changed(BOB, tree.topic, encode(report))
    assert tree.topic not in world.trees


def test_a_former_root_stays_though_its_parent_has_all_events(world: Parts) -> None:
    """It may be the only one that knows how far its term went."""
    tree = the_last_copy(world)
    world.terms.keep(tree)
    world.reporting.changed(
        BOB, tree.topic, encode(ParentReport(SECOND, 0, 0, (BOB.node_id,), (), ((FIRST, 1, ((0, 1),), 0, None),)))
    )
    assert tree.topic in world.trees


@pytest.mark.parametrize("paused", [False, True])
def test_a_peer_that_must_leave_does_not_stay_for_longer_than_leaving_may_take(world: Parts, *, paused: bool) -> None:
    tree = the_last_copy(world)
    tree.note_denied(denied=True)
    world.membership.leave_if_idle(tree)
    assert tree.keeping_until == world.host.time + CONFIG.leave_s
    world.host.time += CONFIG.leave_s
    world.housekeeping._check_tree(tree, world.host.time, paused=paused)
    assert LeaveIfIdle(tree.topic, anyway=True) in world.ordered
    world.membership.leave_if_idle(tree, anyway=True)
    assert tree.topic not in world.trees


def test_nobody_stays_for_what_the_present_term_admitted_again(world: Parts) -> None:
    tree = the_last_copy(world)
    tree.flow.move(down(SECOND, 0, block(PAUL, 0)), tree.flow.current)
    tree.note_denied(denied=True)
    world.membership.leave_if_idle(tree)
    assert tree.topic not in world.trees


def test_nobody_stays_for_what_it_may_pass_on_to_nobody(world: Parts) -> None:
    unowned = Term(1, bytes(16))
    tree = the_last_copy(world, unowned)
    tree.note_denied(denied=True)
    tree.flow.restrict(restricted=True)
    assert tree.flow.disowns(unowned)
    world.membership.leave_if_idle(tree)
    assert tree.topic not in world.trees


@pytest.mark.parametrize("unstable", [True, False])
def test_an_idle_peer_that_loses_its_parent_stays_if_it_holds_events_that_are_not_stable(
    world: Parts, monkeypatch: pytest.MonkeyPatch, unstable: bool
) -> None:
    """The parent took its copies with it, and those who seek another parent are owed them."""
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, SECOND, 0, (BOB.node_id,), ()))
    if unstable:
        tree.flow.move(down(SECOND, 0, block(PAUL, 0)), tree.flow.current)
    tree.keeping_until = 1.0
    world.subscribing.unsubscribe(subscription)
    tree.keeping_until = None
    monkeypatch.setattr(world.open_trees, "linked", lambda node: [tree])
    world.repair.lost(BOB)
    assert (tree.topic in world.trees, tree.joining) == (unstable, unstable)


def test_orphans_turn_to_their_fallback_in_one_message(world: Parts) -> None:
    for name in ("weather", "sport"):
        tree = world.tree(described(name))
        world.terms.keep(tree)
        world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), (CAROL,)))
    del world.host.sent[:], world.ordered[:]
    world.repair.lost(BOB)
    assert world.ordered == [NeighbourLost(BOB.node_id)]
    ((to, message),) = world.host.sent
    assert isinstance(message, Rejoin)
    assert (to, len(message.joins)) == (CAROL, 2)
