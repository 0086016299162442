import asyncio
from collections.abc import Callable

import pytest

from quillcast.live.runtime import pump as pump_module
from quillcast.live.runtime.pump import Pump


def played(scenario: Callable[[Pump, Callable[[str], None]], None]) -> list[str]:
    """What is noted by the end of the event loop's next turns; the end of a turn of the pump is noted as "wrote"."""
    noted: list[str] = []

    async def play() -> None:
        pump = Pump(asyncio.get_running_loop())
        pump.at_end = lambda: bool(noted.append("wrote"))
        scenario(pump, noted.append)
        noted.append("returned")
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(play())
    return noted


def test_what_is_put_off_comes_at_the_end_of_the_turn_and_links_write_after_it() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.turning = True
        pump.hand(lambda: pump.put_off(note, "sealed"))
        pump.hand(note, "another input")
        pump.end_turn()

    assert played(scenario) == ["another input", "sealed", "wrote", "returned"]


def test_what_is_put_off_at_the_end_of_a_turn_comes_when_links_have_written() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        def seal() -> None:
            note("sealed")
            pump.put_off(note, "acknowledged")

        pump.call(pump.put_off, seal)

    assert played(scenario) == ["sealed", "wrote", "acknowledged", "wrote", "returned"]


def test_a_call_alone_is_a_turn_and_what_its_step_gives_rise_to_is_part_of_it() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        def step() -> None:
            pump.hand(note, "input")
            pump.put_off(note, "put off")
            note("step")

        pump.call(step)

    assert played(scenario) == ["step", "input", "put off", "wrote", "returned"]


def test_what_is_asked_for_soon_comes_in_one_turn() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.soon(lambda: pump.call(note, "first"))
        pump.soon(lambda: pump.call(note, "second"))

    assert played(scenario) == ["returned", "first", "second", "wrote"]


def test_what_fails_holds_nothing_else_up() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: note(str(context["exception"])))

        def fail() -> None:
            raise ZeroDivisionError("failed")

        pump.soon(lambda: pump.call(fail))
        pump.soon(lambda: pump.call(note, "second"))

    assert played(scenario) == ["returned", "wrote", "failed", "second", "wrote"]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, what falls due waits for a turn."""
    monkeypatch.setattr(pump_module, "SLACK_S", 60.0)


async def fallen_due() -> None:
    """What was to come at once, if it were not for the turn that it waits for, has been put in line by then."""
    come = asyncio.Event()
    asyncio.get_running_loop().call_later(0.0, come.set)
    await come.wait()


def test_what_wants_nobody_to_wait_comes_behind_turns_that_sent_no_events_last() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.at_rest = lambda: note("at rest")
        pump.call(lambda: pump.after(lambda: pump.call(note, "answered by the application")))
        nothing_left, pump.at_end = pump.at_end, lambda: True
        pump.call(note, "published")
        pump.at_end = nothing_left
        pump.call(note, "heard of it")

    assert played(scenario) == [
        "wrote", "answered by the application", "wrote", "at rest", "published", "heard of it", "wrote", "at rest",
        "returned",
    ]  # fmt: skip


@pytest.mark.usefixtures("patient")
def test_what_is_timed_comes_behind_the_next_turn() -> None:
    async def scenario() -> list[str]:
        noted: list[str] = []
        pump = Pump(asyncio.get_running_loop())
        pump.at_end = lambda: bool(noted.append("wrote"))
        pump.later(0.0, noted.append, "timed")
        pump.later(0.0, pump.hand, noted.append, "timed input")
        await fallen_due()
        pump.call(noted.append, "event")
        return noted

    assert asyncio.run(scenario()) == ["event", "wrote", "timed", "timed input", "wrote"]


@pytest.mark.usefixtures("patient")
def test_what_is_timed_comes_behind_no_turn_that_sent_events_last() -> None:
    async def scenario() -> list[str]:
        noted: list[str] = []
        pump = Pump(asyncio.get_running_loop())
        pump.later(0.0, noted.append, "timed")
        await fallen_due()
        pump.at_end = lambda: True
        pump.call(noted.append, "published")
        pump.at_end = lambda: False
        pump.call(noted.append, "acknowledged")
        return noted

    assert asyncio.run(scenario()) == ["published", "acknowledged", "timed"]


class Processor:
    """Another process that waits for this one's processor, as far as `sched_yield` shows it."""

    def __init__(self, noted: list[str]) -> None:
        self.keeps_s, self._now, self._noted = 0.0, 1.0, noted

    def pump(self) -> Pump:
        """One that runs on this processor."""
        return Pump(asyncio.get_running_loop(), monotonic=lambda: self._now, sched_yield=self._yield)

    def _yield(self) -> None:
        self._noted.append("gave way")
        self._now += self.keeps_s


