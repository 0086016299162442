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
    """From here on there is something to end in good order: within, Ctrl-C and SIGTERM are a `KeyboardInterrupt`.

    Raises `Interrupted` or `Terminated` then.
    """
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, terminate)
        yield
    except KeyboardInterrupt:
        raise (Terminated if terminated else Interrupted) from None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end. A second Ctrl-C ends at once. Raises `Interrupted` or `Terminated`."""
    terminated = False

    async def cancellable() -> T:
        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        task, loop = asyncio.ensure_future(main), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await task
        finally:
            loop.remove_signal_handler(signal.SIGTERM)  # uvloop's would stay and do nothing

    try:
        with interruptible():
            return runner.run(cancellable())
    except asyncio.CancelledError:
        if terminated:
            raise Terminated from None
        raise
