"""A connection by itself."""

import asyncio

from quillcast.live.transport.framed import resolve
from tests.live.toys import run


def test_a_result_after_its_waiter_gave_up_is_not_an_error() -> None:
    """A wait with a time limit cancels its future, maybe just before the result arrives."""

    async def scenario() -> None:
        given_up, waited_for = (asyncio.get_running_loop().create_future() for _ in range(2))
        given_up.cancel()
        for each in (given_up, waited_for):
            resolve(each, "proof")
        assert given_up.cancelled()
        assert await waited_for == "proof"

    run(scenario())
