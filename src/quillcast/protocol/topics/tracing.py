"""Traces one bundle of a topic through all peers, for people to see (`quillcast trace`).

The asker walks the topic's tree with a `Survey` that also asks for a trace. The peer that numbers events (the root, or
each source) then marks the next bundle that it seals: a tag in the envelope names the asker. Every peer that gets the
bundle reports to the asker what it did with it, in a `Hop`. So a trace follows a real bundle on its real path, and
nothing is published for it. A bundle that is not traced costs one look at its empty tags.

Tags of traces contain a character that tags of filters must not contain.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import REPAIR, Term
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.ordered import ChannelDecision
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.scopes.messages import Carrier, ShownChannel
from quillcast.protocol.topics.query_messages import Hop, Survey, WayOut
from quillcast.protocol.topics.state.sources import came_from
from quillcast.protocol.topics.state.tree import Tree

MARK = b"trace:"
MARKS_MAX = 4  # on one bundle; a guess: they have to fit beside the tags of filters
WAYS_MAX = 256  # that a peer reports; a guess
WAIT_S_MAX = 3600.0  # that a mark waits for a bundle, whatever the asker says; a guess
EXPIRY_S = 60.0  # at most between two looks for marks whose askers no longer wait; a guess
HOPS_MAX = 16_384  # kept for one question: more than a thousand peers cause in a redundant scope; a guess
AGAIN_S, AGAIN_MAX = 0.5, 4  # a peer reports again while the bundle waits in a subscription; a guess


class MarksDue(Timer, frozen=True):
    """Forget the marks whose askers no longer wait."""


class Again(Timer, frozen=True):
    """Check again whether the subscriptions in which a bundle waited have taken it."""

    asker: Contact
    hop: Hop
    left: int


class Follower(msgspec.Struct, frozen=True, array_like=True):
    """The asker of a trace, as the tag on the bundle names it."""

    asker: Contact
    number: int


class TraceWanted(NamedTuple):
    """A request for a trace whose mark no bundle has yet."""

    message: Survey
    until: float


Copy = tuple[bytes, bytes, Term, int]
"""One copy of a bundle: its receiver, its sender, and the bundle's position."""
Explain = Callable[[bytes, Bundle], ChannelDecision]
"""Returns what this peer's scopes decide about a bundle on its way to a peer."""


class ScopesHere(NamedTuple):
    """What the layer above knows about this peer's scopes, for people to see."""

    name: Callable[[bytes], str] = lambda topic: ""
    """The name of the scope in which this peer takes part in a topic; empty if it is in none."""
    explain: Explain = lambda node, bundle: ChannelDecision()
    is_changing: Callable[[bytes], bool] = lambda topic: False
    """Whether the topic's policy is being changed, so that channels of two policies are here."""
    carriers: Callable[[bytes], tuple[Carrier, ...]] = lambda topic: ()
    """The scopes that carry a topic here, the innermost first."""
    channels: Callable[[bytes], Iterable[ShownChannel]] = lambda topic: ()
    """The channels from this peer."""


