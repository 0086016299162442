"""From findings to a page, a table and JSON; and what stands beside the journals. No Spark here."""

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from rich.console import Console

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.pipeline.command import print_findings
from quillcast.pipeline.findings import Findings
from quillcast.pipeline.journals import journal_files
from quillcast.pipeline.pictures import milliseconds, place
from quillcast.pipeline.report import render, write_report
from quillcast.pipeline.run import FILE, Kill, Run, read_run, write_run

BEFORE = {"a": (None, 0), "b": ("a", 1), "c": ("a", 1), "d": ("b", 2), "e": ("b", 2)}
AFTER = {"a": (None, 0), "c": ("a", 1), "d": ("a", 1), "e": ("a", 1)}


def tree(moment: str, members: dict[str, tuple[str | None, int]]) -> list[dict[str, Any]]:
    return [
        {"moment": moment, "topic": "t<1>", "peer": peer, "parent": parent, "is_root": parent is None, "depth": depth,
         "children": 0, "children_all": 0, "kill": 1}
        for peer, (parent, depth) in members.items()
    ]  # fmt: skip


def findings(*, lost: int = 0) -> Findings:
    subscriber = {
        "topic": "t<1>", "peer": "d", "started_ns": 1, "since": 0, "delivery": "reliable", "lived": True,
        "expected": 12_345, "delivered": 12_345 - lost, "duplicated": 0, "lost": lost, "dropped": 0, "silent": lost,
        "extra": 0, "disordered": 0, "p50_ms": 1.25, "p99_ms": 20.0,
    }  # fmt: skip
    whose = {"topic": "t<1>", "peer": "d", "started_ns": 1, "since": 0}
    gap = {**whose, "publisher": "p", "first": 7, "last": 7 + lost, "told": False}
    return Findings(
        run=Run(parameters={"seed": 42, "peers": 5}),
        journals=[
            {"peer": peer, "started_ns": 1, "ended_ns": None, "lived": True, "records": 10, "missing": 0, "files": 1,
             "bytes": 1000, "dropped_bytes": 0, "closed": True}
            for peer in BEFORE
        ],
        subscribers=[subscriber],
        gaps=[gap] if lost else [],
        delays=[{"delay_ms": 0.5, "count": 10_000}, {"delay_ms": 30.0, "count": 2345}],
        percentiles={"p50_ms": 0.5, "p90_ms": 30.0, "p99_ms": 30.0, "max_ms": 30.0},
        rates=[
            {"bucket_ns": n * 10**8, "topic": "t<1>", "published": 5, "delivered": 10, "width_ns": 10**8}
            for n in range(20)
        ],
        repairs=[
            {"kill": 1, "peer": "b", "kill_ns": 10**9, "what": "forwarder", "topics": 1, "roots": 0, "children": 2,
             "unrepaired": 0, "by_fallback": 2, "repaired_ns": 11 * 10**8, "repair_s": 0.1}
        ],
        shapes=[
            {"moment": "end", "topic": "t<1>", "peers": 4, "depth_max": 1, "depth_mean": 0.75, "children_max": 3,
             "children_mean": 3.0}
        ],
        trees=[*tree("before 1", BEFORE), *tree("after 1", AFTER)],
        counters=[{"record": "Repeated", "text": "edge", "records": 2, "count": 9}],
        published=[{"topic": "t<1>", "publisher": "p", "events": 12_345}],
        verdicts=[
            {"verdict": "something to prove", "holds": True, "figure": 12_345, "meaning": "deliveries that were due"},
            {"verdict": "nothing lost", "holds": not lost, "figure": lost, "meaning": "events that never came"},
        ],
        versions={"quillcast": "0.1.0"},
        seconds=1.5,
        peers=5,
        topics=1,
    )  # fmt: skip


