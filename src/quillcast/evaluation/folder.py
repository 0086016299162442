"""The folder of a run. Its parts are always complete: each is written elsewhere and put in place by a rename.

A run that was stopped resumes at the first missing part.
"""

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.evaluation.experiment import Experiment

EXPERIMENT, RESULT, REPORT, PICTURES = "experiment.json", "result.json", "report.html", "figures"
INPUTS = "inputs.json"  # packages with plug-ins, and files, each with its digest
_UNFINISHED, _NOTE, _LOCK = "unfinished", "_made.json", ".lock"


class Folder:
    """The parts of one experiment's run, in a folder that is created if it does not exist.

    Policies may be added later, and reuse the earlier parts. `inputs` are packages with plug-ins and files that the
    experiment names, with their digests. Raises `LocalError` if the folder contains something else, or parts made with
    other inputs, or another process is using it.
    """

    def __init__(self, path: Path, experiment: Experiment, inputs: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._lock_it()
        try:
            self._claim(experiment, inputs or {})
        except BaseException:
            os.close(self._lock)
            raise
        shutil.rmtree(path / _UNFINISHED, ignore_errors=True)

    def _lock_it(self) -> None:
        if not (self.path / EXPERIMENT).exists() and self.path.exists() and any(self._other_files()):
            raise LocalError(f"{self.path} is not empty and is not an evaluation; name another folder with --output")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DiskFailed(f"cannot write to {self.path}: {error.strerror}; name another with --output") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise LocalError(f"another evaluation is using {self.path}; name another folder with --output") from None

    def _claim(self, experiment: Experiment, inputs: Mapping[str, str]) -> None:
        if (self.path / EXPERIMENT).exists():
            theirs = read_experiment(self.path)
            if theirs.identity != experiment.identity:
                raise LocalError(
                    f"{self.path} holds another experiment: {theirs.name}, {theirs.peers:,} peers, "
                    f"{theirs.workload.groups:,} groups, seed {theirs.seed}; name another folder with --output"
                )
            if changed := changed_inputs(self.path, inputs):
                raise LocalError(
                    f"{self.path} was made before these changed: {', '.join(changed)}; "
                    "name another folder with --output"
                )
        else:
            self.write(EXPERIMENT, msgspec.json.format(msgspec.json.encode(experiment), indent=2))
        if inputs:
            self.write(INPUTS, json.dumps({**_inputs(self.path), **inputs}, indent=2).encode())

    def _other_files(self) -> Iterator[str]:
        return (entry.name for entry in self.path.iterdir() if entry.name != _LOCK)

    def close(self) -> None:
        """Release the folder for other processes."""
        with suppress(OSError):  # a part is unfinished: the next run removes it
            (self.path / _UNFINISHED).rmdir()
        os.close(self._lock)

    def __truediv__(self, part: str) -> Path:
        return self.path / part

    def has(self, part: str) -> bool:
        """Whether this part is complete."""
        return (self.path / part).exists()

    def made(self, part: str) -> dict[str, Any]:
        """The note saved with the part: `seconds` and other values."""
        note: dict[str, Any] = json.loads((self.path / part / _NOTE).read_text())
        return note

    @contextmanager
    def making(self, part: str, **note: Any) -> Iterator[Path]:
        """A folder to write the part into. It is put in place at the end of the block.

        Raises `DiskFailed` on a disk error; complete parts are kept.
        """
        began = time.monotonic()
        written = self.path / _UNFINISHED / uuid.uuid4().hex
        with _disk(self.path):
            written.parent.mkdir(exist_ok=True)
            yield written
            (written / _NOTE).write_text(json.dumps({"seconds": time.monotonic() - began, **note}))
            for path in sorted(written.rglob("*")):
                _sync(path)
            _sync(written)
            final = self.path / part
            final.parent.mkdir(parents=True, exist_ok=True)
            written.rename(final)
            _sync(final.parent)

    def write(self, name: str, content: bytes) -> Path:
        """Write a complete file. Raises `DiskFailed`."""
        return write(self.path, name, content)

    def refused(self, why: str) -> DiskFailed:
        """The error for a disk failure, with how to resume."""
        return _refused(self.path, why)


def write(folder: Path, name: str, content: bytes) -> Path:
    """Write a complete file in a folder or in one below it. Raises `DiskFailed`."""
    path = folder / name
    written = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with _disk(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(content)
        _sync(written)
        written.rename(path)
    return path


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _refused(folder, error.strerror or str(error)) from error


def _refused(folder: Path, why: str) -> DiskFailed:
    return DiskFailed(f"cannot write to {folder}: {why}; fix that and resume with --output {folder}")


def read_experiment(path: Path) -> Experiment:
    """The experiment of a run's folder. Raises `LocalError` if there is none."""
    try:
        return msgspec.json.decode((path / EXPERIMENT).read_bytes(), type=Experiment)
    except FileNotFoundError:
        raise LocalError(f"{path} is not the folder of an evaluation: it has no {EXPERIMENT}") from None
    except msgspec.DecodeError as error:
        raise LocalError(f"{path / EXPERIMENT} is damaged: {error}; name another folder") from error


def changed_inputs(path: Path, inputs: Mapping[str, str]) -> list[str]:
    """The packages with plug-ins and the files that have changed since the run in this folder was made."""
    theirs = _inputs(path)
    return [name for name, digest in inputs.items() if theirs.get(name, digest) != digest]


def _inputs(path: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads((path / INPUTS).read_text())
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise LocalError(f"{path / INPUTS} is damaged: {error}; name another folder") from error
    return found


def read_result(path: Path) -> dict[str, Any]:
    """The result of a finished run. Raises `LocalError` if there is none."""
    try:
        result: dict[str, Any] = json.loads((path / RESULT).read_text())
    except FileNotFoundError:
        read_experiment(path)
        raise LocalError(f"the run in {path} is not finished; resume with --output {path}") from None
    except json.JSONDecodeError as error:
        raise LocalError(f"{path / RESULT} is damaged: {error}") from error
    return result


def of_policy(table: str, policy: str) -> str:
    """The part with a policy's share of a table, named so that readers find the column `policy`."""
    return f"{table}/policy={quote(policy, safe='+(),-. ')}"


def next_folder(base: Path, wanted: Callable[[Path], bool]) -> Path:
    """The first of `base`, `base-2`, `base-3`, ... that does not exist or that `wanted` accepts."""
    number, path = 1, base
    while path.exists() and not wanted(path):
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def _sync(path: Path) -> None:
    """Flush the content to disk before a rename makes it visible."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
