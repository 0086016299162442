"""The registry through which peers of one machine find each other: a file per listening peer, a folder per network.

A file is only a hint: its reader checks whether the process is alive, and then asks at the address. The folder comes
from `live.discovery.runtimefolder`. In a shared one, each user has a folder that no other user can write to.
"""

import contextlib
import fcntl
import os
import pwd
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from quillcast.core.errors import DiskFailed, LocalError, Unreachable, quoted
from quillcast.core.messages import Contact
from quillcast.live.discovery.runtimefolder import chosen

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX = ".json"
_CONTROL_SUFFIX = ".sock"
_STEM_DIGITS = 16  # of the nodeId in file names: paths of Unix sockets are short
_ENTRY_BYTES_MAX = 4096
_LOCK_S = 5.0  # a guess: longer than any search; in a shared folder any user may hold the lock


class Entry(msgspec.Struct, frozen=True):
    """A peer that listens on this machine."""

    node_id: str
    address: str
    pid: int
    started_ns: int
    credential: str = ""
    """The fingerprint of its network's credential; empty without one."""
    user: int = -1
    """The user who runs it: the owner of its file."""
    joined: bool = False
    """Whether it is part of its network; if not, it is still looking for others."""

    @property
    def contact(self) -> Contact:
        """Its nodeId and address."""
        return Contact(bytes.fromhex(self.node_id), self.address)

    @property
    def is_own(self) -> bool:
        """Whether this process's user runs it."""
        return self.user == os.geteuid()


class PeerRegistry:
    """The folder of one network on this machine, in `runtime_dir` or in the user's own runtime folder.

    Raises `LocalError` for an invalid name, or a folder that cannot be used or trusted.
    """

    def __init__(self, network: str, runtime_dir: Path | str | None = None) -> None:
        if not _NAME.fullmatch(network):
            raise LocalError(
                f"{quoted(network)} is not a network name: up to 64 letters, digits, dots, dashes, underscores"
            )
        self._given, self._runtime = runtime_dir, chosen(runtime_dir)
        self._entered_ns: dict[bytes, int] = {}
        self.folder = self._runtime.own / network
        try:
            self.folder.mkdir(exist_ok=True, mode=0o700)
            if self._runtime.shared is not None:
                self.folder.chmod(0o755)
        except OSError as problem:
            raise DiskFailed(
                f"the runtime folder cannot be used: {self.folder}: {problem.strerror}; name another folder with "
                "--runtime-dir"
            ) from problem

    @property
    def looked_in(self) -> str:
        """Where this peer looks for other peers of this machine, as text."""
        folders = [str(folder / self.folder.name) for folder in (self._runtime.own, *self._runtime.also)]
        if self._runtime.shared is not None:
            folders = [f"{self._runtime.shared}/*/{self.folder.name}"]
        return " and ".join(folders) + (f" ({self.notice})" if self.notice else "")

    @property
    def is_shared(self) -> bool:
        """Whether peers of other users are found here too."""
        return self._runtime.shared is not None

    @property
    def notice(self) -> str:
        """What the user must know about this folder; usually nothing."""
        return self._runtime.notice

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock: no other peer of this machine searches or registers meanwhile, so exactly one is the first."""
        folder = os.open(self._runtime.shared or self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _lock(folder)
            yield
        finally:
            os.close(folder)

    def enter(self, contact: Contact, credential: str = "", *, joined: bool = False) -> None:
        """Register this peer, or record that it has `joined`; its file appears atomically. Raises `DiskFailed`."""
        since_ns = self._entered_ns.setdefault(contact.node_id, time.time_ns())
        entry = Entry(contact.node_id.hex(), contact.address, os.getpid(), since_ns, credential, joined=joined)
        path = self._path(contact, _SUFFIX)
        draft = path.with_suffix(f".{secrets.token_hex(4)}.draft")
        try:
            draft.write_bytes(msgspec.json.encode(entry))
            if self._runtime.shared is not None:
                draft.chmod(0o644)
            draft.replace(path)
        except OSError as problem:
            draft.unlink(missing_ok=True)
            raise DiskFailed(f"{path}: {problem.strerror}; other peers of this machine look there") from problem

    def leave(self, contact: Contact) -> None:
        """Remove this peer's files."""
        for suffix in (_SUFFIX, _CONTROL_SUFFIX):
            self._path(contact, suffix).unlink(missing_ok=True)

    def control_path(self, contact: Contact) -> Path:
        """The path of the control socket of a peer of this user."""
        path = self._path(contact, _CONTROL_SUFFIX)
        others = (folder / self.folder.name / path.name for folder in self._runtime.also)
        return path if path.exists() else next((other for other in others if other.exists()), path)

    def entries(self) -> list[Entry]:
        """This user's peers whose process is alive, oldest first; removes files of dead processes."""
        folders = (self.folder, *(folder / self.folder.name for folder in self._runtime.also))
        return _in_order(entry for folder in folders for entry in _swept(folder))

    def running(self) -> list[Entry]:
        """The same as `entries`. If there are none, raises `Unreachable` that says what to do."""
        entries = self.entries()
        if not entries and (others := self._users_here()):
            raise Unreachable(
                f"the peers of the network {self.folder.name!r} on this machine run as {', '.join(others)}, and answer "
                "only commands of the same user; run this command as that user, or start a peer of your own with: "
                f"quillcast node; looked in {self.looked_in}"
            )
        if not entries:
            others = [name for name in running_networks(self._given) if name != self.folder.name]
            instead = f"; there are peers of: {', '.join(others)} (--network, or network= in Python)" if others else ""
            raise Unreachable(
                f"no peer of the network {self.folder.name!r} runs on this machine; start one with: quillcast "
                f"node{instead}; looked in {self.looked_in}"
            )
        return entries

    def all_entries(self) -> list[Entry]:
        """The same with peers of other users if the folder is shared; their control sockets are inaccessible."""
        others = (folder / self.folder.name for folder in self._runtime.others())
        return _in_order([*self.entries(), *(entry for folder in others for _, entry in _live(folder))])

    def _users_here(self) -> list[str]:
        """The names of other users that run peers of this network here."""
        return sorted({_user(entry.user) for entry in self.all_entries() if not entry.is_own})

    def _path(self, contact: Contact, suffix: str) -> Path:
        return self.folder / (contact.node_id.hex()[:_STEM_DIGITS] + suffix)


