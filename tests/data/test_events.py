"""The packaged events, and events from files that people bring."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from quillcast.core.errors import LocalError
from quillcast.data import events_from, flights


def test_the_packaged_flights_are_real_departures_in_order() -> None:
    events = list(flights())
    assert len(events) == 5000
    assert {event.topic for event in events} == {"flights/EWR", "flights/JFK", "flights/LGA"}
    assert events[0].seconds == 0
    assert all(earlier.seconds <= later.seconds for earlier, later in pairwise(events))
    first = json.loads(events[0].payload)
    assert (first["carrier"], first["flight"], first["dest"]) == ("US", "1431", "CLT")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_csv_file_offers_its_topic_column(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"readings{suffix}"
    text = "time,station,value\n2020-01-01T00:00:00Z,north/1 #,5\n2020-01-01T00:00:30Z,south,6\n"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    events = list(events_from(path))
    assert [(event.topic, event.seconds) for event in events] == [("readings/north_1", 0), ("readings/south", 30)]
    assert json.loads(events[1].payload) == {"time": "2020-01-01T00:00:30Z", "station": "south", "value": "6"}


def test_json_lines_keep_their_types_and_count_seconds_or_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "edits.jsonl"
    rows = [{"timestamp": 1.6e12 + 500 * n, "channel": "#en" if n % 2 else "#de", "added": n} for n in range(4)]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    events = list(events_from(path))
    assert [event.topic for event in events] == ["edits/de", "edits/en", "edits/de", "edits/en"]
    assert [event.seconds for event in events] == [0, 0.5, 1, 1.5]
    assert json.loads(events[3].payload) == rows[3]


def test_without_a_known_name_the_column_of_fewest_words_names_topics(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,colour,shape\n1,red,round\n2,blue,round\n3,green,flat\n")
    assert [event.topic for event in events_from(path)] == ["x/round", "x/round", "x/flat"]
    assert [event.seconds for event in events_from(path)] == [0, 1, 2]
    assert next(events_from(path, topic_column="colour")).topic == "x/red"


def test_a_row_without_topic_or_time_goes_with_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"topic": "a", "time": 10}\n{"time": "soon"}\n{"topic": "b", "time": 12}\n')
    assert [(event.topic, event.seconds) for event in events_from(path)] == [("x/a", 0), ("x/none", 0), ("x/b", 2)]


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_a_file_whose_first_line_never_ends_is_one_clear_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    with pytest.raises(LocalError, match="damaged after line 0: the next line has more than 16,777,216 characters"):
        events_from(path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.txt", b"a,b", "is not a .csv or .jsonl file"),
        ("x.csv", b"", "holds no events"),
        ("x.csv", b"a,b\n", "holds no events"),
        ("x.csv", b"a,b\n1,2\n", "no column that could name topics"),
        ("x.csv", b"topic,b\nu,2\nv\n", "damaged after line 2: the row does not have the 2 fields"),
        ("x.csv", b'topic,b\nu,"2', "damaged after line 0: unexpected end of data"),
        ("x.csv", b"topic,b\n\xff\xfe,2\n", "not text in UTF-8"),
        ("x.csv.gz", b"topic,b\nu,2\n", "cannot read .*: Not a gzipped file"),
        ("x.csv.gz", gzip.compress(b"topic,b\nu,2\n", mtime=0)[:-6], "cannot read .*: Compressed file ended"),
        ("x.jsonl", b'{"topic": "a"}\n{"topic"\n', "damaged after line 1: Expecting ':'"),
        ("x.jsonl", b"[1]\n", "line 1 is not a JSON object"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(LocalError, match=says) as raised:
        list(events_from(path))
    assert "\n" not in str(raised.value)


def test_a_missing_file_and_a_missing_column_say_so_at_once(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file"):
        events_from(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(LocalError, match="has no column 'c'; it has a, b"):
        events_from(tmp_path / "x.csv", topic_column="c")
