import asyncio
from collections.abc import Callable

import pytest

from quillcast.live.runtime import pump as pump_module
from quillcast.live.runtime.pump import Pump
from quillcast.live.runtime.yielding import Yielding


def played(scenario: Callable[[Pump, Callable[[str], None]], None]) -> list[str]:
    """The notes by the end of the event loop's next turns; the end of a turn of the pump is noted as "wrote"."""
    noted: list[str] = []

    async def play() -> None:
        pump = Pump(asyncio.get_running_loop())
        pump.write = lambda: bool(noted.append("wrote"))
        scenario(pump, noted.append)
        noted.append("returned")
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(play())
    return noted


def test_what_is_defer_comes_at_the_end_of_the_turn_and_links_write_after_it() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.turning = True
        pump.hand(lambda: pump.defer(note, "sealed"))
        pump.hand(note, "another input")
        pump.end_turn()

    assert played(scenario) == ["another input", "sealed", "wrote", "returned"]


def test_what_is_defer_at_the_end_of_a_turn_comes_when_links_have_written() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        def seal() -> None:
            note("sealed")
            pump.defer(note, "acknowledged")

        pump.call(pump.defer, seal)

    assert played(scenario) == ["sealed", "wrote", "acknowledged", "wrote", "returned"]


def test_a_call_alone_is_a_turn_and_what_its_step_gives_rise_to_is_part_of_it() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        def step() -> None:
            pump.hand(note, "input")
            pump.defer(note, "deferred")
            note("step")

        pump.call(step)

    assert played(scenario) == ["step", "input", "deferred", "wrote", "returned"]


def test_what_is_asked_for_soon_comes_in_one_turn() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.soon(lambda: pump.call(note, "first"))
        pump.soon(lambda: pump.call(note, "second"))

    assert played(scenario) == ["returned", "first", "second", "wrote"]


def test_a_failing_input_does_not_stop_the_others() -> None:
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
    """Input that only waits for the end of the turn has been queued by then."""
    come = asyncio.Event()
    asyncio.get_running_loop().call_later(0.0, come.set)
    await come.wait()


def test_deferred_work_runs_after_turns_that_sent_no_events() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.at_rest = lambda: note("at rest")
        pump.call(lambda: pump.after(lambda: pump.call(note, "answered by the application")))
        nothing_left, pump.write = pump.write, lambda: True
        pump.call(note, "published")
        pump.write = nothing_left
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
        pump.write = lambda: bool(noted.append("wrote"))
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
        pump.write = lambda: True
        pump.call(noted.append, "published")
        pump.write = lambda: False
        pump.call(noted.append, "acknowledged")
        return noted

    assert asyncio.run(scenario()) == ["published", "acknowledged", "timed"]


class Noted(Yielding):
    """Notes when the pump yields."""

    def __init__(self, noted: list[str]) -> None:
        super().__init__(sched_yield=lambda: noted.append("yielded"))


@pytest.mark.usefixtures("patient")
def test_a_turn_goes_through_its_phases_in_order() -> None:
    noted: list[str] = []

    async def scenario() -> None:
        pump = Pump(asyncio.get_running_loop(), Noted(noted))
        events = iter([True, False, False])

        def write() -> bool:
            noted.append("wrote")
            return next(events)

        def seal() -> None:
            noted.append("settled")
            pump.defer(acknowledge)

        def acknowledge() -> None:
            noted.append("acknowledged")
            pump.after(lambda: noted.append("delivered"))

        pump.write, pump.at_rest = write, lambda: noted.append("rested")
        pump.later(0.0, noted.append, "timed")
        await fallen_due()
        pump.turning = True
        pump.call(pump.defer, seal)
        pump.call(noted.append, "stepped")
        pump.end_turn()

    asyncio.run(scenario())
    events = ["stepped", "settled", "wrote", "yielded", "acknowledged", "wrote", "delivered", "rested"]
    assert noted == [*events, "yielded", "timed", "wrote", "rested"]


def turn(pump: Pump, noted: list[str]) -> None:
    """One in which events leave, with something left to do then."""
    pump.write = lambda: True
    pump.call(pump.defer, lambda: pump.defer(noted.append, "acknowledged"))


def test_a_peer_yields_after_events_and_only_before_other_work() -> None:
    noted: list[str] = []

    async def scenario() -> None:
        pump = Pump(asyncio.get_running_loop(), Noted(noted))
        turn(pump, noted)
        pump.call(noted.append, "alone")
        pump.write = lambda: False
        pump.call(pump.defer, lambda: pump.defer(noted.append, "no event left"))

    asyncio.run(scenario())
    assert noted == ["yielded", "acknowledged", "alone", "no event left"]


def test_the_application_comes_before_other_processes() -> None:
    noted: list[str] = []

    async def scenario() -> None:
        pump = Pump(asyncio.get_running_loop(), Noted(noted))
        pump.write = lambda: True

        def step() -> None:
            pump.after(lambda: noted.append("delivered"))
            pump.defer(pump.defer, noted.append, "acknowledged")

        pump.call(step)

    asyncio.run(scenario())
    assert noted == ["acknowledged", "delivered"]


def test_a_pump_whose_policy_is_off_never_yields() -> None:
    noted: list[str] = []

    async def scenario() -> None:
        pump = Pump(asyncio.get_running_loop(), Yielding(False, sched_yield=lambda: noted.append("yielded")))
        turn(pump, noted)

    asyncio.run(scenario())
    assert noted == ["acknowledged"]


def test_an_input_that_comes_during_a_step_waits_for_the_end_of_the_turn() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.turning = True
        pump.call(pump.hand, note, "caused by the first")
        pump.call(note, "second")
        pump.end_turn()

    assert played(scenario) == ["second", "caused by the first", "wrote", "returned"]


def test_a_closed_pump_takes_no_inputs() -> None:
    def scenario(pump: Pump, note: Callable[[str], None]) -> None:
        pump.turning = True
        pump.defer(note, "deferred")
        pump.close()
        pump.hand(note, "input")
        pump.end_turn()

    assert played(scenario) == ["wrote", "returned"]


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
