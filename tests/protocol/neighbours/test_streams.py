"""Change streams (docs/design.md, decision 4): what is sent, when, and how a copy follows."""

from hashlib import sha256

import pytest

from quillcast.core.errors import LocalError, Malformed, RemoteError
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark
from quillcast.protocol import wire
from quillcast.protocol.neighbours.config import StreamConfig
from quillcast.protocol.neighbours.stream_maps import BUCKETS, DigestedMap
from quillcast.protocol.neighbours.stream_messages import Changes, Contents, Resend
from quillcast.protocol.neighbours.streams import UNTOLD, Flush, ResendDue
from tests.protocol.neighbours.ends import End, Link

SUN, RAIN, SNOW = b"sun" * 5, b"rain" * 4, b"snow" * 4


def many(count: int) -> dict[bytes, bytes]:
    """`count` keys with values, spread over all buckets."""
    return {sha256(b"%d" % number).digest()[:16]: b"value %d" % number for number in range(count)}


def link_with(entries: dict[bytes, bytes], **config: object) -> Link:
    """A link on which end a has sent these entries to b."""
    link = Link(**config)
    for key, value in entries.items():
        link.a.put(key, value)
    link.heal()
    assert link.b.told() == entries
    for end in (link.a, link.b):
        end.sent.clear()
        end.traced.clear()
    return link


def sent(end: End, kind: type[Message]) -> list[Message]:
    return [message for message in end.sent if isinstance(message, kind)]


def changed_keys(end: End) -> list[list[bytes]]:
    """The keys of each message of changes that the end sent."""
    return [[key for key, _ in message.changes] for message in end.sent if isinstance(message, Changes)]


def test_the_digests_of_buckets_count_each_change_once_whenever_they_are_asked_for() -> None:
    contents = DigestedMap(b"epoch")
    for key, value in many(2 * BUCKETS).items():
        contents.set(key, value)
    contents.check()
    fresh = contents.buckets
    contents.set(SUN, b"up")
    assert contents.buckets is fresh
    contents.check()
    late = DigestedMap(b"epoch")
    for key, value in contents.entries.items():
        late.set(key, value)
    assert late.buckets == contents.buckets
    late.check()


# What is sent


def test_an_end_that_has_nothing_to_send_and_nothing_to_ask_for_has_no_dicts_for_it() -> None:
    link = link_with({SUN: b"up"})
    assert link.a.streams._outgoing[link.b.me].pending is EMPTY
    assert link.b.streams._incoming[link.a.me].removed is EMPTY


def test_a_single_change_is_sent_at_once() -> None:
    link = Link()
    link.a.put(SUN, b"up")
    link.deliver_all()
    assert link.b.told() == link.b.heard == {SUN: b"up"}


def test_changes_soon_after_are_sent_together_with_their_last_values() -> None:
    link = Link(flush_s=0.1)
    link.a.put(SUN, b"up")
    link.a.put(RAIN, b"some")
    link.a.put(RAIN, b"much")
    link.a.put(SNOW, b"none")
    link.a.drop(SNOW)
    assert changed_keys(link.a) == [[SUN]]
    link.advance(0.1)
    assert link.a.sent[1].changes == ((RAIN, b"much"), (SNOW, None))
    link.deliver_all()
    assert link.b.heard == {SUN: b"up", RAIN: b"much"}
    assert link.b.removed == [SNOW], "who waits for the end of what it was never sent would wait for good"


def test_a_restarted_peer_hears_that_a_key_is_removed_that_it_was_never_sent() -> None:
    """As a peer that leaves soon after, and waits until a child has another parent."""
    link = link_with({SUN: b"up"})
    link.a.drop(SUN)
    link.deliver_all()
    link.restart("b")
    link.a.put(RAIN, b"some")
    link.a.put(SNOW, b"none")
    link.a.drop(SNOW)
    link.a.drop(RAIN)
    link.a.put(RAIN, b"much")
    link.advance(0.1)
    link.deliver_all()
    assert (link.b.heard, link.b.removed) == ({RAIN: b"much"}, [SNOW])


def test_changes_that_wait_are_sent_in_the_order_in_which_they_were_made_last() -> None:
    """A later change may hold only after those before it, and not all of them fit one message."""
    link = Link(flush_s=0.1)
    for key, value in ((SNOW, b"up"), (SUN, b"up"), (RAIN, b"up"), (SUN, b"down")):
        link.a.put(key, value)
    link.advance(0.1)
    assert changed_keys(link.a) == [[SNOW], [RAIN, SUN]]


