"""Questions about a topic: they tell how far each subscription is, name who is silent, and change nothing."""

from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.event_places import readmitted
from quillcast.protocol.forwarding.subscriber import Unread
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.query_messages import Branch
from quillcast.protocol.topics.stability import lag
from tests.protocol.topics.test_terms import by_distance
from tests.protocol.topics.village import Reader, Village

NAME = "sport/tennis"
DEEP = Config(overlay=OverlayConfig(digit_bits=1, leaf_set_size=4))  # few peers, and yet trees with forwarders


class Hoarder(Reader):
    """A subscriber whose application took nothing of what it was given."""

    name = "archive"

    def unread(self) -> Unread:
        return Unread(events=len(self.payloads), size_bytes=sum(map(len, self.payloads)), oldest_ns=0, idle_s=7.0)


def survey(village: Village, number: int, name: str = NAME) -> dict[bytes, Branch]:
    """The answers to a peer's query."""
    asked = village.act(number, lambda peer: peer.topics.inspection.survey(name))
    village.run(2)
    return village.peers[number].topics.inspection.surveys[asked]


def topics_known(village: Village) -> list[set[bytes]]:
    """What each peer has of any topic."""
    layers = [village.peers[number].topics for number in village.alive()]
    return [{*topics.trees, *topics.descriptors, *topics.root_finder.roots} for topics in layers]


def test_events_of_a_past_term_that_are_neither_found_nor_given_up_are_as_old_as_the_end_of_that_term() -> None:
    village = Village(3)
    for peer in range(3):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    village.kill(village.root(NAME))
    village.run(20)
    survivor = village.alive()[0]
    tree, peer = village.tree(survivor, NAME), village.peers[survivor]
    assert tree is not None
    assert [reader.behind_s for reader in lag.readers(tree, peer.host, village.config.topics.past_terms_s)] == [0.0]
    (past,) = tree.flow.past.values()
    past.end += 3  # somebody says so
    (reader,) = lag.readers(tree, peer.host, village.config.topics.past_terms_s)
    assert reader.owed == 3
    assert 10.0 < reader.behind_s < 25.0


def counts(village: Village) -> list[tuple[int, int]]:
    """What each peer in the tree knows of the number of events."""
    trees = [tree for number in village.alive() if (tree := village.tree(number, NAME)) is not None]
    return [(lag.events(tree), readmitted(tree.flow)) for tree in trees]


def test_an_event_that_another_root_admitted_again_is_counted_once() -> None:
    village = Village(6)
    for peer in range(6):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    root = village.root(NAME)
    sender = next(number for number in village.alive() if number != root)
    publisher = village.publisher(sender, NAME)
    village.publish(sender, publisher, *[b"stable"] * 4)
    village.run(2)
    village.publish(sender, publisher, *[b"before the crash"] * 5)
    village.run(0.025)  # all have them, and none is known to be stable
    village.kill(root)
    village.publish(sender, publisher, *[b"after it"] * 3)
    village.run(5)
    assert {events for events, _ in counts(village)} == {12}
    assert any(again for _, again in counts(village))
    newcomer = len(village.peers)
    village.add()
    village.subscribe(newcomer, NAME, Reader())
    village.run(60)  # the term before is forgotten
    assert lag.events_together(counts(village)) == 12


def test_a_parent_knows_how_far_a_silent_child_is_behind() -> None:
    village = Village(3)
    for peer in range(3):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    root = village.root(NAME)
    tree, host = village.tree(root, NAME), village.peers[root].host
    assert tree is not None
    silent, sender = (number for number in village.alive() if number != root)
    village.kill(silent, silently=True)
    publisher = village.publisher(sender, NAME)
    village.publish(sender, publisher, b"one", b"two")
    for seconds, lost in ((2.0, False), (10.0, True)):
        village.run(seconds)
        behind = [lease for lease in lag.leases(tree, host) if lag.unacknowledged(lease, tree.term, tree.frontier)]
        assert [(lease.node, lease.lost) for lease in behind] == [
            (village.world.machines[silent].contact.node_id, lost)
        ]
        assert lag.unacknowledged(behind[0], tree.term, tree.frontier) == 2
        assert behind[0].behind_s > seconds / 2  # clocks differ


def test_a_query_about_an_unknown_topic_does_not_create_it() -> None:
    village = Village(8)
    village.run(5)
    for number in village.alive():
        [branch] = survey(village, number, "nosuch").values()
        assert (branch.root, branch.parent, branch.descriptor, branch.children) == (False, b"", None, [])
    village.run(5)
    assert topics_known(village) == [set()] * 8


