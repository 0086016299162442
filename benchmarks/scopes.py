"""Compare domains that are scopes with the same peers in the overlay alone.

A simulated network on a transit-stub topology, with topics of Zipf sizes whose subscribers are random peers. In one run
every peer has a place in the ring. In the other each stub domain is a scope with the policy `delay_optimised`, so that
only three of its peers have one; managers run at the peers of transit routers. Each topic's root publishes one event.

`median_delay_ratio` is the median, over all deliveries, of the delay from the root divided by that of the direct path.
`border_in` and `border_total` count the copies of an event that enter a domain, and that cross its border either way:
the mean per topic and domain with subscribers. `children_max` is the most children that a peer has in one topic.
"""

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

from admission import Timed
from head import Row, parser, tell
from simulate import LARGE_PAGES, SEED, Writer, begin_all, join_all, peer_at, run_until

from quillcast.core.bundle import Bundle
from quillcast.core.messages import Contact
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.policies.delay_optimised import DelayOptimised
from quillcast.protocol.scopes.state import SCOPE_LEASE_S, ScopeConfig
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.state.tree import Tree
from quillcast.sim.applications import peer_of
from quillcast.sim.host import Machine, SimHost
from quillcast.sim.journal import Journal
from quillcast.sim.network import Network
from quillcast.sim.topology import TransitStub
from quillcast.sim.world import World, derived

SYSTEMS = ("overlay", "scoped")


class Size(NamedTuple):
    """The size of the network."""

    peers: int
    topics: int
    transit_domains: int
    routers: int
    stubs: int


SIZES = {
    "whole": Size(5000, 60, 10, 5, 10),  # Scribe's evaluation: 500 stub domains
    "medium": Size(
        1500, 12, 10, 3, 5
    ),  # for experiments: differs from the aims as much as the whole, in a fifth of the time
    "quick": Size(500, 30, 10, 1, 5),
}
SHARE, ZIPF = 0.5, 1.25  # the r-th topic has the share 0.5 r^-1.25 of all peers; the exponent is Scribe's evaluation's
OPEN_S = 3.0  # until publishers find that their own peer is the root
POLICY = DelayOptimised()
COMPOSE_S = 60.0  # from the last subscription until orders are carried out and measurements made


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    made.add_argument("--size", choices=SIZES, help="how large (default: whole, or quick with --quick)")
    made.add_argument("--seed", type=int, default=SEED, help=f"of the network and its topics (default: {SEED})")
    options = made.parse_args()
    size = SIZES[options.size or ("quick" if options.quick else "whole")]
    rows = list[Row]()
    os.environ.update(LARGE_PAGES)  # which a process takes up when it starts
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for system in options.systems:
            began_s = time.monotonic()
            rows.append(pool.submit(measure, system, size, options.seed).result())
            print(f"{system}, {time.monotonic() - began_s:.1f} s", file=sys.stderr, flush=True)
    tell("scopes", rows, options)


def measure(system: str, size: Size, seed: int) -> Row:
    """One run, from nothing to the last delivery."""
    gc.disable()  # peers live as long as the run; garbage collection would double its time
    country = Country(system, size, seed)
    country.begin()
    topics = [Topic(country, number) for number in range(size.topics)]
    run_until(country.world, lambda: all(each.started for each in topics), "subscribed")
    country.world.run(country.world.now + COMPOSE_S)
    for topic in topics:
        topic.open()
    country.world.run(country.world.now + OPEN_S)
    for topic in topics:
        topic.publish()
    run_until(country.world, lambda: all(each.delivered for each in topics), "got the event")
    visits = sum(len(each.domains) for each in topics)
    return {
        "system": system,
        "median_delay_ratio": round(statistics.median([ratio for each in topics for ratio in each.ratios()]), 3),
        "border_in": round(country.entered / visits, 3),
        "border_total": round(country.crossed / visits, 3),
        "children_max": max(each.children_max() for each in topics),
        "peers": country.peers,
        "domains": country.domains,
        "topics": len(topics),
        "seed": seed,
    }


