"""Routing tables filled with near peers, and kept so (Pastry's table maintenance; Scribe, sections 2.1 and 2.2)."""

from collections.abc import Iterable
from itertools import islice
from math import isnan
from typing import TYPE_CHECKING

from quillcast.core.host import Timer
from quillcast.core.ids import number
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.messages import Announce, Row, RowRequest
from quillcast.protocol.overlay.routingtable import UNKNOWN

if TYPE_CHECKING:
    from quillcast.protocol.overlay.pastry import Pastry

_SOONER = 16  # the first round comes after this part of the interval, then twice that, ...; a guess
_NEAR_ASKED = 2  # nearest peers asked for their first row by one that became active; a guess
_MET_MAX = 512  # peers looked at per message; eight rows of base 2^6 fit


class Maintain(Timer, frozen=True):
    """Timer: one round of upkeep."""


class Upkeep:
    """Measures peers, enters the near ones in the tables, and asks row members for their rows."""

    def __init__(self, pastry: "Pastry") -> None:
        self.pastry, self.host = pastry, pastry.host
        self.table, self.neighbourhood = pastry.routing_table, pastry.neighbourhood
        self._measuring: dict[bytes, None] = {}
        self._asked: Contact | None = None
        self._interval_s = pastry.config.maintenance_s / _SOONER
        self._lacked: dict[int, None] = {}  # rows that were asked for since the last round
        self._visited: dict[bytes, None] = {}
        self._visited_before: dict[bytes, None] = {}

    def start(self) -> None:
        """This peer is active: tell those in the table about it, ask the nearest for theirs, and begin with the rounds.

        What the peers around know is the second stage of Pastry's join (Pastry, section 2.4): here the nearest peer of
        every row gives that row, and some of all the nearest their first one, which fits anywhere.
        """
        for entry in list(self.table.entries()):
            if entry.proximity < UNKNOWN:
                self._announce(entry.contact, entry.proximity)
        for proximity, contact in self.neighbourhood.by_proximity():
            if contact.node_id not in self.table:
                self._announce(contact, proximity)
        for contact in islice(self.neighbourhood, _NEAR_ASKED):
            self.host.send(contact, RowRequest(0))
        for index in range(1, self.table.depth):
            nearest = self.table.nearest(index)
            if nearest is not None:
                self.host.send(nearest, RowRequest(index))
        self._set_timer()

    def meet(self, contacts: Iterable[Contact]) -> None:
        """Measure peers that may be nearer than those in the table; enter those whose proximity is known."""
        for contact in islice(contacts, _MET_MAX):
            node_id = contact.node_id
            if node_id == self.host.me or node_id in self.table or node_id in self.pastry.lost_peers:
                continue
            proximity = self.pastry.proximity(node_id)
            if proximity < UNKNOWN:
                self._enter(contact, proximity)
            elif node_id not in self._measuring:
                self._measuring[node_id] = None
                self.host.measure(contact)

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """A measurement is done; a peer in the table that did not answer is asked for a sign of life."""
        self._measuring.pop(contact.node_id, None)
        if proximity is not None:
            self._enter(contact, proximity)
        elif contact.node_id in self.table:
            self.pastry.doubt(contact)

    def announced(self, sender: Contact, announce: Announce) -> None:
        """Another peer measured how far it is from this one: it may be the nearest for its cell here, too."""
        if not isnan(announce.proximity_s):  # which is within any bounds
            self.table.consider(sender, announce.proximity_s)
            self.neighbourhood.consider(sender, announce.proximity_s)
        self.pastry.neighbours.release(sender.node_id)

    def _enter(self, contact: Contact, proximity: float) -> None:
        self.neighbourhood.consider(contact, proximity)
        if self.table.consider(contact, proximity) and self.pastry.active:
            self._announce(contact, proximity)

    def _announce(self, contact: Contact, proximity: float) -> None:
        self.host.send(contact, Announce(proximity))
        self.pastry.neighbours.release(contact.node_id)

    # Failure

    def lost(self, contact: Contact) -> None:
        """Refill the cell of a lost peer from those at hand, and ask a member of its row for a better one."""
        self.neighbourhood.remove(contact.node_id)
        row = self.table.remove(contact.node_id)
        if row is None:
            return
        members = [(self.pastry.proximity(member.node_id), member) for member in self.pastry.leaf_set]
        for proximity, known in (*self.neighbourhood.by_proximity(), *members):
            if known.node_id not in self.table:
                self.table.consider(known, proximity)
        beside = self.table.row(row)
        if beside:
            self.host.trace(Mark("row_repair"))
            self.host.send(self.host.random.choice(beside), RowRequest(row))

    def lacks(self, key: bytes, hop: Contact) -> None:
        """If no peer is known with a longer prefix of the key, the next hop may have a row that knows one."""
        value = number(key)
        row = self.table.shared(value)
        if self.table.lookup(value) is None and row not in self._lacked:
            self._lacked[row] = None
            self.host.trace(Mark("lazy_repair"))
            self.host.send(hop, RowRequest(row))

    # Rounds

    def maintain(self, _: Maintain) -> None:
        """One round: the right-hand neighbour compares leaf sets, a row member gives its row, idle links close."""
        self.pastry.agreement.send_digest()
        self._look_for_another_ring()
        if self._asked is not None and self._asked.node_id in self.table:
            self.pastry.doubt(self._asked)  # it did not answer in the last round
        self._asked = None
        if len(self.table):
            row = self.host.random.choice([index for index in range(self.table.depth) if self.table.row(index)])
            self._asked = self.host.random.choice(self.table.row(row))
            self.host.send(self._asked, RowRequest(row))
        self._lacked.clear()
        self._close_idle_links()
        self._set_timer()

    def _look_for_another_ring(self) -> None:
        """A leaf set that is not full holds everybody: somebody else who is known is gone, or part of another ring."""
        pastry, members = self.pastry, self.pastry.leaf_set.members
        if not members:
            pastry.seek_company()
        elif len(members) < pastry.leaf_set.size:
            known = (c for c in pastry.remembered() if c.node_id not in members and c.node_id not in pastry.lost_peers)
            others = [contact for contact in known if contact.node_id != self.host.me]
            if others:
                pastry.joining.look_up(self.host.random.choice(others))

    def requested(self, sender: Contact, request: RowRequest) -> None:
        """Answer with a row and by chance a deeper one, whose peers all fit the cell in which the asker holds this."""
        row = request.row
        deeper = self.host.random.randint(row + 1, max(row + 1, self.table.depth - 1))
        self.host.send(sender, Row(row, (*self.table.row(row), *self.table.row(deeper))))
        self.pastry.neighbours.release(sender.node_id)

    def row(self, sender: Contact, row: Row) -> None:
        """A row came: whoever is nearer than what the table holds belongs there."""
        if self._asked is not None and self._asked.node_id == sender.node_id:
            self._asked = None
            self.host.trace(Mark("row_maintenance"))
        self.pastry.neighbours.release(sender.node_id)
        self.meet(row.contacts)

    def visited(self, node_id: bytes) -> None:
        """The link to this peer was in use."""
        self._visited[node_id] = None

    def _close_idle_links(self) -> None:
        """Links that were not used for a round may close; those of watched neighbours stay."""
        for node_id in self._visited_before:
            if node_id not in self._visited:
                self.pastry.neighbours.release(node_id)
        self._visited, self._visited_before = {}, self._visited

    def _set_timer(self) -> None:
        self.host.set_timer(Maintain(), self._interval_s * (0.75 + self.host.random.random() / 2))
        self._interval_s = min(2 * self._interval_s, self.pastry.config.maintenance_s)
