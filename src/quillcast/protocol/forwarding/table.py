"""The forwarding table: topics and their flows. `ForwardingTable.arrive` takes a bundle from a link to all channels.

`Peer.bundle` calls it, and does a few things first. It drops a bundle whose term is too large to exist
(`Terms.believes`). A bundle of kind `UP` carries events of publishers to the root: it goes to `Intake.up` instead, and
the bundles that the root makes of them begin with `ForwardingTable.move`. A bundle with tags goes to `Tracing.arrive`,
which calls `arrive` and then reports what became of the bundle. A bundle of a multicast mechanism comes by
`Peer.datagram`: `Scoping.datagram` drops it or gives it its record at this member, and then it arrives as any other.

What `arrive` does:

1. Find the flow of the bundle's topic. An unknown term is announced to the control plane. If its session is unknown,
   the bundle waits for the session. Bundles that this peer numbered itself are refused, and so are those of a root
   that did not know who may publish (`Flow.disowns`).
2. Pass the topic's entrance, if it has a handler of its own.
3. Note the range in its stream. A repeat ends here, and so does a bundle beyond the known end of an ended term.
4. Hand the same bytes to each channel whose sink has room. For the others they stay in the log.
5. Tell the control plane, and return the sender's credit.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, REPAIR, Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Dropped, Repaired, Repeated
from quillcast.protocol.forwarding.channels import BundleFilter, Channel
from quillcast.protocol.forwarding.discarding import forget
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.stream import BESIDE, Stream


class FlowListener(Protocol):
    """What the control planes learn about flows, at once and on a bundle's path: keep it short."""

    def holds(self, flow: Flow, session: int) -> bool:
        """Return whether a bundle of a session waits until this peer learns of that session."""
        ...

    def new_term(self, flow: Flow, term: Term) -> None:
        """A bundle of an unknown term arrived. It is dropped unless the term begins now, or is recalled."""
        ...

    def moved(self, flow: Flow, bundle: Bundle) -> None:
        """A bundle was new and went to every channel."""
        ...

    def gap(self, flow: Flow) -> None:
        """Events before an arrived bundle are missing."""
        ...

    def front_filled(self, flow: Flow, term: Term) -> None:
        """A repair brought the first missing event of a term."""
        ...

    def taken(self, flow: Flow, sender: bytes, bundle: Bundle, *, is_due: bool) -> None:
        """A sender's bundle was new: return its credit when the buffers have room. `is_due`: they may wait for it."""
        ...


