"""`quillcast demo`: peers as processes, real events, kills, and the proof of what happened."""

from pathlib import Path

import click
import msgspec

from quillcast.cli.options import JSON
from quillcast.cli.running import interruptible, run

WIDTH = 120  # of tables that go to a file or a pipe


@click.command(short_help="See a network lose peers and no event.")
@click.option("--peers", type=click.IntRange(min=4, max=100), default=16, show_default=True, help="Processes to start.")
@click.option("--rate", type=click.FloatRange(min=1), default=250, show_default=True, help="Events a second.")
@click.option(
    "--events",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Publish the rows of this .csv or .jsonl (or .gz of one) instead of the flights that come along.",
)
@click.option("--limit", type=click.IntRange(min=1), default=5000, show_default=True, help="Publish no more events.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides the peers' ids and who does what.")
@click.option("--no-kill", is_flag=True, help="Leave the peers alone.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="New folder for journals and report.  [default: quillcast-demo/<date and time>]",
)
@JSON
def command(
    peers: int, rate: float, file: Path | None, limit: int, seed: int, no_kill: bool, output: Path | None, as_json: bool
) -> None:
    """Start a network of processes, publish real events, kill peers, and prove what happened.

    While flights from New York are published to reliable topics, two inner forwarders and then the root of the busiest
    topic are killed (SIGKILL). At the end a Spark job reads the journals of all peers and counts what was published,
    due, delivered, repeated and lost; a page with pictures is written. Ends with 0 only if every promise held.

    With --json the last line of standard output is an object with peers, topics, published, expected, delivered,
    duplicates, lost, kills, repair_s, delay_ms, report and seconds; all else goes to standard error.
    """
    from rich.console import Console

    from quillcast.demo.performance import Performance, plan

    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = WIDTH
    performance = Performance(plan(peers, rate, file, limit, seed, output, kill=not no_kill), console)
    performance.prepare()
    told = run(performance.play())
    with interruptible():
        result, sound = performance.prove(told)
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    click.get_current_context().exit(0 if sound else 1)
