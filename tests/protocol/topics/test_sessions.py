"""Sessions of a topic: its guarantee changes while events flow, and none of them is lost or comes twice."""

from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from quillcast.core.bundle import Block
from quillcast.core.errors import LocalError
from quillcast.core.trace import BecameRoot
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.security.access import ENTRIES_MAX, AccessDenied, entry, noting_former
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.messages import CutLeases
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root.sessions import FlushDue
from quillcast.protocol.topics.state.effects import LaterTermExists, Resign
from quillcast.protocol.topics.state.session import SESSION_TABLE, SessionInput, SessionState, SessionStep
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, Notes, RecordingHost, block, down, is_stable
from tests.protocol.topics.parts import CONFIG, Parts
from tests.protocol.topics.test_changes import DEEP, NAME, change, settings_at
from tests.protocol.topics.test_publisher import Listener, uplink
from tests.protocol.topics.village import Reader, Village, Writer

TOPIC = described(NAME).topic
S, E, D = SessionState, SessionInput, SessionStep
PAGE = Path(__file__).parents[3] / "docs" / "sessions.md"
TABLE = {
    S.CLOSED: {E.ASKED: (S.CLOSED, D.WAIT), E.RECORDED: (S.ACTIVE, D.NOTHING), E.FLUSHED: (S.CLOSED, D.NOTHING)},
    S.ACTIVE: {E.ASKED: (S.PREPARE, D.RECORD), E.RECORDED: (S.FLUSHING, D.FLUSH), E.FLUSHED: (S.ACTIVE, D.NOTHING)},
    S.PREPARE: {E.ASKED: (S.PREPARE, D.WAIT), E.RECORDED: (S.FLUSHING, D.FLUSH), E.FLUSHED: (S.PREPARE, D.NOTHING)},
    S.FLUSHING: {E.ASKED: (S.FLUSHING, D.WAIT), E.RECORDED: (S.FLUSHING, D.NOTHING), E.FLUSHED: (S.CLOSED, D.BEGIN)},
}


@pytest.mark.parametrize(("state", "what"), list(product(SessionState, SessionInput)))
def test_every_cell_of_the_state_table(state: SessionState, what: SessionInput) -> None:
    assert SESSION_TABLE[state, what] == TABLE[state][what]


def test_the_page_on_sessions_draws_the_state_table() -> None:
    rows = [["state", *SessionInput], ["---"] * (1 + len(SessionInput))]
    for state in SessionState:
        cells = [SESSION_TABLE[state, what] for what in SessionInput]
        rows.append([state, *(then if step is D.NOTHING else f"{then}, {step}" for then, step in cells)])
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    assert f"\n\n{drawn}\n\n" in PAGE.read_text(), f"draw it in {PAGE}:\n{drawn}"


def deep(readers: int = 12, settings: Settings | None = None) -> tuple[Village, dict[int, Reader]]:
    village = Village(16, seed=3, config=DEEP)
    if settings is not None:
        village.act(0, lambda peer: peer.create(NAME, settings, lambda answer: None))
        village.run(2)
    all_readers = {peer: Reader() for peer in range(readers)}
    for peer, reader in all_readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(5)
    return village, all_readers


def session_at(village: Village, peer: int) -> tuple[int, SessionState]:
    tree = village.tree(peer, NAME)
    assert tree is not None
    assert tree.root is not None
    return tree.session, tree.root.session_state


SOURCES = Settings(admission="source")
CHANGES = [
    (Settings(), {"partition": "wait"}), (Settings(), {"delivery": "best_effort"}),
    (Settings(), {"delivery": "best_effort", "order": "none"}),
    (Settings(), {"admission": "source"}), (SOURCES, {"admission": "root"}), (SOURCES, {"partition": "wait"}),
    (SOURCES, {"delivery": "best_effort"}), (SOURCES, {"delivery": "best_effort", "order": "none"}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "wanted"), CHANGES)
