"""Addresses of peers as people write them: `host:port`."""

import ipaddress

from quillcast.core.errors import LocalError


def parse(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises `LocalError`."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise LocalError(f"{address!r} is no address; write host:port, such as 127.0.0.1:4000")
    return host.removeprefix("[").removesuffix("]"), int(port)


def written(host: str, port: int) -> str:
    """The address of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_loopback(address: str) -> tuple[str, int]:
    """Host and port of an address on this machine's loopback. Raises `LocalError` for any other."""
    host, port = parse(address)
    if not is_loopback(host):
        raise LocalError(
            f"{address} is not on this machine's loopback, and beyond it peers need network credentials, which come "
            "with a later version; use 127.0.0.1"
        )
    return ("127.0.0.1" if host == "localhost" else host), port


def is_loopback(host: str) -> bool:
    """Does the host name this machine's loopback, as far as one can tell without a name server?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
