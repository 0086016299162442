"""The group of all commands, and how each command ends."""

import gc
import os
from difflib import get_close_matches
from importlib import import_module
from traceback import walk_tb

import click

from quillcast import __version__
from quillcast.cli.endings import Interrupted, ReaderGone, Terminated
from quillcast.cli.options import coloured
from quillcast.core.errors import FAILURES, DiskFailed, QuillcastError

COMMANDS = (
    "sub",
    "pub",
    "node",
    "topic",
    "scope",
    "credentials",
    "tree",
    "trace",
    "status",
    "top",
    "check",
    "bench",
    "demo",
    "audit",
    "evaluate",
    "completion",
)
"""In the order of --help. Each is the `command` object of the module with its name."""

FIRST = {
    "sub TOPIC": "print a topic's events as they arrive",
    "pub TOPIC MESSAGE": "publish; without MESSAGE, each line of standard input",
    "topic create TOPIC": "choose a topic's settings",
    "tree TOPIC": "draw the topic's live tree",
    "demo": "sixteen peers, three kills, and proof that nothing was lost",
}
"""Shown by `quillcast` without arguments: the five commands of the README, in its order."""

EXIT_CODES = {
    0: "success",
    1: "failure; for `demo` and `audit`: something was lost or repeated",
    2: "invalid request: an option, a topic's settings, an event that is too large",
    3: "another peer broke the protocol",
    4: "no peer could be reached or joined",
    5: "not admitted, or not stable at every subscriber, within the time given",
    6: "disk error",
    130: "ended by Ctrl-C (143: by SIGTERM), in good order",
}

HELP = """Publish and subscribe without a broker: every process is a peer.

\b
Two terminals, no configuration:
  quillcast sub sport/tennis
  quillcast pub sport/tennis "hello"
Sixteen peers, three kills, and proof that nothing was lost:
  quillcast demo
"""

EPILOG = """\b
Exit codes:
""" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())


class Commands(click.Group):
    """Imports the module of a command only when that command is called. Then garbage is collected, but no modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"quillcast.cli.{cmd_name}").command
        gc.freeze()
        gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as problem:
            if near := get_close_matches(args[0], COMMANDS):
                instead = f"{problem.message} Did you mean {' or '.join(near)}?"
                raise click.UsageError(instead, problem.ctx) from problem
            raise


@click.group(
    cls=Commands,
    help=HELP,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    __version__,
    prog_name="quillcast",
    message="%(prog)s, version %(version)s",
)
@click.pass_context
def commands(context: click.Context) -> None:
    """The group of all commands. Called without a command, it shows an overview."""
    context.color = coloured(1)
    if context.invoked_subcommand is None:
        click.echo(first_words())


def first_words() -> str:
    """The five most important commands, and where to find the others."""
    width = max(map(len, FIRST)) + 2
    return "\n".join(
        [
            "Publish and subscribe without a broker: every process is a peer.",
            "",
            *(f"  {click.style(f'quillcast {line:{width}}', bold=True)}{what}" for line, what in FIRST.items()),
            "",
            f"{len(COMMANDS)} commands in all, and exit codes: quillcast --help",
        ]
    )


def run(arguments: list[str]) -> int:
    """Run a command. Any error becomes one line on stderr. Returns the exit code."""
    try:
        return commands.main(arguments, prog_name="quillcast", standalone_mode=False) or 0
    except (click.Abort, Interrupted):
        return 130
    except click.ClickException as error:
        return _failed(f"{error.format_message().removesuffix('.')}{_help_of(error)}", error.exit_code)
    except ReaderGone:
        return 0
    except Terminated:
        return 143
    except QuillcastError as error:
        return _failed(str(error), error.exit_code)
    except OSError as error:
        code = DiskFailed.exit_code if error.errno in FAILURES else 1
        return _failed(told(error), code)
    except Exception as error:
        if "QUILLCAST_DEBUG" in os.environ:
            raise
        return _failed(f"{type(error).__name__}: {error} (a bug in quillcast; QUILLCAST_DEBUG=1 shows where)", 1)


def told(error: OSError) -> str:
    """Describe a system error with its file. An error without a file came from writing the output."""
    printing = any(frame.f_code.co_name == "echo" for frame, _ in walk_tb(error.__traceback__))
    where = error.filename or ("the output cannot be written" if printing else None)
    return f"{where}: {error.strerror}" if where and error.strerror else str(error)


def _failed(text: str, code: int) -> int:
    name = click.style("quillcast:", fg="red")
    click.echo(f"{name} {' '.join(text.split())}", err=True, color=coloured(2))
    return code


def _help_of(error: click.ClickException) -> str:
    """Point to the help of the command that was used, or of its group if it is the group's hidden default."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context and context.parent and context.command.hidden:
        context = context.parent
    return f" ({context.command_path} --help)" if context else ""
