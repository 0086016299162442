"""What a peer knows of topics, and tells others that keep it, too."""

import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.messages import (
    Recorded,
    RecordState,
    StateAnswer,
    StateQuery,
    TopicEntry,
)
from quillcast.protocol.topics.root.replication import RivalDue
from quillcast.protocol.topics.state.effects import (
    Outdone,
)
from tests.protocol.recording import BOB, CAROL, FIRST, SECOND
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts


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
    assert world.replication.comparing is world.comparing
    world.dispatch.message(BOB, RecordState([(DESCRIPTOR, FIRST)]))
    assert world.known.terms == {DESCRIPTOR.topic: FIRST}
    assert (BOB, Recorded([(DESCRIPTOR.topic, FIRST, DESCRIPTOR.digest)])) in world.host.sent
    world.dispatch.message(CAROL, StateQuery([DESCRIPTOR.topic]))
    assert (CAROL, "StateAnswer") in world.sent


def test_a_root_whose_term_a_replica_answers_with_a_later_one_begins_one_later_still(world: Parts) -> None:
    tree = world.root()
    assert world.replication.trees is world.trees
    world.host.time = CONFIG.lease_s / 2
    world.dispatch.message(CAROL, StateAnswer([TopicEntry(tree.topic, DESCRIPTOR, SECOND)]))
    assert world.known.terms[tree.topic] == SECOND
    assert world.ordered == [Outdone(tree.topic)]


def test_a_root_that_began_just_now_first_declares_nothing_stable(world: Parts) -> None:
    tree = world.root()
    assert world.replication.trees is world.trees
    world.host.time = 1.0
    world.dispatch.message(CAROL, RecordState([(DESCRIPTOR, SECOND)]))
    assert world.ordered == []
    assert tree.root is not None
    assert tree.root.held_until == 1.0 + CONFIG.lease_s
    assert (RivalDue(tree.topic), CONFIG.lease_s / 2 - 1.0) in world.host.timers
    world.dispatch.timer(RivalDue(tree.topic))
    assert world.ordered == [Outdone(tree.topic)]
    del world.trees[tree.topic]
    world.dispatch.timer(RivalDue(tree.topic))
    assert world.ordered == [Outdone(tree.topic)]


def test_who_told_of_a_rival_is_told_of_the_later_term_to_tell_the_rival_too(world: Parts) -> None:
    """It need not be one of this root's replicas: with few of them, it is one of the rival's only."""
    world.root()
    assert world.replication.trees is world.trees
    third = SECOND._replace(counter=3)
    world.dispatch.message(CAROL, RecordState([(DESCRIPTOR, SECOND)]))
    world.replication.note(DESCRIPTOR, third, lambda _: None)
    world.replication.note(DESCRIPTOR, third, lambda _: None)
    told = [message for contact, message in world.host.sent if contact == CAROL and isinstance(message, RecordState)]
    assert told == [RecordState([(DESCRIPTOR, third)])], "once for each time that it tells"


def test_a_rival_that_is_heard_itself_is_outbid_at_once(world: Parts) -> None:
    tree = world.root()
    assert world.replication.trees is world.trees
    rival = Contact(SECOND.node[:8] + bytes(8), "rival")
    world.dispatch.message(rival, RecordState([(DESCRIPTOR, SECOND)]))
    assert world.ordered == [Outdone(tree.topic)]


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
    tree = world.tree()
    assert world.replication.trees is world.trees
    named = Descriptor("weather", Settings(root_scope="site"), version=1)
    world.dispatch.message(BOB, RecordState([(named, FIRST)]))
    assert tree.descriptor == (DESCRIPTOR if active else named)
    assert world.sent[0] == (BOB, "StateAnswer" if active else "Recorded")
