"""The public node: one peer, its application's publishers and subscriptions, and its place among the others."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

import msgspec

from quillcast.core.errors import LocalError, NotJoined, QuillcastError, RemoteError, Unreachable
from quillcast.core.loss import Loss
from quillcast.core.messages import Contact
from quillcast.live.admission.adoption import ASK_S, QUESTION, STEP_S, Adoption, bring_over, unheard
from quillcast.live.admission.credentials import Credentials
from quillcast.live.admission.joinline import DEFAULT_NETWORK, JoinLine
from quillcast.live.admission.membership import Membership, MembershipResolver
from quillcast.live.config import LiveConfig
from quillcast.live.discovery.control import Answerer
from quillcast.live.discovery.finding import OtherCredential
from quillcast.live.discovery.rendezvous import Rendezvous
from quillcast.live.edges.batcher import Batcher, Wait
from quillcast.live.edges.publisher import TIMEOUT_S, Publisher
from quillcast.live.edges.subscription import DecodeCache, Event, Handler, Inbox, Make, Subscription, events, payloads
from quillcast.live.node import arguments
from quillcast.live.node.inspection import Inspector
from quillcast.live.node.presence import Presence, Setting, listening
from quillcast.live.runtime import runner
from quillcast.live.runtime.pump import Pump
from quillcast.live.storage.store import Store
from quillcast.live.transport import addresses
from quillcast.live.transport.hello import Identity
from quillcast.live.transport.links import Links
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import ENTRIES_MAX, Warrant, entry
from quillcast.protocol.topics.descriptor import CHOICES, Descriptor, Settings, described

STARTS = ("now", "earliest")
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.1, 2.0  # between looks for a network that is waited for; a guess
_WATCH_S = 2.0  # between looks for members that other users run; a guess
_DRAIN_S = 0.05  # a guess: how long a subscription may wait for room in a network that is being left
_SAFE_S = 10.0  # ... and beyond a lease, for what was published there to become stable; a guess


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
    ) -> None:
        self._join = _join_line(join)
        self.network = _network(network, self._join)
        self.config = arguments.instance("config", config, Config, "a Config") or Config()
        self.live = arguments.instance("live", live, LiveConfig, "a LiveConfig") or LiveConfig()
        arguments.function("on_problem", on_problem)
        arguments.instance("listen", listen, str, "host:port as text, such as '127.0.0.1:0'")
        arguments.instance("advertise", advertise, str, "host or host:port as text")
        arguments.instance("identity", identity, Identity, "an Identity")
        self._given, self._runtime_dir = _addresses(contacts), arguments.path("runtime_dir", runtime_dir)
        self._patience_s = _patience(wait_for_network)
        self._listen = None if listen is None else addresses.parse(listen)
        if advertise is not None and listen is None:
            raise LocalError(f"to advertise {advertise} a node has to listen somewhere: listen=, or --listen")
        self._setting = Setting(
            self.network, self.config, self.live,
            advertised=None if advertise is None else addresses.advertised(advertise),
            identity=identity,
            data=arguments.path("data", data),
            journal=arguments.path("journal", journal),
            on_problem=on_problem,
        )  # fmt: skip
        self._resolver = MembershipResolver(
            self.network,
            self._setting.data,
            credential=arguments.path("credential", credential),
            join=self._join,
            make=make_credential and self._beyond,
            wall_ns=time.time_ns,
        )
        if self._beyond and not self._resolver.expects_membership:
            raise self._beyond_loopback()
        self._publishers: dict[str, Publisher] = {}
        self._running_publishers: dict[Publisher, None] = {}
        self._batchers: dict[str, Batcher] = {}
        self._credentials: dict[str, Credentials | None] = {}  # of whom the batchers are
        self._decode_cache = DecodeCache(self.live.join_timeout_s)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stack = AsyncExitStack()
        self._opened = asyncio.Event()
        self._started = self._stopped = False
        self._leave_within_s: float | None = None
        self._store: Store | None = None
        self._rendezvous: Rendezvous
        self._presence: Presence
        self._former: Presence | None = None  # the one without the network's credential, while it is left
        self._adoption = Adoption(
            {"join": self._join_members, "publish": self._publish_to_members, "leave": self._leave_former}, self._run
        )
        self._moved_batchers: list[Batcher] = []  # those of the former peer
        self._held = False  # publishers wait until all peers here are members
        self._notices: list[str] = []

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Node":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.leave()

    async def start(self) -> None:
        """Listen, find the network and become part of it; `async with` does this."""
        if self._started:
            raise LocalError("a node starts once; create another one")
        self._started = True
        try:
            contacts = await self._arrive()
            self._pump.call(self._peer.join, contacts)
            await self._presence.joined(self.live.join_timeout_s)
            await self._bring_others_over()
        except BaseException:
            self._stopped = True
            self._opened.set()
            try:
                self._resolver.give_back()
            finally:
                await self._stack.aclose()
            raise
        self._settle_in()
        runner.settle()

    def _settle_in(self) -> None:
        """The node is part of the network now."""
        self._presence.keep_contacts()
        if self._presence.memory is not None:
            self._run(self._presence.memory.keep_regularly())
        if self._presence.membership is None and self._rendezvous.is_shared and not self._given:
            self._run(self._watch_for_members())

    async def leave(self, timeout_s: float | None = None) -> None:
        """Leave in good order: wait until events are safe, at most `LiveConfig.leave_timeout_s`.

        Args:
            timeout_s: leave within this many seconds, links included; what is not safe by then may be lost.
        """
        if self._stopped or not self._opened.is_set():
            return
        self._leave_within_s = timeout_s
        self._stopped, batchers = True, list(self._batchers.values())
        try:
            for publisher in list(self._running_publishers):
                publisher.close()
            for inbox in self._peer.subscribers():
                if isinstance(inbox, Inbox):
                    inbox.close()  # `async for` ends after what came
            await self._leave_networks()
            self._end_former_batchers()
            for batcher in batchers:
                batcher.end()
            await self._cancel_tasks()
        finally:
            await self._stack.aclose()

    @property
    def contact(self) -> Contact:
        """Who this node is and where it listens."""
        return self._presence.contact

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._presence.contact.address

    @property
    def looked_in(self) -> str:
        """Where the node looked for peers of this machine. Peers that use another folder are not found."""
        return self._rendezvous.looked_in

    @property
    def notices(self) -> list[str]:
        """What a person should know about how the node joined; also in `problems` of `status`."""
        return list(self._notices)

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
                `event_bytes_max`, `partition` ("go_on", "wait").

        Raises `LocalError` for an unknown setting, `TopicExists` if the topic exists with other settings, `NotJoined`.
        """
        _check_name(name)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        chosen, own = _settings(settings), _owned(credentials, publishers, subscribers)
        await self._ready(timeout_s)
        return await self._settled(self._peer.create, name, chosen, timeout_s, own)

    def holders(self, name: str) -> int:
        """How many peers stored a topic's settings when this node created it; 0 if it did not create it.

        1 means only this node: the settings are lost when it leaves and nobody else uses the topic.
        """
        _check_name(name)
        return self._peer.holders(name)

    async def change(
        self, name: str, *, credentials: Credentials | None = None, timeout_s: float = TIMEOUT_S, **settings: Any
    ) -> Descriptor:
        """Change the settings of an existing topic while it is in use. Other settings stay as they are.

        Args:
            name: the topic's name.
            credentials: those of the topic's owner, if it has one.
            timeout_s: seconds to wait for the topic's root.
            settings: `slow` ("cut", "wait") and `event_bytes_max`. Guarantees cannot be changed.

        Returns the new descriptor. Raises `UnknownTopic`, `LocalError` for a setting that is unknown or cannot be
        changed, `TopicExists` if somebody else changed it at the same time, `NotJoined`.
        """
        _check_name(name)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        chosen, sign = _settings(settings), None if credentials is None else _checked(credentials).own
        await self._ready(timeout_s)
        wanted = {each: getattr(chosen, each) for each in settings}
        return await self._settled(self._peer.change, name, wanted, timeout_s, sign)

    async def _settled(
        self,
        ask: Callable[..., None],
        name: str,
        wanted: Any,
        timeout_s: float,
        sign: Callable[[Descriptor], Descriptor] | None,
    ) -> Descriptor:
        """What the topic's root says to a wish about its settings."""
        done: asyncio.Future[Descriptor | QuillcastError] = self._pump.loop.create_future()

        def answered(answer: Descriptor | QuillcastError) -> None:
            if not done.done():
                done.set_result(answer)

        self._pump.call(ask, name, wanted, answered, sign)
        try:
            answer = await asyncio.wait_for(done, timeout_s)
        except TimeoutError as problem:
            raise NotJoined(
                f"no root of {name!r} answered within {timeout_s:g} s; it may be created later"
            ) from problem
        if isinstance(answer, QuillcastError):
            raise answer
        return answer

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
        who = _by(credentials, topic)
        try:
            publisher = self._publishers.get(who)
        except TypeError:  # no name is looked at that an earlier event had
            _check_name(topic)
            raise
        if publisher is None or publisher.failure is not None:
            publisher = self._publishers[who] = self._make_publisher(topic, credentials=credentials)
        return publisher.publish(payload, key=key, attributes=attributes, wait=wait, timeout_s=timeout_s)

    def publisher(self, topic: str, *, timed: bool = False, credentials: Credentials | None = None) -> Publisher:
        """A publisher for one topic, with its own sequence numbers and less work per event.

        With `timed` every event has its own time; otherwise the events of a batch share one. `credentials` are needed
        if the topic has an access list.
        """
        return self._make_publisher(topic, timed=timed, credentials=credentials)

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
        _check_name(topic)
        if handler is not None and not callable(handler):
            raise LocalError(f"a handler is a function of an event, not {type(handler).__name__}")
        arguments.function("on_lost", on_lost)
        self._check_open()
        inbox = Inbox(self.live.subscription_bytes, arguments.label(name))
        inbox.on_lost = on_lost
        make: Make[Any] = payloads if only_payloads else events
        subscription = Subscription(topic, make, inbox, self._decode_cache, credentials)
        subscription.open(start=start, delivery=delivery, warrant=self._warrant(topic, credentials))
        if handler is not None:
            subscription.serve(handler, self._run)
        return subscription

    # --- looking --------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The state of this peer as plain values (docs/live.md)."""
        self._check_open()
        return {**self._inspector.status(), "looked_in": self.looked_in}

    def traffic(self) -> dict[str, int]:
        """How many links are open (`links`), and what they carried since the start: the counters of `status`."""
        self._check_open()
        return self._inspector.traffic()

    async def tree(self, topic: str, *, timeout_s: float = 2.0) -> dict[str, Any]:
        """The topic's live tree, walked from the root: parents, children, and how far each peer is.

        Returns what answered within `timeout_s`: `peers`, each with its subscriptions (`readers`) and how many events
        and seconds those are behind the root; `silent` names peers that did not answer, `complete` says whether all
        did. A query creates no topic: an unknown one has no root, and `settings` is None.
        """
        _check_name(topic)
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
        standing = self._presence.membership
        if standing is None:
            raise LocalError(
                "this network has no credential and stays on this machine; `quillcast node --listen HOST:PORT` with an "
                "address that others reach makes one"
            )
        if standing.authority is None:
            raise LocalError("this peer cannot admit others; ask the one that holds the network's credential")
        token = standing.keyring.issue_token(self.live.token_life_s, time.time_ns())
        return JoinLine(self.address, standing.authority.fingerprint, token, self.network)

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

        async def status() -> dict[str, Any]:
            return self.status()

        async def topics() -> list[dict[str, Any]]:
            return self._inspector.topics()

        async def invite() -> str:
            return str(self.invite())

        async def take_credential(step: str, credential: str, pid: int) -> None:
            await self._take_credential(step, credential, pid)

        return {"status": status, "topics": topics, "tree": self.tree, "invite": invite, QUESTION: take_credential}

    # --- starting -------------------------------------------------------------------------------------------------

    async def _arrive(self) -> list[Contact]:
        """Open the node, and find peers to join through; it may have to wait for them. Raises as entering does."""
        loop = asyncio.get_running_loop()
        until, pause_s, is_patient = loop.time() + self._patience_s, _PAUSE_S_MIN, self._patience_s > 0
        while True:
            try:
                await self._open()
                if not is_patient:
                    self._opened.set()
                found = await self._find(is_patient=is_patient)
            except OtherCredential as problem:
                if self._resolver.adoptable != problem.credential:
                    raise
                pause_s = 0.0  # the credential was made just now
            except Unreachable as problem:
                if loop.time() >= until or isinstance(problem.__cause__, RemoteError):
                    raise
            else:
                self._opened.set()
                return found
            self._opened.clear()
            await self._stack.aclose()
            self._stack = AsyncExitStack()
            await asyncio.sleep(min(pause_s, max(0.0, until - loop.time())))
            pause_s = min(2 * pause_s, _PAUSE_S_MAX) or _PAUSE_S_MIN

    async def _find(self, *, is_patient: bool) -> list[Contact]:
        presence = self._presence
        may_be_first = presence.membership is None or presence.admits or self._listen is not None
        return await presence.find(self._given, may_be_first=may_be_first, patient=is_patient)

    async def _open(self) -> None:
        """Everything but the network. Nothing is kept anywhere before the node listens where it was told to."""
        stack = self._stack
        self._rendezvous = Rendezvous(self.network, self._runtime_dir)
        listener = self._reserve()
        if listener is not None:
            stack.callback(listener.close)
        if self._setting.data is not None:
            self._store = Store(self._setting.data)
            stack.callback(self._store.close)
        standing = await self._resolver.find(self.live.join_timeout_s)
        if standing is None and self._beyond:
            raise self._beyond_loopback()
        self._install(await self._present(listener, standing))
        if notice := self._rendezvous.notice:
            self._note(f"{notice}; this peer looks in {self._rendezvous.folder}")

    def _reserve(self) -> socket.socket | None:
        """A socket that listens where it was told to, if it was told. Raises `LocalError`."""
        if self._listen is None:
            return None
        if self._setting.advertised is None:
            addresses.reached(self._listen[0])
        return listening(*self._listen)

    async def _present(self, listener: socket.socket | None, standing: Membership | None) -> Presence:
        """A peer of this node with its sockets and files."""
        presence = Presence(self._setting, self._rendezvous, self._store, standing)
        self._stack.push_async_callback(presence.close)
        try:
            await presence.open(listener, self._given, self._answerers())
        except BaseException:
            await presence.close()
            raise
        return presence

    def _install(self, presence: Presence) -> None:
        """From now on this is the node's peer."""
        self._presence = presence
        self._decode_cache.pump, self._decode_cache.peer = presence.pump, presence.peer

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

    @property
    def _beyond(self) -> bool:
        """Is this node to be reached from beyond this machine's loopback?"""
        places = [place for place in (self._listen, self._setting.advertised) if place is not None]
        return not all(addresses.is_loopback(host) for host, _ in places)

    def _beyond_loopback(self) -> LocalError:
        place = self._setting.advertised or self._listen
        assert place is not None
        return addresses.beyond_loopback(addresses.written(*place))

    def _note(self, line: str) -> None:
        self._notices.append(line)
        self._links.problems.append(line)

    async def _ready(self, timeout_s: float) -> None:
        """Wait until the node is part of the network."""
        try:
            if not self._opened.is_set():
                await asyncio.wait_for(self._opened.wait(), timeout_s)
        except TimeoutError as problem:
            raise NotJoined(f"the node was not started within {timeout_s:g} s; use it inside `async with`") from problem
        self._check_open()
        await self._presence.joined(timeout_s)

    def _check_open(self) -> None:
        if self._stopped:
            raise LocalError("the node has left its network; create another one")
        if not self._opened.is_set():
            raise LocalError("the node is not started; use it inside `async with Node(...) as node`")

    def _make_publisher(self, topic: str, *, timed: bool = False, credentials: Credentials | None = None) -> Publisher:
        _check_name(topic)
        self._check_open()
        who = _by(credentials, topic)
        batcher = self._batchers.get(who)
        if batcher is None or batcher.failure is not None:
            warrant = self._warrant(topic, credentials)
            batcher = self._make_batcher(who, topic, warrant)
            self._batchers[who], self._credentials[who] = batcher, credentials
        return Publisher(batcher, self._pump, self._peer, self._running_publishers, timed=timed)

    def _make_batcher(self, who: str, topic: str, warrant: Warrant | None) -> Batcher:
        batcher = Batcher(
            topic, self._pump, self._peer, self.live.publish_bytes, self._links.join, warrant,
            partial(self._ended, who),
        )  # fmt: skip
        if self._held:
            batcher.pause()
        return batcher

    def _ended(self, who: str, batcher: Batcher) -> None:
        """The last publisher of an batcher closed; another may stand in its place, if it failed."""
        if self._batchers.get(who) is batcher:
            del self._batchers[who], self._credentials[who]

    def _warrant(self, topic: str, credentials: Credentials | None) -> Warrant | None:
        """What shows a topic's root on whose behalf this node acts. Raises `LocalError` for a bad name."""
        if credentials is None:
            return None
        return _checked(credentials).warrant(self.contact.node_id, described(topic).topic)

    # --- taking on the network's credential (`live.admission.adoption`) -----------------------------------------------

    async def _bring_others_over(self) -> None:
        """Have this user's peers here that run without the credential take it on; say who does not."""
        if self._links.handshake.tls is None:
            return
        credential = self._links.handshake.tls.fingerprint
        others = [other for other in self._rendezvous.all_entries() if other.credential != credential]
        own = [other for other in others if other.is_own and not other.credential]
        for line in await bring_over(self._rendezvous, own, credential):
            self._note(line)
        for other in others:
            if other not in own:
                with contextlib.suppress(Unreachable):
                    await self._links.greet(other.address)  # it hears why that fails
                self._note(unheard(other, self.network))

    async def _take_credential(self, step: str, credential: str, pid: int) -> None:
        """Take a step towards the network's credential, as the process of a member asks. Raises why that cannot be."""
        if self._stopped:
            return  # it is on its way out
        await self._ready(STEP_S)
        try:
            if self._presence.membership is None and self._resolver.adoptable != credential:
                raise LocalError("this user was not admitted to it")
            await self._adoption.take(step)
        except QuillcastError as problem:
            if self._presence.membership is None:
                self._cut_off(pid, str(problem))
            raise

    async def _watch_for_members(self) -> None:
        """Members that other users run cannot ask this peer to take their credential on, and it could not."""
        while self._presence.membership is None:
            members = [other for other in self._rendezvous.all_entries() if other.credential and not other.is_own]
            if members:
                self._cut_off(members[0].pid, f"user {members[0].user} runs it, and this user was not admitted")
                return
            await asyncio.sleep(_WATCH_S)

    async def _join_members(self) -> None:
        """Become a member, and subscribe there to all that this node subscribes to."""
        former = self._presence
        if former.membership is not None:
            return
        presence = await self._become_member()
        for descriptor in list(former.peer.scribe.descriptors.values()):
            if descriptor.version > 0:
                presence.pump.call(presence.peer.scribe.learn, descriptor)
        self._former, self._held = former, True
        self._install(presence)
        inboxes = [inbox for inbox in former.peer.subscribers() if isinstance(inbox, Inbox)]
        subscriptions = [inbox.subscription for inbox in inboxes if inbox.subscription is not None]
        for subscription in subscriptions:
            subscription.move(self._warrant(subscription.topic, subscription.credentials))
        for subscription in subscriptions:
            with contextlib.suppress(QuillcastError):  # whoever reads it hears why it failed
                await subscription.started()
        self._run(self._drain(former))
        self._settle_in()
        line = f"this peer has taken on the credential of network {self.network!r}, and is at {self.address} now"
        self._notices.append(line)
        if self._setting.on_problem is not None:
            self._pump.loop.call_soon(self._setting.on_problem, line)

    async def _become_member(self) -> Presence:
        """A second peer of this node, which is part of the members' network."""
        timeout_s = self.live.join_timeout_s
        standing = await self._resolver.find(timeout_s)
        presence = await self._present(None, standing)
        try:
            contacts = await presence.find((), may_be_first=False)
            presence.pump.call(presence.peer.join, contacts)
            await presence.joined(timeout_s)
        except BaseException:
            await presence.close()
            raise
        return presence

    async def _drain(self, former: Presence) -> None:
        """What readers took has room in the former network, too, and what is closed here is closed there."""
        while self._former is former:
            await asyncio.sleep(_DRAIN_S)
            for handle in list(former.peer.scribe.subscribing.all()):
                inbox = handle.subscriber
                if isinstance(inbox, Inbox):
                    former.pump.call(former.peer.unsubscribe if inbox.closed else former.peer.drained, handle)

    async def _publish_to_members(self) -> None:
        """Have what was published so far made safe in the former network, and publish among the members from now on."""
        former = self._former
        if former is None:
            return
        batchers = {who: batcher for who, batcher in self._batchers.items() if batcher.peer is former.peer}
        for batcher in batchers.values():
            batcher.pause()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_S / 2):
                await former.pump.until(lambda: all(batcher.safe for batcher in batchers.values()))
        self._held = False
        for who, batcher in batchers.items():
            if self._batchers.get(who) is batcher and batcher.failure is None:
                warrant = self._warrant(batcher.topic, self._credentials[who])
                self._batchers[who] = successor = self._make_batcher(who, batcher.topic, warrant)
                batcher.move_to(successor, self._pump, self._peer)
                self._moved_batchers.append(batcher)
        for batcher in self._batchers.values():
            batcher.go_on()

    async def _leave_former(self) -> None:
        """Leave the network without the credential, once what was published there is safe or had a lease's time."""
        former = self._former
        if former is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.topics.lease_s + _SAFE_S):
                await former.pump.until(lambda: all(batcher.safe for batcher in self._moved_batchers))
        if self._stopped:
            return
        await former.leave()
        self._end_former_batchers()
        self._former = None
        await former.close()

    def _end_former_batchers(self) -> None:
        """Who still waits for an acknowledgement in the network that was left waits in vain."""
        for batcher in self._moved_batchers:
            if not batcher.safe:
                batcher.end()
        self._moved_batchers.clear()

    def _cut_off(self, pid: int, why: str) -> None:
        """Process `pid` is a member of this node's network, and this node is not and cannot be: say so to everybody."""
        error = LocalError(
            f"process {pid} of this machine has the credential of network {self.network!r}, and this peer cannot hear "
            f"it: {why}; start it again with --join and the line that `quillcast node --invite` prints, or with "
            "another --network"
        )
        self._note(str(error))
        for inbox in list(self._peer.subscribers()):
            inbox.failed(error)
        for batcher in list(self._batchers.values()):
            batcher.failed(error)

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _leave_networks(self) -> None:
        presence, former = self._presence, self._former
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


