"""Messages between clients and their peers: each comes back as it was sent, and other bytes are `Malformed`."""

from contextlib import suppress
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import Malformed
from quillcast.core.messages import Contact, Message, decoded
from quillcast.live.clients.messages import AnyMessage, Call, Codec, Delivery, Welcome
from quillcast.protocol.topics.config import TopicConfig
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


WELCOME = Welcome(Contact(bytes(16), "127.0.0.1:1"), 1, "/run", 1 << 20, bytes(8), b"", TopicConfig())
CALLS = msgspec.msgpack.Decoder(Call)


@FUZZ
@given(st.one_of(ANY_BYTES, damaged(st.just(msgspec.msgpack.encode(WELCOME)))))
def test_what_is_no_welcome_is_malformed(data: bytes) -> None:
    assert Welcome.read(msgspec.msgpack.encode(WELCOME)) == WELCOME
    with suppress(Malformed):
        Welcome.read(data)


def test_a_welcome_with_settings_that_no_peer_has_is_malformed() -> None:
    settings = msgspec.to_builtins(WELCOME) | {"contact": [bytes(16), ""], "incarnation": b"", "shared_memory": b""}
    settings["topics"]["window_bytes"] = 0
    with pytest.raises(Malformed, match=r"settings that no peer has: topics\.window_bytes is 0"):
        Welcome.read(msgspec.msgpack.encode(settings))


@FUZZ
@given(values(Call), ANY_BYTES)
def test_a_call_comes_back_and_other_bytes_are_malformed(call: Call, data: bytes) -> None:
    assert CALLS.decode(msgspec.msgpack.encode(call)) == call
    with suppress(Malformed):
        decoded(CALLS, data, "call")
