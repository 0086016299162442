"""Links between simulated hosts: the behaviour of a TCP connection, as seen by the two processes at its ends.

The first message opens a link. It takes a round trip to establish. It breaks when a process dies (the other side learns
of it after a delay), when nothing is acknowledged for too long, or when the other side has a newer link. Data in
transit may then be lost. Each direction has credit for bundles, and control messages overtake data.
"""

from collections.abc import Callable
from typing import Any

from quillcast.core.host import makes_room
from quillcast.core.messages import Contact
from quillcast.sim.clock import Action
from quillcast.sim.network import RETRANSMIT_S_MAX, UNDISTURBED, Quality
from quillcast.sim.process import Process

CONNECT_TIMEOUT_S = 5.0  # a connection that is not established by then has failed; a guess, as in most clients
UNANSWERED_TIMEOUT_S = 20.0  # data that is not acknowledged for this long breaks a link (TCP_USER_TIMEOUT); a guess
BYTES_PER_S = 100e6  # for bundles without another limit; a guess: a gigabit

Sent = tuple[Callable[["End", Any], None], Any, int]
"""What to do at the far end, with which argument, and the size in bytes of a bundle (0 if no credit is needed)."""


_NO_QUEUE: list[tuple[Action, Any, int]] = []  # shared by all ends of paths that are wide


