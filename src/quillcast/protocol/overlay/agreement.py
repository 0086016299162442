"""Keep the leaf sets of neighbours consistent: members are added after they answer, gaps are closed, digests compared.

This is Pastry's leaf-set exchange as its authors made it dependable (Castro, Costa and Rowstron, "Performance and
dependability of structured peer-to-peer overlays", 2004, section 3.1). A probe carries the leaf set of the prober, and
the reply that of the probed peer. Each then probes the peers it learned of that would fit its own leaf set.
"""

from collections.abc import Iterable

from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import LeafSetChanged, Mark
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.distances import Distances
from quillcast.protocol.overlay.effects import Effects, MembersChanged, SearchRing, Settled
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.lostpeers import LostPeers
from quillcast.protocol.overlay.messages import (
    Joined,
    LeafSetDigest,
    LeafSetProbe,
    LeafSetReply,
    Leaving,
    MemberLost,
)
from quillcast.protocol.overlay.tables import Tables

_USER = "leaf set"
_REPORTED_MAX = 64  # losses reported by others and not detected here; a guess: four leaf sets


class ProbesDue(Timer, frozen=True):
    """Some probed peers should have answered by now."""


class Probe:
    """A peer that was asked for its leaf set."""

    __slots__ = ("contact", "due", "sent", "tries")

    def __init__(self, contact: Contact) -> None:
        self.contact = contact
        self.tries = 0
        self.sent = self.due = 0.0


