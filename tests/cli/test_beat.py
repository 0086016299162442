"""The beat: no tick is lost, none comes early, with the kernel's timer and without."""

import asyncio
import ctypes
import os
import time
from types import SimpleNamespace

import pytest

from quillcast.cli import beat as beat_module
from quillcast.cli.beat import Beat


async def ticks(rate: float, count: int) -> float:
    began = time.monotonic()
    async with Beat(rate) as beat:
        for _ in range(count):
            await beat.next()
    return time.monotonic() - began


@pytest.mark.parametrize("kernel", [True, False])
def test_so_many_strokes_take_at_least_their_time(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel:
        monkeypatch.setattr(beat_module, "ctypes", SimpleNamespace(CDLL=lambda *_, **__: object()))
    assert asyncio.run(ticks(1000.0, 50)) >= 0.045


@pytest.mark.parametrize("kernel", [True, False])
def test_strokes_that_were_missed_come_at_once(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel:
        monkeypatch.setattr(beat_module, "ctypes", SimpleNamespace(CDLL=lambda *_, **__: object()))

    async def held_up() -> list[int]:
        async with Beat(1000.0) as beat:
            await beat.next()
            time.sleep(0.02)  # noqa: ASYNC251 - what it is about
            turns, loop_turns = [], 0

            def turn() -> None:
                nonlocal loop_turns
                loop_turns += 1
                asyncio.get_running_loop().call_soon(turn)

            turn()
            for _ in range(15):
                await beat.next()
                turns.append(loop_turns)
            return turns

    turns = asyncio.run(held_up())
    assert turns == sorted(turns)
    assert len(set(turns)) == len(turns)  # the event loop ran in between


def test_a_kernel_without_timers_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = SimpleNamespace(timerfd_create=lambda *_: -1)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: refusing)
    with pytest.raises(OSError, match="provides no timer"):
        asyncio.run(ticks(1000.0, 1))


def test_a_timer_that_cannot_be_set_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    refusing = SimpleNamespace(timerfd_create=lambda *_: reading, timerfd_settime=lambda *_: -1)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: refusing)
    with pytest.raises(OSError, match="provides no timer"):
        asyncio.run(ticks(1000.0, 1))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
