"""The process behind an `Actor`: carries out orders with a system's client and answers, a line of JSON each.

When delays are measured, a payload's first eight bytes are its time of publication, by the machine's clock.
"""

import asyncio
import json
import os
import signal
import statistics
import sys
import time
from array import array
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from clients import PATIENCE_S, STRIDE, SYSTEMS, Client, Publish

from quillcast.cli.beat import Beat

SAMPLE_S = 0.001
STAMP_BYTES = 8
LOOK_EVENTS = 64  # between two looks at the event loop
KNOCK = b"knock"  # shorter than events that count
LATE_S = 0.05  # a longer call was blocked; the delay of a shorter one is made up for
STILL_S = 5.0  # after this long without events, no more will come


class Performer:
    """Carries out orders with a client."""

    def __init__(self) -> None:
        self.client: Client
        self.publishers: list[Publish] = []
        self.counter: Any
        self.delays = array("q")
        self.count = 0
        self.first_ns = self.last_ns = 0
        self.knocks, self.came = 0, set[int]()

    async def connect(self, system: str, options: dict[str, Any]) -> dict[str, Any]:
        folder = options.pop("folder", None)
        if folder is not None:  # so that it finds neither the user's networks nor those of other benchmarks
            os.environ |= {"XDG_RUNTIME_DIR": folder, "XDG_CONFIG_HOME": folder}
        self.client = SYSTEMS[system].client()
        return await self.client.connect(**options)

    async def open(self, topic: str, publishers: int = 1) -> dict[str, Any]:
        self.publishers = [await self.client.open(topic) for _ in range(publishers)]
        return {}

    async def create(self, topic: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Create a topic with settings of its own (quillcast)."""
        await self.client.node.create(topic, **settings)  # type: ignore[attr-defined]
        return {}

    # --- rates

    async def listen(self, topic: str) -> dict[str, Any]:
        """Subscribe, and count events."""
        self.counter = await self.client.count(topic)
        return {}

    async def until_marked(self) -> dict[str, Any]:
        """Receive events until a mark comes."""
        await self.counter.until_marked()
        return {}

    async def warm_up(self, size_bytes: int, seconds: float) -> dict[str, Any]:
        """Publish at full speed for a while, then a mark. Returns the rate."""
        publish, payload = self.publishers[0], bytes(size_bytes)
        count, began_s = 0, time.perf_counter()
        while time.perf_counter() - began_s < seconds:
            await self.client.pour(publish, payload, STRIDE)
            count += STRIDE
        await self.client.mark(publish)
        return {"events_per_s": count / (time.perf_counter() - began_s)}

    async def expect(self, count: int) -> dict[str, Any]:
        """Expect and count this many events."""
        self.counter.expect(count)
        return {}

    async def taken(self) -> dict[str, Any]:
        """Return the rate at which they came."""
        taken: dict[str, Any] = await self.counter.taken()
        return taken

    async def pour(self, size_bytes: int, count: int) -> dict[str, Any]:
        """Publish at full speed."""
        await self.client.pour(self.publishers[0], bytes(size_bytes), count)
        return {}

    async def tree(self, topic: str) -> dict[str, Any]:
        """The topic's tree (quillcast)."""
        tree: dict[str, Any] = msgspec.to_builtins(await self.client.node.tree(topic))  # type: ignore[attr-defined]
        return tree

    # --- delays

    async def subscribe(self, topics: list[str]) -> dict[str, Any]:
        for topic in topics:
            await self.client.subscribe(topic, self._take)
        return {}

    def _take(self, payload: bytes) -> None:
        if len(payload) < STAMP_BYTES:
            return  # it only established the path
        now_ns = time.monotonic_ns()
        if not self.count:
            self.first_ns = now_ns
        self.count += 1
        self.last_ns = now_ns
        self.delays.append(now_ns - int.from_bytes(payload[:STAMP_BYTES], "little"))

    async def reset(self) -> dict[str, Any]:
        self.count, self.delays = 0, array("q")
        return {}

    async def publish(self, size_bytes: int, count: int, rate: float | None = None) -> dict[str, Any]:
        """Publish with every publisher in turn, at a rate or at full speed."""
        began_ns, publishers, filling = time.monotonic_ns(), self.publishers, bytes(max(0, size_bytes - STAMP_BYTES))
        waits = self.client.waits
        async with Beat(rate) if rate is not None else nullcontext() as beat:
            for number in range(count):
                if beat is not None:
                    await beat.next()
                elif number % LOOK_EVENTS == 0:
                    await asyncio.sleep(0)
                stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "little")
                published = publishers[number % len(publishers)](stamp + filling)
                if waits:
                    await published
        return {"seconds": (time.monotonic_ns() - began_ns) / 1e9}

    async def collect(self, count: int) -> dict[str, Any]:
        """Wait for this many events. Returns when the first and the last came, and their delays."""
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

    # --- stalls

    async def follow(self, topic: str) -> dict[str, Any]:
        """Subscribe, and record which of the numbered events arrive."""
        await self.client.subscribe(topic, self._note)
        return {}

    def _note(self, payload: bytes) -> None:
        if len(payload) < STAMP_BYTES:
            self.knocks += 1
        else:
            self.came.add(int.from_bytes(payload[:STAMP_BYTES], "little"))

    async def knock(self) -> dict[str, Any]:
        """Publish an event that only establishes the path."""
        await self._publish(KNOCK)
        return {}

    async def knocked(self) -> dict[str, Any]:
        """Return how often such an event came."""
        return {"count": self.knocks}

    async def publish_on_time(self, size_bytes: int, per_s: float, seconds: float) -> dict[str, Any]:
        """Publish numbered events at a rate. Events that fall due while a call waits are skipped.

        Returns the number of published events, and the longest wait for one.
        """
        filling, sent, longest_s, due_s = bytes(size_bytes - STAMP_BYTES), 0, 0.0, time.monotonic()
        ends_s = due_s + seconds
        while due_s < ends_s:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            before_s = time.monotonic()
            await self._publish(sent.to_bytes(STAMP_BYTES, "little") + filling)
            sent, due_s, waited_s = sent + 1, due_s + 1 / per_s, time.monotonic() - before_s
            longest_s = max(longest_s, waited_s)
            if waited_s > LATE_S:
                due_s = time.monotonic()
        return {"sent": sent, "longest_wait_s": longest_s}

    async def followed(self, count: int) -> dict[str, Any]:
        """Wait until this many events came, or none for a while. Returns how many came."""
        before, changed_s = -1, time.monotonic()
        while len(self.came) < count and time.monotonic() - changed_s < STILL_S:
            await asyncio.sleep(0.1)
            if len(self.came) != before:
                before, changed_s = len(self.came), time.monotonic()
        return {"count": len(self.came)}

    async def _publish(self, payload: bytes) -> None:
        published = self.publishers[0](payload)
        if self.client.waits:
            await published

    # --- changes of a site's policy (quillcast)

    async def manage(self, file: str) -> dict[str, Any]:
        """Run the manager of a scope. Returns its address."""
        node = self.client.node  # type: ignore[attr-defined]
        await node.manage_scope(file)
        return {"address": node.address}

    async def set_policy(self, scope: str, policy: str) -> dict[str, Any]:
        """Change the policy of all topics of a scope that is managed here."""
        from quillcast.protocol.scopes.hierarchy import scope_id  # missing in versions before scopes
        from quillcast.protocol.scopes.policies import BUILT_IN

        node, id_ = self.client.node, scope_id(scope.encode())  # type: ignore[attr-defined]
        scoping = node._peer.scoping
        manager, _ = scoping.managers[id_]
        manager.config = manager.config._replace(policy=lambda topic: BUILT_IN[policy]())
        node._pump.call(scoping.policies_changed, id_)
        return {}

    async def number(self, topic: str) -> dict[str, Any]:
        """Subscribe to numbered events."""
        self.line = Line()
        await self.client.subscribe(topic, self.line.take)
        return {}

    async def pour_at(self, size_bytes: int, rate: float, seconds: float) -> dict[str, Any]:
        """Publish numbered events at a rate, each millisecond those that are due. Returns their number."""
        publish, filling, sent = self.publishers[0], bytes(size_bytes - STAMP_BYTES), 0
        nowait = publish.__self__.publish_nowait  # type: ignore[attr-defined]
        async with Beat(1000) as beat:
            for tick in range(1, int(1000 * seconds) + 1):
                await beat.next()
                for number in range(sent, int(tick * rate / 1000)):
                    payload = number.to_bytes(STAMP_BYTES, "little") + filling
                    if not nowait(payload):
                        await publish(payload)
                sent = max(sent, int(tick * rate / 1000))
        return {"sent": sent}

    async def reset_gap(self) -> dict[str, Any]:
        """Measure the longest gap from now on."""
        self.line.longest_ns = 0
        return {}

    async def longest_gap(self) -> dict[str, Any]:
        """Return the longest time without an event."""
        return {"gap_ms": max(self.line.longest_ns, time.monotonic_ns() - self.line.last_ns) / 1e6}

    async def numbered(self, count: int) -> dict[str, Any]:
        """Wait until this many events came, or none for a while.

        Returns how many are missing, how many were reported lost (quillcast), and how many were repeated.
        """
        line, before = self.line, -1
        while line.next < count and line.next != before:
            before = line.next
            await asyncio.sleep(STILL_S)
        told = self.client.subscription.lost_count  # type: ignore[attr-defined]
        return {"lost": line.lost + count - line.next, "told": told, "repeated": line.repeated}

    # --- profiles

    async def sample(self) -> dict[str, Any]:
        """Sample the running function every millisecond of processor time from now on."""
        self.samples = Samples()
        return {}

    async def sampled(self) -> dict[str, Any]:
        """Return the number of samples by function."""
        return self.samples.end()


class Line:
    """Numbered events of one publisher, which should arrive in order."""

    def __init__(self) -> None:
        self.next = self.lost = self.repeated = 0
        self.longest_ns, self.last_ns = 0, time.monotonic_ns()

    def take(self, payload: bytes) -> None:
        """Handle an event."""
        if len(payload) < STAMP_BYTES:
            return
        number, now_ns = int.from_bytes(payload[:STAMP_BYTES], "little"), time.monotonic_ns()
        self.longest_ns = max(self.longest_ns, now_ns - self.last_ns)
        self.last_ns = now_ns
        if number < self.next:
            self.repeated += 1
        else:
            self.lost += number - self.next
            self.next = number + 1


class Samples:
    """Samples of the main thread's position, whenever a timer of processor time fires.

    Python handles the signal when it next runs, so time in the kernel and in the event loop counts as the loop's.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if frame is not None:
            code = frame.f_code
            self._counts[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1

    def end(self) -> dict[str, int]:
        """Stop. Returns the number of samples by function."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        return dict(self._counts)


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
