"""One bare name, created by two owners on two sides of a partition: what holds after it has healed."""

import msgspec
import pytest

from quillcast.core.envelope import NO_TERM, RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.errors import QuillcastError
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.security.access import AccessDenied, entry
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.known.records import send_entries
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root_messages import RecordState, TransferLeadership
from quillcast.protocol.topics.state.effects import RivalLearned
from tests.protocol.recording import BOB as PEER
from tests.protocol.recording import FIRST
from tests.protocol.topics.parts import DESCRIPTOR, Parts
from tests.protocol.topics.test_terms import NAME, TOPIC, by_distance
from tests.protocol.topics.village import Reader, Village, Writer

ALICE, BOB, HER_FRIEND, HIS_FRIEND = (Credentials.new() for _ in range(4))


def owned(owner: Credentials, friend: Credentials, descriptor: Descriptor) -> Descriptor:
    return owner.own(msgspec.structs.replace(descriptor, access=(entry("publish", friend.principal),)))


def create(village: Village, peer: int, owner: Credentials, friend: Credentials) -> Descriptor | QuillcastError:
    answers: list[Descriptor | QuillcastError] = []
    village.act(peer, lambda it: it.create(NAME, Settings(), answers.append, lambda one: owned(owner, friend, one)))
    village.run(5)
    return answers[0]


def published(village: Village, peer: int, who: Credentials, payload: bytes) -> Publisher:
    warrant = who.warrant(village.world.machines[peer].node_id, TOPIC)
    publisher = village.act(peer, lambda it: it.publisher(NAME, Writer(), warrant))
    village.run(3)
    village.publish(peer, publisher, payload)
    village.run(5)
    return publisher


def test_after_a_partition_the_roots_descriptor_holds_and_the_other_owner_learns_whose_it_is() -> None:
    village = Village(8)
    nearest = by_distance(village)
    here, there = nearest[0::2], nearest[1::2]  # the closest peer of all is here
    cut = village.world.cut(lambda a, b: (a in here) != (b in here))
    village.run(40)
    assert create(village, here[1], ALICE, HER_FRIEND) == owned(ALICE, HER_FRIEND, described(NAME, Settings()))
    assert create(village, there[1], BOB, HIS_FRIEND) == owned(BOB, HIS_FRIEND, described(NAME, Settings()))
    readers = [Reader(), Reader()]
    for peer, reader in zip((here[2], there[2]), readers, strict=True):
        village.subscribe(peer, NAME, reader)
    village.run(5)
    assert published(village, here[3], HER_FRIEND, b"hers").admitted == 1
    assert published(village, there[3], HIS_FRIEND, b"his").admitted == 1
    village.world.heal(cut)
    village.run(100)
    assert village.root(NAME) in here
    for peer in (here[1], there[1]):  # also where nothing but the other owner's word was known before
        refused = published(village, peer, HIS_FRIEND, b"refused")
        assert refused.admitted == 0
        error = refused.listener.error  # type: ignore[attr-defined]
        assert isinstance(error, AccessDenied)
        assert f"{ALICE.principal[:8]} (its owner)" in str(error)
        assert published(village, peer, HER_FRIEND, b"admitted").admitted == 1
    assert [reader.payloads for reader in readers] == [[b"hers", *[b"admitted"] * 2], [b"his", *[b"admitted"] * 2]]
    assert village.peers[there[1]].topics.rivals[TOPIC].owner_key == ALICE.own(described(NAME)).owner_key
    again = create(village, there[1], BOB, HIS_FRIEND)
    assert isinstance(again, QuillcastError)
    assert f"another owner or access list: {ALICE.principal[:8]}" in str(again)


@pytest.mark.parametrize(("hers", "other", "stands"), [
    (1, described(NAME), "hers"),
    (1, Descriptor(NAME, Settings(slow="wait"), version=9), "hers"),
    (1, owned(BOB, HIS_FRIEND, Descriptor(NAME, version=9)), "neither"),
    (1, owned(ALICE, HIS_FRIEND, Descriptor(NAME, version=2)), "other"),
])  # fmt: skip
def test_an_owners_descriptor_supersedes_an_unowned_one_and_rivals_another_owners(
    hers: int, other: Descriptor, stands: str
) -> None:
    mine = owned(ALICE, HER_FRIEND, Descriptor(NAME, version=hers))
    assert (mine.supersedes(other), other.supersedes(mine)) == (stands == "hers", stands == "other")
    assert mine.rivals(other) == other.rivals(mine) == (stands == "neither")


@pytest.mark.parametrize(("by_root", "by_source"), [(0, 1), (1, 1), (7, 1), (1, 7)])
def test_a_topic_that_two_sides_of_a_partition_made_is_numbered_by_its_sources_if_one_said_so(
    by_root: int, by_source: int
) -> None:
    root, source = Descriptor(NAME, version=by_root), Descriptor(NAME, Settings(admission="source"), version=by_source)
    assert source.supersedes(root)
    assert not root.supersedes(source)


def later_session(descriptor: Descriptor) -> Descriptor:
    return msgspec.structs.replace(descriptor, version=2, session=1)


@pytest.mark.parametrize("owned_first", [True, False])
def test_terms_may_be_of_a_later_session_that_the_owners_descriptor_put_an_end_to(
    world: Parts, *, owned_first: bool
) -> None:
    """The other side of a partition had no owner, and changed settings. Terms only grow: they stay in its session."""
    mine, other = owned(ALICE, HER_FRIEND, DESCRIPTOR), later_session(DESCRIPTOR)
    for descriptor in (mine, other) if owned_first else (other, mine):
        world.known.learn(descriptor)
    assert world.known.descriptors[DESCRIPTOR.topic] == mine
    assert world.known.rivals == {DESCRIPTOR.topic: other}
    tree = world.open_trees.open(mine)
    term = Term(SESSION_TERMS + RELIABLE_TERMS + 1, bytes(16))
    world.terms.enter(tree, term, 0)
    assert tree.term == term


def test_bundles_of_that_session_wait_for_its_word_and_no_longer(world: Parts) -> None:
    """Else they would wait for good, because the descriptor that stands has fewer sessions."""
    tree = world.open_trees.open(owned(ALICE, HER_FRIEND, DESCRIPTOR))
    world.known.learn(tree.descriptor)
    assert world.arrivals.holds(tree.flow, 1)
    world.known.learn(later_session(DESCRIPTOR))
    assert world.ordered[-1] == RivalLearned(tree.topic)
    assert not world.arrivals.holds(tree.flow, 1)
    assert world.arrivals.holds(tree.flow, 2)


def test_who_is_to_keep_or_to_have_the_topic_hears_of_that_session(world: Parts) -> None:
    mine, other = owned(ALICE, HER_FRIEND, DESCRIPTOR), later_session(DESCRIPTOR)
    tree = world.root(mine)
    world.known.learn(other)
    assert world.known.entry(tree.topic).rival == other
    world.overlay.leaf_set.add(PEER)
    world.resigning.resign(tree)
    (handed,) = [message for _, message in world.host.sent if isinstance(message, TransferLeadership)]
    assert (handed.descriptor, handed.rival) == (mine, other)
    del world.host.sent[:]
    send_entries(world.host, PEER, [(mine, FIRST)], world.known.rivals)
    assert world.host.sent == [(PEER, RecordState([(other, NO_TERM), (mine, FIRST)]))]
    next_root = Parts(PEER)
    next_root.next_root.received(PEER, handed)
    assert next_root.known.rivals == {DESCRIPTOR.topic: other}
