"""The folder of a network membership: the network's credential, or the identities that it admitted.

`network.pem` is the network's credential with its secret key; only the peer that admits others has it.
`members.sqlite` has the rest:

========== =============================== ============================================================
table      columns                         for
========== =============================== ============================================================
authority  certificate                     whom to trust
members    number, secret, certificate     peers that may run with this folder, each at most once at a time
contacts   address, seen_ns                finding the network again
tokens     hash, until_ns, used_ns         with the credential: the tokens that were issued
certified  hash, name, value               attributes of certificates that a token gives
========== =============================== ============================================================

They are in the data folder, for one peer. Without a data folder they are in the user's configuration folder, where each
running command of the user takes one of `MEMBERS_MAX` identities.
"""

import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.files import KEY_BYTES_MAX, read_bytes
from quillcast.live.admission.authority import Authority
from quillcast.live.admission.joinline import new_token
from quillcast.live.damage import unusable
from quillcast.live.transport.certificates import authority_key, read_member
from quillcast.live.transport.hello import Identity
from quillcast.protocol.security.members import fingerprint
from quillcast.protocol.security.tokens import Token, check_token, token_hash

AUTHORITY_FILE = "network.pem"
DATABASE = "members.sqlite"
MEMBERS_MAX = 16  # peers of one user on one machine at a time; a guess
CONTACTS_MAX = 16
TOKENS_KEPT_NS = 30 * 86400 * 10**9  # how long expired and used tokens are remembered
_ROOM_BYTES = 64 << 10  # the disk space that an admission requires
_WAIT_S = 10.0  # for another process to finish writing

_SCHEMA = """
create table if not exists authority (one integer primary key check (one = 1), certificate blob not null);
create table if not exists members (number integer primary key, secret blob not null, certificate blob not null);
create table if not exists contacts (address text primary key, seen_ns integer not null);
create table if not exists tokens (hash blob primary key, until_ns integer not null, used_ns integer not null);
create table if not exists certified (hash blob not null, name text not null, value text not null);
"""


