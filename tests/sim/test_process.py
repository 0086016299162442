"""Processes and their links by themselves: no machine, no world, no peer."""

from random import Random
from typing import Any

import pytest

from quillcast.core.messages import Contact
from quillcast.sim.links import Exchange, Links
from quillcast.sim.network import Network, isolated
from quillcast.sim.process import Process
from quillcast.sim.surroundings import Surroundings
from quillcast.sim.topology import Constant

DELAY_S = 0.02


class Noted:
    """Inputs that are written down."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []

    def message(self, sender: Contact, message: Any) -> None:
        self.got.append(("message", message))

    def bundle(self, sender: Contact, bundle: Any) -> None: ...

    def timer(self, timer: Any) -> None:
        self.got.append(("timer", timer))

    def link_up(self, contact: Contact) -> None:
        self.got.append(("up", contact))

    def link_lost(self, contact: Contact) -> None:
        self.got.append(("lost", contact))

    def died(self, contact: Contact) -> None: ...
    def room(self, contact: Contact) -> None: ...
    def measured(self, contact: Contact, proximity: float | None) -> None: ...
    def disk_done(self, token: Any, result: Any) -> None: ...


class Two:
    """Two processes of one world that can call each other."""

    def __init__(self) -> None:
        self.network = Network(Constant(DELAY_S), Random(0))
        self.world, self.exchange = Surroundings(self.network, None), Exchange()
        self.noted = Noted(), Noted()
        self.links = self._links(0), self._links(1)
        self.processes = self.links[0].host, self.links[1].host

    def _links(self, number: int) -> Links:
        contact = Contact(bytes([number + 1]) * 16, f"sim:{number}")
        self.world.addresses[contact.address] = number
        process = Process(self.world, number, contact)
        process.inputs = self.noted[number]
        links = Links(process, self.exchange)
        self.exchange.open(links)
        return links


@pytest.fixture
def two() -> Two:
    return Two()


def test_a_link_takes_a_round_trip_and_tells_both(two: Two) -> None:
    here, there = two.processes
    two.links[0].call(there.contact).send("hello")
    two.world.run(DELAY_S)
    assert (two.noted[0].got, two.noted[1].got) == ([], [("up", here.contact)])
    two.world.run(3 * DELAY_S)
    assert two.noted[0].got == [("up", there.contact)]
    assert two.noted[1].got == [("up", here.contact), ("message", "hello")]


def test_a_call_where_nobody_runs_is_refused(two: Two) -> None:
    there = two.processes[1].contact
    two.exchange.close(1)
    two.links[0].call(there)
    two.world.run(2 * DELAY_S)
    assert two.noted[0].got == [("lost", there)]
    assert two.links[0].ends == {}


def test_the_end_of_a_process_breaks_its_links(two: Two) -> None:
    there = two.processes[1]
    two.links[0].call(there.contact)
    two.world.run(1.0)
    there.end()
    two.links[1].close(silently=False)
    two.world.run(2.0)
    assert two.noted[0].got == [("up", there.contact), ("lost", there.contact)]


def test_after_a_pause_timers_come_first_and_then_what_arrived_in_order(two: Two) -> None:
    process, noted = two.processes[0], two.noted[0]
    process.pause()
    process.act(lambda: noted.got.append(("call", 1)))
    process.fire("timer")
    process.act(lambda: noted.got.append(("call", 2)))
    assert noted.got == []
    process.resume()
    two.world.run(1.0)
    assert noted.got == [("timer", "timer"), ("call", 1), ("call", 2)]


def test_a_dead_process_takes_nothing_in(two: Two) -> None:
    process = two.processes[0]
    process.end()
    process.fire("timer")
    process.act(lambda: two.noted[0].got.append(("call", 1)))
    assert (two.noted[0].got, process.ended_at) == ([], 0.0)


def test_every_step_is_reported(two: Two) -> None:
    process, steps = two.processes[0], []
    process.stepped = lambda: steps.append(two.world.steps)
    process.fire("timer")
    process.act(lambda: None)
    assert steps == [1, 2]


def test_paused_or_cut_off_peers_answer_no_query(two: Two) -> None:
    here, there = two.processes
    assert two.exchange.echo(here, 1, there.contact) is True
    assert two.exchange.echo(here, 1, here.contact) is False, "another process runs there"
    there.pause()
    assert two.exchange.echo(here, 1, there.contact) is None
    there.resume()
    two.network.cut(isolated(1))
    assert two.exchange.echo(here, 1, there.contact) is None
