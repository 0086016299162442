"""The public node: one peer, its application's publishers and subscriptions, and its place among the others."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from quillcast.core.errors import Leaving, LocalError, NotJoined, QuillcastError
from quillcast.core.messages import Contact
from quillcast.core.status.peers import NodeStatus, Traffic
from quillcast.core.status.scopes import PolicyChange, ScopeReload, ScopeStatus
from quillcast.core.status.traces import TraceStatus
from quillcast.core.status.trees import TreeStatus
from quillcast.live import arguments
from quillcast.live.admission.adoption import STEP_S
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.admission.membership import MembershipResolver
from quillcast.live.clients.line import ALL_LINES, ClientLine
from quillcast.live.config import LiveConfig
from quillcast.live.discovery.questions import (
    ChangeScopeQuestion,
    InviteClientQuestion,
    InviteQuestion,
    InviteToScopeQuestion,
    PeerQuestion,
    ReloadScopeQuestion,
    RevokeClientQuestion,
    ScopeQuestion,
    ScopesQuestion,
    SetPolicyQuestion,
    StatusQuestion,
    TakeCredentialQuestion,
    TopicsQuestion,
    TraceQuestion,
    TreeQuestion,
    UnsetPolicyQuestion,
    name_of,
)
from quillcast.live.edges.choices import check_topic
from quillcast.live.edges.endpoint import Endpoint, Sign
from quillcast.live.edges.subscription import Inbox
from quillcast.live.node import choices
from quillcast.live.node.inspection import Inspector
from quillcast.live.node.managing import topic_rule
from quillcast.live.node.migration import Migration
from quillcast.live.node.presence import Presence, Presences, Setting
from quillcast.live.node.scopeexport import read_exported
from quillcast.live.node.scopequestions import ASK_S
from quillcast.live.node.startup import Startup, is_remote
from quillcast.live.runtime import runner
from quillcast.live.runtime.pump import Pump
from quillcast.live.scopes.serving import served
from quillcast.live.transport import addresses
from quillcast.live.transport.hello import Identity
from quillcast.live.transport.links import Links
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import Descriptor, Settings

GATHER_S = 2.0  # until the peers on a bundle's path have answered; a guess, as for a walk through a tree


class Node(Endpoint):
    """A peer of a network: publishes, subscribes, and forwards for others. Use it as `async with Node() as node`.

    Args:
        network: name of the network, by default that of `QUILLCAST_NETWORK`, or "default". Peers of different networks
            never link.
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
        scope: name of a scope to join, whose manager is found through the network, or `NAME@HOST:PORT` with the
            manager's address. With a list, the first scope carries all topics that are not rooted at one of the scopes.
        wait_for_network: seconds to wait for a reachable peer of the network, `math.inf` for ever; such a node is never
            the first of a network. By default the node does not wait. A member of scopes waits for their managers, for
            ever unless this says how long.
        forwarding_policy: decides which peers this one accepts and serves in the trees of topics; use the same at all
            peers of a network (docs/forwarding.md). By default it is Scribe's tree.

    A node without a credential becomes a member of its network when the user's other peers on this machine are members:
    subscriptions and publishers continue, and `contact` changes. If it cannot, they fail with `LocalError`.

    Entering raises `LocalError` for a bad argument, a port in use or a data folder of a running peer, `Unreachable` if
    no contact is a peer of this network, `NotJoined` if the network does not accept the node in time.
    """

    def __init__(
        self,
        network: str | None = None,
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
        scope: Sequence[str] | str | None = None,
        forwarding_policy: ForwardingPolicy | None = None,
    ) -> None:
        joined = choices.parsed_join_line(join)
        self.network = choices.network_name(network, joined)
        self.config = arguments.instance("config", config, Config, "a Config") or Config()
        super().__init__(arguments.instance("live", live, LiveConfig, "a LiveConfig") or LiveConfig())
        choices.check_buffers(self.config, self.live)
        arguments.function("on_problem", on_problem)
        arguments.instance("listen", listen, str, "host:port as text, such as '127.0.0.1:0'")
        arguments.instance("advertise", advertise, str, "host or host:port as text")
        arguments.instance("identity", identity, Identity, "an Identity")
        given, registry_folder = choices.contact_addresses(contacts), arguments.path("runtime_dir", runtime_dir)
        patience_s = choices.patience_s(wait_for_network)
        scopes = choices.scope_addresses(scope)
        place = None if listen is None else addresses.parse(listen)
        if advertise is not None and listen is None:
            raise LocalError(f"to advertise {advertise}, say where to listen, too: listen=, or --listen HOST:PORT")
        self._setting = Setting(
            self.network, self.config, self.live,
            advertised=None if advertise is None else addresses.advertised(advertise),
            identity=identity,
            data=arguments.path("data", data),
            journal=arguments.path("journal", journal),
            on_problem=on_problem,
            scopes=scopes,
            forwarding_policy=arguments.instance(
                "forwarding_policy", forwarding_policy, ForwardingPolicy, "an object with its methods"  # type: ignore[type-abstract]
            ),
        )  # fmt: skip
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
            given=[*given, *(each.address for each in scopes if each.address)],
            runtime_dir=registry_folder,
            patience_s=patience_s,
            answer=self._answer,
        )
        self._migration = Migration(self._presences, self._setting, self._startup, self._publishing, self._run)
        self._entry_timeout_s = choices.entry_timeout_s(wait_for_network, scopes, self.live)
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
            self._presence.take_part(contacts, may_be_first=self._startup.may_be_first and not self._startup.given)
            await self._presence.entered(self._entry_timeout_s)
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
        timeout_s = arguments.bound_s("timeout_s", timeout_s)
        if self._stopped or not self._startup.opened.is_set():
            return
        self._leave_within_s = timeout_s
        self._stopped, batchers = True, list(self._publishing.batchers.values())
        self._migration.stop()
        try:
            self._publishing.close()
            for inbox in self._peer.subscribers():
                if isinstance(inbox, Inbox):
                    inbox.close()  # `async for` ends after the events that arrived
            await self._leave_networks()
            self._publishing.end_moved()
            for batcher in batchers:
                batcher.end()
            await self._cancel_tasks()
        finally:
            await self._startup.close()

    async def manage_scope(self, file: Path | str, *, state: Path | str | None = None) -> str:
        """Run the manager of a scope, described by a file (docs/scope-files.md), in this node; returns its name.

        It keeps its state in the data folder and restarts as the same manager. Members enter with
        `Node(scope="NAME@HOST:PORT")`. `state` is a file that `quillcast scope export` wrote: the manager continues
        here, and members follow it.

        Raises `LocalError` for an error in the file, with its line, if there is no data folder, and if another peer of
        the network runs the manager of a scope with this name.
        """
        self._check_open()
        path, state_file = arguments.path("file", file) or Path(file), arguments.path("state", state)
        exported = read_exported(state_file) if state_file is not None else None
        scope = await asyncio.to_thread(served, path, self._presences.note)  # policies of packages start processes
        try:
            if exported is None and self._presence.managing.is_new(scope.scope.name):
                await self._presence.scope_questions.check_unmanaged(scope.scope.name)
            await self._presence.managing.manage(scope, self.contact, self._presence.links, exported)
        except QuillcastError:
            scope.rules.close()
            raise
        return scope.scope.name

    async def reload_scope(self, scope: str) -> ScopeReload:
        """Read the file of a scope again whose manager runs in this node, and go by it from now on.

        Members, clients and senders learn at once what differs. Raises `LocalError` for an error in the file, with its
        line, and for another name or other superscopes, which need a restart. Then everything stays as it is.
        Raises `DiskFailed`.
        """
        self._check_open()
        return await self._presence.managing.reload(scope, self._presence.links)

    def invite_to_scope(self, scope: str) -> str:
        """Return a join line of a scope whose manager runs in this node, for `Node(scope=...)`.

        It works once, within `LiveConfig.token_life_s`. A member that entered with it stays admitted.
        Raises `LocalError` if the scope's file does not say `join_line = true`, and `DiskFailed`.
        """
        self._check_open()
        return str(self._presence.managing.invite(scope, self.address))

    def scopes(self) -> tuple[ScopeStatus, ...]:
        """The scopes whose managers run in this node: members, rules, topics with their channels."""
        self._check_open()
        return self._presence.managing.statuses()

    async def set_policy(
        self, scope: str, pattern: str, policy: str, parameters: Mapping[str, Any] | None = None, *, sha256: str = ""
    ) -> PolicyChange:
        """Choose the policy for the topics that match a pattern, in a scope whose manager runs in this node.

        It takes precedence over the rules of the scope's file and over earlier calls, and is kept across restarts.
        `parameters` are those of the policy, by name (docs/scope-policies.md). `sha256` pins `FILE.py:Class`; the file
        is looked for beside the scope's file.

        Raises `LocalError` for an unknown scope, policy or parameter, naming the known ones, and `DiskFailed`.
        """
        self._check_open()
        return await self._presence.managing.set_policy(scope, topic_rule(pattern, policy, parameters, sha256=sha256))

    def unset_policy(self, scope: str, pattern: str) -> PolicyChange:
        """Return to the rules of the scope's file for the topics of a pattern. Raises `LocalError`."""
        self._check_open()
        return self._presence.managing.unset_policy(scope, pattern)

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
        return self._startup.registry.looked_in

    @property
    def notices(self) -> list[str]:
        """What a person should know about how the node joined; also in `problems` of `status`."""
        return list(self._presences.notices)

    # --- topics ---------------------------------------------------------------------------------------------------

    def holders(self, name: str) -> int:
        """How many peers stored a topic's settings when this node created it; 0 if it did not create it.

        1 means only this node: the settings are lost when it leaves and nobody else uses the topic.
        """
        check_topic(name)
        return self._peer.holders(name)

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
        """The topic's live tree, walked from the root: parents, children, and how far each peer has come.

        Returns the answers that arrive within `timeout_s`: `peers`, each with its subscriptions (`lags`) and how many
        events and seconds those are behind the root. `unresponsive` names peers that did not answer, and `complete`
        says whether all did. A query creates no topic: an unknown one has no root, and `settings` is None.
        """
        check_topic(topic)
        await self._ready(arguments.seconds("timeout_s", timeout_s))
        return await self._inspector.tree(topic, timeout_s)

    async def trace(self, topic: str, *, timeout_s: float = 10.0) -> TraceStatus:
        """Follow the topic's next bundle through all peers, channels and filters.

        Waits up to `timeout_s` for a bundle, and then up to 2 s for the answers of the peers on its path. Nothing is
        published for this: if no bundle came in time, there are no `hops`. `unresponsive` names peers that were sent
        the bundle and did not answer.
        """
        check_topic(topic)
        await self._ready(arguments.seconds("timeout_s", timeout_s))
        return await self._inspector.trace(topic, timeout_s, GATHER_S)

    @property
    def admits(self) -> bool:
        """Whether this node holds the network's credential, and so admits others."""
        return self._presence.admits

    def invite(self, attributes: Mapping[str, str] | None = None) -> JoinLine:
        """Return a join line for another machine. It works once, within `LiveConfig.token_life_s`.

        `attributes` are written into the machine's certificates, for scopes that ask for them: `organization`,
        `organizational_unit`, `locality`, `country`.

        Raises `LocalError` if this node does not hold the network's credential, or for other attributes.
        """
        self._check_open()
        return self._presence.invite(attributes or {})

    def invite_client(self) -> str:
        """Return a line for applications on other devices, which then use this node: `quillcast.connect(line=...)`.

        Any number of applications may use it, until the node ends or the line is revoked. They are clients of this node
        like those of its own machine.
        """
        self._check_open()
        return str(self._presence.clients.line())

    def revoke_client(self, line: str = ALL_LINES) -> int:
        """Revoke a line of `invite_client`, or "all" of them; returns how many clients this disconnected.

        The line admits no more clients. Clients that used it are disconnected at once, from this node and from the
        peers that serve them directly. Raises `LocalError` for a line that is not valid here.
        """
        self._check_open()
        return self._presence.clients.revoke(None if line == ALL_LINES else ClientLine.parse(line))

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

    async def _answer(self, question: PeerQuestion) -> Any:
        """Answer a question of the control socket, or of a client."""
        if isinstance(question, TakeCredentialQuestion):
            if not self._stopped:  # otherwise it leaves anyway
                await self._ready(STEP_S)
                await self._migration.take(question.step, question.credential, question.pid)
            return None
        try:
            return await self._answer_open(question)
        except LocalError as problem:
            if self._stopped:
                raise Leaving(f"the peer at {self.address} is leaving its network") from problem
            raise

    async def _answer_open(self, question: PeerQuestion) -> Any:
        match question:
            case StatusQuestion():
                return self.status()
            case TopicsQuestion():
                return self._inspector.topics()
            case TreeQuestion(topic, timeout_s):
                return await self.tree(topic, timeout_s=timeout_s)
            case TraceQuestion(topic, wait_s):
                return await self.trace(topic, timeout_s=wait_s)
            case InviteQuestion(attributes):
                return str(self.invite(attributes))
            case InviteClientQuestion():
                return self.invite_client()
            case RevokeClientQuestion(line):
                return self.revoke_client(line)
        return await self._answer_on_scopes(question)

    async def _answer_on_scopes(self, question: PeerQuestion) -> Any:
        match question:
            case ScopesQuestion():
                return self.scopes()
            case InviteToScopeQuestion(scope):
                return self.invite_to_scope(scope)
            case SetPolicyQuestion(scope, pattern, policy, parameters, sha256):
                return await self.set_policy(scope, pattern, policy, parameters, sha256=sha256)
            case UnsetPolicyQuestion(scope, pattern):
                return self.unset_policy(scope, pattern)
            case ReloadScopeQuestion(scope):
                return await self.reload_scope(scope)
            case ScopeQuestion(scope):
                await self._ready(ASK_S)
                return await self._presence.scope_questions.view(scope)
            case ChangeScopeQuestion(scope, signed):
                await self._ready(ASK_S)
                return await self._presence.scope_questions.change(scope, signed)
        raise LocalError(f"{name_of(type(question))!r} is not a question of a node")

    # --- within ---------------------------------------------------------------------------------------------------

    @property
    def _presence(self) -> Presence:
        return self._presences.current

    @property
    def _backend(self) -> Presence:
        return self._presences.current

    async def _create(self, name: str, settings: Settings, timeout_s: float, own: Sign | None) -> Descriptor:
        await self._ready(timeout_s)
        return await self._presence.settled(self._peer.create, name, settings, timeout_s, own)

    async def _change(self, name: str, wanted: Mapping[str, Any], timeout_s: float, sign: Sign | None) -> Descriptor:
        await self._ready(timeout_s)
        return await self._presence.settled(self._peer.change, name, wanted, timeout_s, sign)

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

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _leave_networks(self) -> None:
        presence, former = self._presences.current, self._presences.former
        presence.keep_contacts()
        if presence.memory is not None:
            await presence.memory.keep()
        present = [each for each in (presence, former) if each is not None]
        await asyncio.gather(*(each.leave(self._leave_within_s) for each in present))