class End:
    """One host's end of a link. `far` is the other end, once the other side has accepted."""

    __slots__ = (
        "blocked", "bundle_at", "contact", "delay_s", "far", "free_at", "held", "host", "last_at", "links", "open",
        "quality", "queue", "room", "squeezes", "there", "troubled", "unanswered_since", "unneeded", "up", "waiting",
        "width",
    )  # fmt: skip

    def __init__(self, links: "Links", contact: Contact) -> None:
        """`links` are those of the process that holds this end."""
        host = links.host
        self.links, self.host, self.contact = links, host, contact
        self.there = host.world.number_at(contact.address)
        self.far: End | None = None
        self.open, self.up, self.unneeded = True, False, False
        self.waiting: list[Sent] | None = None  # what to send once the link is established
        self.held: list[tuple[Action, Any, int]] | None = None  # what the kernel retransmits while the path is cut
        self.queue = _NO_QUEUE  # bundles that pass a narrow path one by one
        self.width, self.squeezes = 0.0, 0  # bytes per second; 0 means as much as a fast link carries
        self.room = host.world.window_bytes
        self.last_at = self.bundle_at = self.free_at = 0.0
        self.unanswered_since: float | None = None
        self.quality: Quality | None = None
        self.blocked = self.troubled = False
        if host.world.network.calm:  # as `look` would find, in a third of the time: links come and go
            self.delay_s = host.world.network.delay_s(host.number, self.there)
        else:
            self.look()

    # --- called by the host

    def call(self) -> None:
        """Ask for a link at the other end's address."""
        self._put(self.links.exchange.knock, self)

    def accept(self) -> None:
        """Tell the caller, the far end, that its call was accepted. A caller that gets no answer gives up."""
        assert self.far is not None
        if self.blocked:
            self.far.unanswered()
        self._put(self.far.established, self)

    def send_calm(self, wire: Any) -> None:
        """Send a control message on an undisturbed link that is up: the most frequent case, written out in full."""
        assert self.far is not None
        self.unneeded = False
        world = self.host.world
        at = world.now + self.delay_s
        if at < self.last_at:
            at = self.last_at
        self.last_at = at
        world.at(at, self.far.receive, wire)

    def send(self, wire: Any) -> None:
        """Send a control message."""
        self.unneeded = False
        if self.far is not None:
            self._put(self.far.receive, wire)
        else:
            self._wait(End.receive, wire, 0)

    def carry(self, wire: Any, size_bytes: int) -> None:
        """Send a bundle, using credit."""
        self.room -= size_bytes
        self.unneeded = False
        self._when_up(End.receive_bundle, wire, size_bytes)

    def release(self, size_bytes: int) -> None:
        """Return credit to the other side."""
        self._when_up(End.receive_credit, size_bytes)

    def bye(self) -> None:
        """This side no longer needs the link. When neither side does, it closes, and no peer is notified."""
        self.unneeded = True
        if self.far is not None and self.far.unneeded:
            self._put(self.far.part, None)

    def close(self) -> None:
        """The process has ended or gives up: the kernel notifies the other side, if the path is open."""
        self.open = False
        if self.far is not None and not self.blocked:
            world = self.host.world
            if self.queue:
                self.queue.append((self.far.reset, None, 0))
                return
            world.at(max(self.last_at, self.bundle_at, world.now + self.delay_s), self.far.reset, None)

    def look(self) -> None:
        """Check the current state of the network between the two machines."""
        network, here, there, was_blocked = self.host.world.network, self.host.number, self.there, self.blocked
        self.delay_s = network.delay_s(here, there)
        if network.calm:
            self.quality, self.blocked, self.troubled = None, False, False
        else:
            self.quality, self.blocked = network.quality(here, there), network.blocked(here, there)
            self.troubled = self.blocked or network.blocked(there, here)
        if self.up and not self.troubled:
            self.unanswered_since = None
        before, self.width = self.width, self.quality.bytes_per_s if self.quality is not None else 0.0
        if not self.blocked:
            self._send_again()
            if was_blocked or before != self.width:
                self._squeeze()

    # --- arrivals at this end

    def receive(self, wire: Any) -> None:
        """Receive a control message. This handler is written out in full because it is the most frequent."""
        host = self.host
        if self.open and host.backlog is None:
            world = host.world
            world.count_step()
            host.inputs.message(self.contact, world.decode(wire))
            if host.stepped is not None:
                host.stepped()
        else:
            self._ready(self.receive, wire)

    def receive_bundle(self, wire: Any) -> None:
        """Receive a bundle, as bytes or by reference."""
        if self._ready(self.receive_bundle, wire):
            bundle = self.host.world.unpack(wire)
            self.host.charge(self.contact.node_id, bundle.size)
            self.host.hand_in(self.host.inputs.bundle, self.contact, bundle)

    def receive_credit(self, size_bytes: int) -> None:
        """The other side has returned credit."""
        if self._ready(self.receive_credit, size_bytes):
            window_bytes = self.host.world.window_bytes
            before, self.room = self.room, min(self.room + size_bytes, window_bytes)
            if makes_room(before, self.room, window_bytes):
                self.host.hand_in(self.host.inputs.room, self.contact)

    def part(self, _: None) -> None:
        """Neither side needs the link. It closes once everything that was sent meanwhile has arrived."""
        far = self.far
        if not self._ready(self.part, None) or far is None or not (self.unneeded and far.unneeded):
            return
        world = self.host.world
        under_way_until = max(self.last_at, self.bundle_at, far.bundle_at)
        if under_way_until > world.now:
            world.at(under_way_until, self.part, None)
        elif not (self.held or self.queue or far.held or far.queue):
            for end in (self, far):
                end.open, end.far = False, None
                end.links.forget(end)

    def established(self, far: "End") -> None:
        """The other side accepted the call."""
        if self.host.waits(self.established, far):
            return
        if not self.open:
            self.far = far  # it learns that now, or, if the path is cut, when it sends something
            far.refused()
        else:
            self.far, self.up, self.unanswered_since = far, True, None
            self.contact = far.host.contact  # instead of an equal one from a message, of which each peer has its own
            self.host.hand_in(self.host.inputs.link_up, self.contact)
            self.send_waiting(self.waiting)

    def reset(self, _: None) -> None:
        """The other side's end is closed."""
        if not self.host.waits(self.reset, None) and self.open:
            self.open = False
            self.links.lost(self)

    def refused(self) -> None:
        """Learn that there is no process at the other side, if the network lets that through."""
        world = self.host.world
        if world.network.blocked(self.there, self.host.number):
            self.unanswered()
        else:
            world.after(world.network.delay_s(self.there, self.host.number), self.reset, None)

    # --- in transit

    def send_waiting(self, waiting: list[Sent] | None) -> None:
        """Send what waited until the link was established."""
        self.waiting = None
        for action, argument, bundle_bytes in waiting or ():
            self._when_up(action, argument, bundle_bytes)

    def unanswered(self) -> None:
        """Something was sent that may never be answered: give up after a while, unless the path is restored by then."""
        if self.unanswered_since is None:
            self.unanswered_since = since = self.host.world.now
            self.host.world.after(UNANSWERED_TIMEOUT_S if self.up else CONNECT_TIMEOUT_S, self._give_up, since)

    def _give_up(self, since: float) -> None:
        if not self.host.waits(self._give_up, since) and self.open and self.unanswered_since == since:
            self.close()
            self.links.lost(self)

    def _ready(self, action: Action, argument: Any) -> bool:
        """Whether this can be handled now. A paused process does it later; a closed end refuses it."""
        if self.host.waits(action, argument):
            return False
        if not self.open and self.far is not None:
            self.far.refused()
        return self.open

    def _when_up(self, action: Callable[["End", Any], None], argument: Any, bundle_bytes: int = 0) -> None:
        if self.far is not None:
            self._put(action.__get__(self.far), argument, bundle_bytes)
        else:
            self._wait(action, argument, bundle_bytes)

    def _wait(self, action: Callable[["End", Any], None], argument: Any, bundle_bytes: int) -> None:
        if self.waiting is None:
            self.waiting = []
        self.waiting.append((action, argument, bundle_bytes))

    def _put(self, action: Action, argument: Any, bundle_bytes: int = 0) -> None:
        """Send something."""
        if self.troubled:
            self.unanswered()
        if bundle_bytes and (self.queue or (self.width and not self.blocked)):
            self.queue = self.queue or []
            self.queue.append((action, argument, bundle_bytes))
            if len(self.queue) == 1:
                self._squeeze()
        elif self.blocked:
            self._hold(action, argument, bundle_bytes)
        elif self.quality is None and not bundle_bytes:
            world = self.host.world
            at = world.now + self.delay_s
            if at < self.last_at:
                at = self.last_at
            self.last_at = at
            world.at(at, action, argument)
        else:
            self._pass(action, argument, bundle_bytes)

    def _pass(self, action: Action, argument: Any, bundle_bytes: int) -> None:
        """Put something on the network now."""
        if self.host.world.network.datagrams and self._lossy(action):
            self._put_datagram(action, argument, bundle_bytes)
        else:
            self._put_stream(action, argument, bundle_bytes)

    def _put_stream(self, action: Action, argument: Any, bundle_bytes: int) -> None:
        """Keep the order of bundles, and separately that of everything else."""
        world, quality = self.host.world, self.quality or UNDISTURBED
        at = world.now + world.network.stream_delay_s(self.delay_s, quality)
        if bundle_bytes:
            self.bundle_at = max(at + self._transfer_s(bundle_bytes), self.bundle_at)
            world.at(self.bundle_at, action, argument)
        else:
            self.last_at = max(at, self.last_at)
            world.at(self.last_at, action, argument)

    def _put_datagram(self, action: Action, argument: Any, bundle_bytes: int) -> None:
        world, quality = self.host.world, self.quality or UNDISTURBED
        delays = world.network.delays(self.delay_s, quality)
        if not delays:
            self._drop(bundle_bytes)
        transfer_s = self._transfer_s(bundle_bytes)
        for delay_s in delays:
            world.after(delay_s + transfer_s, action, argument)

    def _transfer_s(self, bundle_bytes: int) -> float:
        """How long a bundle takes on a fast link, after the bundles before it."""
        if self.width:
            return 0.0  # it came through the queue
        now = self.host.world.now
        self.free_at = max(now, self.free_at) + bundle_bytes / BYTES_PER_S
        return self.free_at - now

    # --- narrow paths

    def _squeeze(self) -> None:
        """Start to send the first queued bundle, or restart it at another width. A wide path sends all at once."""
        while self.queue and not self.width:
            self._pass(*self.queue.pop(0))
        self.squeezes += 1
        if self.queue:
            self.host.world.after(self.queue[0][2] / self.width, self._squeezed, self.squeezes)

    def _squeezed(self, squeezes: int) -> None:
        """Send the next queued bundle, because the first has passed. If the path is cut, it waits for `look`."""
        if squeezes != self.squeezes:
            return
        if not self.open:  # `look` is no longer called: the kernel sends its data if the machine has power
            self.blocked = self.host.world.network.blocked(self.host.number, self.there)
        if not self.blocked:
            self._pass(*self.queue.pop(0))
            self._squeeze()

    def _lossy(self, action: Action) -> bool:
        """Whether messages and bundles may be lost (datagrams). The link's own frames never are."""
        return self.far is not None and action in (self.far.receive, self.far.receive_bundle)

    def _hold(self, action: Action, argument: Any, bundle_bytes: int) -> None:
        """The path is cut: TCP keeps the bytes and retransmits, datagrams are lost."""
        if self.host.world.network.datagrams and self._lossy(action):
            self._drop(bundle_bytes)
        else:
            self.held = self.held or []
            self.held.append((action, argument, bundle_bytes))

    def _send_again(self) -> None:
        """The path is restored: the next retransmission sends what was held."""
        if not self.held:
            return
        held, self.held = self.held, None
        world = self.host.world
        late_s = world.network.random.uniform(0, RETRANSMIT_S_MAX)
        self.last_at = self.bundle_at = max(self.last_at, self.bundle_at, world.now + late_s)
        for action, argument, bundle_bytes in held:
            self._put(action, argument, bundle_bytes)

    def _drop(self, bundle_bytes: int) -> None:
        """A datagram is lost. The credit of a lost bundle is returned."""
        if bundle_bytes:
            self.host.world.after(self.delay_s, self.receive_credit, bundle_bytes)


