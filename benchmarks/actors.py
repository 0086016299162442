"""Processes that publish and subscribe for a benchmark in any of the systems, and brokers and servers between them.

`Actor(system, ...)` starts `performer.py` as a process. It carries out orders and answers, a line of JSON each.
"""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from clients import PATIENCE_S, SYSTEMS, program

Options = dict[str, Any]
ANSWER_S = 300.0  # without an answer for this long a process waits for what will never come; no order takes half of it

CYCLONEDDS = """\
<CycloneDDS><Domain Id="any">
  <General>
    <Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>
    <AllowMulticast>false</AllowMulticast>
  </General>
  <Discovery>
    <Tag>{tag}</Tag>
    <ParticipantIndex>auto</ParticipantIndex>
    <Peers><Peer address="127.0.0.1"/></Peers>
  </Discovery>
</Domain></CycloneDDS>
"""  # peers of this machine alone, apart from those of other benchmarks


_DIRECT = {"subscriber": "receive", "publisher": "publish"}  # the argument of `connect`


class Process:
    """A process that carries out orders and answers, a line of JSON each."""

    def __init__(self, what: str, command: list[str]) -> None:
        self.what, self.ordered = what, ""
        self.process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def order(self, do: str, **arguments: Any) -> None:
        """Send an order. Call `answer` afterwards."""
        assert self.process.stdin is not None
        self.ordered = do
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the order."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
            raise SystemExit(
                f"{self.what} did not answer to {self.ordered!r} within {ANSWER_S:g} s, perhaps because events were "
                "lost; use a machine with less to do"
            )
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> SystemExit:
        return SystemExit(f"{self.what} ended with {self.process.wait()} at {self.ordered!r}")

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send an order, and wait for its answer."""
        self.order(do, **arguments)
        return self.answer()


class Actor(Process):
    """A process that is a client of a system."""

    def __init__(self, system: str, **options: Any) -> None:
        super().__init__(f"a process of {system}", [str(Path(__file__).with_name("performer.py"))])
        self.system = system
        try:
            self.first = self.ask("connect", system=system, options=options)
        except BaseException:
            self._kill()
            raise

    def end(self) -> None:
        """Leave in good order."""
        with suppress(SystemExit):
            self.order("end")
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        self.process.kill()
        self.process.wait()


def ask_all(processes: Iterable[Process], do: str, **arguments: Any) -> list[dict[str, Any]]:
    """Send the same order to all at once, and wait for their answers."""
    asked = list(processes)
    for process in asked:
        process.order(do, **arguments)
    return [process.answer() for process in asked]


@contextmanager
def actors(system: str, options: list[Options]) -> Iterator[list[Actor]]:
    """Start a system's processes, one for each of the options. The first is the hub, if others connect to one."""
    with ExitStack() as stack:
        made = []
        for each in options:
            made.append(Actor(system, **each))
            stack.callback(made[-1].end)
        yield made


@contextmanager
def network(system: str) -> Iterator[tuple[Options, Options]]:
    """Start the shared part of a system. Yields the options of the hub, and those of all other processes."""
    with tempfile.TemporaryDirectory() as folder:
        yield _options(system, Path(folder))


class Running:
    """A system with its processes: one for each role, and one in the middle if there is one."""

    def __init__(self, name: str, actors: dict[str, Actor], middle: Actor | None, server_pid: int | None) -> None:
        self.name, self.actors, self.middle = name, actors, middle
        self._pids = {role: actor.process.pid for role, actor in actors.items()}
        if middle is not None:
            self._pids[SYSTEMS[name].middle or ""] = middle.process.pid
        if server_pid is not None:
            self._pids[SYSTEMS[name].server or ""] = server_pid
        self._meters: dict[str, Meter] = {}

    def topic(self, name: str) -> str:
        """Create a topic. In quillcast its root is the process in the middle, or the last one."""
        if name_of(self.name) != "quillcast":
            return name
        root = self.middle or list(self.actors.values())[-1]
        chosen = near(root.first["id"], name)
        if self.middle is not None:
            self.middle.ask("open", topic=chosen)  # so that it is the root from the start
        return chosen

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run that are worth reporting."""
        first = next(iter(self.actors.values())).first
        return {name: value for name, value in first.items() if name != "id"}

    def mark(self) -> None:
        """Count resources from now on."""
        self._meters = {role: Meter(pid) for role, pid in self._pids.items()}

    def used(self) -> dict[str, dict[str, float]]:
        """Processor time since the mark in seconds, and peak of resident memory since then in bytes, by role."""
        return {role: meter.used() for role, meter in self._meters.items()}


class Meter:
    """Measures the processor time and peak memory of another process, from now on."""

    def __init__(self, pid: int) -> None:
        self._proc = Path(f"/proc/{pid}")
        (self._proc / "clear_refs").write_text("5")  # resets the peak
        self._before_s = 0.0
        self._before_s = self.cpu_s()

    def used(self) -> dict[str, float]:
        """Processor time and peak memory."""
        return {"cpu_s": self.cpu_s(), "peak_rss_bytes": self.peak_bytes()}

    def cpu_s(self) -> float:
        """Processor time in seconds, to the clock tick of 10 ms."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") - self._before_s

    def peak_bytes(self) -> int:
        """The peak of resident memory."""
        status = dict(line.split(":", 1) for line in (self._proc / "status").read_text().splitlines())
        return int(status["VmHWM"].split()[0]) * 1024


