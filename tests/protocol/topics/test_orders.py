"""Routers of orders: one order, then what the parts that carry it out did. And each part has a test of its own."""

import re
from pathlib import Path

import msgspec
import pytest

from quillcast.protocol.topics.state import effects
from quillcast.protocol.topics.state.effects import (
    AllStable,
    ChildIsParent,
    FindParent,
    LaterTermExists,
    LeaveIfIdle,
    NeighbourLost,
    ParentAccepted,
    PlaceTaken,
    Resign,
    RoomAgain,
    SettingsLearned,
)
from tests.protocol.recording import BOB, CAROL
from tests.protocol.topics.parts import DESCRIPTOR, Parts

TOPIC = DESCRIPTOR.topic
NAMED = re.compile(r"\b(?:entry|parts|self|world)\.(\w+)")


def test_each_part_is_named_in_a_test_that_needs_no_peer(world: Parts) -> None:
    """A new part comes with one. Whether it tests enough, its reviewer says."""
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    tested = {name for text in texts if "world: Parts" in text or "Parts(" in text for name in NAMED.findall(text)}
    made = {name: type(getattr(world, name)) for name in world.__slots__}
    parts = {name for name, kind in made.items() if kind.__module__.startswith("quillcast.protocol.topics")}
    assert sorted(parts - tested - {"config", "policy"}) == []


def test_each_order_has_a_router(world: Parts) -> None:
    kinds = {kind for kind in vars(effects).values() if isinstance(kind, type) and kind.__module__ == effects.__name__}
    assert world.orders.routed_kinds == kinds


@pytest.mark.parametrize(
    "order",
    [
        FindParent(TOPIC),
        LeaveIfIdle(TOPIC, anyway=True),
        PlaceTaken(TOPIC),
        ParentAccepted(TOPIC, BOB),
        RoomAgain(TOPIC),
        LaterTermExists(TOPIC),
        Resign(TOPIC),
        AllStable(TOPIC),
    ],
    ids=lambda order: type(order).__name__,
)
def test_an_order_for_a_topic_that_was_left_before_changes_nothing(world: Parts, order: msgspec.Struct) -> None:
    world.orders.carry_out(order)
    assert (world.host.sent, world.ring.routed, world.ordered, world.trees) == ([], [], [], {})


def test_a_child_that_becomes_the_parent_leaves_no_lease(world: Parts) -> None:
    tree = world.root()
    world.child(tree, BOB)
    world.children.links.add(BOB)
    world.orders.carry_out(ChildIsParent(TOPIC, BOB.node_id))
    assert not tree.leases.children
    assert not tree.leases.orphaned


def test_what_a_lost_neighbour_was_told_is_forgotten(world: Parts) -> None:
    world.streams.put(BOB, TOPIC, b"report")
    world.streams.put(CAROL, TOPIC, b"report")
    world.orders.carry_out(NeighbourLost(BOB.node_id))
    assert (dict(world.streams.telling(BOB.node_id)), [*world.streams.telling(CAROL.node_id)]) == ({}, [TOPIC])


def test_settings_that_let_held_events_in_have_them_taken(world: Parts) -> None:
    """The tree looks again at all that its settings decide."""
    tree = world.tree()
    world.orders.carry_out(SettingsLearned(DESCRIPTOR))
    assert [*world.schedule.dirty] == [tree.topic]
