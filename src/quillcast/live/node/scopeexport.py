"""A manager's state as a file, with which it goes on at another peer."""

import os
from pathlib import Path

import msgspec

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.files import STATE_BYTES_MAX, read_bytes
from quillcast.live.storage.store import DATABASE, Store

FORMAT = "quillcast scope 1"


class ExportedScope(msgspec.Struct, frozen=True, array_like=True):
    """What a manager has to know to be the same one. It holds the scope's key, and is to be kept secret."""

    format: str
    name: str
    state: bytes
    tokens: list[tuple[bytes, int, int, bytes | None]]


def export_scope(name: str, data: Path, file: Path) -> None:
    """Write the state of a scope's manager from a data folder that no peer uses now.

    Raises `LocalError` if a peer does, or if there is no such scope or the file exists; `DiskFailed`.
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
