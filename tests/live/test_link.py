"""One link and one connection by themselves: each needs a few plain values, and no peer."""

import asyncio
from collections import Counter

from quillcast.core.host import RESERVED_EIGHTHS
from quillcast.core.messages import Contact
from quillcast.live.config import LiveConfig
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.link import Link, LinkContext
from quillcast.live.transport.roundtrips import RoundTrips
from tests.live.toys import Said, ToyCodec, bundle, run

BOB = Contact(b"b" * 16, "127.0.0.1:1")


class Inputs:
    """Records what a peer would be told."""

    def __init__(self) -> None:
        self.measures: list[tuple[Contact, float | None]] = []
        self.rooms: list[Contact] = []

    def measured(self, contact: Contact, proximity: float | None) -> None:
        self.measures.append((contact, proximity))

    def room(self, contact: Contact) -> None:
        self.rooms.append(contact)


def link_of(pump: Pump, dirty: list[Link]) -> Link:
    return Link(LinkContext(pump, LiveConfig(), ToyCodec, Counter(), dirty.append), BOB)


def test_a_link_is_marked_dirty_once_until_it_writes() -> None:
    async def scenario() -> None:
        dirty: list[Link] = []
        link = link_of(Pump(asyncio.get_running_loop()), dirty)
        link.send(Said("one"))
        link.send(Said("two"))
        link.carry(bundle())
        assert (dirty, link.waiting_messages, link.is_idle()) == ([link], 2, False)
        link.flush()
        link.send(Said("three"))
        assert (dirty, link.waiting_messages) == ([link, link], 3)
        assert not link.is_open

    run(scenario())


def test_a_link_without_credit_says_when_there_is_room_again() -> None:
    async def scenario() -> None:
        pump, inputs = Pump(asyncio.get_running_loop()), Inputs()
        pump.inputs = inputs  # type: ignore[assignment]  # the two inputs that a link and its pings make
        link = link_of(pump, [])
        while link.room > 0:
            link.carry(bundle(1 << 20))
        link.credited(1)
        assert inputs.rooms == []
        link.credited(link.window)
        assert inputs.rooms == [BOB]
        link.credit = link.window * RESERVED_EIGHTHS[False] // 8
        for waits, heard in ((False, 2), (True, 3)):
            link.credited(link.window * RESERVED_EIGHTHS[waits] // 8 - link.credit)
            assert len(inputs.rooms) == heard - 1, "some leave just that much to others"
            link.credited(1)
            assert len(inputs.rooms) == heard
        link.pause()
        link.credited(1)
        link.resume()
        assert len(inputs.rooms) == 4

    run(scenario())


def test_pings_over_a_link_that_is_gone_are_unanswered() -> None:
    async def scenario() -> None:
        pump, inputs = Pump(asyncio.get_running_loop()), Inputs()
        pump.inputs = inputs  # type: ignore[assignment]  # as above
        round_trips = RoundTrips(pump, timeout_s=60.0)
        first, second = round_trips.ask(BOB), round_trips.ask(BOB)
        round_trips.answered(first)
        round_trips.lost(BOB.node_id)
        round_trips.answered(second)
        assert [(contact, proximity is None) for contact, proximity in inputs.measures] == [(BOB, False), (BOB, True)]
        assert round_trips.best(BOB.node_id) == inputs.measures[0][1]

    run(scenario())
