"""`connect`: what a `Node` offers to applications, through a peer that already runs on this machine."""

import asyncio
import contextlib
import socket as sockets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quillcast.core.errors import Leaving, LocalError, QuillcastError, Unreachable
from quillcast.core.messages import Contact
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.traces import TraceStatus
from quillcast.core.status.trees import TreeStatus
from quillcast.live import arguments
from quillcast.live.clients.line import ClientLine
from quillcast.live.clients.messages import NOBODY, VERSION, Changed, Created, Directed, Welcome
from quillcast.live.clients.proxy import Process, Proxy, RemoteInbox
from quillcast.live.config import LiveConfig
from quillcast.live.discovery import control
from quillcast.live.discovery.questions import (
    ChangeQuestion,
    ConnectQuestion,
    CreateQuestion,
    StatusQuestion,
    TraceQuestion,
    TreeQuestion,
)
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.discovery.runtimefolder import chosen_network
from quillcast.live.edges.choices import check_topic
from quillcast.live.edges.endpoint import Endpoint, Sign
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described

if TYPE_CHECKING:
    from quillcast.live.clients.direct import Direct

PATTERNS = ("proxy", "direct")
"""How data reaches a client, or leaves it: through its peer, or past it (figure 21)."""
_LINE = "the line that `quillcast node --invite-client` prints"
_ANSWER_S = 10.0  # for questions that the peer answers by itself; a guess
_REMEDY_ELSEWHERE = "connect again; if the peer was restarted, get a new line from it"
_REMEDY = "connect again, to another peer of this machine if need be: quillcast node starts one"


def connect(
    network: str | None = None,
    *,
    runtime_dir: Path | str | None = None,
    socket: Path | str | None = None,
    live: LiveConfig | None = None,
    name: str | None = None,
    receive: str = "proxy",
    publish: str = "proxy",
    line: str | None = None,
) -> "Client":
    """A client of a peer that runs on this machine: `async with quillcast.connect() as client`.

    Args:
        network: name of the network; by default that of `QUILLCAST_NETWORK`, or "default".
        runtime_dir: folder in which peers of this machine find each other; by default that of `QUILLCAST_RUNTIME_DIR`,
            or the user's own (docs/live.md).
        socket: the socket of a certain peer: in the network's folder there, the file with the first 16 digits of its
            nodeId as name and `.sock` after that. By default the oldest peer is used.
        live: limits of the client's queues; `subscription_bytes` for example.
        name: what `quillcast scope members` calls the client; by default the name of the program.
        receive: "direct" to get events from another peer, which the peer of this machine finds (docs/clients.md): they
            continue while that one is stopped. "proxy": through the peer of this machine.
        publish: the same for what the client publishes.
        line: what `Node.invite_client` gave at a peer of another device, which is used instead of one of this machine.
            `network`, `runtime_dir` and `socket` do not matter then.

    Entering raises `Unreachable` if no peer of this user and network runs on this machine, or if it does not answer.
    """
    return Client(
        network,
        runtime_dir=runtime_dir,
        socket=socket,
        live=live,
        name=name,
        receive=receive,
        publish=publish,
        line=line,
    )


