"""Whatever a neighbour says: it is the neighbour's fault or it is dealt with, and the peer goes on."""

from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, OF_SOURCES, Term
from quillcast.core.errors import RemoteError
from quillcast.core.messages import NUMBER_MAX, Contact, Message
from quillcast.protocol import wire
from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.messages import Join, Rejoin
from quillcast.protocol.topics.root_messages import (
    Create,
    Created,
    FindRoot,
    RecordState,
    RootIs,
    StateAnswer,
    TopicEntry,
    TransferLeadership,
)
from quillcast.protocol.topics.state.link_reports import (
    ChildReport,
    ParentReport,
    StreamDown,
    StreamUp,
    encode,
    stream_key,
)
from tests.fuzz.bytes import FUZZ, values
from tests.fuzz.test_bundles import BUNDLES
from tests.protocol.topics.village import Reader, Village

ANY_MESSAGE = st.one_of([values(kind) for kind in wire.MESSAGES])
Report = ChildReport | ParentReport | StreamUp | StreamDown
ANY_REPORT = st.one_of([values(kind) for kind in (ChildReport, ParentReport, StreamUp, StreamDown)])
PEERS = 4
PEER = st.integers(0, PEERS - 1)
COUNTABLE = NUMBER_MAX >> 1  # who says the very largest term ends a topic: that is for signed terms to prevent
ODD = st.lists(st.booleans(), min_size=1, max_size=8)


class Knowing:
    """Makes messages that a peer takes for more than noise: ids and contacts in them are those of its network."""

    def __init__(self, ids: list[bytes], contacts: list[Contact], odd: list[bool]) -> None:
        self.ids, self.contacts, self.odd = ids, contacts, odd
        self.turn = 0

    def known(self, value: Any) -> Any:
        self.turn += 1
        keep = self.odd[self.turn % len(self.odd)]
        match value:
            case int():
                return min(value, COUNTABLE)
            case bytes() if len(value) == 16 and not keep:
                return self.ids[self.turn % len(self.ids)]
            case Contact() if not keep:
                return self.contacts[self.turn % len(self.contacts)]
            case msgspec.Struct():
                return type(value)(*[self.known(getattr(value, name)) for name in value.__struct_fields__])
            case tuple() if hasattr(value, "_fields"):
                return type(value)(*map(self.known, value))
            case list() | tuple():
                return type(value)(map(self.known, value))
        return value


def village() -> Village:
    """A small network with two topics that events went through, one of them numbered by its sources."""
    made = Village(PEERS)
    made.act(0, lambda peer: peer.create("sources", Settings(admission="source"), lambda _: None))
    made.run(1)
    for name in ("news", "sources"):
        for peer in (0, 1, 3):
            made.subscribe(peer, name, Reader())
        made.run(2)
        for peer in (2, 3):
            made.publish(peer, made.publisher(peer, name), b"hello")
        made.run(2)
    return made


VILLAGE = village()
TOPIC = VILLAGE.peers[1].topics.known.describe("news").topic
BY_SOURCE = VILLAGE.peers[1].topics.known.describe("sources").topic


def terms() -> list[Term]:
    """The terms that peers are in, and one that nobody ever was in."""
    trees = [tree for peer in VILLAGE.peers.values() for tree in peer.topics.trees.values()]
    live = [term for tree in trees for term in tree.flow.live_terms()]
    return [*dict.fromkeys(live), Term(7, b"n" * 16), Term(OF_SOURCES + 7, b"n" * 16)]


@FUZZ
@given(st.lists(st.tuples(ANY_MESSAGE, PEER, PEER), min_size=1, max_size=10), ODD)
def test_any_messages_are_dealt_with_or_refused(said: list[tuple[Message, int, int]], odd: list[bool]) -> None:
    contacts = [machine.contact for machine in VILLAGE.world.machines]
    knowing = Knowing([TOPIC, BY_SOURCE, *(contact.node_id for contact in contacts)], contacts, odd)
    for message, sender, receiver in said:
        with suppress(RemoteError):
            heard = wire.decode(wire.encode(knowing.known(message)))
            VILLAGE.act(receiver, lambda peer, of=contacts[sender], heard=heard: peer.message(of, heard))
    VILLAGE.run(1)
    for peer in VILLAGE.peers.values():
        peer.check()


