"""The Spark session."""

import atexit
import logging
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from quillcast.core.errors import LocalError
from quillcast.pipeline import extras
from quillcast.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP_SHORT, HEAP_LONG = "2g", "4g"  # the most that Java keeps for itself
SHORT_JOB_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the CPU time at the start; bad for long jobs
LOCALHOST = "127.0.0.1"
ANSWER_S = 5.0  # for each address of a master
_QUESTION = struct.pack(">qbi1s", 14, 6, 1, b"/")
"""Spark's request for a stream: its length, its kind, and the name. A master answers that no such stream exists."""

CONNECT_PORT = 15002  # of Spark Connect, if its URL has none
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""A client's first words in HTTP/2, and a frame of settings, empty. A server begins with such a frame too."""

QUIET_OPTIONS = "--enable-native-access=ALL-UNNAMED"  # otherwise new versions of Java warn about Spark


def spark_session(
    master: str = "local[*]", *, short: bool = True, config: dict[str, str] | None = None
) -> "SparkSession":
    """The process's Spark session, created on the first call.

    `short` is for commands that take seconds, and for tests; in long jobs the last stage of Java's compiler is worth
    its cost. `config` overrides the settings made here. Raises `NotInstalled` or `NoJava`, which say what to install,
    or `NoMaster`.
    """
    extras.require("Spark", "pyspark")
    from pyspark.sql import SparkSession

    address = own_address(master)
    if SparkSession.getActiveSession() is None:
        _prepare_environment(short, address)
    settings = {
        "spark.app.name": "quillcast",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.driver.memory": HEAP_SHORT if short else HEAP_LONG,
    }
    if short:
        settings |= {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.adaptive.enabled": "false",  # one job per shuffle; only worth it for large tables
        }
    builder = SparkSession.builder.master(master)
    folders = {"spark.sql.warehouse.dir": temporary_folder("warehouse"), "spark.local.dir": temporary_folder("spark")}
    for name, value in (settings | folders | (config or {})).items():
        builder = builder.config(name, value)
    _leave_quietly()
    try:
        return _started(builder, master)
    except BaseException:
        _end_half_started()
        raise


class NoMaster(LocalError):
    """There is no Spark master at the given address."""


def own_address(master: str) -> str | None:
    """This computer's address as seen from a master; None if Spark has to find it.

    Raises `NoMaster` if there can be no such master, or that of a standalone cluster, or all of several, cannot be
    reached.
    """
    if re.fullmatch(r"local(-cluster\[.+\]|\[(\d+|\*)(,\s*\d+)?\])?", master):
        return LOCALHOST
    if re.match(r"yarn$|k8s://", master):
        return None
    found = re.findall(r"([^\s,/]+):(\d+)(?:,|$)", master.removeprefix("spark://"))
    if not found or not master.startswith("spark://"):
        raise NoMaster(f"{master!r} is not a Spark master; use local[2], spark://HOST:PORT, yarn or k8s://HOST:PORT")
    for host, port in found:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), ANSWER_S) as connection:
                connection.sendall(_QUESTION)
                if connection.recv(1) in {b"\0", b""}:  # a frame of less than 2^56 bytes, or secured
                    return str(connection.getsockname()[0])
                why = "it answers, but not as a Spark master"
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
    raise NoMaster(f"no Spark master answers at {master}: {why}; start it, or check --master")


def check_remote(url: str) -> None:
    """Raise `NoMaster` unless a Spark Connect server answers at a URL, such as sc://host:15002/;use_ssl=true.

    Its own client would try for ten minutes.
    """
    if url.startswith("local"):
        return  # PySpark starts one
    match = re.fullmatch(r"sc://(\[[^\]]+\]|[^:/;\[\]]+)(?::(\d+))?/?(;.*)?", url)
    if match is None:
        raise NoMaster(f"{url!r} is not an address of Spark Connect; use sc://HOST:PORT")
    host, port = match[1].strip("[]"), int(match[2] or CONNECT_PORT)
    secure = re.search(r";(use_ssl=true|token=)", match[3] or "", re.IGNORECASE)
    try:
        plain = socket.create_connection((host, port), ANSWER_S)
        with _secured(plain, host) if secure else plain as link:
            link.sendall(_GREETING)
            if link.recv(9)[3:4] == b"\4":
                return
            why = "it answers, but not as a Spark Connect server"
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
    raise NoMaster(f"no Spark Connect server answers at sc://{match[1]}:{port}: {why}; start it, or check --remote")


def _secured(plain: socket.socket, host: str) -> ssl.SSLSocket:
    """Wrap the plain connection in TLS. Spark's client will check the server's identity."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname=host)


def _started(builder: "SparkSession.Builder", master: str) -> "SparkSession":
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return builder.getOrCreate()
    except (Py4JJavaError, PySparkException) as error:
        java = getattr(error, "java_exception", None)
        why = str(java.getMessage() if java is not None else error).partition("\n")[0]
        raise NoMaster(f"Spark cannot start at {master}: {why}; check --master") from error


def _prepare_environment(short: bool, address: str | None) -> None:
    """Set environment variables that Spark reads when its Java machine starts. The user's own settings are kept."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if address is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", address)
    quiet = Path(str(resources.files("quillcast.pipeline"))) / "log4j2.properties"
    log4j = f"-Dlog4j2.configurationFile={quiet.as_uri()}"  # a URI, because blanks in a path would split the option
    options = [QUIET_OPTIONS, log4j, *([SHORT_JOB_OPTIONS] if short else [])]
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(options))


@cache
def _leave_quietly() -> None:
    """When this process is interrupted while Spark works, keep Py4J and Java from printing errors."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # errors are also raised
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # it also logs under the root logger
    atexit.register(_silence)


def _silence() -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # there is no public way to ask
    if context is not None:
        try:
            context.setLogLevel("OFF")
        except (Py4JError, OSError):  # it does not always answer if a call was interrupted
            if (gateway := context._gateway) is not None:
                gateway.proc.kill()


def _end_half_started() -> None:
    """End a Java machine whose start was interrupted. It would wait for a connection and never end."""
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                if parent == os.getpid() and b"spark" in (stat.parent / "cmdline").read_bytes():
                    os.kill(int(stat.parent.name), signal.SIGTERM)


@cache
def temporary_folder(use: str) -> str:
    """A folder for files of Spark, or that it sends: one for each use, removed with this process."""
    folder = tempfile.mkdtemp(prefix=f"quillcast-{use}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
