"""Addresses of peers as people write them: `host:port`."""

import asyncio
import errno
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable

from quillcast.core.errors import LocalError

_ELSEWHERE = "192.0.2.1"  # TEST-NET-1, RFC 5737: stands for any other machine in routing
_ELSEWHERE_6 = "2001:db8::1"  # the same for IPv6, RFC 3849
_BACKLOG = 100  # connections that wait to be accepted; asyncio's default
_SIOCGIFADDR = 0x8915  # from linux/sockios.h


def parse(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises `LocalError`."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise LocalError(
            f"{address!r} is not an address; write host:port, such as 127.0.0.1:4000 (a port is at most 65535)"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def written(host: str, port: int) -> str:
    """Join a host and a port to an address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def advertised(told: str) -> tuple[str, int]:
    """Host and port that a node gives to others; port 0 stands for the port that it listens at. Raises `LocalError`."""
    if ":" not in told:
        told += ":0"
    host, port = parse(told)
    if _is_unspecified(host):
        raise LocalError(f"nobody can reach this node at {told!r}; advertise the address or name that others use")
    return host, port


def _is_unspecified(host: str) -> bool:
    """Whether the host stands for all addresses of a machine."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def parse_loopback(address: str) -> tuple[str, int]:
    """Host and port of an address on this machine's loopback. Raises `LocalError` for any other."""
    host, port = parse(address)
    if not is_loopback(host):
        raise LocalError(
            f"{address} is not on this machine's loopback, and peers beyond it must have admitted this one: "
            "--join once with the line that `quillcast node --invite` prints there"
        )
    return ("127.0.0.1" if host == "localhost" else host), port


def beyond_loopback(address: str) -> LocalError:
    """The error for an address that a peer without a credential must not use."""
    return LocalError(
        f"{address} is not on this machine's loopback, and beyond it peers need network credentials: "
        "`quillcast node --listen HOST:PORT` makes them, and prints the line that other machines --join with"
    )


def listening_host(known: Iterable[str]) -> str:
    """Where to listen so that peers at these addresses reach this machine: loopback if all of them use it."""
    for address in known:
        host, port = parse(address)
        if not is_loopback(host) and (own := own_host(host, port)):
            return own
    return "127.0.0.1"


def reached(host: str) -> tuple[str, int] | None:
    """The host for others if the node listens at this one: None for itself, a host of this machine for 0.0.0.0.

    Raises `LocalError` if this machine has no address but loopback.
    """
    if not _is_unspecified(host):
        return None
    if ":" in host:
        found = own_host(_ELSEWHERE_6, 9)
    else:
        found = own_host(_ELSEWHERE, 9) or next(iter(_interface_hosts()), None)
    if found is None:
        raise LocalError(f"{host} means every address of this machine, and it has none; use --advertise HOST:PORT")
    return found, 0


def own_host(host: str, port: int) -> str | None:
    """This machine's address on the route to another one, if there is a route. Nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as asking:
            asking.connect(address)
            return str(asking.getsockname()[0])
    except OSError:
        return None


def own() -> str:
    """The IPv4 addresses of this machine, as text."""
    return ", ".join([*_interface_hosts(), "127.0.0.1"])


def _interface_hosts() -> list[str]:
    """The IPv4 addresses of this machine's interfaces, without loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has no address
            found.append(socket.inet_ntoa(answer[20:24]))
    return [host for host in found if not is_loopback(host)]


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0 takes any free port. Raises `OSError`."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def not_listening(host: str, port: int, problem: OSError) -> str:
    """Why it is impossible to listen at an address, as text."""
    if problem.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another, or 0 for any"
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine, which has {own()}"
    return f"cannot listen on {host}:{port}: {problem.strerror or problem}"


def why(problem: Exception) -> str:
    """Why an address could not be reached, as text."""
    match problem:
        case ConnectionRefusedError():
            return "nobody listens there"
        case TimeoutError():
            return "no answer in time; does a firewall let TCP to it through?"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(problem)


def bound(server: asyncio.Server) -> tuple[str, int]:
    """Host and port that a server listens at."""
    host, port, *_ = server.sockets[0].getsockname()
    return host, port


def is_loopback(host: str) -> bool:
    """Whether the host is this machine's loopback, as far as that is known without a name server."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