class Links:
    """The links of one process, by the nodeId of the peer at the other end."""

    __slots__ = ("ends", "exchange", "host")

    def __init__(self, host: Process, exchange: "Exchange") -> None:
        self.host, self.exchange = host, exchange
        self.ends: dict[bytes, End] = {}

    def call(self, to: Contact) -> End:
        """Start to open a link."""
        end = self.ends[to.node_id] = End(self, to)
        end.call()
        return end

    def accept(self, caller: End) -> None:
        """Accept a call from another process. If both call at once, the call of the smaller nodeId wins."""
        host = self.host
        if not host.runs(self.accept, caller) or not caller.open:
            return
        node = caller.host.me
        mine = self.ends.get(node)
        waiting = mine.waiting if mine is not None else None
        if mine is not None and not mine.up and host.me < node:
            caller.unanswered()
            return
        if mine is not None:
            mine.open = False
        end = self.ends[node] = End(self, caller.host.contact)
        end.far, end.up = caller, True
        end.accept()
        if mine is not None and mine.up:  # the other side has forgotten the old link
            host.hand_in(host.inputs.link_lost, end.contact)
        host.hand_in(host.inputs.link_up, end.contact)
        end.send_waiting(waiting)

    def lost(self, end: End) -> None:
        """A link broke, or could not be established."""
        self.forget(end)
        self.host.hand_in(self.host.inputs.link_lost, end.contact)

    def forget(self, end: End) -> None:
        """An end of this process is closed."""
        if self.ends.get(end.contact.node_id) is end:
            del self.ends[end.contact.node_id]

    def close(self, *, silently: bool) -> None:
        """The process has ended: the kernel closes its links, unless the machine itself has failed."""
        for end in self.ends.values():
            if silently:
                end.open = False
            else:
                end.close()

    def look(self) -> None:
        """The network has changed."""
        for end in self.ends.values():
            end.look()


