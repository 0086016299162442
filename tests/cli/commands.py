"""Real `quillcast` processes, in a network and a runtime folder of the test's own."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from quillcast.core.ids import ring_distance, topic_id
from tests.forks import OF_FORKS, Fork, of_python

PATIENCE_S = 60.0  # nothing here takes so long on a machine that works


class Command:
    """A running command, whose lines come as it writes them."""

    def __init__(
        self, arguments: tuple[str, ...], environment: dict[str, str], *, namespace: str | None = None
    ) -> None:
        self.arguments = arguments
        if of_python(environment) == OF_FORKS:
            self.process: subprocess.Popen[bytes] = Fork(
                "quillcast", *arguments, env=environment, namespace=namespace, stderr=subprocess.PIPE
            )
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "quillcast", *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            )  # fmt: skip
        self._read = {1: b"", 2: b""}

    def line(self, fd: int = 1) -> str:
        """The next line of its output (1) or of its errors (2)."""
        stream = self.process.stdout if fd == 1 else self.process.stderr
        assert stream is not None
        until = time.monotonic() + PATIENCE_S
        while b"\n" not in self._read[fd]:
            ready, _, _ = select.select([stream], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"{self.arguments} wrote no line to {fd} in {PATIENCE_S} s"
            data = os.read(stream.fileno(), 1 << 16)
            assert data, f"{self.arguments} ended without the line that was expected: {self._read}"
            self._read[fd] += data
        line, _, self._read[fd] = self._read[fd].partition(b"\n")
        return line.decode()

    def write(self, text: str) -> None:
        """Write to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def wait(self, seconds: float) -> None:
        """Wait for its end for so long. Raises TimeoutError."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired as running:
            raise TimeoutError from running

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, patience_s: float = PATIENCE_S) -> tuple[int, str, str]:
        """Wait for its end: exit code, and what of its output and errors was not read yet."""
        out, err = self.process.communicate(timeout=patience_s)
        return self.process.returncode, (self._read[1] + out).decode(), (self._read[2] + err).decode()


class Commands:
    """Runs commands in one runtime folder."""

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "QUILLCAST_NETWORK": "test"}
        self.running: list[Command] = []

    def start(self, *arguments: str) -> Command:
        """Start a command."""
        command = Command(arguments, self.environment)
        self.running.append(command)
        return command

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end: exit code, output, errors."""
        return self.start(*arguments).end()

    def run_until(self, text: str, *arguments: str) -> None:
        """Run a command again until its output has a text that is to appear in a moment."""
        until = time.monotonic() + PATIENCE_S
        while text not in (ended := self.run(*arguments))[1]:
            assert time.monotonic() < until, f"{arguments} did not show {text!r} in {PATIENCE_S} s: {ended}"

    def subscribed(self, topic: str, *arguments: str) -> Command:
        """A subscriber whose subscription stands."""
        command = self.start("sub", topic, *arguments)
        assert f"subscribed to {topic}" in command.line(2)
        return command

    def json(self, *arguments: str) -> Any:
        """What a command prints as JSON on its last line."""
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out.splitlines()[-1])

    def json_or_alarm(self, *arguments: str) -> Any:
        """What a check prints as JSON, even if it is an alarm."""
        return json.loads(self.run(*arguments, "--json")[1])

    def json_of(self, command: Command) -> Any:
        """The JSON on the last line of a command that ends by itself."""
        code, out, err = command.end()
        assert code == 0, err
        return json.loads(out.splitlines()[-1])


def topic_near(node_id: str) -> str:
    """A topic whose root will be this peer: of many names the one that hashes next to it.

    With so many names, one test in 100,000 has a second peer that is as near by chance.
    """
    own, names = bytes.fromhex(node_id), _names_by_topic_id()
    at = bisect(names, (own, ""))
    return min((names[at - 1], names[at % len(names)]), key=lambda one: ring_distance(own, one[0]))[1]


@cache
def _names_by_topic_id() -> list[tuple[bytes, str]]:
    return sorted((topic_id(name), name) for name in (f"topic/{number}" for number in range(250_000)))


def read_terminal(fd: int) -> bytes:
    """What a terminal shows next; nothing once its other end is closed."""
    try:
        return os.read(fd, 1 << 16)
    except OSError:
        return b""


@contextmanager
def commands(folder: Path) -> Iterator[Commands]:
    """Commands that are ended with the test."""
    made = Commands(folder)
    try:
        yield made
    finally:
        for command in made.running:
            if command.process.poll() is None:
                command.process.kill()
            command.process.communicate()
