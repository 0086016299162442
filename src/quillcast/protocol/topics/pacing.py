"""Back-pressure: credit goes back to senders while the buffers are within the budget (DELIVERY.md, *Slowness*)."""

from collections import deque
from typing import TYPE_CHECKING

from quillcast.core.bundle import Bundle
from quillcast.core.trace import Dropped, Mark
from quillcast.protocol.forwarding.flow import Flow

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Pacing:
    """Holds senders' credit back while this peer's buffers are over their budget, for `patience_s` before a cut."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config = scribe, scribe.host, scribe.config
        self.budget = scribe.table.budget
        self.owed: deque[tuple[bytes, int]] = deque()
        self.over_since: float | None = None

    def release(self, sender: bytes, size_bytes: int) -> None:
        """A bundle has been moved: its credit goes back now, or when there is room again."""
        if self.budget.over or self.owed:
            self.owed.append((sender, size_bytes))
            self._note_over()
        else:
            self.host.release(sender, size_bytes)

    def _note_over(self) -> None:
        if self.over_since is None and self.budget.over:
            self.over_since = self.host.now()
            self.host.trace(Mark("paced"))

    def eased(self) -> None:
        """The buffers may have shrunk."""
        if self.budget.over:
            return
        self.over_since = None
        while self.owed:
            self.host.release(*self.owed.popleft())

    def sweep(self, now: float) -> None:
        """After `patience_s` over the budget, the oldest of the busiest topic goes, unless its owner chose to wait."""
        self._note_over()
        if self.over_since is None or now - self.over_since < self.config.patience_s:
            return
        self.cut(self.budget.limit_bytes * 7 // 8)
        self.eased()

    def _tell_edges(self, flow: Flow, gone: Bundle) -> None:
        """Subscribers here that had not taken it lost it; children find out by asking."""
        for edge in self.scribe.trees[flow.topic].edges.values():
            if edge.cursor < flow.log.base:
                edge.cursor = flow.log.base
                edge.skip(flow.term, [(gone.envelope.first, gone.last)], "cut")

    def cut(self, goal_bytes: int) -> None:
        """Let go of past terms first, then of the oldest bundles of the busiest topics that may be cut."""
        flows = self.scribe.table.flows
        for flow in flows.values():
            for term in list(flow.past):
                if self.budget.used_bytes > goal_bytes:
                    flow.thin(term)
        cuttable = [f for f in flows.values() if self.scribe.trees[f.topic].descriptor.settings.slow == "cut"]
        while self.budget.used_bytes > goal_bytes and cuttable:
            busiest = max(cuttable, key=lambda flow: (flow.log.size_bytes, flow.topic))
            gone = busiest.log.drop(1)
            if not gone:
                return
            self.host.trace(Mark("cut"))
            self.host.trace(Dropped(busiest.topic, gone[0].count, "budget"))
            self._tell_edges(busiest, gone[0])