def test_sessions_follow_each_other_under_load_and_nothing_is_lost_or_comes_twice(
    before: Settings, wanted: dict[str, str]
) -> None:
    village, readers = deep(settings=before)
    publishers = [village.publisher(peer, NAME) for peer in (14, 15, village.root(NAME))]
    village.run(1)
    back = {name: getattr(before, name) for name in wanted}
    answers: list[object] = []
    for index in range(60):
        for publisher, peer in zip(publishers, (14, 15, village.root(NAME)), strict=True):
            village.publish(peer, publisher, b"%d" % index)
        village.run(0.05)
        if index in (15, 35):
            each = wanted if index == 15 else back
            village.act(13, lambda peer, each=each: peer.change(NAME, each, answers.append))
    village.run(5)
    assert [type(answer) for answer in answers] == [Descriptor, Descriptor]
    assert session_at(village, village.root(NAME)) == (2, SessionState.ACTIVE)
    assert all(settings_at(village, peer) == before for peer in readers)
    events = [b"%d" % index for index in range(60)]
    for reader in readers.values():
        assert sorted(reader.payloads) == sorted(3 * events), reader.losses
        assert not reader.losses
    assert all(publisher.stable == publisher.next for publisher in publishers)


def flushed_beside_a_slow_reader(slow: str) -> tuple[Village, list[object]]:
    """A reader below the root has room for nothing, and another takes all. Then the topic is to be best-effort."""
    village = Village(6, seed=3, config=DEEP)
    village.act(0, lambda peer: peer.create(NAME, Settings(slow=slow), lambda answer: None))
    village.run(2)
    for peer in village.alive():
        village.subscribe(peer, NAME, Reader(room_bytes=0 if peer == 5 else 1 << 20))
    village.run(5)
    village.publish(1, village.publisher(1, NAME), b"a", b"b")
    village.run(2)
    answers: list[object] = []
    village.act(2, lambda peer: peer.change(NAME, {"delivery": "best_effort"}, answers.append))
    return village, answers


def test_a_slow_subscriber_has_the_time_of_a_lease_until_a_best_effort_session_begins() -> None:
    village, answers = flushed_beside_a_slow_reader("cut")
    village.run(DEEP.topics.lease_s - 2)
    assert session_at(village, village.root(NAME)) == (0, SessionState.FLUSHING)
    village.run(5)
    assert session_at(village, village.root(NAME)) == (1, SessionState.ACTIVE)
    assert [type(answer) for answer in answers] == [Descriptor]


def test_a_best_effort_session_does_not_begin_while_a_peer_misses_an_event_of_the_reliable_one() -> None:
    world = Parts(ALICE, BOB)
    tree = world.root(RELIABLE)
    root = tree.root
    assert root is not None
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    child, root.index = world.child(tree, CAROL), 1
    root.session_state, root.closing, root.noted = SessionState.FLUSHING, True, replace(RELIABLE, upcoming=BEST_EFFORT)
    root.flush_until = world.host.time
    world.sessions.due(FlushDue(tree.topic, root.term))
    assert (root.session_state, world.host.sent) == (
        SessionState.FLUSHING, [(CAROL, CutLeases(tree.topic, FIRST, 1, slow=True))],
    )  # fmt: skip
    assert (world.timers, child.is_cut) == ([FlushDue(tree.topic, root.term)], False)


def test_slow_subscribers_keep_their_leases_though_the_root_was_closing_before_the_session_was_asked_for() -> None:
    """It was about to hand the topic over, and then no peer was closer any more."""
    world = Parts(ALICE, BOB)
    tree = world.root(RELIABLE)
    root = tree.root
    assert root is not None
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    world.child(tree, CAROL)
    root.index, root.closing, root.session_state = 1, True, SessionState.PREPARE
    root.noted = replace(RELIABLE, upcoming=BEST_EFFORT)
    world.sessions.recorded(tree)
    cut = (CAROL, CutLeases(tree.topic, FIRST, 1, slow=True))
    for passed_s, cuts in ((CONFIG.linger_s, []), (CONFIG.lease_s, [cut])):
        world.host.time += passed_s
        world.sessions.due(FlushDue(tree.topic, root.term))
        assert world.host.sent == cuts


def test_what_cannot_change_is_refused() -> None:
    village = Village(4)
    village.act(0, lambda peer: peer.create(NAME, Settings(admission="source"), lambda answer: None))
    village.run(2)
    for wanted in ({"delivery": "best_effort", "admission": "root"}, {"root_scope": "x"}):
        assert isinstance(change(village, 1, **wanted), LocalError)
    assert isinstance(change(village, 1, partition="wait"), Descriptor)


RELIABLE = Descriptor("weather", Settings(partition="wait"), version=2, session=1)
BEST_EFFORT = Descriptor("weather", Settings(delivery="best_effort"), version=3, session=1)


