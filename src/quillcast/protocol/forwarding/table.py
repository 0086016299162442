"""The forwarding table: topic to flow. The path of a bundle is `ForwardingTable.move`, and nothing else is on it."""

from typing import Generic, TypeVar

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import REPAIR
from quillcast.core.host import Host
from quillcast.core.trace import Dropped, Repeated
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget

F = TypeVar("F", bound=Flow)


class ForwardingTable(Generic[F]):
    """What control planes write and the data path reads: flows, each with what its control plane keeps beside it."""

    def __init__(self, host: Host, budget_bytes: int) -> None:
        self.host = host
        self.budget = Budget(budget_bytes)
        self.flows: dict[bytes, F] = {}
        self.repeats = 0
        self.dropped = 0

    def open(self, flow: F) -> F:
        """Enter a topic's flow."""
        self.flows[flow.topic] = flow
        return flow

    def close(self, topic: bytes) -> None:
        """Let a topic's flow and all it keeps go."""
        flow = self.flows.pop(topic, None)
        if flow is not None:
            flow.log.drop(len(flow.log))
            for term in list(flow.past):
                flow.forget(term)

    def move(self, bundle: Bundle) -> bool:
        """Note a bundle's range and hand it to the flow's channels. False if it ended here: a repeat, a stale term."""
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
        """A repair of a past term is kept; a root that does not know that its term is over is not listened to."""
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
        """Raise AssertionError unless every flow is sound and the budget counts what they keep."""
        kept = 0
        for flow in self.flows.values():
            flow.check()
            kept += flow.log.size_bytes + sum(b.size for past in flow.past.values() for b in past.bundles)
        assert kept == self.budget.used_bytes, (kept, self.budget.used_bytes)
