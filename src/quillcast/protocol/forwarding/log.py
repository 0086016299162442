"""The buffer of one flow: the bundles of its live terms in order of arrival, kept until they are stable."""

from collections.abc import Iterator

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.ranges import Range

_NO_BUNDLES: list[Bundle | None] = []  # shared by all logs that never held a bundle


class Budget:
    """The bound on all buffers of a peer together (docs/delivery.md, *Who keeps what*)."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.empty = Log(self)
        """The log of all flows that never had a bundle. Nothing is added to it."""

    @property
    def over(self) -> bool:
        """Do the buffers exceed the bound?"""
        return self.used_bytes > self.limit_bytes


class Log:
    """Bundles by serial number, in order of arrival, whatever their term. The cursors of channels are serial numbers.

    A bundle that is discarded before older ones of another term leaves a hole (None).
    """

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

    def after(self, serial: int) -> Iterator[Bundle]:
        """The kept bundles from a serial on, in order of arrival."""
        return (bundle for at in range(max(serial, self.base), self.end) if (bundle := self.at(at)) is not None)

    def of(self, term: Term) -> Iterator[Bundle]:
        """The kept bundles of a term, in order of arrival."""
        return (bundle for bundle in self._bundles if bundle is not None and bundle.envelope.term == term)

    def first_over(self, term: Term, index: int) -> int:
        """The first serial whose bundle reaches past an index of a term, or is of another one; the end if none does."""
        for serial, bundle in enumerate(self._bundles, self.base):
            if bundle is not None and (bundle.last > index or bundle.envelope.term != term):
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
        for serial, bundle in enumerate(self._bundles, self.base):
            if bundle is None or bundle.envelope.term != term:
                continue
            if bundle.last > below or left_bytes <= goal_bytes:
                break
            gone.append((serial, bundle))
            left_bytes -= bundle.size
        self._take_out(gone)
        return gone

    def drop(self, term: Term | None = None) -> list[Bundle]:
        """Discard all bundles, or those of a term, and return them."""
        of_term = [
            (serial, bundle)
            for serial, bundle in enumerate(self._bundles, self.base)
            if bundle is not None and (term is None or bundle.envelope.term == term)
        ]
        self._take_out(of_term)
        return [bundle for _, bundle in of_term]

    def _take_out(self, gone: list[tuple[int, Bundle]]) -> None:
        if not gone:
            return
        bundles, base = self._bundles, self.base
        for serial, _ in gone:
            bundles[serial - base] = None
        holes = next((at for at, bundle in enumerate(bundles) if bundle is not None), len(bundles))
        del bundles[:holes]
        size_bytes = sum(bundle.size for _, bundle in gone)
        self.size_bytes -= size_bytes
        self.budget.used_bytes -= size_bytes

    def bytes_between(self, first: int, last: int) -> int:
        """The size of the kept bundles from serial `first` to before `last`."""
        base = self.base
        kept = self._bundles[max(0, first - base) : max(0, last - base)]
        return sum(bundle.size for bundle in kept if bundle is not None)

    def bundles(self) -> list[Bundle]:
        """All kept bundles, in order of arrival."""
        return [bundle for bundle in self._bundles if bundle is not None]
