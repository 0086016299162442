"""Trees that somebody plans: a peer follows an invitation without missing an event, and without waiting for one."""

from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.stability.tree_reports import child_report
from quillcast.protocol.topics.state.link_reports import ChildReport, Move, encode
from quillcast.protocol.topics.state.moves import arrivals, arrived_elsewhere, departures
from tests.protocol.topics.parts import next_life
from tests.protocol.topics.test_terms import NAME, TOPIC, by_distance
from tests.protocol.topics.village import Reader, Village


def invite(village: Village, parent: int, child: int) -> None:
    contact = village.world.machines[parent].contact
    village.act(child, lambda peer: peer.topics.membership.move([TOPIC], contact))


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
    assert list(tree.leases.children) == [village.world.machines[first].node_id]


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


def three_branches() -> tuple[Village, list[int], Publisher]:
    """A root with two forwarders, and a peer below the first one, which has a lease there."""
    village = Village(8)
    root, first, second, mover, *_ = by_distance(village)
    for number in (first, second, mover):
        village.subscribe(number, NAME, Reader())
    village.run(5)
    invite(village, first, mover)
    village.run(40)
    assert [parent_of(village, number) for number in (first, second, mover)] == [root, root, first]
    return village, [root, first, second, mover], village.publisher(root, NAME)


def test_what_is_published_after_a_move_is_stable_at_once() -> None:
    village, (root, first, second, mover), publisher = three_branches()
    invite(village, second, mover)
    village.run(0.1)
    village.publish(root, publisher, b"one")
    village.run(1)
    assert parent_of(village, mover) == second
    assert village.marks["lease_moved"] == 1
    assert publisher.stable == publisher.next == 1
    reports = [child_report(village.tree(number, NAME), b"", village.world.now) for number in (first, second)]
    assert [report.departures for report in reports] == [(), ()], "nobody waits for it any more"


def test_a_lease_goes_on_until_the_new_way_covers_the_member() -> None:
    """The mover falls silent as it moves: what it has not is not stable until its lease has ended."""
    village, (root, _, second, mover), publisher = three_branches()
    invite(village, second, mover)
    village.run(0.1)
    village.kill(mover, silently=True)
    village.publish(root, publisher, b"one")
    village.run(20)
    assert publisher.stable == 0
    village.run(20)
    assert publisher.stable == 1


def test_an_old_word_of_an_arrival_ends_no_lease_of_a_later_move() -> None:
    """A child may still name a peer that has gone on from there: only a later parent speaks for that lease."""
    village = Village(6)
    root, left, right, mover = by_distance(village)[:4]
    for number in (left, right):
        village.subscribe(number, NAME, Reader())
    village.run(5)
    tree, contacts = village.tree(root, NAME), [machine.contact for machine in village.world.machines]
    moves = [Move(contacts[mover].node_id, number) for number in (5, 6, 7)]

    def says(child: int, **names: tuple[Move, ...]) -> tuple[Move, ...]:
        report = ChildReport(tree.term, 0, tree.term, **names)
        village.act(root, lambda peer: peer.topics.links.changed(contacts[child], TOPIC, encode(report)))
        return arrived_elsewhere(tree.leases, tuple)

    assert says(left, arrivals=(moves[0],)) == ()
    assert says(right, departures=(moves[1],)) == (), "that was before"
    assert says(left, arrivals=(moves[2],)) == (moves[2],)
    restarted = Move(contacts[mover].node_id, next_life(moves[2].number))
    assert says(left, arrivals=(restarted,)) == (), "it does not know who was below it"


def test_names_go_no_further_than_the_lowest_peer_above_both_parents() -> None:
    village, (root, first, second, mover), _ = three_branches()
    invite(village, second, mover)
    village.run(1)
    node = village.world.machines[root].node_id
    (arrival,) = arrivals(village.tree(second, NAME).leases, b"")
    assert (arrival.peer, arrival.up_to) == (village.world.machines[mover].node_id, node)
    assert arrivals(village.tree(root, NAME).leases, node) == ()
    assert departures(village.tree(first, NAME).leases, b"", village.world.now) == ()


def test_who_is_invited_by_two_peers_follows_one_after_the_other_and_leaves_no_lease_behind() -> None:
    village, (_, first, second, mover), _ = three_branches()
    (other,) = by_distance(village)[4:5]
    village.subscribe(other, NAME, Reader())
    village.run(5)
    for _ in range(2):
        invite(village, second, mover)
        invite(village, other, mover)
        village.run(2)
    assert parent_of(village, mover) == other
    assert village.marks["invitation_followed"] == 3
    assert [village.tree(number, NAME).leases.orphaned for number in (first, second)] == [{}, {}]


def test_another_invitation_waits_no_longer_than_a_dead_peer_takes_to_answer() -> None:
    village, (_, first, second, mover), _ = three_branches()
    (other,) = by_distance(village)[4:5]
    village.subscribe(other, NAME, Reader())
    village.run(5)
    village.kill(second, silently=True)
    invite(village, second, mover)
    village.run(0.5)
    invite(village, other, mover)
    village.run(village.config.topics.join_timeout_s)
    assert parent_of(village, mover) == first
    invite(village, other, mover)
    village.run(1)
    assert parent_of(village, mover) == other


def test_after_a_refusal_another_invitation_is_followed_at_once() -> None:
    village, (_, first, second, mover), _ = three_branches()
    outside = next(number for number in village.alive() if village.unaware(number, NAME))
    invite(village, outside, mover)
    village.run(0.1)
    assert parent_of(village, mover) == first, "who does not know the topic takes nobody in"
    invite(village, second, mover)
    village.run(0.1)
    assert parent_of(village, mover) == second
