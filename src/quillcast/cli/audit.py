"""`quillcast audit`: check from the journals of peers whether every promise held."""

from pathlib import Path

import click

from quillcast.cli.options import JSON, TEXT, Place
from quillcast.cli.running import interruptible
from quillcast.pipeline import extras


@click.command(short_help="Prove from journals what happened.")
@click.argument("folder", metavar="DIR", type=Place(exists=True, file_okay=False, path_type=Path))
@click.option("--report", type=Place(dir_okay=False, path_type=Path), help="Write a page with pictures to this file.")
@click.option("--master", type=TEXT, default="local[*]", show_default=True, help="Where Spark runs.")
@JSON
def command(folder: Path, report: Path | None, master: str, as_json: bool) -> None:
    """Prove from the journals in DIR what was due, delivered, repeated and lost. Runs on Spark.

    Peers write journals with `quillcast node --journal DIR` or Node(journal=...). The exit code is 0 if every promise
    held, otherwise 1.
    """
    extras.require("an audit", *extras.SPARK, *(() if report is None else extras.REPORT))
    from quillcast.pipeline.command import audit_command

    with interruptible():
        code = audit_command(folder, as_json=as_json, report=report, master=master)
    click.get_current_context().exit(code)