class Country:
    """All peers and their stub domains."""

    def __init__(self, system: str, size: Size, seed: int) -> None:
        self.peers, self.seed = size.peers, seed
        topology = TransitStub(
            self.peers,
            derived(seed, "transit-stub"),
            transit_domains=size.transit_domains,
            routers_per_transit=size.routers,
            stubs_per_router=size.stubs,
        )
        self.scoped, self.domain = system == "scoped", [topology.stub(number) for number in range(self.peers)]
        self.domains = len({*self.domain} - {None})
        self.entered = self.crossed = 0
        config = Config()
        self.world = World(
            seed,
            Network(topology, derived(seed, "network")),
            lambda host: Watched(host, config, self._arrived),
            None,
            journal=Journal(keep=frozenset()),
        )

    def _arrived(self, here: int, sender: Contact) -> None:
        there = self.world.number_at(sender.address)
        here_domain, there_domain = self.domain[here], self.domain[there]
        if here_domain != there_domain:
            self.entered += here_domain is not None
            self.crossed += (here_domain is not None) + (there_domain is not None)

    def begin(self) -> None:
        """Have all peers take part."""
        if not self.scoped:
            join_all(self.world, self.peers)
            return
        machines = [self.world.add() for _ in range(self.peers)]
        outside = [machine for machine in machines if self.domain[machine.number] is None]
        chance = derived(self.seed, "joins")

        def join(machine: Machine) -> None:
            known = outside[: outside.index(machine)]
            peer_of(self.world.start(machine)).join([chance.choice(known).contact] if known else [])

        begin_all(self.world, outside, join)
        owners = dict[int | None, Party]()
        for number, domain in enumerate(dict.fromkeys(self.domain)):
            owners[domain] = self._manage(f"domain {domain}", outside[number % len(outside)])
        members = [machine for machine in machines if self.domain[machine.number] is not None]
        begin_all(
            self.world,
            chance.sample(members, len(members)),
            lambda machine: peer_of(self.world.start(machine)).scoping.join(
                [owners[self.domain[machine.number]]], SCOPE_LEASE_S
            ),
        )

    def _manage(self, name: str, machine: Machine) -> Party:
        party = Party(scope_id(name.encode()), machine.contact, managed=True, name=name)
        manager = ScopeManager.new(party, (), ScopeConfig(lambda topic: POLICY))
        peer_at(self.world, machine.number).scoping.manage(manager, lambda state: True)
        return party


class Watched(Peer):
    """A peer that reports where bundles come from."""

    def __init__(self, host: SimHost, config: Config, arrived: Callable[[int, Contact], None]) -> None:
        super().__init__(host, config)
        self.number, self.arrived = host.machine.number, arrived

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        self.arrived(self.number, sender)
        super().bundle(sender, bundle)


class Topic:
    """A topic and its subscribers, by the numbers of their peers."""

    def __init__(self, country: Country, number: int) -> None:
        self.country, self.world, self.name = country, country.world, f"topic/{number}"
        size = max(2, round(SHARE * country.peers * (number + 1) ** -ZIPF))
        chance = derived(country.seed, self.name)
        self.audience = {each: Timed(self.world) for each in chance.sample(range(country.peers), size)}
        self.domains = {country.domain[each] for each in self.audience} - {None}
        self.began, self.root = 0.0, -1
        for each, timed in self.audience.items():
            peer_at(self.world, each).subscribe(self.name, timed)

    @property
    def started(self) -> bool:
        return all(each.started_count for each in self.audience.values())

    @property
    def delivered(self) -> bool:
        return all(each.delivered for each in self.audience.values())

    def trees(self) -> Iterator[tuple[int, Tree]]:
        """The trees of all peers that take part."""
        id_ = described(self.name).topic
        for number in range(self.country.peers):
            tree = peer_at(self.world, number).topics.trees.get(id_)
            if tree is not None:
                yield number, tree

    def open(self) -> None:
        """Open a publisher at the root."""
        self.root = next(number for number, tree in self.trees() if tree.root is not None)
        self.publisher = peer_at(self.world, self.root).publisher(self.name, Writer())

    def publish(self) -> None:
        self.began = self.world.now
        self.publisher.offer([b"the one event of this topic"])

    def ratios(self) -> Iterator[float]:
        """The delays of its subscribers, divided by those of the direct path."""
        delay_s = self.world.network.delay_s
        for number, each in self.audience.items():
            if number != self.root:
                yield (each.at - self.began) / delay_s(self.root, number)

    def children_max(self) -> int:
        return max(len(tree.leases.children) for _, tree in self.trees())


if __name__ == "__main__":
    main()
