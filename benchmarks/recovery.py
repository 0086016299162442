"""Which peers members of scopes ask for missing events, in hard fault histories of the simulator.

`one`: most peers are in one scope with the policy `mesh`. `three`: they are in three, which are members of a campus
with the policy `chain`. For each recovery protocol, `requests` counts all requests of members to other peers (`Fetch`).
`into_others` of them go to a peer of another scope of the campus, and `outside` to one that is in no scope. Of these
two kinds, `held_inside` ask for events that another member of the asker's scope held, while it ran and could reach the
asker; `without_orders` of these come from members that had no orders for the topic. `searching` counts messages for
finding holders: questions and offers to all, and tokens.
"""

import sys
from collections import Counter
from functools import partialmethod

from head import Row, parser, tell

from quillcast.core.messages import Contact, Message
from quillcast.protocol.forwarding.answers import holding
from quillcast.protocol.reliability.messages import Fetch, Offered, RingToken, Sought
from quillcast.sim.applications import peer_of
from quillcast.sim.hard import hard
from quillcast.sim.host import Machine, SimHost
from quillcast.sim.scenario import Scenario
from quillcast.sim.simulation import Simulation

LAYOUTS = {"one": (1, ""), "three": (3, "chain")}
PROTOCOLS = {"one": ("tree", "gossip", "ring", "srm"), "three": ("tree", "ring", "srm")}
HISTORIES, QUICK_HISTORIES = 100, 10


def main() -> None:
    options = parser(__doc__).parse_args()
    rows: list[Row] = []
    for layout, (count, within) in LAYOUTS.items():
        for protocol in PROTOCOLS[layout]:
            counted = Counter[str]()
            for seed in range(QUICK_HISTORIES if options.quick else HISTORIES):
                Asked(hard(seed).with_scopes("mesh", count, within, protocol), counted).run(seed)
            columns = ("requests", "into_others", "outside", "held_inside", "without_orders", "searching")
            rows.append({"scopes": layout, "recovery": protocol, **{name: counted[name] for name in columns}})
            print(f"scopes: {layout}, recovery = {protocol}", file=sys.stderr, flush=True)
    tell("recovery", rows, options)


class Asked:
    """Counts the questions of members in one history."""

    def __init__(self, scenario: Scenario, counted: Counter[str]) -> None:
        self.scenario, self.counted = scenario, counted
        self.scopes = {number: plan.name for plan in scenario.scopes for number in plan.members}
        self.numbers: dict[bytes, int] = {}
        self.send = SimHost.send

    def run(self, seed: int) -> None:
        """Run the history."""
        self.simulation = Simulation(self.scenario, seed)
        SimHost.send = partialmethod(_counted, self)  # type: ignore[assignment, method-assign]
        try:
            self.simulation.run()
        finally:
            SimHost.send = self.send  # type: ignore[method-assign]

    def count(self, host: SimHost, to: Contact, message: Fetch) -> None:
        """Count a request of a member to another peer."""
        if host.machine.number not in self.scopes:
            return
        machines = self.simulation.world.machines
        here, there = (self.scopes.get(number) for number in (host.machine.number, _number(machines, to)))
        self.counted["requests"] += 1
        if here == there:
            return
        self.counted["outside" if there is None else "into_others"] += 1
        if any(self._holds(number, host, message) for number in self.scopes if self.scopes[number] == here):
            self.counted["held_inside"] += 1
            controller = peer_of(host).scoping.controller
            if controller is None or controller.membership.assignment(message.topic).depth is None:
                self.counted["without_orders"] += 1

    def _holds(self, number: int, asker: SimHost, message: Fetch) -> bool:
        network, here = self.simulation.world.network, asker.machine.number
        peers = {machine.number: peer for machine, peer in self.simulation.running()}
        if number == here or number not in peers or network.blocked(here, number) or network.blocked(number, here):
            return False
        flow = peers[number].table.flows.get(message.topic)
        return flow is not None and bool(holding(flow, message.term, message.ranges))


def _number(machines: list[Machine], to: Contact) -> int:
    return next((each.number for each in machines if each.node_id == to.node_id), -1)


def _counted(host: SimHost, asked: Asked, to: Contact, message: Message) -> None:
    if isinstance(message, Fetch):
        asked.count(host, to, message)
    elif isinstance(message, Sought | Offered | RingToken):
        asked.counted["searching"] += 1
    asked.send(host, to, message)


if __name__ == "__main__":
    main()
