"""Members of the network that lie: each may speak for itself, and for what it is known to be (docs/delivery.md)."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, NO_TERM, RELIABLE_TERMS, REPAIR, SESSION_TERMS, Envelope, Kind, Term
from quillcast.core.errors import Implausible, Malformed
from quillcast.core.messages import ADDRESS_MAX, NUMBER_MAX, Contact, Message
from quillcast.core.trace import Mark
from quillcast.protocol.neighbours.messages import Heartbeat
from quillcast.protocol.overlay.messages import Routed
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.messages import NEWCOMERS_MAX, Farewell, Join, Rejoin
from quillcast.protocol.topics.query_messages import Branch
from quillcast.protocol.topics.root.telling import PendingTransfer
from quillcast.protocol.topics.root_messages import (
    AnotherFollows,
    FindRoot,
    NotRoot,
    Receipts,
    RecordState,
    RootIs,
    StateQuery,
    TransferLeadership,
    Transferred,
)
from quillcast.protocol.topics.stability import lag
from quillcast.protocol.topics.state.link_reports import PATH_MAX, ChildReport, Move, ParentReport, decode, encode
from quillcast.protocol.wire import decode as decode_message
from quillcast.protocol.wire import encode as encode_message
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, block, is_stable
from tests.protocol.topics.parts import CONFIG, Parts
from tests.protocol.topics.test_terms import by_distance
from tests.protocol.topics.village import Reader, Village

NAME = "sport/tennis"
TOPIC = described(NAME).topic
LATER = Term(5 * SESSION_TERMS + 1, b"h" * 16)
"""Of a best-effort session that nobody opened."""


class Stage:
    """A root, a reader, a writer, and a peer that says what it likes."""

    def __init__(self, seed: int = 1, peers: int = 6) -> None:
        self.village = village = Village(peers, seed=seed)
        self.root, self.next_root, *_, self.writer, self.hostile = by_distance(village)
        self.at = self.next_root if peers == 6 else by_distance(village)[-3]
        self.reader = Reader()
        village.subscribe(self.at, NAME, self.reader)
        village.run(3)
        self.publisher = village.publisher(self.writer, NAME)
        village.run(1)
        self.publish(b"before")

    def contact(self, peer: int) -> Contact:
        return self.village.world.machines[peer].contact

    def publish(self, *payloads: bytes) -> None:
        self.village.publish(self.writer, self.publisher, *payloads)
        self.village.run(2)

    def say(self, to: int, message: Message) -> None:
        """The hostile peer says this to another."""
        self.village.act(self.hostile, lambda peer: peer.host.send(self.contact(to), message))
        self.village.run(1)

    def carry(self, to: int, bundle: Bundle) -> None:
        self.village.act(self.hostile, lambda peer: peer.host.carry(self.contact(to), bundle))
        self.village.run(1)

    def guarantees(self) -> list[bool]:
        """Does each peer in the tree keep the topic's events?"""
        trees = (self.village.tree(peer, NAME) for peer in self.village.alive())
        return [tree.flow.keeps for tree in trees if tree is not None]


def forged(term: Term, first: int, kind: Kind = DOWN) -> Bundle:
    return Bundle(Envelope(TOPIC, kind, term, first), (block(PAUL, 0, b"forged"),))


def test_a_term_of_a_session_that_nobody_opened_changes_no_guarantee() -> None:
    stage = Stage()
    asks = FindRoot(TOPIC, stage.contact(stage.hostile), None, LATER)
    stage.village.act(stage.hostile, lambda peer: peer.overlay.route(asks, TOPIC))
    stage.say(stage.root, TransferLeadership(described(NAME), LATER, 0, 0, LATER))
    stage.say(stage.writer, RootIs(LATER, described(NAME)))
    for peer in (stage.root, stage.at):
        stage.carry(peer, forged(LATER, 0))
    stage.publish(b"after")
    assert stage.guarantees() == [True, True]
    root = stage.village.tree(stage.village.root(NAME), NAME)
    assert root is not None
    assert root.term.session == 0
    assert stage.reader.payloads == [b"before", b"after"]
    assert not stage.reader.losses