@contextmanager
def running(name: str, roles: list[str], *, middle: bool = True) -> Iterator[Running]:
    """Run a system with a process for each role. Without one in the middle, others connect to the first.

    `middle=False` leaves out the process in the middle if the system can work without: peers forward for each other.
    """
    system = SYSTEMS[name]
    middle = system.middle is not None and (middle or name_of(name) != "quillcast")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        hub, other = _options(name, Path(folder))
        if name_of(name) == "quillcast" and not name.endswith(("no journal", "clients")):
            hub = other = {**hub, "journal": str(Path(folder) / "journal")}
        server_pid = stack.enter_context(_server(name, hub["port"], Path(folder))) if system.server else None
        between = [hub] * (2 if system.direct else 1) if middle else []
        ends = [other if middle or number else hub for number in range(len(roles))]
        if system.direct:
            ends[roles.index(system.direct)] = {**other, "direct": _DIRECT[system.direct]}
        made = stack.enter_context(actors(name, [*between, *ends]))
        named = dict(zip(roles, made[len(between) :], strict=True))
        yield Running(name, named, made[0] if middle else None, server_pid)


def name_of(variant: str) -> str:
    """The system of a row's name, which may be a variant."""
    return variant.partition(",")[0]


def near(node_id: str, name: str) -> str:
    """A topic name whose root in quillcast is this peer: the one of many names whose hash is nearest to its id."""
    from quillcast.core.ids import ring_distance, topic_id

    names = (f"{name}/{number}" for number in range(10_000))
    return min(names, key=lambda one: ring_distance(bytes.fromhex(node_id), topic_id(one)))


# --- options of each system's processes


def _options(name: str, folder: Path) -> tuple[Options, Options]:
    """The options of the hub, and those of all other processes."""
    match name_of(name), name.partition(", ")[2]:
        case "quillcast", variant:
            options: Options = {"folder": str(folder), "network": "benchmark"}
            if variant.startswith("TLS"):
                options["credential"] = _credential(folder)
            if variant.endswith("TCP"):
                options["local_ipc"] = False
            return options, {**options, "shares": True} if variant.endswith("clients") else options
        case "zenoh", variant:
            tls = {"tls": certificates(folder)} if variant == "TLS" else {}
            endpoint = f"{'tls' if tls else 'tcp'}/127.0.0.1:{free_port()}"
            if variant == "Unix socket":
                endpoint = f"unixsock-stream/{folder / 'zenoh'}"
            modes = ("router", "client") if variant == "router" else ("peer", "peer")
            return {"mode": modes[0], "listen": endpoint, **tls}, {"mode": modes[1], "connect": endpoint, **tls}
        case "cyclonedds", _:
            options = {"configuration": CYCLONEDDS.format(tag=folder.name)}
            return options, options
        case "iceoryx2", _:
            options = {"place": folder.name}
            return options, options
        case "pyzmq", "forwarder":
            ends = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
            return dict(zip(("publishers", "subscribers"), ends, strict=True)), {
                "to_publish": ends[0],
                "to_subscribe": ends[1],
            }
        case "pyzmq", _:
            endpoint = f"tcp://127.0.0.1:{free_port()}"
            return {"bind": endpoint}, {"connect": endpoint}
        case _, variant:
            options = {"port": free_port(), **({"tls": certificates(folder)} if variant == "TLS" else {})}
            return options, options


def _credential(folder: Path) -> str:
    """The credential of a new network."""
    from quillcast.live.admission.keyring import Keyring

    Keyring(folder).make_authority("benchmark", time.time_ns())
    return str(folder / "network.pem")


def certificates(folder: Path) -> dict[str, str]:
    """Make files with a certificate for 127.0.0.1, its key, and its issuer's certificate."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("authority", "server")]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    files = {}
    for what, name, key in zip(("authority", "certificate"), names, keys, strict=True):
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=what == "authority", path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .sign(keys[0], hashes.SHA256())
        )
        files[what] = str(folder / f"{what}.pem")
        Path(files[what]).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files["key"] = str(folder / "key.pem")
    plain = serialization.NoEncryption()
    Path(files["key"]).write_bytes(
        keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return files


# --- servers


@contextmanager
def _server(name: str, port: int, folder: Path) -> Iterator[int]:
    """Run a system's server. Yields its process id."""
    what = SYSTEMS[name].server or ""
    settings = folder / "settings"
    match what:
        case "nats-server":
            tls = 'tls { cert_file: "certificate.pem", key_file: "key.pem" }\n' if name.endswith("TLS") else ""
            settings.write_text(f"listen: 127.0.0.1:{port}\nmax_pending: 1GB\n{tls}")
            arguments = ["-c", str(settings)]
        case "mosquitto":
            settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 1000000\n")
            arguments = ["-c", str(settings)]
        case _:
            arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
            arguments += ["--client-output-buffer-limit", "pubsub 1gb 0 0"]
    command = [program(what) or what, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder) as server:
        try:
            _await_port(what, server, port)
            yield server.pid
        finally:
            server.terminate()


def _await_port(what: str, server: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise SystemExit(f"{what} did not come to listen at port {port}; it ended with {server.poll()}")


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
