"""Subscribers that leave in good order just as a publisher waits for its events to be stable."""

import pytest
from msgspec.structs import replace

from quillcast.core import ids
from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import REPAIR, Envelope, Position, Term
from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.messages import Leave
from quillcast.protocol.topics.state.tree import Tree
from tests.ids import from_number
from tests.protocol.recording import PAUL, block
from tests.protocol.topics.test_terms import NAME as TENNIS
from tests.protocol.topics.test_terms import TOPIC, by_distance
from tests.protocol.topics.test_trees import from_one_to
from tests.protocol.topics.village import Reader, Village

NAME = "letters"
EARLIER = Term(1, bytes(16))


class Leaver(Reader):
    """Its process leaves a moment after it was given its first event."""

    def __init__(self, village: Village, number: int, after_s: float) -> None:
        super().__init__()
        self.village, self.number, self.after_s = village, number, after_s

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        if not self.payloads:
            self.village.world.at(self.village.world.now + self.after_s, self.leave, None)
        super().deliver(block, skip, stop, position, recovered)

    def leave(self, _: None) -> None:
        self.village.act(self.number, lambda peer: peer.leave())


@pytest.mark.parametrize(
    ("seed", "others", "leavers", "after_s"),
    [
        pytest.param(2, 1, 3, 0.0, id="a child left behind by one that left has left as well"),
        pytest.param(7, 1, 2, 0.003, id="... before the one that it was a child of says so"),
        pytest.param(16, 1, 5, 0.0, id="children are sent to a peer that handed the topic over long ago, and left"),
        pytest.param(14, 1, 5, 0.003, id="... and the root leaves, too: the next one is told"),
        pytest.param(43, 2, 5, 0.003, id="one that names leases below it names its own no more"),
    ],
)
def test_what_everybody_had_is_stable_soon_though_all_leave(
    seed: int, others: int, leavers: int, after_s: float
) -> None:
    village = Village(others, seed=seed)
    numbers = range(others, others + leavers)
    for number in numbers:
        village.add()
        village.subscribe(number, NAME, Leaver(village, number, after_s))
    village.run(2)
    village.add()
    village.run(0.5)
    writer = others + leavers
    publisher = village.publisher(writer, NAME)
    village.publish(writer, publisher, b"one")
    for _ in range(60):
        village.run(0.05)
        for number in numbers:
            if village.peers[number].left and village.world.machines[number].host is not None:
                village.kill(number)
    assert all(village.peers[number].left for number in numbers)
    assert publisher.stable == 1


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.02, 0.03, 0.06, 0.5])
def test_somebody_knows_what_a_topic_had_though_its_root_leaves_together_with_the_next_one(after_s: float) -> None:
    village = Village(3)
    root, successor, other = by_distance(village)
    village.subscribe(successor, TENNIS, Reader())
    village.run(3)
    publisher = village.publisher(root, TENNIS)
    village.run(1)
    village.publish(root, publisher, b"one")
    village.run(3)
    village.act(root, lambda peer: peer.leave())
    village.run(after_s)
    village.act(successor, lambda peer: peer.leave())
    for _ in range(40):
        village.run(0.05)
        for leaver in (root, successor):
            if village.peers[leaver].left and leaver in village.alive():
                village.kill(leaver)
    assert village.alive() == [other]
    tree = village.tree(other, TENNIS)
    if after_s < 0.05:  # nobody but the other was told
        assert tree is not None
        assert tree.root is not None
        assert tree.root.hold_until <= village.peers[other].host.now(), "the successor said that it leaves, too"
    reader = Reader()
    village.subscribe(other, TENNIS, reader, start="earliest")
    village.run(5)
    assert [loss.count for loss in reader.losses] == [1]


def give_last_copy(village: Village, number: int, tree: Tree) -> None:
    """Only this peer knows of an earlier term, and it has an event of that."""
    village.act(number, lambda peer: peer.topics.terms.recall(tree, EARLIER, 1))
    repair = Bundle(Envelope(tree.topic, REPAIR, EARLIER, 0), (block(PAUL, 0),))
    village.act(number, lambda peer: peer.table.move(tree.flow, repair))


def a_root_with_children(village: Village) -> int:
    for number in village.alive():
        village.subscribe(number, NAME, Reader())
    village.run(3)
    return village.root(NAME)


def child_with_the_last_copy(village: Village) -> tuple[int, Tree]:
    """A peer and its parent's tree: only the peer knows of an earlier term, and it has an event of that."""
    root = a_root_with_children(village)
    number = next(each for each in village.alive() if each != root)
    above, here = village.tree(root, NAME), village.tree(number, NAME)
    assert above is not None
    assert here is not None
    assert here.parent == village.world.machines[root].contact
    give_last_copy(village, number, here)
    return number, above


def test_the_last_copy_of_an_earlier_term_outlives_a_root_that_leaves() -> None:
    village = Village(3)
    leaver = a_root_with_children(village)
    here = village.tree(leaver, NAME)
    assert here is not None
    give_last_copy(village, leaver, here)
    village.act(leaver, lambda peer: peer.leave())
    village.run(3)
    assert village.peers[leaver].left
    village.kill(leaver)
    successor = village.tree(village.root(NAME), NAME)
    assert successor is not None
    assert successor.flow.past[EARLIER].kept() == [(0, 1)]


