"""A publisher: windows, retention, roots that change."""

import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, RELIABLE_STREAMS, RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.milestones import Came
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.publishing.places import TERMS_MAX
from quillcast.protocol.topics.publishing.publisher import DROPPED_RANGES_MAX, Publisher, Uplink
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, SECOND, RecordingHost, is_stable


class Listener:
    def __init__(self) -> None:
        self.discarded: list[Block] = []
        self.unkept: list[Range] = []

    def progressed(self) -> None: ...
    def dropped(self, block: Block) -> None:
        self.discarded.append(block)

    def stops_keeping(self) -> None: ...

    def was_best_effort(self, first: int, last: int) -> None:
        self.unkept.append((first, last))

    def failed(self, error: Exception) -> None: ...


def uplink(host: RecordingHost, carried: list[Bundle] | None = None, woken: list[bytes] | None = None) -> Uplink:
    """A way to the root with as much room as the link has; what it is given is noted."""
    bundles, topics = [] if carried is None else carried, [] if woken is None else woken
    return Uplink(lambda _, bundle: bundles.append(bundle), lambda root, *_: host.room(root), topics.append)


def a_publisher(**config: float) -> tuple[Publisher, list[Bundle], RecordingHost]:
    host = RecordingHost()
    carried: list[Bundle] = []
    publisher = Publisher(host, TopicConfig(**config), Descriptor("weather"), PAUL, Listener(), uplink(host, carried))
    return publisher, carried, host


def sequences(bundles: list[Bundle]) -> list[tuple[int, int]]:
    return [(block.first, block.last) for bundle in bundles for block in bundle.blocks]


def test_what_is_offered_before_the_root_is_known_goes_out_when_it_is() -> None:
    publisher, carried, _ = a_publisher()
    publisher.offer([b"a"])
    publisher.offer([b"b", b"c"])
    assert not carried
    publisher.root_is(BOB, FIRST)
    assert sequences(carried) == [(0, 1), (1, 3)]


def test_the_first_event_that_waits_is_told_with_its_topic() -> None:
    host, woken = RecordingHost(), list[bytes]()
    topic = Descriptor("weather")
    publisher = Publisher(host, TopicConfig(), topic, PAUL, Listener(), uplink(host, woken=woken))
    publisher.offer([b"a"])
    publisher.offer([b"b"])
    assert woken == [topic.topic]


def test_a_new_root_gets_everything_again_that_is_not_stable() -> None:
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    for payload in (b"a", b"b", b"c"):
        publisher.offer([payload])
    publisher.receipt(FIRST, 3, 1)
    carried.clear()
    publisher.root_is(CAROL, SECOND)
    assert sequences(carried) == [(1, 2), (2, 3)]
    assert carried[0].envelope.first == 1, "the floor says from where on the new root must have it"


def test_a_publisher_that_goes_on_at_another_peer_counts_only_what_that_peer_has() -> None:
    publisher, carried, _ = a_publisher()
    publisher.continue_at(5)
    publisher.root_is(BOB, FIRST)
    assert publisher.unsettled == 0
    publisher.publish(Block.seal(PAUL, 5, [b"f"], time_ns=0))
    assert carried[0].envelope.first == 5
    publisher.receipt(FIRST, 9, 8)
    publisher.check()
    assert (publisher.admitted, publisher.stable, publisher.room()) == (6, 6, publisher.config.window_bytes)
    publisher.publish(Block.seal(PAUL, 6, [b"g"], time_ns=0))
    assert sequences(carried) == [(5, 6), (6, 7)], "the root has it already, and says so again"
    publisher.receipt(FIRST, 9, 8)
    assert (publisher.stable, publisher.retained_bytes) == (7, 0)


