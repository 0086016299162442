"""When peers' buffers were over budget for so long that leases may be cut (docs/delivery.md, *Slowness*)."""

from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.sim.reach import Span

ROUNDING_S = 0.001  # timers may be early by this much, due to the rounding of floating-point times


class Crowding:
    """The time spans in which some peer was over its budget, or a part of it, for `patience_s` or longer."""

    def __init__(self, config: Config, part: float = 1.0) -> None:
        self.part = part
        self.patience_s = config.topics.patience_s - ROUNDING_S
        self.spans: list[Span] = []
        self._since: dict[int, float] = {}

    def note(self, machine: int, peer: Peer, now: float) -> None:
        """Called after every step of this machine's peer."""
        budget = peer.table.budget
        if budget.used_bytes > self.part * budget.limit_bytes:
            self._since.setdefault(machine, now)
        elif machine in self._since:
            self._close(self._since.pop(machine), now)

    def between(self, since: float, now: float) -> bool:
        """Whether any peer was over its budget for that long at some time in this span."""
        for start in self._since.values():
            if now - start >= self.patience_s:
                return True
        return any(span.end >= since and span.start <= now for span in self.spans)

    def _close(self, since: float, now: float) -> None:
        if now - since >= self.patience_s:
            self.spans.append(Span(since, now))
