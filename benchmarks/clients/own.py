"""Peers of this project, with a reliable topic."""

import time
from typing import Any, ClassVar

import msgspec

from clients.base import Client, Handler, Publish


class Quillcast(Client):
    """Calls a handler with every event. Uses `publish_nowait` while there is room, as others use blocking calls."""

    library = "quillcast"

    async def connect(
        self, *, local_ipc: bool = True, shares: bool = False, direct: str = "", secret: str = "",
        bundle_bytes: int = 0, **options: Any,
    ) -> dict[str, Any]:  # fmt: skip
        import quillcast

        if direct:
            options |= {direct: "direct", "socket": _youngest(options["network"])}
        if secret:
            from quillcast.live.transport.hello import Identity  # missing in earlier versions (`compare.py`)

            options["identity"] = Identity.of_secret(bytes.fromhex(secret))
        live = quillcast.LiveConfig() if local_ipc else quillcast.LiveConfig(local_ipc=False)
        if bundle_bytes:  # so that each event has a bundle of its own
            live = msgspec.structs.replace(live, publish_bytes=bundle_bytes)
            config = quillcast.Config()
            topics = msgspec.structs.replace(config.topics, bundle_bytes=bundle_bytes)
            options["config"] = msgspec.structs.replace(config, topics=topics)
        topics = quillcast.Config().topics
        self.node = quillcast.connect(live=live, **options) if shares else quillcast.Node(live=live, **options)
        await self.node.start()
        return {
            "id": self.node.contact.node_id.hex(),
            "version": quillcast.__version__,
            "delivery": "reliable",
            "journal": "journal" in options,
            "tls": "credential" in options,
            "links": "Unix sockets" if local_ipc else "TCP",
            "window_bytes": live.window_bytes,
            "publish_bytes": live.publish_bytes,
            "publisher_window_bytes": topics.window_bytes,
            "retain_bytes": topics.retain_bytes,
            "budget_bytes": topics.budget_bytes,
            "subscription_bytes": live.subscription_bytes,
        }

    async def subscribe(self, topic: str, handler: Handler) -> None:
        self.subscription = self.node.subscribe(topic, handler=handler, only_payloads=True)
        await self.subscription.started()

    async def open(self, topic: str) -> Publish:
        publisher = self.node.publisher(topic)
        await publisher.publish(b"first", wait="stable")  # a new root may hold stability for some seconds
        return publisher.publish

    async def pour(self, publish: Any, payload: bytes, count: int) -> None:
        nowait = publish.__self__.publish_nowait
        for _ in range(count):
            if not nowait(payload):
                await publish(payload)

    async def mark(self, publish: Any) -> None:
        await publish(b"", wait="stable")

    async def close(self) -> None:
        await self.node.leave()


def _youngest(network: str) -> str:
    """The socket of the most recently started peer."""
    from quillcast.live.discovery.registry import PeerRegistry

    place = PeerRegistry(network)
    return str(place.control_path(place.running()[-1].contact))


class QuillcastClient(Quillcast):
    """Applications that share the peer in the middle, which drops events that a subscriber does not read in time."""

    loses = True


class BatchCounter:
    """A `Counter` for a subscription's `batch`."""

    def __init__(self, subscription: Any) -> None:
        self._subscription, self._count = subscription, 0

    async def until_marked(self) -> None:
        async for payload in self._subscription:
            if not payload:
                return

    def expect(self, count: int) -> None:
        self._count = count

    async def taken(self) -> dict[str, Any]:
        batch, count = self._subscription.batch, self._count
        left, began_s = count, 0.0
        while left > 0:
            taken = await batch()
            if not taken:
                raise SystemExit(f"the subscription ended before {left} events")
            for _payload in taken:
                if left == count:
                    began_s = time.perf_counter()
                left -= 1
        return {"events_per_s": (count - 1) / (time.perf_counter() - began_s), "lost": 0}


class QuillcastBatch(Quillcast):
    """The same peers with a loop that takes all available events at once."""

    counter: ClassVar[type[BatchCounter]] = BatchCounter

    async def count(self, topic: str) -> BatchCounter:
        subscription = self.node.subscribe(topic, only_payloads=True)
        await subscription.started()
        return self.counter(subscription)


class AwaitingCounter(BatchCounter):
    """A counter that awaits every event."""

    async def taken(self) -> dict[str, Any]:
        count = left = self._count
        began_s = 0.0
        async for _payload in self._subscription:
            if left == count:
                began_s = time.perf_counter()
            left -= 1
            if not left:
                break
        return {"events_per_s": (count - 1) / (time.perf_counter() - began_s), "lost": 0}


class QuillcastAwaited(QuillcastBatch):
    """The same peers, with an `await` for every event at both ends."""

    pour = Client.pour
    counter = AwaitingCounter
