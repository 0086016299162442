"""Audits journals: computes the tables on Spark, collects them as plain values, and draws them as a page.

Importing this module loads neither Spark nor Arrow.
"""

import platform
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from quillcast.core.ids import short
from quillcast.pipeline import extras
from quillcast.pipeline.findings import Findings, Row
from quillcast.pipeline.report import write_report
from quillcast.pipeline.run import Run, read_run

DRAWN_PEERS_MAX = 150  # a guess: still readable on a page
LONG_BYTES = 200_000_000  # a guess: a million records; for more, Spark's compiler is worth its start-up time
GAPS_MAX = 100  # lost ranges that are listed
RATE_BUCKETS = 120  # points in the picture of rates
RATE_BUCKET_NS_MIN = 100_000_000


def run_audit(
    folder: Path,
    run: Run | None = None,
    *,
    master: str = "local[*]",
    report: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Findings:
    """Audit the journals below a folder on Spark, and write the HTML report if `report` says where.

    Without `run`, kills, end and names are those of `run.json` in the folder, if it exists. `say` is called with the
    name of each step, for people who wait. Raises `LocalError` if there are no journals, or if Spark or its Java
    machine is missing.
    """
    extras.require("an audit", *extras.SPARK, *(() if report is None else extras.REPORT))
    from quillcast.pipeline.audit import audit
    from quillcast.pipeline.journals import journal_files
    from quillcast.pipeline.session import spark_session

    began = time.monotonic()
    run = read_run(folder) if run is None else run
    say(f"looking for journals below {folder}")
    sizes = [path.stat().st_size for path in journal_files(folder)]
    say("starting Spark")
    spark = spark_session(master, short=sum(sizes) < LONG_BYTES)
    say(f"reading {len(sizes):,} journals, {sum(sizes) / 1e6:,.1f} MB")
    tables = audit(spark, folder, run.kills, end_ns=run.end_ns, say=say)
    say("judging")
    findings = _collect(tables, run, began)
    tables.unpersist()
    if report is not None:
        say("drawing")
        write_report(findings, report)
    return findings


def _collect(tables: Any, run: Run, began: float) -> Findings:
    from quillcast.pipeline import events, trees

    named = tables.topics.collect()
    topics = {bytes(row["topic"]): row["name"] for row in named}
    span = tables.records.selectExpr("max(at_ns) - min(at_ns)").first()[0] or 0
    bucket_ns = max(RATE_BUCKET_NS_MIN, span // RATE_BUCKETS // RATE_BUCKET_NS_MIN * RATE_BUCKET_NS_MIN)

    def rows(table: Any) -> list[Row]:
        return [_named(row.asDict(), topics, run.names) for row in table.collect()]

    return Findings(
        run=run,
        journals=sorted(rows(tables.journals), key=lambda row: row["peer"] or ""),
        subscribers=sorted(rows(tables.subscribers), key=lambda row: (row["topic"], row["peer"], row["since"])),
        gaps=rows(tables.gaps.limit(GAPS_MAX)),
        delays=sorted(rows(tables.delays), key=lambda row: row["delay_ms"]),
        percentiles=rows(tables.percentiles)[0],
        rates=[{**row, "width_ns": bucket_ns} for row in rows(events.rates(tables.records, bucket_ns))],
        repairs=rows(tables.repairs),
        shapes=sorted(rows(trees.shapes(tables.trees)), key=lambda row: (row["moment"], row["topic"])),
        trees=rows(trees.shown(tables.trees, tables.repairs, tables.topics, DRAWN_PEERS_MAX)),
        counters=sorted(rows(tables.counters), key=lambda row: (row["record"], row["text"] or "")),
        published=rows(tables.published),
        verdicts=rows(tables.verdicts),
        versions=versions(),
        seconds=time.monotonic() - began,
        peers=tables.journals.where("peer is not null").select("peer").distinct().count(),
        topics=tables.published.select("topic").distinct().count(),
        guarantees={row["name"]: row["delivery"] for row in named},
    )


def _named(row: dict[str, Any], topics: Mapping[bytes, str], peers: Mapping[bytes, str]) -> Row:
    """The row with ids replaced by names for people."""

    def called(column: str, value: Any) -> Any:
        if not isinstance(value, bytes | bytearray):
            return value
        id_ = bytes(value)
        return (topics if column == "topic" else peers).get(id_) or short(id_)

    return {column: called(column, value) for column, value in row.items()}


def versions() -> dict[str, str]:
    """The versions of the libraries that an audit uses."""
    packages = ("quillcast", "pyspark", "pyarrow")
    return {package: metadata.version(package) for package in packages} | {"python": platform.python_version()}