class ForwardingTable:
    """The flows of a peer. Control planes write it; the data path only reads it."""

    __slots__ = (
        "_continued", "borders", "budget", "dropped", "entrances", "flows", "held", "host", "listener", "recorded",
        "repeats",
    )  # fmt: skip

    def __init__(self, host: Host, budget_bytes: int) -> None:
        self.host = host
        self.budget = Budget(budget_bytes)
        self.flows: dict[bytes, Flow] = {}
        self.entrances: dict[bytes, BundleFilter] = {}  # what bundles of a topic pass before they are recorded
        self.borders: Mapping[bytes, BundleFilter] = EMPTY  # what bundles without a record pass that enter a scope here
        self.recorded: BundleFilter = lambda bundle: bundle  # what bundles with a routing record pass when they arrive
        self.listener: FlowListener = _Nobody(host)
        self.held: dict[bytes, list[tuple[Contact, Bundle]]] = {}  # of sessions that this peer does not know yet
        self.repeats = 0
        self.dropped = 0
        self._continued: dict[bytes, bytes] = {}  # by peer that gave credit: the topic that was the last to use it

    def tell(self, listener: FlowListener) -> None:
        """Set the control plane that is told about bundles."""
        self.listener = listener

    def enter_by(self, topic: bytes, entrance: BundleFilter) -> None:
        """Let bundles of a topic pass this filter before they are recorded."""
        self.entrances[topic] = entrance

    def guard(self, borders: Mapping[bytes, BundleFilter]) -> None:
        """Let bundles without a routing record pass the filter of their topic, where they enter a scope."""
        self.borders = borders

    def pass_recorded(self, recorded: BundleFilter) -> None:
        """Let bundles with a routing record pass this filter when they arrive."""
        self.recorded = recorded

    def open(self, flow: Flow) -> Flow:
        """Add a topic's flow."""
        self.flows[flow.topic] = flow
        return flow

    def close(self, topic: bytes) -> None:
        """Remove a topic's flow, and discard what it keeps."""
        flow = self.flows.pop(topic, None)
        self.entrances.pop(topic, None)
        for sender, bundle in self.held.pop(topic, ()):
            self.host.release(sender.node_id, bundle.size)
        if flow is not None:
            flow.log.clear()
            for term in list(flow.past):
                forget(flow, term)

    def arrive(self, sender: Contact, bundle: Bundle) -> str:
        """A neighbour's bundle arrived: pass it on, and return its credit now or when the buffers have room.

        Returns why it was not passed on, or an empty text.
        """
        envelope, listener, flow = bundle.envelope, self.listener, self.flows.get(bundle.topic)
        if flow is None:
            return self._refuse(sender, bundle, "no_flow")
        term = envelope.term
        stream = flow.current if term == flow.current.term else flow.others.get(term)
        if stream is not None and stream.numbered_here:
            return self._refuse(sender, bundle, "numbered_here")
        if flow.restricted and flow.denies(bundle, stream, sender.node_id):
            return self._refuse(sender, bundle, "denied")
        if stream is None and not flow.knows(term):
            if listener.holds(flow, envelope.session):
                self.held.setdefault(flow.topic, []).append((sender, bundle))  # within the sender's credit
                return "held"
            listener.new_term(flow, term)
            flow = self.flows.get(envelope.topic)  # it may have ended this peer's part in the topic
        if flow is None or (flow.current.term == NO_TERM and not flow.past):  # its start is not known yet
            return self._refuse(sender, bundle, "no_flow")
        if envelope.record or flow.topic in self.borders:
            enters = self.recorded if envelope.record else self.borders[flow.topic]
            entering = enters(bundle)
            if entering is None:
                return self._refuse(sender, bundle, "misrouted" if envelope.record else "filtered")
            bundle = entering
        is_repair = envelope.kind is REPAIR
        if flow.others and not is_repair:
            flow.note_way(bundle, BESIDE if envelope.record else sender.node_id)
        fills_front = is_repair and _fills_front(flow, bundle)
        if not self.move(flow, bundle, stream):
            self.host.release(sender.node_id, bundle.size)  # it takes no room
            return "repeat" if flow.live(term) is not None or is_repair else "stale_term"
        listener.taken(flow, sender.node_id, bundle, is_due=fills_front)
        if fills_front:
            listener.front_filled(flow, term)
        return ""

    def _refuse(self, sender: Contact, bundle: Bundle, why: str) -> str:
        """Drop a neighbour's bundle, and return its credit."""
        self.host.release(sender.node_id, bundle.size)
        self._drop(bundle, why)
        return why

    def take_held(self, flow: Flow) -> None:
        """Take the bundles that waited for a session which this peer has now learned of."""
        for sender, bundle in self.held.pop(flow.topic, ()):
            self.arrive(sender, bundle)

    def link_lost(self, contact: Contact) -> None:
        """Drop the bundles of a lost link that wait for an unknown session. The credit of the link begins anew."""
        self._continued.pop(contact.node_id, None)
        for topic, held in list(self.held.items()):
            gone = [bundle for sender, bundle in held if sender.node_id == contact.node_id]
            self.held[topic] = [(sender, bundle) for sender, bundle in held if sender.node_id != contact.node_id]
            if not self.held[topic]:
                del self.held[topic]
            for bundle in gone:
                self.host.release(contact.node_id, bundle.size)
                self._drop(bundle, "link_lost")

    def move(self, flow: Flow, bundle: Bundle, stream: Stream | None = None) -> bool:
        """Record a bundle's range and hand it to the flow's channels. False if it was stopped, a repeat or stale.

        `stream` is that of its term, if the caller has looked for it.
        """
        if self.entrances and flow.topic in self.entrances:
            entering = self.entrances[flow.topic](bundle)
            if entering is None:
                return False
            bundle = entering
        envelope = bundle.envelope
        if stream is None:
            stream = flow.current if envelope.term == flow.current.term else flow.others.get(envelope.term)
            if stream is None:
                return self._restore(flow, bundle)
        if not flow.move(bundle, stream):
            return self._repeat(bundle)
        if not flow.keeps and flow.discard_unkept():
            self._drop(bundle, "no_room")
        if len(stream.seen.starts) > 1:
            if not flow.is_reliable(envelope.term):
                stream.forget_gaps()
            self.listener.gap(flow)
        if envelope.kind is REPAIR:
            self._trace_repaired(bundle)
        self.listener.moved(flow, bundle)
        return True

    def resume(self, to: Contact, ways: Iterable[tuple[Flow, Channel]]) -> None:
        """Continue the channels to a peer, which gave credit again: first those after the one that was last."""
        ways = list(ways)
        last = self._continued.get(to.node_id)
        first = next((at + 1 for at, (flow, _) in enumerate(ways) if flow.topic == last), 0)
        for flow, channel in (*ways[first:], *ways[:first]):
            if channel.cursor < flow.log.end:
                self._continued[to.node_id] = flow.topic
                flow.serve(channel)
                if self.host.room(to) <= 0:
                    break

    def _restore(self, flow: Flow, bundle: Bundle) -> bool:
        """Keep missing events of an ended term: a repair, or what was in transit when the term ended here.

        If it goes further than the term is known to have gone, its root does not know that the term has ended. Then it
        is dropped, and requested once a neighbour has reported how far the term went, and for how long.
        """
        is_repair, past = bundle.envelope.kind is REPAIR, flow.past.get(bundle.envelope.term)
        if not is_repair and (past is None or bundle.last > past.end):
            return self._drop(bundle, "stale_term")
        if not flow.restore(bundle):
            return self._repeat(bundle)
        if is_repair:
            self._trace_repaired(bundle)
        self.listener.moved(flow, bundle)
        return True

    def _trace_repaired(self, bundle: Bundle) -> None:
        self.host.trace(Repaired(bundle.topic, "neighbour", bundle.count))

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
            kept += flow.kept_bytes
        assert kept == self.budget.used_bytes, (kept, self.budget.used_bytes)


class _Nobody:
    """The listener of a table without a control plane: terms do not begin by themselves, and credit returns at once."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def holds(self, flow: Flow, session: int) -> bool:
        """No, because nobody would report the session."""
        return False

    def new_term(self, flow: Flow, term: Term) -> None:
        """The bundle is dropped."""

    def moved(self, flow: Flow, bundle: Bundle) -> None:
        """Nobody waits for this."""

    def gap(self, flow: Flow) -> None:
        """Nobody repairs it."""

    def front_filled(self, flow: Flow, term: Term) -> None:
        """Nobody waits for this."""

    def taken(self, flow: Flow, sender: bytes, bundle: Bundle, *, is_due: bool) -> None:
        """Nothing else holds it back."""
        self.host.release(sender, bundle.size)


def _fills_front(flow: Flow, bundle: Bundle) -> bool:
    """Return whether a repair contains the first missing event of its term."""
    front = flow.front(bundle.envelope.term)
    return front is not None and bundle.envelope.first <= front < bundle.last
