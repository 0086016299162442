"""The conductor's side of the peers' processes: start, order, kill.

They are forked from one process that has imported everything once, so sixteen interpreters cost as much as one.
"""

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

import msgspec

from quillcast.core.errors import QuillcastError
from quillcast.demo import peer
from quillcast.demo.orders import LINE_BYTES_MAX, Answer, Failed, Leave, Order, Ready

PRELOADED = ["quillcast.demo.peer", "quillcast.live.storage.journal", "nanoarrow.ipc"]
END_TIMEOUT_S = 15.0  # how long a peer may take to leave before it is killed; a guess

_DECODER = msgspec.json.Decoder(Answer)


class PeerFailed(QuillcastError):
    """A process of the demo ended or refused an order."""


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started within this block: the conductor handles it, and ends them."""
    resource_tracker.ensure_running()  # the peers' parent would start it, and its start unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class PeerProcess:
    """One peer's process."""

    def __init__(self, setting: peer.Setting) -> None:
        self.name, self.node_id, self.address = setting.name, b"", ""
        self._log = setting.log
        self._turn = asyncio.Lock()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=peer.run, args=(theirs, setting), name=setting.name, daemon=True)
        with _deaf_to_ctrl_c():
            self._process.start()
        theirs.close()

    async def ready(self) -> None:
        """Wait until the peer has joined. Raises `PeerFailed`."""
        line = socket.socket(fileno=os.dup(self._connection.fileno()))
        self._reader, self._writer = await asyncio.open_unix_connection(sock=line, limit=LINE_BYTES_MAX)
        answer = await self._answer()
        assert isinstance(answer, Ready)
        self.node_id, self.address = answer.node_id, answer.address

    async def order(self, order: Order) -> None:
        """Have an order carried out. Raises `PeerFailed`."""
        async with self._turn:
            self._writer.write(msgspec.json.encode(order) + b"\n")
            answer = await self._answer()
        if isinstance(answer, Failed):
            raise PeerFailed(f"{self.name} could not {type(order).__name__.lower()}: {answer.why}")

    def kill(self) -> int:
        """End the process with SIGKILL. Returns the time just before, nanoseconds since 1970 UTC."""
        at_ns = time.time_ns()
        os.kill(self.pid, signal.SIGKILL)
        return at_ns

    def pause(self) -> None:
        """Stop the process (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a stopped process (SIGCONT). Does nothing if it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    async def leave(self) -> bool:
        """Have the peer leave in good order. Returns False if it had to be killed."""
        self._writer.write(msgspec.json.encode(Leave()) + b"\n")
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                while await self._reader.readline():
                    pass
        except TimeoutError:
            self.kill()
            return False
        return True

    def end(self) -> None:
        """Make sure that the process has ended."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    async def _answer(self) -> Any:
        try:
            text = await self._reader.readline()
        except ConnectionError:
            text = b""
        if not text:
            raise PeerFailed(f"{self.name} ended: {self._last_words()}")
        return _DECODER.decode(text)

    def _last_words(self) -> str:
        """The last line that the peer wrote to its log."""
        words = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        if said := [line for line in words if line.strip()]:
            return said[-1]
        full = ", because its disk is full" if not shutil.disk_usage(self._log.parent).free else ""
        return f"nothing was written to {self._log}{full}"
