"""`quillcast demo`: start peers as processes, publish real events, kill peers, and prove what happened."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from quillcast.cli.options import JSON, TEXT, Amount, Count, Place
from quillcast.cli.running import interruptible, run
from quillcast.cli.tables import table
from quillcast.core.errors import LocalError, Unreachable
from quillcast.core.status.commands import DemoEnded
from quillcast.pipeline import extras

if TYPE_CHECKING:
    from quillcast.live.discovery.questions import PeerQuestion

ANSWER_TIMEOUT_S = 60.0  # an answer waits for a repair, and for repairs before it

T = TypeVar("T")
PEER = click.argument("peer", type=TEXT, metavar="PEER")
SECONDS = click.option("--seconds", type=Amount(min=0.1), default=10.0, show_default=True, help="Duration.")
DEMO = click.option("--demo", type=TEXT, metavar="NETWORK", help="Which demo, if several are running.")


@click.group(invoke_without_command=True, short_help="Kill peers in a running network and check that no event is lost.")
@click.option("--peers", type=Count(min=4, max=100), default=16, show_default=True, help="Processes to start.")
@click.option("--rate", type=Amount(min=1), default=250, show_default=True, help="Events per second.")
@click.option(
    "--events",
    "file",
    type=Place(exists=True, dir_okay=False, path_type=Path),
    help="Publish the rows of this .csv or .jsonl file (or .gz) instead of the built-in flights.",
)
@click.option("--limit", type=Count(min=1), default=5000, show_default=True, help="Publish at most this many events.")
@click.option("--seed", type=Count(min=0), default=1, show_default=True, help="Seed for the peers' ids and roles.")
@click.option("--no-kill", is_flag=True, help="Kill no peers.")
@click.option("--scopes", is_flag=True, help="Three sites with policies of their own, instead of one network.")
@click.option("--stay", is_flag=True, help="Continue until Ctrl-C or `quillcast demo end`, then audit.")
@click.option(
    "--output",
    type=Place(file_okay=False, path_type=Path),
    help="New folder for journals and report.  [default: quillcast-demo/<date and time>]",
)
@JSON
@click.pass_context
def command(
    context: click.Context,
    peers: int,
    rate: float,
    file: Path | None,
    limit: int,
    seed: int,
    no_kill: bool,
    scopes: bool,
    stay: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Start a network of processes, publish real events, kill peers, and prove what happened.

    Publishes flights from New York to reliable topics; in one of them the publishers' peers number the events
    (admission = source). Kills two forwarders and then the root of the busiest topic (SIGKILL). At the end a Spark job
    reads the journals of all peers and counts what was published, due, delivered, repeated and lost, and writes a page
    with pictures. The exit code is 0 only if every promise held.

    With --scopes it runs three sites instead, each with a manager and four members. It kills the entry point and the
    manager of one site together, starts the manager again, and changes the policy of another site while events flow.

    Without --scopes you can kill, partition or slow peers from another terminal while it runs, and watch the repair.
    `quillcast demo peers` lists the peers.

    With --json the last line of standard output is an object with peers, topics, published, expected, delivered,
    duplicates, lost, kills, repair_s, delay_ms, report and seconds; all else goes to standard error.
    """
    if context.invoked_subcommand is not None:
        return
    if scopes and (given := [name for name in ("peers", "no_kill", "stay") if _is_given(context, name)]):
        raise click.UsageError(f"--scopes always runs the same three sites; leave out --{given[0].replace('_', '-')}")
    extras.require("the demo ends with an audit, which", *extras.SPARK, *extras.REPORT)
    from rich.console import Console

    from quillcast.demo.performance import Performance, plan
    from quillcast.pipeline.command import WIDTH

    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = WIDTH
    performance = Performance(
        plan(peers, rate, file, limit, seed, output, kill=not no_kill, stay=stay, scopes=scopes), console
    )
    told = run(performance.play())
    with interruptible():
        result, sound = performance.prove(told)
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    context.exit(0 if sound else 1)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


