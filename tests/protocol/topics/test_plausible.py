"""No peer can end a topic by naming a term, or a version of its settings, that leaves no room for the next one."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import (
    NO_TERM,
    OF_SOURCES,
    RELIABLE_TERMS,
    SESSION_TERMS,
    AnyTerm,
    Envelope,
    Kind,
    Term,
)  # fmt: skip
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.messages import Routed
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import Descriptor, described
from quillcast.protocol.topics.known.plausible import FREE_COUNT, FREE_SINCE_NS, check_of, counts_max
from quillcast.protocol.topics.messages import Accepted
from quillcast.protocol.topics.root_messages import FindRoot, RootIs, StateAnswer
from quillcast.protocol.topics.state.link_reports import ChildReport, LinkReport, ParentReport, encode
from quillcast.protocol.wire import MESSAGES, decode
from quillcast.protocol.wire import encode as encode_message
from tests.protocol.recording import ALICE, BOB, RecordingHost
from tests.protocol.topics.village import Reader, Village

NAME = "sport/tennis"
TOPIC = described(NAME).topic
POISON = Term(OF_SOURCES - 1, BOB.node_id)
FAR_STREAM = Term(OF_SOURCES + (1 << 59), BOB.node_id)
FAR_VERSION = Descriptor(NAME, version=1 << 61)


def poisoned(hint: Any, within: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Values of a type, each with one term or descriptor of a hostile peer, in each place where there can be one."""
    match hint:
        case type() if hint is Term:
            yield POISON
            yield Term(OF_SOURCES + 1, BOB.node_id)  # where only a root's term makes sense
        case type() if hint is Descriptor:
            yield FAR_VERSION
            yield Descriptor(NAME, upcoming=FAR_VERSION)
            yield Descriptor(NAME, session=1 << 28)
        case type() if hint not in within and field_names(hint):
            yield from poisoned_fields(hint, (*within, hint))
        case _ if hint == AnyTerm:
            yield from (POISON, FAR_STREAM)
        case _:
            yield from poisoned_parts(get_origin(hint), get_args(hint), within)


def poisoned_fields(hint: Any, within: tuple[Any, ...]) -> Iterator[Any]:
    hints = get_type_hints(hint, include_extras=True)
    for name in field_names(hint):
        for value in poisoned(hints[name], within):
            yield hint(**{each: value if each == name else plain(hints[each]) for each in field_names(hint)})


def poisoned_parts(origin: Any, parts: tuple[Any, ...], within: tuple[Any, ...]) -> Iterator[Any]:
    if origin is Annotated:
        yield from poisoned(parts[0], within)
    elif origin in (Union, UnionType):
        for part in parts:
            yield from poisoned(part, within)
    elif origin is list or (origin is tuple and parts[-1:] == (...,)):
        yield from (origin([plain(parts[0]), value]) for value in poisoned(parts[0], within))
    elif origin is tuple:
        for place, part in enumerate(parts):
            yield from (tuple(value if n == place else plain(parts[n]) for n in range(len(parts)))
                        for value in poisoned(part, within))  # fmt: skip


