"""What the documents show works, and what they name exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAPERS = (ROOT / "docs" / "papers.md").read_text()


PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.live
@pytest.mark.parametrize("program", PROGRAMS, ids=["async", "blocking"])
def test_the_few_lines_of_python_say_hello(program: str, tmp_path: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "PATH": ""}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert (ran.stdout, ran.stderr) == ("hello\n", "")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:tests|benchmarks|examples|scenarios)/[^`]+)`", PAPERS))))
def test_the_tests_that_the_papers_page_names_exist(name: str) -> None:
    path, _, function = name.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:core|live|protocol)\.[\w.]+)`", PAPERS))))
def test_the_modules_that_the_papers_page_names_exist(name: str) -> None:
    path = ROOT / "src" / "quillcast" / Path(*name.split("."))
    assert path.is_dir() or path.with_suffix(".py").exists()
