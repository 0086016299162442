"""Events per second from 2,000 publishers on 8 peers to one subscriber in one topic, compared with a single publisher.

The publishers of a peer take turns at full speed, an event each. quillcast: the subscriber is a ninth peer, the topic's
root is one of the eight, and publishers of a peer share blocks. zenoh and pyzmq: each of the eight connects to the
subscriber. nats-py, paho-mqtt and redis: through their servers; redis answers every publish before the peer's next. The
time is that from the first event at the subscriber to the last. Systems that are missing on this machine are named.
"""

from functools import partial

from actors import ask_all, running
from clients import COMMON
from head import Row, costs, in_turns, median, missing_rows, parser, tell

PEERS, PUBLISHERS, SIZE_BYTES = 8, 2000, 16
ROUNDS, EVENTS = 3, 200_000
QUICK_ROUNDS, QUICK_EVENTS = 1, 20_000


def main() -> None:
    options = parser(__doc__, COMMON).parse_args()
    rounds, events = (QUICK_ROUNDS, QUICK_EVENTS) if options.quick else (ROUNDS, EVENTS)
    rows = []
    for peers, publishers in ((1, 1), (PEERS, PUBLISHERS)):
        runs = in_turns(options.systems, rounds, partial(measure, peers=peers, publishers=publishers, events=events))
        rows += [_row(system, publishers, each) for system, each in runs.items()]
    tell("many_publishers", rows + missing_rows(options.systems), options)


def measure(name: str, peers: int, publishers: int, events: int) -> Row:
    """One round."""
    roles = [f"peer {number}" for number in range(1, PEERS + 1)]
    with running(name, ["subscriber", *roles], middle=False) as system:
        subscriber, publishing = system.actors["subscriber"], [system.actors[role] for role in roles[:peers]]
        topic = system.topic("many")
        subscriber.ask("subscribe", topics=[topic])
        ask_all(publishing, "open", topic=topic, publishers=publishers // peers)
        ask_all(publishing, "publish", size_bytes=SIZE_BYTES, count=publishers // peers)
        subscriber.ask("collect", count=publishers)
        subscriber.ask("reset")
        system.mark()
        each = events // peers
        for actor in publishing:
            actor.order("publish", size_bytes=SIZE_BYTES, count=each)
        took = subscriber.ask("collect", count=each * peers)
        for actor in publishing:
            actor.answer()
        used = system.used()
    seconds = (took["last_ns"] - took["first_ns"]) / 1e9
    return {
        "events_per_s": took["count"] / seconds,
        "cpu_s_per_million": 1e6 * sum(figures["cpu_s"] for figures in used.values()) / took["count"],
        "lost": each * peers - took["count"],
        "used": used,
    }


def _row(system: str, publishers: int, runs: list[Row]) -> Row:
    return {
        "system": system,
        "publishers": publishers,
        "events_per_s": median(runs, "events_per_s"),
        **costs(runs),
    }


if __name__ == "__main__":
    main()
