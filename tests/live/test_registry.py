import asyncio
import errno
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from quillcast.core.errors import DiskFailed, LocalError, Unreachable
from quillcast.core.messages import Contact
from quillcast.core.status.peers import NodeStatus
from quillcast.live.discovery import control, registry, runtimefolder
from quillcast.live.discovery.questions import InviteClientQuestion, StatusQuestion
from quillcast.live.discovery.registry import Entry, PeerRegistry, networks_here
from quillcast.live.node.node import Node
from quillcast.live.transport.hello import Identity

ME = Contact(b"m" * 16, "127.0.0.1:4000")


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("QUILLCAST_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(runtimefolder, "_LOGINS", tmp_path / "logins")
    return tmp_path


def test_an_entry_is_found_until_it_leaves(runtime: Path) -> None:
    place = PeerRegistry("default")
    place.enter(ME)
    assert [entry.contact for entry in PeerRegistry("default").entries()] == [ME]
    assert PeerRegistry("other").entries() == []
    place.leave(ME)
    assert place.entries() == []


def test_an_entry_that_does_not_fit_leaves_nothing_behind(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(draft: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = PeerRegistry("default")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DiskFailed, match=r"No space left on device; other peers of this machine look there"):
        place.enter(ME)
    assert [path.name for path in place.folder.iterdir() if path.suffix != ".lock"] == []


def test_the_longest_running_peer_comes_first(runtime: Path) -> None:
    place = PeerRegistry("default")
    for name in (b"z", b"a", b"k"):
        place.enter(Contact(name * 16, "127.0.0.1:1"))
    assert [entry.contact.node_id[:1] for entry in place.entries()] == [b"z", b"a", b"k"]


def test_files_of_dead_processes_are_swept_with_their_sockets(runtime: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    place = PeerRegistry("default")
    place.enter(ME)
    stale = Entry((b"d" * 16).hex(), "127.0.0.1:1", dead.pid, 1)
    (place.folder / "dead.json").write_bytes(msgspec.json.encode(stale))
    (place.folder / "dead.sock").touch()
    (place.folder / "half.json").write_text('{"node_id": "')
    assert [entry.contact for entry in place.entries()] == [ME]
    assert sorted(path.name for path in place.folder.glob("*.*")) == [f"{(b'm' * 16).hex()[:16]}.json"]


def test_a_peer_that_was_killed_and_comes_back_can_be_asked(runtime: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    place, identity = PeerRegistry("default"), Identity.new()
    contact = Contact(identity.node_id, "127.0.0.1:1")
    stale = Entry(contact.node_id.hex(), contact.address, dead.pid, 1)
    place.control_path(contact).with_suffix(".json").write_bytes(msgspec.json.encode(stale))

    async def main() -> NodeStatus:
        async with Node(identity=identity):  # it looks for others, and sweeps, before it registers
            return await asyncio.to_thread(
                lambda: control.ask(place.control_path(contact), StatusQuestion(), NodeStatus)
            )

    assert asyncio.run(main()).node_id == contact.node_id.hex()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 65, "net\n"])
def test_a_name_that_would_be_no_folder_is_refused(name: str) -> None:
    with pytest.raises(LocalError, match="is not a network name"):
        PeerRegistry(name)


def test_without_a_runtime_folder_one_of_the_user_alone_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = PeerRegistry("default")
    assert place.folder == tmp_path / f"quillcast-{os.getuid()}" / "default"
    assert place.folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"quillcast-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LocalError, match="others can write to it; remove it, or name another"):
        PeerRegistry("default")


def unusable(kind: str, folder: Path) -> tuple[str, str]:
    """A value of XDG_RUNTIME_DIR that cannot be used, and the word for it."""
    if kind == "a file":
        (folder / "file").touch()
        return str(folder / "file"), "it is not a folder"
    if kind == "in a file":
        (folder / "file").touch()
        return str(folder / "file" / "deeper"), "Not a directory"
    if kind == "of another user":
        (folder / "theirs").mkdir()
        os.chown(folder / "theirs", OTHER, OTHER)
        return str(folder / "theirs"), f"it belongs to user {OTHER}"
    if kind == "writable by others":
        (folder / "open").mkdir()
        (folder / "open").chmod(0o777)
        return str(folder / "open"), "others can write to it"
    if kind == "missing":
        return str(folder / "missing" / "4321"), "it does not exist"
    if kind == "too long":
        return str(folder / ("x" * 300)), "File name too long"
    return "a/relative/path", "it is not an absolute path"


OTHER = 4321  # a user that nobody need know
KINDS = ["a file", "in a file", "writable by others", "missing", "too long", "relative"]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes what other users have, which takes root")


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("of another user", marks=as_root)])
def test_another_folder_is_used_where_the_runtime_folder_cannot_be_and_that_is_said(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, problem = unusable(kind, tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", named)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = PeerRegistry("default")
    assert place.folder == tmp_path / f"quillcast-{os.getuid()}" / "default"
    assert place.notice == f"XDG_RUNTIME_DIR={named} cannot be used: {problem}"
    assert str(place.folder) in place.looked_in
    assert place.notice in place.looked_in
    assert not (tmp_path / "missing").exists()


def test_a_folder_too_deep_for_a_unix_socket_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 120)  # created, as its parent exists
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    place = PeerRegistry("default")
    assert (place.folder, place.notice) == (deep / "quillcast" / "default", "")


def test_cron_and_a_login_of_one_user_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that began before the login's folder existed is found from it; without the variable, peers look there."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    before = PeerRegistry("default")
    before.enter(ME)
    login = tmp_path / "logins" / str(os.geteuid())
    login.mkdir(parents=True)
    without = PeerRegistry("default")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(login))
    place = PeerRegistry("default")
    assert place.folder == without.folder == login / "quillcast" / "default"
    assert [entry.contact for entry in place.entries()] == [ME]
    assert place.control_path(ME).parent == place.folder
    before.control_path(ME).touch()
    assert place.control_path(ME) == before.control_path(ME)
    assert networks_here() == ["default"]
    assert str(before.folder) in place.looked_in


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_folder_can_be_named(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "named" / "deeper"
    if by == "variable":
        monkeypatch.setenv("QUILLCAST_RUNTIME_DIR", str(named))
    place = PeerRegistry("default", named if by == "argument" else None)
    assert place.folder == named / "default"
    assert named.stat().st_mode & 0o777 == 0o700
    assert not place.is_shared


@pytest.mark.parametrize("kind", ["a file", "in a file", "writable by others", "too long"])
def test_a_named_folder_that_cannot_be_used_is_an_error(kind: str, tmp_path: Path) -> None:
    named, problem = unusable(kind, tmp_path)
    with pytest.raises(LocalError, match=f"the runtime folder {named} cannot be used: {problem}"):
        PeerRegistry("default", named)


@as_root
class TestShared:
    """A folder that users share: each writes to its own, and nobody else can."""

    @pytest.fixture
    def shared(self, tmp_path: Path) -> Path:
        folder = tmp_path / "shared"
        folder.mkdir()
        folder.chmod(0o1777)
        return folder

    @pytest.fixture
    def theirs(self, shared: Path) -> Path:
        """The folder of another user, with a peer of it."""
        folder = shared / str(OTHER) / "default"
        folder.mkdir(parents=True)
        entry = Entry((b"t" * 16).hex(), "127.0.0.1:1", os.getpid(), 1)
        (folder / "theirs.json").write_bytes(msgspec.json.encode(entry))
        for path in (folder.parent, folder, folder / "theirs.json"):
            os.chown(path, OTHER, OTHER)
        return folder

    def test_each_user_finds_the_peers_of_all_and_asks_its_own(self, shared: Path, theirs: Path) -> None:
        place = PeerRegistry("default", shared)
        place.enter(ME)
        assert place.folder == shared / str(os.geteuid()) / "default"
        assert [(entry.user, entry.is_own) for entry in place.all_entries()] == [(OTHER, False), (os.geteuid(), True)]
        assert [entry.contact for entry in place.entries()] == [ME]
        assert place.folder.stat().st_mode & 0o777 == 0o755
        assert next(place.folder.glob("*.json")).stat().st_mode & 0o777 == 0o644
        assert place.looked_in == f"{shared}/*/default"

    def test_a_socket_of_another_user_is_not_queried(self, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its answer to `invite` would be a line to join with: that of a network of its own."""
        path = theirs / "theirs.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(theirs)  # paths of sockets are short
            os.seteuid(OTHER)
            try:
                listener.bind(path.name)
                listener.listen()
            finally:
                os.seteuid(0)
            with pytest.raises(Unreachable, match="belongs to another user, and is not trusted"):
                control.ask(path, InviteClientQuestion(), str, timeout_s=1)

    def test_dead_peers_of_others_are_passed_over_and_left_alone(self, shared: Path, theirs: Path) -> None:
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        entry = Entry((b"d" * 16).hex(), "127.0.0.1:1", dead.pid, 1)
        (theirs / "theirs.json").write_bytes(msgspec.json.encode(entry))
        assert PeerRegistry("default", shared).all_entries() == []
        assert (theirs / "theirs.json").exists()

    def test_what_is_not_its_folders_owners_plain_file_is_not_read(self, shared: Path, theirs: Path) -> None:
        place = PeerRegistry("default", shared)
        content = (theirs / "theirs.json").read_bytes()
        (theirs / "roots.json").write_bytes(content)
        (theirs / "link.json").symlink_to(theirs / "theirs.json")
        os.mkfifo(theirs / "pipe.json")
        os.chown(theirs / "pipe.json", OTHER, OTHER)
        assert [entry.user for entry in place.all_entries()] == [OTHER]

    @pytest.mark.parametrize("wrong", ["owner", "rights", "link"])
    def test_a_folder_that_may_be_another_users_is_not_read(
        self, shared: Path, theirs: Path, wrong: str, tmp_path: Path
    ) -> None:
        folder = theirs.parent
        if wrong == "owner":
            os.chown(folder, OTHER + 1, OTHER)
        elif wrong == "rights":
            folder.chmod(0o777)
        else:
            folder.rename(tmp_path / "elsewhere")
            folder.symlink_to(tmp_path / "elsewhere")
        assert PeerRegistry("default", shared).all_entries() == []

    def test_a_shared_folder_of_another_user_is_not_trusted(self, shared: Path) -> None:
        os.chown(shared, OTHER, OTHER)
        with pytest.raises(LocalError, match=f"it belongs to user {OTHER}; to share one between users, have root"):
            PeerRegistry("default", shared)

    def test_a_folder_of_mine_that_somebody_else_made_is_not_used(self, shared: Path) -> None:
        mine = shared / str(os.geteuid())
        mine.mkdir()
        os.chown(mine, OTHER, OTHER)
        with pytest.raises(LocalError, match=f"{mine} cannot be used: it belongs to user {OTHER}"):
            PeerRegistry("default", shared)


def test_a_lock_that_is_never_released_blocks_nobody_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_LOCK_S", 0.02)
    place, other = PeerRegistry("default"), PeerRegistry("default")
    with place.alone(), other.alone():
        pass
