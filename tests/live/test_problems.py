"""Problems of a node: the latest ones, each once."""

from quillcast.live.runtime.problems import PROBLEMS_MAX, Problems


def test_what_happens_again_is_kept_once_as_the_latest() -> None:
    told, problems = list[str](), Problems()
    problems.listener = told.append
    for line in ("first", "second", "first"):
        problems.append(line)
    problems.keep("second")
    assert list(problems) == ["first", "second"]
    assert told == ["first", "second", "first"], "a log has every time"


def test_the_latest_are_kept() -> None:
    problems = Problems()
    for number in range(PROBLEMS_MAX + 1):
        problems.append(str(number))
    assert list(problems) == [str(number) for number in range(1, PROBLEMS_MAX + 1)]
