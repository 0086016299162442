"""Problems of a node: the latest ones, each once."""

from quillcast.live.runtime.problems import PROBLEMS_MAX, RECENT_S, Problems


def test_what_happens_again_is_kept_once_as_the_latest() -> None:
    told, problems = list[str](), Problems()
    problems.tell(told.append)
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


def test_what_does_not_happen_again_is_over() -> None:
    now = 0.0
    problems = Problems(lambda: now)
    for line in ("once", "again"):
        problems.append(line)
    now = RECENT_S
    problems.append("again")
    assert list(problems) == ["once", "again"]
    now += 1.0
    assert list(problems) == ["again"]