@pytest.mark.parametrize("first", [0, 1, 2, 3, 7])
def test_an_orphan_goes_on_with_what_its_application_may_still_lack(first: int) -> None:
    """The application published events from `first` on here, or all but that through another peer meanwhile."""
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    for payload in (b"a", b"b", b"c"):
        publisher.offer([payload])
    publisher.receipt(FIRST, 2, 1)
    publisher.closed = publisher.said_closed = True
    publisher.reopen(first, listener := Listener(), None)
    publisher.check()
    assert (publisher.next, publisher.is_orphaned, publisher.unfinished) == (max(3, first), False, True)
    assert [block.first for block in publisher.retained] == [each for each in range(3) if each >= max(1, first)]
    carried.clear()
    publisher.publish(Block.seal(PAUL, publisher.next, [b"d"], time_ns=0))
    assert sequences(carried) == [(max(3, first), max(3, first) + 1)]
    publisher.receipt(FIRST, 20, 20)
    publisher.check()
    assert (publisher.stable, publisher.retained_bytes) == (publisher.next, 0), "the root has more from another peer"
    assert publisher.listener is listener


def test_a_root_whose_term_is_over_frees_nothing() -> None:
    publisher, _, _ = a_publisher()
    publisher.root_is(CAROL, SECOND)
    publisher.offer([b"a"])
    publisher.receipt(FIRST, 1, 1)
    assert (publisher.admitted, publisher.stable) == (0, 0)
    assert publisher.retained_bytes > 0


def test_room_is_what_the_window_leaves_and_comes_back_with_the_receipt() -> None:
    publisher, _, _ = a_publisher(window_bytes=1000)
    publisher.root_is(BOB, NO_TERM)
    publisher.offer([b"x" * 900])
    assert publisher.room() < 100
    publisher.receipt(NO_TERM, 1, 0)
    assert publisher.room() == 1000


def test_a_publisher_asks_after_events_that_stay_unstable() -> None:
    publisher, carried, host = a_publisher()
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"a"])
    publisher.offer([b"b"])
    publisher.receipt(FIRST, 2, 0)
    carried.clear()
    host.time = 11.0
    publisher.remind(11.0)
    assert sequences(carried) == [(1, 2)]


def held_up(publisher: Publisher, host: RecordingHost, *, stable: int, written: int) -> None:
    """Events, one a second, of which a root calls so many stable; then the publisher discards all but the last two."""
    for _ in range(written):
        publisher.offer([b"x"])
        host.time += 1.0
    publisher.receipt(publisher.term, publisher.next, stable)
    publisher.trim(host.time)
    publisher.check()


def test_what_no_receipt_came_for_is_sent_again() -> None:
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    for payload in (b"a", b"b", b"c"):
        publisher.offer([payload])
    publisher.receipt(FIRST, 1, 0)
    carried.clear()
    publisher.resend()
    assert sequences(carried) == [(1, 2), (2, 3)]


def test_what_is_discarded_before_it_is_stable_never_counts_as_stable() -> None:
    publisher, carried, host = a_publisher(retain_s=2.5)
    publisher.root_is(BOB, FIRST)
    held_up(publisher, host, stable=3, written=10)
    assert publisher.dropped.ranges() == [(3, 8)]
    assert (publisher.stable, publisher.unsettled) == (3, 2)
    carried.clear()
    publisher.root_is(CAROL, SECOND)
    assert carried[0].envelope.first == 8, "it says what it still has, and not what is stable"
    publisher.receipt(SECOND, 10, 10)
    assert [sequence for sequence in range(11) if is_stable(publisher, sequence)] == [0, 1, 2, 8, 9]
    assert publisher.unsettled == 0


def test_up_to_where_what_is_discarded_stands_in_the_term_that_admitted_it_last() -> None:
    publisher, _, host = a_publisher(retain_s=2.5)
    publisher.root_is(BOB, FIRST)
    for index in (4, 7, 9):  # others publish, too
        publisher.offer([b"x"])
        publisher.receipt(FIRST, publisher.next, 0, index=index)
        host.time += 1.0
    began = host.time
    assert publisher.trim(host.time) == {FIRST: Came(4, began - 3.0)}, "its root said so then"
    publisher.root_is(CAROL, SECOND)
    publisher.receipt(SECOND, 2, 0, index=1)
    host.time += 1.0
    assert publisher.trim(host.time) == {SECOND: Came(1, began)}
    host.time += 1.0
    assert publisher.trim(host.time) == {FIRST: Came(9, began - 1.0)}, "no matter when it was discarded"
    assert publisher.trim(host.time) == publisher.places.by_term == {}
    assert publisher.dropped.ranges() == [(0, 3)]


