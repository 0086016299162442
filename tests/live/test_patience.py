"""Time-outs that count only while the event loop listens."""

import asyncio
import time

import pytest

from quillcast.live.runtime.patience import Patience, within
from tests.live.toys import run

pytestmark = pytest.mark.live


def test_what_takes_too_long_is_given_up() -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await within(0.05, asyncio.Event().wait())

    run(scenario())


def test_what_comes_in_time_is_returned() -> None:
    async def scenario() -> None:
        assert await within(10, asyncio.sleep(0, "this")) == "this"

    run(scenario())


def test_a_loop_that_was_away_first_hears_what_came_meanwhile() -> None:
    async def scenario() -> None:
        reader, writer = await asyncio.open_connection(*await echo())
        writer.write(b"are you there?")
        answer = asyncio.create_task(within(0.2, reader.readexactly(4)))
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251 - the process got no processor
        assert await answer == b"yes."
        writer.close()

    run(scenario())


def test_a_wait_that_ended_calls_nothing() -> None:
    async def scenario() -> None:
        called = []
        first = Patience(asyncio.get_running_loop(), 0.01, lambda: called.append("first"))
        first.end()
        second = asyncio.Event()
        Patience(asyncio.get_running_loop(), 0.02, second.set)
        await second.wait()
        assert called == []

    run(scenario())


async def echo() -> tuple[str, int]:
    """Where somebody answers, a few turns of the event loop later."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"yes.")
        await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address: tuple[str, int] = server.sockets[0].getsockname()
    return address