@pytest.mark.parametrize("reliable", [True, False])
def test_a_report_that_names_an_unknown_session_counts_once_its_settings_are_known(reliable: bool) -> None:
    world = Parts()
    tree = world.root(described("weather"))
    world.child(tree, CAROL)
    term = Term(SESSION_TERMS + 1 + RELIABLE_TERMS * reliable, CAROL.node_id)
    says = encode(ChildReport(FIRST, 0, term))
    with pytest.raises(Implausible, match="settings are not known"):
        world.reporting.changed(CAROL, tree.topic, says)
    assert tree.heard < term
    assert (CAROL, StateQuery([tree.topic])) in world.host.sent
    settings = Settings(partition="wait") if reliable else Settings(delivery="best_effort")
    world.known.learn(Descriptor("weather", settings, version=2, session=1))
    world.reporting.changed(CAROL, tree.topic, says)
    assert tree.heard == term


def test_nobody_but_a_topics_root_acknowledges_events() -> None:
    stage = Stage()
    stage.village.kill(stage.root, silently=True)
    stage.village.publish(stage.writer, stage.publisher, b"unstable")
    liar = stage.contact(stage.hostile)
    root_term = stage.publisher.term
    for term in (Term(root_term.counter, liar.node_id), Term(root_term.counter + 9, liar.node_id), root_term):
        stage.say(stage.writer, Receipts(TOPIC, term, [(stage.publisher.id, 2, 2, ())]))
    assert stage.publisher.stable == 1
    stage.village.run(45)
    assert stage.publisher.stable == 2
    assert stage.reader.payloads == [b"before", b"unstable"]


def test_who_was_not_asked_for_the_root_is_not_taken_for_it() -> None:
    stage = Stage()
    liar = stage.contact(stage.hostile)
    stage.say(stage.writer, RootIs(Term(stage.publisher.term.counter + 5, liar.node_id), described(NAME)))
    assert stage.publisher.root == stage.contact(stage.root)
    stage.say(stage.writer, NotRoot(TOPIC, None, unknown=True))
    stage.publish(b"after")
    assert stage.reader.payloads == [b"before", b"after"]


@pytest.mark.parametrize("kind", [DOWN, REPAIR])
def test_a_root_takes_no_events_of_its_own_term_from_others(kind: Kind) -> None:
    """It would take the positions for used, and its own events for repeats."""
    stage = Stage()
    tree = stage.village.tree(stage.root, NAME)
    assert tree is not None
    stage.carry(stage.root, forged(tree.term, 1, kind))
    stage.publish(b"after")
    assert stage.reader.payloads == [b"before", b"after"]


def test_a_leaving_peer_believes_only_those_it_told_that_they_know() -> None:
    stage = Stage()
    peer = stage.village.peers[stage.root]
    transfer, word = peer.topics.telling, Transferred(TOPIC, FIRST)
    pending = transfer.pending[TOPIC] = PendingTransfer(TransferLeadership(described(NAME), FIRST, 1, 1))
    pending.told[stage.contact(stage.at).node_id] = None
    stage.village.act(stage.root, lambda peer: peer.message(stage.contact(stage.hostile), word))
    assert TOPIC in transfer.pending
    stage.village.act(stage.root, lambda peer: peer.message(stage.contact(stage.at), word))
    assert TOPIC not in transfer.pending


@pytest.mark.parametrize("before", [True, False], ids=["before it is root", "once it is root"])
@pytest.mark.parametrize(
    ("whose", "near"),
    [("the old root's", True), ("the old root's", False), ("its own", False), ("one of nobody", True)],
)
def test_nobody_but_a_topics_root_says_whom_the_next_root_waits_for(whose: str, *, near: bool, before: bool) -> None:
    """The old root has crashed. Somebody says in its place that it handed the topic over, and names no leases."""
    stage = Stage(peers=12)
    village, heir = stage.village, stage.next_root
    stage.hostile = by_distance(village)[2] if near else stage.hostile
    tree = village.tree(stage.root, NAME)
    assert tree is not None
    said = {"the old root's": tree.term, "its own": Term(tree.term.counter + 1, stage.contact(stage.hostile).node_id)}
    term = said.get(whose, Term(tree.term.counter + 1, b"n" * 16))
    word = TransferLeadership(described(NAME), term, 1, 1, term, ended=(stage.contact(stage.at).node_id,))
    village.kill(stage.root, silently=True)
    if before:
        stage.say(heir, word)
    village.run(10)
    assert village.root(NAME) == heir
    if not before:
        stage.say(heir, word)
    heirs = village.tree(heir, NAME)
    assert heirs is not None
    assert heirs.root is not None
    assert heirs.root.held_until - heirs.root.began_at >= CONFIG.lease_s
    assert not heirs.leases.ended


