"""The systems that the benchmarks put side by side: a client of each, made to look like the others, and what it needs.

`SYSTEMS` names them. Clients use the public API of their library in the way that is fastest with it, and hand every
payload over as `bytes`. Nothing here drops events by choice: full queues hold the publisher up.
"""

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import shutil
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

STRIDE = 256  # events between two looks at the clock, or at what waits
PATIENCE_S = 60.0
MESSAGES_MAX = 100_000  # at each end of a socket of pyzmq; with the default of 1,000 it carries a third less
QUIET_S = 0.5  # no subscription came for so long: all are there

Handler = Callable[[bytes], object]
Publish = Callable[[bytes], Any]
"""Publishes a payload; what it returns is awaited if the client's `waits`."""


class Counter:
    """Counts what a handler is called with, and times it from the first that counts to the last."""

    def __init__(self) -> None:
        self._marked, self._done = threading.Event(), threading.Event()
        self._count = self._left = 0
        self._began_s = self._seconds = 0.0

    def take(self, payload: bytes) -> None:
        """The handler; an empty payload is a mark, and counts for nothing."""
        if not payload:
            self._marked.set()
        elif self._left:
            if self._left == self._count:
                self._began_s = time.perf_counter()
            self._left -= 1
            if not self._left:
                self._seconds = time.perf_counter() - self._began_s
                self._done.set()

    async def until_marked(self) -> None:
        """Wait for a mark."""
        await asyncio.to_thread(self._marked.wait)
        self._marked.clear()

    def expect(self, count: int) -> None:
        """What comes from now on counts."""
        self._done.clear()
        self._count = self._left = count

    async def taken(self) -> dict[str, Any]:
        """Wait until all that is expected came, or nothing more has for a while: events per second, how many lack."""
        before, changed_s = self._left, time.perf_counter()
        while not self._done.is_set() and time.perf_counter() - changed_s < PATIENCE_S:
            await asyncio.sleep(0.01)
            if self._left != before:
                before, changed_s = self._left, time.perf_counter()
        lost, self._left = self._left, 0
        seconds = self._seconds if not lost else changed_s - self._began_s
        return {"events_per_s": (self._count - lost - 1) / seconds, "lost": lost}


class Client(ABC):
    """What the benchmarks ask of a system; `connect`, `subscribe`, `open` and `close` are each system's own."""

    library: ClassVar[str]
    waits: ClassVar[bool] = True

    def version(self) -> str:
        """The library's version."""
        return importlib.metadata.version(self.library)

    @abstractmethod
    async def connect(self, **options: Any) -> dict[str, Any]:
        """Connect with the options of `network`; what is worth telling about the settings."""

    @abstractmethod
    async def subscribe(self, topic: str, handler: Handler) -> None:
        """Have the handler called with every payload; returns when the subscription stands, where that is told."""

    @abstractmethod
    async def open(self, topic: str) -> Publish:
        """A publisher of a topic; returns when it is connected with the topic's subscribers, where that is told."""

    @abstractmethod
    async def close(self) -> None:
        """Leave."""

    async def pour(self, publish: Publish, payload: bytes, count: int) -> None:
        """Publish at full speed."""
        if self.waits:
            for _ in range(count):
                await publish(payload)
        else:
            for _ in range(count):
                publish(payload)

    async def mark(self, publish: Publish) -> None:
        """Publish a mark."""
        await self.pour(publish, b"", 1)

    async def count(self, topic: str) -> Any:
        """A subscription that only counts: a `Counter`, or what can do the same."""
        counter = Counter()
        await self.subscribe(topic, counter.take)
        return counter


# --- this project


class EventCounter:
    """What `Counter` does, with a subscription's iterator."""

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


class Quillcast(Client):
    """Peers of this project, with a reliable topic; what can be had at once is taken at once."""

    counter: ClassVar[type[EventCounter]] = EventCounter

    async def connect(self, *, nearby: bool = True, **options: Any) -> dict[str, Any]:
        import quillcast

        live, topics = quillcast.LiveConfig(local_ipc=nearby), quillcast.Config().topics
        self.node = quillcast.Node(live=live, **options)
        await self.node.start()
        return {
            "id": self.node.contact.node_id.hex(),
            "version": quillcast.__version__,
            "delivery": "reliable",
            "journal": "journal" in options,
            "tls": "credential" in options,
            "links": "Unix sockets" if nearby else "TCP",
            "window_bytes": live.window_bytes,
            "publish_bytes": live.publish_bytes,
            "publisher_window_bytes": topics.window_bytes,
            "retain_bytes": topics.retain_bytes,
            "budget_bytes": topics.budget_bytes,
            "subscription_bytes": live.subscription_bytes,
        }

    async def subscribe(self, topic: str, handler: Handler) -> None:
        await self.node.subscribe(topic, handler=handler, only_payloads=True).started()

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

    async def count(self, topic: str) -> EventCounter:
        subscription = self.node.subscribe(topic, only_payloads=True)
        await subscription.started()
        return self.counter(subscription)

    async def close(self) -> None:
        await self.node.leave()


