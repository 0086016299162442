"""Stages of puppets for live tests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from quillcast.live.transport import local_ipc
from tests.live import toys
from tests.live.stage import Stage, Wires, wires

MODEST_BYTES = 64 << 10  # of a socket's memory: every kernel grants that


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "runtime")
    yield made
    made.clear()


@pytest.fixture
def network() -> Iterator[Wires]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("makes network namespaces, which takes root and iproute2")
    with wires() as made:
        yield made


@pytest.fixture(autouse=True)
def no_membership(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever networks the user of this machine belongs to, the tests' nodes do not."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(params=[True, False], ids=["local IPC", "TCP"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Toys are linked as peers of one machine are, and as those of two are."""
    monkeypatch.setattr(toys, "LOCAL_IPC", request.param)
    monkeypatch.setattr(local_ipc, "BUFFER_BYTES", MODEST_BYTES)
