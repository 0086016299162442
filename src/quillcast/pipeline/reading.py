"""Reads journals, complete ones and those torn by a crash. Needs pyarrow, which `quillcast[spark]` brings.

Peers write journals with `quillcast.live.storage.journal`, which does not need pyarrow.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quillcast.core.envelope import Term
from quillcast.core.errors import Malformed
from quillcast.core.journal import ALWAYS, COLUMNS, COLUMNS_OF, END, KINDS, Entry

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".arrows"


@cache
def schema() -> "pyarrow.Schema":
    """The journal's Arrow schema."""
    import pyarrow as pa

    types = {"binary": pa.binary(), "int64": pa.int64(), "double": pa.float64(), "string": pa.string()}
    types["ids"] = pa.list_(pa.field("item", pa.binary(), nullable=False))
    return pa.schema([pa.field(name, types[kind], name not in ALWAYS) for name, (kind, _) in COLUMNS.items()])


class Whole(NamedTuple):
    """How much of a journal file is readable."""

    whole_bytes: int
    """Where the last complete batch ends. What comes after it was torn by a crash, or is damaged."""
    dropped_bytes: int
    closed: bool
    """Whether the writer closed the file in good order."""


def whole(data: Any) -> Whole:
    """Return how much of a journal file is readable. See `batches`."""
    size = len(memoryview(data))
    at = max((end for _, end in _messages(data)), default=0)
    closed = bytes(memoryview(data)[at : at + len(END)]) == END
    at += len(END) if closed else 0
    return Whole(at, size - at, closed)


def batches(data: Any) -> Iterator["pyarrow.RecordBatch"]:
    """The complete batches of a journal file, in order. A batch torn by a crash is left out.

    `data` is anything with the buffer protocol (bytes, a memory map): the content of a file, or what was added after
    its first `Whole.whole_bytes` bytes. Raises `Malformed` if it is not a journal.
    """
    for batch, _ in _messages(data):
        if batch is not None:
            yield batch


def _messages(data: Any) -> Iterator[tuple["pyarrow.RecordBatch | None", int]]:
    """Each complete batch (None for the schema at the start of the file) and where it ends, up to the first damage."""
    import pyarrow as pa

    source = pa.BufferReader(data)
    while True:
        batch, ours = None, True
        try:
            message = pa.ipc.read_message(source)
            if message.type == "record batch":
                batch = pa.ipc.read_record_batch(message, schema())
                batch.validate(full=True)
            else:
                ours = pa.ipc.read_schema(message).equals(schema())
        except (EOFError, OSError, pa.ArrowInvalid):
            return
        if not ours:
            raise Malformed("an Arrow stream with other columns than a quillcast journal of this version has")
        yield batch, source.tell()


def entries(batch: "pyarrow.RecordBatch") -> Iterator[Entry]:
    """The records of a batch, in the order in which they were written."""
    for row in batch.to_pylist():
        kind = KINDS[row["record"]]
        row["term"] = Term(row["term_counter"], row["term_node"])
        row["joined"], row["left"] = tuple(row["joined"] or ()), tuple(row["left"] or ())
        record = kind(*(row[column] for column in COLUMNS_OF[kind].values()))
        yield Entry(row["peer"], row["started_ns"], row["entry"], row["at_ns"], record)


class Tail:
    """Follows the journals of a folder while peers write them: for displays, stories and tests."""

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)
        self._read_bytes: dict[Path, int] = {}

    def read(self) -> list[Entry]:
        """All complete records that were written since the last call, in order of time."""
        news = [entry for path in sorted(self._folder.rglob(f"*{SUFFIX}")) for entry in self._news(path)]
        return sorted(news, key=lambda entry: (entry.at_ns, entry.started_ns, entry.entry))

    def _news(self, path: Path) -> Iterator[Entry]:
        start = self._read_bytes.get(path, 0)
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
        self._read_bytes[path] = start + whole(data).whole_bytes
        for batch in batches(data):
            yield from entries(batch)