class Tracing:
    """Marks bundles to trace, and reports what became of traced bundles here."""

    __slots__ = ("expiry_set", "hops", "host", "marks", "scopes", "table", "trees")

    def __init__(self, host: Host, table: ForwardingTable, trees: Mapping[bytes, Tree], dispatch: Dispatch) -> None:
        self.host, self.table, self.trees = host, table, trees
        self.scopes = ScopesHere()
        self.marks: dict[bytes, dict[bytes, TraceWanted]] = EMPTY  # by topic: the tags that its next bundle gets
        self.expiry_set = False
        self.hops: dict[int, dict[Copy, tuple[Contact, Hop]]] = {}  # what peers reported, by the number of the question
        dispatch.on_message(Hop, self._told)
        dispatch.on_alarm(MarksDue, self._expire)
        dispatch.on_timer(Again, self._tell_again)

    def show_scopes(self, scopes: ScopesHere) -> None:
        """Set what is shown about this peer's scopes."""
        self.scopes = scopes

    # ---- marks

    def ask(self, message: Survey) -> None:
        """Mark the next bundle of a topic that is sealed here, if that happens while the asker waits."""
        tag = MARK + msgspec.msgpack.encode(Follower(message.asker, message.number)).hex().encode()
        self.marks = self.marks or {}
        tags = self.marks.setdefault(message.topic, {})
        self._forget_late(tags)
        if len(tags) < MARKS_MAX and tag not in tags:
            tags[tag] = TraceWanted(message, self.host.now() + min(message.trace_s, WAIT_S_MAX))
        self._expire_later()

    def pass_on(self, topic: bytes, to: Contact) -> None:
        """Pass the marks on to the next root, which now seals the bundles."""
        for message, until in self.marks.get(topic, {}).values():
            left_s = max(0.0, until - self.host.now())
            self.host.send(to, msgspec.structs.replace(message, down=True, trace_s=left_s))

    def marked(self, sealed: list[Bundle]) -> list[Bundle]:
        """Return the sealed bundles of one topic, the first one with the requested marks."""
        if not sealed or (wanted := self.marks.pop(sealed[0].topic, None)) is None:
            return sealed
        first, *others = sealed
        self._forget_late(wanted)
        tags = b",".join(wanted)
        return [first.under(msgspec.structs.replace(first.envelope, tags=tags)), *others]

    def _forget_late(self, tags: dict[bytes, TraceWanted]) -> None:
        for tag in [tag for tag, wanted in tags.items() if wanted.until <= self.host.now()]:
            del tags[tag]

    def _expire_later(self) -> None:
        """Set the timer that serves all marks, however many there are."""
        if self.marks and not self.expiry_set:
            self.expiry_set = True
            first = min(wanted.until for tags in self.marks.values() for wanted in tags.values())
            self.host.set_timer(MarksDue(), min(EXPIRY_S, max(0.0, first - self.host.now())))

    def _expire(self) -> None:
        self.expiry_set = False
        for tags in self.marks.values():
            self._forget_late(tags)
        self.marks = {topic: tags for topic, tags in self.marks.items() if tags}
        self._expire_later()

    # ---- hops

    def began(self, tree: Tree, bundle: Bundle) -> None:
        """Report a bundle with tags that was sealed here and has been sent."""
        admissions = tree.admitter.admissions if tree.admitter is not None else {}
        known = (admissions.get(block.publisher) for block in bundle.blocks)
        publisher = next((each.contact for each in known if each is not None), None)
        self._tell(bundle, bundle, None, "", publisher)

    def arrive(self, sender: Contact, bundle: Bundle) -> None:
        """Pass on a bundle with tags as any other (`ForwardingTable.arrive`), and report to the askers that trace it.

        It is told here, not as a listener of the table: it must know why a bundle was refused, too.
        """
        stopped = self.table.arrive(sender, bundle)
        entered = self.table.recorded(bundle) if bundle.envelope.record and not stopped else bundle
        self._tell(bundle, entered or bundle, sender, stopped, None)

    def _tell(
        self, bundle: Bundle, entered: Bundle, sender: Contact | None, stopped: str, publisher: Contact | None
    ) -> None:
        """`entered` is the bundle as this peer's channels got it."""
        flow, envelope = self.table.flows.get(bundle.topic), bundle.envelope
        for follower in followers(envelope.tags):
            goes_on = flow is not None and not stopped and flow.live(envelope.term) is not None
            ways = tuple(self._ways(flow, entered))[:WAYS_MAX] if flow is not None and goes_on else ()
            taken, waiting = (0, 0) if stopped else self._subscriptions(bundle.topic, envelope.term, bundle.last)
            hop = Hop(
                bundle.topic, follower.number, envelope.term, envelope.first, bundle.count, bundle.size,
                self.host.wall_ns(), min(block.time_ns for block in bundle.blocks), ways,
                sender=sender.node_id if sender is not None else b"", publisher=publisher, stopped=stopped,
                record=envelope.record, taken=taken, waiting=waiting, repair=envelope.kind is REPAIR,
                scope=self.scopes.name(bundle.topic), serial=envelope.serial,
                carriers=self.scopes.carriers(bundle.topic),
            )  # fmt: skip
            self._send(follower.asker, hop, AGAIN_MAX)

    def _tell_again(self, timer: Again) -> None:
        hop = timer.hop
        taken, waiting = self._subscriptions(hop.topic, hop.term, hop.first + hop.count)
        self._send(timer.asker, msgspec.structs.replace(hop, taken=taken, waiting=waiting), timer.left - 1)

    def _send(self, asker: Contact, hop: Hop, left: int) -> None:
        if hop.waiting and left:
            self.host.set_timer(Again(asker, hop, left), AGAIN_S)
        if asker.node_id == self.host.me:
            self._told(self.host.contact, hop)
        else:
            self.host.send(asker, hop)

    def _ways(self, flow: Flow, bundle: Bundle) -> Iterator[WayOut]:
        """Yield what became of a bundle that has just been appended to the log, at each channel to a peer."""
        for channel in flow.channels:
            if (to := channel.sink.contact) is not None:
                yield self._way(flow, channel, to, bundle)

    def _way(self, flow: Flow, channel: Channel, to: Contact, bundle: Bundle) -> WayOut:
        if channel.cursor < flow.log.end:
            return WayOut(to, "waits")
        if came_from(to.node_id, flow, bundle):
            return WayOut(to, "came from there")
        entering = bundle if channel.filter is None else channel.filter(bundle)
        decision = self.scopes.explain(to.node_id, bundle)
        if entering is not None:
            return WayOut(to, "", decision.channel, decision.filter, entering.envelope.record)
        return WayOut(to, decision.why or "filter", decision.channel, decision.filter)

    def _subscriptions(self, topic: bytes, term: Term, last: int) -> tuple[int, int]:
        """Return how many local subscriptions have taken all of a term before an index, and how many have not."""
        tree = self.trees.get(topic)
        reached = [each.frontier(term) >= last for each in tree.subscriptions] if tree is not None else []
        return reached.count(True), reached.count(False)

    def forget_hops(self, number: int) -> None:
        """Forget the answers to a question, which the asker has seen."""
        self.hops.pop(number, None)

    def await_hops(self, number: int) -> None:
        """Begin to gather the answers to a question."""
        self.hops[number] = {}

    def _told(self, sender: Contact, hop: Hop) -> None:
        """Keep a peer's answer, in place of an earlier one about the same copy."""
        told = self.hops.get(hop.number)
        copy = (sender.node_id, hop.sender, hop.term, hop.first)
        if told is not None and (copy in told or len(told) < HOPS_MAX):
            told[copy] = sender, hop


def followers(tags: bytes) -> Iterator[Follower]:
    """Yield the askers that trace the bundle with these tags. Other tags, and malformed ones, are ignored."""
    for tag in tags.split(b",")[:MARKS_MAX] if MARK in tags else ():
        if tag.startswith(MARK):
            try:
                yield msgspec.msgpack.decode(bytes.fromhex(tag[len(MARK) :].decode()), type=Follower)
            except (ValueError, msgspec.MsgspecError):
                continue
