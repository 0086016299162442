"""The folder of a run: what is in it is complete, whatever happens to who writes it."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.evaluation import memory
from quillcast.evaluation.experiment import Experiment, Workload
from quillcast.evaluation.folder import Folder, next_folder, of_policy

ASKED = Experiment(name="mine", peers=100, policies=("scribe",), workload=Workload(groups=3))


def half_made(folder: Folder, part: str, error: Exception) -> None:
    with folder.making(part) as made:
        made.mkdir()
        raise error


def test_a_part_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run", ASKED)
    with folder.making("tables/a", stage="trees") as made:
        made.mkdir()
        (made / "rows").write_text("1")
        assert not folder.has("tables/a")
    assert (folder / "tables/a" / "rows").read_text() == "1"
    assert folder.made("tables/a")["stage"] == "trees"
    with pytest.raises(RuntimeError):
        half_made(folder, "tables/b", RuntimeError())
    assert not folder.has("tables/b")


def test_a_full_disk_is_reported_with_how_to_resume(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run", ASKED)
    with pytest.raises(DiskFailed) as refused:
        half_made(folder, "tables/a", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert f"No space left on device; fix that and resume with --output {tmp_path / 'run'}" in str(refused.value)
    folder.close()
    again = Folder(tmp_path / "run", ASKED)
    assert not again.has("tables/a")
    assert not (tmp_path / "run" / "unfinished").exists()


def test_policies_may_be_added_to_a_run_and_peers_may_not(tmp_path: Path) -> None:
    Folder(tmp_path / "run", ASKED).close()
    Folder(tmp_path / "run", ASKED.with_(policies=("scribe", "star"))).close()
    with pytest.raises(LocalError, match="holds another experiment: mine, 100 peers"):
        Folder(tmp_path / "run", ASKED.with_(peers=101))


def test_every_policy_makes_a_name_that_readers_give_back(tmp_path: Path) -> None:
    names = ["scribe", "scribe+remover(64)+improve(16)", "stripes(16, 32)"]
    for name in names:
        path = tmp_path / of_policy("trees", name)
        path.mkdir(parents=True)
        pq.write_table(pa.table({"group": [1]}), path / "part.parquet")
    assert sorted(pq.read_table(tmp_path / "trees")["policy"].to_pylist()) == sorted(names)


def test_the_next_folder_is_one_that_is_wanted_or_new(tmp_path: Path) -> None:
    base = tmp_path / "run"
    assert next_folder(base, lambda path: False) == base
    base.mkdir()
    (tmp_path / "run-2").mkdir()
    assert next_folder(base, lambda path: False) == tmp_path / "run-3"
    assert next_folder(base, lambda path: path.name == "run-2") == tmp_path / "run-2"


FORKS_WHEN_TOLD = """
import os
loaded = bytearray(os.urandom(40 << 20))
os.write(1, b"alone")
os.read(0, 1)
if os.fork() == 0:
    mine = bytearray(os.urandom(20 << 20))
    os.write(1, b"with a child")
os.read(0, 1)
"""


def test_memory_of_children_counts_and_what_they_share_counts_once() -> None:
    with subprocess.Popen([sys.executable, "-c", FORKS_WHEN_TOLD], stdin=PIPE, stdout=PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(5)
        alone = memory.resident(process.pid)
        assert len(alone) == 1, "one program"
        assert alone.total() > 40 << 20
        process.stdin.write(b".")
        process.stdout.read(12)
        with memory.Watch(process.pid) as watch:
            pass
        assert 19 << 20 < watch.peak_bytes - alone.total() < 35 << 20, "its own, without the forty that both map"
        assert watch.peak.keys() == alone.keys()
        process.stdin.write(b"..")
