"""Every message comes back as it was sent, and bytes that are no message are `Malformed`, whatever they are."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quillcast.core.errors import Malformed
from quillcast.core.messages import Message
from quillcast.protocol import wire
from quillcast.protocol.topics.state import link_reports
from tests.fuzz.bytes import ANY_BYTES, FUZZ, damaged, values
from tests.fuzz.memory import peak_bytes

ANY_MESSAGE = st.one_of([values(kind) for kind in wire.MESSAGES])
ANY_REPORT = values(link_reports.LinkReport)
DEEP = b"\x91" * 100_000  # lists in lists, deeper than any stack
HUGE = [
    pytest.param(head + b"\xff\xff\xff\xff" + b"\x01" * 16, id=name)
    for name, head in [
        ("list", b"\xdd"),
        ("map", b"\xdf"),
        ("bytes", b"\xc6"),
        ("text", b"\xdb"),
        ("a list in a message", b"\x93\x0a\xc4\x00\xdd"),
        ("bytes in a message", b"\x93\x0a\xc6"),
    ]
]


def readable(data: bytes) -> None:
    """Each decoder of messages makes something of it or says that it is malformed."""
    for decode in (wire.decode, wire.decode_all, link_reports.decode):
        with suppress(Malformed):
            decode(data)


@pytest.mark.parametrize("kind", wire.MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_comes_back_as_it_was_sent(kind: type[Message]) -> None:
    @FUZZ
    @given(values(kind))
    def comes_back(message: Message) -> None:
        assert wire.decode(wire.encode(message)) == message

    comes_back()


@FUZZ
@given(st.lists(ANY_MESSAGE, max_size=5))
def test_the_messages_of_a_frame_come_back_in_order(messages: list[Message]) -> None:
    assert wire.decode_all(wire.encode_all(messages)) == messages


@FUZZ
@given(ANY_REPORT)
def test_a_link_report_is_decoded_as_it_was_encoded(report: link_reports.LinkReport) -> None:
    assert link_reports.decode(link_reports.encode(report)) == report


@FUZZ
@given(ANY_BYTES)
@example(DEEP)
@example(b"\x93\x0a\xc4\x00" + DEEP)
@example(b"\x92\x01\xa1\xff")
@example(b"\x93\x16\xa1\xff\xa1\xff")
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    readable(data)


@FUZZ
@given(damaged(ANY_MESSAGE.map(wire.encode)))
def test_a_damaged_message_is_another_or_malformed(data: bytes) -> None:
    readable(data)


@FUZZ
@given(damaged(st.lists(ANY_MESSAGE, max_size=3).map(wire.encode_all)))
def test_a_damaged_frame_of_messages_is_another_or_malformed(data: bytes) -> None:
    readable(data)


@FUZZ
@given(damaged(ANY_REPORT.map(link_reports.encode)))
def test_a_damaged_link_report_is_another_one_or_malformed(data: bytes) -> None:
    readable(data)


@FUZZ
@given(st.one_of(ANY_MESSAGE.map(wire.encode), ANY_REPORT.map(link_reports.encode)), st.booleans())
def test_a_field_of_a_later_version_is_skipped_however_deep_it_is(data: bytes, deep: bool) -> None:
    if data[0] < 0x9F:  # a list of up to 14 fields with one more at its end
        later = bytes([data[0] + 1]) + data[1:] + (DEEP if deep else b"\xc0")
        readable(later)


@pytest.mark.parametrize("data", HUGE)
def test_an_announced_size_alone_costs_no_memory(data: bytes) -> None:
    assert peak_bytes(lambda: readable(data)) < 1 << 20
