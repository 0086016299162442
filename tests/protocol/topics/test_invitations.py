"""Trees that somebody plans: a peer follows an invitation without missing an event, and without waiting for one."""

from quillcast.protocol.topics.messages import Invite
from tests.protocol.topics.test_terms import NAME, TOPIC, by_distance
from tests.protocol.topics.village import Reader, Village


def invite(village: Village, parent: int, child: int) -> None:
    contact = village.world.machines[child].contact
    village.act(parent, lambda peer: peer.host.send(contact, Invite([TOPIC])))


def parent_of(village: Village, number: int) -> int | None:
    tree = village.tree(number, NAME)
    if tree is None or tree.parent is None:
        return None
    return next(m.number for m in village.world.machines if m.node_id == tree.parent.node_id)


def test_an_invited_peer_becomes_the_child_and_nothing_is_lost_or_late() -> None:
    village = Village(8)
    root, first, second, *_ = by_distance(village)
    readers = {number: Reader() for number in (first, second)}
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    village.run(5)
    publisher = village.publisher(root, NAME)
    for index in range(20):
        village.publish(root, publisher, b"%d" % index)
        if index == 10:
            invite(village, first, second)
        village.run(0.02)
    village.run(2)
    assert parent_of(village, second) == first
    assert village.marks["invitation_followed"] == 1
    for reader in readers.values():
        assert reader.payloads == [b"%d" % index for index in range(20)]
        assert reader.losses == []
    tree = village.tree(root, NAME)
    assert tree is not None
    assert list(tree.children) == [village.world.machines[first].node_id]


def test_the_present_parent_is_kept_where_the_other_dies_before_it_accepts() -> None:
    village = Village(8)
    root, first, second, *_ = by_distance(village)
    for number in (first, second):
        village.subscribe(number, NAME, Reader())
    village.run(5)
    invite(village, first, second)
    village.run(0.001)
    village.kill(first)
    village.run(30)
    assert parent_of(village, second) == root
    assert "invitation_followed" not in village.marks


def test_whom_nothing_here_concerns_is_not_followed() -> None:
    """The root has no parent, a peer without the topic needs none, and nobody follows a peer below itself."""
    village = Village(8)
    root, first, second, *_ = by_distance(village)
    for number in (first, second):
        village.subscribe(number, NAME, Reader())
    village.run(5)
    invite(village, first, root)
    outside = next(number for number in village.alive() if village.tree(number, NAME) is None)
    invite(village, first, outside)
    invite(village, first, second)
    village.run(2)
    invite(village, second, first)
    village.run(5)
    assert village.root(NAME) == root
    assert village.tree(outside, NAME) is None
    assert (parent_of(village, first), parent_of(village, second)) == (root, first)