def test_only_the_peer_that_was_told_has_another_told_in_its_place() -> None:
    stage = Stage()
    village, heir = stage.village, stage.next_root
    named = (stage.contact(stage.writer).node_id,)
    word = TransferLeadership(described(NAME), Term(1, stage.contact(stage.root).node_id), 1, 1, leases=named)
    transfer = village.peers[stage.root].topics.telling
    village.act(stage.root, lambda _: transfer.tell(stage.contact(heir), word))
    asks = AnotherFollows(TOPIC, word.term, stage.contact(stage.hostile))
    stage.say(stage.root, asks)
    assert list(transfer.vouched[TOPIC].told) == [stage.contact(heir).node_id]
    village.act(heir, lambda peer: peer.host.send(stage.contact(stage.root), asks))
    village.run(1)
    assert [*transfer.vouched[TOPIC].told] == [stage.contact(peer).node_id for peer in (heir, stage.hostile)]
    assert transfer.vouched[TOPIC].message.leases == named


def test_a_routed_message_that_breaks_the_protocol_is_not_laid_at_the_door_of_who_passed_it_on() -> None:
    stage = Stage()
    peer, marks = stage.village.peers[stage.root], stage.village.marks
    routed = Routed(TOPIC, stage.contact(stage.hostile), 1 << 50, 1, encode_message(Heartbeat(0.0)))
    stage.village.act(stage.root, lambda _: peer.message(stage.contact(stage.at), routed))
    assert marks["routed_malformed"] == 1


def test_a_path_longer_than_any_is_taken_for_a_loop() -> None:
    """Else it would grow beyond what a report may take, and no other child be told anything."""
    stage = Stage()
    tree, parent = stage.village.tree(stage.at, NAME), stage.contact(stage.root)
    assert tree is not None
    path = tuple(number.to_bytes(16, "big") for number in range(PATH_MAX))
    report = encode(ParentReport(tree.term, 0, 0, path, ()))
    stage.village.act(stage.at, lambda peer: peer.topics.links.changed(parent, TOPIC, report))
    assert tree.parent is None
    stage.village.run(3)
    stage.publish(b"after")
    assert stage.reader.payloads == [b"before", b"after"]


def test_one_message_names_no_more_topics_than_a_page_has_and_no_address_is_longer_than_any_name() -> None:
    long = Contact(BOB.node_id, "a" * (ADDRESS_MAX + 1))
    named = FindRoot(TOPIC, BOB, Descriptor("n" * 256), NO_TERM)
    for message in (RecordState([(described("a"), NO_TERM)] * 129), FindRoot(TOPIC, long, None, NO_TERM), named):
        with pytest.raises(Malformed):
            decode_message(encode_message(message))


@pytest.mark.parametrize("moves", [NEWCOMERS_MAX, NEWCOMERS_MAX + 1])
def test_a_parent_reports_no_more_arrivals_than_a_child_does(moves: int) -> None:
    report = encode(ParentReport(FIRST, 0, 0, (), (), arrivals=(Move(BOB.node_id, 1),) * moves))
    if moves <= NEWCOMERS_MAX:
        assert decode(report).arrivals[-1] == Move(BOB.node_id, 1)
    else:
        with pytest.raises(Malformed, match=f"<= {NEWCOMERS_MAX}"):
            decode(report)