def _by(credentials: Credentials | None, topic: str) -> str:
    """Who publishes to what."""
    return topic if credentials is None else f"{_checked(credentials).principal}:{topic}"


def _checked(credentials: Credentials) -> Credentials:
    """The credentials. Raises `LocalError` for anything else, such as the name of their file."""
    if not isinstance(credentials, Credentials):
        raise LocalError(f"credentials = {credentials!r} is {type(credentials).__name__}; use Credentials.load(file)")
    return credentials


def _owned(
    credentials: Credentials | None, publishers: Sequence[str], subscribers: Sequence[str]
) -> Callable[[Descriptor], Descriptor] | None:
    """What gives a new topic its owner and its access list. Raises `LocalError`."""
    entries = [entry("publish", who) for who in arguments.names("publishers", publishers)]
    entries += [entry("subscribe", who) for who in arguments.names("subscribers", subscribers)]
    if credentials is None:
        if entries:
            raise LocalError("a topic with publishers or subscribers named has an owner: give credentials=")
        return None
    if len(entries) > ENTRIES_MAX:
        raise LocalError(f"{len(entries)} entries are too many for an access list, which has at most {ENTRIES_MAX}")
    own, access = _checked(credentials).own, tuple(dict.fromkeys(entries))
    return lambda descriptor: own(msgspec.structs.replace(descriptor, access=access))


