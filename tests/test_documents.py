"""What the documents show works, and what they name exists."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from quillcast.cli.app import commands
from quillcast.cli.evaluate import DEFAULT

ROOT = Path(__file__).parent.parent
PAPERS = (ROOT / "docs" / "papers.md").read_text()


PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.live
@pytest.mark.parametrize("program", PROGRAMS, ids=["async", "blocking"])
def test_the_few_lines_of_python_say_hello(program: str, tmp_path: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "PATH": ""}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert (ran.stdout, ran.stderr) == ("hello\n", "")


CONSOLES = [
    console
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for console in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
]
SHOWN = dict.fromkeys(
    line for console in CONSOLES for line in re.findall(r"^\w*\$ +quillcast (.+)$", console, re.MULTILINE)
)


def parsed(line: str) -> list[str]:
    """The words of a command line that its command leaves over. Raises `click.UsageError` for options that it lacks."""
    command: click.Command | None = commands
    words = shlex.split(line, comments=True)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        context = click.Context(command)
        if (inner := command.get_command(context, words[0])) is not None:
            command, words = inner, words[1:]
        else:  # the name of an experiment
            command = command.get_command(context, DEFAULT)
    assert command is not None, line
    _, left, _ = command.make_parser(click.Context(command)).parse_args(words)
    return left


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_that_is_shown_has_these_options_and_arguments(line: str) -> None:
    assert parsed(line) == []


def test_a_command_without_such_an_option_or_argument_is_noticed() -> None:
    assert len(SHOWN) > 20
    with pytest.raises(click.NoSuchOption):
        parsed("tree news --scope site@127.0.0.1:4000")
    assert parsed("tree news today") == ["today"]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:tests|benchmarks|examples|scenarios)/[^`]+)`", PAPERS))))
def test_the_tests_that_the_papers_page_names_exist(name: str) -> None:
    path, _, function = name.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:core|live|protocol)\.[\w.]+)`", PAPERS))))
def test_the_modules_that_the_papers_page_names_exist(name: str) -> None:
    path = ROOT / "src" / "quillcast" / Path(*name.split("."))
    assert path.is_dir() or path.with_suffix(".py").exists()
