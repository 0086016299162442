"""How a command runs: Ctrl-C, SIGTERM and a closed terminal cancel it, so that its peer leaves in good order."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from quillcast.cli.endings import Interrupted, Terminated
from quillcast.live import runner

T = TypeVar("T")


def _terminations() -> list[signal.Signals]:
    """Signals that ask a command to end: that the terminal was closed is one, unless `nohup` has it ignored."""
    numbers = [signal.SIGTERM, signal.SIGHUP]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def interruptible() -> Iterator[None]:
    """From here on there is something to end in good order: within, such signals are a `KeyboardInterrupt`.

    Raises `Interrupted` or `Terminated` then.
    """
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in _terminations():
            signal.signal(number, terminate)
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
        numbers = _terminations()
        for number in numbers:
            loop.add_signal_handler(number, terminate)
        try:
            return await task
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)  # uvloop's would stay and do nothing

    try:
        with interruptible():
            return runner.run(cancellable())
    except asyncio.CancelledError:
        if terminated:
            raise Terminated from None
        raise
