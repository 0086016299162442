"""How a peer enters the ring (Pastry; Scribe, section 2.2).

It looks for a nearby active peer A, starting from the contacts it was given, and asks A to route a request to its own
id. The rows of the peers on the way and the leaf set of the closest one, Z, are its first state. Its leaf set then has
to agree (agreement.py) before it is active. An attempt of which one step takes too long is followed by another.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from quillcast.core.host import Timer
from quillcast.core.ids import ID_BITS, NodeId, number
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.messages import JoinReply, JoinRequest, State, StateRequest
from quillcast.protocol.overlay.routingtable import UNKNOWN

if TYPE_CHECKING:
    from quillcast.protocol.overlay.pastry import Pastry

_LOOKUP = 0  # in place of the attempt: an active peer looks for its own place, in a ring that may be another
_CONTACTS_MAX = 256  # peers tried as contacts, given ones and those that other joining peers try; a guess


class JoinLate(Timer, frozen=True):
    """Timer: this attempt should have come further than this step."""

    attempt: int
    step: int


class Joining:
    """One peer's way into the ring, and its help for others'."""

    def __init__(self, pastry: "Pastry") -> None:
        self.pastry, self.host, self.config = pastry, pastry.host, pastry.config
        self.replied = False
        self._attempt = self._step = 0
        self._contacts: dict[bytes, Contact] = {}  # given, and those that lead further
        self._met: dict[bytes, Contact] = {}  # who may be near: contacts and those they know
        self._measuring: dict[bytes, None] = {}
        self._inactive: dict[bytes, None] = {}  # contacts that are not active themselves, in this attempt
        self._failures: dict[bytes, int] = {}  # attempts that ended at a contact
        self._near: Contact | None = None  # A, as far as known
        self._rounds = 0

    def start(self, contacts: Sequence[Contact]) -> None:
        """Join through one of these; without any, this peer is the first."""
        self._add_contacts(contacts)
        if self._contacts:
            self._try()
        else:
            self.pastry.activate()

    def late(self, timer: JoinLate) -> None:
        """Try again, through somebody else if the last one did not answer."""
        if self.pastry.active or self.pastry.left or (timer.attempt, timer.step) != (self._attempt, self._step):
            return
        if self._measuring and self._nearest() is not None and not self.replied:
            self._measuring.clear()  # who has not answered by now is not near
            self._approach()
            return
        self.host.trace(Mark("join_retry"))
        if self.replied and len(self.pastry.leaf_set):
            self._set_timer()  # its members are being probed, and some are slow to answer or dead
            return
        if self._near is not None:
            self._failures[self._near.node_id] = self._failures.get(self._near.node_id, 0) + 1
        self._try()

    def _try(self) -> None:
        self._attempt += 1
        self._rounds, self._near, self.replied = 0, None, False
        self._inactive.clear()
        self._met = dict(self._contacts)
        self._set_timer()
        self._measure(list(self._met.values()))

    def _set_timer(self) -> None:
        """Be patient anew: something was achieved, or the next attempt begins."""
        self._wait(self.config.join_timeout_s * 2 ** min(self._attempt - 1, 16))

    def _wait(self, timeout_s: float) -> None:
        self._step += 1
        timeout_s = min(timeout_s, self.config.join_timeout_max_s)
        self.host.set_timer(JoinLate(self._attempt, self._step), timeout_s * (0.75 + self.host.random.random() / 2))

    # A nearby peer

    def _measure(self, contacts: Iterable[Contact]) -> None:
        """Measure these, then go on with the nearest."""
        for contact in contacts:
            if self.host.proximity(NodeId(contact.node_id)) is None and contact.node_id not in self._measuring:
                self._measuring[contact.node_id] = None
                self.host.measure(contact)
        if not self._measuring:
            self._approach()

    def measured(self, contact: Contact) -> None:
        """A measurement is done; with the last one, or soon after the last that was answered, the next step begins."""
        if self._measuring.pop(contact.node_id, self) is not None or self.pastry.active:
            return
        if not self._measuring:
            self._approach()
        elif self.host.proximity(NodeId(contact.node_id)) is not None:
            self._step += 1
            patience_s = self.config.join_timeout_s / 4  # the others may be dead
            self.host.set_timer(JoinLate(self._attempt, self._step), patience_s)

    def _approach(self) -> None:
        """Ask the nearest peer met so far whom it knows; once that was asked, join through it."""
        best = self._nearest()
        if best is None:
            self._be_first()
        elif self._near is not None and best.node_id == self._near.node_id:
            self._request(best)
        elif self._rounds >= self.config.nearby_rounds and self._near is not None:
            self._request(self._near)
        else:
            self._rounds += 1
            self._near = best
            self._wait(self.config.join_timeout_s * self._attempt)  # it may be dead: grow slower than for the request
            self.pastry.upkeep.visited(best.node_id)
            self.host.send(best, StateRequest())

    def _nearest(self) -> Contact | None:
        """The nearest peer that answered and is not inactive; those at which attempts failed come last."""
        there = [
            (self._failures.get(node_id, 0), proximity, node_id)
            for node_id in self._met
            if node_id not in self._inactive and (proximity := self.pastry.proximity(node_id)) < UNKNOWN
        ]
        return self._met[min(there)[2]] if there else None

    def state(self, sender: Contact, state: State) -> None:
        """The nearest peer so far says whom it knows: one of them may be nearer yet."""
        if self.pastry.active or self._near is None or sender.node_id != self._near.node_id or self.replied:
            return
        if not state.active:
            self._inactive[sender.node_id] = None
            self._near = None
            self._rounds -= 1
            self._add_contacts(state.leaf_set)
            self._met.update(self._contacts)
            self._measure(self._contacts.values())
            return
        known = {
            c.node_id: c for c in (*state.leaf_set, *state.table, *state.neighbourhood) if c.node_id != self.host.me
        }
        sample = self.host.random.sample(list(known.values()), min(len(known), self.config.measured_per_state))
        self._met.update((contact.node_id, contact) for contact in sample)
        self._measure(sample)

    def requested(self, sender: Contact, _: StateRequest) -> None:
        """Say whom this peer knows; a joining peer knows only its contacts."""
        if self.pastry.active:
            pastry = self.pastry
            state = State(True, tuple(pastry.leaf_set), tuple(pastry.routing_table), tuple(pastry.neighbourhood))
        else:
            state = State(False, tuple(self._contacts.values()), (), ())
        self.host.send(sender, state)
        self.pastry.neighbours.release(sender.node_id)

    def _add_contacts(self, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            if contact.node_id != self.host.me and len(self._contacts) < _CONTACTS_MAX:
                self._contacts.setdefault(contact.node_id, contact)

    def _be_first(self) -> None:
        """No contact is active. If some answered and wait like this peer, the one with the smallest id begins.

        So a network all of whose peers start at once comes up.
        """
        if self._attempt > 1 and self._inactive and self.host.me < min(self._inactive):
            self.host.trace(Mark("cold_start"))
            self.pastry.activate()

    # The request and its answer

    def _request(self, near: Contact) -> None:
        self._set_timer()
        request = JoinRequest(self.host.contact, self._attempt)
        self.pastry.upkeep.visited(near.node_id)
        self.host.send(near, self.pastry.router.wrap(request, self.host.me))

    def look_up(self, contact: Contact) -> None:
        """Find this active peer's place in the ring that `contact` is part of."""
        request = JoinRequest(self.host.contact, _LOOKUP, rows_given=ID_BITS)
        self.host.send(contact, self.pastry.router.wrap(request, self.host.me))

    def with_rows(self, request: JoinRequest) -> JoinRequest:
        """The request with those rows of this peer's table that are of use to the joiner and not in it yet."""
        shared = self.pastry.routing_table.shared(number(request.joiner.node_id))
        if shared < request.rows_given:
            return request
        rows = [self.host.contact]
        for index in range(request.rows_given, shared + 1):
            rows += self.pastry.routing_table.row(index)
        return msgspec.structs.replace(request, rows=(*request.rows, *rows), rows_given=shared + 1)

    def answer(self, request: JoinRequest) -> None:
        """This peer, Z, is the closest to the joiner."""
        joiner = request.joiner
        if joiner.node_id == self.host.me:
            return
        members = tuple(member for member in self.pastry.leaf_set if member.node_id != joiner.node_id)
        self.pastry.upkeep.visited(joiner.node_id)
        reply = JoinReply(request.attempt, (self.host.contact, *members), self.with_rows(request).rows)
        self.host.send(joiner, reply)

    def reply(self, _: Contact, reply: JoinReply) -> None:
        """The first state came: let the leaf set agree, and measure the rest."""
        if self.pastry.active:
            if reply.attempt == _LOOKUP:
                self.pastry.agreement.consider(reply.leaf_set)
        elif reply.attempt == self._attempt:
            self.replied = True
            self._set_timer()
            self.pastry.agreement.consider(reply.leaf_set)
            self.pastry.upkeep.meet((*reply.rows, *self._met.values()))
            self.pastry.settle()

    def __iter__(self) -> Iterator[Contact]:
        """The contacts that this peer was given."""
        return iter(self._contacts.values())

    def done(self) -> None:
        """This peer is active: forget the way it took, but not the contacts, should it ever be alone again.

        Those that did not answer are remembered like lost ones: a part of the network may be out of reach now.
        """
        for node_id, contact in self._contacts.items():
            answered = node_id in self._inactive or self.host.proximity(NodeId(node_id)) is not None
            if not answered and node_id not in self.pastry.leaf_set:
                self.pastry.lost_peers.remember(contact, met=False)
        for table in (self._met, self._measuring, self._inactive, self._failures):
            table.clear()
