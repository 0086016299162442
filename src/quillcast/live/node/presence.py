"""A node's peer in one network: its identity, sockets, files and protocols; everything except the application's side.

A node has one, or two while it adopts its network's credential (`live.admission.adoption`).
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from quillcast.core.bundle import Join
from quillcast.core.errors import DiskFailed, LocalError, NotJoined, QuillcastError
from quillcast.core.messages import Contact
from quillcast.core.trace import Record
from quillcast.live.admission.applications import Admissions
from quillcast.live.admission.authority import check_attributes
from quillcast.live.admission.credentials import Credentials
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.admission.membership import Membership
from quillcast.live.clients.serving import Clients
from quillcast.live.config import LiveConfig
from quillcast.live.discovery.control import ControlServer
from quillcast.live.discovery.finding import find_contacts
from quillcast.live.discovery.questions import OF_NODES, Answerer
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.edges import choices
from quillcast.live.edges.holdups import HoldUps
from quillcast.live.edges.peer import node_ids, silent
from quillcast.live.edges.subscription import DecodeCache
from quillcast.live.node import scopestatus
from quillcast.live.node.host import LiveHost, new_incarnation
from quillcast.live.node.inspection import Inspector, silences
from quillcast.live.node.managersearch import ManagerSearch, awaited
from quillcast.live.node.managing import Managing
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.node.scopequestions import ScopeQuestions
from quillcast.live.node.scopestatus import WAITS
from quillcast.live.runtime.patience import Patience
from quillcast.live.runtime.pump import Pump
from quillcast.live.runtime.yielding import Yielding
from quillcast.live.scopes.plugins import InstalledFilters, InstalledRecoveries
from quillcast.live.scopes.socketline import Surroundings
from quillcast.live.storage.disk import FileDisk
from quillcast.live.storage.journal import Journal
from quillcast.live.storage.memory import Memory, neighbours
from quillcast.live.storage.store import Store
from quillcast.live.transport import addresses
from quillcast.live.transport.hello import Identity
from quillcast.live.transport.links import Links
from quillcast.live.transport.tls import Tls
from quillcast.protocol import wire
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.messages import ScopeAt
from quillcast.protocol.scopes.state import SCOPE_LEASE_S
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.publishing.publisher import Publisher

TAKES_PART = "takes part in the scope"
"""How the line begins that says that a peer no longer waits (`WAITS`)."""
_NOTICE_S = 2.0  # until that line is shown; a guess
_MANAGER_S = 3.0  # for a manager to start in a running peer; a guess


@dataclass(frozen=True)
class Setting:
    """The configuration of a node, which all its peers share."""

    network: str
    config: Config
    live: LiveConfig
    advertised: tuple[str, int] | None
    identity: Identity | None
    data: Path | None
    journal: Path | None
    on_problem: Callable[[str], object] | None
    scopes: tuple[ScopeAddress, ...] = ()
    forwarding_policy: ForwardingPolicy | None = None


class Presence:
    """One peer of a node, from its sockets to its protocols. Close it even if `open` failed."""

    links: Links
    peer: Peer
    inspector: Inspector
    managing: Managing
    scope_questions: ScopeQuestions
    clients: Clients

    def __init__(
        self, setting: Setting, registry: PeerRegistry, store: Store | None, membership: Membership | None
    ) -> None:
        self.setting, self.registry, self.membership = setting, registry, membership
        self.pump = Pump(asyncio.get_running_loop(), Yielding(setting.live.yield_cpu))
        self.memory: Memory | None = None
        self.journal: Journal | None = None
        self._leave_within_s: float | None = None
        self._is_shown = False  # whether other peers of this machine can see that it has joined
        self._store = store
        self._stack = AsyncExitStack()
        if membership is not None:
            self._stack.callback(membership.membership.close)

    async def open(self, listener: socket.socket | None, given: Sequence[str], answer: Answerer) -> None:
        """Open everything except the network. Without a `listener`, it listens where known peers can reach it.

        `given` are addresses to join through, `answer` answers on its control socket.
        """
        stack, setting, pump = self._stack, self.setting, self.pump
        identity, tls = self._who()
        self.links = Links(pump, identity, setting.network, new_incarnation(), wire, setting.live, tls=tls)
        if (on_problem := setting.on_problem) is not None:
            self.links.problems.tell(lambda line: pump.loop.call_soon(on_problem, line))
        self._admit_others()
        await self._listen(listener, given)
        stack.push_async_callback(self._close_links)
        stack.callback(pump.close)
        if setting.journal is not None:
            self.journal = Journal(
                setting.journal, identity.node_id, call_later=pump.later, on_problem=self.links.problems.keep
            )
            pump.rest_by(self.journal.note)
            stack.callback(self.journal.close)
        disk = FileDisk(pump, setting.data)
        stack.callback(disk.close)
        host = LiveHost(pump, self.links, disk, self.journal.trace if self.journal is not None else _forget)
        customs = InstalledFilters(self.links.problems.append)
        surroundings = Surroundings(pump.hand, partial(Patience, pump.loop))
        recoveries = InstalledRecoveries(self.links.problems.append, surroundings)
        policy = setting.forwarding_policy
        self.peer = Peer(host, setting.config, policy=policy, customs=customs, recoveries=recoveries)
        pump.serve(self.peer)
        stack.callback(self.peer.recovery.agents.follow, {})
        if self._store is not None:
            self.memory = Memory(self._store, self.peer, pump, self.links)
            self.memory.recall()
        self.managing = Managing(
            pump, self.peer.scoping, self._store, self.links.problems, setting.live.token_life_s, surroundings
        )
        self.scope_questions = ScopeQuestions(pump, self.peer.scoping, self.managing)
        stack.callback(self.scope_questions.close)
        self._search = ManagerSearch(self.links, pump, self.peer.scoping, partial(self._where, given))
        stack.callback(self._search.close)
        stack.callback(self.managing.close)
        looked_in = self.registry.looked_in
        self.clients = Clients(self.peer, pump, self.links, answer, self.settled, looked_in)
        look = self.memory.look if self.memory is not None else _nothing
        self.inspector = Inspector(self.peer, self.links, pump, self.journal, looked_in, self.clients, look)
        stack.callback(self.registry.leave, self.contact)
        stack.push_async_callback(self.clients.close)
        self.registry.leave(self.contact)  # leftovers of a killed peer: others would remove the socket
        control = ControlServer(self.registry.control_path(self.contact), answer, OF_NODES, self.clients.connect)
        await stack.enter_async_context(control)

    async def find(self, given: Sequence[str], *, may_be_first: bool, patient: bool = False) -> list[Contact]:
        """Register this peer on its machine, and find peers to join through (`find_contacts`)."""
        return await find_contacts(
            self.links, self.registry, given, self.remembered(), may_be_first=may_be_first, patient=patient
        )

    async def _where(self, given: Sequence[str], scope: str) -> ScopeAt:
        """Ask the peers through which this peer may join where a scope's manager runs. Raises `Unreachable`."""
        through = await self.find(given, may_be_first=False, patient=True)
        return await self.scope_questions.where(scope, through)

    async def entered(self, timeout_s: float) -> None:
        """Wait as `joined` does. If it takes long, report what a member of scopes waits for, and when that ends."""
        told = list[str]()
        notice = self.pump.loop.call_later(_NOTICE_S, lambda: told.extend(self._tell_waiting()))
        try:
            await self.joined(timeout_s)
        finally:
            notice.cancel()
        if told:
            self.links.problems.tell_only(f"{TAKES_PART}: {self._part()}")

    def _tell_waiting(self) -> Iterator[str]:
        if why := self.peer.scoping.obstacle():
            line = f"{WAITS}: {why}"
            self.links.problems.tell_only(line)  # `status` shows it while it holds
            yield line

    def _part(self) -> str:
        here = scopestatus.memberships(self.peer.scoping)
        silent = [each for each in here if each.unresponsive]
        names = ", ".join(each.scope for each in here)
        if not silent:
            return names
        return f"{names}, as before its restart: {'; '.join(silences(silent))}"

    async def joined(self, timeout_s: float) -> None:
        """Wait until the peer has joined the network. Raises `NotJoined`."""
        peer, scoping = self.peer, self.peer.scoping
        try:
            async with asyncio.timeout(timeout_s):
                await self.pump.until(lambda: peer.has_entered or scoping.is_refused or scoping.is_unmanaged)
                if not peer.has_entered and scoping.is_unmanaged:
                    with suppress(TimeoutError):  # its manager may be about to start at that peer
                        async with asyncio.timeout(_MANAGER_S):
                            await self.pump.until(lambda: peer.has_entered or scoping.is_refused)
        except TimeoutError as problem:
            if obstacle := self.peer.scoping.obstacle():
                raise NotJoined(
                    f"{obstacle} (this node waited {timeout_s:g} s); run `quillcast scope show NAME` where the "
                    "scope's manager should run to see whether it does"
                ) from problem
            awaited = self.peer.overlay.joining.awaited
            raise NotJoined(
                f"the network {self.setting.network!r} did not accept this node within {timeout_s:g} s: "
                f"{silent(awaited)}; `quillcast status` at a peer of it shows what it sees", node_ids(awaited)
            ) from problem  # fmt: skip
        if not peer.has_entered:
            raise NotJoined(scoping.obstacle())
        if not self._is_shown:  # now other peers of this machine may join through it
            self._is_shown = True
            credential = self.links.handshake.tls.fingerprint if self.links.handshake.tls is not None else ""
            self.registry.enter(self.contact, credential, joined=True)

    async def leave(self, within_s: float | None = None) -> None:
        """Leave the network gracefully, within `leave_timeout_s`; `within_s` includes closing the links."""
        self.clients.leave(self._ending())
        timeout_s = self.setting.live.leave_timeout_s
        self._leave_within_s = None if within_s is None else within_s / 2  # closing the links takes the other half
        self.pump.call(self.peer.leave, self._leave_within_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self.pump.until(lambda: self.peer.left)
        except TimeoutError:
            self.links.problems.append(f"the network did not confirm that this node left within {timeout_s:g} s")
        if unadmitted := self.peer.topics.publishing.unadmitted:
            self.links.problems.append(f"left with {unadmitted} events that no root had admitted: they are lost")

    def _ending(self) -> str:
        """The reason that clients are given when the peer leaves."""
        return f"the peer at {self.contact.address} (process {os.getpid()}) leaves its network"

    async def _close_links(self) -> None:
        await self.links.close(self._leave_within_s)

    async def close(self) -> None:
        """Close sockets and files, and remove what other peers of this machine use to find it."""
        await self._stack.aclose()

    @property
    def contact(self) -> Contact:
        """This peer's nodeId, and the address where others reach it."""
        return self.links.contact

    @property
    def admits(self) -> bool:
        """Whether it holds the network's credential."""
        return self.membership is not None and self.membership.authority is not None

    async def settled(
        self,
        ask: Callable[..., None],
        name: str,
        wanted: Any,
        timeout_s: float,
        sign: Callable[[Descriptor], Descriptor] | None,
    ) -> Descriptor:
        """Wait for the answer of the topic's root to `ask`, `Peer.create` or `Peer.change`. Raises `NotJoined`."""
        done: asyncio.Future[Descriptor | QuillcastError] = self.pump.loop.create_future()

        def answered(answer: Descriptor | QuillcastError) -> None:
            if not done.done():
                done.set_result(answer)

        self.pump.call(ask, name, wanted, answered, sign)
        try:
            answer = await asyncio.wait_for(done, timeout_s)
        except TimeoutError as problem:
            awaited = self.peer.awaited(name)
            text = f"no root of {name!r} answered within {timeout_s:g} s: {silent(awaited)}; it may still be created"
            raise NotJoined(text, node_ids(awaited)) from problem
        if isinstance(answer, QuillcastError):
            raise answer
        return answer

    def invite(self, attributes: Mapping[str, str]) -> JoinLine:
        """Return a join line for one more machine, whose certificates will have these attributes.

        Raises `LocalError` if this peer does not hold the credential, or for attributes that a certificate cannot have.
        """
        check_attributes(attributes)
        membership = self.membership
        if membership is None:
            raise LocalError(
                "this network has no credential and stays on this machine; `quillcast node --listen HOST:PORT` with an "
                "address that others can reach creates one"
            )
        if membership.authority is None:
            raise LocalError(
                "this peer cannot admit others; ask a peer that holds the network's credential (network.pem)"
            )
        token = membership.keyring.issue_token(self.setting.live.token_life_s, time.time_ns(), attributes)
        return JoinLine(self.contact.address, membership.authority.fingerprint, token, self.setting.network)

    def warrant(self, topic: str, credentials: Credentials | None) -> Warrant | None:
        """Make the warrant for the principal for whom this peer acts. Raises `LocalError` for a bad name."""
        return choices.warrant(credentials, self.contact.node_id, topic)

    @property
    def join(self) -> Join:
        """Joins the pieces of a block, in shared memory once another peer imports from this one."""
        return self.links.join

    def find_causes(self, publisher: Publisher, last: int) -> HoldUps:
        """Find out which peers hold up a publisher's events before `last`."""
        return HoldUps(self.pump, self.peer, publisher, last)

    def remembered(self) -> list[str]:
        """Addresses that may lead to the network."""
        members = self.membership.keyring.contacts() if self.membership is not None else []
        return [*(self.memory.contacts() if self.memory is not None else []), *members]

    def take_part(self, contacts: Sequence[Contact], *, may_be_first: bool = False) -> None:
        """Join the ring through these contacts, or take part as a member of scopes, as directed by their managers.

        Without scopes, it `may_be_first` (`Pastry.join`).
        """
        scopes = self.setting.scopes
        if not scopes:
            self.pump.call(partial(self.peer.join, contacts, may_be_first=may_be_first))
            return
        owners = [awaited(scope) for scope in scopes]
        tokens: dict[bytes, str] = {owner.id: scope.token for owner, scope in zip(owners, scopes, strict=True)}
        memory = self.memory
        before = memory.memberships() if memory is not None else {}
        join = partial(
            self.peer.scoping.join, owners, SCOPE_LEASE_S, tokens=tokens, contacts=contacts,
            had_place=memory is not None and bool(memory.contacts()),
            before={owner.id: before[owner.id] for owner in owners if owner.id in before},
        )  # fmt: skip
        self.pump.call(join)
        self._search.begin(scopes, {id_: proof.key for id_, each in before.items() if (proof := each.succession)})

    def keep_contacts(self) -> None:
        """Store contacts so that the next command of this user can find a network with a credential."""
        if self.membership is None or not self.peer.active:
            return
        known = [contact.address for contact in neighbours(self.peer)]
        try:
            self.membership.keyring.note_contacts(known, time.time_ns())
        except DiskFailed as problem:
            self.links.problems.append(str(problem))

    def _who(self) -> tuple[Identity, Tls | None]:
        """This peer's identity, and its side of TLS in a network with a credential."""
        given = self.setting.identity
        if self.membership is None:
            return given or (self._store.identity() if self._store is not None else Identity.new()), None
        if given is not None:
            raise LocalError(
                "identity is for networks without a credential; leave it out: this network's credential gives one"
            )
        membership = self.membership.membership
        return membership.identity, Tls(membership.identity, membership.certificate, membership.authority)

    def _admit_others(self) -> None:
        """Admit others, if this peer holds the network's credential."""
        membership = self.membership
        if membership is not None and membership.authority is not None:
            admissions = Admissions(self.setting.network, membership.authority, membership.keyring, time.time_ns)
            self.links.handshake.admit_by(admissions.admit)

    async def _listen(self, listener: socket.socket | None, given: Sequence[str]) -> None:
        if listener is None:
            listener = listening(self._place(given), 0)
        host = listener.getsockname()[0]
        await self.links.serve(listener, reached_at=self.setting.advertised or addresses.reached(host))

    def _place(self, given: Sequence[str]) -> str:
        """The host to listen on by default: one where the known peers can reach this one."""
        if self.membership is None:
            return "127.0.0.1"
        here = [entry.address for entry in self.registry.all_entries()]
        return addresses.listening_host([*given, *here, *self.remembered()])


class Presences:
    """The peers of a node: the current one, and the former one while the node changes to its network's credential."""

    current: Presence
    former: Presence | None = None

    def __init__(self, decode_cache: DecodeCache) -> None:
        self._decode_cache = decode_cache
        self.notices: list[str] = []

    def install(self, presence: Presence) -> None:
        """Make this the node's current peer."""
        self.current = presence
        self._decode_cache.serve(presence.pump, presence.peer)

    def replace(self, presence: Presence) -> None:
        """Make this the current peer; the previous one continues until `leave_former`."""
        self.former = self.current
        self.install(presence)

    def leave_former(self) -> None:
        """The node has left the former peer's network."""
        self.former = None

    def tell(self, line: str) -> None:
        """Keep a line that the user should read."""
        self.notices.append(line)

    def note(self, line: str) -> None:
        """Keep such a line, as a problem too."""
        self.tell(line)
        self.current.links.problems.append(line)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on an address. Raises `LocalError` with the reason if that fails."""
    try:
        return addresses.listener("127.0.0.1" if host == "localhost" else host, port)
    except OSError as problem:
        raise LocalError(addresses.not_listening(host, port, problem)) from problem


def _forget(record: Record) -> None:
    """Without a journal, records are dropped."""


def _nothing() -> None:
    """Without a data folder, its removal cannot be noticed."""
