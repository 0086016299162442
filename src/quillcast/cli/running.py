"""How a command runs: Ctrl-C, SIGTERM and a closed terminal cancel it, so that its peer can leave in good order."""

import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from quillcast.cli.endings import Interrupted, Terminated
from quillcast.live.runtime import runner

T = TypeVar("T")


def _terminations() -> list[signal.Signals]:
    """Signals that ask a command to end. SIGHUP (the terminal was closed) is one, unless `nohup` ignores it."""
    return [number for number in runner.ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals raise `KeyboardInterrupt` within this block, so that its work ends in good order.

    The block then ends with `Interrupted` or `Terminated`.
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
    """Run `main` to the end. A second Ctrl-C ends it at once. Raises `Interrupted` or `Terminated`."""
    with interruptible():
        try:
            return runner.run_until(main, _terminations())
        except SystemExit:
            raise Terminated from None
