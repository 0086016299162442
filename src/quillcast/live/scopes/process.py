"""A separate process for code of another package, which can be killed, and the line to it.

It protects the peer from mistakes, not from attacks: the code has the rights of the peer's user, so install only what
you trust.
"""

import os
import resource
import signal
import socket
import subprocess
import sys

START_LIMIT_S = 10.0  # to import a package; a guess
ANSWER_LIMIT_S = 2.0  # a guess: the built-in policies take less than 0.5 s for a thousand members
END_LIMIT_S = 1.0  # for a process to end after it closed its end of the line
MEMORY_BYTES_MAX = 512 << 20  # a guess


class ConfinedProcess:
    """Runs a module of quillcast as `python -m MODULE FD SECONDS BYTES`; `line` is connected to its socket FD."""

    def __init__(self, module: str, limit_s: float, memory_bytes_max: int, hash_seed: int = 0) -> None:
        """`limit_s` is the longest time for one order. `hash_seed` determines the order of its sets."""
        self.line, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), str(limit_s), str(memory_bytes_max)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        )
        theirs.close()

    def ended(self, limit_s: float = END_LIMIT_S) -> str:
        """Describe how it ended, after it closed its end of the line."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "its process closed its connection to this one"
        return f"its process ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"

    @property
    def returncode(self) -> int | None:
        """Its exit code as `subprocess.Popen` gives it; None while it runs."""
        return self._process.returncode

    def close(self) -> None:
        """End it."""
        self.line.close()
        self._process.kill()
        self._process.wait()


class ProcessLimits:
    """The limits of a confined process, from its arguments. It ends itself if one order takes too long."""

    def __init__(self, arguments: list[str]) -> None:
        number, self.limit_s, memory_bytes = int(arguments[1]), float(arguments[2]), int(arguments[3])
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.line = socket.socket(fileno=number)

    def begin(self) -> None:
        """An order arrived. A signal ends the process if that takes too long, because the other side may be gone."""
        signal.setitimer(signal.ITIMER_REAL, self.limit_s)

    def end(self) -> None:
        """The order has been answered."""
        signal.setitimer(signal.ITIMER_REAL, 0)
