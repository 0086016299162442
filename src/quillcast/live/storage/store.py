"""The data folder of a peer: a lock, and a SQLite database for small tables (docs/design.md, section 8).

========== ========================================================= =====================================
table      columns                                                   for
========== ========================================================= =====================================
identity   secret                                                    being the same peer after a restart
contacts   node_id, address, seen_ns                                 finding the network again
topics     name, descriptor                                          topics known here, as they were sealed
scopes     name, state                                               coming back as the same manager of a scope
members    scope, orders                                             coming back to a scope while its manager is down
tokens     hash, scope, until_ns, used_ns, used_by                   join lines of scopes, and who entered by them
========== ========================================================= =====================================
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import MappingProxyType

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.core.messages import Contact
from quillcast.live.damage import unusable
from quillcast.live.transport.hello import Identity
from quillcast.protocol.security.tokens import Token

DATABASE = "peer.sqlite"
LOCK = "lock"
CONTACTS_MAX = 64  # a guess: four leaf sets of addresses to try after a restart

_SCHEMA = """
create table if not exists identity (one integer primary key check (one = 1), secret blob not null);
create table if not exists contacts (node_id blob primary key, address text not null, seen_ns integer not null);
create table if not exists topics (name text primary key, descriptor blob not null);
create table if not exists scopes (name text primary key, state blob not null);
create table if not exists members (scope text primary key, orders blob not null);
create table if not exists tokens (
    hash blob primary key, scope text not null, until_ns integer not null, used_ns integer not null, used_by blob
);
"""


class Store:
    """The small tables in a peer's data folder, which no other running peer can open.

    Raises `LocalError` if the folder belongs to a running peer, `DiskFailed` if it cannot be used. If the folder is
    removed while the peer runs, every call raises `DiskFailed` until the folder is back; then the tables are saved in
    it again. The folder is not created again, because a disk may be mounted there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._alone = Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = self._claim()
        except OSError as problem:
            raise DiskFailed(f"the data folder {folder} cannot be used: {problem.strerror}; name another") from problem
        try:
            with self._translated():
                self._open()
        except DiskFailed:
            os.close(self._lock)
            raise

    def identity(self) -> Identity:
        """The identity of this folder's peer; a new one at the first start."""
        with self._asking():
            row = self._database.execute("select secret from identity").fetchone()
            if row is not None:
                return Identity.of_secret(row[0])
            identity = Identity.new()
            self._database.execute("insert into identity values (1, ?)", [identity.secret])
            return identity

    def contacts(self) -> list[Contact]:
        """The latest neighbours, most recent first."""
        with self._asking():
            rows = self._database.execute("select node_id, address from contacts order by seen_ns desc, node_id")
            return [Contact(node, address) for node, address in rows]

    def topics(self) -> list[bytes]:
        """The descriptors stored here."""
        with self._asking():
            return [row[0] for row in self._database.execute("select descriptor from topics order by name")]

    def memberships(self) -> list[bytes]:
        """The orders of scope managers to this peer, their member."""
        with self._asking():
            return [row[0] for row in self._database.execute("select orders from members order by scope")]

    def scope(self, name: str) -> bytes | None:
        """The stored state of a scope's manager."""
        with self._asking():
            row = self._database.execute("select state from scopes where name = ?", [name]).fetchone()
            return None if row is None else row[0]

    def keep_scope(self, name: str, state: bytes) -> None:
        """Store the state of a scope's manager before it takes effect."""
        with self._asking():
            self._database.execute("replace into scopes values (?, ?)", [name, state])

    def add_token(self, scope: str, hash_: bytes, until_ns: int) -> None:
        """Store the token of a join line of a scope."""
        with self._asking():
            self._database.execute("insert into tokens values (?, ?, ?, 0, null)", [hash_, scope, until_ns])

    def token(self, scope: str, hash_: bytes) -> Token | None:
        """Find a token of a scope's join line; None if there is no such token."""
        with self._asking():
            ask = "select until_ns, used_ns from tokens where scope = ? and hash = ?"
            row = self._database.execute(ask, [scope, hash_]).fetchone()
            return None if row is None else Token(*row)

    def use_token(self, hash_: bytes, party: bytes, now_ns: int) -> None:
        """Record that a party entered a scope with a token."""
        with self._asking():
            change = "update tokens set used_ns = ?, used_by = ? where hash = ?"
            self._database.execute(change, [now_ns, party, hash_])

    def entered(self, scope: str, party: bytes) -> bool:
        """Whether a party entered a scope with a join line."""
        with self._asking():
            ask = "select 1 from tokens where scope = ? and used_by = ?"
            return self._database.execute(ask, [scope, party]).fetchone() is not None

    def scope_tokens(self, scope: str) -> list[tuple[bytes, int, int, bytes | None]]:
        """The tokens of a scope: hash, expiry, time of use, and party."""
        with self._asking():
            ask = "select hash, until_ns, used_ns, used_by from tokens where scope = ?"
            return self._database.execute(ask, [scope]).fetchall()

    def keep_tokens(self, scope: str, tokens: Iterable[tuple[bytes, int, int, bytes | None]]) -> None:
        """Store tokens of a scope that another peer issued."""
        with self._asking():
            rows = [(hash_, scope, *rest) for hash_, *rest in tokens]
            self._database.executemany("replace into tokens values (?, ?, ?, ?, ?)", rows)

    def note(
        self, contacts: Iterable[Contact], topics: Mapping[str, bytes],
        memberships: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Store these peers' addresses, up to `CONTACTS_MAX` in all, and these topics' descriptors, by name.

        `memberships` are the orders of managers, by the names of the scopes that this peer is a member of.
        """
        now = time.time_ns()
        with self._asking(), self._database:
            self._database.execute("begin")
            self._database.executemany(
                "replace into contacts values (?, ?, ?)",
                [(contact.node_id, contact.address, now) for contact in contacts],
            )
            self._database.execute(
                "delete from contacts where node_id not in "
                "(select node_id from contacts order by seen_ns desc limit ?)",
                [CONTACTS_MAX],
            )
            self._database.executemany("replace into topics values (?, ?)", topics.items())
            self._database.execute("delete from members")
            self._database.executemany("insert into members values (?, ?)", memberships.items())

    def close(self) -> None:
        """Close the database and unlock the folder."""
        with self._alone:
            self._database.close()
        os.close(self._lock)

    def look(self) -> None:
        """Raise `DiskFailed` if the folder was removed. If it is back, save the tables in it again."""
        with self._asking():
            pass

    def _claim(self) -> int:
        """Lock the folder; returns the lock's file descriptor."""
        lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            pid = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise LocalError(
                f"the data folder {self.folder} belongs to a running peer (pid {pid}); stop that one, or name another"
            ) from problem
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        except OSError as problem:
            os.close(lock)
            raise DiskFailed(f"{self.folder / LOCK}: {problem.strerror}; name another data folder") from problem
        return lock

    def _open(self) -> None:
        path = self.folder / DATABASE
        path.touch(mode=0o600)  # before SQLite creates it, so that only the owner can read the secret
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file = path.stat()
        self._database.execute("pragma journal_mode = wal")
        self._database.executescript(_SCHEMA)

    def _find(self) -> None:
        """Check that the open database is still in the folder. If the folder is empty, save the tables again."""
        if _is_at(self.folder / DATABASE, self._file):
            return
        if not self.folder.is_dir():
            raise DiskFailed(
                f"the data folder {self.folder} was removed; the peer's identity and topics are lost when it stops, "
                "unless you create the folder again"
            )
        if (self.folder / DATABASE).exists():
            raise DiskFailed(
                f"the data folder {self.folder} was replaced by another one; nothing is saved until the first one is "
                "back"
            )
        self._save_again()

    def _save_again(self) -> None:
        if not _is_at(self.folder / LOCK, os.fstat(self._lock)):
            former, self._lock = self._lock, self._claim()
            os.close(former)
        copy = self.folder / f"{DATABASE}-new"
        copy.unlink(missing_ok=True)
        copy.touch(mode=0o600)
        saved = sqlite3.connect(copy, isolation_level=None)
        try:
            saved.executescript("\n".join(self._database.iterdump()))
        finally:
            saved.close()
        copy.replace(self.folder / DATABASE)
        self._database.close()  # before reopening it: SQLite removes the log by name
        self._open()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Admit one thread at a time, to the current folder.

        A leaving node saves its state while another thread may still be saving. Without the lock, an error of the later
        one would roll back the transaction of the earlier one.
        """
        with self._translated(), self._alone:
            self._find()
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of the database into one clear error."""
        try:
            yield
        except (OSError, sqlite3.Error) as problem:
            raise unusable(self.folder / DATABASE, problem) from problem


def _is_at(path: Path, file: os.stat_result) -> bool:
    """Whether this open file is still the one of that name."""
    try:
        return os.path.samestat(path.stat(), file)
    except (FileNotFoundError, NotADirectoryError):
        return False
