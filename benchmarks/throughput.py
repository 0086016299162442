"""Events per second from a publisher to a subscriber, through the public API; beside eclipse-zenoh, peer to peer.

quillcast: publisher, forwarder and subscriber in three processes. The forwarder is the root of the topic, which is
reliable; every process writes its journal, and a second network of three shows what that costs. zenoh: publisher and
subscriber in two processes, linked directly, blocking rather than dropping. The systems take turns in every round, and
stand still while another runs; a row is the median of the rounds. The clock runs at the subscriber, from the first
event that counts to the last; processor time is that of all processes of a system together.
"""

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SIZES = (16, 100, 1000, 10_000)
ROUNDS, QUICK_ROUNDS = 5, 1
SECONDS, QUICK_SECONDS = 4.0, 1.5
WARM_UP_S = 0.5
KEY = "benchmark/throughput"
STRIDE = 256  # events between two looks at the clock while warming up


def main() -> None:
    options = _options()
    if options.role:
        _ROLES[options.role](json.loads(options.arguments))
        return
    rows = _measure(options.sizes, options.rounds, options.seconds)
    print(_table(rows))
    if options.json:
        print(json.dumps({"benchmark": "throughput", "results": rows}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, in under a minute")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="payloads to measure")
    parser.add_argument("--rounds", type=int, help=f"rounds per size ({ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"length of one measurement ({SECONDS})")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--arguments", default="{}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    return options


# --- the conductor


class Actor:
    """A process with a role; it answers each order, a line of JSON, with a line of JSON."""

    def __init__(self, role: str, **arguments: Any) -> None:
        command = [sys.executable, __file__, "--role", role, "--arguments", json.dumps(arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first: dict[str, Any] = self.answer()

    def order(self, do: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a benchmark process ended with {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.order(do, **arguments)
        return self.answer()


class System:
    """The processes of one system, ready to carry events from `publisher` to `subscriber`."""

    def __init__(self, name: str, actors: dict[str, Actor], settings: dict[str, Any]) -> None:
        self.name, self.actors, self.settings = name, actors, settings
        self.publisher, self.subscriber = actors["publisher"], actors["subscriber"]

    def run(self, size_bytes: int, seconds: float) -> dict[str, Any]:
        """Events per second, and what each process used."""
        self.subscriber.order("warm_up")
        warm = self.publisher.ask("warm_up", size_bytes=size_bytes, seconds=WARM_UP_S)
        self.subscriber.answer()
        count = max(STRIDE, int(warm["events_per_s"] * seconds))
        for actor in self.actors.values():
            actor.ask("mark")
        self.subscriber.ask("expect", count=count)
        self.subscriber.order("take")
        self.publisher.ask("publish", size_bytes=size_bytes, count=count)
        taken = self.subscriber.answer()
        used = {role: actor.ask("used") for role, actor in self.actors.items()}
        return {
            "events_per_s": taken["events_per_s"],
            "cpu_s_per_million": {role: 1e6 * each["cpu_s"] / count for role, each in used.items()},
            "peak_rss_bytes": {role: each["peak_rss_bytes"] for role, each in used.items()},
        }

    def end(self) -> None:
        for actor in self.actors.values():
            actor.order("end")
        for actor in self.actors.values():
            actor.process.wait(30)


def _measure(sizes: list[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        systems = [_quillcast(Path(folder), journal=True), _quillcast(Path(folder), journal=False), _zenoh()]
        for size_bytes in sizes:
            runs: dict[str, list[dict[str, Any]]] = {system.name: [] for system in systems}
            for _ in range(rounds):
                for system in systems:
                    runs[system.name].append(system.run(size_bytes, seconds))
            rows += [_row(system, size_bytes, runs[system.name]) for system in systems]
        for system in systems:
            system.end()
    return rows


def _row(system: System, size_bytes: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    roles = list(system.actors)
    cpu = {role: statistics.median(run["cpu_s_per_million"][role] for run in runs) for role in roles}
    return {
        "system": system.name,
        "size_bytes": size_bytes,
        "events_per_s": round(statistics.median(run["events_per_s"] for run in runs)),
        "cpu_s_per_million": round(sum(cpu.values()), 3),
        "cpu_s_per_million_by_role": {role: round(used, 3) for role, used in cpu.items()},
        "peak_rss_bytes": {role: max(run["peak_rss_bytes"][role] for run in runs) for role in roles},
        "rounds": len(runs),
        "settings": system.settings,
    }


def _quillcast(folder: Path, *, journal: bool) -> System:
    """Three nodes, and a topic whose root is the forwarder: the first name whose id is closest to it."""
    from quillcast import Config, LiveConfig
    from quillcast.core.ids import ring_distance, topic_id

    network = f"benchmark-{time.time_ns()}"
    actors = {
        role: Actor(f"quillcast-{role}", network=network, journal=str(folder / role) if journal else None)
        for role in ("forwarder", "subscriber", "publisher")
    }
    ids = {role: bytes.fromhex(actor.first["node_id"]) for role, actor in actors.items()}
    names = (f"{KEY}/{number}" for number in range(1 << 20))
    topic = next(
        name for name in names if min(ids, key=lambda role: ring_distance(ids[role], topic_id(name))) == "forwarder"
    )
    for actor in actors.values():
        actor.ask("begin", topic=topic)
    tree = actors["forwarder"].ask("tree")
    links = {(peer["node_id"], peer["parent"]) for peer in tree["peers"]}
    expected = {(ids["forwarder"].hex(), None), (ids["subscriber"].hex(), ids["forwarder"].hex())}
    if links != expected:
        raise SystemExit(f"the tree is not publisher, forwarder, subscriber: {tree}")
    live, topics = LiveConfig(), Config().topics
    settings = {
        "window_bytes": live.window_bytes,
        "publish_bytes": live.publish_bytes,
        "publisher_window_bytes": topics.window_bytes,
        "retain_bytes": topics.retain_bytes,
        "budget_bytes": topics.budget_bytes,
        "subscription_bytes": live.subscription_bytes,
        "journal": journal,
        "delivery": "reliable",
    }
    return System("quillcast" if journal else "quillcast, no journal", actors, settings)


def _zenoh() -> System:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"tcp/127.0.0.1:{free.getsockname()[1]}"
    subscriber = Actor("zenoh-subscriber", endpoint=endpoint)
    publisher = Actor("zenoh-publisher", endpoint=endpoint)
    settings = {"version": publisher.first["version"], "congestion_control": "block", "mode": "peer"}
    return System("zenoh", {"publisher": publisher, "subscriber": subscriber}, settings)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'system':22} {'bytes':>6} {'events/s':>12} {'cpu s/million':>14}  peak RSS"]
    for row in rows:
        peaks = ", ".join(f"{role} {bytes_ / 2**20:.0f} MiB" for role, bytes_ in row["peak_rss_bytes"].items())
        figures = f"{row['events_per_s']:12,} {row['cpu_s_per_million']:14.3f}"
        lines.append(f"{row['system']:22} {row['size_bytes']:6} {figures}  {peaks}")
    by_system = {row["system"]: row["settings"] for row in rows}
    lines += [f"{system}: {json.dumps(settings)}" for system, settings in by_system.items()]
    return "\n".join(lines)


# --- the roles


class Meter:
    """Processor time and the peak of memory since the last mark."""

    def __init__(self) -> None:
        self._cpu_s = 0.0

    def mark(self) -> dict[str, Any]:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._cpu_s = time.process_time()
        return {}

    def used(self) -> dict[str, Any]:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        peak_bytes = int(status["VmHWM"].split()[0]) * 1024
        return {"cpu_s": time.process_time() - self._cpu_s, "peak_rss_bytes": peak_bytes}


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


async def _obey(orders: dict[str, Callable[..., Awaitable[dict[str, Any]]]]) -> None:
    """Carry orders out until the end is ordered."""
    meter = Meter()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        match order.pop("do"):
            case "end":
                return
            case "mark":
                _say(**meter.mark())
            case "used":
                _say(**meter.used())
            case what:
                _say(**await orders[what](**order))


def _quillcast_role(play: Callable[[Any], Awaitable[None]]) -> Callable[[dict[str, Any]], None]:
    def run(arguments: dict[str, Any]) -> None:
        import quillcast

        async def with_node() -> None:
            async with quillcast.Node(**arguments) as node:
                _say(node_id=node.contact.node_id.hex())
                await play(node)

        quillcast.run(with_node())

    return run


async def _forward(node: Any) -> None:
    topics: list[str] = []

    async def begin(topic: str) -> dict[str, Any]:
        await node.create(topic)
        topics.append(topic)
        return {}

    async def tree() -> dict[str, Any]:
        shown: dict[str, Any] = await node.tree(topics[0])
        return shown

    await _obey({"begin": begin, "tree": tree})


async def _subscribe(node: Any) -> None:
    subscriptions: list[Any] = []
    counts: list[int] = []

    async def begin(topic: str) -> dict[str, Any]:
        subscriptions.append(node.subscribe(topic))
        await subscriptions[0].started()
        return {}

    async def warm_up() -> dict[str, Any]:
        async for event in subscriptions[0]:
            if not event.payload:
                break
        return {}

    async def expect(count: int) -> dict[str, Any]:
        counts.append(count)
        return {}

    async def take() -> dict[str, Any]:
        count = left = counts.pop()
        began = 0.0
        async for _event in subscriptions[0]:
            if left == count:
                began = time.perf_counter()
            left -= 1
            if not left:
                break
        return {"events_per_s": (count - 1) / (time.perf_counter() - began)}

    await _obey({"begin": begin, "warm_up": warm_up, "expect": expect, "take": take})


async def _publish(node: Any) -> None:
    publishers: list[Any] = []

    async def begin(topic: str) -> dict[str, Any]:
        publishers.append(node.publisher(topic))
        await publishers[0].publish(b"first", wait="stable")  # a new root may hold stability for some seconds
        return {}

    async def warm_up(size_bytes: int, seconds: float) -> dict[str, Any]:
        publish, payload = publishers[0].publish, bytes(size_bytes)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(STRIDE):
                await publish(payload)
            count += STRIDE
        await publish(b"", wait="stable")
        return {"events_per_s": count / (time.perf_counter() - began)}

    async def publish_all(size_bytes: int, count: int) -> dict[str, Any]:
        publish, payload = publishers[0].publish, bytes(size_bytes)
        for _ in range(count):
            await publish(payload)
        return {}

    await _obey({"begin": begin, "warm_up": warm_up, "publish": publish_all})


def _zenoh_session(**endpoints: str) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    for side, endpoint in endpoints.items():
        config.insert_json5(f"{side}/endpoints", json.dumps([endpoint]))
    return zenoh.open(config)


def _zenoh_publisher(arguments: dict[str, Any]) -> None:
    import importlib.metadata

    import zenoh

    session = _zenoh_session(connect=arguments["endpoint"])
    publisher = session.declare_publisher(KEY, congestion_control=zenoh.CongestionControl.BLOCK)
    while not publisher.matching_status.matching:
        time.sleep(0.01)
    _say(version=importlib.metadata.version("eclipse-zenoh"))

    async def warm_up(size_bytes: int, seconds: float) -> dict[str, Any]:
        put, payload = publisher.put, bytes(size_bytes)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(STRIDE):
                put(payload)
            count += STRIDE
        put(b"")
        return {"events_per_s": count / (time.perf_counter() - began)}

    async def publish(size_bytes: int, count: int) -> dict[str, Any]:
        put, payload = publisher.put, bytes(size_bytes)
        for _ in range(count):
            put(payload)
        return {}

    asyncio.run(_obey({"warm_up": warm_up, "publish": publish}))
    session.close()


def _zenoh_subscriber(arguments: dict[str, Any]) -> None:
    session = _zenoh_session(listen=arguments["endpoint"])
    taker = ZenohTaker()
    session.declare_subscriber(KEY, taker.take)
    _say()

    async def warm_up() -> dict[str, Any]:
        await asyncio.to_thread(taker.warm.wait)
        taker.warm.clear()
        return {}

    async def expect(count: int) -> dict[str, Any]:
        taker.begin(count)
        return {}

    async def take() -> dict[str, Any]:
        await asyncio.to_thread(taker.done.wait)
        return {"events_per_s": (taker.count - 1) / taker.seconds}

    asyncio.run(_obey({"warm_up": warm_up, "expect": expect, "take": take}))
    session.close()


class ZenohTaker:
    """Counts samples in the thread that zenoh calls back in; like the other side it takes every payload as bytes."""

    def __init__(self) -> None:
        self.warm, self.done = threading.Event(), threading.Event()
        self.count = self.left = 0
        self.began = self.seconds = 0.0

    def begin(self, count: int) -> None:
        self.done.clear()
        self.count = self.left = count

    def take(self, sample: Any) -> None:
        payload = sample.payload.to_bytes()
        if not payload:
            self.warm.set()
        elif self.left:
            if self.left == self.count:
                self.began = time.perf_counter()
            self.left -= 1
            if not self.left:
                self.seconds = time.perf_counter() - self.began
                self.done.set()


_ROLES: dict[str, Callable[[dict[str, Any]], None]] = {
    "quillcast-forwarder": _quillcast_role(_forward),
    "quillcast-subscriber": _quillcast_role(_subscribe),
    "quillcast-publisher": _quillcast_role(_publish),
    "zenoh-subscriber": _zenoh_subscriber,
    "zenoh-publisher": _zenoh_publisher,
}


if __name__ == "__main__":
    main()