class Exchange:
    """The processes that can be called, by machine."""

    def __init__(self) -> None:
        self._links: dict[int, Links] = {}  # by machine

    def open(self, links: Links) -> None:
        """A process has started."""
        self._links[links.host.number] = links

    def close(self, number: int) -> None:
        """The process on a machine has ended."""
        del self._links[number]

    def others(self, number: int) -> list["Links"]:
        """The links of the processes on all other machines."""
        return [links for there, links in self._links.items() if there != number]

    def knock(self, caller: End) -> None:
        """A call arrives at a machine."""
        links = self._at(caller.there, caller.contact)
        if links is None:
            caller.refused()
            return
        if links.host.backlog is not None:
            caller.unanswered()
        links.accept(caller)

    def echo(self, asker: Process, there: int, contact: Contact) -> bool | None:
        """Whether machine `there` would answer this process's probe: True, False (refused), or None (no answer)."""
        network, here = asker.world.network, asker.number
        if network.blocked(here, there) or network.blocked(there, here):
            return None
        links = self._at(there, contact)
        return links is not None if links is None or links.host.backlog is None else None

    def contact_at(self, number: int) -> Contact:
        """The contact of the process on a machine: the object that all peers share."""
        return self._links[number].host.contact

    def _at(self, number: int, contact: Contact) -> Links | None:
        """The process on a machine, if it is running and is the one that the contact names."""
        links = self._links.get(number)
        return links if links is not None and links.host.me == contact.node_id else None
