"""Delay from publishing to the handler, one publisher and one subscriber in processes of their own, at a fixed rate.

quillcast: through a forwarder, which is the topic's root, in a third process. zenoh: linked directly. nats-py,
paho-mqtt and redis: through their servers. Systems take turns in every round; a row is the median of the rounds. What
is missing on this machine is named.
"""

import argparse
import json
import statistics
from typing import Any

from actors import NEEDS, Actor, actors, missing, near, network

RATE_PER_S, SIZE_BYTES = 1000.0, 100
ROUNDS, SECONDS = 5, 10.0
QUICK_ROUNDS, QUICK_SECONDS = 1, 2.0
WARM_UP = 200  # events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, in under a minute")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--systems", nargs="*", choices=list(NEEDS), default=list(NEEDS))
    parser.add_argument("--rate", type=float, default=RATE_PER_S, help="events a second")
    options = parser.parse_args()
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if options.quick else (ROUNDS, SECONDS)
    here = [system for system in options.systems if missing(system) is None]
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in here}
    for _ in range(rounds):
        for system in here:
            runs[system].append(measure(system, options.rate, int(options.rate * seconds)))
    rows = [_row(system, options.rate, each) for system, each in runs.items()]
    rows += [{"system": each, "missing": missing(each)} for each in options.systems if each not in here]
    for row in rows:
        print(row)
    if options.json:
        print(json.dumps({"benchmark": "latency", "results": rows}))


def measure(system: str, rate: float, count: int) -> dict[str, Any]:
    """One round."""
    extra = 1 if system == "quillcast" else 0  # the forwarder
    with network(system) as (hub, other), actors(system, [hub, *[other] * (extra + 1)]) as made:
        subscriber, publisher = made[-2] if extra else made[0], made[-1]
        topic = near(made[0].first["id"], "latency") if extra else "latency"
        if extra:
            _keep_root(made[0], topic)
        subscriber.ask("subscribe", topics=[topic])
        publisher.ask("open", topic=topic)
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=WARM_UP, rate=rate)
        subscriber.ask("collect", count=WARM_UP)
        subscriber.ask("reset")
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=count, rate=rate)
        took = subscriber.ask("collect", count=count)
        if took["count"] != count:
            raise SystemExit(f"{system}: {took['count']} of {count} events came")
        return {**took, "version": publisher.first["version"]}


def _keep_root(forwarder: Actor, topic: str) -> None:
    """The forwarder is the topic's root from the start."""
    forwarder.ask("open", topic=topic)


def _row(system: str, rate: float, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "system": system,
        "rate_per_s": rate,
        "p50_us": round(statistics.median(run["p50_us"] for run in runs), 1),
        "p99_us": round(statistics.median(run["p99_us"] for run in runs), 1),
        "rounds": len(runs),
        "version": runs[0]["version"],
    }


if __name__ == "__main__":
    main()
