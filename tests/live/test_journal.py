"""The journal on a real disk: flushes, rotation, a killed process, a full disk."""

import asyncio
import logging
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from quillcast.core import journal as layout
from quillcast.core.envelope import Term
from quillcast.core.errors import DiskFailed
from quillcast.core.trace import Delivered, Mark
from quillcast.live.storage.journal import FLUSH_S, ROWS_MAX, Journal
from quillcast.pipeline.reading import Tail, whole

PEER = bytes(range(16))


def delivered(n: int) -> Delivered:
    return Delivered(b"t" * 16, b"p" * 16, 10 * n, 10, n, Term(1, PEER), 10 * n)


def test_what_was_noted_is_read_back_in_order(tmp_path: Path) -> None:
    with Journal(tmp_path / "made" / "here", PEER) as journal:
        for n in range(3 * ROWS_MAX + 5):
            journal.trace(delivered(n) if n % 2 else Mark(str(n)), n)
    entries = Tail(tmp_path).read()
    assert [entry.entry for entry in entries] == list(range(3 * ROWS_MAX + 5))
    assert all(entry.peer == PEER and entry.started_ns == journal.started_ns for entry in entries)
    assert [entry.record for entry in entries[:3]] == [Mark("0"), delivered(1), Mark("2")]
    assert whole(journal.path.read_bytes()).closed


def test_what_is_noted_turn_by_turn_is_laid_out_before_there_is_too_much(tmp_path: Path) -> None:
    with Journal(tmp_path, PEER) as journal:
        for n in range(2 * ROWS_MAX):
            journal.trace(delivered(n) if n % 3 else Mark(str(n)), n)
            if n % 7 == 0:
                journal.note()
        assert Tail(tmp_path).read() == []  # laid out, and written with what follows
    assert [entry.at_ns for entry in Tail(tmp_path).read()] == list(range(2 * ROWS_MAX))


def test_the_event_loop_flushes_only_when_there_is_something_to_write(tmp_path: Path) -> None:
    async def scenario() -> list[float]:
        loop, asked = asyncio.get_running_loop(), []
        written = asyncio.Event()  # behind a step of its own

        def call_later(delay_s: float, flush: object) -> None:
            asked.append(delay_s)
            loop.call_later(delay_s, lambda: (flush(), delay_s or written.set()))  # type: ignore[operator]

        with Journal(tmp_path, PEER, call_later=call_later) as journal:
            tail = Tail(tmp_path)
            for n in range(10):
                journal.trace(Mark("x"), n)
            assert tail.read() == []
            await written.wait()
            assert len(tail.read()) == 10
            assert tail.read() == []
        return asked

    assert asyncio.run(scenario()) == [FLUSH_S, 0.0]


def test_files_rotate_and_the_oldest_go_when_the_bound_is_reached(tmp_path: Path) -> None:
    former = tmp_path / f"{PEER[:8].hex()}-1-0000.arrows"
    former.write_bytes(bytes(30_000))
    other = tmp_path / "00ff-1-0000.arrows"
    other.write_bytes(layout.beginning())
    with Journal(tmp_path, PEER, file_bytes_max=10_000, bytes_max=50_000) as journal:
        for n in range(100):
            journal.trace(Mark("x" * 1000), n)
            journal.flush()
    files = sorted(tmp_path.glob(f"{PEER[:8].hex()}-*"))
    assert former not in files
    assert other.exists()
    assert len(files) > 2
    assert sum(file.stat().st_size for file in files) <= 50_000
    numbers = [entry.entry for entry in Tail(tmp_path).read()]
    assert numbers == list(range(numbers[0], 100))
    assert numbers[0] > 0


WRITER = """
import asyncio, sys, time
from quillcast.core.trace import Mark
from quillcast.live.storage.journal import Journal

async def main():
    journal = Journal(sys.argv[1], bytes(range(16)), call_later=asyncio.get_running_loop().call_later)
    while True:
        for n in range(100):
            journal.trace(Mark("x" * 50), time.time_ns())
        await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.mark.live
def test_a_killed_process_leaves_every_record_up_to_its_last_flush(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)]) as writer:
        tail, seen = Tail(tmp_path), 0
        while seen < 20_000:
            assert writer.poll() is None
            seen += len(tail.read())
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    numbers = [entry.entry for entry in Tail(tmp_path).read()]
    assert len(numbers) >= seen
    assert numbers == list(range(len(numbers)))
    (path,) = tmp_path.iterdir()
    assert not whole(path.read_bytes()).closed


FILLER = """
import logging, resource, sys
from pathlib import Path
from quillcast.core.trace import Mark
from quillcast.live.storage.journal import Journal
from quillcast.pipeline.reading import Tail, whole