def test_so_also_for_what_is_discarded_because_a_best_effort_session_begins() -> None:
    """The root may die before anybody else hears how far the term went that admitted it."""
    publisher, _, host = a_publisher()
    publisher.root_is(BOB, FIRST)
    for index in (4, 7):
        publisher.offer([b"x"])
        publisher.receipt(FIRST, publisher.next, 0, index=index)
    publisher.offer([b"never admitted"])
    publisher.adapt(Descriptor("weather", Settings(delivery="best_effort"), version=1, session=1))
    publisher.begin_session()
    assert publisher.trim(host.time) == {FIRST: Came(7, host.time)}
    assert publisher.trim(host.time) == {}


def test_no_more_terms_are_remembered_than_may_have_admitted_what_is_kept() -> None:
    publisher, _, _ = a_publisher()
    publisher.offer([b"x"])
    terms = [FIRST._replace(counter=counter) for counter in range(1, TERMS_MAX + 2)]
    for term in terms:
        publisher.receipt(term, 1, 0, index=1)
    assert list(publisher.places.by_term) == terms[1:]
    publisher.receipt(terms[-1], 1, 1, index=1)
    assert publisher.places.by_term == {}


def test_a_listener_is_notified_of_each_discarded_block() -> None:
    publisher, _, host = a_publisher(retain_s=2.5)
    publisher.root_is(BOB, FIRST)
    held_up(publisher, host, stable=3, written=6)
    listener = publisher.listener
    assert isinstance(listener, Listener)
    assert [block.first for block in listener.discarded] == [3]


def test_ranges_of_discarded_events_are_bounded_and_err_on_the_side_of_not_stable() -> None:
    publisher, _, host = a_publisher(retain_s=2.5)
    publisher.root_is(BOB, FIRST)
    for number in range(DROPPED_RANGES_MAX + 5):
        held_up(publisher, host, stable=publisher.next, written=5 + (number == 3))
        publisher.receipt(FIRST, publisher.next, publisher.next)
    assert len(publisher.dropped) <= DROPPED_RANGES_MAX


def test_a_receipt_says_whether_its_root_is_cut_off() -> None:
    publisher, _, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"a"])
    publisher.receipt(FIRST, 1, 0, partitioned=True)
    assert publisher.partitioned
    publisher.receipt(FIRST, 1, 1)
    assert not publisher.partitioned


def test_a_root_that_waits_for_its_replicas_asks_for_what_it_lacks_and_acknowledges_nothing() -> None:
    publisher, carried, _ = a_publisher()
    publisher.descriptor = Descriptor("weather", Settings(partition="wait"))
    publisher.root_is(BOB, FIRST)
    for payload in (b"a", b"b", b"c"):
        publisher.offer([payload])
    carried.clear()
    publisher.receipt(FIRST, 1, 1, ((1, 3),), partitioned=True)
    assert sequences(carried) == [(1, 2), (2, 3)]
    assert (publisher.admitted, publisher.stable) == (0, 0)
    publisher.receipt(FIRST, 3, 1)
    assert (publisher.admitted, publisher.stable) == (3, 1)


def test_what_the_root_lacks_is_sent_again_and_nothing_else() -> None:
    publisher, carried, host = a_publisher()
    publisher.root_is(BOB, FIRST)
    for _ in range(9):
        publisher.offer([b"a"])
    carried.clear()
    host.rooms[BOB.node_id] = 0
    publisher.receipt(FIRST, 1, 0, ((1, 3), (4, 6)))
    publisher.receipt(FIRST, 2, 0, ((7, 8), (4, 5)))
    publisher.offer([b"new"])
    assert not carried, "there is no room"
    host.rooms.clear()
    publisher.push()
    assert [sequences([bundle]) for bundle in carried] == [[(2, 3)], [(4, 5), (5, 6)], [(7, 8)], [(9, 10)]]
    publisher.push()
    publisher.receipt(FIRST, 9, 0, ((2, 5),))
    assert len(carried) == 5
    publisher.check()


