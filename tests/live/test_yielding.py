"""The policy of yielding the CPU, with a clock and a CPU of its own."""

from pathlib import Path

import pytest

import quillcast
from quillcast.live.node import presence
from quillcast.live.runtime.yielding import LONG_S, PAUSE_S, Yielding
from tests.live.toys import run


class Cpu:
    """A CPU that another process wants too: yielding gives it away for `kept_s`."""

    def __init__(self) -> None:
        self.now, self.kept_s, self.yields = 1.0, 0.0, 0

    def sched_yield(self) -> None:
        self.yields += 1
        self.now += self.kept_s

    def policy(self, enabled: bool = True) -> Yielding:
        return Yielding(enabled, clock=lambda: self.now, sched_yield=self.sched_yield)

    def yielded(self, policy: Yielding, kept_s: float) -> bool:
        """Does the policy yield now, to a process that would keep the CPU for so long?"""
        before, self.kept_s = self.yields, kept_s
        policy.yield_cpu()
        return self.yields > before


SHORT, LONG = 0.0, 2 * LONG_S


def test_a_peer_yields_to_processes_that_need_a_moment() -> None:
    cpu = Cpu()
    policy = cpu.policy()
    assert [cpu.yielded(policy, SHORT) for _ in range(5)] == [True] * 5


def test_a_peer_stops_yielding_when_it_lost_the_cpu_for_long_twice_in_a_row() -> None:
    cpu = Cpu()
    policy = cpu.policy()
    assert [cpu.yielded(policy, kept_s) for kept_s in (LONG, LONG, SHORT, LONG)] == [True, True, False, False]


def test_a_single_long_yield_is_no_reason_to_stop() -> None:
    cpu = Cpu()
    policy = cpu.policy()
    assert [cpu.yielded(policy, kept_s) for kept_s in (LONG, SHORT, LONG, SHORT, LONG)] == [True] * 5


def test_a_peer_yields_again_after_a_pause_and_counts_from_the_beginning() -> None:
    cpu = Cpu()
    policy = cpu.policy()
    for _ in range(2):
        assert cpu.yielded(policy, LONG)
    began = cpu.now - LONG
    cpu.now = began + 0.99 * PAUSE_S
    assert not cpu.yielded(policy, SHORT)
    cpu.now = began + 1.01 * PAUSE_S
    assert [cpu.yielded(policy, LONG) for _ in range(3)] == [True, True, False]


def test_yielding_can_be_turned_off() -> None:
    cpu = Cpu()
    policy = cpu.policy(enabled=False)
    cpu.now += 1000 * PAUSE_S
    assert not cpu.yielded(policy, SHORT)


@pytest.mark.live
@pytest.mark.parametrize("enabled", [True, False])
def test_a_node_yields_as_its_setting_says(enabled: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[bool] = []

    def policy(enabled: bool) -> Yielding:
        made.append(enabled)
        return Yielding(enabled)

    async def scenario() -> None:
        async with quillcast.Node(runtime_dir=tmp_path, live=quillcast.LiveConfig(yield_cpu=enabled)):
            assert made == [enabled]

    monkeypatch.setattr(presence, "Yielding", policy)
    run(scenario())
