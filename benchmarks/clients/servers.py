"""Systems whose processes talk through a server."""

import asyncio
import ssl
from functools import partial
from typing import Any

from clients.base import STRIDE, Client, Handler, Publish

PENDING_BYTES_MAX = 1 << 30  # of unhandled events at a subscriber of NATS; by default it drops at full speed


class Nats(Client):
    """nats-py through nats-server."""

    library = "nats-py"

    async def connect(self, port: int, tls: dict[str, str] | None = None) -> dict[str, Any]:
        import nats

        if tls is None:
            self.client = await nats.connect(f"nats://127.0.0.1:{port}")
        else:
            trusting = ssl.create_default_context(cafile=tls["authority"])
            self.client = await nats.connect(f"tls://127.0.0.1:{port}", tls=trusting)
        return {"version": self.version(), "server": "nats-server, at most 1 GiB pending", "tls": tls is not None}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        async def take(message: Any) -> None:
            handler(message.data)

        subject = topic.replace("/", ".")
        await self.client.subscribe(subject, cb=take, pending_msgs_limit=-1, pending_bytes_limit=PENDING_BYTES_MAX)
        await self.client.flush()

    async def open(self, topic: str) -> Publish:
        return partial(self.client.publish, topic.replace("/", "."))

    async def close(self) -> None:
        await self.client.drain()


class Paho(Client):
    """paho-mqtt, QoS 0, through mosquitto."""

    library = "paho-mqtt"
    waits = False

    async def connect(self, port: int) -> dict[str, Any]:
        from paho.mqtt.client import CallbackAPIVersion
        from paho.mqtt.client import Client as MqttClient

        self.client, self.handlers = MqttClient(CallbackAPIVersion.VERSION2), dict[str, list[Handler]]()
        self.client.on_message = self._take
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        return {"version": self.version(), "server": "mosquitto, at most 1,000,000 messages queued", "qos": 0}

    def _take(self, client: Any, data: Any, message: Any) -> None:
        for handler in self.handlers[message.topic]:
            handler(message.payload)

    async def subscribe(self, topic: str, handler: Handler) -> None:
        self.handlers.setdefault(topic, []).append(handler)
        subscribed = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.client.on_subscribe = lambda *_: loop.call_soon_threadsafe(subscribed.set)
        self.client.subscribe(topic, 0)
        await subscribed.wait()

    async def open(self, topic: str) -> Publish:
        return partial(self._put, topic)

    def _put(self, topic: str, payload: bytes) -> None:
        """Publish, and now and then let the library's thread catch up, because its queue is unbounded."""
        published = self.client.publish(topic, payload)
        if published.mid % STRIDE == 0:
            published.wait_for_publish()

    async def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Redis(Client):
    """redis-py's asyncio client, pub/sub through redis-server."""

    library = "redis"

    async def connect(self, port: int) -> dict[str, Any]:
        import redis.asyncio as redis

        self.client, self.tasks = redis.Redis(port=port), list[asyncio.Task[None]]()
        return {
            "version": self.version(),
            "server": "redis-server, at most 1 GiB of output",
            "at_full_speed": f"pipelines of {STRIDE}",
        }

    async def subscribe(self, topic: str, handler: Handler) -> None:
        listener = self.client.pubsub(ignore_subscribe_messages=True)
        await listener.subscribe(topic)

        async def take() -> None:
            async for message in listener.listen():
                handler(message["data"])

        self.tasks.append(asyncio.create_task(take()))

    async def open(self, topic: str) -> Publish:
        return partial(self.client.publish, topic)

    async def pour(self, publish: Any, payload: bytes, count: int) -> None:
        """Send many commands at once, because each is answered."""
        (topic,) = publish.args
        for first in range(0, count, STRIDE):
            async with self.client.pipeline(transaction=False) as pipeline:
                for _ in range(min(STRIDE, count - first)):
                    pipeline.publish(topic, payload)
                await pipeline.execute()

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.client.aclose()
