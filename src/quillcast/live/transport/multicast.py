"""UDP multicast groups: one socket to send and one to receive for each group that a peer takes part in.

There is no credit in a group. A sender keeps to the pace set by the scope's policy and queues little: the rest stays in
the logs of its topics. Receivers drop bundles that they have no room for. Lost bundles are requested along the topic's
tree, whose links have credit, so a slow receiver slows its publishers as it does without a group.
"""

import errno
import fcntl
import socket
import struct
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed
from quillcast.core.messages import Contact
from quillcast.core.multicast import UdpGroup, contact, parse
from quillcast.live.runtime.problems import Problems
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.datagrams import Cutter, Joiner

QUEUE_BYTES_MAX = 256 << 10  # of bundles that wait to be sent; a guess: 20 ms at 100 Mbit/s
BURST_S = 0.004  # how much a delayed sender may catch up; a guess: timers are late by a millisecond or two
PACE_S = 0.001  # between two checks of a queue that must wait
RECEIVE_BYTES = 4 << 20  # requested from the kernel for datagrams that arrive while this process is busy; a guess
READS_MAX = 64  # datagrams that are read in a row; a guess: links must wait meanwhile
_ANY_INTERFACE = "0.0.0.0"
_DATAGRAM_BYTES_MAX = 1 << 16
_SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface


class MulticastGroups:
    """The groups of one peer. `interface` is the address at which it listens."""

    def __init__(self, pump: Pump, me: bytes, incarnation: bytes, counters: Counter[str], problems: Problems) -> None:
        self._pump, self._counters, self._problems = pump, counters, problems
        self._cutter = partial(Cutter, sender=me, incarnation=incarnation, numbers=count())
        self._joiner = partial(Joiner, me=me)
        self.interface = _ANY_INTERFACE
        self.groups: dict[bytes, GroupSocket] = {}

    def send_from(self, interface: str) -> None:
        """Send and receive at this address of the machine."""
        self.interface = interface

    def take_part(self, groups: Mapping[str, bytes]) -> None:
        """Take part in exactly these groups, each with its key."""
        wanted = {contact(mechanism).node_id: (mechanism, key) for mechanism, key in groups.items()}
        for id_ in [id_ for id_ in self.groups if id_ not in wanted]:
            self.groups.pop(id_).close()
        for id_, (mechanism, key) in wanted.items():
            try:
                if id_ not in self.groups:
                    self.groups[id_] = self._opened(parse(mechanism), contact(mechanism))
                    self._pump.hand(self._pump.inputs.room, contact(mechanism))
                group = self.groups[id_]
                group.cutter, group.joiner = self._cutter(group.group, key), self._joiner(key)
            except (Malformed, OSError) as problem:
                self._problems.append(f"cannot take part in multicast, bundles come over links: {problem}: {mechanism}")

    def room(self, to: Contact) -> int:
        """Bytes that a group accepts now; 0 if this peer does not take part in it."""
        group = self.groups.get(to.node_id)
        return group.room if group is not None else 0

    def _opened(self, group: UdpGroup, to: Contact) -> "GroupSocket":
        return GroupSocket(self._pump, group, to, self.interface, self._counters)


