"""Processes that publish and subscribe for a benchmark, in any of the systems, and the servers that some of them need.

`Actor(system, ...)` starts this file as a process; it does what it is ordered, a line of JSON each, and answers so.
Every handler takes the payload as `bytes`; its first eight are when it was published, by the clock of the machine.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

STRIDE = 64  # events between two looks at the event loop of systems whose publish does not wait
SLEEP_S_MIN = 0.0002
PATIENCE_S = 120.0
STAMP_BYTES = 8

Handler = Callable[[bytes], None]


# --- the conductor's side


class Actor:
    """A process that is a client of a system."""

    def __init__(self, system: str, **options: Any) -> None:
        self.system = system
        command = [sys.executable, __file__]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.ask("connect", system=system, options=options)

    def order(self, do: str, **arguments: Any) -> None:
        """Order something; `answer` has to follow."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a process of {self.system} ended with {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Order something, and wait for it."""
        self.order(do, **arguments)
        return self.answer()

    def end(self) -> None:
        """Leave in good order."""
        with suppress(BrokenPipeError):
            self.order("end")
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def ask_all(actors: list[Actor], do: str, **arguments: Any) -> list[dict[str, Any]]:
    """Order the same of all at once."""
    for actor in actors:
        actor.order(do, **arguments)
    return [actor.answer() for actor in actors]


@contextmanager
def actors(system: str, options: list[dict[str, Any]]) -> Iterator[list[Actor]]:
    """Processes of a system, one per options; the first is the hub where systems need one that others connect to."""
    with ExitStack() as stack:
        made = []
        for each in options:
            made.append(Actor(system, **each))
            stack.callback(made[-1].end)
        yield made


def missing(system: str) -> str | None:
    """Why a system cannot be measured here, and what would help; None if it can."""
    library, server, package = NEEDS[system]
    if importlib.util.find_spec(library) is None:
        return f"no Python library {library}"
    if server is not None and _program(server) is None:
        return f"no {server}; apt-get install {package}"
    return None


