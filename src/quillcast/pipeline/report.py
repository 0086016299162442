"""The audit as one self-contained HTML page."""

from importlib import resources
from pathlib import Path
from typing import Any

from quillcast.core.errors import DiskFailed
from quillcast.pipeline import extras, pictures
from quillcast.pipeline.findings import Findings, Row


def write_report(findings: Findings, path: Path) -> None:
    """Write the page. Raises `DiskFailed` if it cannot be written, `LocalError` if jinja2 or matplotlib is missing."""
    text = render(findings)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DiskFailed(f"cannot write the report {path}: {error.strerror}; name another file") from error


def render(findings: Findings) -> str:
    """The page as text."""
    extras.require("the report", *extras.REPORT)
    import jinja2
    import matplotlib as mpl

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update({"number": number, "ms": pictures.milliseconds, "seconds": seconds})
    template = environment.from_string((resources.files("quillcast.pipeline") / "report.html.j2").read_text("utf-8"))
    versions = dict(findings.versions) | {"matplotlib": mpl.__version__}
    return template.render(
        findings=findings,
        summary=findings.summary(),
        versions=versions,
        broken=[verdict for verdict in findings.verdicts if not verdict["holds"]],
        delay_picture=pictures.delay_distribution(findings.delays, findings.percentiles) if findings.delays else "",
        rate_picture=pictures.deliveries_over_time(findings.rates, findings.repairs) if findings.rates else "",
        kills=[_kill(findings, repair) for repair in findings.repairs],
        topics=_topics(findings),
        at_end=[row for row in findings.shapes if row["moment"] == "end"],
    )


def _topics(findings: Findings) -> list[dict[str, Any]]:
    """The topics with their guarantees, the events published in each, and the results of its subscribers."""
    names = sorted({row["topic"] for row in (*findings.published, *findings.fates)})
    return [
        {
            "name": name,
            "delivery": findings.guarantees.get(name, "reliable"),
            "published": sum(row["events"] for row in findings.published if row["topic"] == name),
            "subscribers": [row for row in findings.fates if row["topic"] == name],
        }
        for name in names
    ]


def _kill(findings: Findings, repair: Row) -> dict[str, Any]:
    """One kill: its row, and the tree before and after it."""
    rows = [row for row in findings.trees if row["kill"] == repair["kill"]]
    before = [row for row in rows if row["moment"].startswith("before")]
    after = [row for row in rows if row["moment"].startswith("after")]
    moved = {row["peer"] for row in before if row["parent"] == repair["peer"]}
    topic = before[0]["topic"] if before else ""
    subscribers = {row["peer"] for row in findings.subscribers if row["topic"] == topic and row["lived"]}
    killed = repair["peer"]
    return {
        "repair": repair,
        "topic": topic,
        "before": pictures.tree(before, killed=killed, moved=moved, subscribers=subscribers) if before else "",
        "after": pictures.tree(after, moved=moved, subscribers=subscribers) if after else "",
    }


def number(value: float | None) -> str:
    """A count with separated thousands; a dash for None."""
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def seconds(value: float | None) -> str:
    """A repair time for people."""
    return "not repaired" if value is None else pictures.milliseconds(1000 * value)
