"""The only interface through which protocols reach the outside world (docs/design.md, decision 1).

A host carries out orders and passes inputs to a peer one at a time. It never calls a peer during a step of that peer,
not even for a message to itself. The same protocol code runs on `live.node.host` and on `sim.host`.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Record

RESERVED_EIGHTHS = {False: 2, True: 3}
"""The part of a link's credit that publishers, and topics that wait for slow subscribers, reserve for others.

Publishers reserve a quarter for everything that goes down trees, and for repairs. Topics that wait for slow subscribers
reserve an eighth more for all other topics, including publishers' events. The smaller these parts are, the more of a
publisher's events are in transit: with half of the window, three processes on two cores waited for each other.
"""


def makes_room(before_bytes: int, credit_bytes: int, window_bytes: int) -> bool:
    """Whether the risen credit gives room to a sender that had none."""
    low, high = window_bytes // 4, window_bytes * 3 // 8  # `RESERVED_EIGHTHS`; this runs often in simulations
    return before_bytes <= 0 < credit_bytes or before_bytes <= low < credit_bytes or before_bytes <= high < credit_bytes


class Timer(msgspec.Struct, frozen=True):
    """A value that a layer sets to receive it later. When it arrives, the layer checks whether it still matters."""


class Disk(Protocol):
    """Append-only files with names. Each order is answered later, in order, by the input `disk_done(token, result)`.

    `result` is bytes for `read`, a byte count or offset for the others, or a `DiskFailed`.
    """

    def append(self, name: str, data: bytes, token: Any) -> None:
        """Append data. The result is the offset at which it begins."""
        ...

    def sync(self, name: str, token: Any) -> None:
        """Make everything appended so far survive a power loss."""
        ...

    def read(self, name: str, offset: int, size_bytes: int, token: Any) -> None:
        """Read up to `size_bytes` bytes. Fewer are returned only at the end of the file."""
        ...

    def truncate(self, name: str, size_bytes: int, token: Any) -> None:
        """Truncate the file to `size_bytes` bytes."""
        ...


class Clock(Protocol):
    """The times of a peer. Seconds are on one monotonic clock."""

    def now(self) -> float:
        """Seconds on a monotonic clock with an arbitrary origin."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 UTC, for people and journals.

        One decision depends on it: terms beyond what peers can reach are ignored (docs/decisions/bounded-terms.md).
        """
        ...

    def set_timer(self, timer: Timer, delay_s: float) -> None:
        """Pass `timer` in once, after `delay_s` seconds or more. Timers need not be cancelled."""
        ...


class Carrier(Protocol):
    """What carries messages and bundles to other peers. Sizes are bytes."""

    def send(self, to: Contact, message: Message) -> None:
        """Send a control message. It needs no credit, keeps its order, and may be lost if the link breaks."""
        ...

    def carry(self, to: Contact, bundle: Bundle) -> None:
        """Send a bundle, which uses `bundle.size` bytes of credit: check `room` first, except for due repairs."""
        ...

    def room(self, to: Contact, reserved_eighths: int = 0) -> int:
        """Bytes of credit left towards a peer beyond this many eighths of the link's window.

        Without a link, the credit of a new one. After the credit was zero or less, the input `room(contact)` reports
        when it is positive again, and also when it passes one of `RESERVED_EIGHTHS` (`makes_room`).
        """
        ...

    def release(self, sender: bytes, size_bytes: int) -> None:
        """Return credit to a peer, because this peer no longer holds the bytes of its bundle."""
        ...

    def multicast(self, groups: Mapping[str, bytes]) -> None:
        """Take part in exactly these external multicast mechanisms, each with its key.

        `carry` and `room` accept the contact of such a group (`core.multicast.contact`) like that of a peer. Bundles of
        other members are the input `datagram`. They may be lost, repeated, or arrive in any order.
        """
        ...

    def disconnect(self, node: bytes) -> None:
        """No layer needs the link to this peer any longer. The host may close it when nothing waits to be sent."""
        ...


class Meter(Protocol):
    """What measures the distance of other peers."""

    def proximity(self, node: bytes) -> float | None:
        """The measured round-trip time to a peer in seconds, or None if unknown."""
        ...

    def measure(self, to: Contact) -> None:
        """Measure the proximity of a peer. The answer is the input `measured(contact, proximity | None)`."""
        ...


class Tracer(Protocol):
    """What records the actions of a peer."""

    def trace(self, record: Record) -> None:
        """Record an action, for stories, journals and the audit."""
        ...


class Host(Clock, Carrier, Meter, Tracer, Protocol):
    """What a peer may request from its environment. A part that needs less names what it needs."""

    me: NodeId
    contact: Contact
    random: Random
    disk: Disk
    incarnation: bytes
    """Eight bytes that are new at each start of the peer."""


class ArrivalInputs(Protocol):
    """What arrives from other peers."""

    def message(self, sender: Contact, message: Any) -> None:
        """A control message arrived."""
        ...

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        """A bundle arrived. Its bytes count against the link's credit until `Host.release`."""
        ...

    def datagram(self, group: Contact, bundle: Bundle) -> None:
        """A bundle arrived over a multicast group. Its bytes count for the group's id until `Host.release`."""
        ...


class LinkInputs(Protocol):
    """What becomes of the links to other peers."""

    def link_up(self, contact: Contact) -> None:
        """A link to this peer is up (again)."""
        ...

    def link_lost(self, contact: Contact) -> None:
        """The link broke or could not be opened. This is a hint, not a verdict: the peer may be alive."""
        ...

    def died(self, contact: Contact) -> None:
        """The peer's process has ended. This is certain, because it ran on this machine."""
        ...

    def room(self, contact: Contact) -> None:
        """There is credit for this peer again."""
        ...


class AnswerInputs(Protocol):
    """What a peer asked its host for."""

    def timer(self, timer: Timer) -> None:
        """A timer is due, or overdue."""
        ...

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """The answer to `Host.measure`: the round-trip time in seconds, or None if the peer did not answer."""
        ...

    def disk_done(self, token: Any, result: Any) -> None:
        """The answer to an order to the disk."""
        ...


class Inputs(ArrivalInputs, LinkInputs, AnswerInputs, Protocol):
    """The inputs that a host passes to a peer (`protocol.peer.Peer`). A peer finishes each before the next one."""
