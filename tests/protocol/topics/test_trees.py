"""Trees: joining, leaving, repair, bounds, and roots that move; on whole peers in a simulated network."""

from typing import Any

from quillcast.core.errors import TopicExists, UnknownTopic
from quillcast.core.host import Host
from quillcast.core.ids import number, ring_distance
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Attached, BecameRoot, Mark, ResignedRoot
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.messages import Join, Leave, Rejoin
from quillcast.sim.network import Cut
from tests.ids import from_number
from tests.protocol.recording import is_stable
from tests.protocol.topics.village import Reader, Village

NARROW = Config(topics=TopicConfig(children_per_topic_max=1))
NAME = "sport/tennis"
DEEP = Config(overlay=OverlayConfig(digit_bits=1, leaf_set_size=4))  # few peers, and yet trees with forwarders


def deep_name(village: Village) -> str:
    """A topic whose routes meet before its root."""
    for index in range(100):
        name = f"deep/{index}"
        hops = [village.peers[peer].overlay.next_hop(described(name).topic) for peer in village.alive()]
        if len({hop.node_id for hop in hops if hop is not None}) > 3:
            return name
    raise AssertionError("every tree is a star")


def records(village: Village, kind: type) -> list[tuple[float, int, object]]:
    return [entry for entry in village.world.journal.records if isinstance(entry[2], kind)]


def test_subscribers_and_root_form_one_tree() -> None:
    village = Village(16, config=DEEP)
    for peer in range(3, 13):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    root = village.root(NAME)
    for peer in village.alive():
        tree = village.tree(peer, NAME)
        if tree is None or peer == root:
            continue
        assert tree.parent is not None
        parent = next(m.number for m in village.world.machines if m.node_id == tree.parent.node_id)
        above = village.tree(parent, NAME)
        assert above is not None
        assert village.world.machines[peer].node_id in above.leases.children
        assert tree.path[0] == village.world.machines[root].node_id


def test_an_unsubscribe_before_the_parent_is_known_leaves_nothing_behind() -> None:
    """Scribe, section 3.1: the unsubscription is delayed until the parent is known."""
    village = Village(8)
    subscription = village.subscribe(3, NAME, Reader())
    village.act(3, lambda peer: peer.unsubscribe(subscription))
    village.run(8)
    root = village.root(NAME)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert not tree.leases.children
    assert root == 3 or village.tree(3, NAME) is None


def test_the_last_unsubscribe_takes_the_whole_branch_down() -> None:
    village = Village(16, config=DEEP)
    subscriptions = {peer: village.subscribe(peer, NAME, Reader()) for peer in range(1, 15)}
    village.run(5)
    for peer, subscription in subscriptions.items():
        village.act(peer, lambda p, s=subscription: p.unsubscribe(s))
    village.run(5)
    root = village.root(NAME)
    assert [peer for peer in village.alive() if village.tree(peer, NAME) is not None] == [root]


