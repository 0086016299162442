"""`quillcast evaluate`: estimate the cost of a deployment of many peers before anyone builds it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from quillcast.cli.options import JSON, TEXT, Amount, Count, Place
from quillcast.cli.running import interruptible
from quillcast.pipeline import extras

DEFAULT = "run"  # the command for a first argument that is not a command
HELP_OPTIONS = {"-h", "--help"}

MASTER = click.option("--master", type=TEXT, default="local[*]", show_default=True, help="Where Spark runs.")
REMOTE = click.option(
    "--remote", type=TEXT, metavar="URL", help="A Spark Connect server to use instead: sc://HOST:PORT."
)
SEED = click.option("--seed", type=Count(min=0), help="Seed for all random choices.")
OUTPUT = click.option(
    "--output",
    type=Place(file_okay=False, path_type=Path),
    help="Folder of the run; a stopped run resumes there.  [default: quillcast-evaluate/NAME...]",
)


class Evaluate(click.Group):
    """Treats a first argument that is not a command as an experiment to run. Without arguments, that one is missing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in HELP_OPTIONS):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "EXPERIMENT [OPTIONS]")
        formatter.write_usage(ctx.command_path, "compare RUN...", prefix="       ")
        formatter.write_usage(ctx.command_path, "recommend --topology NAME --peers N --groups N", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options of a run, and the other commands."""
        from quillcast.evaluation.experiment import names

        formatter.write_paragraph()
        formatter.write_text(f"Built-in experiments: {', '.join(names())}.")
        run.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=Evaluate, short_help="Compare policies on deployments of up to millions of peers.")
def command() -> None:
    """Evaluate an experiment: a TOML file or a built-in name.

    Builds the trees of each policy for groups of subscribers on a modelled network, and compares delays, node stress
    and link stress with IP multicast. Writes tables and a page with pictures. Computed on Spark. A run that was stopped
    resumes where it stopped.
    """


@command.command(DEFAULT, hidden=True)
@click.argument("experiment", type=TEXT, metavar="EXPERIMENT")
@click.option("--nodes", type=Count(min=2), help="Number of peers.  [default: the experiment's]")
@click.option("--groups", type=Count(min=1), help="Number of groups.  [default: the experiment's]")
@SEED
@click.option(
    "--seeds",
    type=TEXT,
    metavar="RANGES",
    help="Repeat the run with each of these seeds, such as 1-10, and report means and intervals.",
)
@click.option(
    "--policies",
    type=TEXT,
    metavar="POLICY,...",
    help='Policies, such as "scribe,scribe+remover(64)" or "module:Class".',
)
@MASTER
@REMOTE
@OUTPUT
@JSON
def run(
    experiment: str,
    nodes: int | None,
    groups: int | None,
    seed: int | None,
    seeds: str | None,
    policies: str | None,
    master: str,
    remote: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run an experiment."""
    extras.require("an evaluation", *extras.EVALUATION)
    from quillcast.evaluation.experiment import load, split

    if seed is not None and seeds is not None:
        raise click.UsageError("--seed and --seeds exclude each other; leave one out")
    asked = load(experiment)
    chosen = split(policies) if policies is not None else None
    asked = asked.with_(peers=nodes, groups=groups, seed=seed, policies=chosen)
    from quillcast.evaluation.command import evaluate_command  # takes a second, so a wrong request is told before
    from quillcast.evaluation.seeds import parse_seeds

    each = parse_seeds(seeds) if seeds is not None else []
    work = partial(evaluate_command, asked, output, each, master=master, remote=remote, as_json=as_json)
    _ended(work, as_json=as_json)


@command.command(short_help="Compare runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=Place(path_type=Path))
@click.option(
    "--output",
    type=Place(file_okay=False, path_type=Path),
    help="Folder for the comparison as a page, with its pictures as SVG and CSV.",
)
@JSON
def compare(runs: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Compare finished runs. Each RUN is the folder of one."""
    extras.require("a comparison", *extras.EVALUATION)
    from quillcast.evaluation.compare import compare_command

    _ended(lambda: compare_command(runs, output, as_json=as_json), as_json=as_json)


@command.command(short_help="Recommend a policy for a deployment.")
@click.option(
    "--topology", type=TEXT, default="transit-stub", show_default=True, help="A built-in topology, or a file."
)
@click.option("--peers", type=Count(min=2), required=True, help="Number of peers.")
@click.option("--groups", type=Count(min=1), required=True, help="Number of groups.")
@click.option("--size", type=Count(min=2), help="Members of each group.  [default: as in the papers]")
@click.option(
    "--members", type=TEXT, help="uniform, clustered, or real membership: rust-teams, or a file.", default="uniform"
)
@click.option(
    "--publishers",
    type=click.Choice(["members", "creator", "root"]),
    default="members",
    show_default=True,
    help="Who publishes in a group: up to four members, its creator, or the root of its key.",
)
@click.option("--children-max", type=Count(min=2), help="Largest number of children that a peer may have in a group.")
@click.option(
    "--link-stress-max",
    type=Amount(min=0, min_open=True),
    help="Largest number of messages on a core link, as a multiple of IP multicast.",
)
@click.option(
    "--entries-max",
    type=Amount(min=0, min_open=True),
    help="Largest number of membership entries, of all groups together, that a peer may keep on average.",
)
@click.option("--policies", type=TEXT, metavar="POLICY,...", help="Policies to choose from.")
@SEED
@MASTER
@REMOTE
@OUTPUT
@JSON
def recommend(output: Path | None, policies: str | None, as_json: bool, **asked: Any) -> None:
    """Try policies on a sample of a deployment. Say which serves it best, and by how much."""
    extras.require("an evaluation", *extras.EVALUATION)
    from quillcast.evaluation.experiment import split
    from quillcast.evaluation.recommend import Wish, recommend_command

    wish = Wish(policies=split(policies) if policies is not None else (), **_known(asked))
    where = {"master": asked["master"], "remote": asked["remote"]}
    _ended(lambda: recommend_command(wish, output, as_json=as_json, **where), as_json=as_json)


def _known(asked: dict[str, Any]) -> dict[str, Any]:
    """The options that describe the deployment."""
    return {name: value for name, value in asked.items() if value is not None and name not in {"master", "remote"}}


def _ended(work: Callable[[], dict[str, Any]], *, as_json: bool) -> None:
    """Run `work`. With --json its result is the last line of standard output."""
    with interruptible():
        result = work()
    if as_json:
        click.echo(json.dumps(result))
