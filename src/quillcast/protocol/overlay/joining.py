"""How a peer enters the ring (Pastry; Scribe, section 2.2).

It looks for a nearby active peer A, starting from the contacts it was given, and asks A to route a request to its own
id. The rows of the peers on the way and the leaf set of the closest one, Z, are its first state. Its leaf set then has
to agree (agreement.py) before it is active. An attempt of which one step takes too long is followed by another.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from quillcast.core.host import Host, Timer
from quillcast.core.ids import ID_BITS, NodeId
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.distances import Distances
from quillcast.protocol.overlay.effects import Activate, Effects, FirstState, Introduced, JoinThrough
from quillcast.protocol.overlay.idlelinks import IdleLinks
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.messages import JoinReply, JoinRequest, State, StateRequest
from quillcast.protocol.overlay.routingtable import UNKNOWN

_LOOKUP = 0  # in place of the attempt: an active peer looks for its own place, in a ring that may be another
_CONTACTS_MAX = 256  # peers tried as contacts, given ones and those that other joining peers try; a guess


class JoinLate(Timer, frozen=True):
    """Timer: this attempt should have come further than this step."""

    attempt: int
    step: int


class OverlayJoin:
    """One peer's way into the ring."""

    def __init__(
        self,
        host: Host,
        config: OverlayConfig,
        lifecycle: Lifecycle,
        leaf_set: LeafSet,
        distances: Distances,
        links: IdleLinks,
        acquaintances: Mapping[bytes, Contact],
    ) -> None:
        """`acquaintances` are those who spoke to this peer, as far as it remembers."""
        self.host, self.config, self.lifecycle, self.leaf_set = host, config, lifecycle, leaf_set
        self.distances, self.links, self.acquaintances = distances, links, acquaintances
        self.replied = False
        self._attempt = self._step = 0
        self._contacts: dict[bytes, Contact] = {}  # given, and those that lead further
        self._met: dict[bytes, Contact] = {}  # who may be near: contacts and those they know
        self._measuring: dict[bytes, None] = {}
        self._inactive: dict[bytes, None] = {}  # contacts that are not active themselves, in this attempt
        self._failures: dict[bytes, int] = {}  # attempts that ended at a contact
        self._near: Contact | None = None  # A, as far as known
        self._rounds = 0
        self._enters = False  # is A asked to be let in, or whom it knows?
        self._asked_until = 0.0  # what A was asked is repeated until then

    def start(self, contacts: Sequence[Contact]) -> Effects:
        """Join through one of these; without any, this peer is the first."""
        self._add_contacts(contacts)
        if self._contacts:
            yield from self._try()
        else:
            yield Activate()

    def late(self, timer: JoinLate) -> Effects:
        """Try again, through somebody else if the last one did not answer."""
        if self.lifecycle.active or self.lifecycle.left or (timer.attempt, timer.step) != (self._attempt, self._step):
            return
        if self._measuring and self._nearest() is not None and not self.replied:
            self._measuring.clear()  # who has not answered by now is not near
            yield from self._approach()
            return
        self.host.trace(Mark("join_retry"))
        if self.replied and len(self.leaf_set):
            self._set_timer()  # its members are being probed, and some are slow to answer or dead
            return
        if self._near is not None and not self.replied and self.host.now() < self._asked_until:
            yield from self._ask(self._near)
            return
        if self._near is not None:
            self._failures[self._near.node_id] = self._failures.get(self._near.node_id, 0) + 1
        yield from self._try()

    def _try(self) -> Effects:
        self._attempt += 1
        self._rounds, self._near, self.replied = 0, None, False
        self._enters, self._asked_until = False, 0.0
        self._inactive.clear()
        self._met = {**self.acquaintances, **self._contacts}  # the contacts may all be dead by now
        self._met.pop(self.host.me, None)
        self._set_timer()
        yield from self._measure(list(self._met.values()))

    def _set_timer(self) -> None:
        """Be patient anew: something was achieved, or the next attempt begins."""
        self._step += 1
        self.host.set_timer(JoinLate(self._attempt, self._step), self._drawn_s(self._longest_s))

    @property
    def _longest_s(self) -> float:
        return self.config.join_timeout_s * 2.0 ** min(self._attempt - 1, 16)

    def _drawn_s(self, timeout_s: float) -> float:
        return min(timeout_s, self.config.join_timeout_max_s) * (0.75 + self.host.random.random() / 2)

    # A nearby peer

    def _measure(self, contacts: Iterable[Contact]) -> Effects:
        """Measure these, then go on with the nearest."""
        for contact in contacts:
            if self.host.proximity(NodeId(contact.node_id)) is None and contact.node_id not in self._measuring:
                self._measuring[contact.node_id] = None
                self.host.measure(contact)
        if not self._measuring:
            yield from self._approach()
        elif self._nearest() is not None:
            self._wait_for_nearer()

    def measured(self, contact: Contact) -> Effects:
        """A measurement is done; with the last one, or soon after the last that was answered, the next step begins.

        Where somebody had answered before, also if none of these does.
        """
        if self._measuring.pop(contact.node_id, self) is not None or self.lifecycle.active:
            return
        if not self._measuring:
            yield from self._approach()
        elif self.host.proximity(NodeId(contact.node_id)) is not None:
            self._wait_for_nearer()

    def _wait_for_nearer(self) -> None:
        """Somebody has answered: those that take much longer are not nearer, and may be dead."""
        self._step += 1
        self.host.set_timer(JoinLate(self._attempt, self._step), self.config.join_timeout_s / 4)

    def _approach(self) -> Effects:
        """Ask the nearest peer met so far whom it knows; once that was asked, join through it."""
        best = self._nearest()
        if best is None:
            yield from self._be_first()
        elif self._near is not None and best.node_id == self._near.node_id:
            yield from self._request(best)
        elif self._rounds >= self.config.nearby_rounds and self._near is not None:
            yield from self._request(self._near)
        else:
            self._rounds += 1
            self._near = best
            # It may be dead: grow slower than for the request.
            yield from self._begin_asking(best, self.config.join_timeout_s * self._attempt)

    def _nearest(self) -> Contact | None:
        """The nearest peer that answered and is not inactive; those at which attempts failed come last."""
        there = [
            (self._failures.get(node_id, 0), proximity, node_id)
            for node_id in self._met
            if node_id not in self._inactive and (proximity := self.distances.to(node_id)) < UNKNOWN
        ]
        return self._met[min(there)[2]] if there else None

    def state(self, sender: Contact, state: State) -> Effects:
        """The nearest peer so far says whom it knows: one of them may be nearer yet."""
        if self.lifecycle.active or self._near is None or sender.node_id != self._near.node_id or self._enters:
            return
        if not state.active:
            self._inactive[sender.node_id] = None
            self._near = None
            self._rounds -= 1
            self._add_contacts(state.leaf_set)
            self._met.update(self._contacts)
            yield from self._measure(self._contacts.values())
            return
        known = {
            c.node_id: c for c in (*state.leaf_set, *state.table, *state.neighbourhood) if c.node_id != self.host.me
        }
        sample = self.host.random.sample(list(known.values()), min(len(known), self.config.measured_per_state))
        self._met.update((contact.node_id, contact) for contact in sample)
        yield from self._measure(sample)

    def _add_contacts(self, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            if contact.node_id != self.host.me and len(self._contacts) < _CONTACTS_MAX:
                self._contacts.setdefault(contact.node_id, contact)

    def _be_first(self) -> Effects:
        """No contact is active. If some answered and wait like this peer, the one with the smallest id begins.

        So a network all of whose peers start at once comes up.
        """
        if self._attempt > 1 and self._inactive and self.host.me < min(self._inactive):
            self.host.trace(Mark("cold_start"))
            yield Activate()

    # The request and its answer

    def _request(self, near: Contact) -> Effects:
        self._enters = True
        yield from self._begin_asking(near, self._longest_s)

    def _begin_asking(self, near: Contact, patience_s: float) -> Effects:
        self._asked_until = self.host.now() + self._drawn_s(patience_s)
        yield from self._ask(near)

    def _ask(self, near: Contact) -> Effects:
        """Ask this peer, and again while there is patience: a question or its answer may be lost on the way."""
        self._step += 1
        left_s = self._asked_until - self.host.now()
        self.host.set_timer(JoinLate(self._attempt, self._step), min(left_s, self.config.join_timeout_s))
        self.links.visited(near.node_id)
        if self._enters:
            yield JoinThrough(near, JoinRequest(self.host.contact, self._attempt))
        else:
            self.host.send(near, StateRequest())

    def reply(self, _: Contact, reply: JoinReply) -> Effects:
        """The first state came: let the leaf set agree, and measure the rest."""
        if self.lifecycle.active:
            if reply.attempt == _LOOKUP:
                yield Introduced(reply.leaf_set)
        elif reply.attempt == self._attempt:
            self.replied = True
            self._set_timer()
            yield FirstState(reply.leaf_set, (*reply.rows, *self._met.values()))

    def __iter__(self) -> Iterator[Contact]:
        """The contacts that this peer was given."""
        return iter(self._contacts.values())

    def done(self) -> list[Contact]:
        """This peer is active: forget the way it took, but not the contacts, should it ever be alone again.

        Returns those that did not answer: a part of the network may be out of reach now.
        """
        silent = [
            contact
            for node_id, contact in self._contacts.items()
            if node_id not in self._inactive and self.host.proximity(NodeId(node_id)) is None
        ]
        for table in (self._met, self._measuring, self._inactive, self._failures):
            table.clear()
        return silent


def look_up(me: Contact) -> JoinRequest:
    """The request by which an active peer finds its place in the ring that it is sent to."""
    return JoinRequest(me, _LOOKUP, rows_given=ID_BITS)
