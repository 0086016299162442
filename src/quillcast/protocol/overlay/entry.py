"""A peer without a place in the ring reaches it through entry points: members of the ring that route for it."""

from collections.abc import Callable, Collection, Sequence

from quillcast.core.messages import Contact


class EntryPoints:
    """Chooses the first entry point that the failure detector does not suspect, whatever the key (`nexthop.Hops`)."""

    __slots__ = ("contacts", "suspected")

    def __init__(self, contacts: Sequence[Contact], suspected: Callable[[bytes], bool]) -> None:
        """`contacts` is not empty: the entry point, then those that stand by."""
        self.contacts, self.suspected = tuple(contacts), suspected

    def covers(self, key: bytes) -> bool:
        """No table has to be repaired: the entry points know the way."""
        return True

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Nobody answers for keys here."""
        return []

    def to(self, key: bytes, but: Collection[bytes] = ()) -> Contact:
        """The entry point to use. If all are suspected, it is the first of them."""
        return self.around(key, but) or self.contacts[0]

    def around(self, key: bytes, silent: Collection[bytes]) -> Contact | None:
        """An entry point that is neither silent nor suspected."""
        usable = (c for c in self.contacts if c.node_id not in silent and not self.suspected(c.node_id))
        return next(usable, None)
