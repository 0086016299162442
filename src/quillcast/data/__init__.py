"""Real events to try things with: a built-in slice of real departures, or a file of your own."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from quillcast.core.errors import LocalError
from quillcast.files import LINE_CHARACTERS_MAX

TOPIC_COLUMNS = ("topic", "channel", "type", "category", "origin", "station", "symbol", "log")
"""Columns that name a row's topic; the first that a file has is used."""

TIME_COLUMNS = ("time", "timestamp", "created_at", "departed", "datetime", "time_hour", "date")
"""Columns with a row's time; the first that a file has and that can be read as a time is used."""

HEAD_ROWS = 1000  # rows read before the columns are chosen
TOPICS_MAX = 100  # distinct values in the head; a column with more does not name topics unless it is called so


class Event(NamedTuple):
    """What to publish where, and how long after the first event."""

    topic: str
    payload: bytes
    seconds: float


Row = dict[str, Any]


def flights() -> Iterator[Event]:
    """5,000 consecutive departures from New York in June 2013, under `flights/EWR`, `flights/JFK` and `flights/LGA`.

    The payload is the flight as JSON. See the README beside the file for its origin.
    """
    with resources.as_file(resources.files("quillcast.data") / "flights.csv.gz") as path:
        yield from events_from(path, topic_column="origin")


def events_from(path: Path, *, topic_column: str | None = None) -> Iterator[Event]:
    """The rows of a file as events, in the file's order.

    Args:
        path: a .csv with a header, or a .jsonl (.json) with an object on each line; either may be gzipped (.gz).
        topic_column: the column whose values become topics, below the file's name: `flights/JFK`. None: the first of
            `TOPIC_COLUMNS` that the file has, else the text column with fewest values, two at least.

    The payload is the row as JSON. Times come from the first of `TIME_COLUMNS`; without one, events are a second apart;
    where times step back, the event comes with the one before it.
    Raises `LocalError` at once if the file cannot be read or offers no topic, and at a damaged row on reaching it.
    """
    rows = _rows(path)
    head = list(islice(rows, HEAD_ROWS))
    if not head:
        raise LocalError(f"{path} holds no events; name a file with rows")
    column = _given(head, topic_column, path) if topic_column else _topic_column(head, path)
    return _events(chain(head, rows), _stem(path), column, _time_column(head))


def _events(rows: Iterable[Row], stem: str, topic_column: str, time_column: str | None) -> Iterator[Event]:
    start, seconds = None, 0.0
    for number, row in enumerate(rows):
        if time_column:
            time = _time(row.get(time_column))
            start = time if start is None else start
            seconds = max(seconds, time - start) if time is not None and start is not None else seconds
        else:
            seconds = float(number)
        payload = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
        yield Event(f"{stem}/{_level(row.get(topic_column))}", payload, seconds)


def _rows(path: Path) -> Iterator[Row]:
    """The file's rows. Any problem with the file becomes a `LocalError` that names the place."""
    name = path.name.removesuffix(".gz")
    if not name.endswith((".csv", ".jsonl", ".json")):
        raise LocalError(f"{path} is not a .csv or .jsonl file (or one of these gzipped, .gz); name such a file")
    number = 0
    try:
        read = _csv if name.endswith(".csv") else _json_lines
        with _opened(path) as file:
            for line, row in read(_lines(file)):
                number = line
                yield row
    except (OSError, EOFError, zlib.error) as error:
        raise LocalError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; name another file"
        ) from error
    except UnicodeDecodeError as error:
        raise LocalError(f"{path} is not text in UTF-8 after line {number}; convert it") from error
    except (csv.Error, ValueError) as error:
        raise LocalError(f"{path} is damaged after line {number}: {error}; correct or remove that line") from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _lines(file: TextIO) -> Iterator[str]:
    """The lines of a file. Raises ValueError for one that is too long, as what a device delivers."""
    while line := file.readline(LINE_CHARACTERS_MAX + 1):
        if len(line) > LINE_CHARACTERS_MAX:
            raise ValueError(f"the next line has more than {LINE_CHARACTERS_MAX:,} characters")
        yield line


def _csv(lines: Iterable[str]) -> Iterator[tuple[int, Row]]:
    reader = csv.DictReader(lines, strict=True)
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"the row does not have the {len(reader.fieldnames or ())} fields of the header")
        yield reader.line_num, row


def _json_lines(lines: Iterable[str]) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is not a JSON object")
            yield number, row


def _given(head: list[Row], column: str, path: Path) -> str:
    if not any(column in row for row in head):
        raise LocalError(f"{path} has no column {column!r}; it has {', '.join(head[0])}")
    return column


def _topic_column(head: list[Row], path: Path) -> str:
    for column in TOPIC_COLUMNS:
        if any(isinstance(row.get(column), str) for row in head):
            return column
    counts = {}
    for column in head[0]:
        values = [row.get(column) for row in head]
        topics = {value for value in values if isinstance(value, str) and not _is_number(value)}
        if 2 <= len(topics) <= TOPICS_MAX and all(isinstance(value, str) for value in values):
            counts[column] = len(topics)
    if not counts:
        raise LocalError(
            f"{path} has no column that could name topics: none is called {', '.join(TOPIC_COLUMNS)}, "
            f"and none holds 2 to {TOPICS_MAX} different words; add a column called topic"
        )
    return min(counts, key=lambda column: counts[column])


def _time_column(head: list[Row]) -> str | None:
    return next((column for column in TIME_COLUMNS if _time(head[0].get(column)) is not None), None)


def _time(value: Any) -> float | None:
    """Seconds since 1970 from an ISO 8601 text (UTC by default) or from a number of seconds or milliseconds."""
    if isinstance(value, str) and not _is_number(value):
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return None
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number / 1000 if number > 1e11 else number  # later than the year 5000 in seconds: milliseconds


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[-+]?\d*\.?\d+([eE][-+]?\d+)?\s*", text) is not None


def _stem(path: Path) -> str:
    return _level(path.name.split(".")[0])


def _level(value: Any) -> str:
    """A value as one level of a topic name, without the characters that have a meaning there."""
    return re.sub(r"[/+#*>?\s\x00]+", "_", str(value if value is not None else "")).strip("_") or "none"