def test_one_timer_is_set_for_all_waiting_changes() -> None:
    link = Link()
    for key, value in many(50).items():
        link.a.put(key, value)
    assert [type(timer) for _, timer in link.a.timers] == [Flush]


def test_after_a_pause_a_change_is_sent_at_once_again() -> None:
    link = link_with({SUN: b"up"})
    link.advance(0.1)
    link.a.put(SUN, b"down")
    assert changed_keys(link.a) == [[SUN]]


def test_an_unchanged_value_is_not_sent_again() -> None:
    link = link_with({SUN: b"up"})
    link.a.put(SUN, b"up")
    link.a.drop(RAIN)
    assert link.a.sent == []


def test_changes_are_sent_to_the_latest_address() -> None:
    link = link_with({SUN: b"up"})
    moved = Contact(link.b.me, "elsewhere:1")
    recipients = []
    link.a.send = lambda to, message: recipients.append(to)  # type: ignore[method-assign]
    link.a.streams.drop(moved, SUN)
    link.a.streams.put(moved, SUN, b"up")
    link.advance(0.1)
    assert recipients == [moved, moved]


def test_the_two_directions_of_a_link_are_separate() -> None:
    link = link_with({SUN: b"up"})
    link.b.put(SUN, b"down")
    link.deliver_all()
    assert link.a.told() == {SUN: b"down"}
    assert link.b.told() == {SUN: b"up"}
    assert (link.a.telling(), link.b.telling()) == (link.b.told(), link.a.told())


def test_an_unknown_peer_has_sent_nothing() -> None:
    link = Link()
    assert link.a.streams.told(b"?" * 16) == link.a.streams.telling(b"?" * 16) == {}
    link.a.drop(SUN)
    assert link.a.streams.mark(link.b.me) == UNTOLD


def test_an_entry_too_large_for_a_message_is_rejected() -> None:
    with pytest.raises(LocalError, match="16 \\+ 60000 bytes"):
        Link().a.put(SNOW, bytes(60_000))


def test_what_would_exceed_the_bound_of_a_map_is_counted_and_not_told() -> None:
    link = link_with({SUN: bytes(80)}, map_bytes_max=100)
    link.a.put(RAIN, b"some")
    link.a.put(SUN, bytes(90))
    assert link.a.traced == [Mark("reports_full")] * 2
    link.a.put(SUN, bytes(84))
    link.advance(0.1)
    link.deliver_all()
    assert link.b.told() == {SUN: bytes(84)}
    link.a.drop(SUN)
    link.a.put(RAIN, b"some")
    link.advance(0.1)
    link.deliver_all()
    assert link.b.told() == {RAIN: b"some"}


def test_a_map_has_room_for_topics_up_to_half_of_its_bound_and_for_sources_up_to_three_quarters() -> None:
    link = link_with({SUN: bytes(34)}, map_bytes_max=100)
    here, there = link.a.streams, link.b.streams
    assert not here.crowded(link.b.me)
    assert not there.crowded(link.a.me)
    link.a.put(SUN, bytes(35))
    link.advance(0.1)
    link.deliver_all()
    assert here.crowded(link.b.me)
    assert there.crowded(link.a.me), "the end that tells more counts"
    assert not here.full(link.b.me)
    link.a.put(SUN, bytes(60))
    link.advance(0.1)
    link.deliver_all()
    assert here.full(link.b.me)
    assert not there.full(link.a.me), "a neighbour may make up what it tells"


def test_a_neighbour_that_exceeds_the_bound_violates_the_protocol() -> None:
    link = Link(map_bytes_max=100)
    link.a.streams.config = StreamConfig()
    for key, value in many(10).items():
        link.a.put(key, value)
    link.advance(0.1)
    with pytest.raises(RemoteError, match="sent more than 100 bytes"):
        link.deliver_all()
    link.b.streams.check()


