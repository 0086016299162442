"""The command line: one file per command. Nothing is imported here before `main` can say what went wrong."""

import os
import signal
import sys


def main() -> None:
    """Run the command of this process's arguments and end the process with its exit code (`quillcast --help`)."""
    try:
        from quillcast.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything is done: a late Ctrl-C has nothing to end
    _close_stdout()
    sys.exit(code)


def _close_stdout() -> None:
    """Write what waits, and let a reader that has gone be no trouble to the interpreter's own last flush."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
