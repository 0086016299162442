"""Examples as people run them: processes of their own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LINES_MAX = 60


@asynccontextmanager
async def program(name: str, *arguments: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running example; its standard input is closed at the end, and it must end well then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), *arguments, env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
