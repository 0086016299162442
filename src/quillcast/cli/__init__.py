"""The command line: one file per command. Nothing is imported here before `main` can say what went wrong."""

import os
import signal
import sys


def main() -> None:
    """Run the command of this process's arguments and end the process with its exit code (`quillcast --help`)."""
    signal.signal(signal.SIGINT, _end_at_once)
    _open_missing()
    try:
        from quillcast.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is done: a late Ctrl-C has nothing to end
    _close_stdout()
    sys.exit(code)


def _end_at_once(*_: object) -> None:
    """Ctrl-C while modules are loaded, where Python would lose it or show a traceback; nothing has begun yet.

    `quillcast.cli.running` has it end in good order what needs that.
    """
    os._exit(130)


def _open_missing() -> None:
    """A standard stream that was closed (`>&-`) leaves its number to the next socket, and libuv aborts over that."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _close_stdout() -> None:
    """Write what waits, and let a reader that has gone be no trouble to the interpreter's own last flush."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
