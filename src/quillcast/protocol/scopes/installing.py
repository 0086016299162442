"""How a manager's orders enter the data path: the channels of each topic at a member (figures 15 to 19).

Along a topic's tree, members report, recover and are counted. If a scope's policy has channels beside it, bundles take
those channels, with records and filters. If one of them leads to a child, the link to that child carries only what the
channel does. The rest reaches the child over other channels, or the child requests it from its parent.

A bundle without a record starts where it enters the scope, at the entry point, or where its source is. Otherwise it is
a repair, or travels along the tree because its source or a later peer had no orders yet. It continues under the last
record of its stream. It also takes the links of the tree, because the peers there may have no other way to get it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import msgspec

from quillcast.core import multicast
from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, REPAIR, Envelope, Term
from quillcast.core.errors import LocalError, Malformed
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Dropped, Mark
from quillcast.protocol.forwarding.channels import BundleFilter, nothing_enters
from quillcast.protocol.forwarding.ordered import ChannelDecision, Ordered, Way
from quillcast.protocol.scopes.channels import Address, ChannelOrder, Constraint, Multicast, Rate
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.crossing import crossing
from quillcast.protocol.scopes.filters import Customs, on_bundles, worded
from quillcast.protocol.scopes.hierarchy import OVERLAY
from quillcast.protocol.scopes.messages import SHOWN_MAX, Assignment, ShownChannel
from quillcast.protocol.scopes.rate_limits import RateLimits
from quillcast.protocol.scopes.records import Pair, Record, arrived, decode, encode, originated, top

RECORDS_MAX = 1024  # records that were found right; a guess
STREAMS_MAX = 4096  # whose last records are remembered; a guess: as many as a topic's sources begin (`streams_max`)
StreamKey = tuple[bytes, Term]
"""A topic and the term of a source. What roots numbered is one stream per topic: that of `NO_TERM`."""


class Installing:
    """Turns the channels that this peer is ordered to keep into filters, whenever the orders change."""

    __slots__ = (
        "assignments", "borders", "changing", "channels", "customs", "host", "last", "own", "rate_limits", "right",
        "ring", "topics", "unusable",
    )  # fmt: skip

    def __init__(self, host: Host, customs: Customs) -> None:
        self.host, self.customs, self.rate_limits = host, customs, RateLimits(host)
        self.channels: tuple[ChannelOrder, ...] = ()
        self.assignments: Mapping[bytes, Assignment] = EMPTY
        self.topics: dict[bytes, Ordered] = EMPTY
        self.borders: dict[bytes, BundleFilter] = EMPTY  # by topic: what may enter from outside
        self.ring: tuple[Contact, ...] = ()  # the members below which the scope hangs in the overlay's trees
        self.own: dict[bytes, bytes] = EMPTY  # by topic: the record of bundles that begin here, if channels wait
        self.right: dict[tuple[bytes, bytes], None] = EMPTY  # topics and records of bundles that belong here
        self.last: dict[StreamKey, bytes] = EMPTY  # by stream: the record with which a bundle of it came last
        self.changing: dict[bytes, None] = EMPTY  # topics whose policy changes
        self.unusable: dict[bytes, str] = EMPTY  # by topic: why a filter cannot be used here

    def follow(self, controller: LocalController | None) -> list[bytes]:
        """Obey these orders, and return the topics in which something changes."""
        channels = controller.channels if controller is not None else ()
        assignments = controller.membership.recorded() if controller is not None else {}
        ring = controller.membership.ring() if controller is not None else ()
        if (channels, assignments, ring) == (self.channels, self.assignments, self.ring):
            return []
        self.channels, self.assignments, self.ring, former = channels, assignments, ring, self.topics
        self.own = dict(self._beginning_here(controller)) if controller is not None else {}
        constraints = [each for channel in channels for each in channel.constraints]
        kept = (*(each.rates for each in constraints), *(each.leaving for each in assignments.values()))
        self.rate_limits.keep(rate for rates in kept for rate in rates)
        self.unusable = {}
        crossed = list(self._crossed())
        within, heads = self._over_link(nothing_enters), frozenset(contact.node_id for contact in ring)
        rooted = _rooted(controller)
        self.topics = {
            topic: Ordered(
                self._ways(topic, crossed),
                without_record,
                within,
                None if topic in rooted else heads,
                partial(self.rate_limits.sink, each.leaving) if each.leaving else None,
            )
            for topic, each in assignments.items()
        }
        self.right, self.last = {}, {}
        self.borders = dict(self._borders())
        self.changing = {each.topic: None for each in constraints if not each.begins}
        return list(former | self.topics)

    def shown(self, topic: bytes) -> Iterator[ShownChannel]:
        """The channels that lead from here in a topic of which bundles have records, for people to see."""
        for order in self.channels if topic in self.assignments else ():
            contact = leading_to(order)
            if contact is not None and any(each.topic == topic for each in order.constraints):
                filter_ = worded(order.filter) if order.filter is not None else ""
                yield ShownChannel(contact, str(order.label)[:SHOWN_MAX], filter_[:SHOWN_MAX])

    def is_changing(self, topic: bytes) -> bool:
        """Is the topic's policy being changed, so that channels of two policies are here?"""
        return topic in self.changing

    def _beginning_here(self, controller: LocalController) -> Iterator[tuple[bytes, bytes]]:
        """The records of what this peer numbers as a source, in topics whose channels take it."""
        labels = controller.membership.ordered_labels()
        for topic, assignment in self.assignments.items():
            if assignment.depth is not None:
                record = originated(assignment.depth, labels[topic])
                if any(order.route(topic, record) is not None for order in self.channels):
                    yield topic, encode(record)

    def _borders(self) -> Iterator[tuple[bytes, BundleFilter]]:
        """What may enter. Where a filter cannot be used, nothing may, as if it stopped all."""
        for topic, assignment in self.assignments.items():
            if assignment.filter is not None:
                try:
                    yield topic, on_bundles(assignment.filter, self.customs)
                except LocalError as error:
                    self._note_unusable([topic], error)
                    yield topic, nothing_enters

    def _note_unusable(self, topics: Iterable[bytes], error: LocalError) -> None:
        """There is no such filter here, or it takes other arguments."""
        self.host.trace(Mark("filter_unusable"))
        self.unusable = dict.fromkeys(topics, str(error)) | self.unusable

    def _crossed(self) -> Iterator[tuple[Contact, ChannelOrder, BundleFilter]]:
        for order in self.channels:
            contact = leading_to(order)
            if contact is not None and any(each.topic in self.assignments for each in order.constraints):
                try:
                    yield contact, order, crossing(order, self._beginning(order), self.customs)
                except LocalError as error:
                    self._note_unusable((each.topic for each in order.constraints), error)
                except Malformed:
                    self.host.trace(Mark("multicast_unusable"))

    def _ways(self, topic: bytes, crossed: list[tuple[Contact, ChannelOrder, BundleFilter]]) -> dict[bytes, Way]:
        """One way to each peer, which takes what any of the channels there takes."""
        found, rates = dict[Contact, list[BundleFilter]](), dict[Contact, list[Rate]]()
        for contact, order, filter_ in crossed:
            concerned = [each for each in order.constraints if each.topic == topic]
            if contact.node_id != self.host.me and concerned:
                found.setdefault(contact, []).append(filter_)
                rates.setdefault(contact, []).extend(rate for each in concerned for rate in each.rates)
        ways = dict[bytes, Way]()
        for contact, filters in found.items():
            enters = filters[0] if len(filters) == 1 else _first_of(filters)
            over_link = self._over_link(enters)
            ways[contact.node_id] = Way(self.rate_limits.sink(rates[contact], contact), enters, over_link)
        return ways

    def _over_link(self, filter_: BundleFilter) -> BundleFilter:
        def enters(bundle: Bundle) -> Bundle | None:
            envelope = bundle.envelope
            if envelope.record or self._begins(envelope):
                return filter_(bundle)
            return (filter_(bundle) if stream_of(envelope) in self.last else None) or bundle

        return enters

    def _begins(self, envelope: Envelope) -> bool:
        """Does a bundle without a record start over channels here?"""
        term, assignment = envelope.term, self.assignments[envelope.topic]
        if not term.of_source:
            return assignment.rank == 0
        if term.is_of(self.host.me):
            return envelope.topic in self.own
        return assignment.ring == 0 and envelope.kind is not REPAIR

    def arrived(self, controller: LocalController, bundle: Bundle) -> Bundle | None:
        """A bundle with a record arrived: stop it if it belongs elsewhere. Other scopes' records mean nothing."""
        topic, record = bundle.envelope.topic, bundle.envelope.record
        if topic not in self.topics:
            return without_record(bundle)
        if (topic, record) not in self.right:
            read = self._read(controller, record)
            if read is None or not controller.admits(topic, read):
                return None
            if len(self.right) >= RECORDS_MAX:
                self.right = {}
            self.right[topic, record] = None
        stream, assignment = stream_of(bundle.envelope), self.assignments[topic]
        if stream[1] is NO_TERM and (assignment.ring == 0 or assignment.begins):
            return bundle  # bundles without a record start at the entry point, wherever others started
        former = self.last.get(stream)
        if former is None or top(record) <= top(former):  # a peer may have begun one that lacks levels above
            if former is None and len(self.last) >= STREAMS_MAX:
                self.last = {}
            self.last[stream] = record
        return bundle

    def _read(self, controller: LocalController, data: bytes) -> Record | None:
        """The record of a bundle; None, with a mark, if it is malformed."""
        record = controller.read(data)
        if record is None:
            self.host.trace(Mark("record_malformed"))
        return record

    def _beginning(self, order: ChannelOrder) -> Callable[[Envelope], bytes]:
        """The record of bundles that have none: a repair continues under the last one of its stream."""
        begun, depths = beginning(order), {each.topic: each.depth for each in order.constraints}

        def record(envelope: Envelope) -> bytes:
            topic = envelope.topic
            if envelope.term.of_source and self._begins(envelope):
                return self.own[topic] if envelope.term.is_of(self.host.me) else begun(topic)
            last = self.last.get(stream_of(envelope))
            return last if last is not None and top(last) <= depths.get(topic, 0) else begun(topic)

        return record

    def came_to_all(self, controller: LocalController, mechanism: str, bundle: Bundle) -> Bundle | None:
        """A bundle came over a multicast mechanism: as it is here. None: it is not for this member."""
        topic, assignment = bundle.envelope.topic, self.assignments.get(bundle.envelope.topic)
        label = controller.membership.label(topic)
        if assignment is None or assignment.depth is None or label is None or not bundle.envelope.record:
            return None
        if not controller.membership.comes_by(mechanism, topic):
            return None
        came = self._read(controller, bundle.envelope.record)
        if came is None:
            self.host.trace(Dropped(topic, bundle.count, "misrouted"))
            return None
        record = arrived(came, assignment.depth, label)
        if record is None:
            return None
        return bundle.under(msgspec.structs.replace(bundle.envelope, record=encode(record)))

    def explain(self, node: bytes, bundle: Bundle) -> ChannelDecision:
        """Which of the channels to a peer takes a bundle, or what stopped it at the last one, for display."""
        decision = ChannelDecision()
        for order in self.channels:
            concerned = [each for each in order.constraints if each.topic == bundle.topic]
            if concerned and (contact := leading_to(order)) is not None and contact.node_id == node:
                record = decode(bundle.envelope.record or self._beginning(order)(bundle.envelope))
                filter_ = worded(order.filter) if order.filter is not None else ""
                why = refusal(order, concerned, record) or self._stopped(order, bundle)
                decision = ChannelDecision(str(order.label), filter_, why)
                if not why:
                    break
        return decision

    def _stopped(self, order: ChannelOrder, bundle: Bundle) -> str:
        if order.filter is None:
            return ""
        try:
            enters = on_bundles(order.filter, self.customs)(bundle) is not None
        except LocalError:
            return "its filter is not installed here"
        return "" if enters else "its filter"