def plain(hint: Any) -> Any:
    """A harmless value of a type, the smallest one."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        lengths = [meta.min_length for meta in parts[1:] if isinstance(meta, msgspec.Meta) and meta.min_length]
        return bytes(lengths[0]) if lengths else plain(parts[0])
    if origin in (Union, UnionType):
        return None if NoneType in parts else plain(parts[0])
    if origin is tuple and parts[-1:] != (...,):
        return tuple(plain(part) for part in parts)
    if hint is Contact:
        return BOB
    if isinstance(hint, type) and (names := field_names(hint)):
        hints = get_type_hints(hint, include_extras=True)
        return hint(**{name: plain(hints[name]) for name in names})
    return (origin or hint)()


def field_names(type_: type) -> tuple[str, ...]:
    return getattr(type_, "__struct_fields__", None) or getattr(type_, "_fields", ())


def peer_with_host() -> tuple[Peer, RecordingHost]:
    host = RecordingHost(ALICE)
    peer = Peer(host, Config())
    peer.join([])
    return peer, host


def ignored(host: RecordingHost) -> bool:
    """Was what came last counted as a breach of the protocol, and was nothing answered?"""
    is_counted = Mark("implausible") in host.records
    host.records.clear()
    return is_counted


WITH_TERMS = [kind for kind in MESSAGES if any(poisoned(kind))]


def test_messages_with_terms_are_found() -> None:
    assert {Accepted, FindRoot, RootIs, StateAnswer} < set(WITH_TERMS)
    assert len(WITH_TERMS) > 20


@pytest.mark.parametrize("kind", WITH_TERMS, ids=lambda kind: kind.__name__)
def test_a_message_with_a_term_or_version_beyond_the_bound_is_ignored(kind: type[Message]) -> None:
    peer, host = peer_with_host()
    for number, message in enumerate(poisoned(kind)):
        host.sent.clear()
        peer.message(BOB, decode(encode_message(message)))
        assert ignored(host), message
        assert not host.sent
        peer.message(BOB, Routed(TOPIC, BOB, number, 1, encode_message(message)))
        assert ignored(host), message
    assert not peer.topics.known.terms


@pytest.mark.parametrize("report", [*poisoned(ChildReport), *poisoned(ParentReport)])
def test_a_report_with_such_a_term_is_ignored(report: LinkReport) -> None:
    peer, host = peer_with_host()
    with pytest.raises(Exception, match="cannot exist yet"):
        peer.topics.links.changed(BOB, TOPIC, encode(report))
    assert ignored(host)


def test_a_bundle_of_such_a_term_is_ignored_and_its_credit_returned() -> None:
    peer, host = peer_with_host()
    peer.subscribe(NAME, Reader())
    for term in (POISON, FAR_STREAM):
        bundle = Bundle(Envelope(TOPIC, Kind.DOWN, term), (Block.seal(b"p" * 16, 0, [b"event"], time_ns=0),))
        host.released.clear()
        peer.bundle(BOB, Bundle.decode(bundle.encode()))
        assert ignored(host)
        assert host.released == [(BOB.node_id, bundle.size)]


def plausible(said: Term | Descriptor, seconds: int = 0) -> bool:
    check = check_of(type(said))
    assert check is not None
    return check(said, lambda: FREE_SINCE_NS + seconds * 10**9)


def test_the_bound_counts_terms_within_a_session_and_rises_by_one_a_second() -> None:
    for first in (0, 5 * SESSION_TERMS, 5 * SESSION_TERMS + RELIABLE_TERMS, OF_SOURCES):
        assert plausible(Term(first + FREE_COUNT, ALICE.node_id))
        assert not plausible(Term(first + FREE_COUNT + 1, ALICE.node_id))
        assert plausible(Term(first + FREE_COUNT + 60, ALICE.node_id), 60)
        assert not plausible(Term(first + FREE_COUNT + 61, ALICE.node_id), 60)
    assert not plausible(Term((FREE_COUNT // 64 + 1) * SESSION_TERMS, ALICE.node_id))
    assert plausible(NO_TERM)


def test_the_clock_is_read_for_large_terms_only() -> None:
    def no_clock() -> int:
        raise AssertionError("the clock was read")

    check = check_of(Term)
    assert check is not None
    assert check(Term(FREE_COUNT, ALICE.node_id), no_clock)


def test_the_bound_leaves_room_in_a_session_for_decades() -> None:
    decades = FREE_SINCE_NS + 60 * 365 * 86400 * 10**9
    assert counts_max(decades) < RELIABLE_TERMS


@pytest.mark.parametrize("beyond", [False, True])
def test_a_topic_outlives_a_member_that_names_the_highest_term_it_can(beyond: bool) -> None:
    """A term at the bound is adopted, and the next root begins the one after it as soon as others accept it."""
    village = Village(6)
    reader = Reader()
    village.subscribe(0, NAME, reader)
    village.run(3)
    root = village.root(NAME)
    writer, hostile = [peer for peer in village.alive() if peer not in (0, root)][:2]
    publisher = village.publisher(writer, NAME)
    village.publish(writer, publisher, b"before")
    village.run(1)
    host = village.world.machines[hostile].host
    assert host is not None
    term = POISON if beyond else Term(counts_max(host.wall_ns()), b"\xff" * 16)
    find = FindRoot(TOPIC, host.contact, None, term)
    village.act(hostile, lambda peer: peer.overlay.route(find, TOPIC))
    village.run(4)
    village.publish(writer, publisher, b"after")
    village.run(3)
    assert (village.peers[village.root(NAME)].topics.trees[TOPIC].term.counter > term.counter) is not beyond
    if village.root(NAME) not in (0, writer):
        village.kill(village.root(NAME))
        village.run(8)
    village.publish(writer, publisher, b"later")
    village.run(3)
    assert reader.payloads == [b"before", b"after", b"later"]


def test_a_refused_report_is_asked_for_again_and_taken_once_it_can_be() -> None:
    """What a stream of reports says is not kept while it cannot be: else both sides would take it for told."""
    village = Village(2)
    for peer in (0, 1):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    root = village.root(NAME)
    child = 1 - root
    sender = village.world.machines[child].contact
    host = village.world.machines[root].host
    assert host is not None
    term = Term(counts_max(host.wall_ns()) + 5, village.world.machines[child].node_id)
    report = encode(ChildReport(term, 0, term))
    streams = village.peers[root].streams
    before = streams.told(sender.node_id).get(TOPIC)
    incoming = streams._incoming[sender.node_id]
    village.act(root, lambda peer: streams._apply(sender, incoming, [(TOPIC, report)]))
    assert before is not None
    assert streams.told(sender.node_id)[TOPIC] == before
    village.run(6)
    village.act(root, lambda peer: streams._apply(sender, incoming, [(TOPIC, report)]))
    assert streams.told(sender.node_id)[TOPIC] == report
