"""Events per second from one process to another at full speed, through the public API of each system.

The subscriber's handler is called with each event, as `bytes`. In the row `quillcast, batch` a loop takes all events
that have arrived; in `quillcast, awaited`, both ends use one `await` per event.

quillcast's topic is reliable. Its root is a forwarder in a third process, or one of the two in `quillcast, two peers`.
All processes write a journal, unless the row says otherwise. zenoh, pyzmq, cyclonedds and iceoryx2 connect the two
processes directly; rows of their own have a router (a zenoh session in router mode) or a forwarder (XSUB to XPUB)
between them. nats-py, paho-mqtt and redis go through their servers.

Every queue is bounded, and a full queue holds the publisher back. Only `cyclonedds, best effort` drops events: its rate
counts events that arrived, and `lost_share` is the share of those that did not.

Systems take turns in every round, each alone and in new processes. A row is the median of its rounds. The subscriber
measures the time from the first event to the last. CPU time is the sum over all processes of a system, and memory the
peak of each. A system that is missing on this machine has a row that says so.
"""

import time
from collections.abc import Callable
from typing import Any

from actors import Running, name_of, running
from clients import COMMON, PATIENCE_S, SYSTEMS
from head import Row, in_turns, median, missing_rows, parser, peaks, tell

COMPARED = (
    *COMMON,
    "quillcast, two peers",
    "quillcast, no journal",
    "quillcast, TCP",
    "quillcast, TLS over TCP",
    "zenoh, router",
    "cyclonedds",
    "cyclonedds, best effort",
    "iceoryx2",
    "iceoryx2, polling",
    "quillcast, batch",
    "quillcast, awaited",
)
SIZES = (16, 100, 1000, 10_000)
ROUNDS, QUICK_ROUNDS = 3, 1
SECONDS, QUICK_SECONDS = 1.0, 0.2
WARM_UP_S = 0.3
EVENTS_MIN = 1000


def main() -> None:
    options = _options()
    runs = in_turns(options.systems, options.rounds, lambda system: measure(system, options.sizes, options.seconds))
    rows = [_row(system, size, [each[size] for each in runs[system]]) for size in options.sizes for system in runs]
    tell("throughput", rows + missing_rows(options.systems), options)


def measure(name: str, sizes: list[int], seconds: float) -> dict[int, Row]:
    """One round of a system: a run of each size."""
    with running(name, ["publisher", "subscriber"]) as system:
        stage = Stage(system)
        return {size_bytes: stage.measure(size_bytes, seconds) for size_bytes in sizes}


def _options() -> Any:
    options = parser(__doc__, COMPARED)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="payloads to measure")
    options.add_argument("--rounds", type=int, help=f"rounds per size ({ROUNDS})")
    options.add_argument("--seconds", type=float, help=f"length of one measurement ({SECONDS})")
    given = options.parse_args()
    if given.rounds is None:
        given.rounds = QUICK_ROUNDS if given.quick else ROUNDS
    if given.seconds is None:
        given.seconds = QUICK_SECONDS if given.quick else SECONDS
    if min(*given.sizes, given.rounds) < 1 or not given.seconds > 0:
        options.error("sizes and rounds are at least 1, and seconds more than 0")
    return given


class Stage:
    """A system whose publisher is connected with its subscriber."""

    def __init__(self, system: Running) -> None:
        self.system, self.name = system, system.name
        self.publisher, self.subscriber = system.actors["publisher"], system.actors["subscriber"]
        topic = system.topic("throughput")
        self.subscriber.ask("listen", topic=topic)
        self.publisher.ask("open", topic=topic)
        if name_of(self.name) == "quillcast":
            self._check_tree(topic)

    def _check_tree(self, topic: str) -> None:
        """Check that events go from the publisher to the root, and from there to the subscriber if it is another."""
        leaf, middle = self.subscriber.first["id"], self.system.middle
        root = middle.first["id"] if middle is not None else leaf
        if SYSTEMS[self.name].direct:
            leaf = root  # which serves the subscriber
        wanted = {(root, None), (leaf, root if root != leaf else None)}
        until = time.monotonic() + PATIENCE_S
        while True:  # peers that have just joined may not yet agree on the root
            tree = (middle or self.subscriber).ask("tree", topic=topic)
            if {(peer["node_id"], peer["parent"]) for peer in tree["peers"]} == wanted:
                return
            if time.monotonic() > until:
                raise SystemExit(f"the tree is not {wanted}: {tree}")
            time.sleep(0.1)

    def measure(self, size_bytes: int, seconds: float, *, warmed_up: Callable[[], object] = lambda: None) -> Row:
        """One run: events per second, and the resources of each process. Calls `warmed_up` just before it begins."""
        self.subscriber.order("until_marked")
        warm = self.publisher.ask("warm_up", size_bytes=size_bytes, seconds=min(WARM_UP_S, seconds))
        self.subscriber.answer()
        count = max(EVENTS_MIN, int(warm["events_per_s"] * seconds))
        self.subscriber.ask("expect", count=count)
        warmed_up()
        self.system.mark()
        self.subscriber.order("taken")
        self.publisher.ask("pour", size_bytes=size_bytes, count=count)
        taken = self.subscriber.answer()
        used = self.system.used()
        cpu_s_per_million = {role: 1e6 * figures["cpu_s"] / count for role, figures in used.items()}
        return {
            **taken,
            "lost_share": taken["lost"] / count,
            "settings": self.system.settings,
            "used": used,
            "by_role": cpu_s_per_million,
            "sum": sum(cpu_s_per_million.values()),
        }


def _row(system: str, size_bytes: int, runs: list[Row]) -> Row:
    by_role = {role: median([run["by_role"] for run in runs], role, 3) for role in runs[0]["by_role"]}
    return {
        "system": system,
        "size_bytes": size_bytes,
        "events_per_s": median(runs, "events_per_s"),
        "cpu_s_per_million": median(runs, "sum", 3),
        "cpu_s_per_million_by_role": by_role,
        "peak_rss_bytes": peaks(run["used"] for run in runs),
        "lost": max(run["lost"] for run in runs),
        "lost_share": median(runs, "lost_share", 3),
        "rounds": len(runs),
        "settings": runs[0]["settings"],
    }


if __name__ == "__main__":
    main()