def test_a_term_that_is_named_twice_as_discarded_breaks_nothing() -> None:
    """Once with the age of its events, and once without."""
    stage = Stage()
    ends = ((Term(1, bytes(16)), 3, None), (Term(1, bytes(16)), 3, 5))
    stage.say(stage.root, TransferLeadership(described(NAME), Term(1, b"a" * 16), 0, 0, forgotten=ends))
    stage.publish(b"after")
    assert stage.reader.payloads[-1] == b"after"


def test_terms_that_a_hostile_root_made_up_are_neither_told_on_without_bound_nor_slow_to_forget() -> None:
    world = Parts()
    tree = world.tree(described("weather"))
    tree.flow.begin(Term(1 << 19, BOB.node_id), 0, 0.0)
    for counter in range(5000):
        world.terms.recall(tree, Term(counter + 1, BOB.node_id), 7)
    assert len(tree.flow.held(0.0)) == 16
    assert len(tree.flow.past.overdue(0.0)) == 5000 - 16
    assert Mark("implausible") not in world.host.records


def test_a_farewell_with_the_largest_number_does_not_make_honest_reports_malformed() -> None:
    """Its move counts as one more than that, and is named to those above (`ChildReport.arrivals`)."""
    stage = Stage()
    stage.say(stage.at, Farewell(TOPIC, number=NUMBER_MAX))
    stage.publish(b"after")
    assert stage.reader.payloads == [b"before", b"after"]


def test_nobody_joins_in_the_name_of_another() -> None:
    """Not in that of a child, which would be taken for one that wants no events, nor in that of the parent itself."""
    stage, name = Stage(), "by source"
    village = stage.village
    village.act(stage.writer, lambda peer: peer.create(name, Settings(admission="source"), lambda _: None))
    village.run(1)
    root = village.root(name)
    at, liar, *_ = [stage.contact(peer) for peer in village.alive() if peer != root]
    village.subscribe(village.world.number_at(at.address), name, Reader())
    village.run(3)
    tree = village.tree(root, name)
    assert tree is not None
    for child in (at, stage.contact(root)):
        join = Join(tree.topic, child, digest=tree.descriptor.digest, sends_only=True)
        for message in (Rejoin(child, b"", [join]), Rejoin(liar, b"", [join])):
            village.act(root, lambda peer, said=message: peer.message(liar, said))
    assert {node: child.sends_only for node, child in tree.leases.children.items()} == {at.node_id: False}


def test_what_a_lying_root_says_of_events_that_were_not_published_yet_is_forgotten_with_it() -> None:
    """Else a publisher would take all later ones for stable, keep them for ever, and block at last."""
    stage = Stage()
    village, publisher = stage.village, stage.publisher
    lie = Receipts(TOPIC, publisher.term, [(publisher.id, NUMBER_MAX, NUMBER_MAX, ())])
    village.act(stage.writer, lambda peer: peer.message(stage.contact(stage.root), lie))
    village.kill(stage.root, silently=True)
    village.run(40)
    village.publish(stage.writer, publisher, b"after")
    assert not is_stable(publisher, 1)
    village.run(5)
    assert is_stable(publisher, 1)
    assert not publisher.retained
    publisher.check()


def test_ends_that_a_member_made_up_do_not_make_answers_to_questions_malformed() -> None:
    """They are added up, and the sum is told (`Branch.events`)."""
    world = Parts()
    tree = world.tree(described("weather"))
    tree.flow.begin(Term(9, BOB.node_id), 0, 0.0)
    for counter in range(1, 7):
        world.terms.recall(tree, Term(counter, BOB.node_id), NUMBER_MAX)
    branch = Branch(tree.topic, 1, b"", [], 0, tree.term, 0, events=lag.events(tree))
    assert decode_message(encode_message(branch)).events == NUMBER_MAX


def test_a_parent_may_name_the_roots_term_among_the_streams_of_sources() -> None:
    world = Parts()
    tree = world.tree(described("weather", Settings(admission="source")))
    tree.flow.begin(FIRST, 0, 0.0)
    streams = world.membership.source_streams
    streams.attached(tree, BOB, [(FIRST, 0, 3)], (), (), whole=False, served=True)
    assert not tree.sources.states