def test_a_root_that_lacks_what_was_discarded_learns_that_at_once() -> None:
    publisher, carried, _ = a_publisher(retain_s=10.0)
    publisher.root_is(BOB, FIRST)
    for _ in range(3):
        publisher.offer([b"a"])
    publisher.receipt(FIRST, 2, 0)
    publisher.trim(11.0)
    publisher.root_is(CAROL, SECOND)
    carried.clear()
    publisher.receipt(SECOND, 0, 0, ((0, 2),))
    assert [(bundle.envelope.first, bundle.last) for bundle in carried] == [(2, 3)]


def test_a_publisher_that_is_held_back_sends_again_what_an_earlier_root_admitted() -> None:
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    for _ in range(4):
        publisher.offer([b"a"])
    publisher.receipt(FIRST, 2, 0)
    publisher.root_is(CAROL, SECOND)
    carried.clear()
    publisher.receipt(SECOND, 0, 0, ((0, 2), (3, 4)), held_back=True)
    assert sequences(carried) == [(0, 1)]
    publisher.receipt(SECOND, 1, 0, held_back=True)
    publisher.receipt(SECOND, 2, 0, held_back=True)
    assert sequences(carried) == [(0, 1), (1, 2)], "nobody admitted the fourth yet"
    publisher.receipt(SECOND, 3, 0)
    assert sequences(carried) == [(0, 1), (1, 2), (3, 4)]


def test_what_was_not_admitted_in_time_is_sent_once_though_the_root_lacks_some_of_it() -> None:
    publisher, carried, host = a_publisher()
    publisher.root_is(BOB, FIRST)
    for _ in range(3):
        publisher.offer([b"a"])
    carried.clear()
    host.rooms[BOB.node_id] = 0
    publisher.receipt(FIRST, 1, 0, ((1, 2),))
    publisher.resend()
    host.rooms.clear()
    publisher.push()
    assert sequences(carried) == [(1, 2), (2, 3)]


def test_the_block_that_reminds_a_root_is_sent_once_though_the_root_lacks_it() -> None:
    publisher, carried, host = a_publisher(remind_s=1.0)
    publisher.root_is(BOB, FIRST)
    for _ in range(3):
        publisher.offer([b"a"])
    publisher.receipt(FIRST, 3, 0)
    publisher.root_is(CAROL, SECOND)
    carried.clear()
    host.rooms[CAROL.node_id] = 0
    publisher.receipt(SECOND, 0, 0, ((0, 3),))
    publisher.remind(2.0)
    publisher.check()
    host.rooms.clear()
    publisher.push()
    assert sequences(carried) == [(0, 1), (1, 2), (2, 3)]


def test_what_a_reliable_session_leaves_is_sent_until_the_next_root_has_it_though_that_is_best_effort() -> None:
    publisher, carried, _ = a_publisher(receipt_timeout_s=10.0)
    publisher.root_is(BOB, FIRST)
    for _ in range(3):
        publisher.offer([b"reliable"])
    publisher.receipt(FIRST, 2, 0)
    carried.clear()
    later = Term(SESSION_TERMS + 1, BOB.node_id)
    publisher.adapt(Descriptor("weather", Settings(delivery="best_effort"), version=1, session=1))
    publisher.begin_session()
    publisher.root_is(BOB, later)
    publisher.offer([b"best effort"])
    assert sequences(carried) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert {bundle.envelope.first for bundle in carried} == {0}, "its root goes on from there"
    publisher.receipt(later, 1, 0, ((1, 2),))
    assert sequences(carried)[4:] == [(1, 2)]
    assert publisher.overdue(11.0)
    publisher.receipt(later, 4, 0)
    publisher.offer([b"best effort"])
    assert (carried[-1].envelope.first, [*publisher.retained], publisher.admitted) == (4, [], 5)
    publisher.check()


