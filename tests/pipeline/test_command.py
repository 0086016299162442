"""What an audit shows while it works."""

import io

from rich.console import Console

from quillcast.pipeline.command import steps


def test_the_steps_of_an_audit_are_lines_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with steps(Console(file=out, width=20)) as say:
        say("looking for journals below [a]/folder")
        say("reading 2,000 journals, 3.1 MB")
    assert out.getvalue().splitlines() == [
        "audit: looking for journals below [a]/folder",
        "audit: reading 2,000 journals, 3.1 MB",
    ]


def test_a_terminal_shows_the_current_step() -> None:
    out = io.StringIO()
    with steps(Console(file=out, width=80, force_terminal=True)) as say:
        say("judging")
    assert "audit: judging ..." in out.getvalue()
