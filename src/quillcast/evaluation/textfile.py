"""Users' files: text, plain or gzipped, and tables with any of the usual separators."""

import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import NamedTuple

from quillcast.core.errors import LocalError
from quillcast.files import DATA_BYTES_MAX, read_bytes, too_large

SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas", "|": "bars", "": "blanks"}
"""Separators of columns, with their names. The first one that occurs in the first line is used."""

COMMENTS = ("#", "%")


class UnknownLayout(ValueError):
    """The content has another format or layout than expected."""


class Table(NamedTuple):
    """The cells of a table, without comments and empty lines."""

    separator: str
    rows: list[list[str]]

    def __str__(self) -> str:
        """The table's shape, for people."""
        columns = sorted({len(row) for row in self.rows})
        many = f"{columns[0]} to {columns[-1]}" if columns[1:] else f"{columns[0] if columns else 0}"
        return f"a table of {len(self.rows):,} lines and {many} columns separated by {SEPARATORS[self.separator]}"

    def number(self, cell: str) -> float:
        """A cell as a number; between semicolons it may have a decimal comma. Raises ValueError."""
        try:
            return float(cell.replace(",", ".") if self.separator == ";" else cell)
        except ValueError:
            raise ValueError(f"{cell!r} is not a number") from None

    def is_number(self, cell: str) -> bool:
        """Whether the cell is a number."""
        try:
            self.number(cell)
        except ValueError:
            return False
        return True


def read_text(path: Path, what: str, instead: str) -> str:
    """The text of a file, plain or gzipped.

    Raises `LocalError` if it cannot be read: `what` names it, `instead` says what to do.
    """
    try:
        content = read_bytes(path, DATA_BYTES_MAX)
        if path.suffix == ".gz" or content.startswith(b"\x1f\x8b"):
            content = _decompressed(content)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LocalError(f"{what} {path} is not text in UTF-8; convert it") from None
    except (OSError, EOFError, zlib.error) as error:
        told = getattr(error, "strerror", None) or error
        raise LocalError(f"cannot read {what} {path}: {told}; {instead}") from error


def _decompressed(content: bytes) -> bytes:
    with gzip.open(io.BytesIO(content)) as file:
        text = file.read(DATA_BYTES_MAX + 1)
    if len(text) > DATA_BYTES_MAX:
        raise too_large(DATA_BYTES_MAX)
    return text


def table_of(text: str) -> Table:
    """The cells of a table. Raises ValueError if it has no lines, or a quote that does not end."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(COMMENTS)]
    if not lines:
        raise UnknownLayout("it is empty")
    separator = next(each for each in SEPARATORS if each in lines[0])
    if not separator:
        return Table(separator, [line.split() for line in lines])
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator, strict=True)]
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return Table(separator, rows)
