"""How long a publisher is held up while one of two subscribers stands still for 10 s, or is killed, and what is lost.

20 MB a second, in events of 10 kB, for 24 s; publisher and subscribers are a process each. After 5 s one subscriber is
stopped, and goes on 10 s later; or it is killed. `longest_wait_s` is the longest time that publishing one event took.
What falls due while the publisher waits is left out, so that `sent` shows how often and how long it did: without any
wait it is 48,000. `lost_at_healthy` and `lost_at_faulty` are what was sent and never came. quillcast: the topic's root
is the subscriber that nothing happens to. zenoh: the publisher links with each subscriber, and blocks rather than
drops. cyclonedds: reliable, and all is kept. What is missing on this machine is named.
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
    """When what happens."""

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
    """Until each subscriber hears the publisher."""
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
