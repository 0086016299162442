"""What a peer does before it becomes a root, and what others keep for it (docs/delivery.md, *Roots that move*)."""

from typing import Any

import msgspec
import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, RELIABLE_STREAMS, Envelope, Kind, Term
from quillcast.core.errors import QuillcastError
from quillcast.core.ids import number
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.trace import BecameRoot
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.messages import Routed
from quillcast.protocol.security.access import AccessDenied, entry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.known import successors
from quillcast.protocol.topics.known.comparing import CompareDue
from quillcast.protocol.topics.known.replica_set import TopicDoubt
from quillcast.protocol.topics.messages import Accepted, Denied, Have, Join
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root.candidacy import WAITING_MAX, Candidacy, RootCheckDue
from quillcast.protocol.topics.root.replication import Round, RoundsDue
from quillcast.protocol.topics.root_messages import (
    Create,
    Created,
    FindRoot,
    NotRoot,
    Recorded,
    RecordState,
    RootIs,
    StateAnswer,
    StateDigest,
    StateQuery,
    TopicEntry,
    TransferLeadership,
)
from quillcast.sim.host import SimHost
from tests.ids import from_number
from tests.protocol.topics.test_terms import NAME, TOPIC, by_distance
from tests.protocol.topics.village import Reader, Village, Writer

OWNER, FRIEND, STRANGER = (Credentials.new() for _ in range(3))


