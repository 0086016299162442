"""How a command runs: Ctrl-C and SIGTERM cancel it, so that its peer leaves in good order."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from quillcast.cli.endings import Interrupted, Terminated
from quillcast.live import runner

T = TypeVar("T")


@contextmanager
def interruptible() -> Iterator[None]:
    """From here on there is something to end in good order. Raises `Interrupted` after Ctrl-C."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    except KeyboardInterrupt:
        raise Interrupted from None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end. A second Ctrl-C ends at once. Raises `Interrupted` or `Terminated`."""
    terminated = False

    async def cancellable() -> T:
        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        task = asyncio.ensure_future(main)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await task

    try:
        with interruptible():
            return runner.run(cancellable())
    except asyncio.CancelledError:
        if terminated:
            raise Terminated from None
        raise
