"""The public node: one peer, its application's publishers and subscriptions, and its place among the others."""

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

import msgspec

from quillcast.core.errors import DiskFailed, LocalError, NotJoined, QuillcastError
from quillcast.core.loss import Loss
from quillcast.core.messages import Contact
from quillcast.core.trace import Record
from quillcast.live import addresses, arguments, runner
from quillcast.live.admission import Admissions
from quillcast.live.config import LiveConfig
from quillcast.live.control import Answerer, ControlServer
from quillcast.live.credentials import Credentials
from quillcast.live.disk import FileDisk
from quillcast.live.finding import find_contacts
from quillcast.live.hello import Identity
from quillcast.live.host import LiveHost, new_incarnation
from quillcast.live.inspection import Inspector
from quillcast.live.joinline import DEFAULT_NETWORK, JoinLine
from quillcast.live.journal import Journal
from quillcast.live.links import Links
from quillcast.live.membership import Seeker, Standing
from quillcast.live.memory import Memory, neighbours
from quillcast.live.outlet import Outlet, Wait
from quillcast.live.publisher import TIMEOUT_S, Publisher
from quillcast.live.pump import Pump
from quillcast.live.rendezvous import Rendezvous
from quillcast.live.store import Store
from quillcast.live.subscription import Desk, Event, Handler, Inbox, Make, Subscription, events, payloads
from quillcast.live.tls import Tls
from quillcast.protocol import wire
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import ENTRIES_MAX, Warrant, entry
from quillcast.protocol.topics.descriptor import CHOICES, Descriptor, Settings, described

STARTS = ("now", "earliest")


