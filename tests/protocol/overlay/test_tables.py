"""Leaf set, routing table and neighbourhood set compared with slow and obvious versions."""

from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.ids import ID_BYTES, clockwise, closer, number, shared_digits
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.neighbourhood import NeighbourhoodSet
from quillcast.protocol.overlay.routingtable import UNKNOWN, RoutingTable
from tests.ids import from_number

ids = st.binary(min_size=ID_BYTES, max_size=ID_BYTES)
crowded = st.integers(-40, 40).map(from_number)  # around zero, where the ring wraps around
some_ids = st.lists(st.one_of(ids, crowded), unique=True, min_size=1, max_size=40)
sizes = st.sampled_from([2, 4, 8, 16])
ME = from_number(3)


def contact(node_id: bytes) -> Contact:
    return Contact(node_id, node_id.hex())


def filled(me: bytes, size: int, others: list[bytes]) -> LeafSet:
    leaf_set = LeafSet(me, size)
    for other in others:
        leaf_set.add(contact(other))
        leaf_set.check()
    return leaf_set


def naive_sides(me: bytes, size: int, others: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    right = sorted((other for other in others if other != me), key=lambda other: clockwise(me, other))
    return right[: size // 2], right[::-1][: size // 2]


@given(st.one_of(ids, crowded), sizes, some_ids)
def test_a_leaf_set_holds_the_closest_on_each_side_in_any_order_of_arrival(
    me: bytes, size: int, others: list[bytes]
) -> None:
    leaf_set = filled(me, size, others)
    sides = [[member.node_id for member in side] for side in (leaf_set.right, leaf_set.left)]
    assert sides == list(naive_sides(me, size, others))


@given(st.one_of(ids, crowded), sizes, some_ids, st.one_of(ids, crowded))
def test_closest_finds_the_closest_member(me: bytes, size: int, others: list[bytes], key: bytes) -> None:
    leaf_set = filled(me, size, others)
    closest = me
    for member in leaf_set:
        if closer(member.node_id, closest, key):
            closest = member.node_id
    found = leaf_set.closest(number(key))
    assert (me if found is None else found.node_id) == closest
    if leaf_set.covers(number(key)):
        assert all(not closer(other, closest, key) for other in others), "no other peer is closer to a covered key"


@given(sizes, some_ids, st.data())
def test_removed_members_make_room_for_others(size: int, others: list[bytes], data: st.DataObject) -> None:
    leaf_set = filled(ME, size, others)
    gone = data.draw(st.sampled_from(others))
    assert (leaf_set.remove(gone) is not None) == (gone in [c.node_id for c in filled(ME, size, others)])
    leaf_set.check()
    for other in others:
        fits = leaf_set.fits(other)
        twin = leaf_set.copy()
        evicted = twin.add(contact(other))
        known = other in leaf_set or other == ME
        assert known or fits == (evicted is None or evicted.node_id != other)
        assert not (known and fits)


def test_on_small_rings_the_sides_overlap() -> None:
    a, b = from_number(10), from_number(20)
    two = filled(ME, 16, [a])
    assert two.right == two.left == [contact(a)]
    three = filled(ME, 16, [a, b])
    assert (three.right, three.left) == ([contact(a), contact(b)], [contact(b), contact(a)])
    three_of_two = filled(ME, 2, [a, b])
    assert (three_of_two.right, three_of_two.left) == ([contact(a)], [contact(b)])
    assert LeafSet(ME, 16).covers(0)
    assert LeafSet(ME, 16).closest(0) is None


def test_the_smaller_id_wins_a_tie() -> None:
    low, high = from_number(1), from_number(5)
    leaf_set = filled(ME, 4, [low, high])
    assert leaf_set.closest(2) == contact(low)
    assert leaf_set.closest(4) is None
    assert leaf_set.closest(3, but=()) is None


def test_closest_can_exclude_peers() -> None:
    leaf_set = filled(ME, 4, [from_number(n) for n in (5, 6, 7)])
    assert leaf_set.closest(6, but=(from_number(6),)) == contact(from_number(5))
    assert leaf_set.closest(7, but=tuple(from_number(n) for n in (5, 6, 7))) is None


def test_neighbours_on_the_ring_agree_on_the_digest_of_common_members() -> None:
    ring = [from_number(10 * index) for index in range(30)]
    for count in (2, 3, 5, 8, 9, 10, 30):
        for size in (2, 4, 8):
            here = filled(ring[0], size, ring[1:count])
            there = filled(ring[1], size, [ring[0], *ring[2:count]])
            assert here.digest(here.left[-1]) == there.digest(there.right[-1]), (count, size)
            there.remove(ring[0])
            assert here.digest(here.left[-1]) != there.digest(there.right[-1] if len(there) else None)


def test_a_peer_that_moved_keeps_its_place() -> None:
    a = from_number(10)
    leaf_set = filled(ME, 4, [a, from_number(20)])
    moved = Contact(a, "elsewhere")
    assert leaf_set.add(moved) is None
    assert leaf_set.right[0] == moved
    leaf_set.check()


@given(st.sampled_from([1, 2, 4, 8]), ids, some_ids, ids)
def test_lookup_finds_a_peer_that_shares_more_digits(bits: int, me: bytes, others: list[bytes], key: bytes) -> None:
    table = RoutingTable(me, bits)
    for other in others:
        table.consider(contact(other), UNKNOWN)
        table.check()
    found = table.lookup(number(key))
    better = [o for o in others if o != me and shared_digits(o, key, bits) > shared_digits(me, key, bits)]
    assert (found is not None) == bool(better)
    assert found is None or found.contact.node_id in better
    for other in others:
        table.remove(other)
        table.check()
    assert (len(table), table.depth) == (0, 0)


def test_each_cell_holds_the_nearest_known_peer() -> None:
    table = RoutingTable(bytes(16), 4)
    far, near, nearer = (contact(bytes([0x10, n]) + bytes(14)) for n in range(3))
    assert table.consider(far, UNKNOWN)
    assert table.consider(near, 0.2)
    assert not table.consider(far, 0.3)
    assert table.consider(nearer, 0.1)
    assert not table.consider(nearer, 0.15), "it is in the table already"
    assert list(table) == [nearer]
    assert not table.consider(contact(bytes(16)), 0.0), "a peer has no place in its own table"
    assert table.row(0) == [nearer]
    assert table.row(99) == table.row(-1) == []


def test_only_a_peer_itself_can_change_its_address() -> None:
    table, near = RoutingTable(bytes(16), 4), NeighbourhoodSet(4)
    there, moved = Contact(b"\x10" * 16, "old"), Contact(b"\x10" * 16, "new")
    for tables in (table, near):
        tables.consider(there, 0.2)
        tables.consider(moved, 0.1)
        assert list(tables) == [there]
        tables.readdress(moved)
        assert list(tables) == [moved]
        tables.check()


@given(st.integers(1, 5), st.lists(st.tuples(ids, st.floats(0, 10)), max_size=20))
def test_the_neighbourhood_set_holds_the_nearest(size: int, met: list[tuple[bytes, float]]) -> None:
    near = NeighbourhoodSet(size)
    for node_id, proximity in met:
        near.consider(contact(node_id), proximity)
        near.check()
    if len(dict(met)) == len(met):
        assert [dict(met)[c.node_id] for c in near] == sorted(proximity for _, proximity in met)[:size]
