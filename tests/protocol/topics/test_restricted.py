"""A topic that names its subscribers: nobody else is given its events, whatever it says."""

import msgspec
import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import REPAIR, Envelope, Term
from quillcast.core.ranges import RangeSet
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.reliability.messages import Fetch, FetchFromRoot
from quillcast.protocol.security.access import entry
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.inspection import Walk
from quillcast.protocol.topics.membership.climbing import Search
from quillcast.protocol.topics.messages import Join, Rejoin
from quillcast.protocol.topics.query_messages import Laggards, PlaceQuery, Survey
from quillcast.protocol.topics.state.link_reports import ChildReport, encode
from tests.protocol.recording import PAUL, block
from tests.protocol.topics.parts import STREAM
from tests.protocol.topics.village import Reader, Village

NAME = "orders"
TOPIC = described(NAME).topic
OWNER, FRIEND = Credentials.new(), Credentials.new()


def a_village(settings: Settings = Settings()) -> tuple[Village, int, int]:  # noqa: B008  immutable
    """A village with such a topic, its root, which keeps one event, and a peer that may not have that."""

    def own(descriptor: Descriptor) -> Descriptor:
        return OWNER.own(msgspec.structs.replace(descriptor, access=(entry("subscribe", FRIEND.principal),)))

    village = Village(6)
    village.act(0, lambda peer: peer.create(NAME, settings, lambda answer: None, own))
    village.run(3)
    root = village.root(NAME)
    friend, other, publisher = (number for number in range(4) if number != root)
    warrant = FRIEND.warrant(village.world.machines[friend].node_id, TOPIC)
    village.subscribe(friend, NAME, Reader(room_bytes=0), warrant=warrant)
    village.run(3)
    village.publish(publisher, village.publisher(publisher, NAME), b"secret")
    village.run(1)
    return village, root, other


def test_who_may_not_subscribe_is_no_child_by_reporting_as_one() -> None:
    village, root, other = a_village()
    tree, contact = village.tree(root, NAME), village.world.machines[root].contact
    assert tree is not None
    report = encode(ChildReport(tree.term, 0, tree.term))
    village.act(other, lambda peer: peer.streams.put(contact, TOPIC, report))
    village.run(1)
    assert "child_readopted" not in village.marks


def test_who_may_not_subscribe_is_no_child_by_saying_that_it_only_publishes() -> None:
    village, root, other = a_village()
    tree, contact = village.tree(root, NAME), village.world.machines[other].contact
    assert tree is not None
    rejoin = Rejoin(contact, b"", [Join(TOPIC, contact, sends_only=True)])
    village.act(root, lambda peer: peer.message(contact, rejoin))
    village.run(1)
    assert (contact.node_id in tree.leases.children, village.marks["join_denied"]) == (False, 1)


@pytest.mark.parametrize("was_root", [True, False])
def test_a_root_takes_the_one_before_in_and_nobody_else_whom_that_named_and_who_may_not_subscribe(
    was_root: bool,
) -> None:
    village, root, other = a_village()
    tree, contact = village.tree(root, NAME), village.world.machines[other].contact
    assert tree is not None
    assert tree.root is not None
    tree.root.awaited = {contact.node_id: 0}
    tree.root.followed = (Term(1, contact.node_id if was_root else bytes(16)),)
    rejoin = Rejoin(contact, b"", [Join(TOPIC, contact)])
    village.act(root, lambda peer: peer.message(contact, rejoin))
    assert (contact.node_id in tree.leases.children, village.marks.get("join_denied", 0)) == (was_root, not was_root)


def test_a_source_that_may_not_subscribe_hands_its_stream_over_and_gets_no_event() -> None:
    """It numbered events on a side of a partition where the topic had no list, and a root took over from it."""
    village, root, other = a_village()
    tree, contact = village.tree(root, NAME), village.world.machines[other].contact
    assert tree is not None
    join = Join(TOPIC, contact, sends_only=True, streams=((STREAM, 3, 0),), milestones=((),))
    village.act(root, lambda peer: peer.message(contact, Rejoin(contact, b"", [join])))
    fetch = Fetch(TOPIC, tree.term, [(0, 1)])
    village.act(root, lambda peer: peer.message(contact, fetch))
    child = tree.leases.children[contact.node_id]
    assert (child.sends_only, child.channel in tree.flow.channels) == (True, False)
    assert list(tree.sources.states) == [STREAM]
    assert village.marks["fetch_denied"] == 1


