"""The cost of two levels of scopes for a forwarder that passes 16 KiB bundles on to four others.

`tree`: a site with the policy `star`. Its entry point takes bundles from the publisher, whose peer is the topic's root,
and passes them on to four members over links of the topic's tree, without records. `two levels`: the site is a member
of a campus with the policy `chain`, and bundles come from the campus's entry point, with a record that has a pair for
each level. Each peer is a process. `cpu_ms` is the processor time of the site's entry point for 1,000 bundles; `ratio`
is that divided by the tree's. Links use TCP, as between machines.
"""

import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from actors import Actor, Meter, actors, ask_all, near, network
from head import Row, median, parser, tell

from quillcast.live.transport.hello import Identity

SYSTEMS = ("tree", "two levels")
FAN_OUT, SIZE_BYTES, BUNDLE_BYTES = 4, 16_000, 16_384  # a bundle of one event with its head
ROUNDS, BUNDLES, RATE = 5, 6_000, 500.0
QUICK_ROUNDS, QUICK_BUNDLES = 1, 1_500
WARM_UP = 300  # bundles
SHAPE_S = 20.0  # the longest time until the tree has the ordered shape
TRIES = 5  # on a busy machine, measured round trips may make a member other than the star's hub the entry point
SCOPE = """\
name = "{name}"
superscopes = [{superscopes}]
[admission]
members = [{members}]
[[topics]]
pattern = "levels/#"
policy = "{policy}"
"""


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, bundles = (QUICK_ROUNDS, QUICK_BUNDLES) if options.quick else (ROUNDS, BUNDLES)
    runs: dict[str, list[Row]] = {system: [] for system in SYSTEMS}
    for number in range(1, rounds + 1):
        for system, made in runs.items():
            began_s = time.monotonic()
            made.append(_measured(system, bundles))
            print(f"round {number} of {rounds}: {system}, {time.monotonic() - began_s:.1f} s", file=sys.stderr)
    plain_ms = median(runs["tree"], "cpu_ms", 3)
    rows = []
    for system, each in runs.items():
        cpu_ms = median(each, "cpu_ms", 3)
        lost = sum(run["lost"] for run in each)
        ratio = round(cpu_ms / plain_ms, 3)
        rows.append({"system": system, "cpu_ms": cpu_ms, "ratio": ratio, "lost": lost, "rounds": len(each)})
    tell("levels", rows, options)


def _measured(system: str, bundles: int) -> Row:
    """One round, repeated if the tree does not get its shape."""
    for _ in range(TRIES):
        if row := measure(system, bundles):
            return row
    raise SystemExit(f"in {TRIES} tries the tree did not get its shape; use a machine with less to do")


def measure(system: str, bundles: int) -> Row:
    """One round, from nothing; an empty row if the tree did not get its shape."""
    with network("quillcast") as (_, options), ExitStack() as stack:
        folder, shared = Path(options["folder"]), {**options, "local_ipc": False, "bundle_bytes": BUNDLE_BYTES}
        (manager,) = stack.enter_context(actors("quillcast", [{**shared, "data": str(folder / "manager")}]))
        topic = near(manager.first["id"], "levels/here")
        identities = [Identity.new() for _ in range(2 + FAN_OUT)]
        above, *site = (each.node_id.hex() for each in identities)
        if system == "two levels":
            _manage(manager, folder, "campus", "chain", [above, "site"])
            address = _manage(manager, folder, "site", "star", site, "campus")
            scopes = [f"campus@{address}", *[f"site@{address}"] * len(site)]
        else:
            identities = identities[1:]
            scopes = [f"site@{_manage(manager, folder, 'site', 'star', site)}"] * len(site)
        secrets = [each.secret.hex() for each in identities]
        members = []
        for secret, scope in zip(secrets, scopes, strict=True):  # the first ones are entry points
            (member,) = stack.enter_context(actors("quillcast", [{**shared, "secret": secret, "scope": scope}]))
            member.ask("subscribe", topics=[topic])
            members.append(member)
        manager.ask("open", topic=topic)
        chosen = _forwarder(manager, topic, [manager.first["id"], *(each.first["id"] for each in members)])
        forwarder = next((each for each in members if each.first["id"] == chosen), None)
        return {} if forwarder is None else _publish(manager, members, forwarder, bundles)


def _manage(manager: Actor, folder: Path, name: str, policy: str, members: list[str], above: str = "") -> str:
    """Run the manager of a scope. Returns its address."""
    listed = ", ".join(f'"{each}"' for each in members)
    superscopes = f'"{above}"' if above else ""
    file = folder / f"{name}.toml"
    file.write_text(SCOPE.format(name=name, superscopes=superscopes, members=listed, policy=policy))
    return str(manager.ask("manage", file=str(file))["address"])


def _forwarder(manager: Actor, topic: str, peers: list[str]) -> str | None:
    """Wait for the ordered tree: one member of the site below the peer before it, and the others below that member."""
    *line, _, _, _, _, _ = peers  # the publisher, and the campus's entry point if there is one
    until_s = time.monotonic() + SHAPE_S
    while True:
        parents = {each["node_id"]: each["parent"] for each in manager.ask("tree", topic=topic)["peers"]}
        site = [each for each in peers if each not in line]
        heads = [each for each in site if parents.get(each) == line[-1]]
        followers = [each for each in site if parents.get(each) in heads]
        in_line = all(parents.get(each) == above for above, each in pairwise(line))
        if len(heads) == 1 and len(followers) == FAN_OUT and in_line:
            return heads[0]
        if time.monotonic() > until_s:
            print(f"after {SHAPE_S:g} s the topic's tree is not the one that was ordered: {parents}", file=sys.stderr)
            return None
        time.sleep(0.2)


def _publish(publisher: Actor, members: list[Actor], forwarder: Actor, bundles: int) -> Row:
    publisher.ask("publish", size_bytes=SIZE_BYTES, count=WARM_UP, rate=RATE)
    ask_all(members, "collect", count=WARM_UP)
    ask_all(members, "reset")
    meter = Meter(forwarder.process.pid)
    publisher.ask("publish", size_bytes=SIZE_BYTES, count=bundles, rate=RATE)
    took = ask_all(members, "collect", count=bundles)
    lost = sum(bundles - each["count"] for each in took)
    return {"cpu_ms": 1e6 * meter.cpu_s() / bundles, "lost": lost}


if __name__ == "__main__":
    main()
