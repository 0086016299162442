"""The forwarding table: topics and their flows. A bundle takes the path of `ForwardingTable.move`, and no other."""

from typing import Generic, TypeVar

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import REPAIR
from quillcast.core.host import Host
from quillcast.core.trace import Dropped, Repeated
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget

F = TypeVar("F", bound=Flow)


class ForwardingTable(Generic[F]):
    """The flows of a peer, with the state of their control planes, which write the table. The data path reads it."""

    def __init__(self, host: Host, budget_bytes: int) -> None:
        self.host = host
        self.budget = Budget(budget_bytes)
        self.flows: dict[bytes, F] = {}
        self.repeats = 0
        self.dropped = 0

    def open(self, flow: F) -> F:
        """Add a topic's flow."""
        self.flows[flow.topic] = flow
        return flow

    def close(self, topic: bytes) -> None:
        """Remove a topic's flow, and discard what it keeps."""
        flow = self.flows.pop(topic, None)
        if flow is not None:
            flow.log.drop(len(flow.log))
            for term in list(flow.past):
                flow.forget(term)

    def move(self, bundle: Bundle) -> bool:
        """Record a bundle's range and send it to the flow's channels. False if it is a repeat or of a stale term."""
        flow = self.flows.get(bundle.envelope.topic)
        if flow is None:
            return self._drop(bundle, "no_flow")
        if bundle.envelope.term != flow.term:
            return self._other_term(flow, bundle)
        if not flow.move(bundle):
            return self._repeat(bundle)
        if not flow.keeps and flow.discard_all():
            self._drop(bundle, "no_room")
        return True

    def _other_term(self, flow: Flow, bundle: Bundle) -> bool:
        """Keep a repair of a past term. Ignore other bundles of one: their root does not know that it has ended."""
        if bundle.envelope.kind is not REPAIR:
            return self._drop(bundle, "stale_term")
        if not flow.restore(bundle):
            return self._repeat(bundle)
        return True

    def _repeat(self, bundle: Bundle) -> bool:
        self.repeats += bundle.count
        self.host.trace(Repeated(bundle.topic, "range", bundle.count))
        return False

    def _drop(self, bundle: Bundle, why: str) -> bool:
        self.dropped += bundle.count
        self.host.trace(Dropped(bundle.topic, bundle.count, why))
        return False

    def check(self) -> None:
        """Raise AssertionError unless every flow is consistent and the budget equals the size of what they keep."""
        kept = 0
        for flow in self.flows.values():
            flow.check()
            kept += flow.log.size_bytes + sum(b.size for past in flow.past.values() for b in past.bundles)
        assert kept == self.budget.used_bytes, (kept, self.budget.used_bytes)