class EachAwaited(EventCounter):
    """The same, where every event is waited for."""

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


class QuillcastAwaited(Quillcast):
    """The same peers, with an `await` for every event at both ends."""

    pour = Client.pour
    counter = EachAwaited


# --- without a server


class Zenoh(Client):
    """eclipse-zenoh, blocking rather than dropping."""

    library = "eclipse-zenoh"
    waits = False

    async def connect(self, mode: str, tls: dict[str, str] | None = None, **endpoints: str) -> dict[str, Any]:
        import zenoh

        settings: dict[str, Any] = {
            "mode": mode,
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            **{f"{side}/endpoints": [endpoint] for side, endpoint in endpoints.items()},
        }
        if tls is not None:
            settings["transport/link/tls"] = {
                "root_ca_certificate": tls["authority"],
                "listen_certificate": tls["certificate"],
                "listen_private_key": tls["key"],
            }
        config = zenoh.Config()
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
        self.zenoh, self.session, self.kept = zenoh, zenoh.open(config), list[Any]()
        return {"version": self.version(), "congestion_control": "block", "mode": mode, "tls": tls is not None}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        self.kept.append(self.session.declare_subscriber(topic, lambda sample: handler(sample.payload.to_bytes())))

    async def open(self, topic: str) -> Publish:
        publisher = self.session.declare_publisher(topic, congestion_control=self.zenoh.CongestionControl.BLOCK)
        self.kept.append(publisher)
        while not publisher.matching_status.matching:  # noqa: ASYNC110 - zenoh tells nobody
            await asyncio.sleep(0.01)
        put: Publish = publisher.put
        return put

    async def close(self) -> None:
        self.session.close()


class Cyclone(Client):
    """cyclonedds: writer and reader are reliable and keep all, so that a full cache holds the writer up.

    A writer that has waited for too long fails; what it may wait is longer than any measurement here.
    """

    library = "cyclonedds"
    waits = False

    async def connect(self, configuration: str) -> dict[str, Any]:
        os.environ["CYCLONEDDS_URI"] = configuration  # read where the first participant is made
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.idl import IdlStruct
        from cyclonedds.idl.types import sequence, uint8
        from cyclonedds.qos import Policy, Qos
        from cyclonedds.util import duration

        @dataclass
        class Sample(IdlStruct, typename="Sample"):  # type: ignore[misc]
            payload: sequence[uint8]

        self.qos = Qos(Policy.Reliability.Reliable(duration(seconds=PATIENCE_S)), Policy.History.KeepAll)
        self.sample, self.participant, self.kept = Sample, DomainParticipant(), list[Any]()
        return {"version": self.version(), "reliability": "reliable", "history": "keep all"}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        from cyclonedds.core import Listener
        from cyclonedds.sub import DataReader

        class Taking(Listener):  # type: ignore[misc]
            def on_data_available(self, reader: Any) -> None:
                for sample in reader.take(MESSAGES_MAX):
                    if sample.sample_info.valid_data:  # else it says that a writer has gone
                        handler(bytes(sample.payload))

        self.kept.append(DataReader(self.participant, self._topic(topic), qos=self.qos, listener=Taking()))

    async def open(self, topic: str) -> Publish:
        from cyclonedds.pub import DataWriter

        writer, sample = DataWriter(self.participant, self._topic(topic), qos=self.qos), self.sample
        while not writer.get_matched_subscriptions():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        return lambda payload: writer.write(sample(payload))

    def _topic(self, name: str) -> Any:
        from cyclonedds.topic import Topic

        return Topic(self.participant, name.replace("/", "_"), self.sample)

    async def close(self) -> None:
        """It ends with the process."""


class SocketCounter:
    """What `Counter` does, with a socket of pyzmq."""

    def __init__(self, socket: Any) -> None:
        self._receive, self._count = socket.recv, 0

    async def until_marked(self) -> None:
        await asyncio.to_thread(self._until_marked)

    def _until_marked(self) -> None:
        while self._receive():
            pass

    def expect(self, count: int) -> None:
        self._count = count

    async def taken(self) -> dict[str, Any]:
        return {"events_per_s": (self._count - 1) / await asyncio.to_thread(self._take), "lost": 0}

    def _take(self) -> float:
        receive = self._receive
        receive()
        began_s = time.perf_counter()
        for _ in range(self._count - 1):
            receive()
        return time.perf_counter() - began_s


