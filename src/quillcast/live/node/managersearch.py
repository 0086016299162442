"""Finds the peers that run managers of scopes and superscopes, and keeps looking for those that do not answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

import msgspec

from quillcast.core.errors import LocalError, QuillcastError, RemoteError, Unreachable
from quillcast.core.ids import short
from quillcast.core.messages import Contact
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.links import Links
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.messages import ScopeAt

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 2.0  # between attempts, each pause twice as long as the one before; a guess


def awaited(scope: ScopeAddress) -> Party:
    """A scope whose manager is still to be found."""
    return Party(scope_id(scope.name.encode()), Contact(b"", scope.address), managed=True, name=scope.name)


class Member(Protocol):
    """A member of scopes: a peer, or a scope whose manager runs here (`Scoping`, `Superscopes`)."""

    def found(self, party: Party) -> None: ...
    def not_found(self, scope: bytes, why: str, *, for_good: bool) -> None: ...


class ManagerSearch:
    """Tells a member of scopes where their managers run, or why that is unknown."""

    def __init__(
        self, links: Links, pump: Pump, member: Member, where: Callable[[str], Awaitable[ScopeAt]] | None = None
    ) -> None:  # fmt: skip
        """`where` asks the network where the manager of the scope with this name runs, if no address is given."""
        self._links, self._pump, self._member, self._where = links, pump, member, where
        self._keys: Mapping[bytes, bytes] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, scopes: Iterable[ScopeAddress], keys: Mapping[bytes, bytes] = MappingProxyType({})) -> None:
        """Look for the managers of these scopes, by id for former memberships: `keys` are the keys of those scopes."""
        self._keys = keys
        self._tasks = [self._pump.loop.create_task(self._search(scope)) for scope in scopes]

    def close(self) -> None:
        """Stop searching."""
        for task in self._tasks:
            task.cancel()

    async def _search(self, scope: ScopeAddress) -> None:
        party, pause_s = awaited(scope), PAUSE_S_MIN
        while True:
            try:
                found = msgspec.structs.replace(party, contact=await self._locate(scope))
            except QuillcastError as problem:
                is_final = isinstance(problem.__cause__, RemoteError)  # a peer of another network, for example
                why = str(problem) if is_final else f"{problem}; {_remedy(scope)}"
                self._pump.call(partial(self._member.not_found, party.id, why, for_good=is_final))
                if is_final:
                    return
            else:
                self._pump.call(self._member.found, found)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _locate(self, scope: ScopeAddress) -> Contact:
        """Find the peer that runs a scope's manager and answers. Raises `QuillcastError`."""
        if scope.address:
            return await self._links.greet(scope.address)
        assert self._where is not None, "without a network to ask, an address is given"
        known = (await self._where(scope.name)).succession
        contact, key = known.contact, self._keys.get(known.scope, known.key)
        if known.key != key:
            raise LocalError(f"the peer at {contact.address} claims the name with another key than the scope had")
        if (await self._links.greet(contact.address)).node_id != contact.node_id:
            raise Unreachable(f"peer {short(contact.node_id)}, which ran its manager, has left {contact.address}")
        return contact


def _remedy(scope: ScopeAddress) -> str:
    if scope.address:
        return "start its manager there (quillcast scope serve), or correct the address"
    return (
        f"start its manager (quillcast scope serve), correct the name, or write {scope.name}@HOST:PORT with the "
        "address of the peer that runs it"
    )
