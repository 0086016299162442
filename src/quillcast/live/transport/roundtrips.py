"""Round trips over links: a ping, and the time until its answer."""

import time

from quillcast.core.messages import Contact
from quillcast.live.runtime.pump import Pump

NODES_MAX = 4096  # with a known round trip; the oldest are forgotten


class RoundTrips:
    """Measures round trips and keeps the smallest per peer: the rest is queueing and scheduling, not distance."""

    def __init__(self, pump: Pump, timeout_s: float) -> None:
        self._pump, self._timeout_s = pump, timeout_s
        self._pings: dict[int, tuple[Contact, float]] = {}
        self._count = 0
        self._best: dict[bytes, float] = {}

    def best(self, node: bytes) -> float | None:
        """The smallest round trip measured to a peer, in seconds."""
        return self._best.get(node)

    def ask(self, contact: Contact) -> int:
        """Return the number of a ping to send to a peer now. The result becomes the input `measured`."""
        self._count += 1
        self._pings[self._count] = (contact, time.perf_counter())
        self._pump.loop.call_later(self._timeout_s, self._unanswered, self._count)
        return self._count

    def answered(self, ping: int) -> None:
        """The answer to a ping arrived."""
        contact, sent_at = self._pings.pop(ping, (None, 0.0))
        if contact is None:
            return  # too late, or not a ping of this peer
        node, round_trip = contact.node_id, time.perf_counter() - sent_at
        best = self._best[node] = min(round_trip, self._best.pop(node, round_trip))
        if len(self._best) > NODES_MAX:
            del self._best[next(iter(self._best))]
        self._pump.hand(self._pump.inputs.measured, contact, best)

    def lost(self, node: bytes) -> None:
        """The link to a peer is gone: pings over it stay unanswered."""
        for ping in [ping for ping, (contact, _) in self._pings.items() if contact.node_id == node]:
            self._unanswered(ping)

    def _unanswered(self, ping: int) -> None:
        contact, _ = self._pings.pop(ping, (None, 0.0))
        if contact is not None:
            self._pump.hand(self._pump.inputs.measured, contact, None)
