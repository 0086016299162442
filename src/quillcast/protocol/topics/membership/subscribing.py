"""A peer's subscriptions: where each begins in a topic, and how it ends (Scribe, section 3.1: `subscribe`)."""

from collections.abc import Iterator

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Position
from quillcast.core.errors import QuillcastError
from quillcast.core.host import Host, Timer
from quillcast.core.interning import interned
from quillcast.core.trace import StreamOwed, Subscribed, Unsubscribed
from quillcast.protocol.forwarding.event_places import given_up, gone_before, gone_there, runs_at
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.forwarding.loss_reports import TellLosses
from quillcast.protocol.forwarding.subscriber import Subscriber
from quillcast.protocol.security.access import AccessDenied, Warrant, bearer, is_restricted, key_of
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.memory.retention import catch_up
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import FindParent, LeaveIfIdle
from quillcast.protocol.topics.state.owing import owe
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.trees import Trees


class ListChanged(Timer, frozen=True):
    """Check the place in the tree against the topic's list. `revoked`: the right that the parent knows is gone."""

    topic: bytes
    revoked: bool


class Subscribing:
    """All subscriptions of one peer."""

    __slots__ = (
        "dispatch", "host", "known", "numbers", "progress", "schedule", "source_streams", "trees", "unpermitted",
    )  # fmt: skip

    def __init__(
        self, host: Host, known: KnownTopics, trees: Trees, schedule: Schedule, source_streams: SourceStreams,
        progress: Progress, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.known, self.trees, self.schedule, self.progress = host, known, trees, schedule, progress
        self.source_streams, self.dispatch = source_streams, dispatch
        self.numbers = 0
        self.unpermitted: dict[int, tuple[Descriptor, Subscription]] = {}  # they wait until a scope permits them
        dispatch.on_timer(TellLosses, self.tell_losses)

    def all(self) -> Iterator[Subscription]:
        """Yield all subscriptions, begun or not."""
        for tree in self.trees.by_topic.values():
            yield from tree.subscriptions
            yield from tree.unstarted.values()
        yield from (subscription for _, subscription in self.unpermitted.values())

    def subscribe(
        self,
        name: str,
        subscriber: Subscriber,
        *,
        start: str = "now",
        delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> Subscription:
        """Subscribe to a topic. `start` is now or earliest (as far back as this peer's or its parent's buffer reaches).

        A subscriber that asks for the earliest events gets a loss report on those that are no longer kept.

        `warrant` says on whose behalf. If the topic does not let it subscribe, `Subscriber.failed` is called. A
        subscriber that asks for less than a reliable topic gives (`delivery` best_effort) is not held back by gaps.
        """
        descriptor = self.known.describe(name)
        self.numbers += 1
        subscription = Subscription(
            self.host, descriptor.topic, subscriber, self.numbers, Wish(start, delivery, warrant)
        )  # fmt: skip
        if self.known.permissions.why_not(descriptor, "subscribes"):
            self.unpermitted[subscription.number] = descriptor, subscription
        else:
            self._enter(descriptor, subscription)
        return subscription

    def bounds_changed(self) -> None:
        """Scopes limit other topics than before: begun subscriptions continue, the others wait for permission."""
        permissions = self.known.permissions
        for tree in list(self.trees.by_topic.values()):
            if tree.subscriptions:
                permissions.begin(tree.topic, "subscribes")
            for number, subscription in list(tree.unstarted.items()):
                if permissions.why_not(tree.descriptor, "subscribes"):
                    tree.take_unstarted(number)
                    self.unpermitted[number] = tree.descriptor, subscription
                    self.dispatch.order(LeaveIfIdle(tree.topic))

    def permitted(self) -> None:
        """Begin subscriptions that a scope now permits."""
        for number, (descriptor, subscription) in list(self.unpermitted.items()):
            if not self.known.permissions.why_not(descriptor, "subscribes"):
                del self.unpermitted[number]
                self._enter(self.known.descriptors.get(subscription.topic, descriptor), subscription)

    def refuse(self, topic: bytes, why: str) -> None:
        """A scope does not let this peer subscribe: end its subscriptions to the topic, begun or not."""
        error, tree = AccessDenied(why), self.trees.by_topic.get(topic)
        for number, (_, subscription) in list(self.unpermitted.items()):
            if subscription.topic == topic:
                del self.unpermitted[number]
                subscription.subscriber.failed(error)
        if tree is not None and (tree.subscriptions or tree.unstarted):
            self._end(tree, list(tree.subscriptions), error)
            self.fail(tree, error)
            self.schedule.touch(tree)
            self.dispatch.order(LeaveIfIdle(tree.topic))

    def _enter(self, descriptor: Descriptor, subscription: Subscription) -> None:
        tree = self.trees.open(descriptor)
        if tree.barred and denied(tree.descriptor, self.host.me, subscription.wish.warrant) is None:
            tree.begin_later(subscription)
            self.host.set_timer(ListChanged(tree.topic, revoked=True), 0.0)
        elif tree.begins and (tree.root is not None or subscription.wish.start != "earliest"):
            self._start(tree, subscription)
        else:
            tree.begin_later(subscription)
            self.dispatch.order(FindParent(tree.topic))

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. A peer that no longer needs the topic leaves the tree once its parent is known."""
        self.unpermitted.pop(subscription.number, None)
        tree = self.trees.by_topic.get(subscription.topic)
        if tree is None:
            return
        if not tree.take_unstarted(subscription.number):
            if subscription not in tree.subscriptions:
                return  # it has already ended
            tree.stop(subscription)
            self.host.trace(Unsubscribed(tree.topic, subscription.number))
        self.schedule.touch(tree)
        self.dispatch.order(LeaveIfIdle(tree.topic))

    def count(self, topic: bytes) -> int:
        """Return the number of subscriptions to a topic here, begun or not."""
        tree = self.trees.by_topic.get(topic)
        waiting = sum(subscription.topic == topic for _, subscription in self.unpermitted.values())
        return waiting + (0 if tree is None else len(tree.subscriptions) + len(tree.unstarted))

    def bounds(self) -> dict[bytes, str]:
        """Return by topic the bound for which subscriptions wait here, in a sentence."""
        waiting = {subscription.topic: descriptor for descriptor, subscription in self.unpermitted.values()}
        return {topic: self.known.permissions.why_not(each, "subscribes") for topic, each in waiting.items()}

    def topics(self) -> dict[bytes, Descriptor]:
        """Return the topics of all subscriptions."""
        waiting = {subscription.topic: descriptor for descriptor, subscription in self.unpermitted.values()}
        trees = self.trees.by_topic.values()
        return waiting | {tree.topic: tree.descriptor for tree in trees if tree.subscriptions or tree.unstarted}

    def drained(self, subscription: Subscription) -> None:
        """The application's queue has room again: continue."""
        tree = self.trees.by_topic.get(subscription.topic)
        channel, first = subscription.channel, subscription.channel.cursor
        if tree is not None and tree.flow.serve(channel):
            catch_up(tree, subscription, self.host.now())
            self.source_streams.news.touch(tree)
            self.progress.moved(tree, tree.flow.log.bytes_between(first, channel.cursor))

    def tell_losses(self, timer: TellLosses) -> None:
        """Report losses that a subscription had a moment ago."""
        tree = self.trees.by_topic.get(timer.topic)
        for subscription in tree.subscriptions if tree is not None else ():
            if subscription.number == timer.number:
                subscription.tell_losses()

    def start_waiting(self, tree: Tree, gone: tuple[Gone, ...] | None) -> None:
        """This peer has a parent or is root: begin the subscriptions that waited for that.

        `gone` is what the parent said it no longer keeps; None: it was not asked for the earliest events. Subscriptions
        that want these then continue to wait.
        """
        starts = [each for each in tree.unstarted.values() if gone is not None or not tree.waits_for_earliest(each)]
        for subscription in starts:
            tree.take_unstarted(subscription.number)
        for subscription in starts:
            self._start(tree, subscription, gone or ())

    def _start(self, tree: Tree, edge: Subscription, gone: tuple[Gone, ...] = ()) -> None:
        """Begin a subscription after all that arrived here, in every known term: events admitted later will arrive.

        Or after what existed earlier (`Tree.newest`): this peer may have joined for a child that is further behind.
        """
        rule = denied(tree.descriptor, self.host.me, edge.wish.warrant)
        if rule is not None:
            edge.subscriber.failed(AccessDenied(rule))
            return
        first = tree.flow.earliest if edge.wish.start == "earliest" else tree.newest
        edge.adapt(tree.descriptor)
        edge.begin(tree.term, first, owed=tree.flow.keeps)
        for past in tree.flow.past.values():
            owe(tree, edge, past)
        starts = self.source_streams.begin_at(tree, earliest=edge.wish.start == "earliest")
        for term, start in starts:
            edge.begin(term, start)
        edge.channel.begin_at(tree.flow.first_over(first))
        tree.start(edge)
        edge.begin_now()
        owed = "reliable" if edge.ordered else "best_effort"
        self.host.trace(Subscribed(tree.topic, tree.term, first, edge.number, owed))
        for term, start in starts:
            self.host.trace(StreamOwed(tree.topic, term, start, edge.number))
        edge.subscriber.started(interned(Position(tree.term, first)))
        if edge.wish.start == "earliest":
            edge.miss(gone_there(tree.flow, gone, first) or gone_before(tree.flow, first))
        for term, start in ((tree.term, first), *starts):
            if lost := given_up(tree.flow, term, start):
                edge.skip(term, lost, "unavailable", runs_at(tree.flow, term, lost))
        tree.flow.serve(edge.channel)
        self.schedule.touch(tree)

    def revoke(self, tree: Tree) -> bool:
        """End subscriptions that a new list does not allow. Return whether there were any."""
        ended = [
            (edge, rule) for edge in tree.subscriptions
            if (rule := denied(tree.descriptor, self.host.me, edge.wish.warrant)) is not None
        ]  # fmt: skip
        for edge, rule in ended:
            self._end(tree, [edge], AccessDenied(rule))
        return bool(ended)

    def _end(self, tree: Tree, edges: list[Subscription], error: QuillcastError) -> None:
        """End subscriptions that have begun."""
        for edge in edges:
            tree.stop(edge)
            self.host.trace(Unsubscribed(tree.topic, edge.number))
            edge.subscriber.failed(error)

    def fail(self, tree: Tree, error: QuillcastError, key: bytes | None = None) -> None:
        """End all subscriptions to the topic, or those on behalf of a credential, with this error."""
        for edge in subscribed(tree):
            if key is None or key_of(edge.wish.warrant) == key:
                tree.take_unstarted(edge.number)
                tree.stop(edge)
                edge.subscriber.failed(error)


def denied(descriptor: Descriptor, node: bytes, warrant: Warrant | None) -> str | None:
    """Return the rule by which a peer may not subscribe; None: it may. Signatures are checked if there is a list."""
    if not is_restricted(descriptor.access, "subscribe"):
        return None
    return descriptor.refusal("subscribe", bearer(warrant, node, descriptor.topic))


def subscribed(tree: Tree) -> tuple[Subscription, ...]:
    """Return the subscriptions here, begun or not."""
    return (*tree.subscriptions, *tree.unstarted.values())


def shown_warrant(tree: Tree, me: bytes) -> Warrant | None:
    """Return the warrant with which this peer asks a parent for the topic: one that the list allows, if known."""
    warrants = [each.wish.warrant for each in subscribed(tree) if each.wish.warrant is not None]
    allowed = (warrant for warrant in warrants if denied(tree.descriptor, me, warrant) is None)
    return next(allowed, warrants[0]) if warrants else None
