"""External multicast mechanisms, which reach all members of a scope at once, such as a UDP multicast group.

A mechanism is named by a text, `udp://239.255.81.67:8167?hops=1&datagram_bytes=1400&bytes_per_s=12500000`, or with an
IPv6 address, `udp://[ff15::5143]:8167?...`. To the data path, a group is a contact like a peer: its id is the hash of
that text, its address the text itself. A peer that takes part in it (`Host.multicast`) may send bundles to that
contact, and gets the bundles of others as the input `datagram`.
"""

import hashlib
import ipaddress
import re
from typing import NamedTuple

from quillcast.core.errors import Malformed
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact

SCHEME = "udp://"
FRAGMENTS_MAX = 64  # datagrams of one bundle; a guess: losing one of them loses the bundle
DATAGRAM_BYTES_MIN = 512  # RFC 791: every host must accept this much
OVERHEAD_BYTES = 60  # of each datagram, for its header and the proof that it is genuine
_VARIABLE_BYTES = 2048  # what a bundle's tags, record and list of blocks usually take at most
_WRITTEN = re.compile(
    r"udp://(\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):(\d+)\?hops=(\d+)&datagram_bytes=(\d+)&bytes_per_s=(\d+)(?:&of=([0-9a-f]{16}))?",
    re.ASCII,
)


class UdpGroup(NamedTuple):
    """A UDP multicast group, and how members send to it."""

    host: str
    port: int
    hops: int
    """Routers that may forward a datagram, plus one."""
    datagram_bytes: int
    """The largest datagram, without UDP and IP headers."""
    bytes_per_s: int
    """The most that one member may send per second, with overhead."""
    of: str = ""
    """The scope, because several may use the same group: the first digits of its id, or the last for what comes in."""

    def __str__(self) -> str:
        pace = f"hops={self.hops}&datagram_bytes={self.datagram_bytes}&bytes_per_s={self.bytes_per_s}"
        host = f"[{self.host}]" if self.is_ipv6 else self.host
        return f"{SCHEME}{host}:{self.port}?{pace}" + (f"&of={self.of}" if self.of else "")

    @property
    def is_ipv6(self) -> bool:
        """Whether it is an IPv6 group."""
        return ":" in self.host

    @property
    def fragment_bytes(self) -> int:
        """The bytes of a bundle in one datagram."""
        return self.datagram_bytes - OVERHEAD_BYTES

    @property
    def bundle_bytes_max(self) -> int:
        """The largest bundle that can be sent, without its tags and record."""
        return FRAGMENTS_MAX * self.fragment_bytes - _VARIABLE_BYTES


def parse(mechanism: str) -> UdpGroup:
    """Parse the text of a group. Raises `Malformed`."""
    match = _WRITTEN.fullmatch(mechanism)
    numbers = [int(number) for number in match.groups()[1:5] if len(number) < 12] if match else []
    if match is None or len(numbers) < 4:
        raise Malformed(f"{mechanism!r} is not a multicast mechanism that this version knows")
    port, hops, datagram_bytes, bytes_per_s = numbers
    group = UdpGroup(match[1].strip("[]"), port, hops, datagram_bytes, bytes_per_s, match[6] or "")
    if not (is_group(group.host) and 0 < group.port < 1 << 16 and 0 < group.hops < 256 and group.bytes_per_s):
        raise Malformed(f"{mechanism!r} names no UDP multicast group")
    if not DATAGRAM_BYTES_MIN <= group.datagram_bytes < 1 << 16:
        raise Malformed(f"{mechanism!r} has datagrams of a size that UDP does not carry")
    return group


def is_group(host: str) -> bool:
    """Whether this is a multicast address that applications may use.

    For IPv4, that is one outside of 224.0.0.0/24 (RFC 5771). For IPv6, in its shortest form, it is one that is not
    permanently assigned and has more than interface scope (RFC 4291, 2.7).
    """
    if ":" in host:
        return _is_ipv6_group(host)
    parts = [int(part) for part in host.split(".") if part.isascii() and part.isdigit() and len(part) < 4]
    return len(parts) == 4 and max(parts) < 256 and 224 <= parts[0] < 240 and parts[:3] != [224, 0, 0]


def _is_ipv6_group(host: str) -> bool:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return False
    flags, scope = address.packed[1] >> 4, address.packed[1] & 15
    return address.is_multicast and str(address) == host and flags & 1 == 1 and 1 < scope < 15


def contact(mechanism: str) -> Contact:
    """The contact of a group for the data path."""
    return Contact(hashlib.sha256(mechanism.encode()).digest()[:ID_BYTES], mechanism)