class Agreement:
    """Keeps the leaf set consistent with those of its members."""

    __slots__ = (
        "_exchanged", "_expected", "_probes", "_reported", "_timer_set", "config", "distances", "host", "joining",
        "leaf_set", "lifecycle", "lost_peers", "neighbourhood", "neighbours", "routing_table",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        config: OverlayConfig,
        neighbours: Neighbours,
        tables: Tables,
        lost_peers: LostPeers,
        distances: Distances,
        lifecycle: Lifecycle,
    ) -> None:
        self.host, self.config, self.neighbours, self.distances = host, config, neighbours, distances
        self.leaf_set, self.routing_table, self.neighbourhood = tables
        self.lost_peers, self.lifecycle = lost_peers, lifecycle
        self._probes: dict[bytes, Probe] = EMPTY
        self._expected = self.leaf_set
        """The leaf set if all probed peers were alive; the same object as `leaf_set` while there are no probes."""
        self._timer_set = False
        self._reported: dict[bytes, None] = EMPTY
        self.joining: dict[bytes, None] = EMPTY
        """Members that said they are still joining, and so do not answer for any keys yet."""
        self._exchanged: dict[bytes, float] = {}
        """When members sent their leaf sets, since this one changed: they know all its members."""

    @property
    def settled(self) -> bool:
        """Whether all probed peers have answered."""
        return not self._probes

    def consider(self, contacts: Iterable[Contact]) -> None:
        """Probe the introduced peers that would be in the leaf set if they and all other probed peers were alive."""
        new = []
        lost = self.lost_peers.peers
        for contact in contacts:
            node_id = contact.node_id
            if node_id in lost:
                self.lost_peers.named(node_id)
            if node_id in self._expected.members or not self._expected.fits(node_id):
                continue
            if node_id not in self.leaf_set.members and not self.lost_peers.lately(node_id):
                new.append(contact)
                if self._expected is self.leaf_set:
                    self._expected = self.leaf_set.copy()
                self._expected.add(contact)
        for contact in new:
            if contact.node_id in self._expected.members:
                self.probe(contact)

    def consider_table(self) -> None:
        """Probe the peers of the routing table that would be in the leaf set, unless they are lost or have left."""
        self.consider(contact for contact in self.routing_table if not self.lost_peers.is_gone(contact.node_id))

    def _doubt(self, sender: Contact, leaf_set: Iterable[Contact]) -> None:
        """Probe the members that another member should know and does not: they may no longer be in the ring.

        Members that have just sent their leaf sets are in the ring. Probing them for every set that lacks them would
        cause as many probes again, for as long as members disagree about peers that are being lost.
        """
        if not self.lifecycle.active:
            return
        before = self.host.now() - self.config.keep_alive_s
        unheard = [member for member in self.leaf_set if self._exchanged.get(member.node_id, before) <= before]
        if not unheard:
            return
        theirs = LeafSet(sender.node_id, self.leaf_set.size)
        for contact in leaf_set:
            theirs.add(contact)
        for member in unheard:
            if member.node_id not in self.joining and theirs.fits(member.node_id):
                self.probe(member)

    def _heard(self, sender: Contact, leaf_set: tuple[Contact, ...], *, joining: bool) -> Effects:
        """Add a peer that sent its leaf set, and probe peers that either of the two may lack."""
        if self._admit(sender, joining=joining):
            yield MembersChanged()
        self._exchanged.pop(sender.node_id, None)
        if sender.node_id in self.leaf_set and not joining:
            self._exchanged[sender.node_id] = self.host.now()
        self.consider(leaf_set)
        if not joining:
            self._doubt(sender, leaf_set)

    def probe(self, contact: Contact) -> None:
        """Exchange leaf sets with a peer, with retries."""
        if contact.node_id not in self._probes:
            self._probes = self._probes or {}
            probe = self._probes[contact.node_id] = Probe(contact)
            self._send(probe)

    # Reports of others

    def probed(self, sender: Contact, probe: LeafSetProbe) -> Effects:
        """Answer a probe. The reply includes members that the prober displaces, because they may be news to it."""
        self.host.send(sender, LeafSetReply(tuple(self.leaf_set), joining=not self.lifecycle.active))
        yield from self._heard(sender, probe.leaf_set, joining=probe.joining)

    def replied(self, sender: Contact, reply: LeafSetReply) -> Effects:
        """Add a peer that answered, and consider the peers that it introduces."""
        probe = self._probes.pop(sender.node_id, None)
        if probe is not None and probe.tries == 1:
            self.neighbours.answered(sender.node_id, self.host.now() - probe.sent)
        yield from self._heard(sender, reply.leaf_set, joining=reply.joining)
        self._update_expected()
        yield from self._settle()

    def compared(self, sender: Contact, theirs: LeafSetDigest) -> None:
        """Compare the digest of the left-hand neighbour: exchange leaf sets if it sees a different ring."""
        right = self.leaf_set.right
        if theirs.digest != self.leaf_set.digest(right[-1] if right else None):
            self.host.trace(Mark("digests_differ"))
            self.probe(sender)

    def loss_reported(self, _: Contact, lost: MemberLost) -> Effects:
        """Another member lost this one: probe it, and believe only its silence."""
        node_id = lost.node_id
        probe = self._probes.get(node_id)
        if probe is not None and probe.tries > 1:
            yield from self._give_up(probe.contact)
        elif probe is not None:
            probe.tries = self.config.probe_tries - 1  # the next probe is the last
        member = self.leaf_set.members.get(node_id)
        if member is not None:
            if len(self._reported) >= _REPORTED_MAX:
                del self._reported[next(iter(self._reported))]
            self._reported = self._reported or {}
            self._reported[node_id] = None
            self.neighbours.probe(member)

    def left(self, sender: Contact, leaving: Leaving) -> Effects:
        """A member left: close the gap with the members that it knew."""
        self._probes.pop(sender.node_id, None)
        if self.remove(sender.node_id):
            yield MembersChanged()
            self.host.trace(Mark("member_left"))
            self.consider(leaving.leaf_set)
        yield from self._settle()

    # Members that join, leave or are lost

    def _settle(self) -> Effects:
        if self.settled:
            yield Settled()

    def _admit(self, contact: Contact, *, joining: bool) -> bool:
        """Add a peer that just sent a message, if it is close enough. True if it is new, or has finished joining."""
        known = self.leaf_set.members.get(contact.node_id)
        if known == contact and joining:  # it may have been restarted
            self._note_joining(contact)
            return False
        if known == contact:
            return self._note_joined(contact.node_id)
        self.lost_peers.replaced(contact)
        gone = self.leaf_set.add(contact)
        if gone is contact:
            return False
        if joining:
            self._note_joining(contact)
        if self._expected is not self.leaf_set:
            self._expected.add(contact)
        self.neighbours.watch(contact, _USER, self.config.keep_alive_s)
        self._exchanged.clear()
        if known is not None:
            self.routing_table.readdress(contact)
            self.neighbourhood.readdress(contact)
            return False
        if gone is not None:
            self._note_joined(gone.node_id)
            self.neighbours.unwatch(gone.node_id, _USER)
        self.routing_table.consider(contact, self.distances.to(contact.node_id))
        self.host.trace(LeafSetChanged((contact.node_id,), () if gone is None else (gone.node_id,)))
        return True

    def _note_joining(self, contact: Contact) -> None:
        self.joining = self.joining or {}
        self.joining[contact.node_id] = None

    def _note_joined(self, node_id: bytes) -> bool:
        """A peer is not joining, or no member. Return whether it was joining."""
        was_joining = self.joining.pop(node_id, self) is None
        self.joining = self.joining or EMPTY  # an emptied dict keeps its memory
        return was_joining

    def remove(self, node_id: bytes) -> Contact | None:
        """Remove a member that was lost or left."""
        self._reported.pop(node_id, None)
        self._note_joined(node_id)
        contact = self.leaf_set.remove(node_id)
        self._update_expected(anew=True)
        if contact is not None:
            self._exchanged.clear()
            self.neighbours.unwatch(node_id, _USER)
            self.host.trace(LeafSetChanged((), (node_id,)))
        return contact

    def lost(self, contact: Contact) -> Effects:
        """A member was lost: tell the others, and ask the farthest live member on its side for a replacement."""
        self._probes.pop(contact.node_id, None)
        reported = contact.node_id in self._reported
        clockwise = any(member.node_id == contact.node_id for member in self.leaf_set.right)
        side = self.leaf_set.right if clockwise else self.leaf_set.left
        if self.remove(contact.node_id):
            yield MembersChanged()
            for member in self.leaf_set:
                if not reported or member.node_id in self.joining:  # these may have joined after the others were told
                    self.host.send(member, MemberLost(contact.node_id))
            yield from self._repair([member for member in side if member.node_id != contact.node_id])
        yield from self._settle()

    def _repair(self, side: list[Contact]) -> Effects:
        """Ask the farthest live member on a side or, if none is left, those in the routing table that would fit."""
        self.host.trace(Mark("leaf_repair"))
        if side:
            self.probe(side[-1])
            return
        self.consider_table()
        if not self._probes:
            yield SearchRing()

    def member_joined(self, sender: Contact, _: Joined) -> Effects:
        """A member is active now."""
        if self._note_joined(sender.node_id):
            yield MembersChanged()

    def activate(self) -> None:
        """Tell the members of the leaf set that this peer is active."""
        for member in self.leaf_set:
            self.host.send(member, Joined())

    def leave(self) -> None:
        """Tell the members of the leaf set that this peer leaves."""
        members = tuple(self.leaf_set)
        for member in members:
            self.host.send(member, Leaving(members))
            self.neighbours.unwatch(member.node_id, _USER)
        self._probes.clear()
        self._update_expected()

    def send_digest(self) -> None:
        """Send the digest to the right-hand neighbour, which compares it."""
        if len(self.leaf_set):
            left, right = self.leaf_set.left, self.leaf_set.right
            self.host.send(right[0], LeafSetDigest(self.leaf_set.digest(left[-1])))

    # Probes

    def due(self, _: ProbesDue) -> Effects:
        """Probe peers again that did not answer in time; those that never do count as dead."""
        self._timer_set = False
        now = self.host.now()
        for probe in [probe for probe in self._probes.values() if probe.due <= now]:
            if probe.tries < self.config.probe_tries:
                self._send(probe)
            else:
                yield from self._give_up(probe.contact)
        if self._probes:
            self._arm()

    def _give_up(self, contact: Contact) -> Effects:
        self.host.trace(Mark("probe_given_up"))
        self._probes.pop(contact.node_id)
        if contact.node_id in self.leaf_set:
            self.neighbours.probe(contact)  # only the failure detector decides whether a member is dead
        else:
            self.lost_peers.remember(contact, met=False)
        self._update_expected(anew=True)
        self.consider_table()  # the next one may be alive: a partition loses whole sides at once
        yield from self._settle()

    def _update_expected(self, *, anew: bool = False) -> None:
        """Update `_expected` after a probe ended; rebuild it if `anew`, after a peer turned out to be dead."""
        if not self._probes:
            self._expected, self._probes = self.leaf_set, EMPTY  # an emptied dict keeps its memory
        elif anew:
            self._expected = self.leaf_set.copy()
            for probe in self._probes.values():
                self._expected.add(probe.contact)

    def question(self) -> LeafSetProbe:
        """Return the content of a probe."""
        return LeafSetProbe(tuple(self.leaf_set), joining=not self.lifecycle.active)

    def _send(self, probe: Probe) -> None:
        probe.sent = self.host.now()
        probe.tries += 1
        probe.due = probe.sent + self.neighbours.timeout(probe.contact.node_id) * (1 + probe.tries) / 2
        self.host.send(probe.contact, self.question())
        if not self._timer_set:
            self._arm()

    def _arm(self) -> None:
        self._timer_set = True
        next_due = min(probe.due for probe in self._probes.values())
        self.host.set_timer(ProbesDue(), max(next_due - self.host.now(), self.neighbours.config.timeout_min_s))

    def check(self) -> None:
        """Raise AssertionError if peers are being probed but no timer is set, or a bound is exceeded."""
        assert not self._probes or self._timer_set, "peers are being probed but no timer is set"
        assert self.host.me not in self._probes, "a peer probes itself"
        assert self._probes or self._expected is self.leaf_set, (
            "no peer is being probed, but `_expected` is not the leaf set"
        )
        assert len(self._reported) <= _REPORTED_MAX, len(self._reported)
        assert all(node_id in self.leaf_set for node_id in (*self.joining, *self._exchanged))
