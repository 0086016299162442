"""A publisher that looks for its root, and questions about a tree."""

from quillcast.protocol.topics.query_messages import Survey
from quillcast.protocol.topics.root_messages import FindRoot, RootIs
from tests.protocol.recording import BOB, CAROL, FIRST
from tests.protocol.topics.parts import DESCRIPTOR, Parts


def test_a_publisher_looks_for_the_root(world: Parts) -> None:
    world.publishing.open("weather", Listener())
    ((message, key),) = world.ring.routed
    assert isinstance(message, FindRoot)
    assert key == DESCRIPTOR.topic
    world.dispatch.message(CAROL, RootIs(FIRST, DESCRIPTOR))
    assert world.root_finder.roots == {DESCRIPTOR.topic: CAROL}


class Listener:
    def progressed(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


def test_a_peer_outside_the_tree_routes_queries_about_it(world: Parts) -> None:
    number = world.inspection.survey("weather")
    assert [type(message) for message, _ in world.ring.routed] == [Survey]
    assert world.inspection.surveys == {number: {}}


def test_a_root_answers_for_itself_and_asks_its_children(world: Parts) -> None:
    tree = world.root()
    world.child(tree, CAROL)
    assert world.inspection.surveys == {}
    world.dispatch.message(BOB, Survey(tree.topic, BOB, 1))
    assert world.sent == [(BOB, "Branch"), (CAROL, "Survey")]
