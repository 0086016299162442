"""Standard input and output beside an event loop, on real pipes."""

import asyncio
import os
from pathlib import Path

import pytest

from quillcast.cli import streams
from quillcast.cli.endings import ReaderGone
from quillcast.cli.streams import Writer, lines_of
from quillcast.core.errors import EventTooLarge


async def read_all(fd: int) -> list[bytes]:
    return [line async for lines in lines_of(fd) for line in lines]


def test_lines_come_without_their_ends_the_last_one_too(tmp_path: Path) -> None:
    text = tmp_path / "lines"
    text.write_bytes(b"one\ntwo\n\nfour" + b"\n" + b"x" * 200_000 + b"\nlast")
    with text.open("rb") as file:
        lines = asyncio.run(read_all(file.fileno()))
    assert lines == [b"one", b"two", b"", b"four", b"x" * 200_000, b"last"]


def test_a_line_is_there_as_soon_as_it_was_written() -> None:
    async def first() -> list[bytes]:
        return await anext(lines_of(read_end))

    read_end, write_end = os.pipe()
    os.write(write_end, b"hello\nand th")
    assert asyncio.run(first()) == [b"hello"]
    os.close(write_end)


def test_a_line_that_no_topic_takes_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(streams, "LINE_BYTES_MAX", 100_000)
    text = tmp_path / "line"
    text.write_bytes(b"x" * 300_000)
    with text.open("rb") as file, pytest.raises(EventTooLarge, match="more than 100000 bytes"):
        asyncio.run(read_all(file.fileno()))


def test_what_is_written_comes_out_in_order() -> None:
    async def write() -> None:
        async with Writer(write_end) as writer:
            for number in range(1000):
                await writer.write(b"%d\n" % number)
            await writer.drain()

    read_end, write_end = os.pipe()
    asyncio.run(write())
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reader:
        assert reader.read().split() == [b"%d" % number for number in range(1000)]


def test_a_slow_reader_holds_up_the_writer_and_not_the_event_loop() -> None:
    async def write() -> int:
        async with Writer(write_end) as writer:
            steps, write_all = 0, asyncio.ensure_future(writer.write(b"x" * (streams.WAITING_BYTES_MAX + 1)))
            while not write_all.done() and steps < 100:
                steps += 1
                await asyncio.sleep(0)
            size = 0
            while size <= streams.WAITING_BYTES_MAX:
                size += len(await asyncio.to_thread(os.read, read_end, 1 << 16))
            await write_all
            return steps

    read_end, write_end = os.pipe()
    assert asyncio.run(write()) == 100
    os.close(read_end)
    os.close(write_end)


def test_a_reader_that_has_gone_ends_whatever_is_waited_for() -> None:
    async def write() -> None:
        async with Writer(write_end) as writer:
            await writer.write(b"hello\n")
            await asyncio.Event().wait()

    read_end, write_end = os.pipe()
    os.close(read_end)
    with pytest.raises(ReaderGone):
        asyncio.run(write())
    os.close(write_end)
