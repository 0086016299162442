"""How long a publisher waits while one of two subscribers is stopped for 10 s, or is killed, and which events are lost.

The publisher and both subscribers are processes. 2,000 events of 10 kB are due each second for 24 s. After 5 s one
subscriber is stopped and continues 10 s later, or it is killed.

- `longest_wait_s`: the longest time that publishing one event took.
- `sent`: published events; 48,000 without waiting, because events that fall due while the publisher waits are skipped.
- `lost_at_healthy`, `lost_at_faulty`: events that were sent and never arrived.

quillcast has the default settings: with `slow = cut` it holds publishers back for `patience_s` before it cuts. The
topic's root is the healthy subscriber. zenoh's publisher connects to both subscribers, and blocks instead of dropping
events. cyclonedds is reliable and keeps all samples. Both wait until they consider the subscriber dead.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any

from actors import Actor, Running, ask_all, running
from clients import PATIENCE_S
from head import Row, in_turns, missing_rows, parser, tell

COMPARED = ("quillcast", "zenoh", "cyclonedds")
SIZE_BYTES, PER_S = 10_000, 2000.0


@dataclass(frozen=True)
class Times:
    """The times of the steps."""

    before_s: float = 5.0
    stopped_s: float = 10.0
    seconds: float = 24.0


QUICK = Times(before_s=1.0, stopped_s=3.0, seconds=6.0)


def main() -> None:
    options = parser(__doc__, COMPARED).parse_args()
    times = QUICK if options.quick else Times()
    rows = []
    for fault, befall in FAULTS.items():
        runs = in_turns(options.systems, 1, partial(measure, fault=fault, befall=befall, times=times))
        rows += [row for (row,) in runs.values()]
    tell("stalls", rows + missing_rows(options.systems), options)


def measure(name: str, fault: str, befall: Callable[[Actor, Times], None], times: Times) -> Row:
    """One run."""
    with running(name, ["publisher", "faulty", "healthy"], middle=False) as system:
        publisher, faulty, healthy = (system.actors[role] for role in ("publisher", "faulty", "healthy"))
        _meet(system, publisher, [faulty, healthy])
        publisher.order("publish_on_time", size_bytes=SIZE_BYTES, per_s=PER_S, seconds=times.seconds)
        time.sleep(times.before_s)
        befall(faulty, times)
        told = publisher.answer()
        living = [healthy, faulty] if faulty.process.poll() is None else [healthy]
        lost = [told["sent"] - each["count"] for each in ask_all(living, "followed", count=told["sent"])]
        return {
            "system": name,
            "fault": fault,
            "longest_wait_s": round(told["longest_wait_s"], 2),
            "sent": told["sent"],
            "lost_at_healthy": lost[0],
            "lost_at_faulty": lost[1] if len(lost) > 1 else None,
            "settings": system.settings,
        }


def _meet(system: Running, publisher: Actor, subscribers: list[Actor]) -> None:
    """Wait until each subscriber receives from the publisher."""
    topic = system.topic("stalls")
    ask_all(subscribers, "follow", topic=topic)
    publisher.ask("open", topic=topic)
    until = time.monotonic() + PATIENCE_S
    while True:
        publisher.ask("knock")
        if all(each["count"] for each in ask_all(subscribers, "knocked")):
            return
        if time.monotonic() > until:
            raise SystemExit(f"not every subscriber of {system.name} heard the publisher within {PATIENCE_S:g} s")
        time.sleep(0.01)


def _stop(actor: Actor, times: Times) -> None:
    actor.process.send_signal(SIGSTOP)
    time.sleep(times.stopped_s)
    actor.process.send_signal(SIGCONT)


def _kill(actor: Actor, times: Times) -> None:
    actor.process.send_signal(SIGKILL)
    actor.process.wait()


FAULTS: dict[str, Callable[[Actor, Times], Any]] = {"stop": _stop, "kill": _kill}


if __name__ == "__main__":
    main()
