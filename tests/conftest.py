"""Settings shared by every test."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

COMPILE = Path(__file__).parent.parent / "scripts" / "compile"

# Examples take as long as they take: speed is measured in benchmarks/, never asserted here.
settings.register_profile("quillcast", deadline=None, print_blob=True)
settings.load_profile("quillcast")

# Processes that tests start hear Ctrl-C; what a shell runs in the background does not, nor do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Python prefers compiled modules, also to newer sources: tests of those would say nothing about these."""
    if hasattr(config, "workerinput") or not COMPILE.exists():  # workers are started by one that has looked
        return
    checked = subprocess.run([sys.executable, COMPILE, "--check"], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise pytest.UsageError(checked.stderr.strip())
