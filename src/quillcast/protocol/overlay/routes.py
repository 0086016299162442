"""Next hops by the tables, or to the seats of a scope."""

from collections.abc import Collection

from quillcast.core.messages import Contact
from quillcast.protocol.overlay.nexthop import Hops
from quillcast.protocol.overlay.seats import Seats


class Routes:
    """Chooses a next hop: a seat of the scope that a key is rooted at, or otherwise that of `hops`."""

    __slots__ = ("hops", "seats")

    def __init__(self, hops: Hops, seats: Seats) -> None:
        self.hops, self.seats = hops, seats

    def go_by(self, hops: Hops) -> None:
        """Use these hops from now on, except for keys with seats of a scope."""
        self.hops = hops

    def to(self, key: bytes, scope: str, but: Collection[bytes] = ()) -> Contact | None:
        """Return the next hop, except peers in `but`; None if the message has arrived. `scope`: empty for none."""
        return self.seats.to(key, scope, but) if scope else self.hops.to(key, but)

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Return the peers that answer for a key, as far as they are known here, closest first."""
        seats = self.seats.of(key) if key in self.seats.topics else None
        return self.hops.closest(key, count) if seats is None else seats[:count]