def turn(pump: Pump, noted: list[str]) -> None:
    """One in which events leave, with something left to do then."""
    pump.at_end = lambda: True
    pump.call(pump.put_off, lambda: pump.put_off(noted.append, "acknowledged"))


def test_whom_the_links_woke_may_run_before_what_can_wait() -> None:
    noted: list[str] = []
    other = Processor(noted)

    async def scenario() -> None:
        pump = other.pump()
        turn(pump, noted)
        pump.call(noted.append, "alone")
        pump.at_end = lambda: False
        pump.call(pump.put_off, lambda: pump.put_off(noted.append, "no event left"))

    asyncio.run(scenario())
    assert noted == ["gave way", "acknowledged", "alone", "no event left"]


def test_the_application_hears_what_came_before_others_run() -> None:
    noted: list[str] = []
    other = Processor(noted)

    async def scenario() -> None:
        pump = other.pump()
        pump.at_end = lambda: True

        def step() -> None:
            pump.after(lambda: noted.append("heard"))
            pump.put_off(pump.put_off, noted.append, "acknowledged")

        pump.call(step)

    asyncio.run(scenario())
    assert noted == ["acknowledged", "heard"]


@pytest.mark.usefixtures("patient")
def test_whom_the_links_woke_may_run_before_what_is_due() -> None:
    noted: list[str] = []
    other = Processor(noted)

    async def scenario() -> None:
        pump = other.pump()
        pump.later(0.0, noted.append, "timed")
        await fallen_due()
        pump.call(noted.append, "event")

    asyncio.run(scenario())
    assert noted == ["event", "gave way", "timed"]


def test_who_keeps_the_processor_every_time_is_not_given_way_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    other = Processor(noted)

    async def turns(kept: list[bool]) -> list[bool]:
        """In which of some turns is way given, where the other one keeps the processor for long in these?"""
        pump, given = other.pump(), []
        for long in kept:
            noted.clear()
            other.keeps_s = 2 * pump_module.AWAY_S if long else 0.0
            turn(pump, noted)
            assert noted[-1] == "acknowledged"
            given.append("gave way" in noted)
        return given

    assert asyncio.run(turns([True, True, True, False])) == [True, True, False, False]
    assert asyncio.run(turns([True, False, True, False, True])) == [True] * 5
    monkeypatch.setattr(pump_module, "UNYIELDING_S", 0.0)
    assert asyncio.run(turns([True] * 5)) == [True] * 5


def test_what_is_timed_waits_for_no_turn_for_long() -> None:
    async def scenario() -> None:
        pump = Pump(asyncio.get_running_loop())
        come = asyncio.Event()
        pump.later(0.0, come.set)
        await asyncio.wait_for(come.wait(), 20.0)

    asyncio.run(scenario())


@pytest.mark.usefixtures("patient")
def test_what_is_timed_is_not_lost_to_another_s_mistake() -> None:
    async def scenario() -> list[str]:
        noted: list[str] = []
        pump = Pump(asyncio.get_running_loop())
        pump.later(0.0, noted.remove, "nothing")
        pump.later(0.0, noted.append, "timed")
        await fallen_due()
        with pytest.raises(ValueError, match="not in list"):
            pump.call(noted.append, "event")
        return noted

    assert asyncio.run(scenario()) == ["event", "timed"]
