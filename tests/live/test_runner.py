"""The process of a program that `run` runs, and of one that it does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live

_PROGRAM = """
import asyncio, gc, quillcast

async def main():
    before = gc.get_threshold()
    async with quillcast.Node():
        first = gc.get_freeze_count()
        async with quillcast.Node():
            print(first > 10_000, gc.get_freeze_count() <= first, gc.get_threshold() == before)

before = gc.get_threshold()
{}(main())
assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before), "what follows is not the program's"
"""


@pytest.mark.parametrize(
    ("run", "said"), [("quillcast.run", "True True False\n"), ("asyncio.run", "False True True\n")]
)
def test_what_a_program_stands_on_is_looked_at_no_more_where_the_process_is_the_programs(
    run: str, said: str, tmp_path: Path
) -> None:
    program, environment = (
        [sys.executable, "-c", _PROGRAM.format(run)],
        {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    ran = subprocess.run(program, check=True, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stdout == said
