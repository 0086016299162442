"""What a root knew reaches every peer that is owed it, however many follow (docs/delivery.md, *Roots that move*)."""

import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, Envelope, Kind, Position, Term
from quillcast.core.ids import number
from quillcast.core.trace import BecameRoot, Repeated
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.past_terms import TERMS_KEPT_MAX
from quillcast.protocol.neighbours.streams import UNTOLD
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.membership.membership import FORMER_MAX
from quillcast.protocol.topics.memory.retention import acknowledged_position
from quillcast.protocol.topics.messages import Accepted, Farewell, Have, Join, Leave
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root_messages import StateAnswer, TopicEntry, TransferLeadership
from quillcast.protocol.topics.stability.tree_reports import child_report
from quillcast.protocol.topics.state.holders import NEVER, SINCE, UNKNOWN_PEER, Child
from quillcast.protocol.topics.state.link_reports import ChildReport, Move, ParentReport, encode
from quillcast.protocol.topics.state.tree import Tree
from tests.ids import from_number
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


def leaving_root(readers: int, *, dying: int = 0) -> tuple[Village, Publisher, int]:
    """A root with so many readers below leaves, when some of them have just died; then something is published.

    Returns the village, the publisher and the next root.
    """
    village = Village(12)
    old, new, *others = by_distance(village)
    for peer in (old, *others[:readers]):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    assert village.root(NAME) == old
    for peer in others[:dying]:
        village.kill(peer, silently=True)
    village.act(old, lambda peer: peer.leave())
    village.run(4)
    publisher = village.publisher(new, NAME)
    village.publish(new, publisher, b"event")
    village.run(5)
    assert village.root(NAME) == new
    assert publisher.admitted == 1
    return village, publisher, new


@pytest.mark.parametrize("readers", [0, 1, 8])
def test_a_leaving_root_names_the_peers_below_it_and_only_those_are_waited_for(readers: int) -> None:
    """Neither a lone subscriber that leaves nor one with many readers costs publishers a lease's time."""
    _, publisher, _ = leaving_root(readers)
    assert publisher.stable == 1


def test_a_peer_below_a_leaving_root_that_does_not_arrive_is_waited_for_during_its_lease() -> None:
    village, publisher, new = leaving_root(4, dying=1)
    assert publisher.stable == 0
    tree = village.tree(new, NAME)
    assert tree is not None
    assert tree.root is not None
    assert [len(lease.awaited) for lease in tree.leases.orphaned.values()] == [1]
    village.run(30)
    assert publisher.stable == 1


NARROW = Config(topics=TopicConfig(children_per_topic_max=2))


def narrow_tree() -> tuple[Village, Publisher, list[int]]:
    """Peers that all read, two children each; one more publishes. Returns the readers too, the closest first."""
    village = Village(16, config=NARROW)
    *readers, writer = by_distance(village)
    for peer in readers:
        village.subscribe(peer, NAME, Reader())
    village.run(8)
    publisher = village.publisher(writer, NAME)
    village.run(2)
    return village, publisher, readers


def children(village: Village, peer: int) -> list[int]:
    tree = village.tree(peer, NAME)
    machines = village.world.machines
    return [m.number for m in machines if tree is not None and m.node_id in tree.leases.children]


def stable_after(village: Village, publisher: Publisher, seconds: float) -> bool:
    """Does what is published now become stable in so many seconds?"""
    writer = by_distance(village)[-1]
    village.publish(writer, publisher, b"event")
    village.run(seconds)
    return publisher.stable == publisher.next


def test_a_peer_that_joins_below_a_full_root_counts_as_arrived() -> None:
    village, publisher, (old, new, *_) = narrow_tree()
    assert [len(children(village, peer)) for peer in (old, new)] == [2, 2]
    village.act(old, lambda peer: peer.leave())
    village.run(4)
    assert village.root(NAME) == new
    assert village.marks["shed"] > 0
    assert stable_after(village, publisher, 2)


def test_a_leaving_forwarder_names_the_peers_below_it_and_no_lease_ends() -> None:
    """Its children find its parent full too, for it is still there; they join below others, and are named up there."""
    village, publisher, (root, *_) = narrow_tree()
    forwarder = next(peer for peer in children(village, root) if children(village, peer))
    village.act(forwarder, lambda peer: peer.leave())
    village.run(4)
    assert village.tree(forwarder, NAME) is None
    assert stable_after(village, publisher, 2)
    tree = village.tree(root, NAME)
    assert tree is not None
    village.run(20)
    assert [child.others.nodes for child in tree.leases.children.values()] == [(), ()], (
        "it is told for a while, not for good"
    )


def test_a_peer_below_a_leaving_forwarder_that_does_not_arrive_is_waited_for() -> None:
    village, publisher, (root, *_) = narrow_tree()
    forwarder = next(peer for peer in children(village, root) if children(village, peer))
    gone = children(village, forwarder)[0]
    village.kill(gone, silently=True)
    village.act(forwarder, lambda peer: peer.leave())
    village.run(6)
    assert village.tree(forwarder, NAME) is None
    assert not stable_after(village, publisher, 10)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert [list(lease.awaited) for lease in tree.leases.orphaned.values()] == [[village.world.machines[gone].node_id]]
    village.run(22)
    assert publisher.stable == publisher.next