def test_who_may_not_subscribe_is_given_no_repairs() -> None:
    village, root, other = a_village()
    tree, asker = village.tree(root, NAME), village.world.machines[other].contact
    assert tree is not None
    for question in (Fetch(TOPIC, tree.term, [(0, 1)]), FetchFromRoot(TOPIC, tree.term, [(0, 1)], asker)):
        village.act(root, lambda peer, question=question: (
            peer.message(asker, question) if isinstance(question, Fetch) else peer.dispatch.routed(question)
        ))  # fmt: skip
    village.run(2)
    assert village.marks["fetch_denied"] == 2
    assert village.peers[other].table.dropped == 0


def test_who_only_publishes_is_given_no_repairs_of_what_others_publish() -> None:
    village, root, other = a_village(Settings(admission="source"))
    village.publish(other, village.publisher(other, NAME), b"public")
    village.run(2)
    tree, asker = village.tree(root, NAME), village.world.machines[other].contact
    assert tree is not None
    parent = next(number for number in village.alive() if asker.node_id in village.tree(number, NAME).leases.children)
    secret = next(term for term in tree.sources.states if not term.is_of(asker.node_id))
    village.act(parent, lambda peer: peer.message(asker, Fetch(TOPIC, secret, [(0, 1)])))
    village.run(2)
    assert village.marks["fetch_denied"] == 1
    assert village.peers[other].table.dropped == 0


def test_who_asked_before_the_list_excluded_it_is_given_nothing_that_comes_later() -> None:
    village, root, other = a_village()
    tree, past = village.tree(root, NAME), Term(0, bytes(16))
    asker, friend = (village.world.machines[number] for number in (other, ({*range(6)} - {root, other}).pop()))
    assert tree is not None
    assert friend.host is not None
    village.act(root, lambda peer: peer.topics.terms.recall(tree, past, 1))
    village.peers[root].recovery.askers[TOPIC, past] = {asker.contact: RangeSet([(0, 1)])}
    friend.host.carry(
        village.world.machines[root].contact, Bundle(Envelope(TOPIC, REPAIR, past, 0), (block(PAUL, 0, b"secret"),))
    )
    village.run(1)
    assert tree.flow.past[past].kept() == [(0, 1)]
    assert village.peers[other].table.dropped == 0


def test_only_those_on_the_list_are_told_who_is_in_the_tree_and_what_becomes_of_a_bundle() -> None:
    village, root, other = a_village()
    friend = next(number for number in village.alive() if (tree := village.tree(number, NAME)) and tree.subscriptions)
    numbers = {peer: village.act(peer, lambda p: p.topics.inspection.survey(NAME, 5.0)) for peer in (other, friend)}
    village.run(1)
    told = {peer: village.peers[peer].topics.inspection.surveys[number] for peer, number in numbers.items()}
    ids = {peer: village.world.machines[peer].node_id for peer in (root, friend)}
    [(node, branch)] = told[other].items()
    assert (node, branch.root, branch.children, branch.leases) == (ids[root], True, [], ())
    assert told[friend].keys() == {*ids.values()}
    publisher = next(number for number in village.alive() if village.peers[number].topics.publishing.publishers)
    [writer] = village.peers[publisher].topics.publishing.publishers[TOPIC].values()
    village.publish(publisher, writer, b"another secret")
    village.run(1)
    hops = {peer: village.peers[peer].topics.tracing.hops[number] for peer, number in numbers.items()}
    assert not hops[other]
    assert len(hops[friend]) == 2