class Crowd:
    """One peer's streams, and neighbours that say what they like."""

    def __init__(self, **config: int) -> None:
        self.streams = Link(**config).b.streams
        self.here: set[bytes] = set()
        self.streams.report_to(None, self.here.__contains__)

    def say(self, who: int, size: int, key: bytes = SUN) -> None:
        """A peer becomes a neighbour, if it is none, and sends an entry of so many bytes."""
        contact = Contact(bytes([who]) * 16, f"peer{who}")
        self.here.add(contact.node_id)
        before = len(self.streams.told(contact.node_id))
        entries = ((key, bytes(size - len(key))),)
        self.streams.receive(contact, Changes(contact.node_id[:12], before, before + 1, entries))

    def bytes_of(self, who: int) -> int:
        return sum(len(key) + len(value) for key, value in self.streams.told(bytes([who]) * 16).items())


def test_beyond_the_bound_of_all_copies_the_largest_is_given_up_and_its_neighbour_refused_when_it_sends_more() -> None:
    crowd = Crowd(copies_bytes_max=400)
    crowd.say(1, 350)
    crowd.say(2, 90)
    assert (crowd.bytes_of(1), crowd.bytes_of(2)) == (0, 90)
    crowd.say(1, 300)
    with pytest.raises(RemoteError, match="peer1 sent 350 bytes of entries on its stream, more than any other"):
        crowd.say(1, 50, RAIN)
    crowd.streams.check()


def test_former_neighbours_take_no_share() -> None:
    crowd = Crowd(copies_bytes_max=400)
    for who in (1, 2, 3):
        crowd.say(who, 130)
        crowd.here.clear()
    crowd.say(4, 300)
    assert [crowd.bytes_of(who) for who in (1, 2, 3, 4)] == [0, 0, 0, 300]


def test_maps_of_former_neighbours_are_forgotten_when_there_are_many() -> None:
    crowd = Crowd()
    for who in range(256):
        crowd.say(who, 20)
        crowd.here.clear()
    assert sum(crowd.bytes_of(who) > 0 for who in range(256)) <= 64


# What heartbeats detect


def test_an_equal_mark_causes_no_request() -> None:
    link = link_with(many(100))
    link.a.heartbeat()
    link.b.heartbeat()
    link.deliver_all()
    assert link.a.sent == link.b.sent == []


def test_a_mark_has_the_same_size_for_one_key_and_for_a_thousand() -> None:
    one, thousand = link_with(many(1)), link_with(many(1000))
    marks = one.a.streams.mark(one.b.me), thousand.a.streams.mark(thousand.b.me), UNTOLD
    assert [len(digest) for _, digest in marks] == [12, 12, 12]


def test_waiting_changes_are_sent_before_the_mark_that_counts_them() -> None:
    link = link_with({SUN: b"up"})
    link.a.put(RAIN, b"some")
    link.a.put(SNOW, b"none")
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.told() == {SUN: b"up", RAIN: b"some", SNOW: b"none"}
    assert link.b.sent == []


def test_an_old_mark_that_arrives_late_causes_no_request() -> None:
    link = link_with({SUN: b"up"})
    link.a.heartbeat()
    link.a.put(SUN, b"down")
    link.deliver(1)
    link.deliver(0)
    assert link.b.sent == []


def test_a_mark_of_another_length_is_malformed() -> None:
    link = Link()
    with pytest.raises(Malformed, match="mark has 3 bytes"):
        link.b.streams.compare(link.a.contact, 1, b"odd")


# Lost changes


def test_lost_changes_are_detected_at_the_next_one_and_sent_again() -> None:
    link = link_with({SUN: b"up"})
    link.a.put(RAIN, b"some")
    link.lose_all()
    link.advance(0.1)
    link.a.put(SNOW, b"none")
    link.deliver_all()
    assert link.b.heard == link.a.telling()
    assert changed_keys(link.a) == [[RAIN], [SNOW], [RAIN, SNOW]]
    assert link.a.marks() == ["stream_changes_resent"]


def test_the_loss_of_the_last_change_is_detected_at_the_next_heartbeat() -> None:
    link = link_with({SUN: b"up"})
    link.a.drop(SUN)
    link.lose_all()
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == {}
    assert link.a.marks() == ["stream_changes_resent"]


def test_a_copy_that_is_up_to_date_but_differs_is_detected_at_the_next_heartbeat() -> None:
    link = link_with({SUN: b"up"})
    link.restart("a")
    link.a.put(RAIN, b"some")  # its first change, like that of the earlier incarnation
    link.lose_all()
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == {RAIN: b"some"}


