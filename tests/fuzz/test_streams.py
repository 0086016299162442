"""Whatever a neighbour says on its stream: the copy stays sound, and what is wrong is the neighbour's fault."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import RemoteError
from quillcast.core.messages import Message
from quillcast.protocol.neighbours.stream_messages import MESSAGES
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
