"""Dispatch of inputs: each kind has one handler, and unknown kinds are rejected."""

import pytest

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import Malformed
from quillcast.core.host import Timer
from quillcast.core.messages import Contact, Message

SENDER = Contact(bytes(16), "127.0.0.1:1")


class Ping(Message, frozen=True, tag=1):
    number: int


class Tick(Timer, frozen=True):
    number: int


def test_each_kind_of_input_has_its_handler() -> None:
    got: list[object] = []
    dispatch = Dispatch()
    dispatch.on_message(Ping, lambda sender, message: got.append((sender, message)))
    dispatch.on_routed(Ping, got.append)
    dispatch.on_timer(Tick, got.append)
    dispatch.message(SENDER, Ping(1))
    dispatch.routed(Ping(2))
    dispatch.timer(Tick(3))
    assert got == [(SENDER, Ping(1)), Ping(2), Tick(3)]


def test_an_input_without_a_handler_is_malformed() -> None:
    dispatch = Dispatch()
    with pytest.raises(Malformed, match="a Ping must be routed"):
        dispatch.message(SENDER, Ping(1))
    with pytest.raises(Malformed, match="a Ping cannot be routed to a topic"):
        dispatch.routed(Ping(1))


def test_a_kind_cannot_have_two_handlers() -> None:
    dispatch = Dispatch()
    dispatch.on_messages([Ping], lambda sender, message: None)
    dispatch.on_timers([Tick], lambda timer: None)
    with pytest.raises(ValueError, match="Ping already has a handler"):
        dispatch.on_message(Ping, lambda sender, message: None)
    with pytest.raises(ValueError, match="Tick already has a handler"):
        dispatch.on_timer(Tick, lambda timer: None)


class Part:
    """A part of a peer, whose methods are handlers."""

    def __init__(self) -> None:
        self.got: list[object] = []

    def ping(self, sender: Contact, message: Ping) -> None:
        self.got.append((sender, message))

    def word(self, message: Ping) -> None:
        self.got.append(message)

    def alarm(self) -> None:
        self.got.append("alarm")


def test_peers_with_the_same_handlers_share_their_tables_and_each_calls_its_own_parts() -> None:
    parts, dispatches = (Part(), Part()), (Dispatch(), Dispatch())
    for part, dispatch in zip(parts, dispatches, strict=True):
        dispatch.on_message(Ping, part.ping)
        dispatch.on_alarm(Tick, part.alarm)
        dispatch.share()
    assert dispatches[0]._direct is dispatches[1]._direct
    dispatches[0].message(SENDER, Ping(1))
    dispatches[1].timer(Tick(1))
    assert (parts[0].got, parts[1].got) == ([(SENDER, Ping(1))], ["alarm"])


def test_a_handler_that_is_added_later_is_not_shared() -> None:
    shared, other = Dispatch(), Dispatch()
    shared.share()
    other.share()
    part = Part()
    shared.on_anonymous(Ping, part.word)
    shared.message(SENDER, Ping(1))
    assert part.got == [Ping(1)]
    with pytest.raises(Malformed):
        other.message(SENDER, Ping(1))