@FUZZ
@given(st.lists(st.tuples(ANY_REPORT, PEER, PEER, st.integers(0, 99)), min_size=1, max_size=10), ODD)
def test_any_reports_are_dealt_with_or_refused(said: list[tuple[Report, int, int, int]], odd: list[bool]) -> None:
    machines, known_terms = VILLAGE.world.machines, terms()
    contacts = [machine.contact for machine in machines]
    knowing = Knowing([TOPIC, BY_SOURCE, *(contact.node_id for contact in contacts)], contacts, odd)
    sources = [term for term in known_terms if term.of_source]
    for report, sender, receiver, number in said:
        if sender == receiver:
            continue
        about = knowing.known(report)
        if isinstance(about, StreamUp | StreamDown):
            key = stream_key(BY_SOURCE, sources[number % len(sources)])
        else:
            key, term = (TOPIC, BY_SOURCE)[number % 2], known_terms[number % len(known_terms)]
            about = msgspec.structs.replace(about, term=term)
        told = key, encode(about)
        with suppress(RemoteError):
            VILLAGE.act(receiver, lambda peer, of=contacts[sender], told=told: peer.topics.links.changed(of, *told))
    VILLAGE.run(1)
    for peer in VILLAGE.peers.values():
        peer.check()


def about(topic: Descriptor, contact: Contact) -> list[Message]:
    """What has a peer take note of a topic."""
    term = Term(1, contact.node_id)
    join = Join(topic.topic, contact, descriptor=topic)
    return [
        join, Rejoin(contact, b"", [join]), FindRoot(topic.topic, contact, topic, NO_TERM), Create(topic, contact),
        RecordState([(topic, term)]), TransferLeadership(topic, term, 0, 0), RootIs(term, topic), Created(topic),
        StateAnswer([TopicEntry(topic.topic, topic, term)]),
    ]  # fmt: skip


@FUZZ
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 8), st.booleans()), min_size=20, max_size=60))
def test_whatever_a_neighbour_names_a_peer_takes_note_of_no_more_topics_than_its_bounds_say(
    said: list[tuple[int, int, bool]],
) -> None:
    bounds = TopicConfig(topics_max=8, idle_topics_max=4)
    made = Village(2, config=Config(topics=bounds))
    peer, sender = made.peers[0], made.world.machines[1].contact
    for number, kind, is_routed in said:
        topic = described(f"topic/{number}", Settings())
        message = about(topic, sender)[kind]
        routed = partial(peer.topics.scribe.deliver, message, topic.topic)
        direct = partial(peer.message, message=message)
        with suppress(RemoteError):
            made.act(0, lambda _, take=routed if is_routed else direct: take(sender))
        assert len(peer.topics.descriptors) <= 8 + 4 + peer.topics.forgetting.slack
        assert len(peer.topics.trees) <= 8
        peer.check()


@FUZZ
@given(st.lists(st.tuples(BUNDLES, PEER, PEER), min_size=1, max_size=5), ODD)
def test_any_bundles_are_dealt_with_or_refused(carried: list[tuple[Bundle, int, int]], odd: list[bool]) -> None:
    machines = VILLAGE.world.machines
    knowing = Knowing([TOPIC, BY_SOURCE, *(machine.contact.node_id for machine in machines)], [], odd)
    for bundle, sender, receiver in carried:
        if sender == receiver:
            continue  # no link leads from a peer to itself
        known = bundle.under(knowing.known(bundle.envelope))
        machines[receiver].host.charge(machines[sender].contact.node_id, known.size)
        with suppress(RemoteError):
            VILLAGE.act(receiver, lambda peer, of=machines[sender].contact, known=known: peer.bundle(of, known))
    VILLAGE.run(1)
    for peer in VILLAGE.peers.values():
        peer.check()
