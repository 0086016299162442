"""What a node remembers across restarts: neighbours to join through, settings of topics, and its scopes."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from quillcast.core.errors import DiskFailed
from quillcast.core.messages import Contact
from quillcast.live.runtime.pump import Pump
from quillcast.live.storage.store import Store
from quillcast.live.transport.links import Links
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.messages import Orders
from quillcast.protocol.topics.descriptor import Descriptor

KEEP_EVERY_S = 30.0  # a guess: neighbours change slowly, and leaving saves them too


class Memory:
    """Saves what a peer knows to its data folder and restores it at the next start."""

    def __init__(self, store: Store, peer: Peer, pump: Pump, links: Links) -> None:
        self._store, self._peer, self._pump, self._links = store, peer, pump, links

    def contacts(self) -> list[str]:
        """Addresses of earlier neighbours, latest first."""
        return [contact.address for contact in self._store.contacts()]

    def memberships(self) -> dict[bytes, Orders]:
        """The orders of scope managers before the last stop, by the ids of the scopes."""
        kept = (msgspec.msgpack.decode(each, type=Orders) for each in self._store.memberships())
        return {orders.owner.id: orders for orders in kept}

    def recall(self) -> None:
        """Restore the settings of topics from before the last stop."""
        for kept in self._store.topics():
            self._pump.call(self._peer.learn, msgspec.msgpack.decode(kept, type=Descriptor))

    async def keep(self) -> None:
        """Save the current state. A failing disk is reported and does not stop the node."""
        topics = {
            f"{topic.creator}:{topic.name}": msgspec.msgpack.encode(topic)
            for topic in self._peer.descriptors()
            if topic.version > 0
        }
        try:
            await _aside(partial(self._store.note, neighbours(self._peer), topics, self._memberships()))
        except DiskFailed as problem:
            self._tell(problem)

    def _memberships(self) -> dict[str, bytes]:
        known = self._peer.scoping.remembered()
        return {orders.owner.name: msgspec.msgpack.encode(orders) for orders in known}

    def look(self) -> None:
        """Report a problem if the data folder was removed."""
        try:
            self._store.look()
        except DiskFailed as problem:
            self._tell(problem)

    def _tell(self, problem: DiskFailed) -> None:
        """Report a problem; a lasting one is printed once."""
        problems, line = self._links.problems, str(problem)
        (problems.keep if line in problems else problems.append)(line)

    async def keep_regularly(self) -> None:
        """Save the state regularly, because a peer may be killed."""
        while True:
            await self.keep()
            await asyncio.sleep(KEEP_EVERY_S)


async def _aside(work: Callable[[], None]) -> None:
    """Run in a thread; or in this one when Python is ending, because it starts no more threads then."""
    try:
        await asyncio.to_thread(work)
    except RuntimeError:
        work()


def neighbours(peer: Peer) -> list[Contact]:
    """Peers to join through after a restart. The leaf set knows the latest address of a peer."""
    known = {contact.node_id: contact for contact in peer.overlay.remembered()}
    known.update((contact.node_id, contact) for contact in peer.overlay.leaf_set)
    return list(known.values())
