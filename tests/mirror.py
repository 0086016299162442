"""A program that prints what it knows of its own start; so `test_forks.py` compares forks with interpreters."""

import gc
import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any


def known() -> dict[str, Any]:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return {
        "arguments": sys.argv,
        "name": __name__,
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "path": sys.path,
        "signals": {number.name: str(signal.getsignal(number)) for number in signal.Signals},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "streams": [[each.encoding, each.errors, each.isatty(), each.line_buffering] for each in streams],
        "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],  # noqa: PTH208 - the last one is of the list itself
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "garbage": [gc.isenabled(), gc.get_threshold()],
        "threads": threading.active_count(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(known()))
    sys.stdout.flush()
    sys.stderr.write(sys.stdin.read())
    sys.exit(3)