def test_no_peer_has_more_children_than_the_bound() -> None:
    config = Config(topics=TopicConfig(children_per_topic_max=3))
    village = Village(20, config=config)
    readers = {peer: Reader() for peer in range(20)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(30)
    publisher = village.publisher(0, NAME)
    village.run(1)
    village.publish(0, publisher, b"to all")
    village.run(3)
    assert all(reader.payloads == [b"to all"] for reader in readers.values())
    trees = [village.tree(peer, NAME) for peer in village.alive()]
    assert max(len(tree.leases.children) for tree in trees if tree is not None) == 3
    assert village.marks["shed"] > 0


def test_a_lost_link_costs_one_message_for_all_its_topics() -> None:
    """docs/design.md, section 4: fallbacks are known beforehand, and a rejoin names all topics of the lost link."""
    village = Village(16, config=DEEP)
    names = [f"many/{index}" for index in range(12)]
    leaf = 5
    for name in names:
        village.subscribe(leaf, name, Reader())
    village.run(10)
    parents: dict[bytes, list[str]] = {}
    for name in names:
        tree = village.tree(leaf, name)
        if tree is not None and tree.parent is not None:
            parents.setdefault(tree.parent.node_id, []).append(name)
    busiest = max(parents, key=lambda node: (len(parents[node]), node))
    assert len(parents[busiest]) > 2
    sent: list[object] = []
    host = village.world.machines[leaf].host
    assert host is not None
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    victim = next(m.number for m in village.world.machines if m.node_id == busiest)
    village.kill(victim)
    village.run(5)
    rejoins = [message for message in sent if isinstance(message, Rejoin) and message.child == host.contact]
    named = [join.topic for message in rejoins if message.lost == busiest for join in message.joins]
    assert len(named) == len(parents[busiest])
    assert len(rejoins) < len(named)
    for name in names:
        tree = village.tree(leaf, name)
        assert tree is not None and tree.attached  # noqa: PT018


def test_a_repair_takes_one_message_in_the_common_case() -> None:
    village = Village(16, config=DEEP)
    name = deep_name(village)
    for peer in range(16):
        village.subscribe(peer, name, Reader())
    village.run(10)
    inner = [p for p in village.alive() if (t := village.tree(p, name)) and t.parent is not None and t.leases.children]
    victim = inner[0]
    orphans = len(village.tree(victim, name).leases.children)  # type: ignore[union-attr]
    before = len(records(village, Attached))
    village.kill(victim)
    village.run(5)
    again = [record for _, _, record in records(village, Attached)[before:]]
    assert [record.how for record in again].count("fallback") == orphans  # type: ignore[attr-defined]


def test_a_closer_peer_that_joins_becomes_root_and_nothing_is_lost() -> None:
    village = Village(8)
    readers = {peer: Reader() for peer in range(8)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(3)
    publisher = village.publisher(1, NAME)
    village.run(1)
    old = village.root(NAME)
    for index in range(40):
        village.publish(1, publisher, b"%d" % index)
        village.run(0.05)
        if index == 15:
            village.add(from_number(number(described(NAME).topic) + 1))
    village.run(20)
    assert village.root(NAME) == 8 != old
    assert all(reader.payloads == [b"%d" % index for index in range(40)] for reader in readers.values())
    assert [record.how for _, _, record in records(village, BecameRoot)] == ["created", "transferred"]  # type: ignore[attr-defined]


def test_a_topic_has_a_root_again_as_soon_as_a_closer_peer_is_part_of_the_ring() -> None:
    village = Village(8)
    for peer in range(8):
        village.subscribe(peer, NAME, Reader())
    village.run(3)
    village.add(from_number(number(described(NAME).topic) + 1))
    village.run(20)
    assert village.root(NAME) == 8
    (resigned_at, *_), (became_at, *_) = records(village, ResignedRoot)[-1], records(village, BecameRoot)[-1]
    assert became_at - resigned_at < 0.5, "it has not waited for an answer to a Join of its own"


def closest(village: Village) -> int:
    """The peer whose nodeId is next to the topic's."""
    topic, machines = described(NAME).topic, village.world.machines
    return min(village.alive(), key=lambda peer: ring_distance(machines[peer].node_id, topic))


def test_peers_that_wait_for_one_that_leaves_ask_again() -> None:
    village = Village(8)
    descriptor = described(NAME)
    village.run(3)
    forwarder, child = [peer for peer in range(8) if peer != closest(village)][:2]
    village.subscribe(child, NAME, Reader())
    join = Join(descriptor.topic, village.world.machines[child].contact, None, descriptor.digest, descriptor)

    def take_in_and_leave(peer: Peer) -> None:
        peer.topics.joins.adopt(join)
        assert list(peer.topics.trees[descriptor.topic].waiting) == [join.child.node_id]
        peer.topics.leaving.begin()
        peer.overlay.leave()

    village.kill(closest(village), silently=True)  # who would answer its own Join
    village.act(forwarder, take_in_and_leave)
    village.run(1.5)
    assert village.tree(forwarder, NAME) is None, "what nobody waits for any more is no reason to stay"
    village.run(20)
    assert village.tree(child, NAME).attached  # type: ignore[union-attr]


def test_two_roots_become_one_and_events_of_both_sides_unite() -> None:
    village = Village(10, seed=4)
    readers = {peer: Reader() for peer in range(10)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(3)
    publishers = {peer: village.publisher(peer, NAME) for peer in (0, 9)}
    village.run(1)
    cut = village.world.cut(lambda a, b: (a < 5) != (b < 5))
    village.run(12)
    roots = [p for p in village.alive() if (t := village.tree(p, NAME)) is not None and t.root is not None]
    assert len(roots) == 2
    for peer, publisher in publishers.items():
        village.publish(peer, publisher, b"from %d" % peer)
    village.run(5)
    village.world.heal(cut)
    village.run(60)
    village.root(NAME)
    assert all(sorted(reader.payloads) == [b"from 0", b"from 9"] for reader in readers.values())


def test_creating_a_topic_with_other_settings_is_refused_and_with_the_same_is_not() -> None:
    village = Village(6)
    answers: list[object] = []
    for settings in (Settings(), Settings(), Settings(delivery="best_effort")):
        village.act(2, lambda peer, s=settings: peer.create(NAME, s, answers.append))
        village.run(2)
    assert answers[0] == answers[1] == described(NAME, Settings())
    assert isinstance(answers[2], TopicExists)
    assert "delivery = reliable" in str(answers[2])


def test_where_first_use_creates_nothing_an_unknown_topic_is_an_error_and_a_created_one_is_not() -> None:
    config = Config(topics=TopicConfig(auto_create=False))
    village = Village(6, config=config)
    readers = {peer: Reader() for peer in range(6)}
    for peer, reader in readers.items():
        village.subscribe(peer, "nobody/made/this", reader)
    village.run(5)
    assert all(isinstance(reader.error, UnknownTopic) for reader in readers.values())
    village.act(1, lambda peer: peer.create(NAME, Settings(), lambda answer: None))
    village.run(2)
    reader = Reader()
    village.subscribe(4, NAME, reader)
    village.run(3)
    assert reader.error is None
    assert reader.start is not None


def test_a_topics_settings_outlive_a_creator_that_was_its_root_and_left() -> None:
    """As `quillcast topic create` does it: a throw-away peer, at times the closest, and nobody uses the topic yet."""
    village, settings = Village(1), Settings(event_bytes_max=10)
    topic = number(described(NAME).topic)
    creator = village.add(from_number(topic + 1)).number
    village.act(creator, lambda peer: peer.create(NAME, settings, lambda answer: None))
    village.run(2)
    assert village.root(NAME) == creator
    village.act(creator, lambda peer: peer.leave())
    village.run(10)
    newcomer = village.add(from_number(topic)).number
    reader = Reader()
    village.subscribe(newcomer, NAME, reader)
    village.run(10)
    assert village.root(NAME) == newcomer
    assert village.tree(newcomer, NAME).descriptor.settings == settings  # type: ignore[union-attr]


def test_heartbeats_do_not_grow_with_topics() -> None:
    """docs/design.md, decision 4: a peer in many topics sends no more heartbeats than a peer in one."""

    def messages_while_idle(topics: int) -> int:
        village = Village(6)
        for index in range(topics):
            for peer in range(6):
                village.subscribe(peer, f"idle/{index}", Reader())
        village.run(30)
        sent: list[object] = []
        encode = village.world.encode
        village.world.encode = lambda message: (sent.append(message), encode(message))[1]
        village.run(30)
        assert not [message for message in sent if isinstance(message, Join)]
        return len(sent)

    assert messages_while_idle(200) <= messages_while_idle(20) * 1.2


def test_a_leaving_root_transfers_its_topic_and_a_leaving_forwarder_sends_its_children_on() -> None:
    village = Village(16, config=DEEP)
    name = deep_name(village)
    readers = {peer: Reader() for peer in range(16)}
    for peer, reader in readers.items():
        village.subscribe(peer, name, reader)
    village.run(5)
    root = village.root(name)
    writer = next(peer for peer in village.alive() if peer != root and not village.tree(peer, name).leases.children)  # type: ignore[union-attr]
    publisher = village.publisher(writer, name)
    village.run(1)
    inner = next(p for p in village.alive() if p != root and village.tree(p, name).leases.children)  # type: ignore[union-attr]
    for index in range(60):
        village.publish(writer, publisher, b"%d" % index)
        village.run(0.1)
        if index in (10, 30):
            village.act((root, inner)[index == 30], lambda peer: peer.leave())
    village.run(20)
    assert village.peers[root].left
    assert village.peers[inner].left
    for peer, reader in readers.items():
        if peer not in (root, inner):
            assert reader.payloads == [b"%d" % index for index in range(60)]
    assert not [r for _, _, r in records(village, Mark) if r.name == "neighbour_lost"]  # type: ignore[attr-defined]


class Losing:
    """A host by which no Leave arrives."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def send(self, to: Contact, message: Message) -> None:
        if not isinstance(message, Leave):
            self.host.send(to, message)


def test_a_child_that_is_another_parents_and_whose_leave_was_lost_does_not_stay() -> None:
    village = Village(6)
    readers = range(4)
    for peer in readers:
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    root = village.root(NAME)
    child, other = [peer for peer in readers if peer != root][:2]
    joining = village.peers[child].topics.membership
    joining.host = Losing(joining.host)
    contact, tree = village.world.machines[child].contact, village.tree(other, NAME)
    assert tree is not None
    village.act(other, lambda peer: peer.topics.children.enter(tree, contact, 0))
    village.run(2)
    assert list(tree.leases.children) == [contact.node_id]
    village.run(10)
    assert not tree.leases.children
    assert village.marks["child_never_spoke"] == 1
    above = village.tree(child, NAME)
    assert above is not None
    assert above.parent == village.world.machines[root].contact


def test_a_peer_that_answers_a_join_late_keeps_no_lease_of_the_child_that_has_another_parent() -> None:
    """A Join that is sent twice, as in a busy process, is answered by two peers."""
    village = Village(6)
    readers = range(4)
    for peer in readers:
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    child, other = [peer for peer in readers if peer != village.root(NAME)][:2]
    contact, tree = village.world.machines[child].contact, village.tree(other, NAME)
    assert tree is not None
    village.act(other, lambda peer: peer.topics.children.enter(tree, contact, 0))
    village.run(0.5)
    assert not tree.leases.children
    publisher = village.publisher(0, NAME)
    village.publish(0, publisher, b"an event")
    village.run(1)
    assert is_stable(publisher, 0)


def test_a_child_that_leaves_and_comes_again_at_once_leaves_no_lease_behind() -> None:
    """Its Join may overtake the word by which it takes back what it claimed before."""
    village = Village(6)
    village.subscribe(0, NAME, Reader())
    village.run(5)
    root = village.root(NAME)
    child = next(peer for peer in range(1, 6) if peer != root)
    contact, tree = village.world.machines[child].contact, village.tree(root, NAME)
    assert tree is not None
    village.subscribe(child, NAME, Reader())
    village.run(5)
    join = Join(tree.topic, contact, None, tree.descriptor.digest)
    topics, streams = village.peers[root].topics, village.peers[root].streams
    told = streams.told(contact.node_id)
    village.act(root, lambda _: topics.children.left(contact, Leave(tree.topic)))
    village.act(root, lambda _: topics.joins.adopt(join))
    assert tree.topic not in told, "so that it is told of nothing when this is taken back"
    assert contact.node_id in tree.leases.children
    village.act(root, lambda _: topics.children.left(contact, Leave(tree.topic)))
    assert contact.node_id not in tree.leases.children
    assert not tree.leases.orphaned


def test_those_below_a_dead_forwarder_are_waited_for() -> None:
    """Losing a dead peer says nothing about those below it: they report themselves, or their leases end."""
    village = Village(16, config=DEEP)
    name = deep_name(village)
    readers = {peer: Reader() for peer in range(16)}
    for peer, reader in readers.items():
        village.subscribe(peer, name, reader)
    village.run(10)
    publisher = village.publisher(0, name)
    village.run(1)
    inner = [
        p for p in village.alive() if p and (t := village.tree(p, name)) and t.parent is not None and t.leases.children
    ]
    dead = village.world.machines[inner[0]]
    above = village.tree(inner[0], name)
    assert above is not None
    assert above.parent is not None
    parent = next(m.number for m in village.world.machines if m.contact == above.parent)
    tree = village.tree(parent, name)
    village.kill(inner[0], silently=True)
    village.publish(0, publisher, b"event")
    village.tell_of_death(inner[0])
    village.run(5)
    assert tree is not None
    assert list(tree.leases.orphaned) == [dead.node_id]
    assert publisher.stable == 0
    village.run(30)
    assert publisher.stable == 1
    assert all(reader.payloads == [b"event"] for peer, reader in readers.items() if peer != dead.number)


def test_a_parent_hears_of_the_first_child_before_that_has_an_answer() -> None:
    village = Village(3)
    village.subscribe(0, NAME, Reader())
    village.run(5)
    root = village.root(NAME)
    forwarder, below = (peer for peer in range(3) if peer != root)
    village.subscribe(forwarder, NAME, Reader())
    village.run(5)
    tree, contact = village.tree(root, NAME), village.world.machines[forwarder].contact
    assert tree is not None
    assert village.peers[root].topics.children.links.is_leaf(contact.node_id, tree.topic)
    sent: list[str] = []
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(type(message).__name__), encode(message))[1]
    join = Join(tree.topic, village.world.machines[below].contact, None, tree.descriptor.digest)
    village.act(forwarder, lambda peer: peer.topics.joins.adopt(join))
    assert sent[:2] == ["Changes", "Accepted"]
    village.run(0.05)
    assert not village.peers[root].topics.children.links.is_leaf(contact.node_id, tree.topic)


def from_one_to(a: int, b: int) -> Cut:
    """Nothing passes from one peer to another."""
    return lambda sender, receiver: (sender, receiver) == (a, b)


def parents(village: Village, *peers: int) -> list[int]:
    numbers = {machine.node_id: machine.number for machine in village.world.machines}
    trees = [village.tree(peer, NAME) for peer in peers]
    return [numbers[tree.parent.node_id] for tree in trees if tree is not None and tree.parent is not None]


def test_a_peer_that_cannot_reach_the_root_gets_all_events_through_another() -> None:
    village, readers = Village(6), {peer: Reader() for peer in range(6)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(5)
    root = village.root(NAME)
    child, writer = [peer for peer in range(6) if peer != root][:2]
    publisher = village.publisher(writer, NAME)
    village.world.cut(from_one_to(child, root))
    for count in range(45):
        village.publish(writer, publisher, b"%d" % count)
        village.run(1)
    village.run(5)
    assert village.root(NAME) == root
    assert publisher.stable == 45
    assert readers[child].payloads == [b"%d" % count for count in range(45)]
    assert not readers[child].losses


def test_a_full_root_takes_in_a_peer_that_cannot_reach_its_child() -> None:
    village = Village(3, config=NARROW)
    root = closest(village)
    first, second = [peer for peer in range(3) if peer != root]
    village.world.cut(lambda a, b: {a, b} == {first, second})
    for peer in (root, first, second):
        village.subscribe(peer, NAME, Reader())
        village.run(2)
    village.run(10)
    assert parents(village, first, second) == [root, root]


def test_a_peer_whose_child_alone_reaches_the_root_becomes_a_child_of_that() -> None:
    village = Village(3, config=NARROW)
    root = closest(village)
    first, second = [peer for peer in range(3) if peer != root]
    for peer in (root, first, second):
        village.subscribe(peer, NAME, Reader())
        village.run(2)
    assert parents(village, first, second) == [root, first]
    village.world.cut(from_one_to(first, root))
    village.run(25)
    assert parents(village, first, second) == [second, root]