class Zmq(Client):
    """pyzmq: XPUB and SUB over TCP, holding the publisher up at the high-water mark rather than dropping.

    A payload is a message of one part, and a SUB takes all that comes: no name of a topic travels. XPUB does what PUB
    does, and says besides when a subscriber has come.
    """

    library = "pyzmq"
    waits = False

    async def connect(self, **endpoints: str) -> dict[str, Any]:
        import zmq

        self.zmq, self.context, self.endpoints = zmq, zmq.Context(), endpoints
        self.context.setsockopt(zmq.SNDHWM, MESSAGES_MAX)
        self.context.setsockopt(zmq.RCVHWM, MESSAGES_MAX)
        self.handlers = list[Handler]()
        if "subscribers" in endpoints:
            threading.Thread(target=self._forward, daemon=True).start()
        return {"version": self.version(), "high_water_mark": MESSAGES_MAX, "drop": False}

    def _forward(self) -> None:
        """Be the process in the middle."""
        publishers, subscribers = self.context.socket(self.zmq.XSUB), self._xpub()
        publishers.bind(self.endpoints["publishers"])
        subscribers.bind(self.endpoints["subscribers"])
        self.zmq.proxy(publishers, subscribers)

    def _xpub(self) -> Any:
        socket = self.context.socket(self.zmq.XPUB)
        socket.setsockopt(self.zmq.XPUB_NODROP, 1)
        socket.setsockopt(self.zmq.XPUB_VERBOSE, 1)
        return socket

    def _attach(self, socket: Any, side: str) -> Any:
        """Bind or connect, as the options say."""
        if "bind" in self.endpoints:
            socket.bind(self.endpoints["bind"])
        else:
            socket.connect(self.endpoints.get("connect") or self.endpoints[side])
        return socket

    def _sub(self) -> Any:
        socket = self.context.socket(self.zmq.SUB)
        socket.setsockopt(self.zmq.SUBSCRIBE, b"")
        return self._attach(socket, "to_subscribe")

    async def subscribe(self, topic: str, handler: Handler) -> None:
        self.handlers.append(handler)
        if len(self.handlers) == 1:
            threading.Thread(target=self._receive, args=[self._sub()], daemon=True).start()

    def _receive(self, socket: Any) -> None:
        receive, handlers = socket.recv, self.handlers
        while True:
            payload = receive()
            for handler in handlers:
                handler(payload)

    async def count(self, topic: str) -> SocketCounter:
        return SocketCounter(self._sub())

    async def open(self, topic: str) -> Publish:
        if not hasattr(self, "publisher"):
            self.publisher = self._attach(self._xpub(), "to_publish")
            await asyncio.to_thread(self._await_subscribers)
        send: Publish = self.publisher.send
        return send

    def _await_subscribers(self) -> None:
        self.publisher.recv()  # the first
        while self.publisher.poll(int(1000 * QUIET_S)):
            self.publisher.recv()

    async def close(self) -> None:
        """Sockets end with the process: a thread waits in some of them."""


# --- through a server


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
        return {"version": self.version(), "server": "nats-server, max_pending 1 GiB", "tls": tls is not None}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        async def take(message: Any) -> None:
            handler(message.data)

        subject = topic.replace("/", ".")
        await self.client.subscribe(subject, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
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
        return {"version": self.version(), "server": "mosquitto, no bound of its queues", "qos": 0}

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
        """The library keeps whatever it is given, so now and then its thread has to catch up."""
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
            "server": "redis-server, no bound of its output buffers",
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
        """Each command is answered, so that many go at once."""
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


# --- all of them


@dataclass(frozen=True)
class System:
    """What a row is about."""

    client: Callable[[], Client]
    module: str
    """The Python module it takes."""
    middle: str | None = None
    """The process between publisher and subscriber, where it is another client: what it is called."""
    server: str | None = None
    """The process between them, where it is a server: its program."""
    package: str | None = None
    """Debian's package of that."""


SYSTEMS = {
    "quillcast": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, awaited": System(QuillcastAwaited, "quillcast", middle="forwarder"),
    "quillcast, TCP": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, no journal": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, TLS": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, TLS over TCP": System(Quillcast, "quillcast", middle="forwarder"),
    "zenoh": System(Zenoh, "zenoh"),
    "zenoh, Unix socket": System(Zenoh, "zenoh"),
    "zenoh, router": System(Zenoh, "zenoh", middle="router"),
    "zenoh, TLS": System(Zenoh, "zenoh"),
    "pyzmq": System(Zmq, "zmq"),
    "pyzmq, forwarder": System(Zmq, "zmq", middle="forwarder"),
    "cyclonedds": System(Cyclone, "cyclonedds"),
    "nats-py": System(Nats, "nats", server="nats-server", package="nats-server"),
    "nats-py, TLS": System(Nats, "nats", server="nats-server", package="nats-server"),
    "paho-mqtt": System(Paho, "paho", server="mosquitto", package="mosquitto"),
    "redis": System(Redis, "redis", server="redis-server", package="redis-server"),
}
COMMON = ("quillcast", "zenoh", "pyzmq", "nats-py", "paho-mqtt", "redis")
"""One of each, over plain links."""


def missing(name: str) -> str | None:
    """Why a system cannot be measured here, and what would help; None if it can."""
    system = SYSTEMS[name]
    if importlib.util.find_spec(system.module) is None:
        return f"no Python library {system.module}; make setup"
    if system.server is not None and program(system.server) is None:
        return f"no {system.server}; as root: apt-get install {system.package}"
    return None


def program(name: str) -> str | None:
    """Where a server's program is; Debian keeps some where users do not look."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
