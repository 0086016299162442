"""Which ranges are requested from whom, and when they are given up: one peer of a small network and its subscriber."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import RELIABLE_STREAMS, REPAIR, SESSION_TERMS, Envelope, Term
from quillcast.core.ranges import Range
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.event_places import admitted_again, learn_runs
from quillcast.protocol.forwarding.ledger import Run
from quillcast.protocol.peer import Peer
from quillcast.protocol.reliability.messages import Fetch, Unavailable
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Settings
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import PAUL, block
from tests.protocol.topics.test_terms import NAME, TOPIC, by_distance
from tests.protocol.topics.village import Reader, Village


class Reading:
    """A subscriber below a root, with a sibling."""

    def __init__(self, settings: Settings | None = None, config: Config | None = None) -> None:
        self.village = Village(4, config=config)
        self.root, self.peer, self.sibling = by_distance(self.village)[:3]
        if settings is not None:
            self.village.act(self.root, lambda peer: peer.create(NAME, settings, lambda answer: None))
        self.reader = Reader()
        for peer, reader in ((self.peer, self.reader), (self.sibling, Reader())):
            self.village.subscribe(peer, NAME, reader)
        self.village.run(5)

    @property
    def tree(self) -> Tree:
        tree = self.village.tree(self.peer, NAME)
        assert tree is not None
        return tree

    def miss(self, end: int) -> None:
        """The peer believes that its term has reached `end`."""
        self.tree.parent_has(end)
        self.village.act(self.peer, lambda peer: peer.recovery.look_soon(TOPIC))

    @property
    def told(self) -> list[Range]:
        return [(first, last) for _, first, last, _ in self.reader.gone]


def test_ranges_that_the_parent_may_still_get_are_requested_and_not_given_up() -> None:
    reading = Reading()
    village, asked = reading.village, list[object]()
    encode = village.world.encode
    village.world.encode = lambda message: (asked.append(message), encode(message))[1]
    reading.miss(3)
    village.run(20)
    assert Fetch(TOPIC, reading.tree.term, [(0, 3)]) in asked
    assert reading.told == []
    publisher = village.publisher(reading.root, NAME)
    village.publish(reading.root, publisher, b"a", b"b", b"c")
    village.run(3)
    assert reading.reader.payloads == [b"a", b"b", b"c"]


def test_a_refusal_names_the_lost_events_and_so_does_the_loss_report() -> None:
    reading = Reading()
    village, parent = reading.village, reading.tree.parent
    assert parent is not None
    reading.miss(3)
    village.run(2)
    gone = Unavailable(TOPIC, reading.tree.term, [(0, 3)], ((0, 3),), (Run(0, PAUL, 100, 3),))
    village.act(reading.peer, lambda peer: peer.message(parent, gone))
    village.run(3)
    assert reading.told == [(100, 103)], "sequences of a publisher, not positions"


def test_missing_ranges_of_a_past_term_are_given_up_after_the_time_of_a_lease() -> None:
    reading = Reading()
    village, counter = reading.village, reading.tree.term.counter
    slept_through, latest = Term(counter + 1, bytes(16)), Term(counter + 2, bytes(16))
    village.act(reading.peer, lambda peer: peer.topics.terms.enter(reading.tree, latest, 0))
    village.run(5)
    village.act(reading.peer, lambda peer: peer.topics.terms.recall(reading.tree, slept_through, 3))
    village.run(25)
    assert reading.told == []
    village.run(20)
    assert reading.told == [(0, 3)]


@pytest.mark.parametrize(("slow", "told_after_s"), [("cut", 70), ("wait", 100)])
def test_events_that_may_be_admitted_again_are_awaited_longer_if_publishers_may_be_held_back(
    slow: str, told_after_s: float
) -> None:
    reading = Reading(Settings(slow=slow))
    village, counter = reading.village, reading.tree.term.counter
    slept_through, latest = Term(counter + 1, bytes(16)), Term(counter + 2, bytes(16))
    village.act(reading.peer, lambda peer: peer.topics.terms.enter(reading.tree, latest, 0))
    village.run(5)
    village.act(reading.peer, lambda peer: peer.topics.terms.recall(reading.tree, slept_through, 3))
    learn_runs(reading.tree.flow, slept_through, [Run(0, PAUL, 100, 3)])
    village.run(told_after_s - 30)
    assert reading.told == []
    village.run(30)
    assert reading.told == [(100, 103)]


def test_unknown_events_are_awaited_while_the_root_holds_publishers_back(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(Settings(slow="wait"))
    village, root = reading.village, reading.village.tree(reading.root, NAME)
    assert root is not None
    counter = reading.tree.term.counter
    slept_through, latest = Term(counter + 1, bytes(16)), Term(counter + 2, bytes(16))

    def hold_back(peer: Peer, *, held_back: bool) -> None:
        monkeypatch.setattr(peer.topics.flow_control.shares, "is_used_up", lambda tree: held_back)
        peer.topics.schedule.touch(root)

    village.act(reading.root, lambda peer: hold_back(peer, held_back=True))
    village.run(5)
    assert TOPIC in village.peers[reading.peer].topics.schedule.held_back
    village.act(reading.peer, lambda peer: peer.topics.terms.enter(reading.tree, latest, 0))
    village.act(reading.peer, lambda peer: peer.topics.terms.recall(reading.tree, slept_through, 3))
    village.run(45)
    assert reading.told == []
    village.act(reading.root, lambda peer: hold_back(peer, held_back=False))
    village.run(20)
    assert reading.told == []
    village.run(25)
    assert reading.told == [(0, 3)]


def test_unknown_events_are_awaited_while_the_root_has_no_place_for_a_publisher() -> None:
    reading = Reading(config=Config(topics=TopicConfig(admissions_max=1)))
    village, counter = reading.village, reading.tree.term.counter
    root = village.tree(reading.root, NAME)
    assert root is not None
    slept_through, latest = Term(counter + 1, bytes(16)), Term(counter + 2, bytes(16))
    village.act(reading.peer, lambda peer: peer.topics.terms.enter(reading.tree, latest, 0))
    village.run(5)
    assert root.root is not None
    root.root.hold(village.world.now + 50)
    writers = [village.publisher(peer, NAME) for peer in (reading.root, reading.sibling)]
    for peer, writer in zip((reading.root, reading.sibling), writers, strict=True):
        village.publish(peer, writer, b"event")
        village.run(1)
    assert [writer.admitted for writer in writers] == [1, 0]
    assert not village.publisher(reading.root, NAME).held_back, "only buffers without room make publishers wait"
    village.act(reading.peer, lambda peer: peer.topics.terms.recall(reading.tree, slept_through, 3))
    village.publish(reading.root, writers[0], b"next")
    village.run(45)
    assert writers[0].admitted == 2, "it has a place"
    assert reading.told == []
    village.run(10)
    assert reading.reader.payloads == [b"event", b"next", b"event"]
    village.run(10)
    assert reading.told == [(0, 3)]


def test_a_peer_fetches_discarded_events_of_a_past_term_for_peers_that_ask() -> None:
    reading = Reading()
    village, term = reading.village, Term(reading.tree.term.counter, bytes(16))
    root, sibling = village.tree(reading.root, NAME), village.tree(reading.sibling, NAME)
    assert root is not None
    assert sibling is not None
    for peer, tree in ((reading.root, root), (reading.sibling, sibling)):
        village.act(peer, lambda peer, tree=tree: peer.topics.terms.recall(tree, term, 3))
    root.flow.past[term].give_up([(0, 3)])
    kept = Bundle(Envelope(TOPIC, REPAIR, term, 0), (block(PAUL, 0, b"a", b"b", b"c"),))
    village.act(reading.sibling, lambda peer: peer.table.move(sibling.flow, kept))
    village.run(5)
    assert root.flow.past[term].kept() == []
    asker = village.world.machines[reading.peer].contact
    village.act(reading.root, lambda peer: peer.message(asker, Fetch(TOPIC, term, [(0, 3)])))
    village.run(5)
    assert root.flow.past[term].kept() == reading.tree.flow.past[term].kept() == [(0, 3)]


def test_what_comes_of_an_ended_term_goes_at_once_to_those_who_asked_for_it() -> None:
    """If they had to ask again, events would take longer than a lease over a few peers."""
    reading, sent = Reading(), list[object]()
    village, root, term = reading.village, reading.village.tree(reading.root, NAME), Term(0, bytes(16))
    assert root is not None
    asker, sibling = (village.world.machines[number].contact for number in (reading.peer, reading.sibling))
    for number, tree in ((reading.root, root), (reading.peer, reading.tree)):
        village.act(number, lambda peer, tree=tree: peer.topics.terms.recall(tree, term, 6))
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    village.act(reading.root, lambda peer: peer.message(asker, Fetch(TOPIC, term, [(0, 6)])))
    lost = Unavailable(TOPIC, term, [(0, 3)], runs=(Run(0, PAUL, 0, 3),))
    village.act(reading.root, lambda peer: peer.recovery.look_soon(TOPIC))
    village.run(village.peers[reading.root].recovery.gap_s + 0.1)
    sent.clear()
    village.act(reading.root, lambda peer: peer.message(sibling, lost))
    assert lost in sent, "which events were there"
    kept = Bundle(Envelope(TOPIC, REPAIR, term, 3), (block(PAUL, 3, b"a", b"b", b"c"),))
    host = village.world.machines[reading.sibling].host
    assert host is not None
    host.carry(village.world.machines[reading.root].contact, kept)
    village.run(0.1)
    assert reading.tree.flow.past[term].kept() == [(3, 6)]


def test_discarded_events_that_a_later_term_admitted_again_are_not_called_gone() -> None:
    """Who asks may know of no later term yet, and would report them as lost although they come in that."""
    reading, sent = Reading(), list[object]()
    village, root = reading.village, reading.village.tree(reading.root, NAME)
    assert root is not None
    publisher, past, flow = village.publisher(reading.root, NAME), Term(0, bytes(16)), root.flow
    village.publish(reading.root, publisher, b"a", b"b")
    village.run(3)
    flow.open_past().recall(past, 3, village.world.now + 60)
    flow.past[past].give_up([(0, 3)])
    learn_runs(flow, past, [Run(0, publisher.id, 0, 2), Run(2, PAUL, 0, 1)])
    encode, asker = village.world.encode, village.world.machines[reading.peer].contact
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    village.act(reading.root, lambda peer: peer.message(asker, Fetch(TOPIC, past, [(0, 3)])))
    answer = next(message for message in sent if isinstance(message, Unavailable))
    assert (answer.ranges, answer.released) == ([(0, 3)], ((2, 3),))
    assert flow.past[past].wanted() == [], "nor are they looked for here"


def test_what_a_stream_had_is_called_gone_although_a_later_session_admitted_it_again() -> None:
    """Its source or root says so, and nobody else can: who misses it would wait for ever."""
    reading, sent = Reading(), list[object]()
    village, root = reading.village, reading.village.tree(reading.root, NAME)
    assert root is not None
    publisher, stream, flow = village.publisher(reading.root, NAME), Term(RELIABLE_STREAMS + 1, bytes(16)), root.flow
    village.publish(reading.root, publisher, b"a", b"b")
    village.run(3)
    flow.begin(Term(SESSION_TERMS + 1, flow.term.node), 0, village.world.now + 60)
    learn_runs(flow, flow.term, [Run(0, publisher.id, 0, 2)])
    flow.begin_beside(stream, 0).give_up([(0, 2)])
    learn_runs(flow, stream, [Run(0, publisher.id, 0, 2)])
    assert list(admitted_again(flow, stream, [(0, 2)])) == [(0, 2)]
    encode, asker = village.world.encode, village.world.machines[reading.peer].contact
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    village.act(reading.root, lambda peer: peer.message(asker, Fetch(TOPIC, stream, [(0, 2)])))
    answer = next(message for message in sent if isinstance(message, Unavailable))
    assert answer.released == ((0, 2),)


def test_positions_of_a_past_term_whose_events_came_in_a_later_one_are_not_waited_for() -> None:
    reading = Reading()
    village, past, flow = reading.village, Term(0, bytes(16)), reading.tree.flow
    publisher = village.publisher(reading.root, NAME)
    village.publish(reading.root, publisher, b"a")
    village.run(3)
    reading.tree.subscriptions[0].owe(past, 0, 0)  # it was known when the subscription began
    village.act(reading.peer, lambda peer: peer.topics.terms.recall(reading.tree, past, 2))
    learn_runs(flow, past, [Run(0, publisher.id, 0, 1)])
    assert flow.owed(past).ranges() == [(0, 2)]
    village.run(2)
    assert flow.owed(past).ranges() == [(1, 2)], "nobody knows what that was"
    assert (reading.reader.payloads, reading.told) == ([b"a"], [])


def test_requests_over_a_lost_link_are_not_answered_over_the_next() -> None:
    """The peer that requested it requests again what it misses then."""
    reading = Reading()
    village, contact = reading.village, reading.village.world.machines[reading.peer].contact
    recovery = village.peers[reading.root].recovery
    recovery.unsent[contact.node_id] = {(TOPIC, reading.tree.term): [(0, 3)]}
    village.act(reading.root, lambda peer: peer.link_lost(contact))
    assert recovery.unsent == {}


def test_while_buffers_are_full_the_first_missing_event_is_requested_without_credit() -> None:
    reading = Reading()
    village, asked = reading.village, list[object]()
    encode = village.world.encode
    village.world.encode = lambda message: (asked.append(message), encode(message))[1]
    village.peers[reading.peer].table.budget.limit_bytes = -1
    reading.miss(3)
    village.run(2)
    assert Fetch(TOPIC, reading.tree.term, [(0, 1)], due=True) in asked


def test_while_buffers_are_full_the_next_event_is_requested_when_one_is_given_up() -> None:
    reading = Reading()
    village, parent, asked = reading.village, reading.tree.parent, list[object]()
    assert parent is not None
    village.peers[reading.peer].table.budget.limit_bytes = -1
    root = village.world.machines[reading.root].host
    assert root is not None
    root.pause()
    reading.miss(3)
    village.run(1.1)
    encode = village.world.encode
    village.world.encode = lambda message: (asked.append(message), encode(message))[1]
    gone = Unavailable(TOPIC, reading.tree.term, [(0, 1)], ((0, 1),), (Run(0, PAUL, 100, 1),))
    for contact in (parent, *reading.tree.fallbacks):
        village.act(reading.peer, lambda peer, sender=contact: peer.message(sender, gone))
    assert Fetch(TOPIC, reading.tree.term, [(1, 2)], due=True) in asked


def test_discarded_events_are_refused_when_there_is_credit_again() -> None:
    reading = Reading()
    village, contact = reading.village, reading.village.world.machines[reading.peer].contact
    publisher = village.publisher(reading.root, NAME)
    village.publish(reading.root, publisher, b"a", b"b")
    village.run(5)
    sent = list[object]()
    encode = village.world.encode
    village.world.encode = lambda message: (sent.append(message), encode(message))[1]
    village.peers[reading.root].recovery.unsent[contact.node_id] = {(TOPIC, reading.tree.term): [(0, 2)]}
    village.act(reading.root, lambda peer: peer.room(contact))
    assert [message.released for message in sent if isinstance(message, Unavailable)] == [((0, 2),)]


def test_due_repairs_are_sent_without_credit_one_bundle_at_a_time() -> None:
    village = Village(3)
    root, child, _ = by_distance(village)
    village.subscribe(child, NAME, Reader(room_bytes=0))
    village.run(5)
    publisher = village.publisher(root, NAME)
    for payload in (b"a", b"b"):
        village.publish(root, publisher, payload)
        village.run(1)
    tree, host, contact = village.tree(root, NAME), village.world.machines[root].host, village.peers[child].host.contact
    assert tree is not None
    assert host is not None
    link = host.links[contact.node_id]
    rooms = [0]
    for first, due in ((0, False), (0, True), (1, True)):
        link.room = rooms[-1]
        ask = Fetch(TOPIC, tree.term, [(first, first + 1)], due)
        village.act(root, lambda peer, ask=ask: peer.message(contact, ask))
        rooms.append(link.room)
    assert rooms[1] == 0
    assert rooms[2] == rooms[3] < 0, "the first is sent; the second waits for the credit"
    link.room += 1
    village.act(root, lambda peer: peer.message(contact, Fetch(TOPIC, tree.term, [(1, 2)], due=True)))
    assert link.room < rooms[3]