def _patience(wait_s: Any) -> float:
    """Seconds to wait for the network. Raises `LocalError`."""
    if wait_s is None:
        return 0.0
    if not isinstance(wait_s, int | float) or not wait_s >= 0:
        raise LocalError(f"wait_for_network is {wait_s!r}; use seconds, or math.inf")
    return float(wait_s)


def _check_name(topic: str) -> None:
    """Raise `LocalError` for a name that is no topic's."""
    described(topic)


def _addresses(contacts: Sequence[str] | str) -> tuple[str, ...]:
    """As they were given; a single one is easily given by itself."""
    return (contacts,) if isinstance(contacts, str) else tuple(arguments.names("contacts", contacts))


def _join_line(join: JoinLine | str | None) -> JoinLine | None:
    """The line to join with. Raises `LocalError`."""
    if isinstance(join, str):
        return JoinLine.parse(join)
    return arguments.instance("join", join, JoinLine, "the line that a peer of the network printed")


def _network(network: str, join: JoinLine | None) -> str:
    """The network's name; that of the line to join with, where none was chosen."""
    if not isinstance(network, str):
        raise LocalError(f"network = {network!r} is {type(network).__name__}; use a name as text")
    if join is None or join.network == network:
        return network
    if network != DEFAULT_NETWORK:
        raise LocalError(f"the join line is for the network {join.network!r}, and not of {network!r}; choose one")
    return join.network


def _settings(chosen: dict[str, Any]) -> Settings:
    """The settings of a new topic. Raises `LocalError` naming what does not exist or has the wrong type."""
    for name in chosen:
        if name not in Settings.__struct_fields__:
            raise LocalError(f"{name} is not a setting of topics; use: {', '.join(Settings.__struct_fields__)}")
    try:
        return msgspec.convert(msgspec.to_builtins(Settings(**chosen)), Settings)
    except (msgspec.ValidationError, TypeError, ValueError) as problem:
        raise LocalError(f"the settings {chosen} do not fit: {problem}") from problem
