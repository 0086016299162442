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
    with pytest.raises(DiskFailed, match="file is not a database; it is damaged: restore a copy, or remove"):
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
