"""The one interface through which protocols reach the outside world (docs/design.md, decision 1).

A host carries out orders and hands things in, one at a time; it never calls into a peer in the midst of that peer's
step, not even for a message to itself. The same protocol code runs on `live.runtime.host` and on `sim.host`.
"""

from random import Random
from typing import Any, Protocol

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Record


class Timer(msgspec.Struct, frozen=True):
    """What a layer has told itself later: a value. On arrival the layer asks whether it still matters."""


class Disk(Protocol):
    """Append-only named files. Every order answers later, as the input `disk_done(token, result)`, in the order given.

    `result` is bytes for `read`, a byte count or offset for the rest, or a `DiskFailed`.
    """

    def append(self, name: str, data: bytes, token: Any) -> None:
        """Append; the result is the offset at which the data begins."""
        ...

    def sync(self, name: str, token: Any) -> None:
        """Make everything appended so far survive a power loss."""
        ...

    def read(self, name: str, offset: int, size_bytes: int, token: Any) -> None:
        """Read up to `size_bytes`; fewer only at the end of the file."""
        ...

    def truncate(self, name: str, size_bytes: int, token: Any) -> None:
        """Cut the file to `size_bytes`."""
        ...


class Host(Protocol):
    """What a peer may ask of the world. Times are seconds on one monotonic clock; sizes are bytes."""

    me: NodeId
    contact: Contact
    random: Random
    disk: Disk
    incarnation: bytes
    """8 bytes, new at each start of the peer."""

    def now(self) -> float:
        """Seconds on a monotonic clock of unknown origin."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 UTC, for people and journals; nothing may depend on it."""
        ...

    def send(self, to: Contact, message: Message) -> None:
        """Send a control message. Needs no credit; in order per link; may be lost when the link breaks."""
        ...

    def carry(self, to: Contact, bundle: Bundle) -> None:
        """Send a bundle. Uses `bundle.size` bytes of the link's credit; ask `room` first, but for a repair's first."""
        ...

    def room(self, to: Contact) -> int:
        """Bytes of credit left towards a peer; what a link will start with, if there is none yet.

        When it was not positive and becomes so again, the input `room(contact)` tells; also when it passes the half of
        `window`.
        """
        ...

    def window(self, to: Contact) -> int:
        """Bytes of credit that a link to a peer has when nothing is under way."""
        ...

    def release(self, sender: bytes, size_bytes: int) -> None:
        """Give credit back to a peer whose bundle's bytes have left this one."""
        ...

    def set_timer(self, timer: Timer, delay_s: float) -> None:
        """Hand `timer` in once, `delay_s` or more later. EmptyDict needs cancelling."""
        ...

    def proximity(self, node: bytes) -> float | None:
        """Measured round trip to a peer in seconds, or None if unknown."""
        ...

    def measure(self, to: Contact) -> None:
        """Measure the proximity of a peer; the answer comes as the input `measured(contact, proximity | None)`."""
        ...

    def disconnect(self, node: bytes) -> None:
        """No layer needs the link to this peer any more; the host may close it when nothing waits on it."""
        ...

    def trace(self, record: Record) -> None:
        """Note what happened, for stories, journals and the audit."""
        ...


class Inputs(Protocol):
    """What a host hands in; `protocol.peer.Peer` is it. One input runs to its end before the next begins."""

    def message(self, sender: Contact, message: Any) -> None:
        """A control message arrived."""
        ...

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        """A bundle arrived; its bytes are charged to the link until `Host.release`."""
        ...

    def timer(self, timer: Timer) -> None:
        """A timer set before is due, or past due."""
        ...

    def link_up(self, contact: Contact) -> None:
        """A link to this peer stands (again)."""
        ...

    def link_lost(self, contact: Contact) -> None:
        """The link broke or could not be made. A hint, not a verdict: the peer may live."""
        ...

    def died(self, contact: Contact) -> None:
        """This peer's process has ended, and that is certain: it ran on this machine."""
        ...

    def room(self, contact: Contact) -> None:
        """There is credit again towards this peer."""
        ...

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """The answer to `Host.measure`: seconds of round trip, or None if the peer did not answer."""
        ...

    def disk_done(self, token: Any, result: Any) -> None:
        """The answer to an order to the disk."""
        ...
