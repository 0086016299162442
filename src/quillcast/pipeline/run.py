"""What the audit needs to know about a run besides its journals: its kills, and when it ended."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from quillcast.core.errors import LocalError
from quillcast.files import STATE_BYTES_MAX, read_bytes

FILE = "run.json"
"""The file name of the description in the folder of the journals."""


class Kill(NamedTuple):
    """A peer that was killed on purpose."""

    peer: bytes
    at_ns: int
    """Just before the kill, nanoseconds since 1970 UTC."""
    what: str = ""
    """For people: the victim's role, such as "root of flights/JFK". The report draws the topic named here."""


class Run(NamedTuple):
    """One run of a network."""

    kills: tuple[Kill, ...] = ()
    end_ns: int | None = None
    """Records after this time (of peers being stopped) are ignored. None: the time of the last event's record."""
    parameters: Mapping[str, Any] = {}
    """The parameters of the run: peers, rate, seed. Shown unchanged in the report."""
    names: Mapping[bytes, str] = {}
    """Names of peers for people. Other peers are shown by the start of their id."""


def write_run(folder: Path, run: Run) -> None:
    """Write the description to the folder of the journals, where `read_run` and the command find it."""
    content = {
        "kills": [{"peer": kill.peer.hex(), "at_ns": kill.at_ns, "what": kill.what} for kill in run.kills],
        "end_ns": run.end_ns,
        "parameters": dict(run.parameters),
        "names": {peer.hex(): name for peer, name in run.names.items()},
    }
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def read_run(folder: Path) -> Run:
    """Read the description in a folder of journals; empty if there is none. Raises `LocalError` if it is damaged."""
    path = folder / FILE
    if not path.exists():
        return Run()
    try:
        told = msgspec.json.decode(read_bytes(path, STATE_BYTES_MAX), type=_Description)
        return Run(
            tuple(Kill(bytes.fromhex(kill.peer), kill.at_ns, kill.what) for kill in told.kills),
            told.end_ns,
            told.parameters,
            {bytes.fromhex(peer): name for peer, name in told.names.items()},
        )
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise LocalError(f"{path} does not describe a run: {error}; repair or remove it") from error


class _KillDescription(msgspec.Struct):
    peer: str
    at_ns: int
    what: str = ""


class _Description(msgspec.Struct):
    kills: list[_KillDescription] = []
    end_ns: int | None = None
    parameters: dict[str, Any] = {}
    names: dict[str, str] = {}