@pytest.mark.parametrize("spoke_since", [True, False])
def test_naming_a_newcomer_ends_no_lease_that_it_has_since_reported_elsewhere(spoke_since: bool) -> None:
    village = Village(6)
    root, former, child = by_distance(village)[:3]
    for peer in (former, child):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    contacts = {peer: village.world.machines[peer].contact for peer in (former, child)}
    reports = [(former, ChildReport(tree.term, 0, tree.term, newcomers=(contacts[child].node_id,)))]
    if spoke_since:
        reports += [(child, ChildReport(tree.term, 0, tree.term)), *reports]
    for peer, report in reports:
        village.act(root, lambda it, by=contacts[peer], says=report: it.topics.links.changed(by, TOPIC, encode(says)))
    village.act(root, lambda it: it.topics.children.remove(tree, contacts[child].node_id, "lost", lease=True))
    assert list(tree.leases.orphaned) == ([contacts[child].node_id] if spoke_since else [])


def test_a_child_has_come_once_it_speaks_for_those_below_it() -> None:
    """When it joins, it may have more itself than the peers below it."""
    village = Village(6)
    root, forwarder, child = by_distance(village)[:3]
    village.subscribe(forwarder, NAME, Reader())
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    contacts = {peer: village.world.machines[peer].contact for peer in (forwarder, child)}
    left = Leave(TOPIC, moved=True, leases=(contacts[child].node_id,))
    village.act(root, lambda peer: peer.message(contacts[forwarder], left))
    village.act(root, lambda peer: peer.topics.children.enter(tree, contacts[child], 5))
    assert [list(lease.awaited) for lease in tree.leases.orphaned.values()] == [[contacts[child].node_id]]
    report = ChildReport(tree.term, 2, tree.term)
    village.act(root, lambda peer: peer.topics.links.changed(contacts[child], TOPIC, encode(report)))
    assert not tree.leases.orphaned


@pytest.mark.parametrize("another_term", [True, False])
def test_a_transfer_from_before_another_term_is_ignored(another_term: bool) -> None:
    village = Village(6)
    peer, gone = by_distance(village)[-1], village.world.machines[by_distance(village)[2]].contact
    term = Term(3, gone.node_id)
    village.act(
        peer, lambda p: p.message(gone, TransferLeadership(described(NAME), term, 1, 1, frontiers=((bytes(16), 7),)))
    )
    tree = village.tree(peer, NAME)
    assert tree is not None
    if another_term:
        village.act(peer, lambda p: p.topics.terms.heard_of(tree, Term(4, bytes(16))))
    topics = village.peers[peer].topics
    term = topics.root_terms.next_term(tree, topics.known.latest(tree))
    village.act(peer, lambda _: topics.root_terms.become(tree, "took_over", term))
    assert tree.root is not None
    assert tree.root.frontiers == ({} if another_term else {bytes(16): 7})
    assert (tree.root.hold_until > village.peers[peer].host.now() + 20) == another_term


def test_a_new_subscription_to_a_transferred_topic_is_owed_no_earlier_events() -> None:
    """The next root knows how far the term before it went, though nothing of it came along."""
    village = Village(2)
    root, other = by_distance(village)
    term, reader = Term(3, bytes(16)), Reader()
    gone = village.world.machines[other].contact
    village.act(root, lambda peer: peer.message(gone, TransferLeadership(described(NAME), term, 8, 8)))
    village.run(2)
    village.subscribe(root, NAME, reader)
    village.run(2)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    assert tree.root.term > term
    village.act(root, lambda peer: peer.topics.terms.recall(tree, term, 8))  # a peer of that time says so
    village.run(90)
    assert reader.gone == []


def test_a_peer_that_was_handed_a_topic_knows_how_far_it_had_gone_though_another_becomes_the_root() -> None:
    village = Village(3)
    *_, gone, peer = by_distance(village)
    term = Term(3, bytes(16))
    contact = village.world.machines[gone].contact
    village.act(peer, lambda p: p.message(contact, TransferLeadership(described(NAME), term, 8, 8)))
    tree = village.tree(peer, NAME)
    assert tree is not None
    village.act(peer, lambda p: p.topics.terms.enter(tree, Term(4, bytes(16)), 0))
    assert tree.flow.past[term].end == 8


def test_a_root_that_leaves_last_still_knows_the_children_that_have_not_gone_yet() -> None:
    village = Village(2)
    root, child = by_distance(village)
    for peer in (root, child):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    village.act(child, lambda peer: peer.overlay.leave())  # it has said goodbye to the leaf set, and is still a child
    village.run(1)
    village.act(root, lambda peer: peer.leave(0.0))
    contact = village.world.machines[child].contact
    village.act(root, lambda peer: peer.topics.links.lost(contact))
    village.run(2)
    assert village.tree(root, NAME) is None


