"""A manager's state as a file, with which it can continue at another peer."""

import os
from pathlib import Path

import msgspec

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.files import STATE_BYTES_MAX, read_bytes
from quillcast.live.storage.store import DATABASE, Store

FORMAT = "quillcast scope 1"


class ExportedScope(msgspec.Struct, frozen=True, array_like=True):
    """The state that a manager needs to remain the same one. It contains the scope's key: keep it secret."""

    format: str
    name: str
    state: bytes
    tokens: list[tuple[bytes, int, int, bytes | None]]


def export_scope(name: str, data: Path, file: Path) -> None:
    """Write the state of a scope's manager from a data folder that no running peer uses.

    Raises `LocalError` if a peer uses the folder, the scope is unknown or the file exists; `DiskFailed`.
    """
    if not (data / DATABASE).is_file():
        raise LocalError(
            f"{data} is not a peer's data folder; give the folder that `quillcast scope serve --data` uses"
        )
    store = Store(data)
    try:
        state = store.scope(name)
        if state is None:
            raise LocalError(f"the data folder {data} knows no scope {name!r}")
        exported = ExportedScope(FORMAT, name, state, store.scope_tokens(name))
    finally:
        store.close()
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(msgspec.msgpack.encode(exported))
    except FileExistsError:
        raise LocalError(f"{file} exists; name another file, or remove that one") from None
    except OSError as problem:
        raise DiskFailed(f"{file} cannot be written: {problem.strerror}") from problem


def read_exported(file: Path) -> ExportedScope:
    """Read such a file. Raises `LocalError`."""
    try:
        exported = msgspec.msgpack.decode(read_bytes(file, STATE_BYTES_MAX), type=ExportedScope)
    except OSError as problem:
        raise LocalError(f"cannot read {file}: {problem.strerror}") from problem
    except (msgspec.DecodeError, msgspec.ValidationError):
        exported = None
    if exported is None or exported.format != FORMAT:
        raise LocalError(f"{file} is not the state of a manager; `quillcast scope export` writes one")
    return exported
