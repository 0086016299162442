"""The chat: two terminals, and a real conversation."""

import asyncio
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples import chat
from examples.chat import LOG, replay
from quillcast import run
from tests.examples.programs import program

pytestmark = pytest.mark.live


def test_everybody_hears_the_whole_conversation_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    heard = run(replay(people=4))
    assert len(heard) == 4
    said = [json.loads(line) for line in gzip.decompress(LOG.read_bytes()).splitlines()]
    expected = [f"{message['nick']}: {message['text']}" for message in said if message["nick"] in heard]
    assert len(expected) > 100
    assert all(messages == expected for messages in heard.values())


def test_two_terminals_talk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            program("chat.py", "alice", folder=tmp_path) as alice,
            program("chat.py", "bob", folder=tmp_path) as bob,
        ):
            for one in (alice, bob):
                assert b"you are in chat/lobby" in await one.stderr.readline()  # type: ignore[union-attr]
            alice.stdin.write(b"hello\n")  # type: ignore[union-attr]
            for one in (alice, bob):
                assert await one.stdout.readline() == b"alice: hello\n"  # type: ignore[union-attr]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_shown_instead_of_a_chat_under_that_name(option: str) -> None:
    command = [sys.executable, str(chat.__file__), option]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == f"{chat.__doc__}\n"