class Sent(list[tuple[int, int, Any]]):
    """What the peers of a village send: by whom, to whom, what."""

    def __init__(self, village: Village, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        numbers = {machine.node_id: machine.number for machine in village.world.machines}
        send = SimHost.send

        def noted(host: SimHost, to: Contact, message: Any) -> None:
            self.append((host.machine.number, numbers.get(to.node_id, -1), message))
            send(host, to, message)

        monkeypatch.setattr(SimHost, "send", noted)

    def of(self, *types: type) -> list[tuple[int, int, Any]]:
        return [entry for entry in self if isinstance(entry[2], types)]


LIST = (entry("publish", FRIEND.principal),)


def listed(descriptor: Descriptor) -> Descriptor:
    """With an owner, who lets a friend publish."""
    return OWNER.own(msgspec.structs.replace(descriptor, access=LIST))


def create(village: Village, peer: int, **options: Any) -> list[Descriptor | QuillcastError]:
    answers: list[Descriptor | QuillcastError] = []
    village.act(peer, lambda it: it.create(NAME, Settings(slow="wait"), answers.append, options.get("own")))
    return answers


def restart(village: Village, peer: int) -> None:
    """The process ends and starts again under the same nodeId: it knows nothing, and others may not have noticed."""
    village.kill(peer, silently=True)
    village.world.start(village.world.machines[peer])


def wait_for(village: Village, peer: int) -> None:
    """Let time pass until the peer is active, and no longer."""
    while not village.peers[peer].active:
        village.run(0.01)


def pause(village: Village, *peers: int) -> list[SimHost]:
    hosts = [village.world.machines[peer].host for peer in peers]
    for host in hosts:
        assert host is not None
        host.pause()
    return [host for host in hosts if host is not None]


def terms(village: Village) -> list[str]:
    return [record.how for _, _, record in village.world.journal.records if isinstance(record, BecameRoot)]


# ---- before a term


def test_a_candidate_asks_the_replicas_has_its_term_recorded_and_then_accepts_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    village = Village(8)
    root, *replicas = by_distance(village)[:5]
    asked = by_distance(village)[1:6]  # the k closest others: had this peer just come, they would be the replicas
    sent = Sent(village, monkeypatch)
    village.subscribe(by_distance(village)[-1], NAME, Reader())
    village.run(1)
    steps = [(to, type(message)) for by, to, message in sent.of(StateQuery, RecordState, Accepted) if by == root]
    assert {to for to, _ in steps[:5]} == {*asked}
    assert {to for to, _ in steps[5:9]} == {*replicas}
    assert [what for _, what in steps] == [StateQuery] * 5 + [RecordState] * 4 + [Accepted]
    answers = [message for _, to, message in sent.of(StateAnswer, Recorded) if to == root]
    term = Term(1, village.world.machines[root].node_id[:8] + village.peers[root].host.incarnation).noting(owned=False)
    assert answers[:5] == [StateAnswer([TopicEntry(TOPIC, None, NO_TERM)], number=1)] * 5
    assert [message.topics[0][:2] for message in answers[5:]] == [(TOPIC, term)] * 4
    assert terms(village) == ["created"]


def test_a_candidate_that_is_alone_asks_no_replica() -> None:
    village = Village(1)
    answers = create(village, 0)
    assert len(answers) == 1
    assert village.tree(0, NAME).root is not None  # type: ignore[union-attr]
    assert village.peers[0].topics.creating.holders[TOPIC] == 1


def test_requests_for_a_root_before_its_term_begins_wait_and_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    village = Village(8)
    root, *replicas = by_distance(village)[:5]
    resting = pause(village, *replicas[:3])  # most of those to be asked; nobody suspects them yet
    sent = Sent(village, monkeypatch)
    reader, far = Reader(), by_distance(village)[-2:]
    village.subscribe(far[0], NAME, reader)
    publisher = village.publisher(far[1], NAME)
    answers = create(village, far[1])
    village.run(1.5)
    assert (reader.start, publisher.root, answers) == (None, None, [])
    candidacy = village.peers[root].topics.candidacies.by_topic[TOPIC]
    assert len(candidacy.requests) == 3
    for host in resting:
        host.resume()
    village.run(1)
    assert reader.start is not None
    assert publisher.root is not None
    assert [answer.settings.slow for answer in answers if isinstance(answer, Descriptor)] == ["wait"]
    assert len(sent.of(Created)) == len(sent.of(RootIs)) == 1


def test_what_waits_for_a_root_says_by_then_that_events_have_been_there_for_longer() -> None:
    candidacy = Candidacy(TOPIC, "created", 0.0)
    child, stream, term = Contact(bytes(16), "child:1"), Term(RELIABLE_STREAMS + 1, bytes(16)), Term(3, bytes(16))
    join = Join(TOPIC, child, None, b"", streams=((stream, 4, 0),), milestones=(((4, 1.0),),), ended=((stream, 2, ()),))
    find = FindRoot(TOPIC, child, None, term, spoke_s=0.5, settled=((term, 7, 1500),), dropped=((term, 9, NUMBER_MAX),))
    create = Create(Descriptor(NAME), child)
    candidacy.enter(join, 10.0)
    candidacy.enter(find, 11.0)
    candidacy.enter(create, 11.0)
    assert candidacy.aged_requests(12.0) == [
        msgspec.structs.replace(join, milestones=(((4, 3.0),),)),
        msgspec.structs.replace(find, spoke_s=1.5, settled=((term, 7, 2500),), dropped=((term, 9, NUMBER_MAX),)),
        create,
    ]


def test_so_many_wait_and_no_more() -> None:
    village = Village(8)
    root, *replicas = by_distance(village)[:5]
    pause(village, *replicas)
    for count in range(WAITING_MAX + 5):
        asker = Contact(count.to_bytes(16), "nowhere:1")
        village.act(root, lambda peer, c=asker: peer.topics.rendezvous.find(FindRoot(TOPIC, c, None, NO_TERM)))
    assert len(village.peers[root].topics.candidacies.by_topic[TOPIC].requests) == WAITING_MAX


def test_a_question_about_settings_takes_no_place_of_what_the_same_peers_publishers_know() -> None:
    village = Village(6)
    root, *replicas = by_distance(village)
    village.run(10)
    pause(village, *replicas)
    asker = village.world.machines[replicas[-1]].contact
    knows = FindRoot(TOPIC, asker, Descriptor(NAME), Term(3, b"t" * 16), settled=((Term(3, b"t" * 16), 5, 0),))
    for request in (knows, FindRoot(TOPIC, asker, None, NO_TERM)):
        village.act(root, lambda peer, asked=request: peer.topics.rendezvous.find(asked))
    assert knows in village.peers[root].topics.candidacies.by_topic[TOPIC].requests.values()


def test_most_answers_are_enough_once_the_others_had_time() -> None:
    village = Village(8)
    _, *replicas = by_distance(village)[:5]
    village.run(10)
    pause(village, *replicas[:2])
    reader = Reader()
    village.subscribe(by_distance(village)[-1], NAME, reader)
    village.run(TopicConfig().ask_patience_s)
    assert reader.start is None
    village.run(1)
    assert reader.start is not None


def test_a_suspected_replica_is_not_waited_for() -> None:
    village = Village(3)
    pause(village, by_distance(village)[1])
    village.run(12)
    reader = Reader()
    village.subscribe(by_distance(village)[2], NAME, reader)
    village.run(1)
    assert reader.start is not None


def test_a_joining_replica_is_not_waited_for_and_its_answer_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    village = Village(8)
    root, *replicas = by_distance(village)[:5]
    for peer in replicas[:2]:
        monkeypatch.setattr(village.peers[peer].overlay.lifecycle, "active", False)
    resting = pause(village, replicas[2])
    reader = Reader()
    village.subscribe(by_distance(village)[-1], NAME, reader)
    village.run(2)
    assert village.tree(root, NAME) is None, "two of five do not make a topic new"
    resting[0].resume()
    village.run(1)
    assert village.root(NAME) == root


def test_newcomers_ask_earlier_replicas_and_learn_which_peers_those_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one replica died, and where it was are two that never heard of it."""
    village = Village(6, config=Config(topics=TopicConfig(replicas=1)))
    village.kill(by_distance(village)[0])
    village.run(10)
    root, joining = (village.add(from_number(number(TOPIC) + more)).number for more in (1, 2))
    monkeypatch.setattr(village.peers[joining].overlay.lifecycle, "active", False)
    for other in (peer for peer in village.alive() if peer != joining):
        village.peers[other].overlay.agreement.joining = {village.world.machines[joining].node_id: None}
    village.subscribe(by_distance(village)[-1], NAME, Reader())
    village.run(3)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    assert tree.root.hold_until > village.peers[root].host.now() + 10, "the topic may have been in use until then"
    village.run(30)
    assert tree.root.hold_until <= village.peers[root].host.now()


def test_a_peer_that_loses_all_others_takes_no_topic_for_new_because_its_leaf_set_was_full_before() -> None:
    """It keeps the state of few topics then, and of all topics where its leaf set reaches around the ring."""
    village = Village(7, config=Config(overlay=OverlayConfig(leaf_set_size=4)))
    lonely = by_distance(village)[4]
    village.subscribe(by_distance(village)[0], NAME, Reader())
    village.run(2)
    village.world.cut(lambda a, b: (a == lonely) != (b == lonely))
    village.run(6)
    village.subscribe(lonely, NAME, Reader())
    village.run(6)
    tree = village.tree(lonely, NAME)
    assert tree is not None
    assert tree.root is not None
    assert tree.root.hold_until > village.peers[lonely].host.now() + 15


def test_a_peer_that_loses_the_only_one_that_kept_the_state_takes_no_topic_for_new() -> None:
    """The time since its own process began says nothing of a root beyond a cut."""
    village = Village(4, config=Config(topics=TopicConfig(replicas=1)))
    village.run(TopicConfig().lease_s)
    root, *_, lonely = by_distance(village)
    village.subscribe(root, NAME, Reader())
    village.world.cut(lambda a, b: (a == lonely) != (b == lonely))
    village.run(10)
    village.subscribe(lonely, NAME, Reader())
    village.run(1)
    tree = village.tree(lonely, NAME)
    assert tree is not None
    assert tree.root is not None
    assert tree.root.after is None
    assert tree.root.hold_until > village.peers[lonely].host.now() + 15


def without(village: Village, *lost: int) -> None:
    """The others notice that these have died."""
    for peer in lost:
        village.kill(peer, silently=True)
    village.run(10)


@pytest.mark.parametrize("restarted", [True, False])
def test_a_restarted_peer_that_misses_all_it_knew_takes_no_topic_for_new_although_they_are_few(restarted: bool) -> None:
    village = Village(3)
    village.run(TopicConfig().lease_s)
    root, *others = by_distance(village)
    without(village, *others)
    replica_set = village.peers[root].topics.replica_set
    replica_set.began_at = village.peers[root].host.now() if restarted else replica_set.began_at
    village.subscribe(root, NAME, Reader())
    village.run(1)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    held = tree.root.hold_until > village.peers[root].host.now() + 15
    assert held == restarted, "the process before would have known the topic, and so would this one"


@pytest.mark.parametrize("restarted", [True, False])
def test_a_restarted_peer_does_not_know_that_a_topic_is_new_to_those_that_are_lost(restarted: bool) -> None:
    village = Village(4)
    village.run(TopicConfig().lease_s)
    told, asker, *lost = by_distance(village)
    without(village, *lost)
    replica_set, now = village.peers[told].topics.replica_set, village.peers[told].host.now()
    replica_set.began_at = now if restarted else replica_set.began_at
    until = replica_set.doubt(TOPIC, village.world.machines[asker].node_id).until
    assert (until > now + 15) == restarted


def test_a_root_that_took_a_topic_for_new_asks_lost_peers_that_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that had a reader once, and keeps the state for nobody, may know the owner."""
    village = Village(4, config=Config(topics=TopicConfig(replicas=1)))
    root, *_, former = by_distance(village)
    village.act(former, lambda peer: peer.topics.known.learn(listed(Descriptor(NAME, version=1))))
    cut = village.world.cut(lambda a, b: (a == former) != (b == former))
    village.run(TopicConfig().lease_s)
    village.subscribe(root, NAME, Reader())
    village.run(1)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    sent = Sent(village, monkeypatch)
    village.world.heal(cut)
    village.run(6)
    assert tree.descriptor.owner_key
    assert tree.term.owned
    asked = len(sent.of(StateQuery))
    village.add()
    assert len(sent.of(StateQuery)) == asked, "it has answered"


def test_a_topic_is_not_new_because_those_who_would_know_are_suspected_and_were_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    village = Village(8)
    peer = village.peers[by_distance(village)[-1]]
    monkeypatch.setattr(peer.neighbours, "suspected", lambda node: True)
    doubt, me, now = peer.topics.replica_set.doubt, peer.host.me, peer.host.now()
    answered = [machine.node_id for machine in village.world.machines]
    assert doubt(TOPIC, me, ()).until == now + TopicConfig().lease_s
    assert doubt(TOPIC, me, answered) == doubt(TOPIC, answered[0]) == TopicDoubt()


@pytest.mark.parametrize("knows", [2, 3], ids=["next", "near"])
def test_a_candidate_asks_others_in_place_of_those_that_it_suspects_and_all_that_are_near_if_it_doubts(
    knows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only one that kept the state is beyond a cut, and one that had a reader once is not."""
    village = Village(5, config=Config(topics=TopicConfig(replicas=1)))
    village.run(TopicConfig().lease_s)
    former, root, suspected, *others = by_distance(village)
    village.act(
        [suspected, *others][knows - 1], lambda peer: peer.topics.known.learn(listed(Descriptor(NAME, version=1)))
    )
    without(village, former)
    me, node = village.peers[root], village.world.machines[suspected].node_id
    monkeypatch.setattr(me.neighbours, "suspected", lambda each: each == node)
    if knows == 2:  # there is no doubt: nobody is known to be lost
        monkeypatch.setattr(me.topics.replica_set, "doubt", lambda *_: TopicDoubt())
    village.subscribe(root, NAME, Reader())
    village.run(0.5)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    assert tree.root.term.owned


def test_a_root_that_took_a_topic_for_new_asks_those_whom_it_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    village = Village(4, config=Config(topics=TopicConfig(replicas=1, transfer_s=0.1)))
    root, *_, former = by_distance(village)
    village.act(former, lambda peer: peer.topics.known.learn(listed(Descriptor(NAME, version=1))))
    me, node = village.peers[root], village.world.machines[former].node_id
    monkeypatch.setattr(me.neighbours, "suspected", lambda each: each == node)
    village.subscribe(root, NAME, Reader())
    village.run(2)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.descriptor.owner_key


@pytest.mark.parametrize("answers", [0, 1, 2, 3])
def test_nobody_doubts_that_a_topic_is_new_because_another_lost_peers_that_answered_here(answers: int) -> None:
    """One who is asked cannot reach three of the five that would know, and the candidate may."""
    village = Village(8)
    peer = village.peers[by_distance(village)[0]]
    others = [village.world.machines[number].contact for number in by_distance(village)[1:]]
    teller, lost = others[0], others[2:5]
    rounds: list[Round] = []
    peer.topics.replication.ask(TOPIC, rounds.append)
    number = peer.topics.replication.number
    doubtful = TopicEntry(TOPIC, None, NO_TERM, doubtful_s=9.0, lost=tuple(each.node_id for each in lost))
    peer.message(teller, StateAnswer([doubtful], number=number))
    for each in others[1:]:
        joining = each in lost[answers:]
        peer.message(each, StateAnswer([TopicEntry(TOPIC, None, NO_TERM)], joining, number))
    assert (peer.topics.replication.doubtful_until(rounds[0]) > 0.0) == (answers == 0)


EARLIER = Term(1, bytes(16))


@pytest.mark.parametrize("told_by", ["publisher", "settled", "child", "leases", "nobody", "unused"])
def test_a_root_that_took_a_topic_for_new_holds_stability_back_when_it_hears_of_an_earlier_root(told_by: str) -> None:
    """That one's subscribers may still have leases, as beyond a partition."""
    village = Village(6)
    root, other = by_distance(village)[:2]
    village.subscribe(root, NAME, Reader())
    village.run(1)
    contact = village.world.machines[other].contact
    descriptor = Descriptor(NAME)
    child = Join(TOPIC, contact, Have(EARLIER, 0), descriptor.digest, descriptor)
    words: dict[str, Any] = {
        "publisher": FindRoot(TOPIC, contact, descriptor, EARLIER),
        "settled": FindRoot(TOPIC, contact, descriptor, NO_TERM, settled=((EARLIER, 3, 0),)),
        "child": child,
        "leases": TransferLeadership(descriptor, EARLIER, 0, 0, leases=(contact.node_id,)),
        "nobody": FindRoot(TOPIC, contact, descriptor, NO_TERM),
        "unused": TransferLeadership(descriptor, EARLIER, 0, 0),
    }
    word = words[told_by]
    if isinstance(word, TransferLeadership):
        village.act(root, lambda peer: peer.topics.next_root.received(contact, word))
    else:
        village.act(root, lambda peer: peer.topics.dispatch.routed(word))
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    assert terms(village) == ["created"]
    held_s = 0.0 if told_by in ("nobody", "unused") else TopicConfig().lease_s
    assert max(0.0, tree.root.held_until - tree.root.began_at) == pytest.approx(held_s)


def test_a_replica_with_a_later_term_is_outbid() -> None:
    village = Village(8)
    root, replica = by_distance(village)[:2]
    village.act(replica, lambda peer: peer.topics.known.enter(TOPIC, Term(7, bytes(16))))
    village.subscribe(root, NAME, Reader())
    village.run(1)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.term.counter == 8
    assert terms(village) == ["took_over"], "orphans of the seventh may be on their way"


def test_a_term_that_a_replica_recorded_for_another_peer_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's word came after this peer had asked."""
    village = Village(8)
    root, replica = by_distance(village)[:2]
    sent = Sent(village, monkeypatch)
    village.subscribe(root, NAME, Reader())
    while not any(by == root for by, _, _ in sent.of(RecordState)):
        village.run(0.005)
    village.act(replica, lambda peer: peer.topics.known.enter(TOPIC, Term(4, bytes(16))))
    village.run(1)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.term.counter == 5
    assert village.marks["noted_anew"] == 1


def test_what_was_recorded_before_a_pause_makes_no_root_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are read after the pause, and another peer has been root for some time."""
    village = Village(8)
    root, other = by_distance(village)[:2]
    sent = Sent(village, monkeypatch)
    village.subscribe(root, NAME, Reader())
    while not any(by == root for by, _, _ in sent.of(RecordState)):
        village.run(0.005)
    resting = pause(village, root)
    village.subscribe(by_distance(village)[-1], NAME, Reader())
    village.run(15)
    assert village.root(NAME) == other
    resting[0].resume()
    village.run(3)
    assert village.root(NAME) == root
    assert "created" not in terms(village)


def test_a_topic_that_is_about_to_be_transferred_is_waited_for() -> None:
    """The next root is asked for the topic before the present one has handed it over."""
    village = Village(8)
    old = by_distance(village)[0]
    village.subscribe(by_distance(village)[3], NAME, Reader())
    village.run(3)
    tree = village.tree(old, NAME)
    assert tree is not None
    asked = FindRoot(TOPIC, village.world.machines[3].contact, None, NO_TERM)
    new = village.world.add(from_number(number(TOPIC)))
    village.world.start(new)
    village.act(old, lambda peer: setattr(peer.topics.moving_roots, "move", lambda tree: None))
    village.run(2)
    village.act(new.number, lambda peer: peer.topics.dispatch.routed(asked))
    village.run(1)
    assert village.root(NAME) == old
    village.act(old, lambda peer: peer.topics.resigning.resign(tree))
    village.run(1)
    assert village.root(NAME) == new.number
    assert terms(village) == ["created", "transferred"]


def test_one_that_is_not_handed_the_topic_outdoes_the_root_in_the_end() -> None:
    """That one hears of the later term, and hands the topic over, so that nobody waits for a lease."""
    village = Village(8)
    old = by_distance(village)[0]
    village.subscribe(by_distance(village)[3], NAME, Reader())
    village.run(3)
    asked = FindRoot(TOPIC, village.world.machines[3].contact, None, NO_TERM)
    new = village.world.add(from_number(number(TOPIC)))
    village.world.start(new)
    village.act(old, lambda peer: setattr(peer.topics.moving_roots, "move", lambda tree: None))
    village.run(2)
    village.act(new.number, lambda peer: peer.topics.dispatch.routed(asked))
    village.run(TopicConfig().transfer_s + 2)
    assert village.root(NAME) == new.number
    assert terms(village) == ["created", "transferred"]


def test_an_unused_topic_is_transferred_on_to_a_closer_peer() -> None:
    """Else that one takes over from it, and waits a lease's time for those that the last root had named."""
    village = Village(6)
    _, holder, before = by_distance(village)[:3]
    contacts = village.world.machines[before].contact, village.world.machines[holder].contact
    message = TransferLeadership(Descriptor(NAME), Term(3, contacts[0].node_id), 0, 0, hold_s=9.0)
    village.act(before, lambda peer: peer.topics.telling.tell(contacts[1], message))
    village.run(0.1)
    village.act(holder, lambda peer: peer.topics.offers.leaf_set_changed())
    assert village.peers[holder].topics.offers.by_topic == {}
    village.run(3)
    assert terms(village) == ["transferred"]
    tree = village.tree(village.root(NAME), NAME)
    assert tree is not None
    assert tree.root is not None
    left_s = tree.root.hold_until - village.peers[village.root(NAME)].host.now()
    assert left_s == pytest.approx(6.0, abs=0.1)


def test_the_root_of_an_unused_topic_names_no_peers_to_the_next_root() -> None:
    village = Village(6)
    create(village, 3)
    village.run(2)
    newcomer = village.add(from_number(number(TOPIC))).number
    publisher = village.publisher(newcomer, NAME)
    village.publish(newcomer, publisher, b"event")
    village.run(1)
    assert village.root(NAME) == newcomer
    assert publisher.stable == 1


def test_requests_are_forwarded_to_a_closer_peer_that_appears() -> None:
    village = Village(8)
    root, *replicas = by_distance(village)[:5]
    resting = pause(village, *replicas)
    reader = Reader()
    village.subscribe(by_distance(village)[-1], NAME, reader)
    village.run(0.5)
    assert TOPIC in village.peers[root].topics.candidacies.by_topic
    closer = Contact(from_number(number(TOPIC)), "nowhere:1")
    village.act(root, lambda peer: peer.overlay.leaf_set.add(closer))
    village.act(root, lambda peer: peer.topics.scribe.leaf_set_changed())
    assert village.peers[root].topics.candidacies.by_topic == {}
    assert village.marks["candidacy_abandoned"] == 1
    for host in resting:
        host.resume()


def test_a_recorded_but_unused_term_of_a_new_topic_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closer peer came meanwhile. It finds a term noted, and cannot know by itself that no event has it."""
    village = Village(8)
    root = by_distance(village)[0]
    village.subscribe(by_distance(village)[-1], NAME, Reader())
    candidacies = village.peers[root].topics.candidacies
    while TOPIC not in candidacies.by_topic or not candidacies.by_topic[TOPIC].noting:
        village.run(0.001)
    sent = Sent(village, monkeypatch)
    closer = Contact(from_number(number(TOPIC)), "nowhere:1")
    village.act(root, lambda peer: peer.overlay.leaf_set.add(closer))
    village.act(root, lambda peer: peer.topics.scribe.leaf_set_changed())
    ((_, _, message),) = sent.of(TransferLeadership)
    assert (message.index, message.hold_s, message.leases) == (0, 0.0, ())
    village.act(root, lambda peer: peer.overlay.leaf_set.remove(closer.node_id))
    village.act(root, lambda peer: peer.topics.next_root.received(closer, message))
    village.run(3)
    assert terms(village) == ["transferred"]
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    assert tree.root.hold_until <= village.peers[root].host.now()


def test_a_request_that_is_routed_nowhere_else_is_answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the only closer peer is suspected nothing is routed to it: what is sent on would come back at once.

    It gets the topic once it is suspected no more.
    """
    village = Village(8)
    root = by_distance(village)[1]
    overlay = village.peers[root].overlay
    monkeypatch.setattr(overlay, "next_hop", lambda key: None)
    assert not overlay.is_closest(TOPIC)
    asked = FindRoot(TOPIC, village.world.machines[root].contact, Descriptor(NAME), NO_TERM)
    village.act(root, lambda peer: peer.topics.dispatch.routed(asked))
    village.run(1)
    assert terms(village) == ["created"]
    monkeypatch.undo()
    village.run(3)
    assert terms(village) == ["created", "transferred"]


def test_a_peer_that_has_left_the_overlay_drops_what_waits_for_it() -> None:
    village = Village(8)
    root, *replicas = by_distance(village)[:5]
    resting = pause(village, *replicas)
    village.publisher(by_distance(village)[-1], NAME)
    village.run(0.5)
    assert TOPIC in village.peers[root].topics.candidacies.by_topic
    village.act(root, lambda peer: peer.overlay.leave())
    village.act(root, lambda peer: peer.topics.candidacies.leaf_set_changed())
    assert village.peers[root].topics.candidacies.by_topic == {}
    for host in resting:
        host.resume()


# ---- lists and settings are not forgotten


@pytest.mark.parametrize("restarted", [0, 1, 4])
def test_a_root_that_returns_without_memory_admits_nobody(restarted: int) -> None:
    """It is asked before neighbours had time to tell it anything."""
    village = Village(5)
    create(village, 3, own=listed)
    village.run(2)
    back = by_distance(village)[restarted]
    restart(village, back)
    wait_for(village, back)
    writer = Writer()
    publisher = village.act(back, lambda peer: peer.publisher(NAME, writer))
    village.publish(back, publisher, b"sneaky")
    village.run(8)
    assert publisher.admitted == 0
    assert isinstance(writer.error, AccessDenied)
    warrant = FRIEND.warrant(village.world.machines[back].node_id, TOPIC)
    friend = village.act(back, lambda peer: peer.publisher(NAME, Writer(), warrant))
    village.publish(back, friend, b"welcome")
    village.run(8)
    assert friend.admitted == 1


def test_a_root_admits_nothing_of_a_peer_that_has_not_shown_on_whose_behalf_it_publishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever that peer's own process thinks of the list."""
    village = Village(5)
    root, sneak = by_distance(village)[0], by_distance(village)[2]
    create(village, sneak, own=listed)
    village.run(2)
    sent = Sent(village, monkeypatch)
    bundle = Bundle(Envelope(TOPIC, Kind.UP), (Block.seal(b"p" * 16, 0, [b"sneaky"], time_ns=0),))
    hosts = [village.world.machines[peer].host for peer in (root, sneak)]
    assert hosts[0] is not None
    assert hosts[1] is not None
    village.act(sneak, lambda _: hosts[1].carry(hosts[0].contact, bundle))
    village.run(1)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    assert (tree.root.index, tree.root.admissions) == (0, {})
    assert [(by, to) for by, to, _ in sent.of(Denied)] == [(root, sneak)]
    assert not any(hosts[0].charged.values()), "its credit goes back all the same"


def test_a_waiting_child_is_judged_by_the_access_list_of_the_replicas() -> None:
    village = Village(8)
    root, replica = by_distance(village)[:2]
    descriptor = OWNER.own(Descriptor(NAME, version=1, access=(entry("subscribe", FRIEND.principal),)))
    village.act(replica, lambda peer: peer.topics.known.learn(descriptor))
    reader = Reader()
    village.subscribe(by_distance(village)[-1], NAME, reader)
    village.run(2)
    assert isinstance(reader.error, AccessDenied)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert not tree.leases.children


def test_if_first_use_creates_no_topic_a_root_asks_before_it_refuses() -> None:
    village = Village(5, config=Config(topics=TopicConfig(auto_create=False)))
    create(village, 3)
    village.run(2)
    root = by_distance(village)[0]
    restart(village, root)
    wait_for(village, root)
    reader = Reader()
    village.subscribe(root, NAME, reader)
    village.run(8)
    assert reader.error is None
    assert reader.start is not None


def test_a_query_about_an_unknown_topic_makes_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    village = Village(5)
    root, asker = by_distance(village)[0], by_distance(village)[-1]
    village.act(root, lambda peer: peer.topics.known.learn(Descriptor(NAME)))  # somebody assumed it once
    sent = Sent(village, monkeypatch)
    asked = FindRoot(TOPIC, village.world.machines[asker].contact, None, NO_TERM)
    village.act(root, lambda peer: peer.topics.dispatch.routed(asked))
    village.run(1)
    assert village.tree(root, NAME) is None
    assert [message for _, to, message in sent.of(NotRoot) if to == asker] == [NotRoot(TOPIC, None, unknown=True)]


# ---- what is kept


def test_a_create_is_answered_when_a_majority_of_replicas_recorded_it() -> None:
    village = Village(8)
    _, *replicas = by_distance(village)[:5]
    resting = pause(village, *replicas[:3])
    answers = create(village, by_distance(village)[-1])
    village.run(2)
    assert answers == []
    resting[0].resume()
    village.run(2)
    assert len(answers) == 1
    assert village.peers[by_distance(village)[-1]].topics.creating.holders[TOPIC] == 3
    kept = [peer for peer in village.alive() if village.peers[peer].topics.known.terms.get(TOPIC)]
    assert len(kept) >= 3


def test_a_change_is_answered_when_a_majority_of_replicas_recorded_it() -> None:
    village = Village(8)
    _, *replicas = by_distance(village)[:5]
    changer = by_distance(village)[-1]
    create(village, changer)
    village.run(3)
    resting = pause(village, *replicas[:3])
    answers: list[Any] = []
    village.act(changer, lambda peer: peer.change(NAME, {"slow": "cut"}, answers.append))
    village.run(2)
    assert answers == []
    for host in resting:
        host.resume()
    village.run(3)
    assert [answer.settings.slow for answer in answers] == ["cut"]
    versions = [village.peers[peer].topics.descriptors[TOPIC].version for peer in replicas]
    assert versions == [2] * 4


def test_a_replica_that_lost_its_memory_gets_the_state_again() -> None:
    village = Village(8)
    replicas = by_distance(village)[:5]
    create(village, replicas[0])
    village.run(3)
    restart(village, replicas[3])
    wait_for(village, replicas[3])
    village.run(1)
    known = [village.peers[peer].topics.known.entry(TOPIC) for peer in replicas]
    assert [entry.descriptor for entry in known] == [known[0].descriptor] * 5
    assert [entry.term for entry in known] == [known[0].term] * 5


def test_a_new_replica_gets_the_state() -> None:
    village = Village(8)
    create(village, 3)
    village.run(3)
    newcomer = village.add(from_number(number(TOPIC) + 1)).number
    village.run(3)
    assert village.peers[newcomer].topics.descriptors[TOPIC].settings.slow == "wait"
    assert TOPIC in village.peers[newcomer].topics.known.terms


def test_a_former_replica_passes_its_state_on_when_the_others_are_beyond_a_partition() -> None:
    village = Village(6, config=Config(topics=TopicConfig(replicas=1)))
    *_, former = ring = by_distance(village)
    create(village, former)
    village.run(3)
    term = village.peers[ring[0]].topics.known.terms[TOPIC]
    village.act(former, lambda peer: peer.topics.known.enter(TOPIC, term))
    village.run(10)
    village.world.cut(lambda a, b: (a in ring[:3]) != (b in ring[:3]))
    village.run(15)
    assert village.peers[ring[3]].topics.known.entry(TOPIC).term == term


def test_a_former_replica_passes_on_what_changes_after_the_others_have_the_state() -> None:
    village = Village(3, config=Config(topics=TopicConfig(replicas=1)))
    closest, _, former = by_distance(village)
    create(village, former)
    village.run(3)
    kept = village.peers[closest].topics.known.terms
    for counter in (50, 100):
        village.act(former, lambda it, n=counter: it.topics.known.enter(TOPIC, Term(n, bytes(16))))
        while kept[TOPIC].counter < counter and village.world.now < 20:
            village.run(0.05)
    assert kept[TOPIC].counter >= 100


def test_neighbours_with_equal_state_send_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    village = Village(8)
    create(village, 3)
    village.run(20)
    sent = Sent(village, monkeypatch)
    village.run(120)
    assert sent.of(StateDigest, RecordState, StateQuery) == []


def test_only_the_part_that_differs_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    village = Village(2)
    for topic in range(200):
        village.subscribe(0, f"one/{topic}", Reader())
    village.run(20)
    sent = Sent(village, monkeypatch)
    known = village.peers[1].topics.known
    village.act(1, lambda _: known.enter(next(iter(known.terms)), Term(9, bytes(16))))
    village.run(20)
    assert 0 < sum(len(message.entries) for _, _, message in sent.of(RecordState)) < 100
    terms = [village.peers[peer].topics.known.terms for peer in (0, 1)]
    assert terms[0] == terms[1]


def test_timers_of_rounds_that_are_over_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    village = Village(3)
    village.subscribe(0, NAME, Reader())
    village.run(5)
    sent = Sent(village, monkeypatch)
    for timer in (RoundsDue(again=True), RoundsDue(again=False), CompareDue(0), RootCheckDue(TOPIC, 0.0)):
        village.act(0, lambda peer, t=timer: peer.timer(t))
    assert sent == []


# ---- a partition


def published(village: Village, peer: int, publisher: Publisher) -> tuple[int, bool]:
    """How many events are admitted once another was published, and is the word on that marked?"""
    village.publish(peer, publisher, b"event")
    village.run(0.5)
    return publisher.admitted, publisher.partitioned


@pytest.mark.parametrize(("count", "apart"), [(2, 1), (5, 3), (8, 3), (8, 4)])
def test_a_root_without_a_majority_of_replicas_marks_its_acknowledgements(count: int, apart: int) -> None:
    village = Village(count)
    root = by_distance(village)[0]
    away = by_distance(village)[1 : 1 + apart]
    publisher = village.publisher(root, NAME)
    village.run(2)
    assert published(village, root, publisher) == (1, False)
    cut = village.world.cut(lambda a, b: (a in away) != (b in away))
    village.run(12)
    assert published(village, root, publisher) == (2, True)
    village.world.heal(cut)
    village.run(6)
    assert published(village, root, publisher) == (3, False)
    assert published(village, root, publisher) == (4, False)


def test_if_set_so_nothing_is_acknowledged_during_a_partition_and_all_is_delivered_later() -> None:
    """Each side delivers what it has; publishers keep it until the rivals have met, and then it comes to the others."""
    village = Village(6)
    here, there = by_distance(village)[::2], by_distance(village)[1::2]
    village.act(here[0], lambda it: it.create(NAME, Settings(partition="wait"), lambda answer: None))
    readers = {peer: Reader() for peer in (here[1], there[1])}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    publishers = {peer: village.publisher(peer, NAME) for peer in (here[2], there[2])}
    village.run(3)
    cut = village.world.cut(lambda a, b: (a in here) != (b in here))
    village.run(12)
    for peer, publisher in publishers.items():
        village.publish(peer, publisher, b"from %d" % peer)
    village.run(5)
    assert [len(reader.payloads) for reader in readers.values()] == [1, 1]
    marks = [(publisher.admitted, publisher.stable) for publisher in publishers.values()]
    assert (0, 0) in marks, "one side has no majority"
    village.world.heal(cut)
    village.run(50)
    assert [publisher.stable for publisher in publishers.values()] == [1, 1]
    assert [len(reader.payloads) for reader in readers.values()] == [2, 2]


def test_one_that_reaches_most_does_not() -> None:
    village = Village(8)
    root = by_distance(village)[0]
    publisher = village.publisher(root, NAME)
    village.run(2)
    for peer in by_distance(village)[1:3]:
        village.kill(peer, silently=True)
    village.run(12)
    assert published(village, root, publisher) == (1, False)


def test_replicas_that_left_or_are_gone_for_longer_than_a_lease_do_not_count() -> None:
    village = Village(2)
    root, other = by_distance(village)
    publisher = village.publisher(root, NAME)
    village.run(2)
    village.act(other, lambda peer: peer.leave())
    village.run(8)
    assert published(village, root, publisher) == (1, False)
    village = Village(2)
    root, other = by_distance(village)
    publisher = village.publisher(root, NAME)
    village.run(2)
    village.kill(other)
    village.run(8)
    assert published(village, root, publisher) == (1, True)
    village.run(32)
    assert published(village, root, publisher) == (2, False)


# ---- ways that are cut in one direction


def test_a_repeated_query_is_answered_over_the_overlay_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that the root sends directly are lost; the peers between reach both."""
    village = Village(8)
    root, far = by_distance(village)[0], by_distance(village)[-1]
    village.subscribe(by_distance(village)[2], NAME, Reader())
    village.run(3)
    village.world.cut(lambda a, b: (a, b) == (root, far))
    sent = Sent(village, monkeypatch)
    asked = FindRoot(TOPIC, village.world.machines[far].contact, None, NO_TERM)
    join = Join(TOPIC, asked.publisher, descriptor=Descriptor(NAME))
    for request, answer in ((asked, RootIs), (join, Accepted), (Create(Descriptor(NAME), asked.publisher), Created)):
        sent.clear()
        village.act(root, lambda peer, r=request: peer.topics.dispatch.routed(r))
        assert [to for _, to, _ in sent.of(answer)] == [far]
        assert sent.of(Routed) == []
        sent.clear()
        again = msgspec.structs.replace(request, again=True)
        village.act(root, lambda peer, r=again: peer.topics.dispatch.routed(r))
        assert [to for _, to, _ in sent.of(answer)] == [far], "it may be outside the ring, which leads nowhere then"
        assert len(sent.of(Routed)) == 1


def test_a_routed_answer_is_used_only_by_its_addressee() -> None:
    village = Village(8)
    root, far, other = by_distance(village)[0], by_distance(village)[-1], by_distance(village)[-2]
    publisher = village.publisher(far, NAME)
    contacts = [village.world.machines[peer].contact for peer in (root, far)]
    message = RootIs(Term(9, bytes(16)), Descriptor(NAME))
    for peer, key in ((other, contacts[1].node_id), (far, contacts[1].node_id)):
        village.act(peer, lambda it, k=key: it.topics.scribe.deliver(message, k, contacts[0]))
        assert (publisher.term == message.term) == (peer == far)


def test_only_what_was_not_answered_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    village = Village(8)
    root, far = by_distance(village)[0], by_distance(village)[-1]
    village.world.cut(lambda a, b: a == root)
    routed: list[Any] = []
    route = village.peers[far].overlay.route
    monkeypatch.setattr(
        village.peers[far].overlay, "route", lambda message, key: (routed.append(message), route(message, key))
    )
    village.publisher(far, NAME)
    village.subscribe(far, "another", Reader())
    create(village, far)
    village.run(4)
    for kind in (FindRoot, Create):
        assert [message.again for message in routed if isinstance(message, kind)][:2] == [False, True]


def test_a_replica_counts_only_if_it_recorded_this_very_descriptor() -> None:
    village = Village(8)
    root, *replicas = by_distance(village)[:5]
    create(village, root)
    village.run(3)
    replication, tree = village.peers[root].topics.replication, village.tree(root, NAME)
    assert tree is not None
    done: list[int] = []
    newer = msgspec.structs.replace(tree.descriptor, version=tree.descriptor.version + 1)
    village.act(root, lambda _: replication.note(newer, tree.term, lambda round_: done.append(round_.holders)))
    for digest, answered in ((tree.descriptor.digest, []), (newer.digest, [3])):
        for replica in replicas[:2]:
            kept = Recorded([(TOPIC, tree.term, digest)])
            village.act(root, lambda peer, k=replica, m=kept: peer.message(village.world.machines[k].contact, m))
        assert done == answered


# ---- what a root remembers of publishers and of topics that it transferred is bounded


def test_a_root_remembers_so_many_bearers_and_none_once_the_topic_is_another_peers() -> None:
    village = Village(8, config=Config(topics=TopicConfig(admissions_max=4)))
    create(village, 3, own=listed)
    village.run(2)
    root = village.root(NAME)
    publishers = []
    for peer in village.alive():
        warrant = FRIEND.warrant(village.world.machines[peer].node_id, TOPIC)
        publisher = village.act(peer, lambda it, warrant=warrant: it.publisher(NAME, Writer(), warrant))
        village.publish(peer, publisher, b"welcome")
        village.run(3)
        village.act(peer, lambda it, publisher=publisher: it.close_publisher(publisher))
        publishers.append(publisher)
    assert [publisher.admitted for publisher in publishers] == [1] * 8
    bearers = village.peers[root].topics.intake.bearers.shown
    assert len(bearers[TOPIC]) == 4
    village.add(TOPIC)  # it is closer to the topic than any other
    village.run(5)
    assert village.root(NAME) != root
    assert TOPIC not in bearers


def test_the_latest_transferred_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successors, "TOPICS_MAX", 3)
    village = Village(2)
    names = [f"topic/{number}" for number in range(30)]
    for name in names:
        village.subscribe(0, name, Reader())
    village.run(2)
    for _ in range(6):
        village.add()
    village.run(3)
    moved = [len(village.peers[peer].topics.intake.successors.by_topic) for peer in village.alive()]
    assert max(moved) == 3


def test_a_root_stays_root_while_the_closer_peer_is_still_joining() -> None:
    village = Village(6)
    root, *others = by_distance(village)
    reader_at, slow = [peer for peer in others if peer][:2]  # the newcomer joins through peer 0
    reader = Reader()
    village.subscribe(reader_at, NAME, reader)
    publisher = village.publisher(root, NAME)
    village.run(3)
    host = village.world.machines[slow].host
    assert host is not None
    host.pause()  # the newcomer waits for its answer
    newcomer = village.add(TOPIC).number
    while village.peers[root].overlay.is_closest(TOPIC):
        village.run(0.1)
    assert not village.peers[newcomer].active
    for count in (1, 2):
        village.publish(root, publisher, b"event")
        village.run(0.5)
        assert (publisher.admitted, village.root(NAME)) == (count, root)
    host.resume()
    village.run(3)
    assert village.peers[newcomer].active
    assert village.root(NAME) == newcomer
    village.publish(root, publisher, b"event")
    village.run(1)
    assert reader.payloads == [b"event"] * 3


def test_a_list_of_publishers_for_a_topic_in_use_holds_from_the_next_term_on_and_holds_nothing_up() -> None:
    village, reader = Village(8), Reader()
    village.subscribe(0, NAME, reader)
    village.run(2)
    publisher = village.publisher(1, NAME)
    village.publish(1, publisher, b"before")
    village.run(2)
    answers: list[Descriptor | QuillcastError] = []
    village.act(2, lambda it: it.create(NAME, Settings(), answers.append, listed))
    village.run(2)
    assert [answer.access for answer in answers if isinstance(answer, Descriptor)] == [LIST]
    tree, peer = village.tree(village.root(NAME), NAME), village.peers[village.root(NAME)]
    assert tree is not None
    assert tree.root is not None
    assert tree.root.term.owned
    assert tree.root.held_until <= peer.host.now()
    assert terms(village) == ["created", "transferred"]
