"""A peer's subscriptions: where each begins in a topic, and how it ends (Scribe, section 3.1: `subscribe`)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quillcast.core.envelope import Position
from quillcast.core.errors import QuillcastError
from quillcast.core.interning import EMPTY, interned
from quillcast.core.trace import Subscribed, Unsubscribed
from quillcast.protocol.forwarding.edge import Subscriber, TellLosses
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.security.access import AccessDenied, Warrant, bearer, is_restricted
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.subscription import Subscription, Wish
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Subscribing:
    """All subscriptions of one peer."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host = scribe, scribe.host
        self.numbers = 0
        scribe.dispatch.on_timer(TellLosses, self.tell_losses)

    def all(self) -> Iterator[Subscription]:
        """Every one, begun or not."""
        for tree in self.scribe.trees.values():
            yield from tree.edges.values()
            yield from tree.unstarted.values()

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

        Who asks for the earliest events is told of those that are not kept any more, as losses.

        `warrant` says on whose behalf; whoever the topic does not let subscribe is told so by `Subscriber.failed`.
        A subscriber that asks for less than a reliable topic gives (`delivery` best_effort) is not held back by gaps.
        """
        descriptor = self.scribe.describe(name)
        tree = self.scribe.tree(descriptor)
        self.numbers += 1
        wish = Wish(start, delivery, warrant)
        subscription = Subscription(self.host, tree.topic, subscriber, tree.log.end, self.numbers, wish)
        if tree.attached:
            self._start(tree, subscription)
        else:
            tree.begin_later(subscription)
            self.scribe.membership.join(tree)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. A peer that has no more use for the topic leaves the tree once its parent is known."""
        tree = self.scribe.trees.get(subscription.topic)
        if tree is None:
            return
        if tree.unstarted.pop(subscription.number, None) is None:
            if subscription not in tree.channels:
                return  # it has ended before
            tree.close(subscription)
            self.host.trace(Unsubscribed(tree.topic, subscription.number))
        self.scribe.reporting.touch(tree)
        self.scribe.membership.leave_if_idle(tree)

    def count(self, topic: bytes) -> int:
        """How many subscriptions to a topic there are here, begun or not."""
        tree = self.scribe.trees.get(topic)
        return 0 if tree is None else len(tree.edges) + len(tree.unstarted)

    def drained(self, subscription: Subscription) -> None:
        """The application's queue has room again."""
        tree = self.scribe.trees.get(subscription.topic)
        if tree is not None and subscription in tree.channels:
            log, first = tree.log, subscription.cursor
            subscription.advance(log)
            tree.catch_up(subscription, subscription.frontier(tree.term), self.host.now())
            self.scribe.reporting.moved(tree, log.bytes_between(first, subscription.cursor))

    def tell_losses(self, timer: TellLosses) -> None:
        """The turn in which a subscription lost something is over."""
        tree = self.scribe.trees.get(timer.topic)
        edge = tree.edges.get(timer.number) if tree is not None else None
        if edge is not None:
            edge.tell_losses()

    def start_waiting(self, tree: Tree, gone: tuple[Gone, ...]) -> None:
        """This peer has a parent or is root: the subscriptions that waited for that begin.

        `gone` is what the parent said it keeps no more.
        """
        unstarted, tree.unstarted = tree.unstarted, EMPTY
        for subscription in unstarted.values():
            self._start(tree, subscription, gone)

    def _start(self, tree: Tree, edge: Subscription, gone: tuple[Gone, ...] = ()) -> None:
        """A subscription begins at this peer's frontier, in every term it knows: what is admitted after will come.

        Or at the parent's, where this peer is behind it: it may have joined for a child that lacks more.
        """
        rule = denied(tree.descriptor, self.host.me, edge.wish.warrant)
        if rule is not None:
            edge.subscriber.failed(AccessDenied(rule))
            return
        frontier = max(tree.frontier, tree.parent_frontier)
        first = tree.earliest if edge.wish.start == "earliest" else frontier
        _set_order(tree, edge)
        edge.begin(tree.term, first)
        for term, past in tree.past.items():
            edge.owe(term, past.end, past.stable)
        edge.cursor = tree.log.first_over(first)
        tree.open(edge)
        owed = "reliable" if edge.ordered else "best_effort"
        self.host.trace(Subscribed(tree.topic, tree.term, first, edge.number, owed))
        edge.subscriber.started(interned(Position(tree.term, first)))
        if edge.wish.start == "earliest":
            edge.miss(gone or tree.gone(first))
        edge.advance(tree.log)
        self.scribe.reporting.touch(tree)

    def adapt(self, tree: Tree) -> None:
        """The topic's guarantee may be another than these subscriptions went by."""
        for subscription in tree.edges.values():
            _set_order(tree, subscription)

    def wishes(self, tree: Tree) -> tuple[bool, Warrant | None]:
        """What subscriptions here ask of a parent: does one start at earliest, and on whose behalf are they?"""
        earliest = any(subscription.wish.start == "earliest" for subscription in tree.unstarted.values())
        warrants = (each.wish.warrant for each in (*tree.edges.values(), *tree.unstarted.values()))
        return earliest, next((warrant for warrant in warrants if warrant is not None), None)

    def fail(self, tree: Tree, error: QuillcastError) -> None:
        """No subscription to the topic can stand."""
        for edge in (*tree.unstarted.values(), *tree.edges.values()):
            tree.close(edge)
            edge.subscriber.failed(error)
        tree.unstarted = EMPTY


def denied(descriptor: Descriptor, node: bytes, warrant: Warrant | None) -> str | None:
    """The rule by which a peer may not subscribe; None: it may. Signatures are looked at where there is a list."""
    if not is_restricted(descriptor.access, "subscribe"):
        return None
    return descriptor.refusal("subscribe", bearer(warrant, node, descriptor.topic))


def _set_order(tree: Tree, subscription: Subscription) -> None:
    """Is it owed every event, so that a gap holds it up? And may an event come again under another term?"""
    subscription.readmits = tree.descriptor.settings.reliable
    subscription.ordered = subscription.readmits and subscription.wish.delivery != "best_effort"
