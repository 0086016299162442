"""One failure detector per neighbour, shared by the overlay, every tree and every group (DESIGN.md, decision 4)."""

from typing import Protocol

import msgspec

from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.protocol.neighbours.config import NeighbourConfig


class NeighbourListener(Protocol):
    """Who is told about neighbours."""

    def lost(self, contact: Contact) -> None:
        """The neighbour is silent for good, as far as this peer can tell. Its watches have ended."""
        ...

    def recovered(self, contact: Contact) -> None:
        """A lost neighbour spoke."""
        ...


class Marks(Protocol):
    """What heartbeats carry for the streams of a link."""

    def mark(self, node_id: bytes) -> tuple[int, bytes]:
        """Change number and digest of what this peer said on the link."""
        ...

    def compare(self, sender: Contact, change: int, digest: bytes) -> None:
        """The other side's mark arrived."""
        ...


class Sweep(msgspec.Struct, frozen=True):
    """Timer: look at every link that is due."""

    at: float


class Neighbours:
    """Who of this peer's neighbours lives."""

    def __init__(self, host: Host, config: NeighbourConfig, streams: Marks | None = None) -> None:
        self.listeners: list[NeighbourListener] = []

    def watch(self, contact: Contact, user: str, every_s: float) -> None:
        """Tell the listeners when the peer falls silent; `every_s` without a word makes a heartbeat."""
        raise NotImplementedError

    def unwatch(self, node_id: bytes, user: str) -> None:
        raise NotImplementedError

    def heard(self, contact: Contact) -> None:
        raise NotImplementedError

    def probe(self, contact: Contact) -> None:
        """Ask the peer for a sign of life now, watched or not; silence makes it lost."""
        raise NotImplementedError

    def suspected(self, node_id: bytes) -> bool:
        raise NotImplementedError

    def round_trip(self, node_id: bytes) -> float | None:
        raise NotImplementedError

    def timeout(self, node_id: bytes) -> float:
        raise NotImplementedError

    def answered(self, node_id: bytes, round_trip_s: float) -> None:
        raise NotImplementedError

    def link_lost(self, contact: Contact) -> None:
        raise NotImplementedError

    def link_up(self, contact: Contact) -> None:
        raise NotImplementedError

    def receive(self, sender: Contact, message: Message) -> None:
        raise NotImplementedError

    def timer(self, timer: Sweep) -> None:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError
