"""What people meet first: the five commands that matter, help, completion, and colour only on terminals."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from quillcast.cli.app import COMMANDS, FIRST, commands
from tests.cli.commands import Commands, read_terminal

ESCAPE = "\x1b["
README = Path(__file__).parents[2] / "README.md"


def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path}{name} ")
        else:
            yield path + name, command


def groups(group: click.Group, path: str = "") -> Iterator[str]:
    """The commands that have commands of their own."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield path + name
            yield from groups(command, f"{path}{name} ")


def on_a_terminal(quillcast: Commands, *arguments: str) -> str:
    """What a command shows if output and errors are a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "quillcast", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**quillcast.environment, "TERM": "xterm-256color"},
    ):  # fmt: skip
        os.close(theirs)
        shown = b""
        while part := read_terminal(ours):
            shown += part
    os.close(ours)
    return shown.decode()


def test_alone_it_shows_the_five_commands_that_matter_and_how_to_see_all(quillcast: Commands) -> None:
    code, out, err = quillcast.run()
    assert (code, err) == (0, "")
    shown = re.findall(r"^  quillcast (\w+)", out, re.MULTILINE)
    assert shown == [line.split()[0] for line in FIRST]
    assert len(shown) == 5
    assert set(shown) < set(COMMANDS)
    section = README.read_text().partition("## Five commands")[2].partition("\n## ")[0]
    assert shown == re.findall(r"^\$ quillcast (\w+)", section, re.MULTILINE)
    assert "quillcast --help" in out


def test_help_lists_every_command(quillcast: Commands) -> None:
    _, out, _ = quillcast.run("--help")
    assert set(COMMANDS) <= set(re.findall(r"^  ([\w-]+)", out, re.MULTILINE))


@pytest.mark.parametrize("name", ["", *FIRST, *groups(commands), *(name for name, _ in leaves(commands))])
def test_help_shows_no_sign_of_how_it_is_written(name: str) -> None:
    words = [word for word in name.split() if word.islower()]
    shown = CliRunner().invoke(commands, [*words, "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith("Usage: ")
    assert not re.search(r"\\[a-z]|[\x00-\x09\x0b-\x1f]", shown.output)


@pytest.mark.parametrize("name", [name for name in groups(commands) if name not in ("demo", "evaluate")])
def test_a_group_alone_shows_its_commands(name: str) -> None:
    alone, asked = (CliRunner().invoke(commands, [*name.split(), *options]) for options in ([], ["--help"]))
    assert alone.exit_code == (3 if name == "check" else 0)  # monitoring takes 0 for OK
    assert alone.output == asked.output


@pytest.mark.parametrize("name", [name for name, _ in leaves(commands) if name != "completion"])
def test_every_command_speaks_json(name: str) -> None:
    command = dict(leaves(commands))[name]
    assert "--json" in {option for parameter in command.params for option in parameter.opts}


def test_colour_is_for_terminals_only(quillcast: Commands) -> None:
    quillcast.environment.pop("NO_COLOR", None)
    assert ESCAPE in on_a_terminal(quillcast)
    assert ESCAPE in on_a_terminal(quillcast, "frobnicate")
    assert ESCAPE not in quillcast.run()[1]
    assert ESCAPE not in quillcast.run("frobnicate")[2]
    quillcast.environment["NO_COLOR"] = "1"
    assert ESCAPE not in on_a_terminal(quillcast)
    assert ESCAPE not in on_a_terminal(quillcast, "frobnicate")


COLLECTIONS = """
import atexit, gc, sys
from quillcast.cli import main
full = gc.get_stats()[2]["collections"]
atexit.register(lambda: print(gc.get_stats()[2]["collections"] - full, len(gc.get_objects()) < 1000, gc.isenabled()))
main()
"""


def test_no_garbage_is_looked_for_among_the_modules_of_a_command(quillcast: Commands) -> None:
    """That would take a third of the time of a command that asks a peer."""
    ran = subprocess.run(
        [sys.executable, "-c", COLLECTIONS, "topic", "list"], env=quillcast.environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (4, "0 True True\n"), ran.stderr


def completed(quillcast: Commands, words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    asked = {"_QUILLCAST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    ran = subprocess.run(
        [sys.executable, "-m", "quillcast"],
        env={**quillcast.environment, **asked}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stderr == ""
    return [line.partition(",")[2] for line in ran.stdout.splitlines() if line]


def test_bash_defines_the_completion_that_is_printed(quillcast: Commands) -> None:
    code, script, err = quillcast.run("completion", "bash")
    assert (code, err) == (0, "")
    ran = subprocess.run(["bash", "-c", script + "\ncomplete -p quillcast"], capture_output=True, text=True, check=True)
    assert "quillcast" in ran.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_completion_of_their_own(quillcast: Commands, shell: str) -> None:
    code, script, _ = quillcast.run("completion", shell)
    assert code == 0
    assert f"_QUILLCAST_COMPLETE={shell}_complete" in script


def test_commands_and_options_are_completed(quillcast: Commands) -> None:
    assert completed(quillcast, "quillcast st") == ["status"]
    assert "--wait" in completed(quillcast, "quillcast pub --w")
    assert completed(quillcast, "quillcast pub ") == []  # nobody runs, and that is no error


@pytest.mark.live
def test_topics_peers_and_networks_of_this_machine_are_completed(quillcast: Commands) -> None:
    quillcast.subscribed("sport/tennis")
    peers = [peer["node_id"][:8] for peer in quillcast.json("tree", "sport/tennis")["peers"]]
    assert completed(quillcast, "quillcast pub sp") == ["sport/tennis"]
    assert completed(quillcast, "quillcast status --peer ") == peers
    assert completed(quillcast, "quillcast sub --network ") == ["test"]
