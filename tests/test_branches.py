"""A branch begins where this process is, and leaves it as it was."""

import pytest

from tests.branches import branch

STATE = ["begun"]


def go_on(what: str) -> list[str]:
    if what == "fails":
        raise ValueError(what)
    STATE.append(what)
    return STATE


def test_each_goes_on_from_the_same_state() -> None:
    assert branch(go_on, "left") == ["begun", "left"]
    assert branch(go_on, "right") == ["begun", "right"]
    assert STATE == ["begun"]


def test_an_error_in_one_is_raised_here() -> None:
    with pytest.raises(ValueError, match="fails"):
        branch(go_on, "fails")
