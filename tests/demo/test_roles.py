"""Roles: nobody who publishes or subscribes is a victim, and victims have children."""

import pytest

from quillcast.demo.roles import Parents, assign_roles, children_of, forwarders, roots


def peer(number: int) -> bytes:
    return number.to_bytes(16, "big")


def tree(text: str) -> dict[bytes, bytes | None]:
    """A tree from "child<parent" words; the root stands alone."""
    places: dict[bytes, bytes | None] = {}
    for word in text.split():
        child, _, parent = word.partition("<")
        places[peer(int(child))] = peer(int(parent)) if parent else None
    return places


DEEP = tree("1 2<1 3<1 4<2 5<2 6<2 7<3 8<3 9<4 10<4 11<7 12<7 13<8 14<8 15<9 16<9")
STAR = tree("1 " + " ".join(f"{child}<1" for child in range(2, 17)))


def pruned(trial: Parents, members: list[bytes]) -> dict[bytes, bytes | None]:
    left: dict[bytes, bytes | None] = {}
    for member in members:
        place: bytes | None = member
        while place is not None:
            left[place] = place = trial[place]
    return left


@pytest.mark.parametrize("trial", [DEEP, STAR, tree("1 2<1 3<1 4<2"), tree("1 2<1 3<2 4<3 5<4 6<5")])
def test_every_peer_has_one_part_and_the_root_is_spare(trial: Parents) -> None:
    roles = assign_roles(trial, seed=1)
    assert sorted([*roles.publishers, *roles.subscribers, *roles.spare]) == sorted(trial)
    assert roles.publishers
    assert roles.subscribers
    assert roots(trial)[0] in roles.spare


@pytest.mark.parametrize("seed", range(20))
def test_two_spare_forwarders_are_left_where_the_tree_offers_them(seed: int) -> None:
    roles = assign_roles(DEEP, seed)
    left = forwarders(pruned(DEEP, roles.subscribers), roles.spare)
    assert len(left) >= 2
    assert not set(roots(DEEP)) & set(left)


def test_a_star_offers_no_forwarder() -> None:
    roles = assign_roles(STAR, seed=3)
    assert forwarders(pruned(STAR, roles.subscribers), roles.spare) == []


def test_a_seed_gives_the_same_roles_again() -> None:
    assert assign_roles(DEEP, seed=5) == assign_roles(dict(reversed(DEEP.items())), seed=5)
    assert len({tuple(assign_roles(DEEP, seed).publishers) for seed in range(10)}) > 1


def test_forwarders_come_with_most_children_first() -> None:
    assert forwarders(DEEP, list(DEEP))[:2] == [peer(2), peer(3)]
    assert children_of(DEEP)[peer(2)] == [peer(4), peer(5), peer(6)]
