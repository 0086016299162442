"""Whatever a neighbour says on its stream: the copy stays sound, and what is wrong is the neighbour's fault."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import RemoteError
from quillcast.core.messages import Contact, Message
from quillcast.protocol.neighbours.stream_messages import MESSAGES, Changes
from tests.fuzz.bytes import FUZZ, values
from tests.protocol.neighbours.ends import Link

ANY_MESSAGE = st.one_of([values(kind) for kind in MESSAGES])


@FUZZ
@given(st.lists(ANY_MESSAGE, max_size=8))
def test_any_messages_leave_both_ends_sound(messages: list[Message]) -> None:
    link = Link()
    for message in messages:
        with suppress(RemoteError):
            link.b.streams.receive(link.a.contact, message)
        link.check()
    link.deliver_all()
    link.check()


ENTRIES = st.lists(st.tuples(st.binary(max_size=4), st.integers(0, 90)), max_size=4)


@FUZZ
@given(st.lists(st.tuples(st.integers(0, 7), ENTRIES, st.booleans()), max_size=40))
def test_whatever_neighbours_send_their_copies_stay_within_the_bounds(
    said: list[tuple[int, list[tuple[bytes, int]], bool]],
) -> None:
    end = Link(map_bytes_max=200, copies_bytes_max=400).b
    here: set[bytes] = set()
    end.streams.report_to(None, here.__contains__)
    for number, (who, entries, stays) in enumerate(said):
        contact = Contact(bytes([who]) * 16, f"peer{who}")
        here.add(contact.node_id)
        changes = tuple((key, bytes(size)) for key, size in entries)
        with suppress(RemoteError):
            end.streams.receive(contact, Changes(contact.node_id[:12], 0, number + 1, changes))
        here -= set() if stays else {contact.node_id}
        copies = [end.streams.told(bytes([number]) * 16) for number in range(8)]
        sizes = [sum(len(key) + len(value) for key, value in copy.items()) for copy in copies]
        assert max(sizes) <= 200
        assert sum(sizes) <= 400
        end.streams.check()


@FUZZ
@given(st.lists(st.tuples(values(int), st.binary(max_size=24) | st.binary(min_size=20, max_size=20)), max_size=8))
def test_any_marks_leave_both_ends_sound(marks: list[tuple[int, bytes]]) -> None:
    link = Link()
    link.a.put(b"key", b"value")
    link.deliver_all()
    for mark in marks:
        with suppress(RemoteError):
            link.b.streams.compare(link.a.contact, *mark)
        link.deliver_all()
        link.check_equal()
