"""docs/reference.md says what the docstrings say, and leaves nothing out that `quillcast` exports."""

import re
import subprocess
import sys
from pathlib import Path

import quillcast

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference.md").read_text()


def test_the_reference_is_what_the_docstrings_say() -> None:
    command = [sys.executable, ROOT / "scripts" / "reference.py", "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_it_tells_of_everything_that_is_exported() -> None:
    told = {*re.findall(r"^### (\w+)$", PAGE, re.MULTILINE), *re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)}
    assert set(quillcast.__all__) - told == {"__version__", "blocking"}
