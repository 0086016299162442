"""What `python -m tests.mutants` makes of trials: who is tried where, the table, the exit code."""

import json

import pytest

from tests.mutants import __main__ as command
from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.trial import Caught

SEEN, LATE, NEVER = MUTANTS[:3]
looked: list[tuple[str, ...]] = []  # the tests that were run


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three mutants: a unit test sees one, a history another, nothing the third. Returns where each was tried."""
    tried: list[str] = []
    looked.clear()

    def units(mutant: object, tests: list[tuple[str, ...]]) -> Caught:
        tried.append("units")
        looked.extend(tests)
        return Caught("core/test_x.py::test_y" if mutant == SEEN else "", 1.0)

    def histories(mutant: object, but: list[str]) -> Caught:
        tried.append("histories")
        assert but == ["hard, seed 2"]
        return Caught("hard, seed 7" if mutant == LATE else "", 2.0)

    monkeypatch.setattr(command, "MUTANTS", (SEEN, LATE, NEVER))
    monkeypatch.setattr(command, "units", units)
    monkeypatch.setattr(command, "histories", histories)
    monkeypatch.setattr(command, "broken_in_the_original", lambda: ["hard, seed 2"])
    return tried


def test_what_units_do_not_see_goes_through_histories_and_a_survivor_is_named(
    tried: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--json"]) == 1
    assert tried == ["units"] * 4 + ["histories"] * 2
    out = capsys.readouterr().out
    assert f"EMPTY: {NEVER.promise}" in out
    assert "2 of 3 caught" in out
    result = json.loads(out.splitlines()[-1])
    assert [(m["caught_by"], m["seconds"]) for m in result["mutants"]] == [
        ("core/test_x.py::test_y", 1.0), ("hard, seed 7", 3.0), ("", 3.0)
    ]  # fmt: skip
    assert result["survivors"] == [NEVER.name]


def test_one_alone_and_by_histories_alone(tried: list[str]) -> None:
    assert command.main(["--only", LATE.name, "--histories"]) == 0
    assert tried == ["histories"]


@pytest.mark.parametrize(("mutant", "code"), [(SEEN, 0), (NEVER, 1)])
def test_one_alone_is_tried_with_the_test_that_should_notice_it_and_no_other(
    tried: list[str], mutant: Mutant, code: int
) -> None:
    assert command.main(["--only", mutant.name]) == code
    assert tried == ["units"] * 2  # without the mutant, and with it
    assert looked == [(f"tests/{mutant.seen_by}",)] * 2


def test_an_unknown_name_is_rejected(tried: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "nobody"]) == 2
    assert SEEN.name in capsys.readouterr().out
    assert tried == []


def test_no_mutant_is_tried_if_the_original_fails(
    tried: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "units", lambda *_: Caught("core/test_x.py::test_z", 1.0))
    assert command.main([]) == 2
    assert "test_z fails without any mutant" in capsys.readouterr().out
