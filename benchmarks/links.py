"""What links carry while no event flows, and what a peer's memory is, with 1, 100 and 10,000 topics on 16 peers.

Every peer, a process of its own, subscribes to every topic. Then nothing happens for a while, and for another one every
peer closes and renews 1 % of its subscriptions every second (`changing_per_s`). Messages and bytes are those of all
peers, divided by their links (a link has two ends) and by their number. `topic_bytes` is the growth of a peer's
resident memory since the row with one topic, per topic.
"""

import argparse
import json
import statistics
import time
from typing import Any

from actors import Actor, actors, ask_all, network

PEERS, TOPICS, SECONDS = 16, (1, 100, 10_000), 20.0
QUICK_TOPICS, QUICK_SECONDS = (1, 100, 1000), 5.0
SETTLE_S = 5.0  # from the last subscription to the measurement
CHANGING = 0.01  # of the subscriptions, every second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer topics, in about a minute")
    parser.add_argument("--json", action="store_true", help="print one object on the last line")
    parser.add_argument("--topics", type=int, nargs="*", help="numbers of topics, rising")
    options = parser.parse_args()
    topics = options.topics or (QUICK_TOPICS if options.quick else TOPICS)
    rows = measure(topics, QUICK_SECONDS if options.quick else SECONDS)
    for row in rows:
        print(row)
    if options.json:
        print(json.dumps({"benchmark": "links", "results": rows}))


def measure(topics: tuple[int, ...], seconds: float) -> list[dict[str, Any]]:
    """All rows, in one network that grows."""
    rows: list[dict[str, Any]] = []
    with network("quillcast") as (hub, other), actors("quillcast", [hub, *[other] * (PEERS - 1)]) as peers:
        first_bytes = 0.0
        for count in topics:
            began = time.monotonic()
            ask_all(peers, "hold", topics=count)
            held_s = time.monotonic() - began
            time.sleep(SETTLE_S)
            for changing in (0.0, CHANGING):
                row = _row(peers, count, seconds, changing)
                first_bytes = first_bytes or row["peer_bytes"]
                grown = (row["peer_bytes"] - first_bytes) / count if count > topics[0] else None
                rows.append({**row, "topic_bytes": None if grown is None else round(grown), "held_s": round(held_s, 1)})
    return rows


def _row(peers: list[Actor], topics: int, seconds: float, changing: float) -> dict[str, Any]:
    stood = ask_all(peers, "stand", seconds=seconds, changing=changing)
    used = ask_all(peers, "used")
    links = sum(each["links"] for each in stood) / 2
    messages, bytes_ = (sum(each[name] for each in stood) for name in ("messages_in", "bytes_out"))
    return {
        "system": "quillcast",
        "topics": topics,
        "changing_per_s": changing,
        "links": round(links),
        "link_messages_per_s": round(messages / links, 2),
        "link_bytes_per_s": round(bytes_ / links, 1),
        "peer_messages_per_s": round(messages / PEERS, 2),
        "peer_bytes_per_s": round(bytes_ / PEERS, 1),
        "peer_bytes": round(statistics.mean(each["rss_bytes"] for each in used)),
    }


if __name__ == "__main__":
    main()