def stream_of(envelope: Envelope) -> StreamKey:
    """The stream of which records are remembered."""
    return envelope.topic, envelope.term if envelope.term.of_source else NO_TERM


def _rooted(controller: LocalController | None) -> list[bytes]:
    """The topics that are rooted at a managed scope. All peers that use them are in it."""
    roles = controller.membership.roles if controller is not None else {}
    return [topic for topic, role in roles.items() if role.root != OVERLAY]


def refusal(order: ChannelOrder, concerned: list[Constraint], record: Record) -> str:
    """Why a bundle's record does not match a channel; empty if it does."""
    if order.route(concerned[0].topic, record) is not None:
        return ""
    pair = record.at(concerned[0].depth)
    if pair is not None and pair.origin in order.label.target[:1]:
        return "it originated there"
    wanted = {each.origin for each in concerned if each.origin is not None}
    origin = pair.origin if pair is not None else order.label.source[0]
    if wanted and origin not in wanted and len(wanted) == len(concerned):
        return f"for bundles that originated at {' or '.join(map(str, sorted(wanted)))}"
    return "for bundles under another version of the policy"


def leading_to(order: ChannelOrder) -> Contact | None:
    """Where the data path sends bundles that take a channel; None if it cannot."""
    match order.spec:
        case Address(peer):
            return peer
        case Multicast(mechanism):
            return multicast.contact(mechanism)
        case _:
            return None


def beginning(order: ChannelOrder) -> Callable[[bytes], bytes]:
    """The record of a topic's bundles that reach a channel without one: they may come from anywhere."""
    here, *inside = order.label.source

    def begun(topic: bytes) -> bytes:
        known = [each for each in order.constraints if each.topic == topic and each.begins]
        if not known:
            return b""
        one = next((each for each in known if each.origin in (None, here)), known[0])
        pair = Pair(one.origin or here, here, one.version)
        return encode(Record(one.depth, (pair, *(Pair(label, label) for label in inside))))

    return begun


def without_record(bundle: Bundle) -> Bundle:
    """A bundle as it is outside of the scope."""
    if not bundle.envelope.record:
        return bundle
    return bundle.under(msgspec.structs.replace(bundle.envelope, record=b""))


def _first_of(filters: list[BundleFilter]) -> BundleFilter:
    def enters(bundle: Bundle) -> Bundle | None:
        return next((entering for filter_ in filters if (entering := filter_(bundle)) is not None), None)

    return enters
