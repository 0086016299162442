"""A process of a run: one node that reads and writes as its part says, and writes down what its handlers saw.

It takes a `Part` as JSON, says `ready` and `finished` on its standard output, and is told `finish` and `leave` on its
standard input.
"""

import asyncio
import random
import resource
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import quillcast
from tests.live.chaos import diary as entry
from tests.live.chaos import plan
from tests.live.chaos.diary import Diary

WEIGH_S = 1.0
TAKEN_S = 0.005  # between two looks whether the publisher has taken an event
STAY_S = (0.5, 6.0)  # how long a subscription that comes and goes lasts
AWAY_S = (0.0, 1.0)


class Orders(msgspec.Struct, frozen=True):
    """What a process is told when it starts."""

    part: plan.Part
    life: int
    seed: int
    diary: str
    node: dict[str, Any]
    config: quillcast.Config
    live: quillcast.LiveConfig
    settings: tuple[plan.Setting, ...]
    finish_s: float
    """How long a writer's last event may take to be stable."""


class Worker:
    """What one node does."""

    def __init__(self, orders: Orders, node: quillcast.Node, diary: Diary) -> None:
        self.orders, self.node, self.diary = orders, node, diary
        self.rng = random.Random(f"{orders.seed} {orders.part.name} {orders.life}")
        self.who = f"{orders.part.name}.{orders.life}"
        self.finishing = asyncio.Event()
        self.readers = 0
        self._doing: list[asyncio.Task[None]] = []
        self._writing: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Subscribe, and publish from then on."""
        for setting in self.orders.settings:
            await self.node.create(setting.topic, slow=setting.slow)
        stay = [reading for reading in self.orders.part.reads if not reading.comes_and_goes]
        await asyncio.gather(*(self._subscribe(reading) for reading in stay))
        come_and_go = [reading for reading in self.orders.part.reads if reading.comes_and_goes]
        doing = [self._weigh(), *(self._come_and_go(reading) for reading in come_and_go)]
        self._doing = [asyncio.create_task(work) for work in doing]

    def write(self) -> None:
        """Publish from now on."""
        self._writing = [asyncio.create_task(Writer(self, topic).write()) for topic in self.orders.part.writes]

    async def finish(self) -> None:
        """Publish each writer's last event; returns when it is acknowledged, or will not be."""
        self.finishing.set()
        await asyncio.wait(self._writing)

    async def end(self) -> None:
        """Do nothing more."""
        tasks = [*self._doing, *self._writing]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def paused(self, seconds: float) -> bool:
        """Wait, but not beyond the end; is it to go on?"""
        try:
            await asyncio.wait_for(self.finishing.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def _weigh(self) -> None:
        going_on = True
        while going_on:
            with open("/proc/self/statm") as statm:  # noqa: ASYNC230, PTH123 - one line, and no disk
                rss_bytes = int(statm.read().split()[1]) * resource.getpagesize()
            self.diary.note(entry.Weighed, rss_bytes, self.node.status().counters.links_opened)
            going_on = await self.paused(WEIGH_S)

    # --- readers

    async def _subscribe(self, reading: plan.Reading) -> tuple[str, quillcast.Subscription[quillcast.Event]]:
        self.readers += 1
        reader = f"{self.who}.{reading.topic}.{self.readers}"
        self.diary.note(entry.Subscribing, reader, reading.topic, reading.pause_s > 0)

        def take(event: quillcast.Event) -> None:
            came = *read(event.payload), event.sequence, whole(event.payload), event.recovered
            self.diary.note(entry.Delivered, reader, *came)

        async def take_slowly(event: quillcast.Event) -> None:
            await self.paused(reading.pause_s)
            take(event)

        def lost(loss: quillcast.Loss) -> None:
            what, term = (loss.publisher.hex(), loss.first, loss.last, loss.why), loss.term
            self.diary.note(entry.Lost, reader, *what, f"{term.counter}:{term.node.hex()}")

        handler = take_slowly if reading.pause_s else take
        subscription = self.node.subscribe(reading.topic, handler=handler, on_lost=lost)
        try:
            await subscription.started()
            self.diary.note(entry.Started, reader)
        except quillcast.QuillcastError as problem:
            self.diary.note(entry.NotStarted, reader, f"{type(problem).__name__}: {problem}")
        return reader, subscription

    async def _come_and_go(self, reading: plan.Reading) -> None:
        while not self.finishing.is_set():
            reader, subscription = await self._subscribe(reading)
            if await self.paused(self.rng.uniform(*STAY_S)):
                self.diary.note(entry.Closed, reader)
                await subscription.close()
                await self.paused(self.rng.uniform(*AWAY_S))


class Writer:
    """A publisher, whose events say whose they are and the how manieth."""

    def __init__(self, worker: Worker, topic: str) -> None:
        self._worker, self._diary = worker, worker.diary
        self._name = f"{worker.who}.{topic}"
        self._publisher = worker.node.publisher(topic)
        self._count = 0
        self._asked: set[asyncio.Task[None]] = set()
        self._diary.note(entry.Opened, self._name, topic, self._publisher.id.hex())

    async def write(self) -> None:
        worker = self._worker
        while await worker.paused(1 / plan.PER_S):
            if not await self._publish(worker.rng.choice(plan.SIZES), plan.WAITS[self._count % len(plan.WAITS)]):
                return
        await self._publish(0, "stable")
        await asyncio.gather(*self._asked)

    async def _publish(self, size_bytes: int, wait: str) -> bool:
        """Publish an event; returns when it is on its way, and was it? Its acknowledgement is waited for beside."""
        number, self._count = self._count, self._count + 1
        payload = made(self._name, number, self._worker.rng.randbytes(size_bytes))
        self._diary.note(entry.Published, self._name, number)
        publishing = asyncio.create_task(self._acknowledged(number, payload, wait))
        self._asked.add(publishing)
        publishing.add_done_callback(self._asked.discard)
        while self._publisher.sequence == number and not publishing.done():  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(TAKEN_S)
        return self._publisher.sequence > number

    async def _acknowledged(self, number: int, payload: bytes, wait: str) -> None:
        timeout_s = self._worker.orders.finish_s
        try:
            await self._publisher.publish(payload, wait=wait or None, timeout_s=timeout_s)  # type: ignore[arg-type]
        except quillcast.QuillcastError as problem:
            self._diary.note(entry.Refused, self._name, number, wait, f"{type(problem).__name__}: {problem}")
        else:
            if wait:
                self._diary.note(entry.Acknowledged, self._name, number, wait)


def made(writer: str, number: int, body: bytes) -> bytes:
    """A payload."""
    return b"%s %d %08x " % (writer.encode(), number, zlib.crc32(body)) + body


def read(payload: bytes) -> tuple[str, int]:
    """The writer and the number of an event."""
    writer, number, _ = payload.split(b" ", 2)
    return writer.decode(), int(number)


def whole(payload: bytes) -> bool:
    """Is the body as it was made?"""
    _, _, checksum, body = payload.split(b" ", 3)
    return int(checksum, 16) == zlib.crc32(body)


async def obey(worker: Worker) -> None:
    """Do as told until it is time to leave."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await worker.begin()
    worker.write()
    say("ready")
    while (order := await reader.readline()) not in (b"", b"leave\n"):
        assert order == b"finish\n"
        await worker.finish()
        say("finished")
    await worker.end()


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main(orders: Orders) -> None:
    diary = Diary(Path(orders.diary))
    diary.note(entry.Began, orders.part.name, orders.life)
    settings = {"config": orders.config, "live": orders.live, "on_problem": partial(diary.note, entry.Problem)}
    settings["journal"] = Path(orders.diary).parent / "journal"  # for people who look for a fault; the judge ignores it
    try:
        async with quillcast.Node(**settings, **orders.node) as node:
            await obey(Worker(orders, node, diary))
    except quillcast.QuillcastError as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")


if __name__ == "__main__":
    quillcast.run(main(msgspec.json.decode(sys.argv[1], type=Orders)))
