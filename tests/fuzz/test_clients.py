"""Messages between clients and their peers: each comes back as it was sent, and other bytes are `Malformed`."""

from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import Malformed
from quillcast.core.messages import Message
from quillcast.live.clients.messages import AnyMessage, Codec, Delivery
from tests.fuzz.bytes import ANY_BYTES, FUZZ, damaged, values

MESSAGES: tuple[type[Message], ...] = get_args(AnyMessage)
ANY_MESSAGE = st.one_of([values(kind) for kind in MESSAGES])


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_comes_back_as_it_was_sent(kind: type[Message]) -> None:
    @FUZZ
    @given(values(kind))
    def comes_back(message: Message) -> None:
        assert Codec.decode_all(Codec.encode_all([message])) == [message]

    comes_back()


@FUZZ
@given(st.one_of(ANY_BYTES, damaged(ANY_MESSAGE.map(lambda message: Codec.encode_all([message])))))
def test_other_bytes_are_malformed(data: bytes) -> None:
    with suppress(Malformed):
        Codec.decode_all(data)


@FUZZ
@given(st.binary(min_size=16, max_size=16))
def test_a_delivery_is_read_from_any_topic_field(data: bytes) -> None:
    assert Delivery.decode(data).number < 1 << 32
