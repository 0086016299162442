"""Java machines that tests start share the classes that one of them loaded, which halves the processor time of a start.

The first test of Spark has a machine write the archive meanwhile (class data sharing, JEP 350); who starts before it is
there does without.
"""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from quillcast.pipeline.java import NoJava, java_home

FOLDER = Path(__file__).parents[1] / "build" / "java"
WRITE = """
import os, sys
from pyspark import SparkContext
from quillcast.pipeline.session import spark_session

part, archive = sys.argv[1:]
os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={part} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = spark_session("local[1]")
spark.range(9).selectExpr("id % 2 as odd").groupBy("odd").count().collect()
java = SparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
os.replace(part, archive)
"""


def share_classes(*, write: bool) -> subprocess.Popen[bytes] | None:
    """Have Java machines that are started from now on use the archive; if it is to be written, the process that does.

    A machine that cannot use the archive does without it, and says nothing.
    """
    try:
        java = java_home(FOLDER) / "bin" / "java"
    except NoJava:
        return None
    version = java.parent.parent.name
    archive = FOLDER / f"{version}-spark-{metadata.version('pyspark')}.jsa"
    script = FOLDER / f"sharing-{version}" / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    written = script.with_suffix(f".{os.getpid()}")
    written.write_text(f'#!/bin/sh\nexec "{java}" -XX:SharedArchiveFile="{archive}" "-Xlog:cds*=off" "$@"\n')
    written.chmod(0o755)
    written.replace(script)
    environment = os.environ | {"JAVA_HOME": str(java.parent.parent)}
    os.environ["JAVA_HOME"] = str(script.parent.parent)
    if not write or archive.exists():
        return None
    part = archive.with_suffix(f".{os.getpid()}")
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, part, archive], env=environment, cwd=FOLDER,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
