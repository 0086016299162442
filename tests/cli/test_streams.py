"""Standard input and output beside an event loop, on real pipes."""

import asyncio
import os
from pathlib import Path

import pytest

from quillcast.cli import streams
from quillcast.cli.endings import ReaderGone
from quillcast.cli.streams import Writer, lines_of
from quillcast.core.errors import DiskFailed, EventTooLarge


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


def test_a_line_too_large_for_any_topic_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_full_output_is_not_mistaken_for_a_closed_one() -> None:
    async def write() -> None:
        async with Writer(full) as writer:
            await writer.write(b"line")
            await writer.drain()

    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(DiskFailed, match="the output cannot be written: No space left on device"):
        asyncio.run(write())
    os.close(full)


def test_a_busy_output_is_waited_for() -> None:
    lines = b"x" * (1 << 20)

    async def write() -> bytes:
        async with Writer(write_end) as writer:
            reading = asyncio.create_task(asyncio.to_thread(read))
            await writer.write(lines)
            await writer.drain()
            return await reading

    def read() -> bytes:
        data = b""
        while len(data) < len(lines):
            data += os.read(read_end, 1 << 16)
        return data

    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    assert asyncio.run(write()) == lines
    os.close(read_end)
    os.close(write_end)


def test_an_input_without_data_has_not_ended() -> None:
    async def read() -> list[bytes]:
        lines = lines_of(read_end)
        first = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        os.write(write_end, b"late\n")
        os.close(write_end)
        return await first

    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    assert asyncio.run(read()) == [b"late"]
    os.close(read_end)


def test_an_input_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="the input"):
        asyncio.run(read_all(folder))
    os.close(folder)
