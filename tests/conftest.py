"""Settings shared by every test."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Examples take as long as they take, and so does drawing them: speed is measured in benchmarks/, never asserted here.
settings.register_profile("quillcast", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quillcast")


SMALL_TABLES = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark interprets its plans: for a few thousand rows, compiling them takes a third of a test's time."""
ON_SPARK = ("oracle", "plugins", "run", "stages")
TOGETHER = {
    "tests/demo/": "audits",
    "tests/pipeline/test_audit.py": "audits",
    **{f"tests/evaluation/test_{name}.py": "evaluations" for name in ON_SPARK},
    "tests/evaluation/": "kernels",  # the other files: the first place that fits counts
}
"""Folders and files whose tests one worker runs, by group: it starts Java, or compiles each kernel, once.

At most one demo or audit runs at a time, beside one evaluation: three at once on two cores take minutes each.
"""
AT_LAST = "tests/evaluation/test_oracle.py"
"""It runs all policies in one test. In a fresh checkout others compile their kernels before, some in each test."""
APART = ("tests/scenarios/", "tests/sim/", "tests/properties/")
"""Folders of simulations: each goes to whichever worker is free, with all tests of the same parameters."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests are slow too, so that `-m "not slow"` leaves them out. Sorts them by `_turn`."""
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker("slow")
    waiting = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("live")}
    items.sort(key=partial(_turn, waiting))


def _turn(waiting: set[Path], item: pytest.Item) -> int:
    """What takes long and waits at times comes first. Simulations, which only compute, fill the end evenly."""
    if item.nodeid.startswith((*TOGETHER,)):
        return 1 if item.nodeid.startswith(AT_LAST) else 0
    if item.nodeid.startswith(APART):
        return 4 if item.get_closest_marker("long") else 5
    return 2 if item.path in waiting else 3


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """`--dist loadfile`, with each group of `TOGETHER` like one file, and in the order of collection."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(APART):
                return nodeid.partition("[")[2] or nodeid
            groups = (group for place, group in TOGETHER.items() if nodeid.startswith(place))
            return next(groups, super()._split_scope(nodeid))

    config.option.loadscopereorder = False
    return Files(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """In a fresh checkout, rewrite the assertions of all tests once, which takes longer than to collect them.

    Otherwise every worker would do so, at the same time.
    """
    here = Path(__file__).parent
    is_fresh = next(here.rglob(f"__pycache__/test_*-pytest-{pytest.__version__}.pyc"), None) is None
    if config.args_source is not config.ArgsSource.TESTPATHS or not is_fresh:
        return
    files = sorted(here.rglob("test_*.py"))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    halves = [
        subprocess.Popen([*command, *part], cwd=config.rootpath, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for part in (files[::2], files[1::2])
    ]
    for half in halves:
        half.wait()  # what cannot be collected, the workers will tell


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where there are tests of Spark to run, let Java machines share classes. One worker has the archive written.

    All that exists now stays. Without it a collection of garbage is quick; with it, it takes a fifth of a second, and
    tests of shared memory have two each.
    """
    gc.collect()
    gc.freeze()
    if not session.config.option.collectonly and any(item.get_closest_marker("spark") for item in session.items):
        from tests.java import share_classes

        writing = share_classes(write=os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0")
        if writing is not None:
            session.config.add_cleanup(partial(_end, writing))


def _end(writing: subprocess.Popen[bytes]) -> None:
    if writing.poll() is None:
        os.killpg(writing.pid, signal.SIGKILL)
    writing.wait()


# Processes that tests start hear Ctrl-C and the end of a terminal. What a shell runs in the background or by `nohup`
# does not, nor would its children: they inherit that a signal is ignored, but no handler.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One Spark session for all tests: starting one takes seconds."""
    from quillcast.pipeline.session import spark_session

    session = spark_session("local[2]", config=SMALL_TABLES)
    yield session
    session.stop()
