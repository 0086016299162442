"""Stages of puppets for live tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.stage import Stage, Wires, wires


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "runtime")
    yield made
    made.clear()


@pytest.fixture
def network() -> Iterator[Wires]:
    with wires() as made:
        yield made
