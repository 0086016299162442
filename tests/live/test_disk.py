"""Append-only files behind the `Disk`: torn, flipped and refused writes on a real file system."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import DiskFailed
from quillcast.live.runtime.pump import Pump
from quillcast.live.storage.disk import FileDisk, RecordFile
from tests.live.toys import ToyPeer, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def filled(path: Path, *records: bytes) -> RecordFile:
    file = RecordFile(path)
    for record in records:
        file.append(record)
    return file


def test_offsets_count_data_and_reads_cross_records(path: Path) -> None:
    file = RecordFile(path)
    assert [file.append(data) for data in (b"alpha", b"", b"beta")] == [0, 5, 5]
    assert file.read(3, 4) == b"habe"
    assert file.read(7, 100) == b"ta"


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 200))
def test_a_truncated_file_continues_where_it_was_cut(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], cut: int
) -> None:
    path = tmp_path_factory.mktemp("disk") / "log"
    file = filled(path, *records)
    kept = b"".join(records)[:cut]
    assert file.truncate(cut) == len(kept)
    file.append(b"more")
    file.close()
    assert RecordFile(path).read(0, 1000) == kept + b"more"


def test_a_torn_record_at_the_end_is_cut_off_at_the_next_start(path: Path) -> None:
    filled(path, b"whole", b"and this one is torn").close()
    whole = path.read_bytes()
    for cut in range(1, 32):
        path.write_bytes(whole[:-cut])
        file = RecordFile(path)
        assert file.read(0, 100) == b"whole"
        file.append(b"!")
        assert file.read(0, 100) == b"whole!"
        file.close()


def test_bytes_that_never_came_after_a_power_loss_are_cut_off(path: Path) -> None:
    filled(path, b"whole").close()
    with path.open("ab") as file:
        file.write(bytes(100))
    assert RecordFile(path).read(0, 100) == b"whole"


@pytest.mark.parametrize("at", [0, 5, 9, 14])
def test_a_flipped_bit_before_the_end_is_an_error_that_names_the_file(path: Path, at: int) -> None:
    filled(path, b"first", b"second").close()
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DiskFailed, match=f"{path} is damaged at byte 0"):
        RecordFile(path).read(0, 5)
    assert path.read_bytes() == damaged


def test_a_flipped_bit_in_the_last_record_cuts_that_one_off(path: Path) -> None:
    filled(path, b"first", b"second").close()
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    assert RecordFile(path).read(0, 100) == b"first"


@contextmanager
def files_up_to(size_bytes: int) -> Iterator[None]:
    """Within this no file of the process grows past `size_bytes`, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def answers(peer: ToyPeer, count: int) -> list[Any]:
    await peer.until(lambda: len(peer.answers) == count)
    return [answer for _, answer in peer.answers]


class NoLinks:
    def __init__(self, pump: Pump) -> None:
        self.pump = pump


def on_disk(folder: Path | None) -> tuple[FileDisk, ToyPeer]:
    pump = Pump(asyncio.get_running_loop())
    peer = pump.inputs = ToyPeer(NoLinks(pump))  # type: ignore[arg-type]
    return FileDisk(pump, folder), peer


def test_orders_are_answered_in_order_with_their_tokens(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, peer = on_disk(tmp_path)
        disk.append("a/log", b"alpha", 1)
        disk.append("a/log", b"beta", 2)
        disk.sync("a/log", 3)
        disk.read("a/log", 3, 4, 4)
        disk.truncate("a/log", 5, 5)
        disk.read("a/log", 0, 100, 6)
        await peer.until(lambda: len(peer.answers) == 6)
        assert peer.answers == [(1, 0), (2, 5), (3, 9), (4, b"habe"), (5, 5), (6, b"alpha")]
        disk.close()

    run(scenario())


def test_a_full_disk_is_a_clear_error_and_keeps_what_it_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, peer = on_disk(tmp_path)
        disk.append("log", b"kept", "fits")
        await answers(peer, 1)
        with files_up_to(4096):
            disk.append("log", bytes(8192), "too much")
            await answers(peer, 2)
        disk.append("log", b"!", "fits again")
        disk.read("log", 0, 100, "read")
        found = await answers(peer, 4)
        assert isinstance(found[1], DiskFailed)
        assert "File too large; data stored before is kept" in str(found[1])
        assert found[2:] == [4, b"kept!"]
        disk.close()

    run(scenario())


def test_a_disk_order_without_a_data_folder_is_an_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, peer = on_disk(None)
        disk.append("log", b"data", 1)
        assert "has no data folder" in str((await answers(peer, 1))[0])
        disk.close()

    run(scenario())


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, peer = on_disk(tmp_path / "data")
        disk.append("../elsewhere", b"data", 1)
        assert "outside of the data folder" in str((await answers(peer, 1))[0])
        assert not (tmp_path / "elsewhere").exists()
        disk.close()

    run(scenario())
