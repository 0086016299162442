import shutil
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.core.messages import Contact
from quillcast.live.storage.store import CONTACTS_MAX, DATABASE, Store


def test_a_folder_makes_the_same_peer_again(tmp_path: Path) -> None:
    first = Store(tmp_path / "data")
    before = first.identity()
    first.close()
    again = Store(tmp_path / "data")
    assert again.identity().node_id == before.node_id
    again.close()


def test_contacts_come_back_latest_first_and_are_bounded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.note([Contact(number.to_bytes(16, "big"), f"127.0.0.1:{number}") for number in range(CONTACTS_MAX)], {})
    latest = Contact(b"x" * 16, "127.0.0.1:9")
    store.note([latest], {})
    contacts = store.contacts()
    assert contacts[0] == latest
    assert len(contacts) == CONTACTS_MAX
    store.close()


def test_a_known_contact_with_another_address_has_the_new_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.note([Contact(b"x" * 16, "127.0.0.1:1")], {})
    store.note([Contact(b"x" * 16, "127.0.0.1:2")], {})
    assert store.contacts() == [Contact(b"x" * 16, "127.0.0.1:2")]
    store.close()


def test_topics_are_kept_by_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.note([], {"b": b"old", "a": b"1"})
    store.note([], {"b": b"new"})
    assert store.topics() == [b"1", b"new"]
    store.close()


def test_of_scopes_those_are_kept_that_the_peer_is_still_a_member_of(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.note([], {}, {"site": b"1", "room": b"2"})
    store.note([], {}, {"site": b"3"})
    assert store.memberships() == [b"3"]
    store.close()


def test_the_folder_of_a_running_peer_is_refused_with_its_pid(tmp_path: Path) -> None:
    holder = (
        "import pathlib, sys; from quillcast.live.storage.store import Store; "
        "Store(pathlib.Path(sys.argv[1])); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LocalError, match=rf"belongs to a running peer \(pid {other.pid}\)"):
            Store(tmp_path)
        other.kill()
        other.wait()
    Store(tmp_path).close()  # the lock dies with its holder


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskFailed, match="cannot be used: Not a directory"):
        Store(tmp_path / "file" / "data")


def test_an_invalid_database_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_text("no database at all, but long enough to be looked at " * 10)
    with pytest.raises(DiskFailed, match="file is not a database; it is damaged: restore a backup, or remove"):
        Store(tmp_path)


def test_the_secret_is_readable_by_its_owner_alone_in_any_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    store = Store(tmp_path)
    store.identity()
    files = [path for path in tmp_path.iterdir() if path.name.startswith(DATABASE)]
    assert [path.stat().st_mode & 0o077 for path in files] == [0] * len(files)
    store.close()


def test_two_threads_that_keep_at_once_lose_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    contacts = [
        [Contact(bytes([thread, number]) * 8, f"127.0.0.1:{number}") for number in range(8)] for thread in (1, 2)
    ]
    threads = [Thread(target=lambda own=own: [store.note(own, {}) for _ in range(100)]) for own in contacts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.contacts()) == 16
    store.close()


def filled(folder: Path) -> Store:
    store = Store(folder)
    store.identity()
    store.note([Contact(b"x" * 16, "127.0.0.1:1")], {"a": b"topic"})
    store.keep_scope("campus", b"state")
    return store


@pytest.mark.parametrize("away", ["moved", "removed"])
def test_a_folder_that_is_removed_is_reported_and_gets_everything_again_when_it_is_back(
    tmp_path: Path, away: str
) -> None:
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    store = filled(folder)
    before = store.identity()
    if away == "moved":
        folder.rename(elsewhere)
    else:
        shutil.rmtree(folder)
    for use in (store.look, store.topics, lambda: store.keep_scope("campus", b"later")):
        with pytest.raises(DiskFailed, match=f"the data folder {folder} was removed"):
            use()
    assert not folder.exists(), "a disk may be mounted there"
    if away == "moved":
        elsewhere.rename(folder)
    else:
        folder.mkdir()
    store.note([], {"b": b"another"})
    with pytest.raises(LocalError, match="belongs to a running peer"):
        Store(folder)
    assert (folder / DATABASE).stat().st_mode & 0o777 == 0o600
    store.close()
    again = Store(folder)
    assert again.identity().secret == before.secret
    assert (again.topics(), again.scope("campus")) == ([b"topic", b"another"], b"state")
    assert [contact.address for contact in again.contacts()] == ["127.0.0.1:1"]
    again.close()


def test_a_database_that_is_removed_is_saved_again_at_once(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for file in tmp_path.glob(f"{DATABASE}*"):
        file.unlink()
    store.look()
    assert store.topics() == [b"topic"]
    store.close()
    again = Store(tmp_path)
    assert again.topics() == [b"topic"]
    again.close()


def test_the_folder_of_another_peer_is_left_alone(tmp_path: Path) -> None:
    store = filled(tmp_path / "data")
    filled(tmp_path / "other").close()
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    (tmp_path / "other").rename(tmp_path / "data")
    with pytest.raises(DiskFailed, match="was replaced by another one"):
        store.keep_scope("campus", b"later")
    store.close()
    other = Store(tmp_path / "data")
    assert other.scope("campus") == b"state"
    other.close()


def test_a_folder_that_returns_and_is_not_writable_is_a_clear_error_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (tmp_path / "nowhere").stat())
        for _ in range(2):
            with pytest.raises(DiskFailed, match=DATABASE):
                store.look()
    store.look()
    assert store.topics() == [b"topic"]
    store.close()
