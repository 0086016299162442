"""Settings shared by every test."""

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import settings

# Examples take as long as they take: speed is measured in benchmarks/, never asserted here.
settings.register_profile("quillcast", deadline=None, print_blob=True)
settings.load_profile("quillcast")


SMALL_TABLES = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark interprets its plans: for a few thousand rows, compiling them takes a third of a test's time."""
TOGETHER = {"tests/demo/": "audits", "tests/pipeline/": "audits", "tests/evaluation/": "evaluation"}
"""Folders whose tests one worker runs, by group: it starts Java once, and compiles each kernel once.

At most one demo or audit runs at a time, beside one evaluation: three at once on two cores take minutes each.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests are slow too, so that `-m "not slow"` leaves them out. What takes long comes first."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("live")}
    items.sort(key=lambda item: (not item.nodeid.startswith((*TOGETHER,)), item.path not in slow))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """`--dist loadfile`, with each group of `TOGETHER` like one file, and in the order of collection."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            groups = (group for folder, group in TOGETHER.items() if nodeid.startswith(folder))
            return next(groups, super()._split_scope(nodeid))

    config.option.loadscopereorder = False
    return Files(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where there are tests of Spark, let Java machines share classes. One worker has the archive written."""
    if any(item.get_closest_marker("spark") for item in session.items):
        from tests.java import share_classes

        writing = share_classes(write=os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0")
        if writing is not None:
            session.config.add_cleanup(partial(_end, writing))


def _end(writing: subprocess.Popen[bytes]) -> None:
    if writing.poll() is None:
        os.killpg(writing.pid, signal.SIGKILL)
    writing.wait()


# Processes that tests start hear Ctrl-C; what a shell runs in the background does not, nor do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One Spark session for all tests: starting one takes seconds."""
    from quillcast.pipeline.session import spark_session

    session = spark_session("local[2]", config=SMALL_TABLES)
    yield session
    session.stop()
