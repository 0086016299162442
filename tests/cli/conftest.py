"""What the tests of the command line share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Commands, commands


@pytest.fixture
def quillcast(tmp_path: Path) -> Iterator[Commands]:
    with commands(tmp_path) as made:
        yield made