def test_what_a_reliable_session_leaves_goes_to_a_source_once() -> None:
    publisher, carried, _ = a_publisher()
    publisher.offer([b"reliable"])
    publisher.adapt(Descriptor("weather", Settings(delivery="best_effort", admission="source"), version=1, session=1))
    publisher.begin_session()
    publisher.root_is(CAROL, Term(RELIABLE_STREAMS - 1, CAROL.node_id))
    assert (sequences(carried), [*publisher.retained], publisher.keeps_reliable) == ([(0, 1)], [], False)


def test_a_best_effort_publisher_without_a_root_keeps_no_more_than_its_bound() -> None:
    publisher, _, _ = a_publisher(retain_bytes=100)
    publisher.adapt(Descriptor("weather", Settings(delivery="best_effort")))
    publisher.offer([bytes(200)])
    assert publisher.room() < 0


def test_a_publisher_that_is_held_back_sends_nothing_until_its_root_says_so() -> None:
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST, held_back=True)
    publisher.offer([b"a"])
    assert not carried
    publisher.receipt(FIRST, 0, 0)
    assert sequences(carried) == [(0, 1)]
    publisher.receipt(FIRST, 1, 0, held_back=True)
    publisher.offer([b"b"])
    publisher.resend()
    assert sequences(carried) == [(0, 1)]
    publisher.root_is(CAROL, SECOND)
    assert sequences(carried) == [(0, 1), (0, 1), (1, 2)], "another root has room until it says otherwise"


def test_a_publisher_that_is_held_back_sends_what_was_admitted_before_one_block_at_a_time() -> None:
    """What fills the root's buffers may wait for just that."""
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    for payload in (b"a", b"b", b"c"):
        publisher.offer([payload])
    publisher.receipt(FIRST, 2, 0)
    carried.clear()
    publisher.root_is(CAROL, SECOND, held_back=True)
    publisher.push()
    assert sequences(carried) == [(0, 1)]
    publisher.receipt(SECOND, 1, 0, held_back=True)
    assert sequences(carried) == [(0, 1), (1, 2)]
    publisher.receipt(SECOND, 2, 0, held_back=True)
    assert sequences(carried) == [(0, 1), (1, 2)], "the third was never admitted"


def test_a_publisher_that_is_held_back_asks_again_after_a_while_even_if_all_was_admitted_once() -> None:
    publisher, _, _ = a_publisher(receipt_timeout_s=10.0)
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"a"])
    publisher.receipt(FIRST, 1, 0)
    assert not publisher.overdue(11.0)
    publisher.root_is(CAROL, SECOND, held_back=True)
    assert publisher.overdue(11.0)


def test_what_was_not_stable_when_a_topic_turns_out_to_be_best_effort_never_counts_as_stable() -> None:
    publisher, _, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"before"])
    publisher.receipt(FIRST, 1, 0)
    publisher.adapt(Descriptor("weather", Settings(delivery="best_effort"), version=1))
    publisher.root_is(BOB, SECOND)
    publisher.receipt(SECOND, 1, 1)
    assert not is_stable(publisher, 0), "its root waits for nobody"


IN_SESSION = {1: Term(SESSION_TERMS, BOB.node_id), 2: Term(2 * SESSION_TERMS + RELIABLE_TERMS, BOB.node_id)}
SETTINGS = {1: Settings(delivery="best_effort"), 2: Settings()}


def begin_session(publisher: Publisher, session: int) -> None:
    """The topic's root says that the session has begun; that of an odd number is best-effort."""
    publisher.adapt(Descriptor("weather", SETTINGS[session], version=session + 1, session=session))
    publisher.begin_session()
    publisher.root_is(BOB, IN_SESSION[session])
    publisher.check()


