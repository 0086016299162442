"""A minute of chaos: twelve processes under load are killed, stopped and started again, and no promise is broken."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.chaos import plan
from tests.live.chaos.__main__ import perform
from tests.live.chaos.conductor import terms
from tests.live.stage import Wires

PEERS, SECONDS = 12, 45.0  # with its start and end a minute
LEASE_S, SETTLE_S = 10.0, 30.0  # the lease is short, so that some are stopped for longer than that
SEED = 1

FIRST = ("127.77.0.1", 7000)
LISTEN = f"import socket, sys; s = socket.create_server({FIRST}); print('listening', flush=True); sys.stdin.read()"
CONNECT = f"import socket; socket.create_connection({FIRST}, 1)"


def drawn(seed: int, *, partitions: bool = False) -> plan.Plan:
    return plan.draw(seed, peers=PEERS, seconds=SECONDS, lease_s=LEASE_S, partitions=partitions)


@pytest.mark.live
@pytest.mark.long
def test_a_minute_of_chaos_breaks_no_promise(tmp_path: Path) -> None:
    planned = drawn(SEED)
    print(planned)  # noqa: T201 - what happened, where the test fails
    verdict = perform(planned, terms(LEASE_S, SETTLE_S), tmp_path)
    print(verdict)  # noqa: T201
    assert verdict.violations == []


def test_a_seed_draws_the_same_plan_again_and_another_one_another() -> None:
    assert str(drawn(7, partitions=True)) == str(drawn(7, partitions=True))
    assert str(drawn(7)) != str(drawn(8))


@pytest.mark.parametrize("seed", range(20))
def test_every_topic_has_a_steady_writer_and_reader_without_faults(seed: int) -> None:
    planned = drawn(seed, partitions=True)
    befallen = {name for fault in planned.faults for name in fault.names}
    steady = [part for part in planned.parts if part.name not in befallen]
    topics = {setting.topic for setting in planned.settings}
    assert {topic for part in steady for topic in part.writes} == topics
    assert {read.topic for part in steady for read in part.reads if not (read.pause_s or read.comes_and_goes)} == topics


@pytest.mark.parametrize("seed", range(20))
def test_faults_of_one_process_do_not_overlap_and_all_are_over_in_time(seed: int) -> None:
    until = dict.fromkeys((part.name for part in drawn(seed).parts), 0.0)
    for fault in drawn(seed, partitions=True).faults:
        for name in fault.names:
            assert until[name] <= fault.at_s
            until[name] = fault.at_s + fault.for_s
    assert max(until.values()) <= SECONDS


def test_processes_are_stopped_for_less_and_for_more_than_a_lease() -> None:
    lengths = [fault.for_s for seed in range(5) for fault in drawn(seed).faults if fault.do == "stop"]
    assert min(lengths) < LEASE_S - 1
    assert max(lengths) > LEASE_S + 1


def test_the_plan_of_the_test_has_every_fault() -> None:
    assert {fault.do for fault in drawn(SEED).faults} == {"kill", "leave", "stop"}
    assert {fault.do for fault in drawn(SEED, partitions=True).faults} >= {"partition"}


@pytest.mark.live
def test_partitioned_hosts_reach_each_other_and_nobody_else(network: Wires) -> None:
    first, *others = [network.host()[0] for _ in range(3)]
    with subprocess.Popen(inside(first, LISTEN), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"listening\n"
        assert [reaches(host) for host in others] == [True, True]
        network.partition([first, others[0]])
        assert [reaches(host) for host in others] == [True, False]
        network.heal(first)
        assert [reaches(host) for host in others] == [False, True]
        network.heal(others[0])
        assert [reaches(host) for host in others] == [True, True]
        listener.communicate()


def inside(host: str, program: str) -> list[str]:
    """A command that runs a program on a host."""
    return ["ip", "netns", "exec", host, sys.executable, "-c", program]


def reaches(host: str) -> bool:
    """Can it connect to the first one?"""
    return subprocess.run(inside(host, CONNECT), stderr=subprocess.DEVNULL, check=False).returncode == 0