def test_what_is_asked_for_anew_is_told_of_though_it_is_the_same() -> None:
    link = link_with({SUN: b"up", RAIN: b"some"})
    del link.b.heard[SUN]
    link.b.streams.ask_anew(link.a.contact, SUN)
    link.deliver_all()
    assert link.b.heard == link.b.told() == {SUN: b"up", RAIN: b"some"}
    link.b.streams.check()


def test_an_end_hears_of_the_removal_of_a_key_that_it_was_never_sent_though_its_question_is_lost() -> None:
    link = link_with({SUN: b"up", RAIN: b"some"})
    link.a.put(SNOW, b"none")
    link.a.drop(SNOW)
    link.advance(link.config.flush_s)
    link.lose_all()  # the changes
    link.a.put(RAIN, b"more")
    link.advance(link.config.flush_s)
    link.deliver_all_to("b")
    link.lose_all()  # the question
    link.advance(link.config.ask_again_s)
    link.heal()
    assert link.b.removed == [SNOW]


def test_a_repeated_or_late_change_is_not_applied_again() -> None:
    link = link_with({SUN: b"up"})
    link.a.put(SUN, b"down")
    link.flights += link.flights
    link.advance(0.1)
    link.a.put(SUN, b"up again")
    link.deliver(0)
    link.deliver(1)
    assert link.b.heard == {SUN: b"up again"}
    link.deliver(0)
    assert link.b.heard == {SUN: b"up again"}
    assert link.b.sent == []


def test_resent_changes_are_numbered_correctly_if_one_key_changed_often() -> None:
    link = link_with({SUN: b"up"})
    for value in (b"down", b"up", b"gone"):
        link.a.put(SUN, value)
        link.advance(0.1)
    link.a.put(RAIN, b"some")
    link.lose_all()
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == {SUN: b"gone", RAIN: b"some"}
    assert len(sent(link.b, Resend)) == 1
    assert sent(link.a, Changes)[-1] == Changes(link.a.incarnation + bytes(4), 1, 5, ((SUN, b"gone"), (RAIN, b"some")))


def test_pages_of_resent_changes_are_consecutive() -> None:
    link = link_with({SUN: b"up"}, page_bytes_max=100)
    for value in (b"down", b"up", b"gone"):
        link.a.put(SUN, value)
        link.advance(0.1)
    for number in range(4):
        link.a.put(b"number %d" % number, b"here")
    link.advance(0.1)
    link.lose_all()
    link.a.sent.clear()
    link.a.heartbeat()
    link.deliver_all()
    pages = sent(link.a, Changes)
    assert [page.after for page in pages] == [1, *(page.number for page in pages[:-1])]
    assert pages[-1].number == sent(link.a, Contents)[0].number == 8
    assert link.b.heard == link.a.telling()


def test_an_answer_includes_waiting_changes() -> None:
    link = link_with({SUN: b"up"})
    link.a.put(SUN, b"down")
    link.lose_all()
    link.a.heartbeat()
    link.a.put(RAIN, b"some")
    link.deliver_all()
    assert link.b.heard == {SUN: b"down", RAIN: b"some"}
    assert sent(link.a, Contents)[0].number == link.a.streams.mark(link.b.me)[0] == 3
    assert isinstance(link.a.sent[-1], Contents)


def test_a_copy_that_misses_more_than_is_remembered_is_sent_only_the_differing_buckets() -> None:
    entries = many(1000)
    link = link_with(entries, log_changes_max=2)
    for key in list(entries)[:3]:
        link.a.put(key, b"new")
        link.lose_all()
        link.advance(0.1)
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == link.a.telling()
    assert link.a.marks() == ["stream_buckets_sent"]
    (contents,) = sent(link.a, Contents)
    assert contents.buckets.bit_count() == 3
    assert len(contents.entries) < 100


def test_a_copy_that_is_up_to_date_stops_asking() -> None:
    link = link_with({SUN: b"up"})
    link.a.drop(SUN)
    link.lose_all()
    link.a.heartbeat()
    link.deliver_all()
    for _ in range(5):
        link.advance(10)
    assert len(sent(link.b, Resend)) == 1


def test_an_unanswered_request_is_repeated_ever_more_slowly_until_the_next_mark() -> None:
    link = link_with({SUN: b"up"}, ask_again_s=1.0, questions_max=3)
    link.a.put(SUN, b"down")
    link.lose_all()
    link.a.heartbeat()
    link.deliver_all_to("b")
    asked = []
    for _ in range(20):
        link.lose_all()
        link.advance(1.0)
        asked.append(len(sent(link.b, Resend)))
    assert asked[:4] == [2, 2, 3, 3]
    assert asked[-1] == 3
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == {SUN: b"down"}


