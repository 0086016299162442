"""Fill routing tables with near peers and keep them so (Pastry's table maintenance; Scribe, sections 2.1 and 2.2)."""

from collections.abc import Iterable
from itertools import islice
from math import isnan

from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.distances import Distances
from quillcast.protocol.overlay.idlelinks import IdleLinks
from quillcast.protocol.overlay.lazyrepair import LazyRepair
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.lostpeers import LostPeers
from quillcast.protocol.overlay.messages import Announce, Row, RowRequest
from quillcast.protocol.overlay.routingtable import UNKNOWN
from quillcast.protocol.overlay.tables import Tables

_SOONER = 16  # the first round comes after this fraction of the interval, the next after twice that, ...; a guess
_NEAR_ASKED = 2  # how many of the nearest peers a new active peer asks for their first row; a guess
_MET_MAX = 512  # peers considered per message; eight rows of base 2^6 fit


class MaintenanceDue(Timer, frozen=True):
    """A round of maintenance is due."""


class Maintenance:
    """Measures peers, adds the near ones to the tables, and asks row members for their rows."""

    __slots__ = (
        "_asked", "_interval_s", "_measuring", "config", "distances", "host", "leaf_set", "lifecycle", "links",
        "lost_peers", "neighbourhood", "repair", "table",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        config: OverlayConfig,
        lifecycle: Lifecycle,
        tables: Tables,
        lost_peers: LostPeers,
        distances: Distances,
        repair: LazyRepair,
        links: IdleLinks,
    ) -> None:
        self.host, self.config, self.lifecycle = host, config, lifecycle
        self.leaf_set, self.table, self.neighbourhood = tables
        self.lost_peers, self.distances, self.repair, self.links = lost_peers, distances, repair, links
        self._measuring: dict[bytes, None] = EMPTY
        self._asked: Contact | None = None
        self._interval_s = config.maintenance_s / _SOONER

    def start(self) -> None:
        """This peer is active: announce it to its table, ask the nearest peers for their rows, and start the rounds.

        This is the second stage of Pastry's join (Pastry, section 2.4): the nearest peer of each row sends that row,
        and some of the nearest of all send their first row, which fits anywhere.
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
        """Measure peers that may be nearer than those in the table, and add those whose proximity is known."""
        for contact in islice(contacts, _MET_MAX):
            node_id = contact.node_id
            if node_id == self.host.me or node_id in self.table or self.lost_peers.is_gone(node_id):
                continue
            proximity = self.distances.to(node_id)
            if proximity < UNKNOWN:
                self._enter(contact, proximity)
            elif node_id not in self._measuring:
                self._measuring = self._measuring or {}
                self._measuring[node_id] = None
                self.host.measure(contact)

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """A measurement is done. If the peer did not answer and is in the table, probe it."""
        self._measuring.pop(contact.node_id, None)
        self._measuring = self._measuring or EMPTY  # an emptied dict keeps its memory
        if proximity is not None:
            self._enter(contact, proximity)
        elif contact.node_id in self.table:
            self.distances.doubt(contact)

    def announced(self, sender: Contact, announce: Announce) -> None:
        """Another peer measured its distance to this one: it may also be the nearest for its cell here."""
        if not isnan(announce.proximity_s):  # the field's bounds let NaN pass
            self.table.consider(sender, announce.proximity_s)
            self.neighbourhood.consider(sender, announce.proximity_s)
        self.links.release(sender.node_id)

    def _enter(self, contact: Contact, proximity: float) -> None:
        self.neighbourhood.consider(contact, proximity)
        if self.table.consider(contact, proximity) and self.lifecycle.active:
            self._announce(contact, proximity)

    def _announce(self, contact: Contact, proximity: float) -> None:
        self.host.send(contact, Announce(proximity))
        self.links.release(contact.node_id)

    # Failure

    def lost(self, contact: Contact) -> None:
        """Refill the cell of a lost peer from known peers, and ask a member of its row for a better one."""
        self.neighbourhood.remove(contact.node_id)
        row = self.table.remove(contact.node_id)
        if row is None:
            return
        members = [(self.distances.to(member.node_id), member) for member in self.leaf_set]
        for proximity, known in (*self.neighbourhood.by_proximity(), *members):
            if known.node_id not in self.table and not self.lost_peers.is_gone(known.node_id):
                self.table.consider(known, proximity)
        beside = self.table.row(row)
        if beside:
            self.host.trace(Mark("row_repair"))
            self.host.send(self.host.random.choice(beside), RowRequest(row))

    # Rounds

    def maintain(self, _: MaintenanceDue) -> None:
        """Run a round: request a row from a member of it, and close idle links."""
        if self._asked is not None and self._asked.node_id in self.table:
            self.distances.doubt(self._asked)  # it did not answer in the last round
        self._asked = None
        if len(self.table):
            row = self.host.random.choice([index for index in range(self.table.depth) if self.table.row(index)])
            self._asked = self.host.random.choice(self.table.row(row))
            self.host.send(self._asked, RowRequest(row))
        self.repair.end_round()
        self.links.end_round()
        self._set_timer()

    def requested(self, sender: Contact, request: RowRequest) -> None:
        """Answer with a row, and a random deeper one, whose peers all fit the cell where the sender has this peer."""
        row = request.row
        deeper = self.host.random.randint(row + 1, max(row + 1, self.table.depth - 1))
        self.host.send(sender, Row((*self.table.row(row), *self.table.row(deeper))))
        self.links.release(sender.node_id)

    def row(self, sender: Contact, row: Row) -> None:
        """A row arrived: add the peers that are nearer than those in the table."""
        if self._asked is not None and self._asked.node_id == sender.node_id:
            self._asked = None
            self.host.trace(Mark("row_maintenance"))
        self.links.release(sender.node_id)
        self.meet(row.contacts)

    def _set_timer(self) -> None:
        self.host.set_timer(MaintenanceDue(), self._interval_s * (0.75 + self.host.random.random() / 2))
        self._interval_s = min(2 * self._interval_s, self.config.maintenance_s)
