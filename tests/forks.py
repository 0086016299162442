"""Programs that tests start are forks of one process that has loaded quillcast.

They are processes of their own, with their arguments, environment, folder, standard streams, signals and exit code, but
Python's start and its imports, half a second of processor time, are spent once per worker. Tests of what only a new
interpreter shows, such as its memory, start one.
"""

import atexit
import ctypes
import json
import os
import runpy
import select
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
ORDER_BYTES_MAX = 200_000
NEW_NETWORK = 0x40000000  # CLONE_NEWNET of setns(2)
PRELOADED = ["uvloop", "quillcast.live.storage.journal", "nanoarrow.ipc"]
"""What programs load when they need it. All commands are loaded too."""


def of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an interpreter reads as it starts. A program for which they differ takes a new one."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


OF_FORKS = of_python(os.environ)


class Order(NamedTuple):
    """What a fork becomes."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    namespace: str | None = None
    """Its network, as `ip netns` names it."""


class Fork(subprocess.Popen[bytes]):
    """A running `python -m MODULE`, as `subprocess.Popen` would start it."""

    def __init__(
        self, module: str, *arguments: str, env: Mapping[str, str], cwd: Path | None = None,
        namespace: str | None = None, stdin: int | None = subprocess.PIPE, stderr: int | None = None,
    ) -> None:  # fmt: skip
        self._order = Order(module, [*arguments], dict(env), str(cwd or Path.cwd()), namespace)
        super().__init__([module, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=stderr)

    def _execute_child(self, *given: Any) -> None:
        """Popen's: start the process. These are the pipes' ends, the child's and ours in turn; -1 is none."""
        pipes = given[10:16]
        theirs = (pipes[0], pipes[3], pipes[5])
        streams = [own if end == -1 else end for own, end in enumerate(theirs)]
        self._told = server().start(self._order, streams)
        self.pid = self._hear()
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Popen's: `os.waitpid`. Its parent tells us."""
        if flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        status = self._hear()
        self._told.close()
        return self.pid, status

    def _hear(self) -> int:
        line: bytes = self._told.readline()
        assert line, f"the process that forks has ended before {self.args}"
        return int(line)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        """Popen's: look whether it has ended."""
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Server:
    """The process that forks. It ends with this one."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, pass_fds=[theirs.fileno()],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
            )  # fmt: skip
        atexit.register(self._end)

    def start(self, order: Order, streams: list[int]) -> Any:
        """Start a process; a file with its pid, and its status as soon as it ends."""
        reading, writing = os.pipe()
        socket.send_fds(self._line, [json.dumps(order).encode()], [*streams, writing])
        os.close(writing)
        return os.fdopen(reading, "rb", buffering=0)

    def _end(self) -> None:
        self._line.close()
        self._process.communicate()


server = cache(Server)


def serve(line: socket.socket) -> Order | None:
    """Fork for each order of a line. Returns the order in the fork, and None at the end of the line."""
    with line, selectors.DefaultSelector() as watched:
        watched.register(line, selectors.EVENT_READ)
        while True:
            for key, _ in watched.select():
                if key.fileobj is not line:
                    watched.unregister(key.fileobj)
                    _tell_end(key.fd, *key.data)
                    continue
                text, fds, _, _ = socket.recv_fds(line, ORDER_BYTES_MAX, 4)
                if not text:
                    return None
                if (pid := os.fork()) == 0:
                    for own, fd in enumerate(fds[:3]):
                        os.dup2(fd, own)
                    return Order(*json.loads(text))
                for fd in fds[:3]:
                    os.close(fd)
                os.write(fds[3], b"%d\n" % pid)
                watched.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, fds[3]))


def _tell_end(process: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(told, b"%d\n" % status)
    os.close(process)
    os.close(told)


def become(order: Order) -> None:
    """Make this process what `python -m` would be."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if order.namespace is not None:
        inside = os.open(f"/run/netns/{order.namespace}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(inside, NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter a network namespace", order.namespace)
        os.close(inside)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    sys.path[0], sys.argv[1:] = order.folder, order.arguments


def load() -> None:
    """Import what programs need, and keep it out of their collections of garbage, which would copy it."""
    import gc

    from quillcast.cli.app import COMMANDS

    for name in [*PRELOADED, *(f"quillcast.cli.{command}" for command in COMMANDS)]:
        import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load()
    if (order := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        become(order)
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
