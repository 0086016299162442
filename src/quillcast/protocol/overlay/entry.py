"""How a peer without a place in the ring reaches it: through entry points, ring members that route for it."""

from collections.abc import Callable, Collection, Sequence

from quillcast.core.messages import Contact


class EntryPoints:
    """Chooses the first entry point that the failure detector does not suspect, whatever the key (`nexthop.Hops`)."""

    __slots__ = ("contacts", "suspected")

    def __init__(self, contacts: Sequence[Contact], suspected: Callable[[bytes], bool]) -> None:
        """`contacts` is not empty: the entry point, then the stand-bys."""
        self.contacts, self.suspected = tuple(contacts), suspected

    def covers(self, key: bytes) -> bool:
        """Return true: no table needs repair, because the entry points do the routing."""
        return True

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Return no peers: this peer has no place in the ring."""
        return []

    def to(self, key: bytes, but: Collection[bytes] = ()) -> Contact:
        """Return the entry point to use: the first that is not suspected, or the first of all."""
        return self.around(key, but) or self.contacts[0]

    def around(self, key: bytes, silent: Collection[bytes]) -> Contact | None:
        """Return an entry point that is neither silent nor suspected."""
        usable = (c for c in self.contacts if c.node_id not in silent and not self.suspected(c.node_id))
        return next(usable, None)
