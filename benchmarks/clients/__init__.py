"""The systems that benchmarks compare: a client of each with the same interface, and its requirements.

`SYSTEMS` names them. Clients use the public API of their library, call a handler with every payload as `bytes`, and
hold the publisher back when a queue is full, except for those that are named best effort.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from clients.base import PATIENCE_S, STRIDE, Client, Counter, Handler, Publish
from clients.direct import Cyclone, CycloneBestEffort, Iceoryx, IceoryxPolling, Zenoh, Zmq
from clients.own import Quillcast, QuillcastAwaited, QuillcastBatch, QuillcastClient
from clients.servers import Nats, Paho, Redis

__all__ = [
    "COMMON",
    "PATIENCE_S",
    "STRIDE",
    "SYSTEMS",
    "Client",
    "Counter",
    "Handler",
    "Publish",
    "System",
    "missing",
    "program",
]


@dataclass(frozen=True)
class System:
    """A system as one row of results measures it."""

    client: Callable[[], Client]
    module: str
    """The Python module that it needs."""
    middle: str | None = None
    """The name of the process between publisher and subscriber, if that is another client."""
    server: str | None = None
    """The program of the process between them, if that is a server."""
    package: str | None = None
    """Debian's package of that program."""
    direct: str | None = None
    """The role that another peer than its own serves directly (quillcast)."""


SYSTEMS = {
    "quillcast": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, two peers": System(Quillcast, "quillcast"),
    "quillcast, batch": System(QuillcastBatch, "quillcast", middle="forwarder"),
    "quillcast, awaited": System(QuillcastAwaited, "quillcast", middle="forwarder"),
    "quillcast, TCP": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, no journal": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, clients": System(QuillcastClient, "quillcast", middle="peer"),
    "quillcast, receiving clients": System(QuillcastClient, "quillcast", middle="peer", direct="subscriber"),
    "quillcast, publishing clients": System(QuillcastClient, "quillcast", middle="peer", direct="publisher"),
    "quillcast, TLS": System(Quillcast, "quillcast", middle="forwarder"),
    "quillcast, TLS over TCP": System(Quillcast, "quillcast", middle="forwarder"),
    "zenoh": System(Zenoh, "zenoh"),
    "zenoh, Unix socket": System(Zenoh, "zenoh"),
    "zenoh, router": System(Zenoh, "zenoh", middle="router"),
    "zenoh, TLS": System(Zenoh, "zenoh"),
    "pyzmq": System(Zmq, "zmq"),
    "pyzmq, forwarder": System(Zmq, "zmq", middle="forwarder"),
    "cyclonedds": System(Cyclone, "cyclonedds"),
    "cyclonedds, best effort": System(CycloneBestEffort, "cyclonedds"),
    "iceoryx2": System(Iceoryx, "iceoryx2"),
    "iceoryx2, polling": System(IceoryxPolling, "iceoryx2"),
    "nats-py": System(Nats, "nats", server="nats-server", package="nats-server"),
    "nats-py, TLS": System(Nats, "nats", server="nats-server", package="nats-server"),
    "paho-mqtt": System(Paho, "paho", server="mosquitto", package="mosquitto"),
    "redis": System(Redis, "redis", server="redis-server", package="redis-server"),
}
COMMON = ("quillcast", "zenoh", "pyzmq", "nats-py", "paho-mqtt", "redis")
"""One variant of each system that supports many publishers and subscribers, over plain links."""


def missing(name: str) -> str | None:
    """Why a system cannot be measured here, with the remedy; None if it can."""
    system = SYSTEMS[name]
    if importlib.util.find_spec(system.module) is None:
        return f"no Python library {system.module}; make setup"
    if system.server is not None and program(system.server) is None:
        return f"no {system.server}; as root: apt-get install {system.package}"
    return None


def program(name: str) -> str | None:
    """The path of a server's program. Debian keeps some outside users' PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
