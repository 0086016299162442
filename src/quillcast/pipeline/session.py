"""The Spark session."""

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from quillcast.pipeline import extras
from quillcast.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_JOB_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a session in half the CPU time; long jobs want neither
QUIET_OPTIONS = "--enable-native-access=ALL-UNNAMED"  # a new Java else warns about Spark's own libraries


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
    folders = {"spark.sql.warehouse.dir": _folder("warehouse"), "spark.local.dir": _folder("spark")}
    for name, value in (settings | folders | (config or {})).items():
        builder = builder.config(name, value)
    _leave_quietly()
    try:
        return builder.getOrCreate()
    except BaseException:
        _end_half_started()
        raise


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
        try:
            context.setLogLevel("OFF")
        except (Py4JError, OSError):  # it does not always answer whoever was interrupted in the midst of a call
            if (gateway := context._gateway) is not None:
                gateway.proc.kill()


def _end_half_started() -> None:
    """A Java machine whose start was interrupted would find nobody to talk to, and never end."""
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended meanwhile
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == os.getpid() and b"spark" in (stat.parent / "cmdline").read_bytes():
                    os.kill(int(stat.parent.name), signal.SIGTERM)


@cache
def _folder(use: str) -> str:
    """A folder for what Spark keeps while it runs, removed with this process however the Java machine ends."""
    folder = tempfile.mkdtemp(prefix=f"quillcast-{use}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
