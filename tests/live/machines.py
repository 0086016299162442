"""Machines that a test makes: a network namespace each, with an address of its own, and folders of their own.

What runs on one of them finds the others by nothing but the wire between them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.commands import Command
from tests.live.stage import PATIENCE_S, ROOT, Puppet, Wires

NETWORK = "10.77.0"


class Machine:
    """One machine: where it is reached, what its user's folders hold, and what runs on it."""

    def __init__(self, namespace: str, host: str, folder: Path) -> None:
        self.namespace, self.host, self.folder = namespace, host, folder
        self.config, self.runtime = folder / "config", folder / "runtime"
        self.runtime.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_CONFIG_HOME": str(self.config),
            "QUILLCAST_NETWORK": "default",
        }
        self._commands: list[Command] = []
        self._puppets: list[Puppet] = []
        self._relays: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> Command:
        """Start a command."""
        command = Command(arguments, self.environment, namespace=self.namespace)
        self._commands.append(command)
        return command

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end: exit code, output, errors."""
        return self.start(*arguments).end()

    def forward(self, port: int, to: str) -> None:
        """Have a port of this machine lead to an address, as that of a router does; listening when this returns."""
        relay = [sys.executable, "-m", "tests.live.relay", f"{self.host}:{port}", to]
        forwarding = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *relay],
            stdout=subprocess.PIPE, env={**self.environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}, cwd=ROOT,
        )  # fmt: skip
        self._relays.append(forwarding)
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline() == b"listening\n"

    def puppet(self, **node: Any) -> Puppet:
        """A node that is part of its network when this returns. Raises `PuppetError`."""
        puppet = Puppet(self.runtime, namespace=self.namespace, config_home=self.config, **node)
        self._puppets.append(puppet)
        return puppet.arrive()

    def end(self) -> None:
        """End what still runs."""
        for process in [*(each.process for each in [*self._commands, *self._puppets]), *self._relays]:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


class Machines:
    """Machines on one switch."""

    def __init__(self, wires: Wires, folder: Path) -> None:
        self._wires, self._folder = wires, folder
        self._made: list[Machine] = []

    def make(self) -> Machine:
        """One more machine."""
        namespace, listen = self._wires.host()
        machine = Machine(namespace, listen.rpartition(":")[0], self._folder / namespace)
        self._made.append(machine)
        return machine

    def end(self) -> None:
        """End what runs on them."""
        for machine in self._made:
            machine.end()


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Machines that are gone afterwards."""
    wires = Wires(NETWORK)
    made = Machines(wires, folder)
    try:
        yield made
    finally:
        made.end()
        wires.remove()