class Page(HTMLParser):
    """Notes whatever would make a browser fetch something, and checks that elements nest."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        targets = [value or "" for name, value in attrs if name.endswith(("src", "href"))]
        self.fetched += [target for target in targets if not target.startswith("#")]
        self.fetched += [tag] if tag in {"script", "link", "img", "iframe", "image"} else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(found: Findings) -> str:
    text = render(found)
    read = Page()
    read.feed(text)
    assert read.open == []
    assert read.fetched == []
    assert "url(http" not in text
    return text


def test_the_page_of_a_sound_run_says_so_and_is_self_contained() -> None:
    text = page(findings())
    assert "every promise held" in text
    assert "12\u202f345" in text
    assert text.count("<svg") == 4
    assert "<dt>seed</dt><dd>42</dd>" in text
    assert "Lost and dropped events" not in text


def test_the_page_of_a_broken_run_says_what_broke_and_where() -> None:
    text = page(findings(lost=5))
    assert "1 of 2 promises broken" in text
    assert "Lost and dropped events" in text


def test_names_of_topics_are_text_in_the_page() -> None:
    assert "t<1>" not in page(findings())
    assert "t&lt;1&gt;" in page(findings())


def test_an_empty_run_has_a_page_too() -> None:
    nothing = {name: [] for name in Findings._fields}
    given = {
        "run": Run(), "versions": {}, "seconds": 0.0, "peers": 0, "topics": 0,
        "percentiles": dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms")),
        "verdicts": [{"verdict": "something to prove", "holds": False, "figure": 0, "meaning": ""}],
    }  # fmt: skip
    empty = Findings(**nothing | given)
    assert "Nothing was delivered." in page(empty)
    assert not empty.sound


def test_equal_findings_make_equal_pages() -> None:
    assert render(findings()) == render(findings())


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DiskFailed, match=r"cannot write the report .*: Is a directory; name another file"):
        write_report(findings(), tmp_path)


def test_the_summary_has_the_figures_that_scripts_ask_for() -> None:
    assert msgspec.to_builtins(findings(lost=5).summary()) == {
        "peers": 5, "topics": 1, "published": 12_345, "expected": 12_345, "delivered": 12_340, "duplicates": 0,
        "lost": 5, "dropped": 0, "kills": 1, "repair_s": [0.1], "delay_ms": {"p50": 0.5, "p99": 30.0},
    }  # fmt: skip
    assert json.loads(json.dumps(findings().tables()))["sound"] is True


def test_the_terminal_shows_subscribers_kills_and_verdicts() -> None:
    out = io.StringIO()
    print_findings(findings(lost=5), Console(file=out, width=120))
    text = out.getvalue()
    assert re.search(r"t<1>\s+reliable\s+d\s+12,345\s+12,340\s+0\s+5\s+0", text)
    assert re.search(r"1: b\s+forwarder\s+2\s+2\s+0\s+100 ms", text)
    assert re.search(r"✗\s+nothing lost\s+5", text)


def test_the_terminal_says_what_was_dropped_because_of_routing_records() -> None:
    rows = [("Dropped", "misrouted", 12), ("Dropped", "budget", 5), ("Mark", "record_malformed", 2)]
    counters = [{"record": record, "text": text, "records": records, "count": 0} for record, text, records in rows]
    for each, told in ((findings()._replace(counters=counters), True), (findings(), False)):
        out = io.StringIO()
        print_findings(each, Console(file=out, width=200))
        assert ("12 bundles were dropped where their routing records did not fit (2 of them" in out.getvalue()) is told


def test_parents_are_drawn_amid_their_children_and_lost_peers_last() -> None:
    lost = {"peer": "z", "parent": "y", "is_root": False, "depth": None}
    at = {node.peer: (node.depth, node.line) for node in place([*tree("x", BEFORE), lost])}
    assert at == {"d": (2, 0), "e": (2, 1), "b": (1, 0.5), "c": (1, 2), "a": (0, 1.25), "z": (0, 3)}


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.954, "0.954 ms"), (12.34, "12.3 ms"), (1234.0, "1.23 s"), (2e6, "2,000 s")]
)
def test_times_are_written_for_people(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = Run((Kill(b"\x01" * 16, 5, "root"),), 77, {"seed": 3}, {b"\x02" * 16: "peer 2"})
    assert read_run(tmp_path) == Run()
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run


@pytest.mark.parametrize("content", ["{", '{"kills": [{"peer": "zz", "at_ns": 1}]}', '{"kills": 5}'])
def test_a_damaged_description_of_a_run_says_so(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(LocalError, match=r"does not describe a run: .*; repair or remove it"):
        read_run(tmp_path)


def test_a_folder_without_journals_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="has no journals"):
        journal_files(tmp_path)
    with pytest.raises(LocalError, match="is not a folder"):
        journal_files(tmp_path / "x")
    (tmp_path / "x.arrows").write_bytes(b"")
    assert journal_files(tmp_path) == [tmp_path / "x.arrows"]
    (tmp_path / "y.arrows").write_bytes(pa.schema([("a", pa.int64())]).serialize())
    with pytest.raises(LocalError, match=r"y.arrows is not a journal of this version: .* other columns"):
        journal_files(tmp_path)