def test_a_parents_report_that_overtakes_its_answer_to_the_join_counts() -> None:
    """It says how far the topic has come, so that what was sent before the answer, too, is asked for."""
    village = Village(2)
    root, child = by_distance(village)
    for peer in (root, child):
        village.subscribe(peer, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.run(2)
    village.publish(root, publisher, b"a", b"b", b"c")
    village.run(2)
    tree, contact = village.tree(child, NAME), village.world.machines[root].contact
    assert tree is not None
    tree.parent_has(0)
    answer = Accepted(TOPIC, tree.term, 0, (contact.node_id,), ())
    village.act(child, lambda peer: peer.topics.membership.accepted(contact, answer))
    assert tree.parent_frontier == 3


def test_a_former_parent_that_answers_late_keeps_the_lease_there() -> None:
    """Its word on those below is all that holds stability until the new parent's comes; a stranger's is none."""
    village = Village(4)
    root, former, parent, child = by_distance(village)
    for peer in (root, former, parent, child):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    tree, there = village.tree(child, NAME), village.tree(former, NAME)
    assert tree is not None
    assert there is not None
    assert tree.parent is not None
    contacts = [machine.contact for machine in village.world.machines]
    for known, leases in ((True, [contacts[child].node_id]), (False, [])):
        joining = village.peers[child].topics.membership
        joining.former.pop(TOPIC, None)
        if known:
            joining.note_former(TOPIC, contacts[former].node_id)
            joining.note_former(TOPIC, contacts[root].node_id)
        village.act(former, lambda peer: peer.topics.children.enter(there, contacts[child], 0))
        answer = Accepted(TOPIC, tree.term, 0, (contacts[former].node_id,), ())
        village.act(child, lambda peer, a=answer: peer.topics.membership.accepted(contacts[former], a))
        village.run(1)
        assert list(there.leases.orphaned) == leases
        there.leases.orphaned.clear()


def test_former_parents_are_remembered_to_a_bound_and_for_as_long_as_a_lease() -> None:
    village = Village(3)
    child = by_distance(village)[1]
    for peer in range(3):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    joining = village.peers[child].topics.membership
    parents = [bytes([number]) * 16 for number in range(FORMER_MAX + 1)]
    village.act(child, lambda _: [joining.note_former(TOPIC, node) for node in parents])
    assert list(joining.former[TOPIC]) == parents[1:]
    host = village.world.machines[child].host
    assert host is not None
    host.pause()
    village.run(60)
    host.resume()
    village.run(2)
    assert joining.former[TOPIC].keys() >= {*parents[2:]}, "no lease ran out while this process was paused"
    village.run(32)
    assert joining.former == {}


def test_a_root_that_is_about_to_seal_is_due_although_nothing_new_waits_yet() -> None:
    """A sealed bundle may arrive in the same turn, after a repeat; an event that follows finds the topic due."""
    village = Village(2)
    root, other = by_distance(village)
    village.subscribe(root, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.run(2)
    village.publish(root, publisher, b"a")
    village.run(2)
    repeat = Bundle(Envelope(TOPIC, Kind.UP, NO_TERM), (Block.seal(publisher.id, 0, [b"a"], time_ns=0),))
    sender = village.world.machines[other].contact
    village.peers[root].host.charged[sender.node_id] = repeat.size

    def repeat_sweep_and_publish(peer: Peer) -> None:
        peer.topics.intake.up(sender, repeat)
        peer.topics.housekeeping.housekeep()
        publisher.offer([b"b"])
        tree = peer.topics.trees[TOPIC]
        assert TOPIC in peer.topics.schedule.due or not tree.is_due
        peer.check()

    village.act(root, repeat_sweep_and_publish)


def test_a_subscription_begins_now_even_if_its_peer_joins_for_a_child_that_lags_behind() -> None:
    village = Village(4)
    root, peer, below, _ = by_distance(village)
    village.subscribe(root, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.run(3)
    village.publish(root, publisher, *[b"before"] * 50)
    village.run(3)
    tree, reader = village.tree(root, NAME), Reader()
    assert tree is not None
    join = Join(TOPIC, village.world.machines[below].contact, Have(tree.term, 5), b"", described(NAME))
    village.act(peer, lambda p: p.topics.joins.adopt(join))
    village.subscribe(peer, NAME, reader)
    village.run(3)
    village.publish(root, publisher, b"after")
    village.run(10)
    assert reader.start == Position(tree.term, 50)
    assert (reader.payloads, reader.gone) == ([b"after"], [])


class Busy:
    """A topic with readers on every peer, into which one peer publishes every 20 ms while the root moves."""

    def __init__(self, slow: int = 0) -> None:
        self.village = Village(8)
        self.readers = {peer: Reader() for peer in range(8)}
        for peer, reader in self.readers.items():
            self.village.subscribe(peer, NAME, reader)
        self.village.run(5)
        self.old = self.village.root(NAME)
        self.writer, *others = [peer for peer in range(8) if peer != self.old]
        self.publisher = self.village.publisher(self.writer, NAME)
        self.publish(2)
        for peer in others[:slow]:
            self.readers[peer].room_bytes = 0

    def publish(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.02)):
            self.village.publish(self.writer, self.publisher, b"%06d" % self.publisher.next)
            self.village.run(0.02)

    def arrive(self) -> None:
        """A peer comes that is closer to the topic than any."""
        machine = self.village.world.add(from_number(number(TOPIC)))
        self.village.world.start(machine)
        self.publish(4)
        assert self.village.root(NAME) == machine.number

    def settle(self) -> None:
        """All that was published comes to every reader, once and in order, and is stable."""
        for peer, reader in self.readers.items():
            reader.room_bytes = 1 << 20
            for subscription in self.village.peers[peer].topics.subscribing.all():
                self.village.act(peer, lambda p, s=subscription: p.drained(s))
        self.village.run(45)
        assert self.publisher.stable == self.publisher.next
        for reader in self.readers.values():
            assert reader.payloads == [b"%06d" % n for n in range(self.publisher.next)]
            assert reader.gone == []

    def repeated(self, where: str) -> int:
        records = [record for _, _, record in self.village.world.journal.records]
        return sum(record.count for record in records if isinstance(record, Repeated) and record.where == where)

    def transfers(self) -> list[str]:
        records = [record for _, _, record in self.village.world.journal.records]
        return [record.how for record in records if isinstance(record, BecameRoot)][1:]


def test_admitted_events_keep_their_positions_when_the_topic_is_transferred() -> None:
    busy = Busy()
    busy.arrive()
    busy.settle()
    assert busy.transfers() == ["transferred"]
    assert busy.repeated("edge") == 0


def test_what_a_leaving_root_admitted_keeps_its_position() -> None:
    busy = Busy()
    del busy.readers[busy.old]
    busy.village.act(busy.old, lambda peer: peer.leave())
    busy.publish(6)
    busy.settle()
    assert busy.transfers() == ["transferred"]
    assert busy.repeated("edge") == 0


def test_what_a_lease_lags_behind_with_is_admitted_again_by_the_root_that_takes_over() -> None:
    """That root cannot know whether its last copies died with the old one: the publisher still has them."""
    busy = Busy(slow=1)
    lagging = busy.publisher.next
    busy.arrive()
    assert busy.publisher.stable < lagging + 10
    busy.settle()
    assert busy.repeated("edge") > 0


def test_events_that_only_the_old_root_had_are_sent_again_after_a_transfer() -> None:
    """Were the admitted frontier moved and not the stable one, nobody would admit these again, and all were lost."""
    busy = Busy()
    machines = {busy.old, busy.writer}
    busy.village.world.cut(lambda a, b: a == busy.old and b != busy.writer)
    for _ in range(5):
        busy.village.publish(busy.writer, busy.publisher, b"%06d" % busy.publisher.next)
        busy.village.run(0.05)
    assert busy.publisher.admitted == busy.publisher.next > busy.publisher.stable
    assert [len(r.payloads) < busy.publisher.next for p, r in busy.readers.items() if p not in machines] == [True] * 6
    busy.village.act(busy.old, lambda peer: peer.topics.resigning.resign(peer.topics.trees[TOPIC]))
    busy.village.kill(busy.old)
    del busy.readers[busy.old]
    busy.settle()


def test_a_topic_that_most_replicas_call_new_holds_nothing_back_though_one_was_just_lost() -> None:
    village = Village(6)
    village.run(10)
    village.kill(by_distance(village)[0])
    village.run(10)
    publisher = village.publisher(village.alive()[0], NAME)
    village.publish(village.alive()[0], publisher, b"event")
    village.run(1)
    assert (publisher.admitted, publisher.stable) == (1, 1)


def test_a_topic_that_just_lost_most_replicas_may_have_been_in_use() -> None:
    village = Village(12)
    village.run(10)
    for peer in by_distance(village)[:3]:
        village.kill(peer)
    village.run(10)
    publisher = village.publisher(village.alive()[0], NAME)
    village.publish(village.alive()[0], publisher, b"event")
    village.run(10)
    assert (publisher.admitted, publisher.stable) == (1, 0)
    village.run(30)
    assert publisher.stable == 1


def test_after_a_long_partition_readers_learn_of_a_term_that_had_no_readers() -> None:
    """Its events were stable among nobody, its root transfers the topic and leaves it: yet its length is told."""
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
    village.world.heal(cut)
    village.run(80)
    assert reader.payloads == []
    assert sum(last - first for _, first, last, _ in reader.gone) == 3


def test_a_subscription_that_begins_beyond_a_cut_learns_of_later_events_of_the_other_side() -> None:
    """Over there nobody knows of its lease, and what is stable among the others is let go: then it is told."""
    village = Village(8)
    closest = by_distance(village)
    here, over_there = closest[1::2], closest[0::2]  # the root stays over there
    for peer in (here[0], over_there[1]):
        village.subscribe(peer, NAME, Reader())
    publisher = village.publisher(over_there[2], NAME)
    village.run(2)
    village.publish(over_there[2], publisher, b"before the cut")
    village.run(3)
    cut = village.world.cut(lambda a, b: (a in here) != (b in here))
    village.run(12)
    reader = Reader()
    village.subscribe(here[1], NAME, reader)
    village.run(3)
    assert reader.start is not None
    village.publish(over_there[2], publisher, b"a", b"b", b"c")
    village.run(45)  # over there leases of this side have ended
    assert publisher.stable == 4
    village.world.heal(cut)
    village.run(75)  # its publisher says nothing more, and might have had to send them again
    assert reader.payloads == []
    assert [gone[1:] for gone in reader.gone] == [(1, 4, "unavailable")]
    assert reader.gone[0][0] < reader.start.term


def test_the_last_copy_is_found_in_a_peer_that_was_handed_the_topic_by_mistake() -> None:
    village = Village(6)
    reader = Reader()
    village.subscribe(by_distance(village)[1], NAME, reader)
    village.run(5)
    by_mistake = by_distance(village)[-1]
    assert village.tree(by_mistake, NAME) is None
    term, gone = Term(7, bytes(16)), village.world.machines[by_distance(village)[2]].contact
    block = Block.seal(bytes(16), 0, [b"last copy"], time_ns=0)
    bundle = Bundle(Envelope(TOPIC, Kind.REPAIR, term), (block,))
    village.act(by_mistake, lambda peer: peer.message(gone, TransferLeadership(described(NAME), term, 1, 0)))
    village.act(by_mistake, lambda peer: peer.table.move(peer.table.flows[TOPIC], bundle))
    village.run(20)
    assert reader.payloads == [b"last copy"]
    village.run(80)
    assert village.tree(by_mistake, NAME) is None, "it stays no longer than others may lack it"


@pytest.mark.parametrize("another_term", [True, False])
def test_a_child_in_two_terms_keeps_its_lease_in_the_one_it_does_not_follow(another_term: bool) -> None:
    """Else the root there calls stable what nobody below this child has."""
    village = Village(6)
    child, stranger = by_distance(village)[2], by_distance(village)[3]
    village.subscribe(child, NAME, Reader())
    village.run(5)
    tree = village.tree(child, NAME)
    assert tree is not None
    term = Term(tree.term.counter - 1, tree.term.node) if another_term else tree.term
    sent: list[object] = []
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    accepted = Accepted(TOPIC, term, 0, [], [])
    village.act(child, lambda peer: peer.message(village.world.machines[stranger].contact, accepted))
    number = village.peers[child].topics.membership.moves.of(TOPIC)
    word = Leave(TOPIC, moved=another_term, number=number, declined=not another_term)
    assert [message for message in sent if isinstance(message, Leave)] == [word]


def test_a_subscriber_learns_what_it_missed_in_an_old_term_that_is_discarded() -> None:
    village = Village(4)
    reader = Reader()
    peer = by_distance(village)[1]
    village.subscribe(peer, NAME, reader)
    village.run(5)
    tree = village.tree(peer, NAME)
    assert tree is not None
    first = tree.term
    for counter in range(first.counter + 1, first.counter + 2 + TERMS_KEPT_MAX):
        village.act(peer, lambda p, c=counter: p.topics.terms.enter(tree, Term(c, bytes(16)), 0))
    village.act(peer, lambda p: p.topics.terms.recall(tree, Term(first.counter, b"\xff" * 16), 5))
    village.run(3)
    assert len(tree.flow.past) <= TERMS_KEPT_MAX + 1
    assert [gone[:3] for gone in reader.gone] == [(Term(first.counter, b"\xff" * 16), 0, 5)]


def test_a_forwarder_that_leaves_and_comes_back_still_speaks_for_the_child_that_it_lost() -> None:
    """Else its parent takes its new word, or its leaving again, for that of all who were ever below it."""
    village = Village(6)
    root, forwarder, lost, other = by_distance(village)[:4]
    village.subscribe(root, NAME, Reader())
    village.run(2)
    publisher = village.publisher(root, NAME)
    village.kill(lost, silently=True)  # as if it had just joined
    for child in (lost, other):  # the other wants nothing, and says so
        join = Join(TOPIC, village.world.machines[child].contact, Have(NO_TERM, 0), b"", described(NAME))
        village.act(forwarder, lambda peer, j=join: peer.topics.joins.adopt(j))
        village.run(8)
        assert village.tree(forwarder, NAME) is None
        above = village.tree(root, NAME)
        assert above is not None
        assert village.world.machines[forwarder].node_id in above.leases.orphaned
    village.publish(root, publisher, b"event")
    village.run(10)
    assert publisher.stable == 0
    village.run(30)
    assert publisher.stable == 1


def test_what_a_child_covers_is_not_more_because_its_join_comes_twice() -> None:
    """What it has itself says nothing about the peers below it."""
    village = Village(6)
    root, child = by_distance(village)[0], by_distance(village)[2]
    village.subscribe(child, NAME, Reader())
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    contact = village.world.machines[child].contact
    tree.leases.children[contact.node_id].acknowledged = 3
    village.act(root, lambda peer: peer.topics.links.lost(contact))
    assert not tree.leases.children
    again = [
        village.act(root, lambda peer: peer.topics.children.enter(tree, contact, 7).acknowledged) for _ in range(2)
    ]
    assert again == [3, 3]


def test_a_report_about_a_later_term_says_nothing_about_this_one() -> None:
    village = Village(6)
    root, child = by_distance(village)[0], by_distance(village)[2]
    village.subscribe(child, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.publish(root, publisher, *[b"event"] * 4)
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert acknowledged_position(tree, village.world.now) == 4
    entry = tree.leases.children[village.world.machines[child].node_id]
    entry.acknowledged_term = Term(tree.term.counter + 1, tree.term.node)
    assert acknowledged_position(tree, village.world.now) == 0


def test_a_newcomer_is_named_once_it_has_spoken_for_those_below_it() -> None:
    village = Village(6)
    above, newcomer = by_distance(village)[1:3]
    village.subscribe(above, NAME, Reader())
    village.run(5)
    tree, contact = village.tree(above, NAME), village.world.machines[newcomer].contact
    assert tree is not None
    join = Join(TOPIC, contact, Have(tree.term, 5), b"", described(NAME), moved=True)
    village.act(above, lambda peer: peer.topics.joins.adopt(join))
    assert child_report(tree, b"", village.world.now).newcomers == (), "what it has itself may be more than they have"
    report = ChildReport(tree.term, 2, tree.term)
    village.act(above, lambda peer: peer.topics.links.changed(contact, TOPIC, encode(report)))
    assert child_report(tree, b"", village.world.now).newcomers == (contact.node_id,)


def test_the_lease_of_a_lost_child_is_counted_from_its_loss() -> None:
    village = Village(6)
    root, child = by_distance(village)[0], by_distance(village)[2]
    village.subscribe(child, NAME, Reader())
    village.run(25)
    tree = village.tree(root, NAME)
    assert tree is not None
    village.act(root, lambda peer: peer.topics.links.lost(village.world.machines[child].contact))
    assert [lease.until for lease in tree.leases.orphaned.values()] == [village.peers[root].host.now() + 30]


def test_a_subscription_begins_in_every_term_where_its_parent_knows_that_to_have_gone() -> None:
    village = Village(4)
    peer, parent = by_distance(village)[2], village.world.machines[by_distance(village)[1]].contact
    reader, past = Reader(), Term(5, bytes(16))
    village.subscribe(peer, NAME, reader)
    accepted = Accepted(TOPIC, Term(9, bytes(16)), 3, (parent.node_id,), (), None, ((past, 7, None),))
    village.act(peer, lambda it: it.message(parent, accepted))
    assert reader.start == (Term(9, bytes(16)), 3)
    tree = village.tree(peer, NAME)
    assert tree is not None
    block = Block.seal(bytes(16), 0, [b"6", b"7", b"8"], time_ns=0)
    repair = Bundle(Envelope(TOPIC, Kind.REPAIR, past, 6), (block,))
    village.act(peer, lambda it: it.table.move(tree.flow, repair))
    assert reader.payloads == [b"7", b"8"]


def test_bundles_rejected_during_a_transfer_return_their_credit() -> None:
    village = Village(4)
    root, writer = by_distance(village)[:2]
    publisher = village.publisher(writer, NAME)
    village.run(3)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    tree.root.closing = True
    village.publish(writer, publisher, b"event")
    village.run(0.5)
    host = village.world.machines[root].host
    assert host is not None
    assert list(tree.root.turned_away) == [publisher.id]
    assert not any(host.charged.values())


def test_a_leaving_root_names_the_peers_that_it_still_waits_for() -> None:
    """Those whom the root before named, and, as it goes, those whom a forwarder named that left."""
    village = Village(6)
    root, forwarder, first, second = by_distance(village)[:4]
    village.subscribe(forwarder, NAME, Reader())
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    nodes = {peer: village.world.machines[peer].node_id for peer in (root, first, second)}
    tree.root.awaited = {nodes[first]: 0}
    left = Leave(TOPIC, moved=True, leases=(nodes[second],))
    village.act(root, lambda peer: peer.message(village.world.machines[forwarder].contact, left))
    sent: list[object] = []
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    village.act(root, lambda peer: peer.leave(within_s=0.0))
    (message,) = [message for message in sent if isinstance(message, TransferLeadership)]
    assert message.leases == (nodes[first], nodes[root])
    (word,) = [message for message in sent if isinstance(message, Farewell)]
    assert word.leases == (nodes[second],)


def test_a_peer_that_passes_a_topic_on_names_itself_to_the_next_root() -> None:
    """Who handed it over did not name this peer, because that was to be root. Now it does, and so is believed."""
    village = Village(6)
    between, before = by_distance(village)[1:3]
    between_contact = village.world.machines[between].contact
    village.subscribe(between, NAME, Reader())
    sent: list[object] = []
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    old_root, named = village.world.machines[before].contact, (b"n" * 16, village.world.machines[between].node_id)
    last_words = TransferLeadership(described(NAME), Term(3, old_root.node_id), 1, 1, leases=named)
    village.act(before, lambda peer: peer.topics.telling.tell(between_contact, last_words))
    village.run(0.1)
    village.act(between, lambda peer: peer.topics.offers.leaf_set_changed())
    village.run(0.1)
    told, passed_on, told_again = [message for message in sent if isinstance(message, TransferLeadership)]
    assert (told.leases, passed_on.leases, told_again.leases) == (named[:1], (), named)


def test_a_peer_that_finds_itself_above_its_parent_leaves_it() -> None:
    village = Village(4)
    root, child = by_distance(village)[0], by_distance(village)[2]
    village.subscribe(child, NAME, Reader())
    village.run(3)
    tree, parent = village.tree(child, NAME), village.world.machines[root].contact
    assert tree is not None
    assert tree.parent == parent
    me = village.world.machines[child].node_id
    report = ParentReport(tree.term, 0, 0, (b"r" * 16, me, parent.node_id), ())
    village.act(child, lambda peer: peer.topics.links.changed(parent, TOPIC, encode(report)))
    assert tree.parent is None
    village.run(3)
    assert tree.attached


def test_events_that_only_the_last_root_had_are_lost_though_the_next_one_was_its_child() -> None:
    village = Village(6, seed=1)
    first, second = by_distance(village)[:2]
    reader = Reader()
    village.subscribe(second, NAME, reader)
    village.run(3)
    publisher = village.publisher(first, NAME)
    village.run(2)
    village.publish(first, publisher, b"0")
    village.run(3)
    tree, contact = village.tree(first, NAME), village.world.machines[first].contact
    assert tree is not None
    last_words = TransferLeadership(tree.descriptor, tree.term, 5, 1, tree.term, 0.0)
    village.kill(first)  # with it goes the publisher of four more events
    village.act(second, lambda peer: peer.message(contact, last_words))
    village.run(150)
    assert reader.payloads == [b"0"]
    assert [gone[1:] for gone in reader.gone] == [(1, 5, "unavailable")]


def test_a_term_that_came_went_and_was_forgotten_meanwhile_is_reported() -> None:
    village = Village(8)
    first, second, *_, other, away, writer = by_distance(village)[:7]
    reader = Reader()
    village.subscribe(away, NAME, reader)
    village.subscribe(other, NAME, Reader())
    village.run(3)
    publisher = village.publisher(writer, NAME)
    village.run(2)
    village.publish(writer, publisher, b"first")
    village.run(3)
    cut = village.world.cut(lambda a, b: (a == away) != (b == away))
    village.run(12)
    village.kill(first)
    village.run(10)
    village.publish(writer, publisher, b"a", b"b", b"c")
    village.run(40)
    assert publisher.stable == 4
    village.act(writer, lambda peer: peer.close_publisher(publisher))
    village.run(1)
    village.kill(second)
    village.run(90)  # the second term is forgotten
    village.world.heal(cut)
    village.run(150)
    assert reader.payloads == [b"first"]
    assert sum(last - first for _, first, last, _ in reader.gone) == 3


def test_a_pause_holds_though_the_last_one_that_was_waited_for_comes() -> None:
    village = Village(4)
    root, child, gone = by_distance(village)[:3]
    village.subscribe(child, NAME, Reader())
    village.run(3)
    tree, node = village.tree(root, NAME), village.world.machines[gone].node_id
    assert tree is not None
    assert tree.root is not None
    paused_roots, now = village.peers[root].topics.paused_roots, village.peers[root].host.now()
    tree.root.awaited, tree.root.awaited_until, tree.root.hold_until = {node: 0}, now - 1, now + 10
    paused_roots.hold(tree, now)
    tree.root.heard_from([Move(node, 0)])
    assert tree.root.held_until >= now + village.peers[root].topics.config.lease_s


@pytest.mark.parametrize("reaches_all", [True, False])
def test_a_pause_lasts_until_every_replica_confirms_that_no_term_followed(reaches_all: bool) -> None:
    village = Village(4)
    root, child = by_distance(village)[:2]
    village.subscribe(child, NAME, Reader())
    publisher = village.publisher(root, NAME)
    village.run(3)
    if not reaches_all:
        village.world.cut(lambda a, b: {a, b} == {root, by_distance(village)[2]})
        village.run(9)
    tree = village.tree(root, NAME)
    assert tree is not None
    village.act(root, lambda peer: peer.topics.paused_roots.hold(tree, peer.host.now()))
    village.publish(root, publisher, b"event")
    village.run(1)
    assert publisher.stable == (1 if reaches_all else 0)
    village.run(32)
    assert publisher.stable == 1


def rooted_with_a_child() -> tuple[Village, int, Tree]:
    """A topic with one subscriber, below the root: the village, the root and its tree."""
    village = Village(4)
    root, child = by_distance(village)[:2]
    village.subscribe(child, NAME, Reader())
    village.run(3)
    tree = village.tree(root, NAME)
    assert tree is not None
    return village, root, tree


def test_what_was_reported_to_a_child_is_forgotten_with_it() -> None:
    village, root, tree = rooted_with_a_child()
    (node,) = tree.leases.children
    child = next(machine.number for machine in village.world.machines if machine.node_id == node)
    streams = village.peers[root].topics.streams
    assert streams.mark(node) != UNTOLD
    village.kill(child, silently=True)
    village.run(14)
    assert streams.mark(node) == UNTOLD


def test_a_second_pause_does_not_end_by_what_replicas_answered_to_the_question_after_the_first() -> None:
    village, root, tree = rooted_with_a_child()
    assert tree.root is not None
    for _ in range(2):
        village.act(root, lambda peer: peer.topics.paused_roots.hold(tree, peer.host.now()))
        village.run(0.015)
    assert tree.root.paused_until > 0, "the first answers have come"
    assert tree.doubted
    village.run(0.01)
    assert tree.root.paused_until == 0
    assert not tree.doubted


def test_a_pause_does_not_end_by_what_replicas_say_unasked() -> None:
    village, root, tree = rooted_with_a_child()
    peer = village.peers[root]
    assert tree.root is not None
    peer.topics.paused_roots.hold(tree, peer.host.now())
    for machine in village.world.machines:
        if machine.number != root:
            peer.message(machine.contact, StateAnswer([TopicEntry(TOPIC, described(NAME), tree.term)]))
    assert tree.root.paused_until > 0


def test_a_paused_root_learns_of_the_next_term_from_its_replicas() -> None:
    village = Village(6)
    root, replica = by_distance(village)[:2]
    village.subscribe(replica, NAME, Reader())
    village.run(3)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    later = Term(tree.term.counter + 1, bytes(16))
    village.act(by_distance(village)[3], lambda peer: peer.topics.known.enter(TOPIC, later))
    village.act(root, lambda peer: peer.topics.paused_roots.hold(tree, peer.host.now()))
    village.run(2)
    assert tree.root.term > later


def test_a_restarted_forwarder_reports_for_no_peer_that_was_below_it() -> None:
    village = Village(6)
    root, forwarder, below = by_distance(village)[:3]
    for peer in (root, forwarder):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    tree, there = village.tree(root, NAME), village.tree(forwarder, NAME)
    assert tree is not None
    assert there is not None
    contacts = [machine.contact for machine in village.world.machines]
    village.act(forwarder, lambda peer: peer.topics.children.enter(there, contacts[below], 0))
    village.run(2)
    anew = Join(TOPIC, contacts[forwarder], None, b"", described(NAME))
    village.act(root, lambda peer: peer.topics.joins.adopt(anew))
    village.run(1)
    assert [list(lease.awaited) for lease in tree.leases.orphaned.values()] == [[UNKNOWN_PEER]]


def test_a_forwarder_with_full_buffers_lets_go_of_what_its_child_has_and_ends_no_lease() -> None:
    """Somebody below its child lacks the events, and another one is gone: the root keeps them until they are stable."""
    village = Village(6)
    root, forwarder, below, gone = by_distance(village)[:4]
    reader = Reader()
    subscription = village.subscribe(forwarder, NAME, reader)
    publisher = village.publisher(root, NAME)
    village.run(3)
    reader.room_bytes = 0
    for _ in range(20):
        village.publish(root, publisher, bytes(10_000))
    village.run(1)
    tree, contacts = village.tree(forwarder, NAME), [machine.contact for machine in village.world.machines]
    assert tree is not None

    def crowd(peer: Peer) -> Child:
        child = peer.topics.children.enter(tree, contacts[below], 0)
        child.note_report(ChildReport(tree.term, 0, tree.term, frontier=20))
        lease = Child(peer.host, contacts[gone], 0, tree.term, 0)
        tree.open_leases().orphan(lease, peer.host.now() + 30, (contacts[gone].node_id,))
        reader.room_bytes = 1 << 20
        peer.drained(subscription)
        peer.table.budget.limit_bytes = 50_000
        peer.topics.flow_control.cut()
        return child

    child = village.act(forwarder, crowd)
    assert village.peers[forwarder].table.budget.used_bytes <= 50_000
    assert child.cut is None
    assert list(tree.leases.orphaned) == [contacts[gone].node_id]
    assert acknowledged_position(tree, village.peers[forwarder].host.now()) == 0
    assert village.peers[root].table.budget.used_bytes >= 200_000


def test_what_a_lease_held_back_is_told_above_when_its_owner_speaks_as_a_child_again() -> None:
    village = Village(2)
    root, child = by_distance(village)
    village.subscribe(child, NAME, Reader())
    village.run(5)
    tree, reports = village.tree(root, NAME), village.peers[root].topics.schedule
    assert tree is not None
    node = village.world.machines[child].node_id
    entry = tree.leases.children[node]
    entry.spoken = NEVER
    tree.open_leases().orphan(entry, village.peers[root].host.now() + 30, [node])
    assert TOPIC not in reports.dirty
    entry.spoken = SINCE
    village.act(root, lambda peer: peer.topics.children.heard_from(tree, entry))
    assert not tree.leases.orphaned
    assert TOPIC in reports.dirty


def test_a_reader_is_told_of_what_a_publisher_discarded_beyond_a_cut_and_sent_to_no_root_on_this_side() -> None:
    """The reader's own root had as many events before it began, and they might have been these."""
    village = Village(6, config=Config(topics=TopicConfig(retain_bytes=3000)))
    root, *near, far = by_distance(village)
    reader, publishers = Reader(), [village.publisher(peer, NAME) for peer in (far, near[2])]
    village.subscribe(near[1], NAME, Reader())
    village.subscribe(far, NAME, Reader())
    village.publish(far, publishers[0], b"before")
    village.run(5)
    cut = village.world.cut(lambda a, b: (a in (root, far)) != (b in (root, far)))
    village.run(8)
    village.publish(near[2], publishers[1], *[b""] * 20)
    village.run(2)
    village.subscribe(near[1], NAME, reader)
    for _ in range(10):
        village.publish(far, publishers[0], bytes(1000))
        village.run(0.5)
    dropped = publishers[0].dropped.end
    assert dropped > 1
    village.kill(root)
    village.world.heal(cut)
    village.run(30)
    assert len(reader.payloads) == 11 - dropped
    assert [(loss.publisher, loss.first, loss.last, loss.why) for loss in reader.losses] == [
        (publishers[0].id, 1, dropped, "late")
    ]
