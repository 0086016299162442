"""A process with one node, moved by lines of JSON on its standard input; each answers with one line.

`{"do": "publish", ...}` calls `Puppet.publish(...)`; an answer is `{"answer": ...}` or `{"error": text, "type": name}`.
"""

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

import quillcast
from quillcast.live.transport.hello import Identity


class Deliveries:
    """What a subscription got: events are `tag:number`, and each tag counts from 0."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.last_at, self.longest_gap_s = 0.0, 0.0

    def take_gap(self) -> float:
        """The longest time without an event since this was asked last, or since the first event."""
        self._note_gap()
        longest_s, self.longest_gap_s = self.longest_gap_s, 0.0
        return longest_s

    def _note_gap(self) -> None:
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - (self.last_at or now))
        self.last_at = now

    def take(self, event: quillcast.Event) -> None:
        self._note_gap()
        tag, number = event.payload.split(b":")[:2]
        name, value = tag.decode(), int(number)
        expected = self.next.get(name)
        if expected is None:
            self.first[name] = value
        elif value != expected:
            self.wrong.append(f"{name}: {value} came where {expected} was due")
        self.next[name] = value + 1
        self.counts[name] += 1


class Puppet:
    """One node and what it was told to do."""

    def __init__(self, node: quillcast.Node) -> None:
        self.node = node
        self.deliveries: dict[str, Deliveries] = {}
        self.subscriptions: dict[str, quillcast.Subscription[quillcast.Event]] = {}
        self.published: Counter[str] = Counter()
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def who(self) -> dict[str, str]:
        return {"node_id": self.node.contact.node_id.hex(), "address": self.node.address}

    async def create(self, topic: str, **settings: Any) -> None:
        await self.node.create(topic, **settings)

    async def subscribe(self, topic: str, pause_s: float = 0.0, **options: Any) -> int:
        deliveries = self.deliveries[topic] = Deliveries()

        async def slowly(event: quillcast.Event) -> None:
            await asyncio.sleep(pause_s)
            deliveries.take(event)

        handler = slowly if pause_s else deliveries.take
        subscription = self.subscriptions[topic] = self.node.subscribe(topic, handler=handler, **options)
        return (await subscription.started()).index

    async def unsubscribe(self, topic: str) -> None:
        await self.subscriptions.pop(topic).close()

    async def publish(self, topic: str, tag: str, count: int, per_s: float, size_bytes: int = 0) -> None:
        """Begin to publish `count` events, at about `per_s`, or with 0 as fast as there is room."""
        self.tasks[tag] = asyncio.create_task(self._publish(topic, tag, count, per_s, size_bytes))

    async def publish_in_turns(self, topic: str, tags: list[str], count: int, per_s: float) -> None:
        """Begin to publish `count` events of each tag, each by a publisher of its own, about `per_s` a second."""
        self.tasks[tags[0]] = asyncio.create_task(self._publish_in_turns(topic, tags, count, per_s))

    async def _publish_in_turns(self, topic: str, tags: list[str], count: int, per_s: float) -> None:
        publishers = {tag: self.node.publisher(topic) for tag in tags}
        began = asyncio.get_running_loop().time()
        for number in range(count):
            for tag, publisher in publishers.items():
                await publisher.publish(b"%s:%d" % (tag.encode(), number))
                self.published[tag] += 1
            await asyncio.sleep(max(0.0, began + number / per_s - asyncio.get_running_loop().time()))

    async def _publish(self, topic: str, tag: str, count: int, per_s: float, size_bytes: int) -> None:
        filling = b":" + bytes(size_bytes)
        began = asyncio.get_running_loop().time()
        for number in range(count):
            await self.node.publish(topic, b"%s:%d" % (tag.encode(), number) + filling)
            self.published[tag] += 1
            if per_s:
                await asyncio.sleep(max(0.0, began + number / per_s - asyncio.get_running_loop().time()))

    async def say(self, topic: str, text: str, **options: Any) -> None:
        await self.node.publish(topic, text.encode(), **options)

    async def progress(self) -> dict[str, int]:
        return dict(self.published)

    async def finish(self, tag: str) -> int:
        await self.tasks[tag]
        return self.published[tag]

    async def report(self, topic: str) -> dict[str, Any]:
        got, subscription = self.deliveries[topic], self.subscriptions[topic]
        return {
            "next": got.next,
            "first": got.first,
            "counts": got.counts,
            "wrong": got.wrong,
            "lost": subscription.lost_count,
            "losses": [loss.why for loss in subscription.lost],
        }

    async def gap(self, topic: str) -> float:
        return self.deliveries[topic].take_gap()

    async def status(self) -> dict[str, Any]:
        return {
            **msgspec.to_builtins(self.node.status()),
            "rss_bytes": _rss_bytes(),
            "peak_rss_bytes": _peak_rss_bytes(),
        }

    async def manage_scope(self, file: str) -> str:
        return await self.node.manage_scope(Path(file))

    async def invite(self) -> str:
        return str(self.node.invite())

    async def tree(self, topic: str) -> Any:
        return msgspec.to_builtins(await self.node.tree(topic))


def _rss_bytes() -> int:
    with open("/proc/self/statm") as statm:  # noqa: PTH123 - one line, and no folder
        return int(statm.read().split()[1]) * resource.getpagesize()


def _peak_rss_bytes() -> int:
    """Of this program; `getrusage` would tell what the process that started it had in memory, if that was more."""
    with open("/proc/self/status") as status:  # noqa: PTH123 - one line, and no folder
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def obey(puppet: Puppet, orders: asyncio.StreamReader) -> None:
    while line := await orders.readline():
        order = json.loads(line)
        what = order.pop("do")
        if what == "leave":
            return
        try:
            say({"answer": await getattr(puppet, what)(**order)})
        except quillcast.QuillcastError as problem:
            say({"error": str(problem), "type": type(problem).__name__})


async def main(arguments: dict[str, Any]) -> None:
    arguments["config"] = msgspec.convert(arguments.get("config", {}), quillcast.Config)
    arguments["live"] = msgspec.convert(arguments.get("live", {}), quillcast.LiveConfig)
    if "identity" in arguments:
        arguments["identity"] = Identity.of_secret(bytes.fromhex(arguments["identity"]))
    orders = await lines()
    try:
        async with quillcast.Node(**arguments) as node:
            puppet = Puppet(node)
            say({"answer": await puppet.who()})
            await obey(puppet, orders)
        say({"answer": "left"})
    except quillcast.QuillcastError as problem:
        say({"error": str(problem), "type": type(problem).__name__})
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    quillcast.run(main(json.loads(sys.argv[1])))
