"""The command `quillcast audit DIR`, and the tables printed at its end and at the demo's."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from quillcast.core.errors import LocalError
from quillcast.pipeline.auditing import run_audit
from quillcast.pipeline.findings import Findings
from quillcast.pipeline.pictures import milliseconds

WIDTH = 120  # of tables that go to a file or a pipe
SUBSCRIBERS_MAX = 40  # rows for a terminal; the page shows all


def audit_command(folder: Path, *, as_json: bool = False, report: Path | None = None, master: str = "local[*]") -> int:
    """Audit the journals below a folder and print the findings. Returns 0 if every promise held, otherwise 1.

    Raises `LocalError` if there are no journals, the report has no place, or Spark or its Java machine is missing.
    """
    if report is not None and not os.access(report.absolute().parent, os.W_OK):
        raise LocalError(f"{report} cannot be written: its folder does not exist, or you may not write to it")
    progress = Console(stderr=True)
    with steps(progress) as say:
        findings = run_audit(folder, report=report, master=master, say=say)
    if as_json:
        print(json.dumps(findings.tables() | {"report": str(report) if report else None}))  # noqa: T201
    else:
        console = Console()
        if not console.is_terminal:
            console.width = WIDTH
        print_findings(findings, console)
        if report is not None:
            progress.print(f"The report is {report}")
    return 0 if findings.sound else 1


@contextmanager
def steps(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the steps of an audit: the current one in a terminal, a line for each elsewhere."""
    if console.is_terminal:
        with console.status("audit") as status:
            yield lambda step: status.update(f"audit: {step} ...")
    else:
        yield lambda step: console.print(f"audit: {step}", highlight=False, markup=False, soft_wrap=True)


def print_findings(findings: Findings, console: Console) -> None:
    """Print the audit on a terminal: subscribers, kills, delays, verdicts."""
    console.print(_subscribers(findings))
    if findings.repairs:
        console.print(_repairs(findings))
    summary = findings.summary()
    p50, p99 = (milliseconds(time_ms) for time_ms in (summary.delay_ms.p50, summary.delay_ms.p99))
    made = f"{summary.delivered:,} of {summary.expected:,} deliveries made"
    console.print(f"{summary.published:,} events published, {made}; half within {p50}, 99 % within {p99}")
    if misrouted := _misrouted(findings):
        console.print(misrouted)
    console.print(_verdicts(findings))


def _subscribers(findings: Findings) -> Table:
    names = ("expected", "delivered", "repeated", "lost", "dropped")
    table = _table("topic", "judged as", "subscriber", *names, "p50", "p99", words=3)
    for row in findings.fates[:SUBSCRIBERS_MAX]:
        counts = [f"{row[name]:,}" for name in ("expected", "delivered", "duplicated", "lost", "dropped")]
        who = [row["topic"], row["delivery"], row["peer"] if row["lived"] else f"{row['peer']} (ended)"]
        table.add_row(*who, *counts, milliseconds(row["p50_ms"]), milliseconds(row["p99_ms"]))
    left_out = len(findings.fates) - SUBSCRIBERS_MAX
    if left_out > 0:
        table.add_row("...", f"and {left_out} more")
    return table


def _repairs(findings: Findings) -> Table:
    table = _table("kill", "what", "children", "by fallback", "unrepaired", "repaired after", words=2)
    for row in findings.repairs:
        after = "never" if row["repair_s"] is None else milliseconds(1000 * row["repair_s"])
        counts = [str(row[name]) for name in ("children", "by_fallback", "unrepaired")]
        table.add_row(f"{row['kill']}: {row['peer']}", row["what"], *counts, after)
    return table


def _misrouted(findings: Findings) -> str:
    """Describe the bundles that peers dropped because of routing records; empty if there are none."""
    counts = {(row["record"], row["text"]): row["records"] for row in findings.counters}
    dropped, malformed = counts.get(("Dropped", "misrouted"), 0), counts.get(("Mark", "record_malformed"), 0)
    if not dropped:
        return ""
    return (
        f"{dropped:,} bundles were dropped where their routing records did not fit ({malformed:,} of them malformed): "
        "their events were requested again"
    )


def _verdicts(findings: Findings) -> Table:
    table = _table("", "verdict", "figure", "meaning", words=2)
    table.columns[3].justify = "left"
    for row in findings.verdicts:
        sign = "[green]✓[/]" if row["holds"] else "[bold red]✗[/]"
        table.add_row(sign, row["verdict"], f"{row['figure']:,}", f"[dim]{row['meaning']}[/]")
    return table


def _table(*columns: str, words: int) -> Table:
    """A plain table. The first `words` columns are text, the others numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < words else "right")
    return table