def test_who_begins_in_the_term_before_a_known_best_effort_session_waits_for_nothing_in_it() -> None:
    world = Parts(ALICE)
    tree, notes = world.root(BEST_EFFORT), Notes()
    subscription = world.subscribing.subscribe("weather", notes)
    notes.turn_over = subscription.tell_losses
    tree.flow.move(down(FIRST, 3, block(PAUL, 0)), tree.flow.current)
    assert (FIRST.session, notes.got, notes.lost_) == (0, [b"0"], [(FIRST.counter, 0, 3, "dropped")])


def test_of_two_sessions_with_one_number_the_reliable_one_is_the_later_for_descriptors_and_terms() -> None:
    world = Parts()
    tree = world.tree(BEST_EFFORT)
    former = world.root_terms.next_term(tree, world.known.latest(tree))
    world.terms.enter(tree, former, 0)
    world.known.learn(RELIABLE)
    assert (tree.descriptor, tree.flow.keeps) == (RELIABLE, False), "its term is still best-effort"
    following = world.root_terms.next_term(tree, world.known.latest(tree))
    world.terms.enter(tree, following, 0)
    assert (former.best_effort, following.best_effort, tree.flow.keeps) == (True, False, True)
    world.known.learn(replace(BEST_EFFORT, version=9))
    assert tree.descriptor == RELIABLE


def test_a_root_of_a_session_that_is_best_effort_begins_a_term_when_the_reliable_one_is_known() -> None:
    world = Parts()
    tree = world.root(BEST_EFFORT)
    assert tree.root is not None
    world.known.learn(RELIABLE)
    assert tree.root.descriptor == BEST_EFFORT
    world.root_settings.learned(tree)
    assert world.ordered[-1] == LaterTermExists(tree.topic)


def test_a_session_does_not_begin_if_other_settings_came_to_be_known_while_the_last_one_was_flushed() -> None:
    world = Parts(ALICE, BOB)
    tree = world.root(RELIABLE)
    root = tree.root
    assert root is not None
    root.session_state, root.closing, root.flush_until = SessionState.FLUSHING, True, world.host.time
    world.sessions.due(FlushDue(tree.topic, root.term))
    assert (root.session_state, root.closing, tree.root) == (SessionState.ACTIVE, False, root)
    assert root.flush_until is None


def test_a_publisher_of_a_best_effort_session_follows_the_root_to_the_reliable_one_of_that_number() -> None:
    host = RecordingHost()
    publisher = Publisher(host, TopicConfig(), BEST_EFFORT, PAUL, Listener(), uplink(host))
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"sent and let go"])
    publisher.adapt(RELIABLE)
    publisher.check()
    assert (publisher.begins(BEST_EFFORT), publisher.begins(RELIABLE)) == (False, True)
    publisher.begin_session()
    publisher.check()
    publisher.receipt(FIRST, 1, 1)
    assert not is_stable(publisher, 0), "nobody looks for it"
    assert not publisher.begins(RELIABLE)


class Program(Writer):
    """What it was told of events that never count as stable."""

    def __init__(self) -> None:
        super().__init__()
        self.never_stable: set[int] = set()

    def dropped(self, block: Block) -> None:
        self.never_stable.update(range(block.first, block.last))

    def was_best_effort(self, first: int, last: int) -> None:
        self.never_stable.update(range(first, last))


