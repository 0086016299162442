"""How a peer joins the ring (Pastry; Scribe, section 2.2).

The peer looks for a nearby active peer A, starting from its contacts, and asks A to route a request to its own id. Its
first state consists of the rows of the peers on the path and the leaf set of the closest one, Z. Its leaf set must then
agree with others (agreement.py) before the peer is active. If a step takes too long, the peer begins another attempt.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from quillcast.core.host import Host, Timer
from quillcast.core.ids import ID_BITS, NodeId
from quillcast.core.interning import EMPTY
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

_LOOKUP = 0  # used as the attempt number when an active peer looks up its place, perhaps in another ring
_CONTACTS_MAX = 256  # peers tried as contacts: given ones, and those that other joining peers try; a guess


class JoinLate(Timer, frozen=True):
    """This attempt should have completed this step by now."""

    attempt: int
    step: int


class OverlayJoin:
    """The join of one peer."""

    __slots__ = (
        "_asked_until", "_attempt", "_contacts", "_enters", "_failures", "_inactive", "_may_be_first", "_measuring",
        "_met", "_near", "_nearer_by", "_outside", "_rounds", "_step", "acquaintances", "config", "distances", "host",
        "leaf_set", "lifecycle", "links", "replied",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        config: OverlayConfig,
        lifecycle: Lifecycle,
        leaf_set: LeafSet,
        distances: Distances,
        links: IdleLinks,
        acquaintances: Mapping[str, Contact],
    ) -> None:
        """`acquaintances` are the peers that sent messages to this one, as far as it remembers, by address."""
        self.host, self.config, self.lifecycle, self.leaf_set = host, config, lifecycle, leaf_set
        self.distances, self.links, self.acquaintances = distances, links, acquaintances
        self.replied = False
        self._attempt = self._step = 0
        self._nearer_by = 0.0  # in this step, how long it waits for nearer peers, if it does
        self._contacts: dict[bytes, Contact] = {}  # given contacts, and those that they lead to
        self._met: dict[bytes, Contact] = EMPTY  # peers that may be near: contacts and peers known to them
        self._measuring: dict[bytes, None] = EMPTY
        self._inactive: dict[bytes, None] = EMPTY  # contacts that are not active, in this attempt
        self._outside: dict[bytes, None] = EMPTY  # contacts that have no place in the ring, likewise
        self._may_be_first = False
        self._failures: dict[bytes, int] = EMPTY  # failed attempts by contact
        self._near: Contact | None = None  # A, as far as known
        self._rounds = 0
        self._enters = False  # whether A is asked to route the join request, or for the peers it knows
        self._asked_until = 0.0  # the request to A is repeated until then

    def start(self, contacts: Sequence[Contact], *, may_be_first: bool = False) -> Effects:
        """Join through one of these contacts. Without any, this peer is the first (`Pastry.join`)."""
        self._may_be_first = may_be_first
        self._add_contacts(contacts)
        if self._contacts:
            yield from self._try()
        else:
            yield Activate()

    def late(self, timer: JoinLate) -> Effects:
        """Try again, through another contact if the last one did not answer."""
        if self.lifecycle.active or self.lifecycle.left or (timer.attempt, timer.step) != (self._attempt, self._step):
            return
        if self._measuring and not self.replied and self._knows_any():
            left_s = self._nearer_by - self.host.now()
            if left_s > 0:  # another peer has answered since the timer was set
                self.host.set_timer(timer, left_s)
                return
            self._measuring.clear()  # peers that have not answered by now are not near
            yield from self._approach()
            return
        self.host.trace(Mark("join_retry"))
        if self.replied and len(self.leaf_set):
            self._set_timer()  # members are being probed, and some are slow or dead
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
        self._inactive, self._outside = {}, {}
        self._measuring, self._failures = self._measuring or {}, self._failures or {}
        met = {contact.node_id: contact for contact in self.acquaintances.values()}
        self._met = met | self._contacts  # all contacts may be dead by now
        self._met.pop(self.host.me, None)
        self._set_timer()
        yield from self._measure(list(self._met.values()))

    def _set_timer(self) -> None:
        """Restart the time-out, after progress or for the next attempt."""
        self._begin_step(self._drawn_s(self._longest_s))

    def _begin_step(self, timeout_s: float) -> None:
        self._step += 1
        self._nearer_by = 0.0
        self.host.set_timer(JoinLate(self._attempt, self._step), timeout_s)

    @property
    def _longest_s(self) -> float:
        return self.config.join_timeout_s * 2.0 ** min(self._attempt - 1, 16)

    def _drawn_s(self, timeout_s: float) -> float:
        return min(timeout_s, self.config.join_timeout_max_s) * (0.75 + self.host.random.random() / 2)

    # Finding a nearby peer

    def _measure(self, contacts: Iterable[Contact]) -> Effects:
        """Measure these peers, then continue with the nearest."""
        for contact in contacts:
            if self.host.proximity(NodeId(contact.node_id)) is None and contact.node_id not in self._measuring:
                self._measuring[contact.node_id] = None
                self.host.measure(contact)
        if not self._measuring:
            yield from self._approach()
        elif self._knows_any():
            self._wait_for_nearer()

    def measured(self, contact: Contact) -> Effects:
        """A measurement is done. The next step begins with the last one, or soon after the last that was answered.

        It also begins if a peer answered earlier and none of these does.
        """
        if self._measuring.pop(contact.node_id, self) is not None:
            return
        if not self._measuring:
            yield from self._approach()
        elif self.host.proximity(NodeId(contact.node_id)) is not None:
            self._wait_for_nearer()

    def _wait_for_nearer(self) -> None:
        """Stop waiting soon, because a peer has answered: those that take much longer are not nearer, or are dead."""
        wait_s = self.config.join_timeout_s / 4
        if not self._nearer_by:
            self._begin_step(wait_s)
        self._nearer_by = self.host.now() + wait_s

    def _approach(self) -> Effects:
        """Ask the nearest peer found so far for the peers it knows. If it was asked before, join through it."""
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
            # It may be dead: this time-out grows more slowly than that of the request.
            yield from self._begin_asking(best, self.config.join_timeout_s * self._attempt)

    def _nearest(self) -> Contact | None:
        """Return the nearest peer that answered, and may be active in the ring. Peers of failed attempts come last."""
        best = min(self._candidates(), default=None)
        return None if best is None else self._met[best[2]]

    def _candidates(self) -> Iterator[tuple[int, float, bytes]]:
        """Yield the failed attempts, the proximity and the nodeId of each such peer."""
        for node_id in self._met:
            if node_id not in self._inactive and node_id not in self._outside:
                proximity = self.distances.to(node_id)
                if proximity < UNKNOWN:
                    yield self._failures.get(node_id, 0), proximity, node_id

    def _knows_any(self) -> bool:
        """Whether there is any such peer."""
        return next(self._candidates(), None) is not None

    def state(self, sender: Contact, state: State) -> Effects:
        """The nearest peer so far named the peers it knows: one of them may be nearer still."""
        if self.lifecycle.active or self._near is None or sender.node_id != self._near.node_id or self._enters:
            return
        if not state.active:
            (self._outside if state.outside else self._inactive)[sender.node_id] = None
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
        """No contact is active. If some answered and wait too, the one with the smallest id becomes the first peer.

        So a network can form when all its peers start at once. Those outside the ring wait for another to begin it.
        """
        is_awaited = self._may_be_first and self._contacts.keys() <= self._outside.keys()
        if is_awaited or (self._attempt > 1 and self._inactive and self.host.me < min(self._inactive)):
            self.host.trace(Mark("cold_start"))
            yield Activate()

    # The request and its answer

    def _request(self, near: Contact) -> Effects:
        self._enters = True
        yield from self._begin_asking(near, self._longest_s)

    def link_lost(self, contact: Contact) -> None:
        """If the link to A broke, A may be dead: after this time-out, do not ask it again in this attempt."""
        if self._near is not None and contact.node_id == self._near.node_id:
            self._asked_until = self.host.now()

    def _begin_asking(self, near: Contact, patience_s: float) -> Effects:
        self._asked_until = self.host.now() + self._drawn_s(patience_s)
        yield from self._ask(near)

    def _ask(self, near: Contact) -> Effects:
        """Ask this peer, and repeat the request until the time-out, because request or answer may be lost."""
        self._begin_step(min(self._asked_until - self.host.now(), self.config.join_timeout_s))
        self.links.visited(near.node_id)
        if self._enters:
            yield JoinThrough(near, JoinRequest(self.host.contact, self._attempt))
        else:
            self.host.send(near, StateRequest())

    def reply(self, _: Contact, reply: JoinReply) -> Effects:
        """The first state arrived: let the leaf sets agree, and measure the other peers."""
        if self.lifecycle.active:
            if reply.attempt == _LOOKUP:
                yield Introduced(reply.leaf_set)
        elif reply.attempt == self._attempt:
            self.replied = True
            self._set_timer()
            met = {contact: contact for contact in self._met.values()}  # equal ones in rows are copies
            yield FirstState(reply.leaf_set, (*[met.get(contact, contact) for contact in reply.rows], *met))

    @property
    def awaited(self) -> list[Contact]:
        """Return the peers that this one asked to let it in: the nearest so far, or else all contacts."""
        return [self._near] if self._near is not None else list(self._contacts.values())

    def __iter__(self) -> Iterator[Contact]:
        """Yield the contacts that this peer was given."""
        return iter(self._contacts.values())

    def done(self) -> list[Contact]:
        """This peer is active: forget the details of the join, but keep the contacts in case it is ever alone again.

        Returns the contacts that did not answer: a part of the network may be unreachable.
        """
        silent = [
            contact
            for node_id, contact in self._contacts.items()
            if node_id not in self._inactive and self.host.proximity(NodeId(node_id)) is None
        ]
        self._met = self._measuring = self._inactive = self._outside = self._failures = EMPTY
        return silent


def look_up(me: Contact) -> JoinRequest:
    """Return the request by which an active peer finds its place in the ring of another peer."""
    return JoinRequest(me, _LOOKUP, rows_given=ID_BITS)
