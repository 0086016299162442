"""Where peers of one machine find each other: in a folder of the user, or in one that users share.

========================================== ====================================================================
place                                      when
========================================== ====================================================================
`runtime_dir`, `$QUILLCAST_RUNTIME_DIR`    it is given; it must be usable
`$XDG_RUNTIME_DIR/quillcast`               it is set and usable; created if its parent exists
`/run/user/UID/quillcast`                  it is usable, as where `cron` or `sudo` sets no XDG_RUNTIME_DIR
`quillcast-UID` in the temporary directory otherwise; peers in `/run/user/UID` look here, too
========================================== ====================================================================

A usable folder is one that only this user can write to, so that nobody else adds, replaces or removes files. A given
folder may also be shared: owned by root and writable for everybody, with the sticky bit. Then each user has a folder in
it, named by the user's number and owned by the user; other folders are ignored.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from quillcast.core.errors import LocalError

VARIABLE = "QUILLCAST_RUNTIME_DIR"
NETWORK = "QUILLCAST_NETWORK"
_LOGINS = Path("/run/user")  # pam_systemd(8) makes a folder here for each user who has logged in
_NAME = "quillcast"
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def chosen_network(network: str | None) -> str:
    """The given name of the network, or else that of `QUILLCAST_NETWORK`, as for commands."""
    return network if network is not None else os.environ.get(NETWORK) or "default"


class RuntimeFolder(msgspec.Struct, frozen=True):
    """A folder for the files of running peers."""

    own: Path
    """This user's folder, which exists; it has a folder per network."""
    also: tuple[Path, ...] = ()
    """Other folders that may have peers of this user."""
    shared: Path | None = None
    """The shared folder, if there is one."""
    notice: str = ""
    """Why the folder in XDG_RUNTIME_DIR is not used."""

    def others(self) -> Iterator[Path]:
        """The folders of other users, if the folder is shared."""
        if self.shared is not None:
            for path in sorted(self.shared.iterdir()):
                number = path.name.isascii() and path.name.isdigit()
                if number and path != self.own and _problem(path, int(path.name)) is None:
                    yield path


def chosen(given: Path | str | None) -> RuntimeFolder:
    """The folder to use. Raises `LocalError` if a given one cannot be used or trusted."""
    given = given or os.environ.get(VARIABLE)
    if given:
        return _named(Path(given).absolute())
    user, notice = os.geteuid(), ""
    if named := os.environ.get("XDG_RUNTIME_DIR"):
        folder = Path(named)
        problem = _unusable(folder)
        if problem is None:
            return RuntimeFolder(folder / _NAME, _also(user) if folder == _LOGINS / str(user) else ())
        notice = f"XDG_RUNTIME_DIR={named} cannot be used: {problem}"
    login = _LOGINS / str(user)
    if login.is_dir() and _unusable(login) is None:
        return RuntimeFolder(login / _NAME, _also(user), notice=notice)
    own = _temporary(user)
    if problem := _made(own) or _not_ours(own):
        raise LocalError(f"{own} cannot be used: {problem}; remove it, or name another folder with --runtime-dir")
    return RuntimeFolder(own, notice=notice)


def _named(folder: Path) -> RuntimeFolder:
    """The given folder, which belongs to this user alone or is shared."""
    if problem := _made(folder):
        raise LocalError(f"the runtime folder {folder} cannot be used: {problem}; name another one")
    found = folder.stat()
    if found.st_mode & stat.S_ISVTX and found.st_mode & _BY_OTHERS and found.st_uid == 0:
        own = folder / str(os.geteuid())
        if problem := _made(own) or _not_ours(own):
            raise LocalError(f"{own} cannot be used: {problem}")
        own.chmod(0o755)
        return RuntimeFolder(own, shared=folder)
    if problem := _not_ours(folder):
        raise LocalError(
            f"the runtime folder {folder} cannot be used: {problem}; to share one between users, have root make it: "
            f"install -d -m 1777 {folder}"
        )
    return RuntimeFolder(folder)


def _unusable(folder: Path) -> str | None:
    """Why quillcast cannot have a folder of this user in this one; None if it exists."""
    if not folder.is_absolute():
        return "it is not an absolute path"
    try:
        found = folder.stat()
    except FileNotFoundError:
        if folder.parent == _LOGINS or not folder.parent.is_dir():
            return "it does not exist"  # the system creates folders of logins; mistyped paths leave nothing behind
        if cannot := _made(folder):
            return cannot
        found = folder.stat()
    except OSError as problem:
        return problem.strerror or str(problem)
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {found.st_uid}"
    if found.st_mode & _BY_OTHERS and not found.st_mode & stat.S_ISVTX:
        return "others can write to it"
    return _made(folder / _NAME) or _not_ours(folder / _NAME)


def _made(folder: Path) -> str | None:
    """Create a folder if it is missing; returns why that failed, or None."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError:
        return "it is not a folder"
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def _not_ours(folder: Path) -> str | None:
    """Why others than this user can write to this folder, or None if they cannot."""
    return _problem(folder, os.geteuid()) or (None if os.access(folder, os.W_OK | os.X_OK) else "it is not writable")


def _problem(folder: Path, user: int) -> str | None:
    """Why this is not a folder of this user, writable by nobody else; None if it is."""
    try:
        found = folder.lstat()
    except OSError as problem:
        return problem.strerror or str(problem)
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != user:
        return f"it belongs to user {found.st_uid}"
    return "others can write to it" if found.st_mode & _BY_OTHERS else None


def _temporary(user: int) -> Path:
    import tempfile  # rarely needed, and slow to import

    return Path(tempfile.gettempdir()) / f"{_NAME}-{user}"


def _also(user: int) -> tuple[Path, ...]:
    """Where peers of this user may be that started before /run/user had a folder for the user."""
    folder = _temporary(user)
    return (folder,) if _problem(folder, user) is None else ()
