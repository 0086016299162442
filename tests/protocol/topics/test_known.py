"""What a peer knows of topics, and tells others that keep it, too."""

import pytest

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.ids import closer
from quillcast.core.messages import Contact
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.root.replication import RivalDue, RoundsDue
from quillcast.protocol.topics.root_messages import (
    Create,
    Recorded,
    RecordState,
    StateAnswer,
    StateQuery,
    TopicEntry,
    TransferLeadership,
)
from quillcast.protocol.topics.state.effects import (
    LaterTermExists,
)
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, SECOND
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts

FAR = described("tides")  # the peer of these tests is the farthest from it, and the closest to the other topic


def test_newer_settings_are_learned_and_passed_to_the_tree(world: Parts) -> None:
    tree = world.tree()
    newer = Descriptor("weather", Settings(slow="wait"), version=1)
    world.known.learn(newer)
    assert tree.descriptor == world.known.descriptors[tree.topic] == newer
    world.known.learn(DESCRIPTOR)
    assert tree.descriptor == newer


def test_assumptions_about_a_topic_are_not_knowledge(world: Parts) -> None:
    world.known.learn(DESCRIPTOR)
    assert world.known.entry(DESCRIPTOR.topic).descriptor is None
    world.known.enter(DESCRIPTOR.topic, FIRST)
    entry = world.known.entry(DESCRIPTOR.topic)
    assert (entry.descriptor, entry.term) == (DESCRIPTOR, FIRST)


def test_a_replica_answers_what_it_knows_and_records_what_it_receives(world: Parts) -> None:
    world.dispatch.message(BOB, RecordState([(DESCRIPTOR, FIRST)]))
    assert world.known.terms == {DESCRIPTOR.topic: FIRST}
    assert (BOB, Recorded([(DESCRIPTOR.topic, FIRST, DESCRIPTOR.digest)])) in world.host.sent
    world.dispatch.message(CAROL, StateQuery([DESCRIPTOR.topic]))
    assert (CAROL, "StateAnswer") in world.sent


def test_a_root_whose_term_a_replica_answers_with_a_later_one_begins_one_later_still(world: Parts) -> None:
    tree = world.root()
    world.host.time = CONFIG.lease_s / 2
    world.dispatch.message(CAROL, StateAnswer([TopicEntry(tree.topic, DESCRIPTOR, SECOND)]))
    assert world.known.terms[tree.topic] == SECOND
    assert world.ordered == [LaterTermExists(tree.topic)]


def test_a_root_that_began_just_now_first_declares_nothing_stable(world: Parts) -> None:
    tree = world.root()
    world.host.time = 1.0
    world.dispatch.message(CAROL, RecordState([(DESCRIPTOR, SECOND)]))
    assert world.ordered == []
    assert tree.root is not None
    assert tree.root.held_until == 1.0 + CONFIG.lease_s
    assert (RivalDue(tree.topic), CONFIG.lease_s / 2 - 1.0) in world.host.timers
    world.dispatch.timer(RivalDue(tree.topic))
    assert world.ordered == [LaterTermExists(tree.topic)]
    del world.trees[tree.topic]
    world.dispatch.timer(RivalDue(tree.topic))
    assert world.ordered == [LaterTermExists(tree.topic)]


def test_who_told_of_a_rival_is_told_of_the_later_term_to_tell_the_rival_too(world: Parts) -> None:
    """It need not be one of this root's replicas: with few of them, it is one of the rival's only."""
    world.root()
    third = SECOND._replace(counter=3)
    world.dispatch.message(CAROL, RecordState([(DESCRIPTOR, SECOND)]))
    world.replication.note(DESCRIPTOR, third, lambda _: None)
    world.replication.note(DESCRIPTOR, third, lambda _: None)
    told = [message for contact, message in world.host.sent if contact == CAROL and isinstance(message, RecordState)]
    assert told == [RecordState([(DESCRIPTOR, third)])], "once for each time that it tells"


def test_who_told_of_a_rival_is_told_of_the_term_of_a_root_that_followed(world: Parts) -> None:
    tree = world.root()
    world.dispatch.message(CAROL, RecordState([(DESCRIPTOR, SECOND)]))
    tree.end_root()
    follower = Contact(b"f" * 16, "follower")
    third = Term(3, follower.node_id)
    world.dispatch.message(follower, RecordState([(DESCRIPTOR, third)]))
    assert (CAROL, RecordState([(DESCRIPTOR, third)])) in world.host.sent


def test_a_rival_that_is_known_is_told_to_the_root_that_follows(world: Parts) -> None:
    """This root would have outbid it half a lease after its own term began, and hands the topic over before."""
    world.root()
    world.alone()
    world.overlay.leaf_set.add(BOB)
    world.dispatch.message(CAROL, RecordState([(DESCRIPTOR, SECOND)]))
    world.resigning.resign(world.trees[DESCRIPTOR.topic])
    (told,) = [message for _, message in world.host.sent if isinstance(message, TransferLeadership)]
    assert (told.heard, told.hold_s) == (SECOND, CONFIG.lease_s)


