"""IP multicast."""

import ipaddress
from typing import Annotated, ClassVar

import msgspec

from quillcast.core.multicast import UdpGroup, is_group
from quillcast.protocol.scopes.policy import ALL, Delivery, Group, RoundTrips, WantedChannel


class IpMulticast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network copies each bundle: a sender sends it once, as UDP datagrams, to a group that all receivers join.

    Datagrams are encrypted with a key that the scope's manager gives to its members. What is lost is fetched along the
    topic's tree, and bundles that are too large go there at once.
    """

    delivery: ClassVar[Delivery] = "lossy"
    group: str = "239.255.81.67:8167"
    hops: Annotated[int, msgspec.Meta(ge=1, le=255)] = 1
    datagram_bytes: Annotated[int, msgspec.Meta(ge=512, le=65_000)] = 1400
    bytes_per_s: Annotated[int, msgspec.Meta(ge=10_000, le=10_000_000_000)] = 12_500_000

    def __post_init__(self) -> None:
        host, port = self._parts()
        if not (is_group(host) and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(
                f'group = "{self.group}" is not a multicast group; write an address and a port, such as '
                "239.255.81.67:8167 (IPv4: 224.0.1.0 or higher) or [ff15::5143]:8167 (IPv6: a transient address, "
                "such as ff1...)"
            )

    def _parts(self) -> tuple[str, str]:
        host, _, port = self.group.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            try:
                return str(ipaddress.IPv6Address(host[1:-1])), port
            except ValueError:
                return "", port
        return ("" if ":" in host else host), port

    @property
    def mechanism(self) -> str:
        """The group, and how members send to it."""
        host, port = self._parts()
        return str(UdpGroup(host, int(port), self.hops, self.datagram_bytes, self.bytes_per_s))

    def fan_out_max(self, group: Group) -> int:
        return 1

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        receivers = frozenset(group.receivers)
        return tuple(WantedChannel(each, ALL, each) for each in sorted(group.senders) if receivers - {each})