def test_no_second_request_is_sent_while_the_first_may_be_answered() -> None:
    link = link_with({SUN: b"up"})
    link.a.drop(SUN)
    link.lose_all()
    for _ in range(3):
        link.a.heartbeat()
        link.deliver_all_to("b")
    assert len(sent(link.b, Resend)) == 1


# Large maps, page by page


def test_no_message_is_larger_than_a_page() -> None:
    link = Link(page_bytes_max=1000)
    for key, value in many(500).items():
        link.a.put(key, value)
    link.heal()
    link.b.forget()
    link.heal()
    assert link.b.heard == many(500)
    assert len(sent(link.a, Contents)) > 10 < len(sent(link.a, Changes))
    assert max(len(wire.encode(message)) for message in link.a.sent) <= 1000 + 600


def test_a_lost_page_is_requested_after_the_last_one() -> None:
    link = Link(page_bytes_max=1000)
    for key, value in many(500).items():
        link.a.put(key, value)
    link.heal()
    link.b.forget()
    link.a.heartbeat()
    link.deliver()
    link.deliver()
    del link.flights[3]
    first = len(sent(link.a, Contents))
    link.deliver_all()
    assert link.b.heard == many(500)
    again = sent(link.a, Contents)[first:]
    assert again[0].buckets.bit_count() < 64
    assert len(again) < first


def test_the_listener_is_notified_only_of_differences_however_many_pages_arrive() -> None:
    link = link_with(many(500), page_bytes_max=1000, log_changes_max=0)
    heard = []
    link.b.streams.listener = Hearing(heard)
    for key in list(many(500))[:100]:
        link.a.put(key, b"new")
    link.a.put(b"last", b"new")
    link.a.drop(list(many(500))[200])
    link.advance(0.1)
    link.lose_all()
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.told() == link.a.telling()
    assert len(heard) == len(set(heard)) == 102


class Hearing:
    def __init__(self, heard: list[bytes]) -> None:
        self.heard = heard

    def kept(self, key: bytes) -> bytes:
        return key

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        self.heard.append(key)


def test_no_further_request_is_sent_while_pages_arrive() -> None:
    link = Link(page_bytes_max=1000, ask_again_s=1.0)
    for key, value in many(500).items():
        link.a.put(key, value)
    link.heal()
    link.b.forget()
    link.b.sent.clear()
    link.a.heartbeat()
    link.deliver()
    link.deliver()
    while link.flights:
        link.deliver()
        link.advance(0.5)
    assert link.b.heard == many(500)
    assert len(sent(link.b, Resend)) == 1


# Restarts, and forgotten neighbours


def test_a_restarted_end_receives_the_map_again() -> None:
    link = link_with(many(10))
    link.restart("b")
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == many(10)


def test_a_restarted_end_also_receives_the_map_at_the_next_change() -> None:
    link = link_with(many(10))
    link.restart("b")
    link.a.put(SUN, b"up")
    link.deliver_all()
    assert link.b.heard == many(10) | {SUN: b"up"}


def test_entries_of_an_earlier_incarnation_are_dropped_if_not_sent_again() -> None:
    link = link_with({SUN: b"up", RAIN: b"some"})
    link.restart("a")
    link.a.put(SUN, b"up")
    link.deliver_all()
    assert link.b.heard == {SUN: b"up"}


def test_all_entries_are_dropped_if_a_restarted_end_sends_none() -> None:
    link = link_with(many(10))
    link.restart("a")
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == {}


def test_late_messages_of_an_earlier_incarnation_change_nothing() -> None:
    link = link_with({SUN: b"up"})
    link.a.put(SUN, b"down")
    link.a.heartbeat()
    late = list(link.flights)
    link.restart("a")
    link.a.put(RAIN, b"some")
    link.heal()
    link.flights += late
    link.deliver_all_to("b")
    assert link.b.heard == {RAIN: b"some"}