@pytest.mark.parametrize("admission", ["root", "source"])
@pytest.mark.parametrize("at_root", [True, False], ids=["at the root", "elsewhere"])
@pytest.mark.parametrize(
    "sessions", [["best_effort", "reliable"], ["reliable", "best_effort", "reliable"],
                 ["best_effort", "best_effort", "reliable"]], ids=" ".join,
)  # fmt: skip
def test_what_subscribers_missed_of_best_effort_sessions_never_counts_as_stable(
    sessions: list[str], at_root: bool, admission: str
) -> None:
    village, readers = deep(6, Settings(delivery=sessions[0], admission=admission))
    peer, program = village.root(NAME) if at_root else 14, Program()
    publisher: Publisher = village.act(peer, lambda peer: peer.publisher(NAME, program))
    village.run(1)
    answers, missed = list[object](), set[int]()
    for number, delivery in enumerate(sessions):
        if number:
            changed = {"order": "none"} if delivery == sessions[number - 1] else {"delivery": delivery}
            changed = {"delivery": delivery, "order": "publisher"} if delivery == "reliable" else changed
            village.act(13, lambda peer, changed=changed: peer.change(NAME, changed, answers.append))
            village.run(5)
        for event in range(5 * number, 5 * number + 5):
            if delivery == "best_effort" and event % 2:
                missed.add(event)
            for reader in readers.values():
                reader.room_bytes = 0 if event in missed else 1 << 20
            village.publish(peer, publisher, b"%d" % event)
            village.run(0.2)
    village.run(DEEP.topics.lease_s)
    assert [type(answer) for answer in answers] == [Descriptor] * (len(sessions) - 1)
    assert all(missed.isdisjoint(map(int, reader.payloads)) for reader in readers.values())
    best_effort = {event for event in range(publisher.next) if sessions[event // 5] == "best_effort"}
    assert program.never_stable == best_effort
    assert [event for event in range(publisher.next) if is_stable(publisher, event)] == [
        event for event in range(publisher.next) if event not in best_effort
    ]


@pytest.mark.parametrize("peers", [1, 2])
@pytest.mark.parametrize("admission", ["root", "source"])
def test_the_first_event_of_a_reliable_session_is_stable_within_a_second_where_a_publisher_is_at_the_root(
    admission: str, peers: int
) -> None:
    """A publisher that learns of the session asks for the root, which is about to begin it."""
    village = Village(peers)
    settings = Settings(delivery="best_effort", admission=admission)
    village.act(0, lambda peer: peer.create(NAME, settings, lambda answer: None))
    village.run(2)
    root = village.root(NAME)
    publisher, reader = village.publisher(root, NAME), Reader()
    village.subscribe(root, NAME, reader)
    village.publish(root, publisher, b"best effort")
    village.run(1)
    village.act(0, lambda peer: peer.change(NAME, {"delivery": "reliable"}, lambda answer: None))
    village.run(1)
    village.publish(root, publisher, b"reliable")
    village.run(1)
    assert (publisher.stable, reader.payloads) == (2, [b"best effort", b"reliable"])
    terms = [record.term for _, _, record in village.world.journal.records if isinstance(record, BecameRoot)]
    assert [term.session for term in terms] == [0, 1]


OWNER, FRIEND, STRANGER = (Credentials.new() for _ in range(3))


def owned(village: Village, friend: Credentials, right: str = "publish", **settings: str) -> None:
    access = (entry(right, friend.principal),)

    def own(descriptor: Descriptor) -> Descriptor:
        return OWNER.own(replace(descriptor, access=access))

    village.act(0, lambda peer: peer.create(NAME, Settings(**settings), lambda answer: None, own))
    village.run(2)


def changed(village: Village, peer: int, **lists: list[str]) -> list[object]:
    answers = list[object]()
    village.act(peer, lambda peer: peer.change(NAME, lists, answers.append, OWNER.own))
    return answers


def writer(village: Village, number: int, who: Credentials) -> Publisher:
    publisher: Publisher = village.act(
        number, lambda peer: peer.publisher(NAME, Writer(), who.warrant(peer.host.me, TOPIC))
    )
    return publisher


def test_another_list_of_publishers_opens_a_session_under_load_and_nothing_is_lost_or_comes_twice() -> None:
    village = Village(16, seed=3, config=DEEP)
    owned(village, FRIEND)
    readers = {number: Reader() for number in range(12)}
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    village.run(5)
    publishers = [(14, writer(village, 14, FRIEND)), (15, writer(village, 15, OWNER))]
    village.run(1)
    answers, revoked = list[object](), publishers[0][1]
    for index in range(60):
        for number, publisher in publishers:
            if publisher.listener.error is None:
                village.publish(number, publisher, b"%d" % index)
        village.run(0.05)
        if index == 20:
            answers = changed(village, 13, publishers=[STRANGER.principal])
        if index == 40:
            publishers.append((9, writer(village, 9, STRANGER)))
            village.run(0.5)
    village.run(5)
    assert [type(answer) for answer in answers] == [Descriptor]
    assert session_at(village, village.root(NAME)) == (1, SessionState.ACTIVE)
    assert isinstance(revoked.listener.error, AccessDenied)
    events = [b"%d" % index for index in range(60)]
    admitted = events[: revoked.admitted]
    assert len(admitted) >= 21
    for reader in readers.values():
        assert sorted(reader.payloads) == sorted([*events, *admitted, *events[41:]]), reader.losses
        assert not reader.losses


def test_a_list_changes_only_by_the_owner_and_where_it_can() -> None:
    village = Village(4)
    owned(village, FRIEND)
    stranger = list[object]()
    village.act(1, lambda peer: peer.change(NAME, {"publishers": []}, stranger.append, STRANGER.own))
    village.run(2)
    assert isinstance(stranger[0], AccessDenied)
    everybody = changed(village, 1, publishers=[])
    village.run(3)
    assert (everybody[0].access, everybody[0].session) == ((), 1)
    village.act(1, lambda peer: peer.create("free", Settings(slow="wait"), lambda answer: None))
    village.run(2)
    narrowed = list[object]()
    listed = {"subscribers": [FRIEND.principal]}
    village.act(1, lambda peer: peer.change("free", listed, narrowed.append, OWNER.own))
    village.run(2)
    assert "it has no owner: create another topic with credentials" in str(narrowed[0])


def test_a_list_says_who_could_publish_before_where_sources_number_the_events() -> None:
    village = Village(4)
    owned(village, FRIEND, admission="source")
    friend, stranger = FRIEND.principal, STRANGER.principal
    lists: list[tuple[list[str], tuple[str, ...]]] = [
        ([stranger], (f"publish:{stranger}", f"published:{friend}")),
        ([friend], (f"publish:{friend}", f"published:{stranger}")),
        ([friend, stranger], (f"publish:{friend}", f"publish:{stranger}")),
        ([], ()),
        ([friend], (f"publish:{friend}", "published:everybody")),
        ([stranger], (f"publish:{stranger}", "published:everybody")),
    ]
    for session, (publishers, access) in enumerate(lists, 1):
        answers = changed(village, 1, publishers=publishers)
        village.run(3)
        assert (answers[0].access, answers[0].session) == (access, session)


def test_a_list_leaves_out_the_oldest_of_those_who_could_publish_where_it_has_no_room() -> None:
    could = tuple(f"published:{number:032x}" for number in range(200))
    now = tuple(f"publish:{number:032x}" for number in range(1000, 1100))
    access = noting_former((*could, f"publish:{7:032x}0", f"publish:{1001:032x}"), now)
    assert access == (*now, *could[45:], f"published:{7:032x}0")
    assert len(access) == ENTRIES_MAX


def subscribed(village: Village, number: int, who: Credentials) -> Reader:
    reader = Reader()
    village.act(number, lambda peer: peer.subscribe(NAME, reader, warrant=who.warrant(peer.host.me, TOPIC)))
    return reader


def test_a_list_of_subscribers_grows_with_a_session_and_who_is_on_it_may_subscribe() -> None:
    village = Village(4)
    owned(village, FRIEND, right="subscribe")
    changed(village, 1, subscribers=[FRIEND.principal, STRANGER.principal])
    village.run(3)
    reader = subscribed(village, 2, STRANGER)
    village.run(3)
    assert (reader.error, reader.start is not None) == (None, True)


@pytest.mark.parametrize("admission", ["root", "source"])
def test_who_is_taken_off_the_list_of_subscribers_gets_nothing_more_and_the_others_everything(admission: str) -> None:
    village = Village(16, seed=3, config=DEEP)
    owned(village, FRIEND, right="subscribe", admission=admission)
    changed(village, 13, subscribers=[FRIEND.principal, STRANGER.principal])
    village.run(3)
    kept = {number: subscribed(village, number, FRIEND) for number in range(0, 12, 2)}
    revoked = {number: subscribed(village, number, STRANGER) for number in range(1, 12, 2)}
    village.run(5)
    publisher = writer(village, 14, OWNER)
    village.run(1)
    trees = {number: village.tree(number, NAME) for number in revoked}
    assert any(tree is not None and tree.leases.children for tree in trees.values()), "some of them are inner peers"
    answers = list[object]()
    for index in range(60):
        village.publish(14, publisher, b"%d" % index)
        village.run(0.05)
        if index == 20:
            answers = changed(village, 13, subscribers=[FRIEND.principal])
    village.run(5)
    assert [type(answer) for answer in answers] == [Descriptor]
    for reader in kept.values():
        assert (reader.payloads, reader.losses, reader.error) == ([b"%d" % index for index in range(60)], [], None)
    for number, reader in revoked.items():
        assert isinstance(reader.error, AccessDenied), number
        assert reader.payloads == [b"%d" % index for index in range(len(reader.payloads))]
        assert 21 <= len(reader.payloads) < 60
    assert publisher.stable == 60, "they hold back nothing any more"
    for number in revoked:
        tree = village.tree(number, NAME)
        assert tree is None or tree.root is not None or not tree.receives, number
    again = subscribed(village, 1, STRANGER)
    village.run(3)
    assert isinstance(again.error, AccessDenied)


def test_a_peer_with_another_right_keeps_its_place() -> None:
    village = Village(8, seed=1, config=DEEP)
    owned(village, FRIEND, right="subscribe")
    changed(village, 1, subscribers=[FRIEND.principal, STRANGER.principal])
    village.run(3)
    number = next(each for each in range(8) if each != village.root(NAME))
    revoked, kept = subscribed(village, number, STRANGER), subscribed(village, number, FRIEND)
    village.run(3)
    changed(village, 1, subscribers=[FRIEND.principal])
    village.run(5)
    publisher = writer(village, 2, OWNER)
    village.run(2)
    village.publish(2, publisher, b"late")
    village.run(3)
    assert isinstance(revoked.error, AccessDenied)
    assert (kept.payloads, kept.losses, revoked.payloads) == ([b"late"], [], [])


def with_readers() -> tuple[Village, list[Reader]]:
    """A topic with an owner and a list of publishers, whose events sources number, and twelve readers."""
    village = Village(16, seed=3, config=DEEP)
    owned(village, FRIEND, admission="source")
    readers = {number: Reader() for number in range(12)}
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    village.run(5)
    return village, [*readers.values()]


def test_publishers_are_added_under_load_where_sources_number_the_events() -> None:
    village, readers = with_readers()
    publishers = [(14, writer(village, 14, FRIEND))]
    village.run(1)
    for index in range(60):
        for number, publisher in publishers:
            village.publish(number, publisher, b"%d" % index)
        village.run(0.05)
        if index == 20:
            changed(village, 13, publishers=[FRIEND.principal, STRANGER.principal])
        if index == 40:
            publishers.append((9, writer(village, 9, STRANGER)))
    village.run(5)
    assert [publisher.listener.error for _, publisher in publishers] == [None, None]
    events = [b"%d" % index for index in range(60)]
    for reader in readers:
        assert sorted(reader.payloads) == sorted([*events, *events[41:]]), reader.losses
        assert not reader.losses


def test_who_is_taken_off_the_list_of_sources_is_refused_and_what_it_published_before_is_delivered() -> None:
    village, readers = with_readers()
    publishers = [(14, writer(village, 14, FRIEND)), (3, writer(village, 3, FRIEND)), (15, writer(village, 15, OWNER))]
    village.run(1)
    published = list[bytes]()
    for index in range(60):
        for number, publisher in publishers:
            if publisher.listener.error is None:
                village.publish(number, publisher, b"%d of %d" % (index, number))
                published.append(b"%d of %d" % (index, number))
        village.run(0.05)
        if index == 20:
            changed(village, 13, publishers=[STRANGER.principal])
        if index == 40:
            publishers.append((3, writer(village, 3, STRANGER)))
            village.run(0.5)
    village.run(20)
    assert [type(publisher.listener.error) for _, publisher in publishers] == [AccessDenied] * 2 + [type(None)] * 2
    assert 100 < len(published) < 139
    for reader in readers:
        assert (sorted(reader.payloads), reader.losses) == (sorted(published), [])
    again = writer(village, 14, FRIEND)
    village.run(2)
    assert isinstance(again.listener.error, AccessDenied)


def test_peers_take_nothing_from_a_source_that_goes_on_although_it_was_taken_off_the_list() -> None:
    village = Village(8, seed=1, config=DEEP)
    owned(village, FRIEND, admission="source")
    root = village.root(NAME)
    cheat = next(number for number in range(8) if number != root)
    readers = {number: Reader() for number in range(8) if number != cheat}
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    village.peers[cheat].topics.publishing._go_by_list = lambda publishers: None  # type: ignore[method-assign]
    publisher = writer(village, cheat, FRIEND)
    village.run(2)
    village.publish(cheat, publisher, b"before")
    changed(village, 1, publishers=[STRANGER.principal])
    village.run(village.peers[0].topics.config.lease_s + 3)
    for _ in range(4):
        if publisher.listener.error is None:
            village.publish(cheat, publisher, b"after")
        village.run(5)
    village.run(village.peers[0].topics.config.lease_s + 5)
    for reader in readers.values():
        assert reader.payloads == [b"before"]
    assert village.marks["stream_denied"]
    assert isinstance(publisher.listener.error, AccessDenied), "a neighbour told it"
    for number in readers:
        tree = village.tree(number, NAME)
        assert tree is None or not tree.sources.states, "its stream has ended"


def test_peers_take_nothing_from_a_source_that_heeds_neither_the_list_nor_their_refusals() -> None:
    village = Village(8, seed=1, config=DEEP)
    owned(village, FRIEND, admission="source")
    cheat = next(number for number in range(8) if number != village.root(NAME))
    readers = {number: Reader() for number in range(8) if number != cheat}
    for number, reader in readers.items():
        village.subscribe(number, NAME, reader)
    publishing = village.peers[cheat].topics.publishing
    publishing._denied = lambda publisher: None  # type: ignore[method-assign]
    publishing._refused = lambda descriptor: None  # type: ignore[method-assign]
    publisher = writer(village, cheat, FRIEND)
    village.run(2)
    village.publish(cheat, publisher, b"before")
    changed(village, 1, publishers=[STRANGER.principal])
    village.run(village.peers[0].topics.config.lease_s + 3)
    village.publish(cheat, publisher, b"after")
    village.run(5)
    assert (publisher.sent, publisher.admitted) == (2, 1)
    assert [reader.payloads for reader in readers.values()] == [[b"before"]] * 7


@pytest.mark.parametrize("admission", ["root", "source"])
def test_a_first_list_of_subscribers_ends_the_others_and_those_on_it_miss_nothing(admission: str) -> None:
    village = Village(16, seed=3, config=DEEP)
    owned(village, FRIEND, admission=admission)
    kept = {number: subscribed(village, number, FRIEND) for number in range(0, 12, 2)}
    revoked = {number: Reader() for number in range(1, 12, 2)}
    for number, reader in revoked.items():
        village.subscribe(number, NAME, reader)
    mixed = 2
    revoked[mixed] = Reader()
    village.subscribe(mixed, NAME, revoked[mixed])
    village.run(5)
    kept[5] = subscribed(village, 5, FRIEND)  # its peer joined on nobody's behalf
    publisher = writer(village, 14, OWNER)
    village.run(1)
    answers = list[object]()
    for index in range(60):
        village.publish(14, publisher, b"%d" % index)
        village.run(0.05)
        if index == 20:
            answers = changed(village, 13, subscribers=[FRIEND.principal])
    village.run(10)
    assert [type(answer) for answer in answers] == [Descriptor]
    for reader in kept.values():
        assert (reader.payloads, reader.losses, reader.error) == ([b"%d" % index for index in range(60)], [], None)
    for reader in revoked.values():
        assert isinstance(reader.error, AccessDenied)
        assert 21 <= len(reader.payloads) < 60
    assert publisher.stable == 60


def test_who_is_put_on_the_list_again_before_it_has_left_the_tree_subscribes_again() -> None:
    village = Village(16, seed=3, config=DEEP)
    owned(village, FRIEND, right="subscribe")
    changed(village, 13, subscribers=[FRIEND.principal, STRANGER.principal])
    village.run(3)
    for number in range(1, 12):
        subscribed(village, number, STRANGER)
    village.run(5)
    inner = next(
        number
        for number in range(1, 12)
        if (tree := village.tree(number, NAME)) and tree.leases.children and not tree.root
    )
    changed(village, 13, subscribers=[FRIEND.principal])
    while not (tree := village.tree(inner, NAME)) or not tree.barred:
        village.run(0.01)
    stranger, reader = subscribed(village, inner, STRANGER), subscribed(village, inner, FRIEND)
    village.run(5)
    village.publish(14, writer(village, 14, OWNER), b"late")
    village.run(3)
    assert (reader.payloads, reader.error) == ([b"late"], None)
    assert isinstance(stranger.error, AccessDenied)


def test_a_root_that_is_not_the_closest_any_more_transfers_its_topic_even_if_its_next_session_was_called_off() -> None:
    world = Parts()
    tree = world.root()
    assert tree.root is not None
    tree.root.session_state, tree.root.closing = SessionState.FLUSHING, True
    tree.root.flush_until = world.host.time
    assert tree.root.noted.upcoming is None
    world.sessions.due(FlushDue(tree.topic, tree.root.term))
    assert world.ordered == [Resign(tree.topic)]
