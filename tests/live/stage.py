"""Puppets in processes of their own, and networks between them that can be cut."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.forks import Fork

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 60.0  # nothing here takes so long on a machine that works

SMALL_RING = {"overlay": {"digit_bits": 1, "leaf_set_size": 4}}
"""With b = 1 and l = 4 a dozen peers do not all know each other, and trees have forwarders."""


class PuppetError(Exception):
    """The node said that this cannot be."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Puppet:
    """A process with a node in it (`puppet.py`)."""

    def __init__(
        self, runtime: Path, *, namespace: str | None = None, config_home: Path | None = None, **node: Any
    ) -> None:
        home = {"XDG_CONFIG_HOME": str(config_home)} if config_home else {}
        paths = {"XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self.process = Fork(
            "tests.live.puppet", json.dumps(node), env={**os.environ, **home, **paths}, cwd=ROOT, namespace=namespace
        )
        self.namespace = namespace
        self._unread = b""
        self.node_id = self.address = ""

    def arrive(self) -> Self:
        """Wait until the node is part of its network. Raises `PuppetError`."""
        who = self._answer()
        self.node_id, self.address = who["node_id"], who["address"]
        return self

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have the puppet do something, and wait for its answer. Raises `PuppetError`."""
        self.order(do, **arguments)
        return self._answer()

    def order(self, do: str, **arguments: Any) -> None:
        """Have the puppet do something; `answer` comes later."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest order that has none."""
        return self._answer()

    def leave(self) -> int:
        """Leave gracefully; the process's exit status."""
        if self.process.poll() is None:
            self.order("leave")
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        """SIGSTOP: silence, while its sockets stay open."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        by = time.monotonic() + PATIENCE_S
        while b"\n" not in self._unread:
            if not select.select([pipe], [], [], max(0.0, by - time.monotonic()))[0]:
                raise AssertionError(f"the puppet with pid {self.process.pid} did not answer within {PATIENCE_S:g} s")
            part = os.read(pipe, 1 << 16)
            if not part:
                raise AssertionError(f"the puppet with pid {self.process.pid} ended with {self.process.wait()}")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise PuppetError(answer["type"], answer["error"])
        return answer["answer"]


class Stage:
    """All puppets of a test, with a folder of their own to find each other."""

    def __init__(self, runtime: Path) -> None:
        self.runtime = runtime
        runtime.mkdir(parents=True, exist_ok=True)
        self.puppets: list[Puppet] = []

    def spawn(self, *, namespace: str | None = None, **node: Any) -> Puppet:
        """Start a puppet, and do not wait for it."""
        puppet = Puppet(self.runtime, namespace=namespace, **{"network": "stage", **node})
        self.puppets.append(puppet)
        return puppet

    def start(self, **node: Any) -> Puppet:
        """Start a puppet that is part of its network when this returns."""
        return self.spawn(**node).arrive()

    def start_many(self, count: int, **node: Any) -> list[Puppet]:
        """Start several: the first one alone, the others all at once."""
        first = self.start(**node)
        return [first, *(puppet.arrive() for puppet in [self.spawn(**node) for _ in range(count - 1)])]

    def clear(self) -> None:
        """End what still runs."""
        for puppet in self.puppets:
            if puppet.alive:
                puppet.go_on()
                puppet.process.kill()
        for puppet in self.puppets:
            puppet.process.wait(PATIENCE_S)
            for pipe in (puppet.process.stdin, puppet.process.stdout):
                assert pipe is not None
                pipe.close()


def eventually(condition: Callable[[], Any], what: str, *, within_s: float = PATIENCE_S) -> Any:
    """Ask until the answer is true, and return it."""
    by = time.monotonic() + within_s
    while not (answer := condition()):
        assert time.monotonic() < by, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)
    return answer


class Wires:
    """Hosts in network namespaces of this machine, each with an address of one network, on one switch.

    Those of 127.77.0.0/24 count as loopback, so peers listen on them without credentials; but the way between two of
    them leads over the switch, and can be cut in silence.
    """

    def __init__(self, network: str = "127.77.0") -> None:
        self._name, self._network = f"qc{os.getpid()}", network
        self._hosts: list[str] = []
        self._run("ip", "netns", "add", self._switch)
        self._run("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
        self._run("ip", "-n", self._switch, "link", "set", "switch", "up")
        self._run("ip", "-n", self._switch, "link", "add", "beyond", "type", "bridge")
        self._run("ip", "-n", self._switch, "link", "set", "beyond", "up")

    @property
    def _switch(self) -> str:
        return f"{self._name}-switch"

    def host(self) -> tuple[str, str]:
        """A new host: its namespace, and an address to listen on."""
        number = len(self._hosts) + 1
        name, port = f"{self._name}-{number}", f"port{number}"
        self._hosts.append(name)
        self._run("ip", "netns", "add", name)
        self._run(
            "ip", "link", "add", port, "netns", self._switch, "type", "veth", "peer", "name", "eth0", "netns", name
        )
        self._run("ip", "-n", self._switch, "link", "set", port, "master", "switch", "up")
        self._run("ip", "-n", name, "link", "set", "lo", "up")
        if self._network.startswith("127."):
            self._run("ip", "-n", name, "addr", "del", "127.0.0.1/8", "dev", "lo")
            for device in ("all", "eth0"):
                self._run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.conf.{device}.route_localnet=1")
        self._run("ip", "-n", name, "addr", "add", f"{self._network}.{number}/24", "dev", "eth0")
        self._run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")  # nobody has it
        self._run("ip", "-n", name, "link", "set", "eth0", "up")
        return name, f"{self._network}.{number}:0"

    def cut(self, host: str) -> None:
        """From now on everything from and to this host is dropped, and nobody is told."""
        self._run("ip", "-n", self._switch, "link", "set", self._port(host), "nomaster")

    def partition(self, hosts: Iterable[str]) -> None:
        """From now on these hosts, and those partitioned before, reach each other and no others."""
        for host in hosts:
            self._run("ip", "-n", self._switch, "link", "set", self._port(host), "master", "beyond")

    def heal(self, host: str) -> None:
        """Undo the cut or partition."""
        self._run("ip", "-n", self._switch, "link", "set", self._port(host), "master", "switch")

    def remove(self) -> None:
        """Take everything away."""
        for name in [*self._hosts, self._switch]:
            self._run("ip", "netns", "del", name)

    def _port(self, host: str) -> str:
        return f"port{self._hosts.index(host) + 1}"

    @staticmethod
    def _run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (
            f"{' '.join(command)}: {done.stderr.strip()}; these tests make network namespaces, "
            "which takes root, iproute2, and a kernel with veth and bridge"
        )


@contextmanager
def wires() -> Iterator[Wires]:
    """A network that is gone afterwards."""
    network = Wires()
    try:
        yield network
    finally:
        network.remove()