def test_an_answer_to_an_earlier_request_changes_nothing() -> None:
    link = link_with({SUN: b"up"})
    answer = (
        "b",
        link.a.contact,
        wire.encode(Contents(link.now - 1, bytes(12), 9, 0, (1 << 64) - 1, b"", None, ())),
    )
    link.flights.append(answer)
    link.deliver()
    assert link.b.heard == {SUN: b"up"}
    link.a.drop(SUN)
    link.lose_all()
    link.a.heartbeat()
    link.deliver()  # b asks
    link.flights.append(answer)
    link.deliver(1)
    assert link.b.heard == {SUN: b"up"}


def test_an_answer_overtaken_by_later_changes_changes_nothing() -> None:
    link = link_with({SUN: b"up"}, log_changes_max=0)
    link.a.put(SUN, b"down")
    late_change = link.flights.pop()
    link.a.heartbeat()
    link.deliver()  # b asks
    link.deliver()  # a answers
    late_answer = link.flights.pop()
    link.advance(0.1)
    link.a.put(SUN, b"set")
    link.flights[:] = [late_change, *link.flights, late_answer]
    link.deliver_all_to("b")
    assert link.b.heard == {SUN: b"set"}


def test_entries_sent_anew_to_a_forgotten_neighbour_are_not_mistaken_for_old_ones() -> None:
    link = link_with({SUN: b"up", RAIN: b"some"})
    link.a.forget()
    link.a.put(SNOW, b"much")
    link.deliver_all()
    assert link.b.heard == {SNOW: b"much"}


def test_changes_from_before_a_neighbour_was_forgotten_do_not_restart_its_stream() -> None:
    link = Link()
    link.a.put(SUN, b"up")
    late = link.flights.pop()
    link.a.forget()
    link.a.put(RAIN, b"some")
    link.deliver_all()
    link.advance(0.1)
    link.a.drop(RAIN)
    link.deliver_all()
    link.flights.append(late)
    link.deliver()
    assert link.b.heard == {}


def test_a_forgotten_neighbour_that_continues_is_received_in_full() -> None:
    link = link_with(many(10))
    link.b.forget()
    assert link.b.told() == {}
    link.a.heartbeat()
    link.deliver_all()
    assert link.b.heard == many(10)


def test_a_listener_may_forget_the_sender_during_its_changes() -> None:
    link = Link()
    for key, value in many(10).items():
        link.a.put(key, value)
    link.deliver_all()
    link.b.streams.listener = Forgetting(link.b)
    link.advance(0.1)
    link.deliver_all()
    assert link.b.told() == {}


class Forgetting:
    def __init__(self, end: End) -> None:
        self.end = end

    def kept(self, key: bytes) -> bytes:
        return key

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        assert self.end.told(), "told of a change after it forgot the sender"
        self.end.forget()


def test_timers_of_a_forgotten_stream_send_nothing() -> None:
    link = link_with({SUN: b"up"})
    link.a.put(RAIN, b"some")
    link.a.put(SNOW, b"none")
    link.lose_all()
    link.a.heartbeat()
    link.deliver_all_to("b")
    link.lose_all()
    assert [type(timer) for _, timer in link.b.timers] == [ResendDue]
    link.a.forget()
    link.b.forget()
    link.advance(30)
    assert link.flights == []


# Invalid messages


@pytest.mark.parametrize(
    "message",
    [
        Changes(b"short", 0, 1, ()),
        Contents(200.0, b"short", 1, 0, 0, b"", None, ()),
        Resend(1.0, bytes(12), 0, b"odd"),
    ],
)
def test_an_invalid_stream_message_is_malformed(message: Message) -> None:
    link = link_with({SUN: b"up"})
    with pytest.raises(Malformed):
        link.b.streams.receive(link.a.contact, message)


def test_a_request_of_an_unknown_peer_is_answered_with_an_empty_map() -> None:
    link = Link()
    link.a.streams.receive(link.b.contact, Resend(1.0, b"", 0, bytes(512)))
    assert link.a.sent == [Contents(1.0, link.a.incarnation + bytes(4), 0, 0, 0, b"", None, ())]


def test_requests_end_after_several_wrong_answers() -> None:
    link = link_with({SUN: b"up"}, questions_max=3)
    link.a.put(SUN, b"down")
    link.lose_all()
    link.a.heartbeat()
    link.deliver()
    while link.flights:
        _, _, question = link.flights.pop()
        wrong = Contents(wire.decode(question).asked_at, link.a.incarnation + bytes(4), 9, 1, 0, b"", None, ())
        link.b.streams.receive(link.a.contact, wrong)
    assert len(sent(link.b, Resend)) == 3