def test_what_was_published_in_a_best_effort_session_never_counts_as_stable_though_its_root_says_so() -> None:
    publisher, _, _ = a_publisher()
    listener = publisher.listener
    assert isinstance(listener, Listener)
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"stable"])
    publisher.receipt(FIRST, 1, 1)
    begin_session(publisher, 1)
    publisher.offer([b"best", b"effort"])
    publisher.receipt(IN_SESSION[1], 3, 3)
    assert (publisher.admitted, publisher.stable, listener.unkept) == (3, 1, []), "its root waits for nobody"
    begin_session(publisher, 2)
    assert listener.unkept == [(1, 3)]
    publisher.offer([b"stable again"])
    publisher.receipt(IN_SESSION[2], 4, 4)
    assert [is_stable(publisher, sequence) for sequence in range(4)] == [True, False, False, True]
    assert (publisher.unsettled, publisher.retained_bytes) == (0, 0)


def test_the_word_of_a_best_effort_sessions_root_says_nothing_of_a_later_sessions_events() -> None:
    """It came to be known of the later session before its root did."""
    publisher, _, _ = a_publisher()
    publisher.root_is(BOB, IN_SESSION[1])
    publisher.offer([b"reliable"])
    publisher.receipt(IN_SESSION[1], 1, 1)
    assert (publisher.admitted, publisher.stable) == (1, 0)


def test_what_a_best_effort_session_may_have_admitted_never_counts_as_stable_and_is_sent_again() -> None:
    publisher, carried, _ = a_publisher()
    listener = publisher.listener
    assert isinstance(listener, Listener)
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"reliable"])
    begin_session(publisher, 1)
    publisher.offer([b"best effort"])
    carried.clear()
    begin_session(publisher, 2)
    assert sequences(carried) == [(0, 1), (1, 2)]
    publisher.receipt(IN_SESSION[2], 2, 2)
    assert ([block.first for block in listener.discarded], listener.unkept) == ([0], [(1, 2)])
    assert [is_stable(publisher, sequence) for sequence in range(2)] == [False, False]
    publisher.check()


def test_what_a_best_effort_session_had_no_root_for_becomes_stable_in_the_next() -> None:
    publisher, _, _ = a_publisher()
    begin_session(publisher, 1)
    publisher.root_lost()
    publisher.offer([b"waits"])
    begin_session(publisher, 2)
    publisher.receipt(IN_SESSION[2], 1, 1)
    assert is_stable(publisher, 0)


def test_what_was_admitted_when_a_topic_turns_out_to_be_best_effort_is_not_sent_again() -> None:
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    for payload in (b"admitted", b"sent"):
        publisher.offer([payload])
    publisher.receipt(FIRST, 1, 0)
    carried.clear()
    publisher.adapt(Descriptor("weather", Settings(delivery="best_effort", admission="source"), version=1))
    publisher.root_is(CAROL, SECOND)
    assert sequences(carried) == [(1, 2)]


@pytest.mark.parametrize("moves", [False, True], ids=["where it is", "at another peer"])
def test_a_clients_publisher_follows_that_of_its_peer_from_session_to_session(moves: bool) -> None:
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, NO_TERM)
    for payload in (b"stable", b"admitted", b"on its way"):
        publisher.offer([payload])
    publisher.receipt(NO_TERM, 2, 1)
    carried.clear()
    if moves:
        publisher.root_lost()
    publisher.follow_session(1, reliable=False)
    if moves:
        publisher.root_is(CAROL, NO_TERM)
    assert sequences(carried) == ([(1, 2), (2, 3)] if moves else []), "only the next peer lacks what the former one had"
    assert (publisher.retained_bytes, publisher.admitted, is_stable(publisher, 2)) == (0, 3, False)
    publisher.follow_session(2, reliable=True)
    publisher.offer([b"kept"])
    publisher.receipt(NO_TERM, 3, 3)
    assert (publisher.reliable, publisher.admitted, is_stable(publisher, 2), is_stable(publisher, 3)) == (
        True,
        3,
        False,
        False,
    )
    publisher.receipt(NO_TERM, 4, 4)
    assert is_stable(publisher, 3)
    publisher.check()
