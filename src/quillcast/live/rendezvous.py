"""How peers of one machine find each other: a file per listening peer in a folder per network.

The folder is `$XDG_RUNTIME_DIR/quillcast/<network>/`, or one of the user's own under the temporary directory. A file
is a hint: whoever reads it asks whether the process lives, and then at the address.
"""

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.core.messages import Contact

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOCK = "lock"
_SUFFIX = ".json"
_CONTROL_SUFFIX = ".sock"
_STEM_DIGITS = 16  # of the nodeId in file names: paths of Unix sockets are short


class Entry(msgspec.Struct, frozen=True):
    """A peer that listens on this machine."""

    node_id: str
    address: str
    pid: int
    started_ns: int
    credential: str = ""
    """The fingerprint of its network's credential; nothing in a network without one."""

    @property
    def contact(self) -> Contact:
        """Who it is and where."""
        return Contact(bytes.fromhex(self.node_id), self.address)


class Rendezvous:
    """The folder of one network on this machine.

    Raises `LocalError` for a name that is no network's, or a folder that others could write to.
    """

    def __init__(self, network: str) -> None:
        if not _NAME.fullmatch(network):
            raise LocalError(
                f"{network!r} is no name of a network: up to 64 letters, digits, dots, dashes, underscores"
            )
        self.folder = runtime_folder() / network
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this lasts no other peer of this machine looks around or enters itself: one of them is first."""
        with (self.folder / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def enter(self, contact: Contact, credential: str = "") -> None:
        """Make this peer known; the file appears whole. Raises `DiskFailed`."""
        entry = Entry(contact.node_id.hex(), contact.address, os.getpid(), time.time_ns(), credential)
        path = self._path(contact, _SUFFIX)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        try:
            draft.write_bytes(msgspec.json.encode(entry))
            draft.replace(path)
        except OSError as problem:
            draft.unlink(missing_ok=True)
            raise DiskFailed(f"{path}: {problem.strerror}; other peers of this machine look there") from problem

    def leave(self, contact: Contact) -> None:
        """Take this peer's files away."""
        for suffix in (_SUFFIX, _CONTROL_SUFFIX):
            self._path(contact, suffix).unlink(missing_ok=True)

    def control_path(self, contact: Contact) -> Path:
        """Where the peer's control socket stands."""
        return self._path(contact, _CONTROL_SUFFIX)

    def entries(self) -> list[Entry]:
        """The peers whose process lives, the longest running first; files of dead ones are taken away."""
        found = []
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            entry = _read(path)
            if entry is not None and _lives(entry.pid):
                found.append(entry)
            else:
                path.unlink(missing_ok=True)
                path.with_suffix(_CONTROL_SUFFIX).unlink(missing_ok=True)
        return sorted(found, key=lambda entry: (entry.started_ns, entry.node_id))

    def _path(self, contact: Contact, suffix: str) -> Path:
        return self.folder / (contact.node_id.hex()[:_STEM_DIGITS] + suffix)


def runtime_folder() -> Path:
    """The user's folder for what runs: `$XDG_RUNTIME_DIR/quillcast`, or one of mode 0700 for temporary files."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "quillcast"
    folder = Path(tempfile.gettempdir()) / f"quillcast-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise LocalError(f"{folder} is not a folder of yours alone; remove it, or set XDG_RUNTIME_DIR")
    return folder


def _read(path: Path) -> Entry | None:
    """The entry of a file; None where it has gone or makes no sense."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Entry)
    except (OSError, msgspec.MsgspecError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
