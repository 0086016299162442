"""How a peer follows its roots: one input, then what was sent, set, and ordered of parts above."""

import pytest

from quillcast.core.envelope import Position
from quillcast.protocol.forwarding.milestones import Milestones
from quillcast.protocol.topics.state.effects import (
    Outdone,
)
from quillcast.protocol.topics.state.schedule import ReportDue
from quillcast.protocol.topics.state.sources import NO_SOURCES
from quillcast.protocol.topics.state.terms import Terms
from tests.protocol.recording import FIRST, SECOND
from tests.protocol.topics.parts import STREAM, Parts


@pytest.fixture
def terms(world: Parts) -> Terms:
    return world.terms


def test_a_root_that_learns_of_a_later_term_is_outdated(world: Parts, terms: Terms) -> None:
    tree = world.root()
    terms.heard_of(tree, FIRST)
    assert world.ordered == []
    terms.heard_of(tree, SECOND)
    assert world.ordered == [Outdone(tree)]
    assert tree.heard == SECOND


def test_a_peer_that_is_not_root_only_records_a_later_term(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.heard_of(tree, SECOND)
    assert (tree.heard, world.ordered) == (SECOND, [])


def test_a_new_term_is_reported_and_the_one_before_it_is_kept_to_its_end(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.enter(tree, FIRST, 0)
    tree.inherited = Position(FIRST, 7)
    terms.enter(tree, SECOND, 0)
    assert (tree.term, tree.flow.past[FIRST].end) == (SECOND, 7)
    assert world.timers == [ReportDue()]


def test_a_peer_stays_in_the_tree_for_a_term_that_is_over(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    assert not tree.needed
    terms.keep(tree)
    assert tree.needed
    assert list(world.schedule.due) == [tree.topic]


def test_peers_without_sources_share_an_object_that_none_of_them_can_write_to() -> None:
    with pytest.raises(TypeError, match="served"):
        NO_SOURCES.served = False
    with pytest.raises(TypeError):
        NO_SOURCES.milestones[STREAM] = Milestones()
    assert NO_SOURCES.served
