"""The live `Host`: one peer on asyncio. It carries out the orders of the protocols and does not interpret them."""

import secrets
import sys
import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.host import Disk, Timer
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Record
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.links import Links

INCARNATION_BYTES = 8
_TICK_S = 0.001  # libuv counts milliseconds, and a timer must not come early


def new_incarnation() -> bytes:
    """Bytes that distinguish this run of a peer from all others."""
    return secrets.token_bytes(INCARNATION_BYTES)


def clock() -> Callable[[], float]:
    """A monotonic clock, if possible one that runs while the machine is suspended, as leases elsewhere do."""
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic


class LiveHost:
    """Carries out the orders of one peer with sockets, timers and files."""

    def __init__(self, pump: Pump, links: Links, disk: Disk, trace: Callable[[Record], None]) -> None:
        self.me: NodeId = links.handshake.identity.node_id
        self.contact = links.contact
        self.incarnation = links.handshake.incarnation
        self.random = Random(secrets.randbits(128))
        self.disk = disk
        self.now = clock()
        self.wall_ns = time.time_ns
        self.trace = trace
        self.room = links.room
        self.release = links.release
        self.measure = links.measure
        self.disconnect = links.disconnect
        self.multicast = links.multicast.take_part
        self.proximity = links.round_trips.best
        self._pump, self._links = pump, links

    def send(self, to: Contact, message: Message) -> None:
        if to.node_id == self.me:
            self._pump.loop.call_soon(self._pump.hand, self._pump.inputs.message, to, message)
        else:
            self._links.send(to, message)

    def carry(self, to: Contact, bundle: Bundle) -> None:
        link = self._links.links.get(to.node_id)
        if link is not None:
            link.carry(bundle)
        elif to.node_id == self.me:
            self._pump.loop.call_soon(self._pump.hand, self._pump.inputs.bundle, to, bundle)
        else:
            self._links.way(to).carry(bundle)

    def set_timer(self, timer: Timer, delay_s: float) -> None:
        if delay_s > 0:
            self._pump.later(delay_s + _TICK_S, self._fire, timer)
        else:
            self._pump.defer(self._pump.inputs.timer, timer)

    def _fire(self, timer: Any) -> None:
        self._pump.hand(self._pump.inputs.timer, timer)
