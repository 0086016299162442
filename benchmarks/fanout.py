"""Deliveries per second from one publisher to 64 subscribers on 8 peers at full speed, and their cost.

quillcast: the publisher is a ninth peer, the topic's root is one of the eight, and receivers forward. zenoh and pyzmq:
the publisher connects to each of the eight. nats-py, paho-mqtt and redis: through their servers, whose processor time
and memory count too; redis answers every publish before the next. The time is that from the first delivery to the last.
Systems that are missing on this machine are named.
"""

from actors import ask_all, running
from clients import COMMON
from head import Row, costs, in_turns, median, missing_rows, parser, tell

PEERS, SUBSCRIBERS_EACH, SIZE_BYTES = 8, 8, 100
ROUNDS, EVENTS = 3, 20_000
QUICK_ROUNDS, QUICK_EVENTS = 1, 3_000
WARM_UP = 200  # events


def main() -> None:
    options = parser(__doc__, COMMON).parse_args()
    rounds, events = (QUICK_ROUNDS, QUICK_EVENTS) if options.quick else (ROUNDS, EVENTS)
    runs = in_turns(options.systems, rounds, lambda system: measure(system, events))
    rows = [_row(system, each) for system, each in runs.items()]
    tell("fanout", rows + missing_rows(options.systems), options)


def measure(name: str, events: int) -> Row:
    """One round."""
    receiving = [f"peer {number}" for number in range(1, PEERS + 1)]
    with running(name, ["publisher", *receiving], middle=False) as system:
        publisher, peers = system.actors["publisher"], [system.actors[role] for role in receiving]
        topic = system.topic("fanout")
        ask_all(peers, "subscribe", topics=[topic] * SUBSCRIBERS_EACH)
        publisher.ask("open", topic=topic)
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=WARM_UP)
        ask_all(peers, "collect", count=WARM_UP * SUBSCRIBERS_EACH)
        ask_all(peers, "reset")
        system.mark()
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=events)
        took = ask_all(peers, "collect", count=events * SUBSCRIBERS_EACH)
        used = system.used()
    deliveries = sum(each["count"] for each in took)
    seconds = (max(each["last_ns"] for each in took) - min(each["first_ns"] for each in took)) / 1e9
    return {
        "deliveries_per_s": deliveries / seconds,
        "cpu_s_per_million": 1e6 * sum(each["cpu_s"] for each in used.values()) / deliveries,
        "lost": events * SUBSCRIBERS_EACH * PEERS - deliveries,
        "used": used,
    }


def _row(system: str, runs: list[Row]) -> Row:
    return {
        "system": system,
        "subscribers": PEERS * SUBSCRIBERS_EACH,
        "peers": PEERS,
        "deliveries_per_s": median(runs, "deliveries_per_s"),
        **costs(runs),
    }


if __name__ == "__main__":
    main()
