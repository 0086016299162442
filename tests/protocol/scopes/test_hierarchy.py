"""The hierarchy of scopes: the cafeteria of figure 5, and what cannot be."""

import pytest

from quillcast.protocol.scopes.hierarchy import (
    OVERLAY,
    NoWayToRoot,
    ScopeCycle,
    TwoRootScopes,
    scope_id,
)
from tests.protocol.scopes.hierarchy import Hierarchy, NamedScope

ALICE, BOB, CHARLIE = (letter.encode() * 16 for letter in "abc")
TOPIC = b"t" * 16
CAFETERIA, LIBRARY, ROOM_1, ROOM_2 = (NamedScope(name) for name in ("cafe", "library", "one", "two"))


def figure_5() -> Hierarchy:
    hierarchy = Hierarchy()
    for scope in (CAFETERIA, LIBRARY, ROOM_1, ROOM_2):
        hierarchy.add(scope)
    for member, owner in (
        (ALICE, CAFETERIA),
        (BOB, CAFETERIA),
        (CHARLIE, LIBRARY),
        (CAFETERIA.id, ROOM_1),
        (CAFETERIA.id, ROOM_2),
        (LIBRARY.id, ROOM_2),
    ):
        hierarchy.join(member, owner.id)
    return hierarchy


def test_the_id_of_a_scope_is_the_hash_of_its_name() -> None:
    assert CAFETERIA.id == scope_id(b"cafe") != scope_id(b"library")
    assert len(CAFETERIA.id) == 16


def test_the_span_of_a_scope_is_the_peers_below_it() -> None:
    hierarchy = figure_5()
    assert hierarchy.span(ROOM_1.id) == [ALICE, BOB]
    assert hierarchy.span(ROOM_2.id) == [ALICE, BOB, CHARLIE]
    hierarchy.leave(BOB, CAFETERIA.id)
    assert hierarchy.span(ROOM_2.id) == [ALICE, CHARLIE]


def test_for_each_topic_a_scope_registers_with_one_superscope() -> None:
    hierarchy = figure_5()
    hierarchy.set_root(TOPIC, ROOM_2.id)
    assert list(hierarchy.path(ALICE, TOPIC)) == [ALICE, CAFETERIA.id]
    assert hierarchy.owner(CAFETERIA.id, TOPIC) == ROOM_2.id
    assert list(hierarchy.path(CHARLIE, TOPIC)) == [CHARLIE, LIBRARY.id]


def test_without_a_root_scope_a_topic_is_rooted_at_the_overlay() -> None:
    hierarchy = figure_5()
    assert hierarchy.root(TOPIC) == OVERLAY
    assert list(hierarchy.path(CHARLIE, TOPIC)) == [CHARLIE, LIBRARY.id, ROOM_2.id]


def test_a_scope_that_the_root_scope_does_not_contain_has_no_part_in_the_topic() -> None:
    hierarchy = figure_5()
    hierarchy.set_root(TOPIC, ROOM_1.id)
    with pytest.raises(NoWayToRoot, match=f"library cannot take part in topic {TOPIC[:4].hex()}: .* root scope one"):
        hierarchy.owner(LIBRARY.id, TOPIC)


def test_a_scope_below_itself_is_a_cycle() -> None:
    hierarchy = figure_5()
    with pytest.raises(ScopeCycle, match="scope two cannot be a member of cafe: cafe lies below it; remove"):
        hierarchy.join(ROOM_2.id, CAFETERIA.id)
    with pytest.raises(ScopeCycle):
        hierarchy.join(ROOM_2.id, ROOM_2.id)


def test_a_topic_has_one_root_scope() -> None:
    hierarchy = figure_5()
    hierarchy.set_root(TOPIC, ROOM_1.id)
    hierarchy.set_root(TOPIC, ROOM_1.id)
    with pytest.raises(TwoRootScopes, match="rooted at scope one, and cannot be rooted at scope two too: use another"):
        hierarchy.set_root(TOPIC, ROOM_2.id)
