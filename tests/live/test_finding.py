"""Which peers a starting peer asks to join through."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from quillcast.core.errors import Unreachable
from quillcast.core.messages import Contact
from quillcast.live.discovery import finding
from quillcast.live.discovery.registry import Entry
from quillcast.live.transport.links import Links

ALICE, BOB = Contact(b"a" * 16, "alice:1"), Contact(b"b" * 16, "bob:1")


class Answering:
    """The side of `Links` that asks who is there; who is neither here, stopped nor nobody never answers."""

    def __init__(
        self, here: Mapping[str, Contact], nobody: tuple[str, ...] = (), stopped: tuple[str, ...] = ()
    ) -> None:
        self.here, self.nobody, self.stopped = here, nobody, stopped
        self.handshake = SimpleNamespace(network="net")
        self.asked: list[str] = []
        self.ended: list[str] = []
        self.waiting = asyncio.Event()

    async def greet(self, address: str) -> Contact:
        self.asked.append(address)
        try:
            if address in self.nobody:
                raise Unreachable(f"nobody is at {address}")
            if address in self.stopped:
                raise Unreachable(f"no answer from {address}") from TimeoutError()
            if address not in self.here:
                self.waiting.set()
                await asyncio.Event().wait()
            return self.here[address]
        finally:
            self.ended.append(address)


async def greet(links: Answering, *addresses: str) -> tuple[list[Contact], dict[str, Unreachable]]:
    found, problems = await finding._greet(cast(Links, links), addresses, addresses)
    return list(found.values()), problems


def test_stopped_peers_delay_nothing_once_another_has_answered() -> None:
    links = Answering({"alice:1": ALICE, "bob:1": BOB}, nobody=("gone:1",))
    found, problems = asyncio.run(greet(links, "stopped:1", "alice:1", "gone:1", "bob:1", "stopped:2"))
    assert found == [ALICE, BOB]
    assert list(problems) == ["gone:1"]
    assert sorted(links.ended) == sorted(links.asked), "nobody is asked any more"


def first(links: Answering, *joined: str, looking: tuple[str, ...] = ()) -> list[Contact]:
    here = {
        address: Entry("00", address, pid, 0, joined=address in joined)
        for pid, address in enumerate((*joined, *looking), 1)
    }
    return asyncio.run(finding._first(cast(Links, links), list(here), here, needed=False))


def test_peers_that_look_for_the_network_themselves_begin_no_other_one_where_its_own_do_not_answer() -> None:
    both = Answering({"alice:1": ALICE, "bob:1": BOB}, stopped=("stopped:1",))
    assert first(both, "stopped:1", "alice:1", looking=("bob:1",)) == [ALICE, BOB]
    looking = Answering({"bob:1": BOB}, stopped=("stopped:1", "stopped:2"))
    with pytest.raises(Unreachable, match="process 1 is a peer of network 'net' on this machine and does not answer"):
        first(looking, "stopped:1", looking=("bob:1",))
    assert first(looking, looking=("bob:1", "stopped:2")) == [BOB], "nobody has begun the network"
    assert first(Answering({"bob:1": BOB}, nobody=("gone:1",)), "gone:1", looking=("bob:1",)) == [BOB]


def test_the_last_peer_to_answer_is_waited_for_if_no_other_does() -> None:
    links = Answering({}, nobody=("gone:1", "gone:2"))
    found, problems = asyncio.run(greet(links, "gone:1", "gone:2"))
    assert found == []
    assert list(problems) == ["gone:1", "gone:2"]


def test_cancelled_queries_ask_no_further_peers() -> None:
    links = Answering({})

    async def give_up() -> None:
        asking = asyncio.create_task(greet(links, "stopped:1", "stopped:2"))
        await links.waiting.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(give_up())
    assert sorted(links.ended) == ["stopped:1", "stopped:2"]


def test_errors_other_than_time_outs_are_raised() -> None:
    class Broken(Answering):
        async def greet(self, address: str) -> Contact:
            if address == "broken:1":
                raise MemoryError
            return await super().greet(address)

    with pytest.raises(MemoryError):
        asyncio.run(greet(Broken({}), "stopped:1", "broken:1"))