class CertifiedIdentity:
    """An identity with its certificate. No other process can use it until it is closed."""

    def __init__(self, identity: Identity, certificate: bytes, authority: bytes, lock: int | None = None) -> None:
        self.identity, self.certificate, self.authority = identity, certificate, authority
        self._lock = lock

    def close(self) -> None:
        """Release it for other processes."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class Keyring:
    """A folder with a network's credential, or with identities that it admitted. The first write creates it.

    Raises `DiskFailed` if the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: list[Path] | None = None  # folders made for a credential that was created here, innermost first

    @property
    def certificate(self) -> bytes | None:
        """The certificate of the network that this folder belongs to."""
        if not (self.folder / DATABASE).exists():
            return None
        with self._database() as database:
            row = database.execute("select certificate from authority").fetchone()
            return None if row is None else bytes(row[0])

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the network that this folder belongs to."""
        certificate = self.certificate
        return None if certificate is None else fingerprint(authority_key(certificate))

    # --- the credential

    def authority(self) -> Authority | None:
        """The network's credential, if this folder has it."""
        path = self.folder / AUTHORITY_FILE
        return read_authority(path) if path.exists() else None

    def make_authority(self, network: str, now_ns: int) -> Authority:
        """Create the credential of a new network. If several processes try, exactly one succeeds."""
        new_folders = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self._make_folder()
        made, path = Authority.new(network, now_ns), self.folder / AUTHORITY_FILE
        draft = path.with_suffix(f".{os.getpid()}.draft")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(made.pem)
                os.fsync(file.fileno())
            try:
                path.hardlink_to(draft)
                self._made = new_folders
            except FileExistsError:
                made = read_authority(path)
            finally:
                draft.unlink()
        except OSError as problem:
            raise DiskFailed(f"the network's credential cannot be kept in {path}: {problem.strerror}") from problem
        self.trust(made.certificate)
        return made

    def unmake_authority(self) -> None:
        """Remove the credential that was created here, unless another process has joined its network since."""
        new_folders, self._made = self._made, None
        if new_folders is None or self.count > 1:
            return
        for path in (self.folder / AUTHORITY_FILE, self.folder / DATABASE, *self.folder.glob("member-*.lock")):
            path.unlink(missing_ok=True)
        for folder in new_folders:
            if any(folder.iterdir()):
                return
            folder.rmdir()

    def trust(self, certificate: bytes) -> None:
        """Assign this folder to the network of this certificate. Raises `LocalError` if it belongs to another."""
        known, new = self.fingerprint, fingerprint(authority_key(certificate))
        if known is not None and known != new:
            raise LocalError(
                f"{self.folder} belongs to another network (credential {known}, and not {new}); name another --data "
                "folder or --network, or remove that folder to forget the old network"
            )
        with self._database() as database:
            database.execute("replace into authority values (1, ?)", [certificate])

    # --- members

    def prepare(self) -> None:
        """Check that an admission can be stored here, without leaving anything behind."""
        folder = next(each for each in (self.folder, *self.folder.parents) if each.exists())
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                file.write(bytes(_ROOM_BYTES))
        except OSError as problem:
            raise DiskFailed(f"{self.folder} cannot be used: {problem.strerror}") from problem

    def add(self, secrets_and_certificates: Iterable[tuple[bytes, bytes]]) -> None:
        """Store admitted identities; the folder must belong to their network."""
        with self._database() as database:
            database.executemany(
                "insert into members (secret, certificate) values (?, ?)", list(secrets_and_certificates)
            )

    def lock_identity(self) -> CertifiedIdentity | None:
        """Lock the first identity that no running process uses; None if there is none. The caller must close it."""
        authority = self.certificate
        if authority is None:
            return None
        with self._database() as database:
            rows = database.execute("select number, secret, certificate from members order by number").fetchall()
        for number, secret, certificate in rows:
            lock = self._lock(number)
            if lock is not None:
                return CertifiedIdentity(_identity(secret, certificate, authority), certificate, authority, lock)
        return None

    def take(self) -> tuple[bytes, bytes] | None:
        """Remove an identity that no running process uses, to move it to another folder."""
        with self._database() as database:
            rows = database.execute("select number, secret, certificate from members order by number desc").fetchall()
            for number, secret, certificate in rows:
                lock = self._lock(number)
                if lock is not None:
                    database.execute("delete from members where number = ?", [number])
                    os.close(lock)
                    return secret, certificate
        return None

    @property
    def count(self) -> int:
        """The number of identities."""
        with self._database() as database:
            return int(database.execute("select count(*) from members").fetchone()[0])

    # --- contacts

    def contacts(self) -> list[str]:
        """Addresses of peers of the network, most recent first."""
        if self.certificate is None:
            return []
        with self._database() as database:
            rows = database.execute("select address from contacts order by seen_ns desc, address")
            return [row[0] for row in rows]

    def note_contacts(self, addresses: Iterable[str], now_ns: int) -> None:
        """Store these addresses, and remove the oldest beyond `CONTACTS_MAX`."""
        with self._database() as database:
            database.executemany("replace into contacts values (?, ?)", [(address, now_ns) for address in addresses])
            database.execute(
                "delete from contacts where address not in "
                "(select address from contacts order by seen_ns desc limit ?)",
                [CONTACTS_MAX],
            )

    # --- tokens

    def issue_token(self, life_s: float, now_ns: int, attributes: Mapping[str, str] = MappingProxyType({})) -> str:
        """Issue a one-time token for certificates with these attributes."""
        token = new_token()
        hash_ = token_hash(token)
        with self._database() as database:
            database.execute("delete from tokens where until_ns < ?", [now_ns - TOKENS_KEPT_NS])
            database.execute("delete from certified where hash not in (select hash from tokens)")
            database.execute("insert into tokens values (?, ?, 0)", [hash_, now_ns + round(life_s * 10**9)])
            database.executemany(
                "insert into certified values (?, ?, ?)", [(hash_, *each) for each in attributes.items()]
            )
        return token

    def use_token(self, token: str, now_ns: int) -> dict[str, str]:
        """Use a token; returns the attributes for the certificates. Raises `Unadmitted` if it is not valid."""
        hash_ = token_hash(token)
        with self._database() as database:
            row = database.execute("select until_ns, used_ns from tokens where hash = ?", [hash_]).fetchone()
            check_token(None if row is None else Token(*row), now_ns)
            database.execute("update tokens set used_ns = ? where hash = ?", [now_ns, hash_])
            return dict(database.execute("select name, value from certified where hash = ?", [hash_]).fetchall())

    # --- within

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise DiskFailed(f"the folder {self.folder} cannot be used: {problem.strerror}; name another") from problem

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """The database, for one exclusive transaction."""
        self._make_folder()
        path = self.folder / DATABASE
        try:
            path.touch(mode=0o600)  # before SQLite creates it, so that only the owner can read the secrets
            database = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_S)
            try:
                database.executescript(_SCHEMA)
                database.execute("begin immediate")
                yield database
                database.execute("commit")
            finally:
                database.close()
        except (OSError, sqlite3.Error) as problem:
            raise unusable(path, problem) from problem

    def _lock(self, number: int) -> int | None:
        """Lock a number for as long as this process runs; None if another process has it."""
        lock = os.open(self.folder / f"member-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock


def user_folder(network: str) -> Path:
    """The folder of the user's membership in a network: `$XDG_CONFIG_HOME/quillcast/<network>`, or in `~/.config`."""
    try:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    except RuntimeError:  # a user unknown to the system, as in containers
        base = Path("/.config")
    return base / "quillcast" / network


def read_authority(path: Path) -> Authority:
    """Read the network's credential from a file. Raises `LocalError` that names the file."""
    try:
        return Authority.of_pem(read_bytes(path, KEY_BYTES_MAX))
    except OSError as problem:
        raise LocalError(f"the network credential {path} cannot be read: {problem.strerror}") from problem
    except LocalError as problem:
        raise LocalError(f"{path}: {problem}") from problem


def admit_here(authority: Authority, now_ns: Callable[[], int]) -> tuple[bytes, bytes]:
    """Admit a new identity at the holder of the credential; returns its secret and certificate."""
    identity = Identity.new()
    return identity.secret, authority.admit(identity.public_key, now_ns())


def _identity(secret: bytes, certificate: bytes, authority: bytes) -> Identity:
    return Identity.of_secret(secret, read_member(certificate, authority_key(authority)).nonce)
