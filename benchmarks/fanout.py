"""Deliveries per second from one publisher to 64 subscribers on 8 peers at full speed, and the processor time of it.

quillcast: the publisher is a ninth peer, the topic's root is one of the eight, receivers forward. zenoh: the publisher
links with each of the eight. nats-py, paho-mqtt and redis: through their servers, whose processor time counts too. The
clock runs from the first delivery to the last. What is missing on this machine is named.
"""

import argparse
import json
import statistics
from typing import Any

from actors import NEEDS, actors, ask_all, cpu_s_of_server, missing, near, network

PEERS, SUBSCRIBERS_EACH, SIZE_BYTES = 8, 8, 100
ROUNDS, EVENTS = 3, 20_000
QUICK_ROUNDS, QUICK_EVENTS = 1, 3_000
WARM_UP = 200  # events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, in under a minute")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--systems", nargs="*", choices=list(NEEDS), default=list(NEEDS))
    options = parser.parse_args()
    rounds, events = (QUICK_ROUNDS, QUICK_EVENTS) if options.quick else (ROUNDS, EVENTS)
    here = [system for system in options.systems if missing(system) is None]
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in here}
    for _ in range(rounds):
        for system in here:
            runs[system].append(measure(system, events))
    rows = [_row(system, each) for system, each in runs.items()]
    rows += [{"system": each, "missing": missing(each)} for each in options.systems if each not in here]
    for row in rows:
        print(row)
    if options.json:
        print(json.dumps({"benchmark": "fanout", "results": rows}))


def measure(system: str, events: int) -> dict[str, Any]:
    """One round."""
    with network(system) as (hub, other), actors(system, [hub, *[other] * PEERS]) as made:
        publisher, peers = made[0], made[1:]
        topic = near(peers[0].first["id"], "fanout") if system == "quillcast" else "fanout"
        ask_all(peers, "subscribe", topics=[topic] * SUBSCRIBERS_EACH)
        publisher.ask("open", topic=topic)
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=WARM_UP)
        ask_all(peers, "collect", count=WARM_UP * SUBSCRIBERS_EACH)
        ask_all(made, "reset")
        ask_all(made, "mark")
        server_s = cpu_s_of_server()
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=events)
        took = ask_all(peers, "collect", count=events * SUBSCRIBERS_EACH)
        used = ask_all(made, "used")
        deliveries = sum(each["count"] for each in took)
        seconds = (max(each["last_ns"] for each in took) - min(each["first_ns"] for each in took)) / 1e9
        cpu_s = sum(each["cpu_s"] for each in used) + cpu_s_of_server() - server_s
        return {
            "deliveries_per_s": deliveries / seconds,
            "cpu_s_per_million": 1e6 * cpu_s / deliveries,
            "lost": events * SUBSCRIBERS_EACH * PEERS - deliveries,
        }


def _row(system: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "system": system,
        "subscribers": PEERS * SUBSCRIBERS_EACH,
        "peers": PEERS,
        "deliveries_per_s": round(statistics.median(run["deliveries_per_s"] for run in runs)),
        "cpu_s_per_million": round(statistics.median(run["cpu_s_per_million"] for run in runs), 2),
        "lost": max(run["lost"] for run in runs),
        "rounds": len(runs),
    }


if __name__ == "__main__":
    main()
