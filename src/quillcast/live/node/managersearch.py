"""Finds the peers that run the managers of a node's scopes, and goes on looking for those that do not answer."""

import asyncio
from collections.abc import Iterable
from functools import partial

from quillcast.core.errors import QuillcastError, RemoteError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.links import Links
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scoping.scoping import Scoping

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 2.0  # between attempts, each twice as long as the one before; a guess


def awaited(scope: ScopeAddress) -> Party:
    """A scope whose manager is still to be found."""
    return Party(scope_id(scope.name.encode()), Contact(b"", scope.address), managed=True, name=scope.name)


class ManagerSearch:
    """Tells a peer that is to be a member of scopes where their managers run, or why that is not known."""

    def __init__(self, links: Links, pump: Pump, scoping: Scoping) -> None:
        self._links, self._pump, self._scoping = links, pump, scoping
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, scopes: Iterable[ScopeAddress]) -> None:
        """Look for the managers of these scopes."""
        self._tasks = [self._pump.loop.create_task(self._search(scope)) for scope in scopes]

    def close(self) -> None:
        """Look no longer."""
        for task in self._tasks:
            task.cancel()

    async def _search(self, scope: ScopeAddress) -> None:
        party, pause_s = awaited(scope), PAUSE_S_MIN
        while True:
            try:
                found = Party(party.id, await self._links.greet(scope.address), managed=True, name=scope.name)
            except QuillcastError as problem:
                is_final = isinstance(problem.__cause__, RemoteError)  # a peer of another network, for example
                self._pump.call(partial(self._scoping.not_found, party.id, _why(problem), for_good=is_final))
                if is_final:
                    return
            else:
                self._pump.call(self._scoping.found, found)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


def _why(problem: QuillcastError) -> str:
    if not isinstance(problem, Unreachable) or isinstance(problem.__cause__, RemoteError):
        return str(problem)
    return f"{problem}; start its manager there (quillcast scope serve), or correct the address"
