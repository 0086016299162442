"""Events per second from 2,000 publishers on 8 peers to one subscriber, in one topic; beside a single publisher.

Publishers of a peer take turns, an event each, as fast as they go. quillcast: the subscriber is a ninth peer, the
topic's root is one of the eight, and seals what comes into bundles. zenoh: each of the eight links with the subscriber.
nats-py, paho-mqtt and redis: through their servers. The clock runs from the first event at the subscriber to the last.
"""

import argparse
import json
import statistics
from typing import Any

from actors import NEEDS, actors, ask_all, missing, near, network

PEERS, PUBLISHERS, SIZE_BYTES = 8, 2000, 16
ROUNDS, EVENTS = 3, 200_000
QUICK_ROUNDS, QUICK_EVENTS = 1, 40_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--systems", nargs="*", choices=list(NEEDS), default=list(NEEDS))
    options = parser.parse_args()
    rounds, events = (QUICK_ROUNDS, QUICK_EVENTS) if options.quick else (ROUNDS, EVENTS)
    rows = []
    for system in options.systems:
        why = missing(system)
        if why is not None:
            rows.append({"system": system, "missing": why})
            continue
        for peers, publishers in ((1, 1), (PEERS, PUBLISHERS)):
            runs = [measure(system, peers, publishers, events) for _ in range(rounds)]
            rows.append(_row(system, publishers, runs))
    for row in rows:
        print(row)
    if options.json:
        print(json.dumps({"benchmark": "many_publishers", "results": rows}))


def measure(system: str, peers: int, publishers: int, events: int) -> dict[str, Any]:
    """One round."""
    with network(system) as (hub, other), actors(system, [hub, *[other] * PEERS]) as made:
        subscriber, publishing = made[0], made[1 : 1 + peers]
        topic = near(made[-1].first["id"], "many") if system == "quillcast" else "many"
        subscriber.ask("subscribe", topics=[topic])
        ask_all(publishing, "open", topic=topic, publishers=publishers // peers)
        ask_all(publishing, "publish", size_bytes=SIZE_BYTES, count=publishers // peers)
        subscriber.ask("collect", count=publishers)
        subscriber.ask("reset")
        each = events // peers
        for actor in publishing:
            actor.order("publish", size_bytes=SIZE_BYTES, count=each)
        took = subscriber.ask("collect", count=each * peers)
        for actor in publishing:
            actor.answer()
        seconds = (took["last_ns"] - took["first_ns"]) / 1e9
        return {"events_per_s": took["count"] / seconds, "lost": each * peers - took["count"]}


def _row(system: str, publishers: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "system": system,
        "publishers": publishers,
        "events_per_s": round(statistics.median(run["events_per_s"] for run in runs)),
        "lost": max(run["lost"] for run in runs),
        "rounds": len(runs),
    }


if __name__ == "__main__":
    main()
