"""The error for a database that cannot be used."""

import sqlite3
from pathlib import Path

from quillcast.core.errors import DiskFailed


def unusable(database: Path, problem: OSError | sqlite3.Error) -> DiskFailed:
    """Return the error for a problem with a database; a damaged one cannot be repaired."""
    damaged = type(problem) is sqlite3.DatabaseError  # its subclasses are for other problems, such as a full disk
    what_to_do = "; it is damaged: restore a backup, or remove the file, which discards the identity" if damaged else ""
    return DiskFailed(f"{database}: {problem}{what_to_do}")
