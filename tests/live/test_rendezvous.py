import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.core.messages import Contact
from quillcast.live import rendezvous
from quillcast.live.rendezvous import Entry, Rendezvous

ME = Contact(b"m" * 16, "127.0.0.1:4000")


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_who_enters_is_found_until_it_leaves(runtime: Path) -> None:
    place = Rendezvous("default")
    place.enter(ME)
    assert [entry.contact for entry in Rendezvous("default").entries()] == [ME]
    assert Rendezvous("other").entries() == []
    place.leave(ME)
    assert place.entries() == []


def test_who_finds_no_room_leaves_nothing_behind(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(draft: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = Rendezvous("default")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DiskFailed, match=r"No space left on device; other peers of this machine look there"):
        place.enter(ME)
    assert [path.name for path in place.folder.iterdir() if path.suffix != ".lock"] == []


def test_the_longest_running_peer_comes_first(runtime: Path) -> None:
    place = Rendezvous("default")
    for name in (b"z", b"a", b"k"):
        place.enter(Contact(name * 16, "127.0.0.1:1"))
    assert [entry.contact.node_id[:1] for entry in place.entries()] == [b"z", b"a", b"k"]


def test_files_of_dead_processes_are_swept_with_their_sockets(runtime: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    place = Rendezvous("default")
    place.enter(ME)
    stale = Entry((b"d" * 16).hex(), "127.0.0.1:1", dead.pid, 1)
    (place.folder / "dead.json").write_bytes(msgspec.json.encode(stale))
    (place.folder / "dead.sock").touch()
    (place.folder / "half.json").write_text('{"node_id": "')
    assert [entry.contact for entry in place.entries()] == [ME]
    assert sorted(path.name for path in place.folder.glob("*.*")) == [f"{(b'm' * 16).hex()[:16]}.json"]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 65, "net\n"])
def test_a_name_that_would_be_no_folder_is_refused(name: str) -> None:
    with pytest.raises(LocalError, match="is no name of a network"):
        Rendezvous(name)


def test_without_a_runtime_folder_one_of_the_user_alone_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(rendezvous.tempfile, "gettempdir", lambda: str(tmp_path))
    place = Rendezvous("default")
    assert place.folder == tmp_path / f"quillcast-{os.getuid()}" / "default"
    assert place.folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(rendezvous.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"quillcast-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LocalError, match="is not a folder of yours alone"):
        Rendezvous("default")
