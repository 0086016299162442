"""`python -m quillcast.sim`: what it prints, what it returns, and what it says about a wrong call."""

import json
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from quillcast.sim import __main__ as command
from quillcast.sim.__main__ import main
from quillcast.sim.sweep import Plan, outcomes

SMALL = """
peers = 4
duration_s = 12.0
join_s = 1.0
seeds = [5, 6]
MARKS

[[topics]]
name = "news"
writers = [{ peer = 0, from_s = 4.0, until_s = 6.0 }]
readers = [{ peer = 1, from_s = 3.0 }, { peer = 2, from_s = 3.0 }]

[[faults]]
do = "pause"
at_s = 5.0
peer = "readers:news"
for_s = 0.5
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path, "")


def write(folder: Path, marks: str, text: str = SMALL) -> Path:
    file = folder / "small.toml"
    file.write_text(text.replace("MARKS", marks))
    return file


def test_a_scenario_runs_under_its_own_seeds(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", str(small), "--jobs", "1", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2 of 2 seeds hold")
    summary = json.loads(lines[-1])
    assert (summary["seeds"], summary["broken"]) == (2, [])
    assert summary["delivered"] == 2 * 2 * 4  # seeds, readers, events


def test_a_long_sweep_says_how_far_it_is_also_where_no_terminal_shows_it(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PROGRESS_S", 0.0)
    assert main(["--scenario", str(small), "--jobs", "1"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1 of 2 seeds, 0 broken, ")
    assert second.startswith("2 of 2 seeds, 0 broken, ")


def test_what_breaks_is_named_with_the_command_that_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, 'marks = ["a_path_that_is_never_taken"]')
    assert main(["--scenario", str(file), "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "seed 5: marks: ['a_path_that_is_never_taken'] never showed up" in printed
    command = next(line for line in printed.splitlines() if "replay:" in line)
    replay = command.split("python -m quillcast.sim ")[1].split()
    assert main(replay) == 1
    assert "seed 5: marks:" in capsys.readouterr().out


@pytest.mark.long
def test_seeds_side_by_side_give_what_they_give_one_by_one(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summaries = []
    for jobs in ("1", "2"):
        main(["--scenario", str(small), "--seeds", "8", "--jobs", jobs, "--json"])
        summary = json.loads(capsys.readouterr().out.splitlines()[-1])
        summaries.append((summary["steps"], summary["delivered"], summary["marks"]))
    assert summaries[0] == summaries[1]


def test_the_story_of_a_topic(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", str(small), "--seed", "5", "--story", "topic:news"]) == 0
    story = capsys.readouterr().out
    for part in ("topic news is b1c4ff", "*** peer", "is paused for 0.5 s", "BecameRoot: topic news",
                 "receives event 3 of 0.1.w0", "writer 0.1.w0 of news writes event 0", "everything holds"):  # fmt: skip
        assert part in story
    times = [float(line.split()[0]) for line in story.splitlines()[3:-1]]
    assert times == sorted(times)


def test_the_story_of_a_peer_with_its_messages(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", str(small), "--seed", "5", "--story", "peer:1", "--messages"]) == 0
    story = capsys.readouterr().out
    assert "peer 1   <- peer" in story
    assert "link_up" in story
    assert "bundle UP" in story
    assert "peer 2   " not in story


def test_hard_histories_are_drawn_on_demand_and_replayed_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hard", "--seeds", "2", "--first", "2002", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.startswith("2 of 2 seeds hold")
    assert main(["--hard", "--seed", "2002", "--story", "topic:t0"]) == 0
    assert capsys.readouterr().out.startswith("hard, by seed 2002: ")


def test_wild_histories_are_hard_ones_with_twists_at_random_or_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--wild", "--seeds", "2", "--first", "2002", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.startswith("2 of 2 seeds hold")
    assert main(["--wild", "visitors,closing", "--seed", "2002", "--story", "topic:t0"]) == 0
    assert ", with visitors, closing" in capsys.readouterr().out.splitlines()[0]
    assert main(["--wild", "strange", "--seed", "2002"]) == 2
    assert "there is no twist 'strange'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "0"], "--seeds 0: use a number of at least 1"),
        (["--jobs", "0"], "--jobs 0: use a number of at least 1"),
        (["--seed", "-1"], "--seed -1: use a number of at least 0"),
        (["--story", "topic:t0"], "--story and --messages tell of one run; name it with --seed S"),
        (["--seed", "1", "--messages"], "--messages goes with --story SUBJECT"),
        (["--seed", "1", "--scopes", "3"], "--scopes goes with --scope POLICY"),
        (["--peers", "3", "--seeds", "1"], "--peers 3: drawn scenarios have at least 5"),
        (["--scenario", "nowhere.toml"], "nowhere.toml: No such file or directory"),
    ],
)
def test_a_wrong_call_gets_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.splitlines() == [f"error: {says}"]


def test_a_sweep_that_is_interrupted_begins_no_more_runs(small: Path) -> None:
    began = time.monotonic()
    sweep = outcomes(list(range(40_000)), Plan(small), jobs=2)
    assert next(sweep).broken == ""
    assert isinstance(sweep, Generator)
    sweep.close()  # as Ctrl-C does
    assert time.monotonic() - began < 60.0  # the other runs would take several minutes


def test_a_story_that_does_not_exist_names_those_that_do(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", str(small), "--seed", "5", "--story", "topic:olds"]) == 2
    assert capsys.readouterr().err.endswith("ask for peer:0 to peer:3 or topic:news\n")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("peers = 0", "peers = 0; a scenario has at least one"),
        ("peers = 2", "topic 'news' names peer 2; there are 0 to 1"),
        ('peers = 4\nscopes = [{ name = "site", members = [2, 9] }]', "scope 'site' names peer 9; there are 0 to 3"),
        (
            'peers = 4\nscopes = [{ name = "site", members = [2], parameters = { k_ary = { fan_out = 1 } } }]',
            "policy k_ary: fan_out: expected int >= 2",
        ),
        ("peers = 'four'", "Expected `int`, got `str` - at `$.peers`"),
        ("peers = 4\ncolour = 1", "Object contains unknown field `colour`"),
        ("peers = ", "Invalid value"),
    ],
)
def test_an_invalid_scenario_file_is_a_clear_error(
    wrong: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(write(tmp_path, "", SMALL.replace("peers = 4", wrong)), says, capsys)


def test_a_scenario_takes_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "", SMALL.replace("duration_s = 12.0", "duration_s = -3.0"))
    refused(file, "duration_s = -3; a scenario takes some time", capsys)


@pytest.mark.parametrize("wrong", ["everyone", "root:olds", "roots:news", "-", "leaves"])
def test_a_fault_that_befalls_nobody_known_is_refused(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(write(tmp_path, "", SMALL.replace("readers:news", wrong)), f"{wrong!r} names no peers", capsys)


@pytest.mark.parametrize("wrong", ["admitted", "admitted:olds", "noticed:news"])
def test_a_moment_that_never_comes_is_refused(wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SMALL.replace("for_s = 0.5", f'for_s = 0.5\nwhen = "{wrong}"')
    refused(write(tmp_path, "", text), f"{wrong!r} names no peers, topic or moment", capsys)


def refused(file: Path, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {file} is not a scenario: ")
    assert says in line