class GroupSocket:
    """One group: its send queue, and what it receives."""

    cutter: Cutter
    joiner: Joiner

    def __init__(self, pump: Pump, group: UdpGroup, to: Contact, interface: str, counters: Counter[str]) -> None:
        """Join the group. Raises `OSError`."""
        self._pump, self.group, self.contact, self._counters = pump, group, to, counters
        self._queue: deque[tuple[bytes, int]] = deque()  # datagrams, the last of a bundle with its size
        self._queued_bytes = 0
        self._allowed = 0.0  # bytes that may be sent now
        self._allowed_at = pump.loop.time()
        self._full = self._waits = False
        self._to = _place(group, interface)
        self._receiver = _receiver(group, interface)
        try:
            self._sender = _sender(group, interface)
        except OSError:
            self._receiver.close()
            raise
        pump.loop.add_reader(self._receiver, self._read)

    @property
    def room(self) -> int:
        """Bytes of bundles that it accepts now."""
        room = QUEUE_BYTES_MAX - self._queued_bytes
        self._full = self._full or room <= 0
        return room

    def carry(self, bundle: Bundle) -> None:
        """Send a bundle at the group's pace."""
        datagrams = [(each, 0) for each in self.cutter.cut(bundle)]
        if not datagrams:
            self._counters["datagrams_unsent"] += 1
            return
        datagrams[-1] = datagrams[-1][0], bundle.size
        self._queue += datagrams
        self._queued_bytes += bundle.size
        if not self._waits:
            self._send()

    def close(self) -> None:
        """Leave the group."""
        self._pump.loop.remove_reader(self._receiver)
        self._queue.clear()
        self._receiver.close()
        self._sender.close()

    def _send(self) -> None:
        now = self._pump.loop.time()
        most = self.group.bytes_per_s * BURST_S
        self._allowed = min(self._allowed + (now - self._allowed_at) * self.group.bytes_per_s, most)
        self._allowed_at = now
        while self._queue and self._allowed > 0 and self._put(self._queue[0][0]):
            datagram, bundle_bytes = self._queue.popleft()
            self._allowed -= len(datagram)
            self._queued_bytes -= bundle_bytes
        self._waits = bool(self._queue)
        if self._waits:
            self._pump.loop.call_later(PACE_S, self._send)
        if self._full and self._queued_bytes < QUEUE_BYTES_MAX // 2:
            self._full = False
            self._pump.hand(self._pump.inputs.room, self.contact)

    def _put(self, datagram: bytes) -> bool:
        """Hand a datagram to the kernel; False if it must wait. One that cannot be sent is lost, like any other."""
        try:
            self._sender.sendto(datagram, self._to)
        except OSError as problem:
            if problem.errno in (errno.EAGAIN, errno.ENOBUFS):
                return False
            self._counters["datagrams_unsent"] += 1
        else:
            self._counters["datagrams_out"] += 1
        return True

    def _read(self) -> None:
        for _ in range(READS_MAX):
            try:
                datagram = self._receiver.recv(_DATAGRAM_BYTES_MAX)
            except OSError:  # nothing more to read; errors of a multicast socket do not concern later datagrams
                return
            try:
                bundle = self.joiner.take(datagram)
            except Malformed:
                self._counters["datagrams_refused"] += 1
                continue
            self._counters["datagrams_in"] += 1
            if bundle is not None and not self._pump.closed:
                self._pump.hand(self._pump.inputs.datagram, self.contact, bundle)


def _receiver(group: UdpGroup, interface: str) -> socket.socket:
    receiver = _socket(group)
    try:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # other peers of this machine join it, too
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        receiver.bind(_place(group, interface))
        if group.is_ipv6:
            wanted = socket.inet_pton(socket.AF_INET6, group.host) + struct.pack("=I", _index(interface))
            receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, wanted)
        else:
            wanted = socket.inet_aton(group.host) + socket.inet_aton(_ipv4(interface))
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, wanted)
    except OSError:
        receiver.close()
        raise
    return receiver


def _sender(group: UdpGroup, interface: str) -> socket.socket:
    sender = _socket(group)
    try:
        if group.is_ipv6:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, _index(interface))
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, group.hops)
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        else:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(_ipv4(interface)))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, group.hops)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except OSError:
        sender.close()
        raise
    return sender


def _socket(group: UdpGroup) -> socket.socket:
    family = socket.AF_INET6 if group.is_ipv6 else socket.AF_INET
    return socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def _place(group: UdpGroup, interface: str) -> tuple[str, int] | tuple[str, int, int, int]:
    """A group's address in the form for sockets of its family."""
    return (group.host, group.port, 0, _index(interface)) if group.is_ipv6 else (group.host, group.port)


def _ipv4(interface: str) -> str:
    return _ANY_INTERFACE if ":" in interface else interface


def _index(address: str) -> int:
    """The index of the interface with this address; 0 if unknown: then the kernel chooses by its routes."""
    try:
        wanted = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except OSError:
        return 0
    if len(wanted) > 4:
        return _index_of_ipv6(wanted)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for index, name in socket.if_nameindex():
            with suppress(OSError):  # it has no address
                told = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("40s", name.encode()))
                if told[20:24] == wanted:
                    return index
    return 0


def _index_of_ipv6(wanted: bytes) -> int:
    with suppress(OSError), Path("/proc/net/if_inet6").open() as addresses:
        for line in addresses:
            address, index, *_ = line.split()
            if bytes.fromhex(address) == wanted:
                return int(index, 16)
    return 0
