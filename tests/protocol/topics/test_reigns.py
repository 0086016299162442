"""What one root knew reaches all that are owed it, however many follow it (DELIVERY.md, *Roots that move*)."""

import pytest

from quillcast.core.bundle import Block, Bundle, Kind, Term
from quillcast.core.ids import from_number, number
from quillcast.protocol.forwarding.flow import TERMS_KEPT_MAX, down
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.messages import Accepted, HandOver, Leave
from tests.protocol.topics.village import Reader, Village

NAME = "sport/tennis"
TOPIC = described(NAME).topic


def by_distance(village: Village) -> list[int]:
    """The peers, the closest to the topic first."""
    return sorted(village.alive(), key=lambda peer: abs(number(village.world.machines[peer].node_id) - number(TOPIC)))


def test_a_new_root_waits_for_those_that_the_old_one_still_waited_for() -> None:
    village = Village(6)
    for peer in range(6):
        village.subscribe(peer, NAME, Reader())
    village.run(10)
    village.kill(village.root(NAME))
    village.run(10)  # the next root waits a lease's time for orphans on their way
    old = village.root(NAME)
    publisher = village.publisher(old, NAME)
    new = village.add(from_number(number(TOPIC))).number
    assert village.root(NAME) == new
    village.publish(old, publisher, b"event")
    village.run(10)
    assert (publisher.admitted, publisher.stable) == (1, 0)
    village.run(25)
    assert publisher.stable == 1


@pytest.mark.parametrize("readers", [0, 1])
def test_a_root_that_leaves_is_waited_for_only_if_somebody_below_it_may_come(readers: int) -> None:
    """A lone subscriber that leaves with its first event must not cost the publisher a lease's time."""
    village = Village(6)
    old, new, other = by_distance(village)[:3]
    for peer in (old, other)[: 1 + readers]:
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    assert village.root(NAME) == old
    village.act(old, lambda peer: peer.leave())
    village.run(4)
    village.publisher(new, NAME)
    village.run(1)
    assert village.root(NAME) == new
    tree = village.tree(new, NAME)
    assert tree is not None
    assert tree.root is not None
    now = village.act(new, lambda peer: peer.host.now())
    assert (tree.root.hold_until > now + 20) == bool(readers)


def test_a_root_that_lost_somebody_does_not_take_a_topic_for_new() -> None:
    village = Village(6)
    village.run(10)
    village.kill(by_distance(village)[0])
    village.run(10)
    publisher = village.publisher(village.alive()[0], NAME)
    village.publish(village.alive()[0], publisher, b"event")
    village.run(10)
    assert (publisher.admitted, publisher.stable) == (1, 0)
    village.run(30)
    assert publisher.stable == 1


def test_after_a_long_split_readers_hear_of_a_reign_that_nobody_over_there_read() -> None:
    """Its events were stable among nobody, its root hands over and needs the topic no more: yet its length is told."""
    village = Village(8)
    closest = by_distance(village)
    here, over_there = closest[:4], closest[4:]
    reader = Reader()
    village.subscribe(here[1], NAME, reader)
    village.run(5)
    publisher = village.publisher(over_there[1], NAME)
    village.run(2)
    cut = village.world.cut(lambda a, b: (a in here) != (b in here))
    village.run(12)
    village.publish(over_there[1], publisher, b"a", b"b", b"c")
    village.run(80)
    assert publisher.stable == 3
    village.world.mend(cut)
    village.run(80)
    assert reader.payloads == []
    assert sum(last - first for _, first, last, _ in reader.gone) == 3


def test_the_last_copy_is_found_in_a_peer_that_was_handed_the_topic_by_mistake() -> None:
    village = Village(6)
    reader = Reader()
    village.subscribe(by_distance(village)[1], NAME, reader)
    village.run(5)
    by_mistake = by_distance(village)[-1]
    assert village.tree(by_mistake, NAME) is None
    term, gone = Term(7, bytes(16)), village.world.machines[by_distance(village)[2]].contact
    block = Block.seal(bytes(16), 0, [b"last copy"], time_ns=0)
    bundle = Bundle(down(TOPIC, term, 0, 0)._replace(kind=Kind.REPAIR), (block,))
    village.act(by_mistake, lambda peer: peer.message(gone, HandOver(described(NAME), term, 1, 0)))
    village.act(by_mistake, lambda peer: peer.scribe.table.move(bundle))
    village.run(20)
    assert reader.payloads == [b"last copy"]
    village.run(80)
    assert village.tree(by_mistake, NAME) is None, "it stays no longer than others may lack it"


@pytest.mark.parametrize("another_reign", [True, False])
def test_a_child_in_two_reigns_keeps_its_lease_in_the_one_it_does_not_follow(another_reign: bool) -> None:
    """Else the root there calls stable what nobody below this child has."""
    village = Village(6)
    child, stranger = by_distance(village)[2], by_distance(village)[3]
    village.subscribe(child, NAME, Reader())
    village.run(5)
    tree = village.tree(child, NAME)
    assert tree is not None
    term = Term(tree.flow.term.counter - 1, tree.flow.term.node) if another_reign else tree.flow.term
    sent: list[object] = []
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    accepted = Accepted(TOPIC, term, 0, [], [])
    village.act(child, lambda peer: peer.message(village.world.machines[stranger].contact, accepted))
    assert [message for message in sent if isinstance(message, Leave)] == [Leave(TOPIC, moved=another_reign)]


def test_a_subscriber_is_told_of_what_it_lacked_in_a_reign_that_is_let_go_because_many_followed() -> None:
    village = Village(4)
    reader = Reader()
    peer = by_distance(village)[1]
    village.subscribe(peer, NAME, reader)
    village.run(5)
    tree = village.tree(peer, NAME)
    assert tree is not None
    first = tree.flow.term
    for counter in range(first.counter + 1, first.counter + 2 + TERMS_KEPT_MAX):
        village.act(peer, lambda p, c=counter: p.scribe.enter_term(tree, Term(c, bytes(16)), 0))
    village.act(peer, lambda p: p.scribe.recall(tree, Term(first.counter, b"\xff" * 16), 5))
    village.run(3)
    assert len(tree.flow.past) <= TERMS_KEPT_MAX + 1
    assert [gone[:3] for gone in reader.gone] == [(Term(first.counter, b"\xff" * 16), 0, 5)]


def test_what_a_child_covers_is_not_more_because_its_join_comes_twice() -> None:
    """What it has itself says nothing of those below it."""
    village = Village(6)
    root, child = by_distance(village)[0], by_distance(village)[2]
    village.subscribe(child, NAME, Reader())
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    contact = village.world.machines[child].contact
    tree.children[contact.node_id].cover = 3
    village.act(root, lambda peer: peer.scribe.lost(contact))
    assert not tree.children
    again = [village.act(root, lambda peer: peer.scribe.enter(tree, contact, 7).cover) for _ in range(2)]
    assert again == [3, 3]


def test_a_child_that_speaks_of_a_later_reign_says_nothing_of_this_one() -> None:
    village = Village(6)
    root, child = by_distance(village)[0], by_distance(village)[2]
    village.subscribe(child, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.publish(root, publisher, *[b"event"] * 4)
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.cover(village.world.now) == 4
    claimed = tree.children[village.world.machines[child].node_id]
    claimed.cover_term = Term(tree.flow.term.counter + 1, tree.flow.term.node)
    assert tree.cover(village.world.now) == 0
