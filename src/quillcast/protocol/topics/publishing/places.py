"""Places of a publisher's events, according to receipts: how far the terms that admitted them had gone by then."""

from collections import deque

from quillcast.core.envelope import Term
from quillcast.protocol.forwarding.milestones import Came

TERMS_MAX = 4  # terms that may have admitted what a publisher still keeps; a guess


class Places:
    """For each event that a publisher keeps, an index of its term that is above it."""

    def __init__(self) -> None:
        self.by_term: dict[Term, deque[tuple[int, Came]]] = {}
        """Per term, the latest last: one past a sequence, and how far the term had come when it admitted those."""

    def note(self, term: Term, admitted: int, came: Came) -> None:
        """Note that a root admitted the events before a sequence, and how far its term had come then."""
        known = self.by_term.get(term)
        if known is None:
            known = self.by_term[term] = deque()
            if len(self.by_term) > TERMS_MAX:
                del self.by_term[next(iter(self.by_term))]
        if not known or admitted > known[-1][0]:
            known.append((admitted, came))

    def find(self, last: int) -> tuple[Term, Came] | None:
        """Return the latest term that admitted the event before a sequence, and how far it had come by then."""
        for term, known in reversed(self.by_term.items()):
            for admitted, came in known:
                if admitted >= last:
                    return term, came
        return None

    def let_go(self, below: int) -> None:
        """Forget the events before a sequence, which the publisher no longer keeps."""
        for known in self.by_term.values():
            while known and known[0][0] <= below:
                known.popleft()
        if self.by_term and not any(self.by_term.values()):
            self.by_term = {}