def networks_here(runtime_dir: Path | str | None = None) -> list[str]:
    """Networks that this user's peers on this machine belong to or once belonged to."""
    runtime = chosen(runtime_dir)
    folders = (path for folder in (runtime.own, *runtime.also) if folder.is_dir() for path in folder.iterdir())
    return sorted({path.name for path in folders if path.is_dir() and _NAME.fullmatch(path.name)})


def running_networks(runtime_dir: Path | str | None = None) -> list[str]:
    """The networks that have peers now."""
    return [name for name in networks_here(runtime_dir) if PeerRegistry(name, runtime_dir).entries()]


def runtime_folder() -> Path:
    """The user's folder for running peers."""
    return chosen(None).own


def _swept(folder: Path) -> list[Entry]:
    """The entries of a folder of this user; removes files of dead processes."""
    live = dict(_live(folder))
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        if path not in live:
            with contextlib.suppress(FileNotFoundError):  # the peer has restarted, and its socket is a new one
                path.unlink()
                path.with_suffix(_CONTROL_SUFFIX).unlink()
    return list(live.values())


def _live(folder: Path) -> Iterator[tuple[Path, Entry]]:
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        entry = _read(path)
        if entry is not None and _lives(entry.pid):
            yield path, entry


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.started_ns, entry.node_id))


def _read(path: Path) -> Entry | None:
    """Read the entry in a file; None if it is gone, invalid, or not a plain file of its folder's owner."""
    try:
        owner = path.parent.stat().st_uid
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
                return None
            entry = msgspec.json.decode(os.read(file, _ENTRY_BYTES_MAX), type=Entry)
        finally:
            os.close(file)
    except (OSError, msgspec.MsgspecError):
        return None
    return msgspec.structs.replace(entry, user=owner)


def _user(number: int) -> str:
    """A user's name, or the number if there is none."""
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _lock(folder: int) -> None:
    """Lock a folder, or continue unlocked after `_LOCK_S`: then two peers may both believe they are the first."""
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return
            time.sleep(0.01)
        else:
            return
