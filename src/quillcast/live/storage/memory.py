"""What a node keeps of its network over restarts: neighbours to join through, and topics whose settings were chosen."""

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
from quillcast.protocol.topics.descriptor import Descriptor

KEEP_EVERY_S = 30.0  # a guess: neighbours change slowly, and leaving keeps them too


class Memory:
    """Carries what a peer knows to its data folder, and back at the next start."""

    def __init__(self, store: Store, peer: Peer, pump: Pump, links: Links) -> None:
        self._store, self._peer, self._pump, self._links = store, peer, pump, links

    def contacts(self) -> list[str]:
        """Addresses of neighbours of former times, the latest first."""
        return [contact.address for contact in self._store.contacts()]

    def recall(self) -> None:
        """What was chosen about topics before the last stop still stands here."""
        for kept in self._store.topics():
            self._pump.call(self._peer.scribe.learn, msgspec.msgpack.decode(kept, type=Descriptor))

    async def keep(self) -> None:
        """Keep what is known now. A disk that refuses is a problem to show, not to die of."""
        topics = {
            f"{topic.creator}:{topic.name}": msgspec.msgpack.encode(topic)
            for topic in self._peer.scribe.descriptors.values()
            if topic.version > 0
        }
        try:
            await _aside(partial(self._store.note, neighbours(self._peer), topics))
        except DiskFailed as problem:
            self._links.problems.append(str(problem))

    async def keep_regularly(self) -> None:
        """Keep it now and then, for a peer may be killed."""
        while True:
            await self.keep()
            await asyncio.sleep(KEEP_EVERY_S)


async def _aside(work: Callable[[], None]) -> None:
    """Do it in a thread; where Python ends, which begins nothing more in threads, here."""
    try:
        await asyncio.to_thread(work)
    except RuntimeError:
        work()


def neighbours(peer: Peer) -> list[Contact]:
    """Whom to join through after a restart; where a peer came back at another address, the leaf set knows it."""
    known = {contact.node_id: contact for contact in peer.overlay.remembered()}
    known.update((contact.node_id, contact) for contact in peer.overlay.leaf_set)
    return list(known.values())