def test_a_query_about_an_unused_topic_returns_its_settings_and_makes_no_root() -> None:
    village = Village(8)
    reader = Reader()
    subscription = village.subscribe(3, NAME, reader)
    village.run(5)
    village.act(3, lambda peer: peer.unsubscribe(subscription))
    village.kill(village.root(NAME))
    village.run(60)
    before = topics_known(village)
    branches = survey(village, village.alive()[0])
    assert not any(branch.root for branch in branches.values())
    assert [branch.descriptor.name for branch in branches.values() if branch.descriptor is not None] == [NAME]
    assert topics_known(village) == before


def test_the_walk_tells_how_far_every_subscription_is_from_wherever_it_is_asked() -> None:
    village = Village(12, config=DEEP)
    readers = {number: Reader() for number in range(4, 12)}
    readers[6] = Hoarder()
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    village.run(10)
    publisher = village.publisher(4, NAME)
    village.run(1)
    village.publish(4, publisher, *[b"event"] * 5)
    village.run(3)
    for asker in (0, 4, village.root(NAME)):
        branches = survey(village, asker)
        [root_branch] = [branch for branch in branches.values() if branch.root]
        assert (root_branch.frontier, root_branch.events) == (5, 5)
        assert root_branch.descriptor is not None
        for number in readers:
            [found] = branches[village.world.machines[number].node_id].readers
            assert found.taken == 5
            assert (found.name, found.waiting, found.waiting_bytes) == (
                ("archive", 5, 25) if number == 6 else ("", 0, 0)
            )
            assert found.stalled_s == (7.0 if number == 6 else 0.0)


def test_a_subscriber_without_room_is_behind_by_what_it_did_not_take() -> None:
    village = Village(4)
    stuck, free = Reader(room_bytes=0), Reader()
    village.subscribe(2, NAME, stuck)
    village.subscribe(2, NAME, free)
    village.run(5)
    publisher = village.publisher(1, NAME)
    village.run(1)
    for _ in range(7):
        village.publish(1, publisher, b"event")
    village.run(3)
    first, second = survey(village, 0)[village.world.machines[2].node_id].readers
    assert (first.taken, first.number, second.taken, second.number) == (0, 1, 7, 2)
    assert first.behind_s > 1  # by clocks that differ
    assert second.behind_s == 0


def test_a_parent_reports_for_a_silent_child_and_names_a_lost_one_for_its_lease() -> None:
    village = Village(6)
    for number in range(2, 6):
        village.subscribe(number, NAME, Reader())
    village.run(10)
    publisher = village.publisher(0, NAME)
    village.run(1)
    village.publish(0, publisher, b"first")
    village.run(3)
    root = village.root(NAME)
    silent = next(number for number in range(2, 6) if number != root)
    node, host = village.world.machines[silent].node_id, village.world.machines[silent].host
    assert host is not None
    host.pause()
    village.publish(0, publisher, b"second", b"third")
    [root_branch] = [branch for branch in survey(village, root).values() if branch.root]
    assert [(lease.acknowledged, lease.lost) for lease in root_branch.leases if lease.node == node] == [(1, False)]
    village.run(15)
    [root_branch] = [branch for branch in survey(village, root).values() if branch.root]
    assert [(lease.acknowledged, lease.lost) for lease in root_branch.leases if lease.node == node] == [(1, True)]


def test_a_root_that_is_remembered_and_gone_passes_the_question_on() -> None:
    village = Village(8)
    village.subscribe(2, NAME, Reader())
    village.run(5)
    village.publisher(0, NAME)
    village.run(2)
    elsewhere = next(number for number in village.alive() if village.tree(number, NAME) is None and number)
    topic = village.peers[0].topics.known.describe(NAME).topic
    village.peers[0].topics.root_finder.watch(topic, village.world.machines[elsewhere].contact)
    assert any(branch.root for branch in survey(village, 0).values())


def test_whose_answer_a_peer_waits_for_until_it_takes_part_in_a_topic_is_known() -> None:
    village = Village(3)
    contacts = [machine.contact for machine in village.world.machines]
    root, other, dead = by_distance(village)
    assert village.peers[other].awaited(NAME) == [contacts[root]], "the next one on the way to the root"
    village.kill(dead, silently=True)
    village.subscribe(root, NAME, Reader())
    village.run(0.5)
    assert village.peers[root].awaited(NAME) == [contacts[dead]], "who keeps the topic's state beside it"
    village.kill(other, silently=True)
    newcomer = village.world.add()
    village.world.start(newcomer)
    peer = village.peers[newcomer.number]
    village.act(newcomer.number, lambda peer: peer.join([contacts[dead]]))
    assert peer.awaited(NAME) == [contacts[dead]], "through whom it joins"