@contextmanager
def network(system: str) -> Iterator[list[dict[str, Any]]]:
    """What a system needs beside its clients. Yields the options of the hub, and those of all other clients."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        match system:
            case "quillcast":
                os.environ["XDG_RUNTIME_DIR"] = folder
                yield [{}, {}]
                return
            case "zenoh":
                endpoint = f"tcp/127.0.0.1:{port}"
                yield [{"listen": endpoint}, {"connect": endpoint}]
                return
            case "nats-py":
                command = ["nats-server", "-a", "127.0.0.1", "-p", str(port)]
            case "paho-mqtt":
                settings = f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
                (Path(folder) / "mosquitto.conf").write_text(settings)
                command = ["mosquitto", "-c", f"{folder}/mosquitto.conf"]
            case "redis":
                command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
                command += ["--client-output-buffer-limit", "pubsub 0 0 0"]
        command[0] = _program(command[0]) or command[0]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _servers.append(server.pid)
        stack.callback(_servers.remove, server.pid)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        _await_port(port)
        yield [{"port": port}, {"port": port}]


_servers: list[int] = []


def cpu_s_of_server() -> float:
    """Processor time that the running server used so far, seconds; 0 for systems without one."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in _servers]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def near(node_id: str, name: str) -> str:
    """A topic of quillcast whose root will be this peer: of many names the one that hashes next to it."""
    from quillcast.core.ids import ring_distance, topic_id

    names = (f"{name}/{number}" for number in range(10_000))
    return min(names, key=lambda one: ring_distance(bytes.fromhex(node_id), topic_id(one)))


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _await_port(port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise SystemExit(f"no server came to listen at port {port}")


# --- the systems


class Client(Protocol):
    """A system's own client, made to look like the others."""

    async def connect(self, **options: Any) -> dict[str, Any]: ...
    async def subscribe(self, topic: str, handler: Handler) -> None: ...
    async def open(self, topic: str) -> Callable[[bytes], Awaitable[object]]:
        """A publisher of a topic: the function to call with every payload."""
        ...

    async def close(self) -> None: ...


class Quillcast:
    """Peers of this project, with a reliable topic."""

    async def connect(self, **options: Any) -> dict[str, Any]:
        import quillcast

        self.node = quillcast.Node(network="benchmark", **options)
        await self.node.start()
        return {"id": self.node.contact.node_id.hex(), "version": quillcast.__version__}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        await self.node.subscribe(topic, handler=lambda event: handler(event.payload)).started()

    async def open(self, topic: str) -> Callable[[bytes], Awaitable[object]]:
        publisher = self.node.publisher(topic)
        await publisher.publish(b"", wait="stable")  # a new root may hold stability for some seconds
        return publisher.publish

    async def close(self) -> None:
        await self.node.leave()


class Zenoh:
    """eclipse-zenoh, peer to peer, blocking rather than dropping."""

    async def connect(self, **endpoints: str) -> dict[str, Any]:
        import importlib.metadata

        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("scouting/gossip/enabled", "false")
        for side, endpoint in endpoints.items():
            config.insert_json5(f"{side}/endpoints", json.dumps([endpoint]))
        self.zenoh, self.session, self.kept = zenoh, zenoh.open(config), []
        return {"version": importlib.metadata.version("eclipse-zenoh")}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        self.kept.append(self.session.declare_subscriber(topic, lambda sample: handler(sample.payload.to_bytes())))

    async def open(self, topic: str) -> Callable[[bytes], Awaitable[object]]:
        publisher = self.session.declare_publisher(topic, congestion_control=self.zenoh.CongestionControl.BLOCK)
        self.kept.append(publisher)
        while not publisher.matching_status.matching:  # noqa: ASYNC110 - zenoh tells nobody
            await asyncio.sleep(0.01)
        return _yielding(publisher.put)

    async def close(self) -> None:
        self.session.close()


class Nats:
    """nats-py through nats-server."""

    async def connect(self, port: int) -> dict[str, Any]:
        import importlib.metadata

        import nats

        limits = {"pending_size": 8 << 20}
        self.client = await nats.connect(f"nats://127.0.0.1:{port}", **limits)
        return {"version": importlib.metadata.version("nats-py")}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        async def take(message: Any) -> None:
            handler(message.data)

        await self.client.subscribe(
            topic.replace("/", "."), cb=take, pending_msgs_limit=1 << 30, pending_bytes_limit=1 << 40
        )
        await self.client.flush()

    async def open(self, topic: str) -> Callable[[bytes], Awaitable[object]]:
        subject, publish = topic.replace("/", "."), self.client.publish

        async def put(payload: bytes) -> None:
            await publish(subject, payload)

        return put

    async def close(self) -> None:
        await self.client.drain()


class Paho:
    """paho-mqtt, QoS 0, through mosquitto."""

    async def connect(self, port: int) -> dict[str, Any]:
        import importlib.metadata

        from paho.mqtt.client import CallbackAPIVersion
        from paho.mqtt.client import Client as MqttClient

        self.client, self.handlers = MqttClient(CallbackAPIVersion.VERSION2), dict[str, list[Handler]]()
        self.client.on_message = self._take
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        return {"version": importlib.metadata.version("paho-mqtt")}

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

    async def open(self, topic: str) -> Callable[[bytes], Awaitable[object]]:
        return _yielding(lambda payload: self.client.publish(topic, payload, 0))

    async def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Redis:
    """redis-py's asyncio client, pub/sub through redis-server."""

    async def connect(self, port: int) -> dict[str, Any]:
        import importlib.metadata

        import redis.asyncio as redis

        self.client, self.tasks = redis.Redis(port=port), list[asyncio.Task[None]]()
        return {"version": importlib.metadata.version("redis")}

    async def subscribe(self, topic: str, handler: Handler) -> None:
        listener = self.client.pubsub(ignore_subscribe_messages=True)
        await listener.subscribe(topic)

        async def take() -> None:
            async for message in listener.listen():
                handler(message["data"])

        self.tasks.append(asyncio.create_task(take()))

    async def open(self, topic: str) -> Callable[[bytes], Awaitable[object]]:
        async def put(payload: bytes) -> None:
            await self.client.publish(topic, payload)

        return put

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await self.client.aclose()


CLIENTS: dict[str, Callable[[], Client]] = {
    "quillcast": Quillcast, "zenoh": Zenoh, "nats-py": Nats, "paho-mqtt": Paho, "redis": Redis,
}  # fmt: skip
NEEDS = {
    "quillcast": ("quillcast", None, None),
    "zenoh": ("zenoh", None, None),
    "nats-py": ("nats", "nats-server", "nats-server"),
    "paho-mqtt": ("paho", "mosquitto", "mosquitto"),
    "redis": ("redis", "redis-server", "redis-server"),
}
"""Each system's Python library, and its server and the Debian package of that."""


def _yielding(put: Callable[[bytes], object]) -> Callable[[bytes], Awaitable[object]]:
    async def publish(payload: bytes) -> None:
        put(payload)

    return publish


# --- the process's side


class Performer:
    """Carries out orders with a client."""

    def __init__(self) -> None:
        self.client: Client
        self.publishers: list[Callable[[bytes], Awaitable[object]]] = []
        self.held: list[Any] = []
        self.delays = array("q")
        self.count = 0
        self.first_ns = self.last_ns = 0
        self.cpu_s = 0.0

    async def connect(self, system: str, options: dict[str, Any]) -> dict[str, Any]:
        self.client = CLIENTS[system]()
        return await self.client.connect(**options)

    async def subscribe(self, topics: list[str]) -> dict[str, Any]:
        for topic in topics:
            await self.client.subscribe(topic, self._take)
        return {}

    def _take(self, payload: bytes) -> None:
        if not payload:
            return  # it only found the way
        now_ns = time.monotonic_ns()
        if not self.count:
            self.first_ns = now_ns
        self.count += 1
        self.last_ns = now_ns
        self.delays.append(now_ns - int.from_bytes(payload[:STAMP_BYTES], "little"))

    async def open(self, topic: str, publishers: int = 1) -> dict[str, Any]:
        self.publishers = [await self.client.open(topic) for _ in range(publishers)]
        return {}

    async def reset(self) -> dict[str, Any]:
        self.count, self.delays = 0, array("q")
        return {}

    async def publish(self, size_bytes: int, count: int, rate: float | None = None) -> dict[str, Any]:
        """Publish with every publisher in turn, at a rate or as fast as it goes."""
        began_ns, publishers, filling = time.monotonic_ns(), self.publishers, bytes(max(0, size_bytes - STAMP_BYTES))
        for number in range(count):
            if rate is not None:
                await _until(began_ns + int(1e9 * number / rate))
            elif number % STRIDE == 0:
                await asyncio.sleep(0)
            stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "little")
            await publishers[number % len(publishers)](stamp + filling)
        return {"seconds": (time.monotonic_ns() - began_ns) / 1e9}

    async def collect(self, count: int) -> dict[str, Any]:
        """Wait until so many came; when the first and the last did, and how long they took."""
        until, before = time.monotonic() + PATIENCE_S, -1
        while self.count < count and (time.monotonic() < until or self.count != before):
            before = self.count
            await asyncio.sleep(0.01)
        ordered = sorted(self.delays)
        cuts = statistics.quantiles(ordered, n=100) if len(ordered) > 1 else []
        return {
            "count": self.count, "first_ns": self.first_ns, "last_ns": self.last_ns,
            "p50_us": round(cuts[49] / 1e3, 1) if cuts else None, "p99_us": round(cuts[98] / 1e3, 1) if cuts else None,
        }  # fmt: skip

    async def hold(self, topics: int) -> dict[str, Any]:
        """Subscribe (quillcast) to so many topics, and wait until all subscriptions stand."""
        node = self.client.node  # type: ignore[attr-defined]
        for first in range(len(self.held), topics, STRIDE):
            made = [node.subscribe(f"links/{number}") for number in range(first, min(first + STRIDE, topics))]
            await asyncio.gather(*[subscription.started() for subscription in made])
            self.held += made
        return {}

    async def stand(self, seconds: float, changing: float) -> dict[str, Any]:
        """Let time pass while a share of the subscriptions is renewed every second; what the links carried."""
        node = self.client.node  # type: ignore[attr-defined]
        before, began_s, renewed = node.status(), time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < seconds:
            while renewed < int(passed_s * changing * len(self.held)):
                place = renewed % len(self.held)
                await self.held[place].close()
                self.held[place] = node.subscribe(f"links/{place}")
                renewed += 1
            await asyncio.sleep(0.05)
        after, passed_s = node.status(), time.monotonic() - began_s
        counted = {
            name: (after["counters"].get(name, 0) - before["counters"].get(name, 0)) / passed_s
            for name in ("messages_in", "bytes_out")
        }
        return {**counted, "links": sum(one["connected"] for one in after["neighbours"]), "renewed": renewed}

    async def mark(self) -> dict[str, Any]:
        self.cpu_s = time.process_time()
        return {}

    async def used(self) -> dict[str, Any]:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())  # noqa: ASYNC240
        return {"cpu_s": time.process_time() - self.cpu_s, "rss_bytes": int(status["VmRSS"].split()[0]) * 1024}


async def _until(due_ns: int) -> None:
    wait_s = (due_ns - time.monotonic_ns()) / 1e9
    if wait_s > SLEEP_S_MIN:
        await asyncio.sleep(wait_s)


async def _obey() -> None:
    loop, performer = asyncio.get_running_loop(), Performer()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        do = order.pop("do")
        if do == "end":
            break
        print(json.dumps(await getattr(performer, do)(**order)), flush=True)
    await performer.client.close()


if __name__ == "__main__":
    from quillcast import run

    run(_obey())
