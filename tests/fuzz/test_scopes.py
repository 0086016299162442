"""Whatever a party says to managers and peers of scopes: it is dealt with, and they go on."""

import typing
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import Malformed
from quillcast.core.messages import Message, decoded
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import ControlMessage
from tests.fuzz.bytes import FUZZ, damaged, values
from tests.fuzz.test_peer import ODD, Knowing
from tests.protocol.scopes.test_manager import T, U, campus

MESSAGES = typing.get_args(ControlMessage)
ANY_MESSAGE = st.one_of([values(kind) for kind in MESSAGES])
DECODER = msgspec.msgpack.Decoder(ControlMessage)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_comes_back_as_it_was_sent(kind: type[Message]) -> None:
    @FUZZ
    @given(values(kind))
    def comes_back(message: Message) -> None:
        assert decoded(DECODER, msgspec.msgpack.encode(message), "message") == message

    comes_back()


@FUZZ
@given(damaged(ANY_MESSAGE.map(msgspec.msgpack.encode)))
def test_damaged_messages_are_read_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        decoded(DECODER, data, "message")


@FUZZ
@given(st.lists(st.tuples(ANY_MESSAGE, st.integers(0, 8)), min_size=1, max_size=10), ODD)
def test_any_messages_are_dealt_with(said: list[tuple[Message, int]], odd: list[bool]) -> None:
    network = campus()
    parties = [*network.managers.items(), *network.peers.items()]
    contacts = [controller.me.contact for controller in network.peers.values()]
    knowing = Knowing([T, U, *(id_ for id_, _ in parties)], contacts, odd)
    for message, receiver in said:
        with suppress(Malformed):
            heard = decoded(DECODER, msgspec.msgpack.encode(knowing.known(message)), "message")
            id_, party = parties[receiver]
            network.carry_out(id_, party.received(heard, network.now))
    network.settle()
    network.passed(20)
    for id_, manager in network.managers.items():
        manager.check()
        ScopeManager.restored(network.disks[id_], network.configs[id_]).check()
    for at in "ABCDE":
        network.publish(at, T)