@command.command(short_help="List the peers of the running demo.")
@JSON
@DEMO
def peers(demo: str | None, as_json: bool) -> None:
    """List the peers of the running demo: names, roles and health."""
    from quillcast.demo.answers import PeerShown, PeersQuestion

    shown = _ask(demo, PeersQuestion(), list[PeerShown])
    if as_json:
        click.echo(msgspec.json.encode(shown).decode())
        return
    rows = [
        [peer.name, peer.node_id[:8], peer.role, _yes(peer.publishes), str(peer.children), peer.state] for peer in shown
    ]
    for line in table("peers", ["peer", "id", "role", "publishes", "children", "state"], rows):
        click.echo(line)


@command.command(short_help="Kill a peer (SIGKILL), and wait for the repair.")
@PEER
@JSON
@DEMO
def kill(peer: str, demo: str | None, as_json: bool) -> None:
    """Kill PEER of the running demo (SIGKILL), and wait for the repair."""
    from quillcast.demo.answers import KillQuestion

    _strike(demo, KillQuestion(peer), as_json=as_json)


@command.command(short_help="Cut a peer off from all others for a while.")
@PEER
@SECONDS
@JSON
@DEMO
def partition(peer: str, seconds: float, demo: str | None, as_json: bool) -> None:
    """Cut PEER of the running demo off from all others for a while. Then it finds them and catches up."""
    from quillcast.demo.answers import PartitionQuestion

    _strike(demo, PartitionQuestion(peer, seconds), as_json=as_json)


@command.command(short_help="Slow a peer down to a fifth for a while.")
@PEER
@SECONDS
@JSON
@DEMO
def slow(peer: str, seconds: float, demo: str | None, as_json: bool) -> None:
    """Slow PEER of the running demo down to a fifth for a while. The others do not wait for it."""
    from quillcast.demo.answers import SlowQuestion

    _strike(demo, SlowQuestion(peer, seconds), as_json=as_json)


@command.command()
@JSON
@DEMO
def end(demo: str | None, as_json: bool) -> None:
    """End the running demo in good order, and start its audit."""
    from quillcast.demo.answers import EndQuestion

    _ask(demo, EndQuestion(), object)
    if as_json:
        click.echo(msgspec.json.encode(DemoEnded(ended=True)).decode())


def _ask(demo: str | None, question: "PeerQuestion", kind: type[T]) -> T:
    """The answer of the running demo. Raises `Unreachable` if none runs, `LocalError` if there are several."""
    from quillcast.demo.network import control_path, deaf_demos, demos_here
    from quillcast.live.discovery.control import ask

    running = demos_here()
    if demo is not None and demo not in running:
        there = f"there are: {', '.join(running)}" if running else "start one with: quillcast demo --stay"
        raise Unreachable(f"no demo {demo!r} that accepts commands is running on this machine; {there}")
    running = [demo] if demo is not None else running
    if not running and (deaf := deaf_demos()):
        raise Unreachable(f"{deaf[0]} accepts no commands: it is still starting, or it runs with --scopes")
    if not running:
        raise Unreachable("no demo is running on this machine; start one with: quillcast demo --stay")
    if len(running) > 1:
        raise LocalError(f"several demos are running; choose one with --demo: {', '.join(running)}")
    return ask(control_path(running[0]), question, kind, timeout_s=ANSWER_TIMEOUT_S)


def _strike(demo: str | None, question: "PeerQuestion", *, as_json: bool) -> None:
    """Have the running demo strike a peer, and print the damage."""
    from quillcast.demo.answers import Strike

    struck = _ask(demo, question, Strike)
    if as_json:
        click.echo(msgspec.json.encode(struck).decode())
        return
    from quillcast.demo.repair import counted

    click.echo(f"{struck.text}; {counted(struck.children, struck.trees)}")
    if struck.repaired_s is not None:
        click.echo(f"repaired after {1000 * struck.repaired_s:.0f} ms: {struck.how}")


def _yes(holds: bool) -> str:
    return "yes" if holds else "-"
