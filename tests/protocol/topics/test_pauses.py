"""After a pause, a process judges no lease by the time that passed meanwhile, whatever arrives first."""

from collections.abc import Callable

import pytest

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Timer
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.reliability.recovery import Look
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.membership.membership import JoinTimeout
from quillcast.protocol.topics.state.holders import Child, OrphanedLease
from quillcast.protocol.topics.state.link_reports import ChildReport, encode
from quillcast.protocol.topics.state.schedule import HousekeepingDue, ReportDue
from tests.protocol.recording import PAUL, block, down
from tests.protocol.topics.test_terms import NAME, TOPIC, by_distance
from tests.protocol.topics.village import Reader, Village


def timer(it: Timer) -> Callable[[Peer], None]:
    return lambda peer: peer.timer(it)


@pytest.mark.parametrize(
    "first",
    [timer(ReportDue()), timer(HousekeepingDue()), timer(JoinTimeout(TOPIC, 7))],
    ids=["report", "housekeep", "any other"],
)
def test_whatever_comes_first_after_a_pause_finds_no_lease_at_its_end(first: Callable[[Peer], None]) -> None:
    village = Village(4)
    root, lost, other = by_distance(village)[:3]
    for peer in (lost, other):
        village.subscribe(peer, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.run(3)
    village.kill(lost, silently=True)
    village.publish(root, publisher, b"event")
    village.run(14)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert list(tree.leases.orphaned) == [village.world.machines[lost].node_id]
    host = village.world.machines[root].host
    assert host is not None
    host.pause()
    village.run(40)
    host.backlog = []  # the test says what comes first
    host.resume()
    told = ChildReport(tree.term, 1, tree.term)
    village.act(root, first)
    village.act(
        root, lambda peer: peer.topics.links.changed(village.world.machines[other].contact, TOPIC, encode(told))
    )
    assert publisher.stable == 0
    assert [lease.until > village.peers[root].host.now() + 29 for lease in tree.leases.orphaned.values()] == [True]


def test_the_time_of_a_pause_does_not_count_as_patience() -> None:
    village = Village(4)
    root, other = by_distance(village)[:2]
    village.subscribe(other, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.run(3)
    peer, child = village.peers[root], village.world.machines[other].host
    assert child is not None
    child.pause()
    village.publish(root, publisher, b"event")
    village.run(0.1)
    peer.table.budget.limit_bytes = 0
    village.act(root, lambda it: it.topics.flow_control.hold_back())
    assert peer.topics.flow_control.over_since is not None
    peer.topics.flow_control.over_since -= 40
    peer.topics.schedule.paused_from -= 40
    village.act(root, timer(ReportDue()))
    assert "lease_cut" not in village.marks
    village.run(peer.config.topics.patience_s + 0.1)
    assert village.marks["lease_cut"] == 1


def test_after_a_pause_a_root_declares_nothing_stable_for_a_lease() -> None:
    """Another may have been root meanwhile, and have children that this one does not know: the one that is dead now."""
    village = Village(4)
    root, other, dead = by_distance(village)[:3]
    village.subscribe(other, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.run(3)
    peer, contact = village.peers[root], village.world.machines[other].contact
    village.kill(dead, silently=True)
    peer.topics.schedule.paused_from -= 40
    village.publish(root, publisher, b"event")
    village.act(root, timer(ReportDue()))
    tree = village.tree(root, NAME)
    assert tree is not None
    village.run(3)
    assert (tree.leases.children[contact.node_id].acknowledged, publisher.admitted, publisher.stable) == (1, 1, 0)
    village.run(25)
    assert publisher.stable == 0
    village.run(5)
    assert publisher.stable == 1


def test_leases_of_a_topic_that_was_forgotten_are_prolonged_as_well() -> None:
    village = Village(2)
    village.subscribe(0, "some/other", Reader())
    village.run(3)
    topics, now = village.peers[0].topics, village.peers[0].host.now()
    host = topics.host
    lease = OrphanedLease(Child(host, village.world.machines[1].contact, 0, NO_TERM, 0), now + 5, ())
    topics.open_trees.left_behind[TOPIC] = {bytes(16): lease}
    topics.schedule.note_round(now - 40)
    village.act(0, timer(ReportDue()))
    assert lease.until == now + 30


@pytest.mark.parametrize("role", ["root", "child"])
def test_a_subscription_that_begins_right_after_a_pause_is_told_of_nothing_from_before(role: str) -> None:
    """Neither as events nor as losses: where it began, nobody knew yet of the term that had begun meanwhile."""
    village = Village(5)
    root, other, child, _, newcomer = by_distance(village)
    for number in (other, child):
        village.subscribe(number, NAME, Reader())
    publisher = village.publisher(other, NAME)
    village.run(3)
    pausing = [root, child] if role == "child" else [root]
    hosts = [village.world.machines[number].host for number in pausing]
    for host in hosts:
        assert host is not None
        host.pause()
    village.run(10)
    village.publish(other, publisher, b"before")
    village.run(40)
    assert publisher.stable == 1
    for host in hosts:
        assert host is not None
        host.resume()
    readers = {number: Reader() for number in (pausing[-1], newcomer)}
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    village.run(8)
    village.publish(other, publisher, b"after")
    village.run(40)
    assert [(reader.payloads, reader.gone) for reader in readers.values()] == [([b"after"], [])] * 2


@pytest.mark.parametrize("later_s", [0.0, 2.0, 4.5])
def test_nor_if_its_parent_was_paused_as_well_and_goes_on_later_and_the_root_died_meanwhile(later_s: float) -> None:
    """A parent that is still paused is lost in time, and one that goes on finds a parent of its own in time."""
    village = Village(8, config=Config(topics=TopicConfig(children_per_topic_max=2)))
    root, writer, *others = by_distance(village)
    for number in others:
        village.subscribe(number, NAME, Reader())
    publisher, reader = village.publisher(writer, NAME), Reader()
    village.run(6)
    machines = village.world.machines
    parents = {number: tree.parent for number in others if (tree := village.tree(number, NAME)) is not None}
    above = {machines[number].contact: number for number in others}
    child, parent = next((number, above[up]) for number, up in parents.items() if up is not None and up in above)
    upper, lower = machines[parent].host, machines[child].host
    assert upper is not None
    assert lower is not None
    upper.pause()
    lower.pause()
    village.run(2)
    village.kill(root, silently=True)
    village.run(15)
    village.publish(writer, publisher, b"before")
    village.run(40)
    assert publisher.stable == 1
    lower.resume()
    village.subscribe(child, NAME, reader)
    village.run(later_s)
    upper.resume()
    village.run(12)
    village.publish(writer, publisher, b"after")
    village.run(60)
    assert (reader.payloads, reader.gone) == ([b"after"], [])


def test_what_waited_to_be_read_during_a_pause_is_older_than_a_subscription_that_began_long_after_that() -> None:
    """Its root was lost meanwhile, so that nobody else can tell when the last events of that term came."""
    village = Village(5)
    root, _, newcomer, paused, _ = by_distance(village)
    village.subscribe(paused, NAME, Reader())
    publisher, reader = village.publisher(root, NAME), Reader()
    village.run(3)
    host = village.world.machines[paused].host
    assert host is not None
    host.pause()
    village.publish(root, publisher, b"before")
    village.run(1)
    village.kill(root, silently=True)
    village.run(20)
    village.subscribe(newcomer, NAME, reader)
    village.run(8)
    assert reader.start is not None
    host.resume()
    village.run(45)
    tree = village.tree(newcomer, NAME)
    assert tree is not None
    assert [past.end for past in tree.flow.past.values()] == [1]
    assert (reader.payloads, reader.gone) == ([], [])


@pytest.mark.parametrize("pause_s", [40, 70], ids=["longer than a lease", "longer than past terms are kept"])
def test_after_a_pause_what_is_missing_is_waited_for_as_long_as_if_it_began_to_be_missing_then(pause_s: float) -> None:
    """What waits to be read may bring it."""
    village = Village(4)
    reading = by_distance(village)[1]
    reader, past = Reader(), Term(0, bytes(16))
    village.subscribe(reading, NAME, reader)
    village.run(3)
    tree, host = village.tree(reading, NAME), village.world.machines[reading].host
    assert tree is not None
    assert host is not None
    village.act(reading, lambda peer: peer.topics.terms.recall(tree, past, 2, 0))
    village.run(3)
    host.pause()
    village.run(pause_s)
    host.backlog = []  # the test says what comes first
    host.resume()
    village.act(reading, timer(Look()))
    village.act(reading, timer(HousekeepingDue()))
    village.run(0.5)
    assert reader.gone == []
    village.run(45)
    assert [(first, last) for _, first, last, _ in reader.gone] == [(0, 2)]


def test_a_pause_makes_no_hole_void() -> None:
    village = Village(2)
    village.subscribe(0, NAME, Reader())
    village.run(3)
    tree, peer = village.tree(0, NAME), village.peers[0]
    assert tree is not None
    (edge,) = tree.subscriptions
    edge.begin(Term(1 << 16, bytes(16)), 0)
    edge.take(down(tree.term, 0, block(PAUL, 0)))
    edge.take(down(Term(1 << 16, bytes(16)), 0, block(PAUL, 2)))
    assert list(edge.holes) == [PAUL]
    edge.holes[PAUL] -= 40
    peer.topics.schedule.paused_from -= 40
    village.act(0, timer(ReportDue()))
    assert edge.holes == {PAUL: peer.host.now()}
