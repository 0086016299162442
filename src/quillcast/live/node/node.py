"""The public node: one peer, its application's publishers and subscriptions, and its place among the others."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from quillcast.core.errors import Leaving, LocalError, NotJoined
from quillcast.core.loss import Loss
from quillcast.core.messages import Contact
from quillcast.core.status import NodeStatus, TopicStatus, Traffic, TreeStatus
from quillcast.live import arguments
from quillcast.live.admission.adoption import QUESTION, STEP_S
from quillcast.live.admission.credentials import Credentials
from quillcast.live.admission.joinline import DEFAULT_NETWORK, JoinLine
from quillcast.live.admission.membership import MembershipResolver
from quillcast.live.config import LiveConfig
from quillcast.live.discovery.control import Answerer
from quillcast.live.edges.batcher import Wait
from quillcast.live.edges.publisher import TIMEOUT_S, Publisher
from quillcast.live.edges.subscription import DecodeCache, Event, Handler, Inbox, Make, Subscription, events, payloads
from quillcast.live.node import choices
from quillcast.live.node.choices import publisher_key
from quillcast.live.node.inspection import Inspector
from quillcast.live.node.migration import Migration
from quillcast.live.node.presence import Presence, Presences, Setting
from quillcast.live.node.publishers import Publishers
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.node.startup import Startup, is_remote
from quillcast.live.runtime import runner
from quillcast.live.runtime.pump import Pump
from quillcast.live.scopes.serving import served
from quillcast.live.transport import addresses
from quillcast.live.transport.hello import Identity
from quillcast.live.transport.links import Links
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import CHOICES, Descriptor

STARTS = ("now", "earliest")


class Node:
    """A peer of a network: publishes, subscribes, and forwards for others. Use it as `async with Node() as node`.

    Args:
        network: name of the network; peers of different networks never link.
        listen: `host:port`; port 0 takes any free port. Beyond loopback this needs a network credential. By default the
            node listens where the peers that it knows can reach it.
        contacts: addresses of peers to join through, or one; without any, the node finds peers of this machine and
            network; if there are none, it is the first.
        data: folder that keeps identity, neighbours and topics across restarts; without one the identity is temporary.
        journal: folder for the node's journal, as Arrow files (docs/journal.md).
        config: the protocols' settings.
        live: limits of links and queues.
        identity: the key that determines the node's id; by default that of the data folder, or a new one. In a network
            with a credential, the credential gives identities.
        join: a join line that a member printed. The data folder, or without one the user's configuration folder,
            remembers the admission; later starts need no line.
        credential: file with the network's credential (`network.pem`), if it is in neither of these folders.
        make_credential: create the network's credential if there is none yet and `listen` is beyond loopback.
        on_problem: called with a line for each problem on a link, in a turn of the event loop of its own; `status` has
            the latest ones.
        advertise: `host` or `host:port` that others are told, if it is not where the node listens: behind a router that
            forwards a port, or in a container.
        runtime_dir: folder in which peers of this machine find each other; by default that of `QUILLCAST_RUNTIME_DIR`,
            or the user's own (docs/live.md).
        scope: `NAME@HOST:PORT`, a scope to be a member of and where the peer listens that runs its manager.
        wait_for_network: seconds to wait for a reachable peer of the network, `math.inf` for ever; such a node is never
            the first of a network. By default the node does not wait.

    A node without a credential becomes a member of its network when the user's other peers on this machine are members:
    subscriptions and publishers continue, and `contact` changes. If it cannot, they fail with `LocalError`.

    Entering raises `LocalError` for a bad argument, a port in use or a data folder of a running peer, `Unreachable` if
    no contact is a peer of this network, `NotJoined` if the network does not accept the node in time.
    """

    def __init__(
        self,
        network: str = DEFAULT_NETWORK,
        listen: str | None = None,
        contacts: Sequence[str] | str = (),
        data: Path | str | None = None,
        journal: Path | str | None = None,
        config: Config | None = None,
        live: LiveConfig | None = None,
        identity: Identity | None = None,
        join: JoinLine | str | None = None,
        credential: Path | str | None = None,
        make_credential: bool = False,
        on_problem: Callable[[str], object] | None = None,
        advertise: str | None = None,
        runtime_dir: Path | str | None = None,
        wait_for_network: float | None = None,
        scope: str | None = None,
    ) -> None:
        joined = choices.parsed_join_line(join)
        self.network = choices.network_name(network, joined)
        self.config = arguments.instance("config", config, Config, "a Config") or Config()
        self.live = arguments.instance("live", live, LiveConfig, "a LiveConfig") or LiveConfig()
        arguments.function("on_problem", on_problem)
        arguments.instance("listen", listen, str, "host:port as text, such as '127.0.0.1:0'")
        arguments.instance("advertise", advertise, str, "host or host:port as text")
        arguments.instance("identity", identity, Identity, "an Identity")
        given, rendezvous_folder = choices.contact_addresses(contacts), arguments.path("runtime_dir", runtime_dir)
        patience_s = choices.patience_s(wait_for_network)
        arguments.instance("scope", scope, str, "NAME@HOST:PORT as text")
        member_of = None if scope is None else ScopeAddress.parse(scope)
        place = None if listen is None else addresses.parse(listen)
        if advertise is not None and listen is None:
            raise LocalError(f"to advertise {advertise} a node has to listen somewhere: listen=, or --listen")
        self._setting = Setting(
            self.network, self.config, self.live,
            advertised=None if advertise is None else addresses.advertised(advertise),
            identity=identity,
            data=arguments.path("data", data),
            journal=arguments.path("journal", journal),
            on_problem=on_problem,
            scope=member_of,
        )  # fmt: skip
        self._decode_cache = DecodeCache(self.live.join_timeout_s)
        self._presences = Presences(self._decode_cache)
        resolver = MembershipResolver(
            self.network,
            self._setting.data,
            credential=arguments.path("credential", credential),
            join=joined,
            make=make_credential and is_remote(place, self._setting.advertised),
            wall_ns=time.time_ns,
        )
        self._startup = Startup(
            self._presences,
            self._setting,
            resolver,
            listen=place,
            given=given if member_of is None else [*given, member_of.address],
            runtime_dir=rendezvous_folder,
            patience_s=patience_s,
            answerers=self._answerers,
        )
        self._publishing = Publishers(self._presences, self.live.publish_bytes)
        self._migration = Migration(self._presences, self._setting, self._startup, self._publishing, self._run)
        self._publishers: dict[str, Publisher] = {}  # those of `publish`
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._started = self._stopped = False
        self._leave_within_s: float | None = None

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Node":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.leave()

    async def start(self) -> None:
        """Listen, find the network and become part of it; `async with` does this."""
        if self._started:
            raise LocalError("a node starts once; create another one")
        self._started = True
        try:
            contacts = await self._startup.arrive()
            await self._presence.take_part(contacts, self._setting.scope)
            await self._presence.joined(self.live.join_timeout_s)
            await self._migration.bring_others_over()
        except BaseException:
            self._stopped = True
            self._startup.opened.set()
            try:
                self._startup.resolver.give_back()
            finally:
                await self._startup.close()
            raise
        self._migration.settle_in()
        runner.settle()

    async def leave(self, timeout_s: float | None = None) -> None:
        """Leave in good order: wait until events are safe, at most `LiveConfig.leave_timeout_s`.

        Args:
            timeout_s: leave within this many seconds, links included; what is not safe by then may be lost.
        """
        if self._stopped or not self._startup.opened.is_set():
            return
        self._leave_within_s = timeout_s
        self._stopped, batchers = True, list(self._publishing.batchers.values())
        self._migration.stop()
        try:
            self._publishing.close()
            for inbox in self._peer.subscribers():
                if isinstance(inbox, Inbox):
                    inbox.close()  # `async for` ends after what came
            await self._leave_networks()
            self._publishing.end_moved()
            for batcher in batchers:
                batcher.end()
            await self._cancel_tasks()
        finally:
            await self._startup.close()

    async def manage_scope(self, file: Path | str) -> str:
        """Run the manager of the scope that a file describes (docs/scope-files.md) in this node: the scope's name.

        It keeps its state in the data folder, and comes back as the same manager. Members enter with
        `Node(scope="NAME@HOST:PORT")`.

        Raises `LocalError` for what is wrong in the file, with its line, and without a data folder.
        """
        self._check_open()
        path = arguments.path("file", file) or Path(file)
        scope = await asyncio.to_thread(served, path, self._presences.note)  # policies of others start processes
        self._presence.manage(scope)
        return scope.name

    @property
    def contact(self) -> Contact:
        """The node's id, and the address where it listens."""
        return self._presence.contact

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._presence.contact.address

    @property
    def looked_in(self) -> str:
        """Where the node looked for peers of this machine. Peers that use another folder are not found."""
        return self._startup.rendezvous.looked_in

    @property
    def notices(self) -> list[str]:
        """What a person should know about how the node joined; also in `problems` of `status`."""
        return list(self._presences.notices)

    # --- topics ---------------------------------------------------------------------------------------------------

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
            name: a path such as `sport/tennis`.
            credentials: those of the topic's owner; without them nobody owns it, and anybody may change it.
            publishers: principals (`Credentials.principal`) that may publish besides the owner; if empty, everybody
                may.
            subscribers: principals that may subscribe besides the owner; if empty, everybody may.
            timeout_s: seconds to wait for the topic's root.
            settings: `delivery` ("reliable", "best_effort"), `order` ("publisher", "none"), `slow` ("cut", "wait"),
                `event_bytes_max`, `partition` ("go_on", "wait"), `admission` ("root", "source").

        Raises `LocalError` for an unknown setting, `TopicExists` if the topic exists with other settings, `NotJoined`.
        """
        choices.check_topic(name)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        chosen, own = choices.topic_settings(settings), choices.ownership(credentials, publishers, subscribers)
        await self._ready(timeout_s)
        return await self._presence.settled(self._peer.create, name, chosen, timeout_s, own)

    def holders(self, name: str) -> int:
        """How many peers stored a topic's settings when this node created it; 0 if it did not create it.

        1 means only this node: the settings are lost when it leaves and nobody else uses the topic.
        """
        choices.check_topic(name)
        return self._peer.holders(name)

    async def change(
        self, name: str, *, credentials: Credentials | None = None, timeout_s: float = TIMEOUT_S, **settings: Any
    ) -> Descriptor:
        """Change the settings of an existing topic while it is in use. Other settings stay as they are.

        Args:
            name: the topic's name.
            credentials: those of the topic's owner, if it has one.
            timeout_s: seconds to wait for the topic's root.
            settings: as for `create`. `delivery`, `order` and `partition` begin a new session of the topic: publishers
                wait until subscribers have what was published before. `admission` cannot be changed, nor can
                `delivery` and `order` with `admission = "source"`.

        Returns the new descriptor. Raises `UnknownTopic`, `LocalError` for a setting that is unknown or cannot be
        changed, `TopicExists` if somebody else changed it at the same time, `NotJoined`.
        """
        choices.check_topic(name)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        chosen, sign = (
            choices.topic_settings(settings),
            None if credentials is None else choices.checked_credentials(credentials).own,
        )
        await self._ready(timeout_s)
        wanted = {each: getattr(chosen, each) for each in settings}
        return await self._presence.settled(self._peer.change, name, wanted, timeout_s, sign)

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        attributes: Mapping[str, Any] | None = None,
        credentials: Credentials | None = None,
        wait: Wait | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Coroutine[Any, Any, None]:
        """Publish an event: `await node.publish(topic, payload)`; see `Publisher.publish`.

        `credentials` are needed if the topic has an access list.
        """
        who = publisher_key(credentials, topic)
        try:
            publisher = self._publishers.get(who)
        except TypeError:  # no name is looked at that an earlier event had
            choices.check_topic(topic)
            raise
        if publisher is None or publisher.failure is not None:
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
            handler: called with each event in turn; may be a coroutine function.
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
        inbox = Inbox(self.live.subscription_bytes, arguments.label(name))
        inbox.on_lost = on_lost
        make: Make[Any] = payloads if only_payloads else events
        subscription = Subscription(topic, make, inbox, self._decode_cache, credentials)
        subscription.open(start=start, delivery=delivery, warrant=self._presence.warrant(topic, credentials))
        if handler is not None:
            subscription.serve(handler, self._run)
        return subscription

    # --- looking --------------------------------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        """The state of this peer; `msgspec.to_builtins` makes plain values of it."""
        self._check_open()
        return self._inspector.status()

    def traffic(self) -> Traffic:
        """How many links are open, and what they carried since the start: the counters of `status`."""
        self._check_open()
        return self._inspector.traffic()

    async def tree(self, topic: str, *, timeout_s: float = 2.0) -> TreeStatus:
        """The topic's live tree, walked from the root: parents, children, and how far each peer is.

        Returns what answered within `timeout_s`: `peers`, each with its subscriptions (`lags`) and how many events and
        seconds those are behind the root; `unresponsive` names peers that did not answer, `complete` says whether all
        did. A query creates no topic: an unknown one has no root, and `settings` is None.
        """
        choices.check_topic(topic)
        await self._ready(arguments.seconds("timeout_s", timeout_s))
        return await self._inspector.tree(topic, timeout_s)

    @property
    def admits(self) -> bool:
        """Whether this node holds the network's credential, and so admits others."""
        return self._presence.admits

    def invite(self) -> JoinLine:
        """A join line for another machine. It works once, within `LiveConfig.token_life_s`.

        Raises `LocalError` unless this node holds the network's credential.
        """
        self._check_open()
        return self._presence.invite()

    # --- drills ---------------------------------------------------------------------------------------------------

    def unplug(self) -> None:
        """Cut this node off, as if its cable were pulled, to watch how the others repair their trees.

        Its links break, and none can be established until `plug_in`; then the node finds the others again by itself.
        """
        self._check_open()
        self._links.unplug()

    def plug_in(self) -> None:
        """End what `unplug` began."""
        self._check_open()
        self._links.plug_in()

    def _answerers(self) -> dict[str, Answerer]:
        """What the control socket answers."""

        async def status() -> NodeStatus:
            return self.status()

        async def topics() -> tuple[TopicStatus, ...]:
            return self._inspector.topics()

        async def invite() -> str:
            return str(self.invite())

        async def take_credential(step: str, credential: str, pid: int) -> None:
            if not self._stopped:  # else it leaves anyway
                await self._ready(STEP_S)
                await self._migration.take(step, credential, pid)

        def open_only(answerer: Answerer) -> Answerer:
            async def answer(**arguments: Any) -> Any:
                try:
                    return await answerer(**arguments)
                except LocalError as problem:
                    if self._stopped:
                        raise Leaving(f"the peer at {self.address} is leaving its network") from problem
                    raise

            return answer

        asked: dict[str, Answerer] = {"status": status, "topics": topics, "tree": self.tree, "invite": invite}
        return {name: open_only(answerer) for name, answerer in asked.items()} | {QUESTION: take_credential}

    # --- within ---------------------------------------------------------------------------------------------------

    @property
    def _presence(self) -> Presence:
        return self._presences.current

    @property
    def _pump(self) -> Pump:
        return self._presence.pump

    @property
    def _links(self) -> Links:
        return self._presence.links

    @property
    def _peer(self) -> Peer:
        return self._presence.peer

    @property
    def _inspector(self) -> Inspector:
        return self._presence.inspector

    async def _ready(self, timeout_s: float) -> None:
        """Wait until the node is part of the network."""
        try:
            if not self._startup.opened.is_set():
                await asyncio.wait_for(self._startup.opened.wait(), timeout_s)
        except TimeoutError as problem:
            raise NotJoined(f"the node was not started within {timeout_s:g} s; use it inside `async with`") from problem
        self._check_open()
        await self._presence.joined(timeout_s)

    def _check_open(self) -> None:
        if self._stopped:
            raise LocalError("the node has left its network; create another one")
        if not self._startup.opened.is_set():
            raise LocalError("the node is not started; use it inside `async with Node(...) as node`")

    def _make_publisher(self, topic: str, credentials: Credentials | None, *, timed: bool = False) -> Publisher:
        choices.check_topic(topic)
        self._check_open()
        return self._publishing.make(topic, credentials, timed=timed)

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _leave_networks(self) -> None:
        presence, former = self._presences.current, self._presences.former
        presence.keep_contacts()
        if presence.memory is not None:
            await presence.memory.keep()
        present = [each for each in (presence, former) if each is not None]
        await asyncio.gather(*(each.leave(self._leave_within_s) for each in present))

    async def _cancel_tasks(self) -> None:
        """Handlers have until now to take what came; one that has the node leave goes on behind this."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._pump.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
