"""How a node starts: it listens, opens its files, and finds a network or waits for one."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from quillcast.core.errors import LocalError, RemoteError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.admission.membership import Membership, MembershipResolver
from quillcast.live.discovery.finding import OtherCredential
from quillcast.live.discovery.questions import Answerer
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.node.managersearch import PAUSE_S_MAX, PAUSE_S_MIN
from quillcast.live.node.presence import Presence, Presences, Setting, listening
from quillcast.live.storage.store import Store
from quillcast.live.transport import addresses


class Startup:
    """Opens what a node needs, and closes all of it again.

    `listen` is its configured address, `given` are the configured addresses to join through, and `answer`
    answers on its control socket. It waits for a network up to `patience_s`. A member of scopes needs no contacts: it
    waits for their managers, once it is open (`Presence.entered`).
    """

    registry: PeerRegistry

    def __init__(
        self, presences: Presences, setting: Setting, resolver: MembershipResolver,
        *, listen: tuple[str, int] | None, given: Sequence[str], runtime_dir: Path | None, patience_s: float,
        answer: Answerer,
    ) -> None:  # fmt: skip
        self.resolver, self.given = resolver, given
        self.opened = asyncio.Event()
        self._presences, self._setting, self._answer = presences, setting, answer
        self._listen, self._runtime_dir, self._patience_s = listen, runtime_dir, patience_s
        self._stack = AsyncExitStack()
        self._store: Store | None = None
        if self._is_remote and not resolver.expects_membership:
            raise self._needs_credential()

    async def arrive(self) -> list[Contact]:
        """Open the node and find peers to join through, waiting if necessary. Raises the errors of entering a node."""
        loop = asyncio.get_running_loop()
        is_patient = self._patience_s > 0 and not self._setting.scopes
        until, pause_s = loop.time() + self._patience_s, PAUSE_S_MIN
        while True:
            try:
                await self._open()
                if not is_patient:
                    self.opened.set()
                found = await self._find(is_patient=is_patient)
            except OtherCredential as problem:
                if self.resolver.adoptable != problem.credential:
                    raise
                pause_s = 0.0  # the credential was made just now
            except Unreachable as problem:
                if loop.time() >= until or isinstance(problem.__cause__, RemoteError):
                    raise
            else:
                self.opened.set()
                return found
            self.opened.clear()
            await self._stack.aclose()
            self._stack = AsyncExitStack()
            await asyncio.sleep(min(pause_s, max(0.0, until - loop.time())))
            pause_s = min(2 * pause_s, PAUSE_S_MAX) or PAUSE_S_MIN

    async def present(self, listener: socket.socket | None, membership: Membership | None) -> Presence:
        """Open a peer of this node, with its sockets and files."""
        presence = Presence(self._setting, self.registry, self._store, membership)
        self._stack.push_async_callback(presence.close)
        try:
            await presence.open(listener, self.given, self._answer)
        except BaseException:
            await presence.close()
            raise
        return presence

    async def close(self) -> None:
        """Close everything that was opened."""
        await self._stack.aclose()

    @property
    def may_be_first(self) -> bool:
        """Whether this node may start the network if it finds no peer of it."""
        presence = self._presences.current
        return presence.membership is None or presence.admits or self._listen is not None

    async def _find(self, *, is_patient: bool) -> list[Contact]:
        presence = self._presences.current
        try:
            return await presence.find(self.given, may_be_first=self.may_be_first, patient=is_patient)
        except Unreachable:
            if self._setting.scopes:
                return []
            raise

    async def _open(self) -> None:
        """Open everything except the network. Nothing is written to disk before the node listens."""
        stack = self._stack
        self.registry = PeerRegistry(self._setting.network, self._runtime_dir)
        listener = self._reserve()
        if listener is not None:
            stack.callback(listener.close)
        if self._setting.data is not None:
            self._store = Store(self._setting.data)
            stack.callback(self._store.close)
        membership = await self.resolver.find(self._setting.live.join_timeout_s)
        if membership is None and self._is_remote:
            raise self._needs_credential()
        self._presences.install(await self.present(listener, membership))
        if notice := self.registry.notice:
            self._presences.note(f"{notice}; this peer looks in {self.registry.folder}")

    def _reserve(self) -> socket.socket | None:
        """A socket that listens at the given address, if any. Raises `LocalError`."""
        if self._listen is None:
            return None
        if self._setting.advertised is None:
            addresses.reached(self._listen[0])
        return listening(*self._listen)

    @property
    def _is_remote(self) -> bool:
        """Whether other machines must be able to reach this node."""
        return is_remote(self._listen, self._setting.advertised)

    def _needs_credential(self) -> LocalError:
        place = self._setting.advertised or self._listen
        assert place is not None
        return addresses.beyond_loopback(addresses.written(*place))


def is_remote(*places: tuple[str, int] | None) -> bool:
    """Whether one of these addresses is beyond this machine's loopback."""
    return not all(addresses.is_loopback(place[0]) for place in places if place is not None)