def test_a_question_that_comes_straight_to_a_peer_below_the_root_is_not_answered_either() -> None:
    village, _, other = a_village()
    friend = next(number for number in village.alive() if (tree := village.tree(number, NAME)) and tree.subscriptions)
    asker, theirs = village.world.machines[other].contact, FRIEND.warrant(village.world.machines[friend].node_id, TOPIC)
    village.peers[other].topics.inspection.surveys[7] = {}
    for warrants in ((), (theirs,)):  # a warrant is bound to the peer that shows it
        question = Survey(TOPIC, asker, 7, down=True, trace_s=5.0, warrants=warrants)
        village.act(friend, lambda peer, question=question: peer.message(asker, question))
    village.run(1)
    assert not village.peers[other].topics.inspection.surveys[7]
    assert not village.peers[friend].topics.tracing.marks


def test_only_those_on_the_list_are_told_who_holds_up_an_event() -> None:
    village, root, other = a_village()
    friend = next(number for number in village.alive() if (tree := village.tree(number, NAME)) and tree.subscriptions)
    tree = village.tree(root, NAME)
    assert tree is not None
    contacts = [village.world.machines[number].contact for number in range(6)]
    for asker, at, named in ((other, root, []), (other, friend, []), (friend, root, [contacts[friend]])):
        walk = village.peers[asker].topics.inspection.walks[7] = Walk(contacts[at])
        warrants = (FRIEND.warrant(contacts[friend].node_id, TOPIC),)
        question = Laggards(TOPIC, tree.term, 9, contacts[asker], 7, warrants=warrants)
        village.act(at, lambda peer, question=question: peer.message(question.asker, question))
        village.run(1)
        assert walk.answered
        assert walk.withheld == (not named)
        assert walk.behind == ([contacts[root], *named] if named else [])
        assert [contact for contact in walk.asked.values() if contact != contacts[at]] == named


def test_only_who_may_subscribe_is_told_where_there_is_room_in_the_tree() -> None:
    village, root, other = a_village()
    friend = next(number for number in village.alive() if (tree := village.tree(number, NAME)) and tree.subscriptions)
    contacts = {number: village.world.machines[number].contact for number in (friend, other)}
    theirs = FRIEND.warrant(contacts[friend].node_id, TOPIC)
    told: list[bytes] = []
    for asker, warrant in ((other, None), (other, theirs), (friend, theirs)):  # a warrant is bound to its peer
        search = village.peers[asker].topics.climbing.searches[TOPIC] = Search()
        query = PlaceQuery(TOPIC, contacts[asker], warrant)
        village.act(root, lambda peer, query=query: peer.message(query.asker, query))
        village.run(1)
        told += [contacts[asker].node_id] * (search.asked is not None)
    assert told == [contacts[friend].node_id]


def test_a_subscriber_gets_repairs_from_peers_that_are_not_its_neighbours() -> None:
    village, root, other = a_village()
    tree, asker = village.tree(root, NAME), village.world.machines[other].contact
    assert tree is not None
    warrant = FRIEND.warrant(asker.node_id, TOPIC)
    village.act(root, lambda peer: peer.message(asker, Fetch(TOPIC, tree.term, [(0, 1)], warrant=warrant)))
    village.run(1)
    assert village.peers[other].table.dropped == 1, "it came, and this peer had no use for it"


def test_a_child_that_stays_although_it_was_taken_off_the_list_gets_nothing_more_and_holds_nobody_up() -> None:
    village, root, _ = a_village()
    friend = next(number for number in village.alive() if (tree := village.tree(number, NAME)) and tree.subscriptions)
    peer = village.peers[friend]
    peer.topics.rights.learned = lambda tree, *, first: None  # type: ignore[method-assign]
    answers = list[object]()
    wanted = {"subscribers": [OWNER.principal]}
    village.act(0, lambda peer: peer.change(NAME, wanted, answers.append, OWNER.own))
    village.run(4)
    number = next(each for each in village.alive() if village.peers[each].topics.publishing.publishers)
    [publisher] = village.peers[number].topics.publishing.publishers[TOPIC].values()
    village.publish(number, publisher, b"another secret")
    village.run(2)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert isinstance(answers[0], Descriptor)
    assert tree.leases.children[peer.host.me].barred
    assert village.marks["fetch_denied"] > 0, "it asks for what it misses"
    assert publisher.stable == 2, "and is told that it does not get that"
    village.run(peer.topics.config.lease_s + 10)
    assert peer.host.me not in tree.leases.children
