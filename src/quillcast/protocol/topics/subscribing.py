"""A peer's subscriptions: where each begins in a topic, and how it ends (Scribe, section 3.1: `subscribe`)."""

from typing import TYPE_CHECKING, NamedTuple

from quillcast.core.bundle import Position
from quillcast.core.errors import QuillcastError
from quillcast.core.host import Host
from quillcast.core.sparing import NOTHING, shared
from quillcast.core.trace import Subscribed, Unsubscribed
from quillcast.protocol.forwarding.edge import Edge, Subscriber
from quillcast.protocol.security.access import AccessDenied, Warrant, bearer, is_restricted
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Wish(NamedTuple):
    """What a subscriber asks for; most ask for the same."""

    start: str
    delivery: str | None
    warrant: Warrant | None


class Subscription(Edge):
    """A local subscription and the channel to its subscriber, for `unsubscribe` and `drained`."""

    __slots__ = ("wish",)

    def __init__(self, host: Host, topic: bytes, subscriber: Subscriber, cursor: int, number: int, wish: Wish) -> None:
        super().__init__(host, topic, subscriber, cursor, ordered=True, number=number)
        self.wish = shared(wish)


class Subscribing:
    """All subscriptions of one peer, by number."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host = scribe, scribe.host
        self.subscriptions: dict[int, Subscription] = {}
        self.numbers = 0

    def subscribe(
        self,
        name: str,
        subscriber: Subscriber,
        *,
        start: str = "now",
        delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> Subscription:
        """Subscribe to a topic. `start` is now or earliest (as far back as the parent's buffer reaches).

        `warrant` says on whose behalf; whoever the topic does not let subscribe is told so by `Subscriber.failed`.
        A subscriber that asks for less than a reliable topic gives (`delivery` best_effort) is not held back by gaps.
        """
        descriptor = self.scribe.describe(name)
        tree = self.scribe.tree(descriptor)
        self.numbers += 1
        wish = Wish(start, delivery, warrant)
        subscription = Subscription(self.host, tree.topic, subscriber, tree.flow.log.end, self.numbers, wish)
        self.subscriptions[subscription.number] = subscription
        if tree.attached:
            self._start(tree, subscription)
        else:
            tree.begin_later(subscription)
            self.scribe.joining.join(tree)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. A peer that has no more use for the topic leaves the tree once its parent is known."""
        if self.subscriptions.pop(subscription.number, None) is None:
            return
        tree = self.scribe.trees[subscription.topic]
        if tree.unstarted.pop(subscription.number, None) is None:
            tree.flow.close(subscription)
            self.host.trace(Unsubscribed(tree.topic, subscription.number))
        self.scribe.reports.touch(tree)
        self.scribe.joining.leave_if_idle(tree)

    def count(self, topic: bytes) -> int:
        """How many subscriptions to a topic there are here, begun or not."""
        tree = self.scribe.trees.get(topic)
        return 0 if tree is None else len(tree.edges) + len(tree.unstarted)

    def drained(self, subscription: Subscription) -> None:
        """The application's queue has room again."""
        tree = self.scribe.trees.get(subscription.topic)
        if tree is not None and subscription in tree.flow.channels:
            log, first = tree.flow.log, subscription.cursor
            subscription.advance(log)
            self.scribe.reports.moved(tree, log.bytes_between(first, subscription.cursor))

    def start_waiting(self, tree: Tree) -> None:
        """This peer has a parent or is root: the subscriptions that waited for that begin."""
        unstarted, tree.unstarted = tree.unstarted, NOTHING
        for number in unstarted:
            self._start(tree, self.subscriptions[number])

    def _start(self, tree: Tree, edge: Subscription) -> None:
        """A subscription begins at this peer's frontier, in every reign it knows: what is admitted after will come."""
        flow = tree.flow
        rule = denied(tree.descriptor, self.host.me, edge.wish.warrant)
        if rule is not None:
            del self.subscriptions[edge.number]
            edge.subscriber.failed(AccessDenied(rule))
            return
        first = flow.earliest if edge.wish.start == "earliest" else flow.frontier
        _set_order(tree, edge)
        edge.begin(flow.term, first)
        for term, past in flow.past.items():
            edge.owe(term, past.end)
        edge.cursor = flow.log.first_over(first)
        flow.open(edge)
        owed = "reliable" if edge.ordered else "best_effort"
        self.host.trace(Subscribed(tree.topic, flow.term, first, edge.number, owed))
        edge.subscriber.started(shared(Position(flow.term, first)))
        edge.advance(flow.log)
        self.scribe.reports.touch(tree)

    def adapt(self, tree: Tree) -> None:
        """The topic's guarantee may be another than these subscriptions went by."""
        for number in tree.edges:
            _set_order(tree, self.subscriptions[number])

    def wishes(self, tree: Tree) -> tuple[bool, Warrant | None]:
        """What subscriptions here ask of a parent: does one start at earliest, and on whose behalf are they?"""
        earliest = any(self.subscriptions[key].wish.start == "earliest" for key in tree.unstarted)
        keys = [*tree.edges, *tree.unstarted]
        warrants = (self.subscriptions[key].wish.warrant for key in keys)
        return earliest, next((warrant for warrant in warrants if warrant is not None), None)

    def fail(self, tree: Tree, error: QuillcastError) -> None:
        """No subscription to the topic can stand."""
        for number, edge in {**tree.unstarted, **tree.edges}.items():
            self.subscriptions.pop(number, None)
            tree.flow.close(edge)
            edge.subscriber.failed(error)
        tree.unstarted = NOTHING


def denied(descriptor: Descriptor, node: bytes, warrant: Warrant | None) -> str | None:
    """The rule by which a peer may not subscribe; None: it may. Signatures are looked at where there is a list."""
    if not is_restricted(descriptor.access, "subscribe"):
        return None
    return descriptor.refusal("subscribe", bearer(warrant, node, descriptor.topic))


def _set_order(tree: Tree, subscription: Subscription) -> None:
    """Is it owed every event, so that a gap holds it up? And may an event come again under another reign?"""
    subscription.readmits = tree.descriptor.settings.reliable
    subscription.ordered = subscription.readmits and subscription.wish.delivery != "best_effort"
