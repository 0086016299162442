"""`quillcast bench`: measure delays and rates of a network, from publishing to the handler."""

import asyncio
import math
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import click
import msgspec
from msgspec import structs

from quillcast.cli.beat import Beat
from quillcast.cli.options import JSON, TOPIC, Amount, Count
from quillcast.cli.peering import Peering, peering
from quillcast.cli.running import run
from quillcast.cli.tables import sized
from quillcast.core.errors import QuillcastError
from quillcast.core.status.commands import BenchLatency, BenchReceived, BenchResult
from quillcast.live.edges.publisher import Publisher
from quillcast.live.edges.subscription import Event, Subscription
from quillcast.live.node.node import Node
from quillcast.protocol.topics.descriptor import EVENT_BYTES_MAX

STRIDE = 64  # events between two looks at the clock
EVENTS_MAX = 1e15  # more than anybody waits for, and exactly representable
LATE_S = 1.0  # give up on a rate when it lags behind by this much; a guess
PROBE_S = 0.01  # between two measurements of an acknowledgement
SAMPLES_MAX = 1 << 20  # beyond this, every other sample is dropped
IDLE_S = 2.0  # a stream that pauses for this long has ended
TICKS_MIN, TICKS_MAX = 1.0, 1000.0  # checks per second for due events, which are published together

SIZE = click.option(
    "--size",
    "size_bytes",
    type=Count(min=0, max=EVENT_BYTES_MAX),
    default=100,
    show_default=True,
    help="Bytes per event.",
)
SECONDS = click.option("--seconds", type=Amount(min=0, min_open=True), default=5.0, show_default=True, help="Duration.")


