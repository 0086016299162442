"""How subscribers of a site notice that its manager changes a topic's policy under load.

All 8 peers of a site, each a process, subscribe. Another peer publishes numbered events at a fixed rate, and the
process with the site's manager changes the policy repeatedly. For each change: `pause_ms`, the longest time without an
event at a subscriber (the p95 over subscribers), minus that of an equally long time without a change. For all changes
together: the events that subscribers missed (`lost`) or got twice (`repeated`), and those that were reported to them as
lost (`told`). On a machine that is too slow for the rate there are some, because the topic cuts slow subscribers.
"""

import statistics
import sys
import time
from pathlib import Path

from actors import Actor, actors, ask_all, network
from head import Row, parser, tell

from quillcast.live.transport.hello import Identity

PEERS, RATE, SIZE_BYTES = 8, 50_000, 100
POLICIES = ("k_ary", "ring", "stripes", "mesh", "chain")
CHANGES, QUICK_CHANGES = 10, 3
TOPIC, WARM_UP_S = "swap/here", 3.0
OVER_S, QUICK_OVER_S = 8.0, 6.0  # a change is over by then: a lease of the scope is 5 s
SETTLE_S, QUICK_SETTLE_S = 35.0, 3.0  # leases from before the site had its shape last 30 s
SCOPE = """\
name = "site"
[admission]
members = [{members}]
[[topics]]
pattern = "swap/#"
policy = "{policy}"
"""


def main() -> None:
    options = parser(__doc__).parse_args()
    quick = (QUICK_CHANGES, QUICK_SETTLE_S, QUICK_OVER_S)
    rows = measure(*(quick if options.quick else (CHANGES, SETTLE_S, OVER_S)))
    pauses = [row["pause_ms"] for row in rows]
    print(f"the median pause: {statistics.median(pauses)} ms, of {len(rows)} changes")
    tell("policy_swap", rows, options)


def measure(changes: int, settle_s: float, over_s: float) -> list[Row]:
    """Change the policy this many times, one change after the other."""
    with network("quillcast") as (_, shared):
        folder = Path(shared["folder"])
        identities = [Identity.new() for _ in range(PEERS)]
        with actors("quillcast", [{**shared, "data": str(folder / "manager")}, shared]) as (manager, publisher):
            listed = ", ".join(f'"{each.node_id.hex()}"' for each in identities)
            (folder / "site.toml").write_text(SCOPE.format(members=listed, policy=POLICIES[0]))
            address = manager.ask("manage", file=str(folder / "site.toml"))["address"]
            site = [{**shared, "secret": each.secret.hex(), "scope": f"site@{address}"} for each in identities]
            with actors("quillcast", site) as subscribers:
                ask_all(subscribers, "number", topic=TOPIC)
                publisher.ask("open", topic=TOPIC)
                time.sleep(settle_s)
                return _changes(changes, over_s, manager, publisher, subscribers)


def _changes(changes: int, over_s: float, manager: Actor, publisher: Actor, subscribers: list[Actor]) -> list[Row]:
    rows, standing = list[Row](), POLICIES[0]
    seconds = WARM_UP_S + over_s * (changes + 1)
    publisher.order("pour_at", size_bytes=SIZE_BYTES, rate=RATE, seconds=seconds)
    time.sleep(WARM_UP_S)
    still_ms = _pause_ms(subscribers, over_s)
    for number in range(1, changes + 1):
        policy = POLICIES[number % len(POLICIES)]
        manager.ask("set_policy", scope="site", policy=policy)
        longer_ms = _pause_ms(subscribers, over_s) - still_ms
        rows.append({"policy_from": standing, "policy_to": policy, "pause_ms": round(longer_ms, 1)})
        standing = policy
        print(f"change {number} of {changes}: {policy}", file=sys.stderr, flush=True)
    sent = publisher.answer()["sent"]
    took = ask_all(subscribers, "numbered", count=sent)
    whole = {what: sum(each[what] for each in took) for what in ("lost", "repeated", "told")}
    whole |= {"still_ms": round(still_ms, 1), "events_per_s": round(sent / seconds)}
    return [row | whole for row in rows]


def _pause_ms(subscribers: list[Actor], over_s: float) -> float:
    """The longest gap between two events during a change: the p95 over subscribers."""
    ask_all(subscribers, "reset_gap")
    time.sleep(over_s)
    gaps: list[float] = [each["gap_ms"] for each in ask_all(subscribers, "longest_gap")]
    return statistics.quantiles(gaps, n=20, method="inclusive")[-1]


if __name__ == "__main__":
    main()
