"""How a peer helps others to join the ring (Pastry; Scribe, section 2.2)."""

from collections.abc import Iterable

import msgspec

from quillcast.core.host import Host
from quillcast.core.ids import number
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.idlelinks import IdleLinks
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.messages import JoinReply, JoinRequest, State, StateRequest
from quillcast.protocol.overlay.tables import Tables


class JoinHelp:
    """Answers joining peers: as a nearby peer (A), as a hop of the request, or as the closest peer (Z)."""

    __slots__ = ("contacts", "host", "leaf_set", "lifecycle", "links", "neighbourhood", "routing_table")

    def __init__(
        self, host: Host, lifecycle: Lifecycle, tables: Tables, links: IdleLinks, contacts: Iterable[Contact]
    ) -> None:
        """`contacts` are the contacts that this peer itself tries while it joins."""
        self.host, self.lifecycle, self.links, self.contacts = host, lifecycle, links, contacts
        self.leaf_set, self.routing_table, self.neighbourhood = tables

    def requested(self, sender: Contact, _: StateRequest) -> None:
        """Answer with the peers known here. A joining peer knows only its contacts."""
        if self.lifecycle.active:
            state = State(True, tuple(self.leaf_set), tuple(self.routing_table), tuple(self.neighbourhood))
        else:
            state = State(False, tuple(self.contacts), (), ())
        self.host.send(sender, state)
        self.links.release(sender.node_id)

    def with_rows(self, request: JoinRequest) -> JoinRequest:
        """Return the request, with the rows of this peer's table that the joiner can use and does not have yet."""
        shared = self.routing_table.shared(number(request.joiner.node_id))
        if shared < request.rows_given:
            return request
        rows = [self.host.contact]
        for index in range(request.rows_given, shared + 1):
            rows += self.routing_table.row(index)
        return msgspec.structs.replace(request, rows=(*request.rows, *rows), rows_given=shared + 1)

    def answer(self, request: JoinRequest) -> None:
        """Answer a join request as Z, the peer closest to the joiner."""
        joiner = request.joiner
        if joiner.node_id == self.host.me:
            return
        members = tuple(member for member in self.leaf_set if member.node_id != joiner.node_id)
        self.links.visited(joiner.node_id)
        reply = JoinReply(request.attempt, (self.host.contact, *members), self.with_rows(request).rows)
        self.host.send(joiner, reply)