@click.group(invoke_without_command=True, short_help="Measure rates and delays: bench pub, sub, latency.")
@click.pass_context
def command(context: click.Context) -> None:
    """Measure rates and delays of the network. Run `bench sub` in one terminal and `bench pub` in another."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command.command("pub")
@TOPIC
@SIZE
@click.option("--rate", type=Amount(min=0, min_open=True), help="Events per second.  [default: full speed]")
@SECONDS
@JSON
@peering
def pub(topic: str, size_bytes: int, rate: float | None, seconds: float, as_json: bool, peering: Peering) -> None:
    """Publish to TOPIC for some seconds, and measure.

    p50 and p99 are the times until the topic's root has acknowledged all published events. Ctrl-C ends it earlier.
    """
    tell = partial(_tell, as_json=as_json)

    async def measure() -> BenchResult:
        async with peering.node() as node:
            return await _publish(node, topic, size_bytes, rate, seconds, interrupted=tell)

    tell(run(measure()))


@command.command("sub", short_help="Receive from TOPIC, and measure.")
@TOPIC
@click.option("--count", type=Count(min=2), help="Stop after this many events.")
@JSON
@peering
def sub(topic: str, count: int | None, as_json: bool, peering: Peering) -> None:
    """Receive from TOPIC, and measure from the first to the last event: until --count, a pause of 2 seconds, or Ctrl-C.

    p50 and p99 are the times from publishing to here, by the clocks of the publisher and of this machine.
    """

    async def measure() -> None:
        async with peering.node() as node:
            subscription = node.subscribe(topic)
            await subscription.started()
            print(f"subscribed to {topic}; Ctrl-C ends", file=sys.stderr, flush=True)
            audience = Audience(count)
            taking = asyncio.ensure_future(audience.take(subscription))
            try:
                await audience.ended(taking)
            finally:  # also after Ctrl-C
                taking.cancel()
                _tell(audience.result(topic, subscription.lost_count), as_json=as_json)

    run(measure())


@command.command("latency", short_help="Measure the delay from publisher to subscriber.")
@click.option("--rate", type=Amount(min=0, min_open=True), default=1000.0, show_default=True, help="Events per second.")
@SIZE
@SECONDS
@JSON
@peering
def latency(rate: float, size_bytes: int, seconds: float, as_json: bool, peering: Peering) -> None:
    """Measure the delay from a publisher to a subscriber, each a process, at a fixed rate.

    Events pass through the root of a new topic, which may be any peer of the network, also one of the two.
    """
    topic = f"bench/{os.urandom(8).hex()}"

    async def measure() -> BenchLatency:
        async with peering.node() as node:
            with _subscribing(topic, peering.beside(node.address)) as subscriber:
                assert subscriber.stderr is not None
                first = await asyncio.to_thread(subscriber.stderr.readline)
                if not first.startswith("subscribed"):
                    raise QuillcastError(f"the subscriber ended: {first}")
                await _publish(node, topic, size_bytes, rate, seconds)
                out, err = await asyncio.to_thread(subscriber.communicate)
                if subscriber.returncode:
                    raise QuillcastError(f"the subscriber ended: {err}")
                root = (await node.tree(topic)).root
        received = msgspec.json.decode(out, type=BenchReceived)
        return BenchLatency(**{**structs.asdict(received), "bench": "latency"}, rate_per_s=rate, root=root)

    _tell(run(measure()), as_json=as_json)


@contextmanager
def _subscribing(topic: str, options: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run `bench sub` in a separate process, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "quillcast", "bench", "sub", topic, "--json", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()  # it waits for an event that may not come


# --- publishing


async def _publish(
    node: Node,
    topic: str,
    size_bytes: int,
    rate: float | None,
    seconds: float,
    *,
    interrupted: Callable[[BenchResult], None] = lambda _: None,
) -> BenchResult:
    """Publish, and return the measurements. Calls `interrupted` if this is cancelled meanwhile."""
    payload, delays = os.urandom(size_bytes), Samples()
    with closing(node.publisher(topic, timed=rate is not None)) as publisher:
        await publisher.publish(payload)  # finds the root
        began = time.perf_counter()
        probing = asyncio.ensure_future(_probe(publisher, delays)) if publisher.reliable else None
        try:
            await (_at_rate(publisher, payload, rate, seconds) if rate else _at_full_speed(publisher, payload, seconds))
        except asyncio.CancelledError:
            interrupted(_published(publisher, topic, size_bytes, began, delays))
            raise
        result = _published(publisher, topic, size_bytes, began, delays)
        if probing is not None:
            probing.cancel()
            await publisher.acknowledged("root")
        return result


def _published(publisher: Publisher, topic: str, size_bytes: int, began: float, delays: "Samples") -> BenchResult:
    """The measurements so far. The first event found the root and does not count."""
    events = publisher.sequence - 1
    return _result("pub", topic, events, size_bytes * events, time.perf_counter() - began, delays)


async def _at_rate(publisher: Publisher, payload: bytes, rate: float, seconds: float) -> None:
    ticks = min(max(rate, TICKS_MIN), TICKS_MAX)
    early = 0.5 * rate / ticks  # half an interval's events: publish what is due about now
    published, wanted = 0, math.ceil(min(rate * seconds, EVENTS_MAX))
    async with Beat(ticks) as beat:
        began = time.perf_counter()
        while published < wanted and (passed_s := time.perf_counter() - began) < seconds + LATE_S:
            due = min(wanted, int(passed_s * rate + early) + 1)
            step = min(due - published, STRIDE)
            for _ in range(step):
                await publisher.publish(payload)
            published += step
            if published == due < wanted:
                await beat.next()


async def _at_full_speed(publisher: Publisher, payload: bytes, seconds: float) -> None:
    publish_nowait, publish, until = publisher.publish_nowait, publisher.publish, time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(STRIDE):
            if not publish_nowait(payload):
                await publish(payload)


async def _probe(publisher: Publisher, delays: "Samples") -> None:
    while True:
        began = time.perf_counter()
        await publisher.acknowledged("root")
        delays.add(int(1e9 * (time.perf_counter() - began)))
        await asyncio.sleep(PROBE_S)


# --- receiving


class Audience:
    """Counts events as they arrive, and records their delays."""

    def __init__(self, count_max: int | None) -> None:
        self._count_max = count_max
        self._count = self._size_bytes = 0
        self._first_s = self._last_s = 0.0
        self._delays = Samples()

    async def take(self, subscription: Subscription[Event]) -> None:
        """Receive events until there are enough, or the subscription ends."""
        while self._count != self._count_max and (events := await subscription.batch()):
            now_ns = time.time_ns()
            if not self._count:
                self._first_s = time.perf_counter()
            if self._count_max is not None:
                del events[self._count_max - self._count :]
            for event in events:
                self._delays.add(now_ns - event.time_ns)
                self._size_bytes += len(event.payload)
            self._count += len(events)
            self._last_s = time.perf_counter()

    async def ended(self, taking: "asyncio.Future[None]") -> None:
        """Wait until there are enough events, or none arrived for a while after the first."""
        before = 0
        while not taking.done() and not (before and before == self._count):
            before = self._count
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(taking), IDLE_S)

    def result(self, topic: str, lost: int) -> BenchReceived:
        """The measurements. The first event starts the clock and is not counted in rates."""
        seconds = self._last_s - self._first_s
        share = (self._count - 1) / self._count if self._count > 1 else 0.0
        result = _result("sub", topic, self._count, self._size_bytes, seconds, self._delays, share=share)
        return BenchReceived(**structs.asdict(result), lost=lost)


class Samples:
    """Times in nanoseconds. Whenever there are too many, every other one is dropped."""

    def __init__(self) -> None:
        self._kept = array("q")
        self._stride = self._skipped = 1

    def add(self, time_ns: int) -> None:
        """Record one."""
        if self._skipped < self._stride:
            self._skipped += 1
            return
        self._skipped = 1
        self._kept.append(time_ns)
        if len(self._kept) >= SAMPLES_MAX:
            self._kept = self._kept[::2]
            self._stride *= 2

    def percentile_ms(self, percent: float) -> float | None:
        """The percentile in milliseconds; None if there are no samples."""
        if not self._kept:
            return None
        ordered = sorted(self._kept)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] / 1e6, 4)


# --- output


def _result(
    what: str, topic: str, events: int, size_bytes: int, seconds: float, delays: Samples, *, share: float = 1.0
) -> BenchResult:
    per_s: Callable[[float], float] = lambda count: round(share * count / seconds, 1) if seconds > 0 else 0.0  # noqa: E731
    p50_ms, p99_ms = delays.percentile_ms(50), delays.percentile_ms(99)
    return BenchResult(
        what, topic, events, size_bytes, round(seconds, 3), per_s(events), per_s(size_bytes), p50_ms, p99_ms
    )


MEANT = {"pub": "acknowledged after", "sub": "delay", "latency": "delay"}


def _tell(result: BenchResult, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
        return
    lost = f", {result.lost:,} lost" if isinstance(result, BenchReceived) and result.lost else ""
    times = [
        f"{name} {time_ms} ms"
        for name, time_ms in (("p50", result.p50_ms), ("p99", result.p99_ms))
        if time_ms is not None
    ]
    click.echo(
        f"{result.events:,} events in {result.seconds:.2f} s{lost}: {result.events_per_s:,.0f} events/s, "
        f"{sized(result.bytes_per_s)}/s" + (f"; {MEANT[result.bench]} {', '.join(times)}" if times else "")
    )
