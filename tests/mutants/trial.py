"""One mutant on trial: the source with one break in it, and what notices that."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.mutants.catalogue import Mutant

ROOT = Path(__file__).parents[2]
UNITS = ("tests/core", "tests/protocol")
HARD, WIDE = 80, 20  # drawn histories; 100 in all
EXPERIMENTS = sorted(path.stem for path in (ROOT / "scenarios").glob("*.toml"))
SIMULATIONS = (
    ("hard", ("--hard", "--seeds", str(HARD))),
    *((name, ("--scenario", f"scenarios/{name}.toml", "--seeds", "2", "--first", "1")) for name in EXPERIMENTS),
    ("wide", ("--seeds", str(WIDE))),
)
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (?:tests/)?(.+?)(?: - .*)?$", re.MULTILINE)
_BROKEN_SEED = re.compile(r"^seed (\d+): ")


class Caught(NamedTuple):
    """The test that noticed a mutant first (empty: none did), and after how long."""

    by: str
    seconds: float


def source_of(mutant: Mutant, root: Path = ROOT) -> tuple[Path, str]:
    """The mutant's file and what stands in it with the break. Raises `ValueError` unless it fits exactly once."""
    path = root / "src" / "quillcast" / mutant.file
    text = path.read_text()
    if (count := text.count(mutant.before)) != 1:
        raise ValueError(
            f"{mutant.name}: its lines stand {count} times in {mutant.file}; bring the catalogue up to date"
        )
    return path, text.replace(mutant.before, mutant.after)


@contextmanager
def workplace(mutant: Mutant | None) -> Iterator[Path]:
    """A copy of the tree with the mutant in it; None: the original."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        for name in ("src", "tests", "scenarios", "docs", "examples"):
            shutil.copytree(ROOT / name, root / name)
        shutil.copy2(ROOT / "pyproject.toml", root)
        if mutant is not None:
            path, text = source_of(mutant, root)
            path.write_text(text)
        yield root


def asked(mutant: Mutant) -> list[tuple[str, ...]]:
    """The tests that should notice; the whole of `UNITS` where none is named."""
    return [(f"tests/{mutant.seen_by}",)] if mutant.seen_by else [UNITS]


def units(mutant: Mutant | None, tests: Iterable[tuple[str, ...]]) -> Caught:
    """Does one of these tests notice? Each lot is asked only if none before did."""
    began = time.perf_counter()
    with workplace(mutant) as root:
        failed = next((name for some in tests if (name := _failed_test(root, some))), "")
    return Caught(failed, time.perf_counter() - began)


def _failed_test(root: Path, some: tuple[str, ...]) -> str:
    """The first of these tests that fails; empty: none does."""
    options = ("-x", "-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0")
    command = [sys.executable, "-m", "pytest", *options, *some]
    ran = subprocess.run(command, cwd=root, env=_environment(root), capture_output=True, text=True, check=False)
    found = _FAILED_TEST.search(ran.stdout)
    if ran.returncode and found is None:
        raise RuntimeError(f"the tests did not run:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return found[1] if found else ""


def histories(mutant: Mutant, but: Collection[str]) -> Caught:
    """Does a history notice, `but` for some?"""
    began = time.perf_counter()
    with workplace(mutant) as root:
        seed = next((seed for seed in _broken_seeds(root) if seed not in but), "")
    return Caught(seed, time.perf_counter() - began)


def broken_in_the_original() -> list[str]:
    """The histories that break as it is: they say nothing of any mutant."""
    with workplace(None) as root:
        return list(_broken_seeds(root))


def _broken_seeds(root: Path) -> Iterator[str]:
    """Each history that breaks, as soon as it does."""
    for name, arguments in SIMULATIONS:
        command = [sys.executable, "-u", "-m", "quillcast.sim", *arguments, "--jobs", "1"]
        with subprocess.Popen(command, cwd=root, env=_environment(root), stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            try:
                for line in run.stdout:
                    if found := _BROKEN_SEED.match(line):
                        yield f"{name}, seed {found[1]}"
            finally:
                run.kill()  # one is enough for whoever looks no further
        if run.returncode not in (0, 1, -9):
            raise RuntimeError(f"{' '.join(command)} ended with {run.returncode}")


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": "0"}