def test_the_last_copy_of_an_earlier_term_outlives_a_next_root_that_leaves_before_it_is_root() -> None:
    village = Village(6)
    for each in village.alive():
        village.subscribe(each, TENNIS, Reader())
    village.run(3)
    root, successor, *others = by_distance(village)
    here = village.tree(root, TENNIS)
    assert here is not None
    give_last_copy(village, root, here)
    for silent in others[-2:]:  # the next root waits for their answers
        village.kill(silent, silently=True)
    village.act(root, lambda peer: peer.leave())
    village.run(0.3)
    next_ = village.tree(successor, TENNIS)
    assert next_ is not None
    assert next_.root is None
    village.act(successor, lambda peer: peer.leave())
    for _ in range(300):
        village.run(0.05)
        for leaver in (root, successor):
            if village.peers[leaver].left and leaver in village.alive():
                village.kill(leaver)
    tree = village.tree(village.root(TENNIS), TENNIS)
    assert tree is not None
    assert tree.flow.past[EARLIER].kept() == [(0, 1)]


def test_a_topic_is_stable_at_once_though_the_peer_that_was_to_be_its_next_root_leaves() -> None:
    """The root does not leave: it gave the topic to a newcomer that is closer, and takes it back."""
    village = Village(4)
    for each in village.alive():
        village.subscribe(each, TENNIS, Reader())
    village.run(5)
    root, writer, *_ = by_distance(village)
    publisher = village.publisher(writer, TENNIS)
    village.run(1)
    newcomer = village.world.add(from_number(ids.number(TOPIC)))
    village.world.start(newcomer)
    tree = village.tree(root, TENNIS)
    assert tree is not None
    while tree.root is not None:
        village.run(0.002)
    village.act(newcomer.number, lambda peer: peer.leave())
    village.run(0.1)
    assert village.peers[newcomer.number].left
    village.kill(newcomer.number)
    village.publish(writer, publisher, b"one")
    village.run(1)
    assert village.root(TENNIS) == root
    assert publisher.stable == 1


def test_forwarders_that_leave_one_after_another_do_not_prolong_the_lease_of_a_child_that_died() -> None:
    village = Village(5, config=replace(Config(), topics=TopicConfig(children_per_topic_max=1)))
    for each in village.alive():
        village.subscribe(each, NAME, Reader())
        village.run(1)
    village.run(5)
    line = [village.root(NAME)]
    while (tree := village.tree(line[-1], NAME)) is not None and tree.leases.children:
        (below,) = tree.leases.children
        line.append(next(each.number for each in village.world.machines if each.node_id == below))
    assert len(line) == 5
    root, publisher = line[0], village.publisher(line[0], NAME)
    village.run(1)
    village.kill(line.pop(), silently=True)
    village.publish(root, publisher, b"one")
    began = village.world.now
    for _ in range(2):
        village.run(10)
        leaver = line.pop()
        village.act(leaver, lambda peer: peer.leave())
        village.run(6)
        village.kill(leaver)
    lease_s = village.config.topics.lease_s
    village.run(began + lease_s - village.world.now)
    assert publisher.stable == 0
    village.run(6)  # until its loss was noticed, and all had heard of the lease's end
    assert publisher.stable == 1


def test_the_last_copy_of_an_earlier_term_outlives_a_peer_that_leaves() -> None:
    village = Village(3)
    leaver, above = child_with_the_last_copy(village)
    village.act(leaver, lambda peer: peer.leave())
    assert EARLIER not in above.flow.past
    village.run(3)
    assert village.peers[leaver].left, "it need not stay for as long as it may"
    assert above.flow.past[EARLIER].kept() == [(0, 1)]


def test_a_peer_that_leaves_says_so_in_the_end_though_its_parent_has_not_all_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    village = Village(3)
    leaver, above = child_with_the_last_copy(village)
    monkeypatch.setattr(village.peers[village.root(NAME)].recovery, "look_soon", lambda topic: None)
    village.act(leaver, lambda peer: peer.leave(1.0))
    village.run(1.5)
    assert village.peers[leaver].left
    assert village.world.machines[leaver].node_id not in {**above.leases.children, **above.leases.orphaned}


@pytest.mark.parametrize("told", [True, False])
def test_a_root_that_leaves_goes_once_its_last_child_has_ended_without_a_word(*, told: bool) -> None:
    """The child that was sent away ends its process, and its word is lost: nothing else happens in this tree."""
    village = Village(4)
    root, *_, child = by_distance(village)
    village.subscribe(child, TENNIS, Reader())
    village.run(5)
    publisher = village.publisher(root, TENNIS)
    village.publish(root, publisher, b"event")
    village.run(1)
    village.world.cut(from_one_to(child, root))
    village.act(root, lambda peer: peer.leave())
    village.run(0.3)
    assert list(village.peers[root].topics.trees[TOPIC].leases.children)
    village.kill(child, silently=not told)
    if told:
        village.tell_of_death(child)
    else:
        contact = village.world.machines[child].contact
        village.act(root, lambda peer: peer.topics.links.lost(contact))
    village.run(0.5)  # before the next round of housekeeping
    assert village.peers[root].left, "it need not stay for as long as it may"


def test_a_lease_below_a_peer_that_forgot_everything_continues() -> None:
    """A process that was killed and came back as the same peer says it is no child: it cannot speak for its orphans."""
    village = Village(8, seed=3)
    readers = {number: Reader() for number in range(2, 8)}
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    village.run(5)
    root = village.root(NAME)
    tree = village.tree(root, NAME)
    assert tree is not None
    child = next(iter(tree.leases.children.values()))
    village.peers[root].topics.children.remove(tree, child.contact.node_id, "moved", lease=True)
    kept = {node: list(lease.awaited) for node, lease in tree.leases.orphaned.items()}
    village.peers[root].topics.children.left(child.contact, Leave(tree.topic))
    assert {node: list(lease.awaited) for node, lease in tree.leases.orphaned.items()} == kept != {}