class Node:
    """A peer of a network: publishes, subscribes, and forwards for others. Use it as `async with Node() as node`.

    Args:
        network: name of the network; peers of different networks never link.
        listen: `host:port`; port 0 takes any that is free. Beyond this machine's loopback it takes a network
            credential. Where nobody says, it is where the peers that the node knows of can reach it.
        contacts: addresses of peers to join through, or one; without any, peers of this machine and network are found
            by themselves, and where there are none this node is the first.
        data: folder that keeps identity, neighbours and topics over restarts; without one the identity is thrown away.
        journal: folder that the node writes what it did into, as Arrow files (docs/journal.md).
        config: the protocols' settings.
        live: bounds of links and queues.
        identity: the key that the node's id comes from; without one that of the data folder, or a new one. In a network
            with a credential it is the credential that gives identities.
        join: a line to join a network with, as a member prints it. The data folder, or without one the user's
            configuration folder, remembers the admission; later starts need no line.
        credential: file with the network's credential (`network.pem`), if it lies in neither of these folders.
        make_credential: make the network's credential if there is none yet and `listen` is beyond loopback.
        on_problem: called with each line about what went wrong on a link, in a turn of the event loop of its own;
            `status` has the last ones.
        advertise: `host` or `host:port` that others are told to reach this node at, where that is not where it listens:
            behind a router that forwards a port, or in a container.

    Entering raises `LocalError` for a bad argument, a port in use or a data folder of a running peer, `Unreachable` if
    no contact is a peer of this network, `NotJoined` if the network does not take the node in in time.
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
    ) -> None:
        self._join = _join_line(join)
        self.network = _network(network, self._join)
        self.config = arguments.instance("config", config, Config, "a Config") or Config()
        self.live = arguments.instance("live", live, LiveConfig, "a LiveConfig") or LiveConfig()
        arguments.function("on_problem", on_problem)
        arguments.instance("listen", listen, str, "host:port as text, such as '127.0.0.1:0'")
        arguments.instance("advertise", advertise, str, "host or host:port as text")
        arguments.instance("identity", identity, Identity, "an Identity")
        self._given, self._identity, self._on_problem = _addresses(contacts), identity, on_problem
        self._data = arguments.path("data", data)
        self._listen = ("127.0.0.1", 0) if listen is None else addresses.parse(listen)
        self._listen_given = listen is not None
        if advertise is not None and listen is None:
            raise LocalError(f"to advertise {advertise} a node has to listen somewhere: listen=, or --listen")
        self._advertised = None if advertise is None else addresses.advertised(advertise)
        self._seeker = Seeker(
            self.network,
            self._data,
            credential=arguments.path("credential", credential),
            join=self._join,
            make=make_credential and self._beyond,
            wall_ns=time.time_ns,
        )
        if self._beyond and not self._seeker.hopeful:
            raise addresses.beyond_loopback(addresses.written(*(self._advertised or self._listen)))
        self._standing: Standing | None = None
        self._journal_folder = arguments.path("journal", journal)
        self._publishers: dict[str, Publisher] = {}
        self._running_publishers: dict[Publisher, None] = {}
        self._outlets: dict[str, Outlet] = {}
        self._desk = Desk(self.live.join_timeout_s)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._stack = AsyncExitStack()
        self._journal: Journal | None = None
        self._memory: Memory | None = None
        self._opened = asyncio.Event()
        self._started = self._stopped = False
        self._leave_within_s: float | None = None
        self._pump: Pump
        self._links: Links
        self._peer: Peer
        self._inspector: Inspector

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
            raise LocalError("a node starts once; make another one")
        self._started = True
        try:
            await self._open()
            self._opened.set()
            may_be_first = self._standing is None or self.admits or self._listen_given
            contacts = await find_contacts(
                self._links, self._rendezvous, self._given, self._remembered(), may_be_first=may_be_first
            )
            self._pump.call(self._peer.join, contacts)
            await self._joined(self.live.join_timeout_s)
        except BaseException:
            self._stopped = True
            self._opened.set()
            await self._stack.aclose()
            raise
        self._keep_contacts()
        if self._memory is not None:
            self._run(self._memory.keep_regularly())
        runner.settle()

    async def leave(self, timeout_s: float | None = None) -> None:
        """Leave in good order: make safe what was published, let children move; at most `LiveConfig.leave_timeout_s`.

        Args:
            timeout_s: leave within so many seconds, links included; what is not safe by then may be lost.
        """
        if self._stopped or not self._opened.is_set():
            return
        self._leave_within_s = timeout_s
        self._stopped, outlets = True, list(self._outlets.values())
        try:
            for publisher in list(self._running_publishers):
                publisher.close()
            for inbox in self._peer.subscribers():
                if isinstance(inbox, Inbox):
                    inbox.close()  # `async for` ends after what came
            self._keep_contacts()
            if self._memory is not None:
                await self._memory.keep()
            await self._leave_network()
            for outlet in outlets:
                outlet.end()
            await self._cancel_tasks()
        finally:
            await self._stack.aclose()

    @property
    def contact(self) -> Contact:
        """Who this node is and where it listens."""
        return self._links.contact

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._links.contact.address

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
        """Create a topic; where it exists with the same settings nothing happens.

        Args:
            name: a path such as `sport/tennis`.
            credentials: who owns the topic; without them nobody does, and anybody may change it.
            publishers: principals (`Credentials.principal`) that may publish, beside the owner; without any, everybody.
            subscribers: principals that may subscribe, beside the owner; without any, everybody.
            timeout_s: seconds to wait for the topic's root.
            settings: `delivery` ("reliable", "best_effort"), `order` ("publisher", "none"), `slow` ("cut", "wait"),
                `event_bytes_max`.

        Raises `LocalError` for a setting that does not exist, `TopicExists` where it stands with others, `NotJoined`.
        """
        _check_name(name)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        chosen, own = _settings(settings), _owned(credentials, publishers, subscribers)
        await self._ready(timeout_s)
        return await self._settled(self._peer.create, name, chosen, timeout_s, own)

    async def change(
        self, name: str, *, credentials: Credentials | None = None, timeout_s: float = TIMEOUT_S, **settings: Any
    ) -> Descriptor:
        """Change settings of a topic that stands, while events flow; what is not named stays as it is.

        Args:
            name: the topic's name.
            credentials: those of the topic's owner, where it has one.
            timeout_s: seconds to wait for the topic's root.
            settings: `slow` ("cut", "wait") and `event_bytes_max`. What subscribers are owed cannot change.

        Returns the descriptor that stands then. Raises `UnknownTopic`, `LocalError` for what cannot change or does not
        exist, `TopicExists` where somebody else changed it at the same time, `NotJoined`.
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
            raise NotJoined(f"no root of {name!r} answered within {timeout_s:g} s; it may stand later") from problem
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

        `credentials` are those in whose name, where the topic has an access list.
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
        """A publisher of its own for a topic: one line of sequence numbers, and less work per event.

        With `timed` every event has a time of its own; otherwise those of a batch share one. `credentials` are those in
        whose name it publishes, where the topic has an access list.
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
            handler: called with every event, one after the other; may be a coroutine function.
            only_payloads: hand out payloads (`bytes`) instead of events, at less than half the cost.
            start: "now", or "earliest": as far back as the tree's buffers reach.
            delivery: "best_effort" to not be held up by gaps in a reliable topic.
            on_lost: called with every `Loss`.
            credentials: in whose name, where the topic has an access list.
            name: what `status`, `top` and `check topic` call the subscription when it falls behind.

        Raises `LocalError` for a name that is no topic's. Other errors come when the subscription is awaited.
        """
        if start not in STARTS:
            raise LocalError(f"start = {start!r} is not a choice; use one of: {', '.join(STARTS)}")
        if delivery not in (None, *CHOICES["delivery"]):
            raise LocalError(f"delivery = {delivery!r} is not a choice; use one of: {', '.join(CHOICES['delivery'])}")
        _check_name(topic)
        if handler is not None and not callable(handler):
            raise LocalError(f"a handler is a function of an event, not {type(handler).__name__}")
        arguments.function("on_lost", on_lost)
        self._check_open()
        inbox = Inbox(self.live.subscription_bytes, arguments.label(name))
        inbox.on_lost = on_lost
        make: Make[Any] = payloads if only_payloads else events
        subscription = Subscription(topic, make, inbox, self._desk)
        subscription.open(start=start, delivery=delivery, warrant=self._warrant(topic, credentials))
        if handler is not None:
            subscription.serve(handler, self._run)
        return subscription

    # --- looking --------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What this peer is, knows and does, as plain values (docs/live.md)."""
        self._check_open()
        return self._inspector.status()

    def traffic(self) -> dict[str, int]:
        """How many links stand (`links`), and what they carried since the start: the counters of `status`."""
        self._check_open()
        return self._inspector.traffic()

    async def tree(self, topic: str, *, timeout_s: float = 2.0) -> dict[str, Any]:
        """The topic's live tree, by walking it from the root: who is whose child, and how far each is.

        Returns what answered within `timeout_s`: `peers`, each with its subscriptions (`readers`) and how many events
        and seconds those are behind the root; `silent` names who did not answer, `complete` says whether everybody did.
        Asking makes no topic: of one that is none there is no root, and `settings` is None.
        """
        _check_name(topic)
        await self._ready(arguments.seconds("timeout_s", timeout_s))
        return await self._inspector.tree(topic, timeout_s)

    @property
    def admits(self) -> bool:
        """Does this node hold the network's credential, and so admit others?"""
        return self._standing is not None and self._standing.authority is not None

    def invite(self) -> JoinLine:
        """A line for one more machine to join with, good once and for `LiveConfig.token_life_s`.

        Raises `LocalError` unless this node holds the network's credential.
        """
        self._check_open()
        standing = self._standing
        if standing is None:
            raise LocalError(
                "this network has no credential and stays on this machine; `quillcast node --listen HOST:PORT` with an "
                "address that others reach makes one"
            )
        if standing.authority is None:
            raise LocalError("this peer admits nobody; ask the one that holds the network's credential")
        token = standing.keyring.issue_token(self.live.token_life_s, time.time_ns())
        return JoinLine(self.address, standing.authority.fingerprint, token, self.network)

    # --- drills ---------------------------------------------------------------------------------------------------

    def unplug(self) -> None:
        """Cut this node off, as if its cable were pulled: a drill, to watch how the others repair their trees.

        Its links break, and none comes to stand until `plug_in`; then it finds the others again by itself.
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

        return {"status": status, "topics": topics, "tree": self.tree, "invite": invite}

    # --- starting -------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Everything but the network: identity, sockets, files, protocols."""
        stack = self._stack
        loop = asyncio.get_running_loop()
        store = Store(self._data) if self._data is not None else None
        if store is not None:
            stack.callback(store.close)
        self._rendezvous = Rendezvous(self.network)
        identity, tls = await self._become_member(store)
        self._pump = Pump(loop)
        self._links = Links(self._pump, identity, self.network, new_incarnation(), wire, self.live, tls=tls)
        if (on_problem := self._on_problem) is not None:
            self._links.problems.listener = lambda line: loop.call_soon(on_problem, line)
        self._admit_others()
        await self._start_listening()
        stack.push_async_callback(self._close_links)
        stack.callback(self._pump.close)
        if self._journal_folder is not None:
            self._journal = Journal(
                self._journal_folder,
                identity.node_id,
                call_later=self._pump.later,
                on_problem=self._links.problems.keep,
            )
            self._pump.at_rest = self._journal.note
            stack.callback(self._journal.close)
        disk = FileDisk(self._pump, self._data)
        stack.callback(disk.close)
        host = LiveHost(self._pump, self._links, disk, self._journal.trace if self._journal is not None else _forget)
        self._peer = self._pump.inputs = Peer(host, self.config)
        self._desk.pump, self._desk.peer = self._pump, self._peer
        if store is not None:
            self._memory = Memory(store, self._peer, self._pump, self._links)
            self._memory.recall()
        self._inspector = Inspector(self._peer, self._links, self._pump, self._journal)
        stack.callback(self._rendezvous.leave, self.contact)
        await stack.enter_async_context(ControlServer(self._rendezvous.control_path(self.contact), self._answerers()))

    async def _become_member(self, store: Store | None) -> tuple[Identity, Tls | None]:
        """Who this node is, and its side of TLS in a network with a credential."""
        self._standing = await self._seeker.find(self.live.join_timeout_s)
        if self._standing is None:
            return self._identity or (store.identity() if store is not None else Identity.new()), None
        membership = self._standing.membership
        self._stack.callback(membership.close)
        if self._identity is not None:
            raise LocalError("identity is for networks without a credential; here the credential gives identities")
        return membership.identity, Tls(membership.identity, membership.certificate, membership.authority)

    def _admit_others(self) -> None:
        """Who holds the network's credential admits others."""
        standing = self._standing
        if standing is not None and standing.authority is not None:
            self._links.admissions = Admissions(self.network, standing.authority, standing.keyring, time.time_ns)

    def _remembered(self) -> list[str]:
        """Addresses that may lead to the network."""
        members = self._standing.keyring.contacts() if self._standing is not None else []
        return [*(self._memory.contacts() if self._memory is not None else []), *members]

    def _keep_contacts(self) -> None:
        """In a network with a credential the next command of this user finds it again."""
        if self._standing is None or not self._peer.active:
            return
        known = [contact.address for contact in neighbours(self._peer)]
        try:
            self._standing.keyring.note_contacts(known, time.time_ns())
        except DiskFailed as problem:
            self._links.problems.append(str(problem))

    @property
    def _beyond(self) -> bool:
        """Is this node to be reached from beyond this machine's loopback?"""
        hosts = [self._listen[0], *([self._advertised[0]] if self._advertised else [])]
        return not all(addresses.is_loopback(host) for host in hosts)

    def _place(self) -> tuple[str, int]:
        """Where to listen if nobody said: where the peers that this node knows of can reach it."""
        if self._standing is None:
            return "127.0.0.1", 0
        here = [entry.address for entry in self._rendezvous.entries()]
        return addresses.listening_host([*self._given, *here, *self._remembered()]), 0

    async def _start_listening(self) -> None:
        host, port = self._listen if self._listen_given else self._place()
        if self._standing is None and self._beyond:
            raise addresses.beyond_loopback(addresses.written(host, port))
        host = "127.0.0.1" if host == "localhost" else host
        try:
            await self._links.listen(host, port, reached_at=self._advertised or addresses.reached(host))
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                raise LocalError(f"port {port} of {host} is in use; choose another, or 0 for any") from problem
            if problem.errno == errno.EADDRNOTAVAIL:
                raise LocalError(f"{host} is no address of this machine, which has {addresses.own()}") from problem
            raise LocalError(f"cannot listen on {host}:{port}: {problem.strerror or problem}") from problem

    async def _joined(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._pump.until(lambda: self._peer.active)
        except TimeoutError as problem:
            raise NotJoined(
                f"the network {self.network!r} did not take this node in within {timeout_s:g} s; "
                "`quillcast status` at a peer of it shows what it sees"
            ) from problem

    async def _ready(self, timeout_s: float) -> None:
        """Wait until the node is part of the network."""
        try:
            if not self._opened.is_set():
                await asyncio.wait_for(self._opened.wait(), timeout_s)
        except TimeoutError as problem:
            raise NotJoined(f"the node was not started within {timeout_s:g} s; use it inside `async with`") from problem
        self._check_open()
        await self._joined(timeout_s)

    def _check_open(self) -> None:
        if self._stopped:
            raise LocalError("the node has left its network; make another one")
        if not self._opened.is_set():
            raise LocalError("the node is not started; use it inside `async with Node(...) as node`")

    def _make_publisher(self, topic: str, *, timed: bool = False, credentials: Credentials | None = None) -> Publisher:
        _check_name(topic)
        self._check_open()
        who = _by(credentials, topic)
        outlet = self._outlets.get(who)
        if outlet is None or outlet.failure is not None:
            warrant = self._warrant(topic, credentials)
            outlet = Outlet(
                topic, self._pump, self._peer, self.live.publish_bytes, self._links.join, warrant,
                partial(self._ended, who),
            )  # fmt: skip
            self._outlets[who] = outlet
        return Publisher(outlet, self._pump, self._peer, self._running_publishers, timed=timed)

    def _ended(self, who: str, outlet: Outlet) -> None:
        """The last publisher of an outlet closed; another may stand in its place, if it failed."""
        if self._outlets.get(who) is outlet:
            del self._outlets[who]

    def _warrant(self, topic: str, credentials: Credentials | None) -> Warrant | None:
        """What shows a topic's root on whose behalf this node acts. Raises `LocalError` for a bad name."""
        if credentials is None:
            return None
        return _checked(credentials).warrant(self.contact.node_id, described(topic).topic)

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _leave_network(self) -> None:
        within_s = None if self._leave_within_s is None else self._leave_within_s / 2  # links take the other half
        self._pump.call(self._peer.leave, within_s)
        try:
            async with asyncio.timeout(self.live.leave_timeout_s):
                await self._pump.until(lambda: self._peer.left)
        except TimeoutError:
            self._links.problems.append(f"the network did not let this node go within {self.live.leave_timeout_s:g} s")
        if unadmitted := self._peer.scribe.publishing.unadmitted:
            self._links.problems.append(f"left with {unadmitted} events that no root had admitted: they are lost")

    async def _close_links(self) -> None:
        await self._links.close(None if self._leave_within_s is None else self._leave_within_s / 2)

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


def _check_name(topic: str) -> None:
    """Raise `LocalError` for a name that is no topic's: what is compiled would refuse one that is no text by itself."""
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
        raise LocalError(
            f"the line to join with is of the network {join.network!r}, and not of {network!r}; choose one"
        )
    return join.network


def _forget(record: Record) -> None:
    """Without a journal nothing is kept."""


def _settings(chosen: dict[str, Any]) -> Settings:
    """The settings of a new topic. Raises `LocalError` naming what does not exist or has the wrong type."""
    for name in chosen:
        if name not in Settings.__struct_fields__:
            raise LocalError(f"{name} is not a setting of topics; use: {', '.join(Settings.__struct_fields__)}")
    try:
        return msgspec.convert(msgspec.to_builtins(Settings(**chosen)), Settings)
    except (msgspec.ValidationError, TypeError, ValueError) as problem:
        raise LocalError(f"the settings {chosen} do not fit: {problem}") from problem