class Client(Endpoint):
    """An application that uses a running peer as its own. Made by `connect`; use it inside `async with`.

    Topics, publishers and subscriptions are as with a `Node`, and so are promises and errors, with one exception: a
    client delays nobody. An event counts as delivered to it when its peer has it. Unread events wait
    at the peer, up to `LiveConfig.client_bytes`; beyond that the oldest events are dropped and reported as lost.

    When the peer ends, subscriptions and publishers fail with `Unreachable`, which says whether it left or died. Those
    that another peer serves directly continue, and when that one ends, yet another takes over.
    """

    def __init__(
        self, network: str | None, *, runtime_dir: Path | str | None, socket: Path | str | None,
        live: LiveConfig | None, name: str | None = None, receive: str = "proxy", publish: str = "proxy",
        line: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(arguments.instance("live", live, LiveConfig, "a LiveConfig") or LiveConfig())
        self._network = chosen_network(arguments.instance("network", network, str, "a name as text"))
        self._name = _program() if name is None else arguments.label(name)
        self._runtime_dir, self._socket = arguments.path("runtime_dir", runtime_dir), arguments.path("socket", socket)
        chosen: dict[Doing, str] = {
            "subscribes": _pattern("receive", receive), "publishes": _pattern("publish", publish)
        }  # fmt: skip
        self._doing = [doing for doing, pattern in chosen.items() if pattern == "direct"]  # directly
        self._line = None if line is None else ClientLine.parse(arguments.instance("line", line, str, _LINE) or "")
        self._proxy: Proxy | None = None
        self._direct: Direct | None = None
        self._ending: QuillcastError | None = None  # the peer has ended, or will
        self._left = False
        self._holders: dict[str, int] = {}

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Client":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.leave()

    async def start(self) -> None:
        """Connect to the peer; `async with` does this."""
        if self._proxy is not None or self._left:
            raise LocalError("a client can connect only once; create another one")
        process = Process(self.live, self._name)
        proxy = await (self._at_home(process) if self._line is None else self._elsewhere(process, self._line))
        if self._doing:
            from quillcast.live.clients.direct import Direct  # others need no TLS

            self._direct = Direct(proxy, process, self._doing, self._publishing.close_for)
        self._decode_cache.serve(proxy.pump, self._direct or proxy)
        self._proxy = proxy

    async def _at_home(self, process: Process) -> Proxy:
        """Use a peer of this machine."""
        welcome, own = await self._connected()
        proxy = Proxy(welcome.contact, process, _REMEDY, self._peer_ends, self._peer_ended)
        await proxy.open(own, welcome)
        return proxy

    async def _elsewhere(self, process: Process, line: ClientLine) -> Proxy:
        """Use the peer of another device that gave this line."""
        from quillcast.live.clients.visit import visit  # others need no TLS

        proxy = Proxy(line.contact, process, _REMEDY_ELSEWHERE, self._peer_ends, self._peer_ended)
        directed = Directed(NOBODY, line.contact, line.network, line.authority_key)
        await visit(directed, line.secret.encode(), process, proxy)
        return proxy

    async def leave(self, timeout_s: float | None = None) -> None:
        """End publishers and subscriptions, and disconnect, when the peer has what was published.

        Args:
            timeout_s: wait at most this long for that, instead of `LiveConfig.leave_timeout_s`.
        """
        timeout_s = arguments.bound_s("timeout_s", timeout_s)
        proxy = self._proxy
        if self._left or proxy is None:
            return
        self._left = True
        self._publishing.close()
        self._publishers.clear()
        peers = self._direct or proxy
        for inbox in peers.inboxes():
            inbox.close()  # `async for` ends after the events that arrived
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.live.leave_timeout_s if timeout_s is None else timeout_s):
                await proxy.pump.until(lambda: peers.has_all)
        await peers.close()
        await self._cancel_tasks()

    @property
    def contact(self) -> Contact:
        """The peer's nodeId, and the address where it listens."""
        return self._control.contact

    @property
    def address(self) -> str:
        """Where the peer listens."""
        return self.contact.address

    @property
    def looked_in(self) -> str:
        """Where the peer looks for others of this machine."""
        return self._control.welcome.looked_in

    # --- topics ---------------------------------------------------------------------------------------------------

    def holders(self, name: str) -> int:
        """How many peers stored a topic's settings when this client created it; 0 if it did not create it."""
        check_topic(name)
        return self._holders.get(name, 0)

    async def status(self) -> NodeStatus:
        """The state of the peer (`Node.status`)."""
        self._check_open()
        return await self._control.ask(StatusQuestion(), NodeStatus, _ANSWER_S)

    async def tree(self, topic: str, *, timeout_s: float = 2.0) -> TreeStatus:
        """The topic's live tree, walked from the root (`Node.tree`)."""
        check_topic(topic)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        self._check_open()
        return await self._control.ask(TreeQuestion(topic, timeout_s), TreeStatus, timeout_s + _ANSWER_S)

    async def trace(self, topic: str, *, timeout_s: float = 10.0) -> TraceStatus:
        """Follow the topic's next bundle (`Node.trace`)."""
        check_topic(topic)
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        self._check_open()
        return await self._control.ask(TraceQuestion(topic, timeout_s), TraceStatus, timeout_s + _ANSWER_S)

    # --- within ---------------------------------------------------------------------------------------------------

    @property
    def _control(self) -> Proxy:
        """The peer of this machine."""
        if self._proxy is None:
            raise LocalError("the client is not connected; use it inside `async with quillcast.connect() as client`")
        return self._proxy

    @property
    def _backend(self) -> "Proxy | Direct":
        return self._direct or self._control

    def _check_open(self) -> None:
        if self._left:
            raise LocalError("the client has disconnected; connect again")
        if self._ending is not None:
            raise self._ending
        self._control  # noqa: B018 - raises unless it is connected

    async def _create(self, name: str, settings: Settings, timeout_s: float, own: Sign | None) -> Descriptor:
        self._check_open()
        wanted = described(name, settings)
        question = CreateQuestion(wanted if own is None else own(wanted), timeout_s)
        created = await self._control.ask(question, Created, timeout_s + _ANSWER_S)
        self._holders[name] = created.holders
        return created.descriptor

    async def _change(self, name: str, wanted: Mapping[str, Any], timeout_s: float, sign: Sign | None) -> Descriptor:
        self._check_open()
        signed: Descriptor | None = None
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            left_s = max(0.0, until - loop.time())
            question = ChangeQuestion(name, dict(wanted), left_s, sign is not None, signed)
            changed = await self._control.ask(question, Changed, left_s + _ANSWER_S)
            if not changed.to_sign or sign is None:
                return changed.descriptor
            signed = sign(changed.descriptor)  # the next answer differs if another program changes it meanwhile

    def _make_inbox(self, name: str) -> RemoteInbox:
        size_bytes_max = self.live.subscription_bytes
        return self._direct.make_inbox(size_bytes_max, name) if self._direct else RemoteInbox(size_bytes_max, name)

    async def _connected(self) -> tuple[Welcome, sockets.socket]:
        """Find a peer, and connect to it."""
        if self._socket is not None:
            return await self._ask_to_connect(self._socket)
        place = PeerRegistry(self._network, self._runtime_dir)
        for entry in place.running():
            try:
                return await self._ask_to_connect(place.control_path(entry.contact))
            except Leaving:
                continue
            except Unreachable as problem:
                if not isinstance(problem.__cause__, TimeoutError):
                    raise
                raise Unreachable(
                    f"peer {entry.node_id[:8]} (process {entry.pid}) does not answer; is it stopped?"
                ) from problem
        raise Leaving(f"the peers of the network {self._network!r} on this machine are leaving it")

    async def _ask_to_connect(self, path: Path) -> tuple[Welcome, sockets.socket]:
        timeout_s = self.live.connect_timeout_s
        return await control.connected(path, ConnectQuestion(VERSION), Welcome, timeout_s=timeout_s)

    def _peer_ends(self, reason: QuillcastError) -> None:
        """The peer accepts nothing new. It still acknowledges what it has."""
        self._ending = reason
        if self._proxy is not None:
            self._publishing.close_for(reason, self._proxy.publishers())

    def _peer_ended(self, reason: QuillcastError) -> None:
        self._ending = reason


def _pattern(option: str, value: str) -> str:
    if value not in PATTERNS:
        raise LocalError(f"{option} = {value!r} is not valid; use one of: {', '.join(PATTERNS)}")
    return value


def _program() -> str:
    try:
        return arguments.label(Path(sys.argv[0]).name) or "python"
    except (IndexError, LocalError):  # embedded, or a name too long for a column
        return "python"