logging.basicConfig(format="%(message)s")
if sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
journal = Journal(sys.argv[1], bytes(range(16)))
for n in range(1000):
    journal.trace(Mark("x" * 1000), n)
    journal.flush()
journal.close()
assert journal.failed
(path,) = Path(sys.argv[1]).iterdir()
assert whole(path.read_bytes()).dropped_bytes == 0
print(len(Tail(sys.argv[1]).read()))
"""


def test_a_full_disk_ends_the_journal_with_one_warning_and_complete_records(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILLER, str(tmp_path), "20000"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) > 3
    assert len(run.stderr.splitlines()) == 1
    assert "peer 00010203 continues without a journal" in run.stderr
    assert "File too large" in run.stderr


def test_a_full_file_system_does_the_same(tmp_path: Path) -> None:
    inside = f'mount -t tmpfs -o size=64k none {tmp_path} && exec "$@"'
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
    if subprocess.run([*small, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no mount namespaces")
    run = subprocess.run(
        [*small, sys.executable, "-c", FILLER, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) > 3
    assert len(run.stderr.splitlines()) == 1
    assert "No space left on device" in run.stderr


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskFailed, match=r"no journal in .*file/journals: Not a directory; name another folder"):
        Journal(tmp_path / "file" / "journals", PEER)


def test_a_peer_that_starts_again_writes_a_journal_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for n in range(2):
        with Journal(tmp_path, PEER) as journal:
            journal.trace(Mark(str(n)), n)
    entries = Tail(tmp_path).read()
    assert [entry.entry for entry in entries] == [0, 0]
    assert entries[0].started_ns < entries[1].started_ns
    assert caplog.records == []


def test_a_removed_file_is_reported_once_and_the_next_one_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = list[str]()
    with Journal(tmp_path, PEER, on_problem=told.append) as journal:
        journal.trace(Mark("gone"), 1)
        journal.flush()
        journal.path.unlink()
        for n in range(2, 4):
            journal.trace(Mark("kept"), n)
            journal.flush()
        assert (journal.failed, journal.removed_count, journal.missed_count) == (None, 1, 0)
        assert told == [f"its journal was removed: it continues in {journal.path}"]
    assert [entry.at_ns for entry in Tail(tmp_path).read()] == [2, 3]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("away", ["moved", "removed"])
def test_a_removed_folder_is_not_created_and_the_journal_continues_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, away: str
) -> None:
    folder, elsewhere, told = tmp_path / "journals", tmp_path / "elsewhere", list[str]()
    with Journal(folder, PEER, on_problem=told.append) as journal:
        journal.trace(Mark("before"), 1)
        journal.flush()
        if away == "moved":
            folder.rename(elsewhere)
        else:
            shutil.rmtree(folder)
        for n in range(2, 5):
            journal.trace(Mark("missed"), n)
            journal.flush()
        line = f"the folder {folder} was removed; nothing is written until it is back"
        assert told == [f"its journal was removed: {line}"]
        assert (journal.failed, journal.removed_count, journal.missed_count) == (line, 1, 3)
        assert not folder.exists()
        if away == "moved":
            elsewhere.rename(folder)
        else:
            folder.mkdir()
        journal.trace(Mark("after"), 5)
        journal.flush()
        assert (journal.failed, journal.removed_count, journal.missed_count) == (None, 1, 3)
    kept = [entry.at_ns for entry in Tail(folder).read()]
    assert kept == ([1, 5] if away == "moved" else [5])
    assert len(caplog.records) == 1


def test_a_missing_folder_is_noticed_although_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    with Journal(folder, PEER) as journal:
        assert journal.stands()
        shutil.rmtree(folder)
        assert not journal.stands()
        assert not journal.stands()
        assert journal.removed_count == 1
        folder.mkdir()
        assert journal.stands()


def test_a_folder_that_returns_and_is_not_writable_ends_the_journal(tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    journal = Journal(folder, PEER)
    shutil.rmtree(folder)
    assert not journal.stands()
    folder.mkdir()
    (folder / journal.path.name).mkdir()  # its next file cannot be made
    assert not journal.stands()
    assert journal.failed is not None
    assert "the journal ends at record 0" in journal.failed
    shutil.rmtree(folder)
    folder.mkdir()
    assert not journal.stands()
    journal.close()
