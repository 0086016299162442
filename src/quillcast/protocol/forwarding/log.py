"""The buffer of one flow: the bundles of its live terms in order of arrival, kept until they are stable."""

from collections.abc import Iterable, Iterator

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.interning import EMPTY
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.milestones import NO_ARRIVAL, Came


class Budget:
    """The bound on all buffers of a peer together (docs/delivery.md, *Who keeps what*)."""

    __slots__ = ("empty", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.empty = Log(self)
        """The log of all flows that never had a bundle. Nothing is added to it."""

    def use(self, size_bytes: int) -> None:
        """Count bytes that are kept."""
        self.used_bytes += size_bytes

    def free(self, size_bytes: int) -> None:
        """Count bytes that are no longer kept."""
        self.used_bytes -= size_bytes

    @property
    def over(self) -> bool:
        """Whether the buffers exceed the bound."""
        return self.used_bytes > self.limit_bytes


class Log:
    """Bundles by serial number, in order of arrival, whatever their term. The cursors of channels are serial numbers.

    A bundle of one term may be discarded before older ones of another.
    """

    __slots__ = ("_bundles", "base", "budget", "came", "end", "size_bytes")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.base = 0
        """The serial of the oldest kept bundle; `end` if there is none."""
        self.end = 0
        """The serial of the next bundle."""
        self.size_bytes = 0
        self.came = NO_ARRIVAL
        """How far the topic's current term had come by when."""
        self._bundles: dict[int, Bundle] = EMPTY

    def __len__(self) -> int:
        return len(self._bundles)

    def note_came(self, came: Came) -> None:
        """Record how far the topic's current term had come by when."""
        self.came = came

    def append(self, bundle: Bundle) -> None:
        """Add a bundle."""
        if self._bundles is EMPTY:
            self._bundles = {}
        self._bundles[self.end] = bundle
        self.end += 1
        self.size_bytes += bundle.size
        self.budget.used_bytes += bundle.size

    def at(self, serial: int) -> Bundle | None:
        """The bundle with this serial, or None if it is not kept any more."""
        return self._bundles.get(serial)

    def after(self, serial: int) -> Iterator[Bundle]:
        """The kept bundles from a serial on, in order of arrival."""
        return (bundle for at, bundle in self._bundles.items() if at >= serial)

    def entries(self) -> Iterable[tuple[int, Bundle]]:
        """The kept bundles with their serials, in order of arrival."""
        return self._bundles.items()

    def of(self, term: Term) -> Iterator[Bundle]:
        """The kept bundles of a term, in order of arrival."""
        return (bundle for bundle in self._bundles.values() if bundle.envelope.term == term)

    def oldest(self, term: Term) -> Bundle | None:
        """The kept bundle of a term that arrived first."""
        for bundle in self._bundles.values():
            if bundle.envelope.term == term:
                return bundle
        return None

    def first_over(self, term: Term, index: int) -> int:
        """The first serial whose bundle reaches past an index of a term, or is of another; else the end."""
        for serial, bundle in self._bundles.items():
            if bundle.last > index or bundle.envelope.term != term:
                return serial
        return self.end

    def overlapping(self, term: Term, ranges: list[Range]) -> list[Bundle]:
        """The bundles with any of these indexes of a term, in order of position."""
        found = [b for b in self.of(term) if any(b.envelope.first < last and first < b.last for first, last in ranges)]
        return sorted(found, key=lambda bundle: bundle.envelope.first)

    def trim(self, term: Term, below: int, goal_bytes: int = 0) -> list[tuple[int, Bundle]]:
        """Discard the oldest bundles of a term that lie below an index, until at most `goal_bytes` are left.

        Returns the discarded bundles with their serials.
        """
        gone, left_bytes = list[tuple[int, Bundle]](), self.size_bytes
        for entry in self._bundles.items():
            bundle = entry[1]
            if bundle.envelope.term != term:
                continue
            if bundle.last > below or left_bytes <= goal_bytes:
                break
            gone.append(entry)
            left_bytes -= bundle.size
        self._take_out(gone, self.size_bytes - left_bytes)
        return gone

    def drop(self, term: Term) -> list[Bundle]:
        """Discard the bundles of a term, and return them."""
        gone = [(serial, bundle) for serial, bundle in self._bundles.items() if bundle.envelope.term == term]
        self.take_out(gone)
        return [bundle for _, bundle in gone]

    def clear(self) -> None:
        """Discard all bundles."""
        self._bundles = EMPTY
        self.budget.used_bytes -= self.size_bytes
        self.base, self.size_bytes = self.end, 0

    def take_out(self, gone: list[tuple[int, Bundle]]) -> None:
        """Discard these bundles, given with their serials."""
        self._take_out(gone, sum([bundle.size for _, bundle in gone]))

    def _take_out(self, gone: list[tuple[int, Bundle]], gone_bytes: int) -> None:
        bundles = self._bundles
        for serial, _ in gone:
            del bundles[serial]
        self.size_bytes -= gone_bytes
        self.budget.used_bytes -= gone_bytes
        if gone:
            self.base = next(iter(bundles), self.end)

    def bytes_between(self, first: int, last: int) -> int:
        """The size of the kept bundles from serial `first` to before `last`."""
        return sum(bundle.size for serial in range(max(first, self.base), last) if (bundle := self.at(serial)))

    def bundles(self) -> list[Bundle]:
        """All kept bundles, in order of arrival."""
        return list(self._bundles.values())
