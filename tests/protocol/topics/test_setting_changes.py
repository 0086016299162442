"""A peer that changes the settings of a topic, and the root that enters them."""

from typing import Any

from quillcast.core.envelope import NO_TERM
from quillcast.core.errors import LocalError
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.root_messages import Create, Created, FindRoot, RootIs
from quillcast.protocol.topics.stability.tree_reports import parent_report
from quillcast.protocol.topics.state.schedule import HousekeepingDue
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts, settled


def test_a_change_of_settings_is_sent_to_the_root_until_it_answers(world: Parts) -> None:
    changes = world.changes
    changes.ask("weather", {"slow": "wait"}, lambda answer: None)
    asked = (FindRoot(DESCRIPTOR.topic, ALICE, None, NO_TERM), DESCRIPTOR.topic)
    assert world.ring.routed == [asked]
    assert world.timers == [HousekeepingDue()]
    changes.housekeep(CONFIG.receipt_timeout_s)
    assert world.ring.routed == [asked, asked]


def test_the_next_version_is_offered_to_the_root_that_answers(world: Parts) -> None:
    changes = world.changes
    answers: list[Any] = []
    changes.ask("weather", {"slow": "wait"}, answers.append)
    changes.root_found(DESCRIPTOR)
    changes.root_found(DESCRIPTOR)
    offers = [message.descriptor for message, _ in world.ring.routed if isinstance(message, Create)]
    assert [(offer.settings.slow, offer.version) for offer in offers] == [("wait", 2)]
    assert answers == []


def test_an_answer_to_the_peers_former_process_settles_nothing(world: Parts) -> None:
    """Each process numbers what it asks for, and the answer to the first of the former one comes late."""
    answers: list[Any] = []
    world.creating.create(DESCRIPTOR, answers.append)
    (create,) = (message for message, _ in world.ring.routed if isinstance(message, Create))
    world.dispatch.message(BOB, Created(DESCRIPTOR, number=1))
    assert answers == []
    world.dispatch.message(BOB, Created(DESCRIPTOR, number=create.number))
    assert answers == [DESCRIPTOR]


def test_what_cannot_change_is_refused_without_asking_the_root_further(world: Parts) -> None:
    changes = world.changes
    answers: list[Any] = []
    changes.ask("weather", {"root_scope": "site"}, answers.append)
    changes.root_found(DESCRIPTOR)
    assert [type(answer) for answer in answers] == [LocalError]
    assert [type(message) for message, _ in world.ring.routed] == [FindRoot]


def test_a_root_tells_publishers_of_a_change_and_reports_it_to_children(world: Parts) -> None:
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions = {PAUL: settled(BOB)}
    world.child(tree, CAROL)
    assert parent_report(tree, ALICE.node_id, (), 0.0, held_back=False).descriptor is None
    newer = Descriptor("weather", Settings(slow="wait"), version=2)
    tree.adapt(newer)
    assert (
        parent_report(tree, ALICE.node_id, (), 0.0, held_back=False).descriptor == DESCRIPTOR
    )  # the replicas know no other
    tree.root.noted = newer
    world.changes.entered(tree)
    assert world.host.sent == [(BOB, RootIs(FIRST, newer))]
    assert parent_report(tree, ALICE.node_id, (), 0.0, held_back=False).descriptor == newer
