"""The transport between two processes of one user and machine: large blocks stay in shared memory."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

from quillcast.core.bundle import BUNDLE_BYTES, Bundle
from quillcast.core.errors import Malformed
from quillcast.live.config import LiveConfig
from quillcast.live.transport import shared_memory
from quillcast.live.transport.framing import BUNDLE, HEADER_BYTES, NUMBER_BYTES, FrameType, frame, header
from quillcast.live.transport.shared_memory import SHARED_BYTES_MIN, SharedMemory
from quillcast.live.transport.transport import DATA, Part, Transport

_PIECES_MAX = 256  # with more, they are joined first: copied twice, but in two pieces; a guess
_UNCONFIRMED_WINDOWS = 2  # windows of exported bundles that may be unconfirmed; beyond that, bundles are sent


class Sharing:
    """A node's part in shared-memory transfer: its own memory, and the processes it shares memory with."""

    def __init__(self, memory: SharedMemory, incarnation: bytes, config: LiveConfig, counters: Counter[str]) -> None:
        self.memory, self.config, self.counters = memory, config, counters
        self.imports = config.local_ipc
        self.exports = False  # whether another peer imports from this one
        self._sample = memory.sample(incarnation) if config.local_ipc else None
        self.sample_place = shared_memory.place(self._sample or b"")
        """The place of the incarnation in shared memory, for others to test whether they can open it; or empty."""

    def join(self, parts: list[bytes]) -> bytes | memoryview:
        """Join the pieces of a block; in shared memory, once another peer imports from this one."""
        if not self.exports:
            return b"".join(parts)
        pieces = parts if len(parts) < _PIECES_MAX else [b"".join(parts)]
        return self.memory.lay(pieces) or b"".join(pieces)

    def over(self, below: Transport, place: bytes, incarnation: bytes) -> Transport:
        """The transport to an authenticated process: with shared memory, if it belongs to this user.

        Its `incarnation` is at this place in shared memory.
        """
        pid = below.end.own_pid
        if not pid:
            return below
        imports = self.imports and shared_memory.may_open(pid, place, incarnation)
        return SharedMemoryTransport(below, self, imports=imports)


class SharedMemoryTransport(Transport):
    """Sends bundles of large blocks as places in shared memory, and everything else through the transport `below`.

    Each side says once that it can open the other side's memory, and from then on gets places instead of blocks. The
    exporter keeps a bundle until the importer has confirmed that it has opened it.
    """

    def __init__(self, below: Transport, sharing: Sharing, *, imports: bool) -> None:
        super().__init__(below.stream, below.end)
        self.write = below.write
        self.imports = imports  # this process can open the other one's memory
        self.exports = False  # the other process can open this one's
        self.opened = 0  # imported bundles that are not yet confirmed
        self._below, self._sharing = below, sharing
        self._exported: deque[Bundle] = deque()  # kept until the other side has confirmed them
        self._exported_bytes = 0
        self._close: Callable[[], None] | None = None  # called when all of them are confirmed
        if imports:
            below.write([frame(FrameType.SHARED_MEMORY)])

    def _confirm(self, parts: list[Part]) -> None:
        """Write these parts, and before them the number of bundles imported since the last time."""
        confirmation = frame(FrameType.OPENED, self.opened.to_bytes(NUMBER_BYTES, "little"))
        self.opened, self.write = 0, self._below.write
        self.write([confirmation, *parts])

    def pack(self, bundle: Bundle, parts: list[Part]) -> int:
        head = bundle.head
        places = self._export(bundle) if self.exports and bundle.size > SHARED_BYTES_MIN else None
        if places is None:  # as in `Transport.pack`, inlined: this runs for every bundle
            size = len(head) + bundle.size - BUNDLE_BYTES
            parts.append(header(size, BUNDLE) + head)
            parts += map(DATA, bundle.blocks)
        else:
            size = len(head) + len(places)
            parts.append(header(size, FrameType.SHARED_BUNDLE) + head + places)
        return HEADER_BYTES + size

    def unpack(self, type_: FrameType, content: bytes) -> Bundle | None:
        match type_:
            case FrameType.SHARED_BUNDLE if self.imports:
                return self._import(content)
            case FrameType.OPENED if len(content) == NUMBER_BYTES:
                self._confirmed(int.from_bytes(content, "little"))
            case FrameType.SHARED_MEMORY if not content and self._sharing.sample_place:
                self.exports = self._sharing.exports = True
            case _:
                return super().unpack(type_, content)
        return None

    def finish(self, close: Callable[[], None]) -> None:
        if not self._exported:
            close()
        elif self._close is None:
            self._close = close
            self.write([frame(FrameType.PING, bytes(NUMBER_BYTES))])  # the answer brings the confirmation
            asyncio.get_running_loop().call_later(self._sharing.config.close_timeout_s, close)

    def close(self) -> None:
        self._close = None
        self._exported.clear()
        self._below.close()

    def _export(self, bundle: Bundle) -> bytes | None:
        """Export the bundle's blocks; returns their places, or None if the blocks must be sent."""
        if self._exported_bytes > _UNCONFIRMED_WINDOWS * self._sharing.config.window_bytes:
            return None
        places = self._sharing.memory.places(bundle.blocks)
        if places is not None:
            self._exported.append(bundle)
            self._exported_bytes += bundle.size
            self._sharing.counters["bytes_out"] += bundle.size - BUNDLE_BYTES
        return places

    def _import(self, content: bytes) -> Bundle:
        try:
            bundle = shared_memory.open_bundle(content, self.end.own_pid)
        except shared_memory.OutOfDescriptors:
            self._sharing.imports = False
            raise
        self.opened, self.write = self.opened + 1, self._confirm
        return bundle

    def _confirmed(self, count: int) -> None:
        """The other side has opened this many more exported bundles. Raises `Malformed`."""
        if count > len(self._exported):
            raise Malformed(f"{count} bundles were confirmed, but only {len(self._exported)} are exported")
        for _ in range(count):
            self._exported_bytes -= self._exported.popleft().size
        if self._close is not None and not self._exported:
            self._close()
