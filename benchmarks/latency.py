"""Delay from publishing a lone event to the call of the handler in another process, at a fixed rate.

quillcast's events go through the topic's root. It is a forwarder in a third process; in the row `quillcast, two peers`
it is one of the two. zenoh, pyzmq, cyclonedds and iceoryx2 connect the two processes directly, or through a third
process in separate rows. nats-py, paho-mqtt and redis go through their servers. The polling subscriber of iceoryx2
takes a whole core.

Systems take turns in every round, and a row is the median of its rounds. A system that is missing on this machine has a
row that says so.
"""

from actors import running
from clients import COMMON
from head import Row, in_turns, median, missing_rows, parser, peaks, tell

COMPARED = (
    *COMMON,
    "quillcast, two peers",
    "quillcast, no journal",
    "quillcast, TCP",
    "quillcast, TLS over TCP",
    "zenoh, router",
    "pyzmq, forwarder",
    "cyclonedds",
    "cyclonedds, best effort",
    "iceoryx2",
    "iceoryx2, polling",
)
RATE_PER_S, RATE_PER_S_MAX, SIZE_BYTES = 1000.0, 100_000.0, 100
ROUNDS, SECONDS = 5, 1.5
QUICK_ROUNDS, QUICK_SECONDS = 1, 1.0
WARM_UP = 200  # events


def main() -> None:
    options = parser(__doc__, COMPARED)
    options.add_argument("--rate", type=float, default=RATE_PER_S, help="events a second")
    options.add_argument("--rounds", type=int, help=f"rounds of each system ({ROUNDS})")
    given = options.parse_args()
    if not 0 < given.rate <= RATE_PER_S_MAX:
        options.error(f"argument --rate: {given.rate:g} is not above 0 and at most {RATE_PER_S_MAX:,.0f}")
    if given.rounds is not None and given.rounds < 1:
        options.error("there is at least one round")
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if given.quick else (ROUNDS, SECONDS)
    runs = in_turns(
        given.systems, given.rounds or rounds, lambda system: measure(system, given.rate, int(given.rate * seconds))
    )
    rows = [_row(system, given.rate, each) for system, each in runs.items()]
    tell("latency", rows + missing_rows(given.systems), given)


def measure(name: str, rate: float, count: int) -> Row:
    """One round."""
    with running(name, ["subscriber", "publisher"]) as system:
        subscriber, publisher = system.actors["subscriber"], system.actors["publisher"]
        topic = system.topic("latency")
        subscriber.ask("subscribe", topics=[topic])
        publisher.ask("open", topic=topic)
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=WARM_UP, rate=rate)
        subscriber.ask("collect", count=WARM_UP)
        subscriber.ask("reset")
        system.mark()
        publisher.ask("publish", size_bytes=SIZE_BYTES, count=count, rate=rate)
        took = subscriber.ask("collect", count=count)
        return {**took, "lost": count - took["count"], "used": system.used(), "version": system.settings["version"]}


def _row(system: str, rate: float, runs: list[Row]) -> Row:
    return {
        "system": system,
        "rate_per_s": rate,
        "p50_us": median(runs, "p50_us", 1),
        "p99_us": median(runs, "p99_us", 1),
        "peak_rss_bytes": peaks(run["used"] for run in runs),
        "lost": max(run["lost"] for run in runs),
        "rounds": len(runs),
        "version": runs[0]["version"],
    }


if __name__ == "__main__":
    main()
