"""Publishing and subscribing: the part of `Node` that is the same wherever its peer runs."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, overload

from quillcast.core.errors import LocalError
from quillcast.core.loss import Loss
from quillcast.live import arguments
from quillcast.live.admission.credentials import Credentials
from quillcast.live.config import LiveConfig
from quillcast.live.edges import choices
from quillcast.live.edges.batcher import AckLevel
from quillcast.live.edges.publisher import TIMEOUT_S, Publisher
from quillcast.live.edges.publishers import Backend, Publishers
from quillcast.live.edges.subscription import (
    DecodeCache,
    Event,
    Handler,
    Inbox,
    MakeItems,
    Subscription,
    events,
    payloads,
)
from quillcast.protocol.topics.descriptor import CHOICES, Descriptor, Settings

STARTS = ("now", "earliest")
Sign = Callable[[Descriptor], Descriptor]


class Endpoint:
    """Publishes and subscribes through a peer: that of a `Node`, or one that serves a `Client`."""

    def __init__(self, live: LiveConfig) -> None:
        self.live = live
        self._decode_cache = DecodeCache(live.join_timeout_s)
        self._publishing = Publishers(lambda: self._backend, live.publish_bytes)
        self._publishers: dict[str, Publisher] = {}  # those of `publish`
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def create(
        self,
        name: str,
        *,
        credentials: Credentials | None = None,
        publishers: Sequence[str] = (),
        subscribers: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
        **settings: Any,
    ) -> Descriptor:
        """Create a topic. If it exists with the same settings, nothing happens.

        Args:
            name: a path such as `sport/tennis`. With a nodeId before it (`NODEID:sport/tennis`), the topic's root is
                the peer with this nodeId while it lives.
            credentials: those of the topic's owner; without them nobody owns it, and anybody may change it.
            publishers: principals (`Credentials.principal`) that may publish besides the owner; if empty, everybody
                may.
            subscribers: principals that may subscribe besides the owner; if empty, everybody may.
            timeout_s: seconds to wait for the topic's root.
            settings: `delivery` ("reliable", "best_effort"), `order` ("publisher", "none"), `slow` ("cut", "wait"),
                `event_bytes_max`, `partition` ("go_on", "wait"), `admission` ("root", "source"), `root_scope` (the name
                of a scope whose file says `root = true` for the topic; that file applies without this setting, too).

        Raises `LocalError` for an unknown setting, `TopicExists` if the topic exists with other settings, `NotJoined`.
        """
        choices.check_topic(name)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        chosen, own = choices.topic_settings(settings), choices.ownership(credentials, publishers, subscribers)
        return await self._create(name, chosen, timeout_s, own)

    async def change(
        self,
        name: str,
        *,
        credentials: Credentials | None = None,
        publishers: Sequence[str] | None = None,
        subscribers: Sequence[str] | None = None,
        timeout_s: float = TIMEOUT_S,
        **settings: Any,
    ) -> Descriptor:
        """Change the settings of an existing topic while it is in use. Other settings stay as they are.

        Args:
            name: the topic's name.
            credentials: those of the topic's owner, if it has one.
            publishers: the principals that may publish from now on besides the owner, instead of those that could; if
                empty, everybody may. Others that publish fail with `AccessDenied`.
            subscribers: the principals that may subscribe from now on besides the owner, likewise. Subscriptions of
                others end with `AccessDenied`.
            timeout_s: seconds to wait for the topic's root.
            settings: as for `create`. `delivery`, `order`, `partition`, `admission` and the lists begin a new session
                of the topic: publishers wait until subscribers have what was published before. `root_scope` cannot be
                changed, nor can `admission` together with `delivery` or `order`.

        Returns the new descriptor. Raises `UnknownTopic`, `LocalError` for a setting that is unknown or cannot be
        changed, `TopicExists` if somebody else changed it at the same time, `NotJoined`.
        """
        choices.check_topic(name)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        chosen, sign = (
            choices.topic_settings(settings),
            None if credentials is None else choices.checked_credentials(credentials).own,
        )
        wanted = {each: getattr(chosen, each) for each in settings} | choices.lists(publishers, subscribers)
        return await self._change(name, wanted, timeout_s, sign)

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        attributes: Mapping[str, Any] | None = None,
        credentials: Credentials | None = None,
        wait: AckLevel | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Coroutine[Any, Any, None]:
        """Publish an event: `await node.publish(topic, payload)`; see `Publisher.publish`.

        `credentials` are needed if the topic has an access list.
        """
        who = choices.publisher_key(credentials, topic)
        try:
            publisher = self._publishers.get(who)
        except TypeError:  # a name that an earlier event had is not checked
            choices.check_topic(topic)
            raise
        if publisher is None or publisher.failure is not None:
            if publisher is not None:
                publisher.close()
            publisher = self._publishers[who] = self._make_publisher(topic, credentials)
        return publisher.publish(payload, key=key, attributes=attributes, wait=wait, timeout_s=timeout_s)

    def publisher(self, topic: str, *, timed: bool = False, credentials: Credentials | None = None) -> Publisher:
        """A publisher for one topic, with its own sequence numbers and less work per event.

        With `timed` every event has its own time; otherwise the events of a batch share one. `credentials` are needed
        if the topic has an access list.
        """
        return self._make_publisher(topic, credentials, timed=timed)

    @overload
    def subscribe(
        self,
        topic: str,
        *,
        handler: Handler[Event] | None = None,
        only_payloads: Literal[False] = False,
        start: str = "now",
        delivery: str | None = None,
        on_lost: Callable[[Loss], object] | None = None,
        credentials: Credentials | None = None,
        name: str = "",
    ) -> Subscription[Event]: ...

    @overload
    def subscribe(
        self,
        topic: str,
        *,
        handler: Handler[bytes] | None = None,
        only_payloads: Literal[True],
        start: str = "now",
        delivery: str | None = None,
        on_lost: Callable[[Loss], object] | None = None,
        credentials: Credentials | None = None,
        name: str = "",
    ) -> Subscription[bytes]: ...

    def subscribe(
        self,
        topic: str,
        *,
        handler: Handler[Any] | None = None,
        only_payloads: bool = False,
        start: str = "now",
        delivery: str | None = None,
        on_lost: Callable[[Loss], object] | None = None,
        credentials: Credentials | None = None,
        name: str = "",
    ) -> Subscription[Any]:
        """Subscribe to a topic: `async for event in node.subscribe(topic)`, or with a handler.

        Args:
            topic: the topic's name.
            handler: called with each event in turn; may be a coroutine function. Then the subscription cannot be
                iterated over as well.
            only_payloads: yield payloads (`bytes`) instead of events, at less than half the cost.
            start: "now", or "earliest": as far back as the tree's buffers reach. Earlier events that are no longer kept
                are reported as lost (`Loss.why` is "start") when the subscription has started.
            delivery: "best_effort" to not wait for gaps in a reliable topic.
            on_lost: called with every `Loss`.
            credentials: needed if the topic has an access list.
            name: name of the subscription in `status`, `top` and `check topic`.

        Raises `LocalError` for an invalid topic name. Other errors are raised when the subscription is awaited.
        """
        if start not in STARTS:
            raise LocalError(f"start = {start!r} is not valid; use one of: {', '.join(STARTS)}")
        if delivery not in (None, *CHOICES["delivery"]):
            raise LocalError(f"delivery = {delivery!r} is not valid; use one of: {', '.join(CHOICES['delivery'])}")
        choices.check_topic(topic)
        if handler is not None and not callable(handler):
            raise LocalError(f"a handler is a function of an event, not {type(handler).__name__}")
        arguments.function("on_lost", on_lost)
        self._check_open()
        inbox = self._make_inbox(arguments.label(name))
        inbox.tell_losses(on_lost)
        make: MakeItems[Any] = payloads if only_payloads else events
        subscription = Subscription(topic, make, inbox, self._decode_cache, credentials)
        subscription.open(start=start, delivery=delivery, warrant=self._backend.warrant(topic, credentials))
        if handler is not None:
            subscription.serve(handler, self._run)
        return subscription

    # --- what the two kinds do in their own ways

    @property
    def _backend(self) -> Backend:
        """The current peer."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Raise `LocalError` unless the endpoint can be used now."""
        raise NotImplementedError

    async def _create(self, name: str, settings: Settings, timeout_s: float, own: Sign | None) -> Descriptor:
        raise NotImplementedError

    async def _change(self, name: str, wanted: Mapping[str, Any], timeout_s: float, sign: Sign | None) -> Descriptor:
        raise NotImplementedError

    def _make_inbox(self, name: str) -> Inbox:
        return Inbox(self.live.subscription_bytes, name)

    # --- within

    def _make_publisher(self, topic: str, credentials: Credentials | None, *, timed: bool = False) -> Publisher:
        choices.check_topic(topic)
        self._check_open()
        return self._publishing.make(topic, credentials, timed=timed)

    async def _cancel_tasks(self) -> None:
        """Cancel all handlers, except one that is closing this endpoint."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._backend.pump.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
