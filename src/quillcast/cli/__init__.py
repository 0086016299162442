"""The command line: one file per command. `main` imports nothing before it can report errors."""

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command given by this process's arguments and end the process with its exit code (`quillcast --help`).

    No garbage is collected while modules are loaded, for they stay, nor at the end: that would double what a command
    costs that only asks a peer.
    """
    gc.disable()
    signal.signal(signal.SIGINT, _end_at_once)
    _open_missing()
    try:
        from quillcast.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all work is done: a late Ctrl-C has nothing to interrupt
    _close_stdout()
    gc.freeze()
    sys.exit(code)


def _end_at_once(*_: object) -> None:
    """Handle Ctrl-C while modules are loaded: Python would lose it or show a traceback. Nothing has begun yet.

    Later `quillcast.cli.running` takes over, so that commands end in good order.
    """
    os._exit(130)


def _open_missing() -> None:
    """Open /dev/null for closed standard streams (`>&-`): a socket would get their number, and libuv abort."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _close_stdout() -> None:
    """Flush buffered output. If the reader has gone, the interpreter's own last flush must not fail."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