def test_a_peer_says_whether_it_knows_one_that_is_closer_to_a_topic_than_who_asks(world: Parts) -> None:
    """That one may be root as well, out of the other's reach."""
    world.alone()
    world.overlay.leaf_set.add(CAROL)
    assert closer(CAROL.node_id, BOB.node_id, FAR.topic)
    assert closer(BOB.node_id, ALICE.node_id, FAR.topic)
    for asker in (BOB, CAROL):
        world.dispatch.message(asker, StateQuery([FAR.topic]))
    world.overlay.leaf_set.remove(CAROL.node_id)
    world.dispatch.message(BOB, StateQuery([FAR.topic]))
    answers = [message for _, message in world.host.sent if isinstance(message, StateAnswer)]
    assert [entry.has_closer for answer in answers for entry in answer.entries] == [True, False, False]


def test_those_who_know_a_closer_peer_are_told_of_a_roots_first_term_to_tell_that_peer(world: Parts) -> None:
    tree = world.tree()
    world.alone()
    world.overlay.leaf_set.add(BOB)
    world.candidacies.begin(tree, "took_over")
    world.dispatch.message(BOB, StateAnswer([TopicEntry(tree.topic, DESCRIPTOR, FIRST, has_closer=True)], number=1))
    term = world.known.terms[tree.topic]
    assert world.host.sent == [(BOB, RecordState([(DESCRIPTOR, term)]))]


def test_a_root_that_compares_nothing_with_this_peer_is_told_of_its_rivals_later_term(world: Parts) -> None:
    world.alone()
    world.overlay.leaf_set.add(BOB)
    world.replica_set.config = TopicConfig(replicas=1)
    world.dispatch.message(BOB, RecordState([(DESCRIPTOR, SECOND)]))
    later = [(DESCRIPTOR, Term(counter, CAROL.node_id)) for counter in (1, 3)]
    for entry in later:
        world.dispatch.message(CAROL, RecordState([entry]))
    told = [message for contact, message in world.host.sent if contact == BOB and isinstance(message, RecordState)]
    assert told == [RecordState(later[1:])]


def test_who_told_of_a_root_and_hears_of_a_later_term_tells_that_root(world: Parts) -> None:
    tree, third = world.tree(FAR), Term(3, CAROL.node_id)
    world.alone()
    world.overlay.leaf_set.add(CAROL)
    world.replica_set.config = TopicConfig(replicas=1)
    answer = StateAnswer([TopicEntry(tree.topic, FAR, third)])
    world.dispatch.message(CAROL, answer)
    assert tree.heard == NO_TERM, "it was not asked to keep the topic's state"
    world.known.enter(tree.topic, SECOND)
    world.dispatch.message(CAROL, answer)
    assert tree.heard == third
    assert tree.topic in world.schedule.dirty


def test_a_topic_that_its_creator_used_before_is_not_new(world: Parts) -> None:
    """The creator's peer is in the tree of a root that died with all who kept the topic's state."""
    world.alone()
    world.candidacies.wait(DESCRIPTOR.topic, Create(DESCRIPTOR, BOB, term=SECOND))
    world.replication.due(RoundsDue(again=False))
    root = world.trees[DESCRIPTOR.topic].root
    assert root is not None
    assert root.term > SECOND
    assert root.held_until == CONFIG.lease_s


def test_who_asks_for_settings_says_under_which_term_it_used_the_topic(world: Parts) -> None:
    tree = world.tree()
    world.creating.create(DESCRIPTOR, lambda _: None)
    world.known.follow(tree.topic, FIRST)
    world.terms.enter(tree, SECOND, 0)
    world.creating.create(DESCRIPTOR, lambda _: None)
    assert [create.term for create, _ in world.creating.asked[tree.topic]] == [NO_TERM, SECOND]


def test_a_rival_that_is_heard_itself_is_outbid_at_once(world: Parts) -> None:
    tree = world.root()
    rival = Contact(SECOND.node[:8] + bytes(8), "rival")
    world.dispatch.message(rival, RecordState([(DESCRIPTOR, SECOND)]))
    assert world.ordered == [LaterTermExists(tree.topic)]


def test_a_tree_is_opened_once_and_its_leases_are_found_again(world: Parts) -> None:
    tree = world.open_trees.open(DESCRIPTOR)
    assert world.open_trees.open(DESCRIPTOR) is tree
    child = world.child(tree, BOB)
    tree.open_leases().orphan(child, 10.0, [BOB.node_id])
    leases = tree.leases.orphaned
    world.open_trees.leave_behind(tree.topic, leases)
    tree.flow.close(child.channel)
    world.open_trees.forget(tree)
    assert (world.trees, world.schedule.dirty, world.schedule.due) == ({}, {}, {})
    assert world.open_trees.open(DESCRIPTOR).leases.orphaned == leases


@pytest.mark.parametrize("active", [False, True])
def test_a_peer_that_is_joining_learns_from_others_at_which_scope_a_topic_is_rooted(
    world: Parts, *, active: bool
) -> None:
    """It may have been restarted, and hear of its scope only after members of that have it keep the topic."""
    if active:
        world.alone()
    world.ring.active = active
    tree = world.tree()
    named = Descriptor("weather", Settings(root_scope="site"), version=1)
    world.dispatch.message(BOB, RecordState([(named, FIRST)]))
    assert tree.descriptor == (DESCRIPTOR if active else named)
    assert world.sent[0] == (BOB, "StateAnswer" if active else "Recorded")
