"""The buffer of one flow: the bundles of the current term in order of arrival, kept until they are stable."""

from quillcast.core.bundle import Bundle
from quillcast.core.ranges import Range

_NO_BUNDLES: list[Bundle] = []  # shared by all logs that never held a bundle


class Budget:
    """The bound on all buffers of a peer together (docs/delivery.md, *Who keeps what*)."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    @property
    def over(self) -> bool:
        """Do the buffers exceed the bound?"""
        return self.used_bytes > self.limit_bytes


class Log:
    """Bundles by serial number, in order of arrival. The cursors of channels are serial numbers."""

    __slots__ = ("_bundles", "budget", "end", "size_bytes")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.end = 0
        """The serial of the next bundle."""
        self.size_bytes = 0
        self._bundles = _NO_BUNDLES

    @property
    def base(self) -> int:
        """The serial of the oldest kept bundle; `end` if there is none."""
        return self.end - len(self._bundles)

    def __len__(self) -> int:
        return len(self._bundles)

    def append(self, bundle: Bundle) -> None:
        """Add a bundle."""
        if self._bundles is _NO_BUNDLES:
            self._bundles = []
        self._bundles.append(bundle)
        self.end += 1
        self.size_bytes += bundle.size
        self.budget.used_bytes += bundle.size

    def at(self, serial: int) -> Bundle | None:
        """The bundle with this serial, or None if it is not kept any more."""
        behind = self.end - serial
        return self._bundles[-behind] if 0 < behind <= len(self._bundles) else None

    def first_over(self, index: int) -> int:
        """The first serial whose bundle reaches past this index; the end if none does."""
        for serial, bundle in enumerate(self._bundles, self.base):
            if bundle.last > index:
                return serial
        return self.end

    def overlapping(self, ranges: list[Range]) -> list[Bundle]:
        """The bundles with any of these indexes, in order of position."""
        found = [b for b in self._bundles if any(b.envelope.first < last and first < b.last for first, last in ranges)]
        return sorted(found, key=lambda bundle: bundle.envelope.first)

    def trim(self, below: int, goal_bytes: int = 0) -> list[Bundle]:
        """Discard the oldest bundles that lie below this index, until at most `goal_bytes` are left.

        Returns the discarded bundles.
        """
        count, left_bytes = 0, self.size_bytes
        for bundle in self._bundles:
            if bundle.last > below or left_bytes <= goal_bytes:
                break
            count += 1
            left_bytes -= bundle.size
        return self.drop(count)

    def bytes_between(self, first: int, last: int) -> int:
        """The size of the kept bundles from serial `first` to before `last`."""
        base = self.base
        return sum(bundle.size for bundle in self._bundles[max(0, first - base) : max(0, last - base)])

    def drop(self, count: int) -> list[Bundle]:
        """Discard the `count` oldest bundles, and return them."""
        gone = self._bundles[:count]
        if gone:
            del self._bundles[:count]
            size = sum(bundle.size for bundle in gone)
            self.size_bytes -= size
            self.budget.used_bytes -= size
        return gone

    def bundles(self) -> list[Bundle]:
        """All kept bundles, in order of arrival."""
        return list(self._bundles)
