"""What the tests of the command line share."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.commands import Commands, Forks, commands


@pytest.fixture
def quillcast(tmp_path: Path) -> Iterator[Commands]:
    with commands(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.process.communicate()


@pytest.fixture
def short(forks: Forks, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Runs a command that ends at once: exit code, output, errors."""
    return partial(forks.run, tmp_path)
