"""`scripts/compile`, on a small package: all of its modules are compiled from the present sources, or none is."""

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "compile"
FILES = {
    "pyproject.toml": '[tool.quillcast]\ncompiled = ["tiny/core/one.py", "tiny/core/two.py"]\n',
    "src/tiny/__init__.py": "",
    "src/tiny/core/__init__.py": "",
    "src/tiny/core/sizes.py": "from typing import Final\n\nSIZE: Final = 16\n",
    "src/tiny/core/one.py": "from tiny.core.sizes import SIZE\n\n\ndef size() -> int:\n    return SIZE\n",
    "src/tiny/core/two.py": "from tiny.core.one import size\n\n\ndef twice() -> int:\n    return 2 * size()\n",
    "src/tiny/cli/main.py": "",
}
NO_COMPILER = {"PATH": "", "CC": ""}
HELD_COMPILER = """#!/bin/sh
case "$*" in *-fsyntax-only*) exit ;; esac
echo > "$HERE/begun"
cat "$HERE/go"
"""
CAN_COMPILE = subprocess.run([sys.executable, SCRIPT, "--able"], capture_output=True, check=False).returncode == 0
needs_compiler = pytest.mark.skipif(not CAN_COMPILE, reason="there is no C compiler")


class Checkout:
    """A folder with a package of its own to compile."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in FILES.items():
            self.write(name, text)
        (root / "scripts").mkdir()
        shutil.copy(SCRIPT, root / "scripts")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def start(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "scripts/compile", *options],
            cwd=self.root,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, **environment: str) -> str:
        """What it complained about; nothing when it succeeded."""
        process = self.start(*options, **environment)
        complaint = process.communicate()[1]
        assert bool(process.returncode) == bool(complaint)
        return complaint

    def compiled(self) -> list[str]:
        return sorted(path.name.partition(".")[0] for path in (self.root / "src" / "tiny").rglob("*.so"))

    def twice(self) -> str:
        show = "import tiny.core.two as two; print(two.twice())"
        return subprocess.check_output([sys.executable, "-c", show], cwd=self.root / "src", text=True).strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_listed_modules_exist_once() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["quillcast"]["compiled"]
    assert [name for name in listed if not (ROOT / "src" / name).is_file()] == []
    assert len(set(listed)) == len(listed)


@needs_compiler
def test_modules_are_compiled_taken_away_and_put_back(checkout: Checkout) -> None:
    assert checkout.run() == ""
    assert checkout.compiled() == ["one", "two"]
    assert checkout.run("--check") == ""
    assert checkout.twice() == "32"

    assert checkout.run("--remove") == ""
    assert list((checkout.root / "src").rglob("*.so")) == []
    assert checkout.run("--check") == ""
    assert checkout.twice() == "32"

    assert checkout.run(**NO_COMPILER) == ""  # nothing is compiled a second time
    assert checkout.compiled() == ["one", "two"]

    checkout.write("src/tiny/cli/main.py", "print()\n")  # no neighbour of a listed one
    assert checkout.run("--check") == ""
    checkout.write("src/tiny/core/sizes.py", "from typing import Final\n\nSIZE: Final = 17\n")  # is built into `one`
    assert checkout.twice() == "32"
    assert "of other sources" in checkout.run("--check")
    checkout.write("src/tiny/core/sizes.py", FILES["src/tiny/core/sizes.py"])
    assert checkout.run("--check") == ""

    next((checkout.root / "src" / "tiny").rglob("two.*.so")).unlink()
    assert "of other sources" in checkout.run("--check")


@needs_compiler
def test_an_error_in_a_source_is_told_in_one_line_and_leaves_nothing_compiled(checkout: Checkout) -> None:
    checkout.write("src/tiny/core/two.old.so", "")
    checkout.write("src/tiny/core/two.py", "def twice() -> int:\n    return 'four'\n")
    complaint = checkout.run()
    assert complaint.count("\n") == 1
    assert "two.py:2: error: " in complaint
    assert str(checkout.root / "build" / "compiled" / "log") in complaint
    assert checkout.compiled() == []


def test_without_a_compiler_that_is_said_and_nothing_stays_compiled(checkout: Checkout) -> None:
    checkout.write("src/tiny/core/two.old.so", "")
    assert checkout.run(**NO_COMPILER) == "compile: there is no C compiler\n"
    assert checkout.run("--able", **NO_COMPILER) == "compile: there is no C compiler\n"
    assert checkout.compiled() == []


def test_a_list_that_cannot_be_followed_is_told_in_one_line(checkout: Checkout) -> None:
    checkout.write("pyproject.toml", '[tool.quillcast]\ncompiled = ["tiny/core/three.py"]\n')
    assert checkout.run() == "compile: pyproject.toml lists tiny/core/three.py, which is not in src/\n"


@needs_compiler
def test_one_that_is_stopped_leaves_nothing_compiled_and_a_later_one_begins_anew(checkout: Checkout) -> None:
    checkout.write("cc", HELD_COMPILER)
    (checkout.root / "cc").chmod(0o755)
    for name in ("begun", "go"):
        os.mkfifo(checkout.root / name)
    process = checkout.start(CC=str(checkout.root / "cc"), HERE=str(checkout.root))
    (checkout.root / "begun").read_text()
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    process.stderr.close()
    (checkout.root / "go").write_text("")
    assert list((checkout.root / "src").rglob("*.so")) == []
    assert checkout.run() == ""
    assert checkout.twice() == "32"


def test_pytest_does_not_begin_with_what_is_outdated(checkout: Checkout) -> None:
    checkout.write("src/tiny/core/two.old.so", "")
    checkout.write("tests/test_two.py", "def test_two():\n    pass\n")
    shutil.copy(ROOT / "tests" / "conftest.py", checkout.root / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "tests"]
    outdated = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=False)
    assert outdated.returncode == pytest.ExitCode.USAGE_ERROR
    assert "of other sources" in outdated.stderr
    checkout.run("--remove")
    subprocess.run(command, cwd=checkout.root, capture_output=True, check=True)
