"""One failure detector per neighbour, shared by the overlay, every tree and every group (docs/design.md, decision 4).

A neighbour that was silent for an interval gets a heartbeat. If it stays silent, the heartbeat is repeated a few times
at shorter intervals; then the neighbour is suspected, and finally lost. If two peers watch each other, the peer that
sent the last heartbeat also sends the next one, so a quiet link costs one heartbeat and one answer per interval.

All links of a peer have the same interval, the smallest that any user of any link wants. So the cost of a link does not
depend on how much it carries, and a peer next to a root in the ring detects its death as soon as the root's children
do. A single timer checks all links. Links that are nearly due get their heartbeats in the same check.
"""

from collections.abc import Iterable
from typing import Protocol

from quillcast.core.host import Host, Timer
from quillcast.core.ids import NodeId
from quillcast.core.interning import interned
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark, Recovered, Suspected
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.neighbours.messages import Heartbeat, HeartbeatAnswer
from quillcast.protocol.neighbours.roundtrip import RoundTrip

_EARLY = 0.4  # a link due within this fraction of its interval gets its heartbeat with those that are due; a guess
_ANSWERER_WAITS = 1.5  # intervals to wait after answering, so that the other peer keeps asking; above 1 + _EARLY
_TICK_S = 0.001  # closer times count as equal: clocks and sums of floats are not more precise
_NEVER = float("inf")


class NeighbourListener(Protocol):
    """Hears of neighbours that are lost and that recover."""

    def lost(self, contact: Contact) -> None:
        """The neighbour counts as dead, as far as this peer can tell. Every watch of it has ended."""
        ...

    def recovered(self, contact: Contact) -> None:
        """A lost neighbour sent something. Watch it again if it still matters."""
        ...


class Marks(Protocol):
    """The marks of change streams that heartbeats carry."""

    def mark(self, node_id: bytes) -> tuple[int, bytes]:
        """The change number and the digest of what this peer sent on the link to `node_id`."""
        ...

    def compare(self, sender: Contact, change: int, digest: bytes) -> None:
        """The mark of the other side arrived."""
        ...


class SilenceCheckDue(Timer, frozen=True):
    """Check the silence of all links: some are due."""

    at: float


TIMERS: tuple[type[Timer], ...] = (SilenceCheckDue,)
"""The timers of this layer."""


class Link:
    """The liveness of one neighbour. `unanswered` counts unanswered heartbeats since the neighbour was last `heard`.

    The next heartbeat is sent at `due` or later, if nothing is heard until then.
    """

    __slots__ = (
        "asked", "broken", "compared", "contact", "due", "every_s", "heard", "repeated", "share", "slow", "suspected",
        "told_s", "unanswered", "users",
    )  # fmt: skip

    def __init__(self, contact: Contact, now: float) -> None:
        self.contact = contact
        self.users: tuple[tuple[float, str], ...] = ()
        self.follow(_NEVER)
        self.heard = self.compared = self.due = now
        self.asked = 0.0
        self.unanswered = 0
        self.suspected = self.broken = False
        self.repeated = False  # whether the last heartbeat repeated an unanswered one
        self.slow = False  # whether that was also so in the previous exchange
        self.told_s: float | None = None  # round-trip time reported by others

    def use(self, user: str, every_s: float | None) -> list[float]:
        """Set or, with None, remove the interval that a user wants. Return what it wanted before."""
        former = [other_s for other_s, other in self.users if other == user]
        users = [(other_s, other) for other_s, other in self.users if other != user]
        if every_s is not None:
            users.append((every_s, user))
        self.users = interned(tuple(users))  # most links have the same users
        return former

    def follow(self, every_s: float) -> None:
        """Adopt the peer's interval, if the link has users."""
        self.every_s = every_s if self.users else _NEVER
        self.share = 1.0  # of the interval, after which the next heartbeat is due

    def look_at(self) -> float:
        """From this time on, the silence check examines the link."""
        return self.due - (_TICK_S if self.unanswered or not self.users else _EARLY * self.every_s)


class Neighbours:
    """Detects which neighbours of this peer are alive."""

    def __init__(self, host: Host, config: NeighbourConfig, streams: Marks | None = None) -> None:
        """Without `streams` heartbeats carry no marks."""
        self.host, self.config, self.streams = host, config, streams
        self._listeners: tuple[NeighbourListener, ...] = ()
        self._links: dict[bytes, Link] = {}
        self._lost: dict[bytes, None] = {}
        self._round_trips: dict[bytes, RoundTrip] = {}
        self._asked: dict[bytes, Link] = {}  # links with unanswered heartbeats
        self._wanted: dict[float, int] = {}  # intervals wanted by users of links, and how many users want each
        self._every_s = _NEVER  # the smallest of these
        self._quiet_until = _NEVER  # no other link is due before this
        self._checked_at = _NEVER

    def tell(self, *listeners: NeighbourListener) -> None:
        """Tell these listeners about lost and recovered peers, in this order."""
        self._listeners += listeners

    # Calls of users of the detector

    def watch(self, contact: Contact, user: str, every_s: float) -> None:
        """Tell the listeners when the peer falls silent.

        A heartbeat is sent whenever the peer was silent for `every_s` seconds, or sooner: the smallest interval that
        any user of any link wants applies to all links. The watch ends with `unwatch` or when the peer is lost.
        """
        link = self._link(contact)
        self._want([every_s], link.use(user, every_s))
        link.follow(self._every_s)
        self._lost.pop(contact.node_id, None)
        self._arm(self._plan(link))

    def unwatch(self, node_id: bytes, user: str) -> None:
        """End the use of the peer by `user`. The link may close when it has no users."""
        link = self._links.get(node_id)
        former = link.use(user, None) if link is not None else None
        if link is None or not former:
            return
        self._want([], former)
        if not link.users:
            self._drop(link)
            self.release(node_id)

    def release(self, node_id: bytes) -> None:
        """Let the link to a peer close, unless it is watched."""
        if node_id not in self._links:
            self.host.disconnect(NodeId(node_id))

    def watches(self, node_id: bytes) -> bool:
        """Whether the peer is watched, or has still to answer."""
        return node_id in self._links

    def probe(self, contact: Contact, told_s: float | None = None) -> None:
        """Send the peer a heartbeat now, watched or not. If it does not answer, the listeners are told that it is lost.

        Nothing happens if the peer is lost already. `told_s` is as for `timeout`.
        """
        if contact.node_id in self._lost:
            return
        link = self._link(contact)
        link.told_s = told_s
        if not link.unanswered:
            self._ask_now(link)

    def suspected(self, node_id: bytes) -> bool:
        """Whether the peer was silent for too long, or lost and not heard from since."""
        link = self._links.get(node_id)
        return link.suspected if link is not None else node_id in self._lost

    def is_doubting(self) -> bool:
        """Whether any neighbour has not answered yet. Only such a neighbour can be suspected without being lost."""
        return bool(self._asked)

    def round_trip(self, node_id: bytes) -> float | None:
        """The smoothed round-trip time in seconds; None if it was never measured here."""
        known = self._round_trips.get(node_id)
        return None if known is None else known.smoothed_s

    def timeout(self, node_id: bytes, told_s: float | None = None) -> float:
        """The time in seconds within which an answer from the peer is expected (RFC 6298).

        `told_s` is the round-trip time reported by others, for a peer that this one has not measured.
        """
        known, config = self._round_trips.get(node_id), self.config
        if known is None:
            proximity = self.host.proximity(NodeId(node_id))
            proximity = told_s if proximity is None else proximity
            if proximity is None:
                return config.timeout_first_s
            known = RoundTrip(proximity)
        return min(max(known.timeout_s, config.timeout_min_s), config.timeout_max_s)

    def answered(self, node_id: bytes, round_trip_s: float) -> None:
        """Take the round-trip time of an answer into account, also of other layers' requests."""
        known = self._round_trips.get(node_id)
        if known is not None:
            known.add(round_trip_s)
            return
        if len(self._round_trips) >= self.config.round_trips_max:
            del self._round_trips[next(iter(self._round_trips))]
        self._round_trips[node_id] = RoundTrip(round_trip_s)

    # Inputs from the peer

    def heard(self, contact: Contact, now: float) -> None:
        """Note that a message or bundle arrived from this peer."""
        link = self._links.get(contact.node_id)
        if link is not None:
            link.heard = now
        elif self._lost and contact.node_id in self._lost:
            self._recover(contact)

    def link_lost(self, contact: Contact) -> None:
        """The link broke: send a heartbeat at once. If the link breaks again before an answer, the peer is lost."""
        link = self._links.get(contact.node_id)
        if link is None:
            return
        if link.broken:
            self._declare_lost(link)
            return
        link.broken = True
        if not link.unanswered:
            self._ask_now(link)

    def died(self, contact: Contact) -> None:
        """The host knows that the peer has ended: it is lost without a heartbeat."""
        link = self._links.get(contact.node_id)
        if link is not None:
            self._declare_lost(link)

    def link_up(self, contact: Contact) -> None:
        """The link is up: send a new heartbeat if one was unanswered."""
        link = self._links.get(contact.node_id)
        if link is not None and link.unanswered:
            link.unanswered = 0
            self._ask_now(link)

    def receive(self, sender: Contact, message: Message) -> None:
        if type(message) is Heartbeat:
            change, digest = self._mark(sender.node_id)
            self.host.send(sender, HeartbeatAnswer(message.sent_at, change, digest))
            self._compare(sender, message.change, message.digest, _ANSWERER_WAITS)
        elif type(message) is HeartbeatAnswer:
            link = self._compare(sender, message.change, message.digest, 1.0)
            # The comparison may have ended the watch.
            if link is not None and self._links.get(sender.node_id) is link:
                self._confirm_alive(link, message.sent_at)

    def timer(self, timer: SilenceCheckDue) -> None:
        if timer.at != self._checked_at:
            return  # an earlier timer was set since
        self._checked_at = _NEVER
        if self.host.now() - timer.at > self.config.pause_s:
            self._process_paused()
        self._check_silence()

    # Internals

    def _link(self, contact: Contact) -> Link:
        link = self._links.get(contact.node_id)
        if link is None:
            link = self._links[contact.node_id] = Link(contact, self.host.now())
        link.contact = contact
        return link

    def _want(self, asked_for: Iterable[float], no_more: Iterable[float]) -> None:
        """Add and remove intervals wanted by users. All links follow the smallest."""
        wanted = self._wanted
        for every_s in asked_for:
            wanted[every_s] = wanted.get(every_s, 0) + 1
        for every_s in no_more:
            wanted[every_s] -= 1
            if not wanted[every_s]:
                del wanted[every_s]
        every_s = min(self._wanted, default=_NEVER)
        if every_s == self._every_s:
            return
        self._every_s = every_s
        for link in self._links.values():
            link.follow(every_s)
            self._arm(self._plan(link))

    def _plan(self, link: Link) -> float:
        """Compute and return when the next heartbeat is due, if nothing is heard until then."""
        if link.unanswered:
            patience = self.timeout(link.contact.node_id, link.told_s) * (1 + link.unanswered) / 2
            link.due = due = link.asked + min(patience, self.config.repeat_max_s)
            return due
        due = link.heard + link.every_s * link.share
        if self.streams is not None and due > link.compared + self.config.digest_every_s:
            due = min(due, link.compared + max(link.every_s, self.config.digest_every_s))
        if due < self._quiet_until:
            self._quiet_until = due
        link.due = due
        return due

    def _check_silence(self) -> None:
        """Check the neighbours with unanswered heartbeats and, if any other is due, all others."""
        now = self.host.now()
        for link in list(self._asked.values()):
            if link.look_at() <= now:
                self._look(link, now)
        if self._quiet_until <= now + _TICK_S:
            self._ask_round(now)
        self._arm(min([self._quiet_until, *[link.due for link in self._asked.values()]]))

    def _ask_round(self, now: float) -> None:
        """Send heartbeats on due and nearly due links, if any is still due: most were heard from meanwhile."""
        quiet = [link for link in self._links.values() if not link.unanswered]
        seeming = [link for link in quiet if link.due <= now + _TICK_S]
        if any(self._plan(link) <= now + _TICK_S for link in seeming):
            for link in quiet:
                if link.look_at() <= now:
                    self._look(link, now)
        self._quiet_until = min((link.due for link in quiet if not link.unanswered), default=_NEVER)

    def _look(self, link: Link, now: float) -> None:
        """Send a heartbeat to this neighbour if it is due, or declare it lost."""
        if link.unanswered and link.heard > link.asked:
            self._confirm_alive(link, None)
        self._plan(link)
        if link.look_at() > now:
            return
        if link.unanswered >= self.config.tries_max:
            self._declare_lost(link)
        else:
            self._ask(link, now)
            self._plan(link)

    def _arm(self, at: float) -> None:
        """Set the timer for the next silence check, unless one comes earlier."""
        if at < self._checked_at:
            self._checked_at = at
            self.host.set_timer(SilenceCheckDue(at), max(at - self.host.now(), _TICK_S))

    def _ask(self, link: Link, now: float) -> None:
        link.asked = now
        if link.unanswered >= self.config.suspect_after and not link.suspected:
            link.suspected = True
            self.host.trace(Suspected(link.contact.node_id, now - link.heard))
        if not link.unanswered:
            link.slow = link.repeated
        link.repeated = link.unanswered > 0
        link.unanswered += 1
        contact = link.contact
        self._asked[contact.node_id] = link
        change, digest = self._mark(contact.node_id)
        self.host.send(contact, Heartbeat(now, change, digest))

    def _ask_now(self, link: Link) -> None:
        self._ask(link, self.host.now())
        self._arm(self._plan(link))

    def _confirm_alive(self, link: Link, sent_at: float | None) -> None:
        """End the suspicion of a neighbour that sent something, perhaps an answer to the heartbeat of that time.

        The time of an answer to a repeated heartbeat shows how long the neighbour was paused, and not its distance
        (Karn's rule), unless this happens twice in a row: then the neighbour is far away, and needs no other heartbeat
        to be measured.
        """
        if sent_at == link.asked and link.repeated <= link.slow:
            self.answered(link.contact.node_id, self.host.now() - link.asked)
        if link.suspected:
            self.host.trace(Recovered(link.contact.node_id))
        was_paused = link.unanswered > 1 and not link.slow
        link.unanswered, link.suspected, link.broken = 0, False, False
        self._asked.pop(link.contact.node_id, None)
        if link.users and was_paused:
            self._ask_now(link)  # measures the round trip, now that it answers again
        elif link.users:
            self._arm(self._plan(link))
        else:
            self._drop(link)

    def _drop(self, link: Link) -> None:
        del self._links[link.contact.node_id]
        self._asked.pop(link.contact.node_id, None)
        link.due = _NEVER
        if link.users:
            self._want([], [every_s for every_s, _ in link.users])

    def _declare_lost(self, link: Link) -> None:
        """This is where a death is noticed: tell the overlay and the topics."""
        node_id = link.contact.node_id
        if not link.suspected:
            self.host.trace(Suspected(node_id, self.host.now() - link.heard))
        self._drop(link)
        self._round_trips.pop(node_id, None)
        if len(self._lost) >= self.config.lost_max:
            del self._lost[next(iter(self._lost))]
        self._lost[node_id] = None
        self.host.trace(Mark("neighbour_lost"))
        self.release(node_id)
        for listener in self._listeners:
            listener.lost(link.contact)

    def _recover(self, contact: Contact) -> None:
        del self._lost[contact.node_id]
        self.host.trace(Recovered(contact.node_id))
        for listener in self._listeners:
            listener.recovered(contact)

    def _process_paused(self) -> None:
        """This process was paused, and messages may be waiting: send new heartbeats before declaring anyone lost."""
        self.host.trace(Mark("process_paused"))
        now = self.host.now()
        for link in self._links.values():
            link.unanswered = 0
            self._ask(link, now)
            self._plan(link)

    def _mark(self, node_id: bytes) -> tuple[int, bytes]:
        return (0, b"") if self.streams is None else self.streams.mark(node_id)

    def _compare(self, sender: Contact, change: int, digest: bytes, share: float) -> Link | None:
        """Record the exchange of marks. This side sends its next heartbeat after `share` intervals."""
        link = self._links.get(sender.node_id)
        if link is not None:
            link.compared = link.heard  # just now
            link.share = share
            if not link.unanswered:
                self._plan(link)
        if self.streams is not None:
            self.streams.compare(sender, change, digest)
        return link

    def check(self) -> None:
        """Raise AssertionError if a link has no purpose or too many heartbeats, or is due with no check scheduled."""
        wanted = [every_s for link in self._links.values() for every_s, _ in link.users]
        assert self._wanted == {every_s: wanted.count(every_s) for every_s in {*wanted}}, (self._wanted, wanted)
        assert self._every_s == min(wanted, default=_NEVER), (self._every_s, wanted)
        for node_id, link in self._links.items():
            assert link.contact.node_id == node_id, link.contact
            assert link.users or link.unanswered, f"{node_id.hex()} is kept without a user"
            assert link.unanswered <= self.config.tries_max, (
                f"{node_id.hex()} has {link.unanswered} unanswered heartbeats"
            )
            assert node_id not in self._lost, f"{node_id.hex()} is both watched and lost"
            assert (node_id in self._asked) == (link.unanswered > 0), (
                f"{node_id.hex()} has {link.unanswered} unanswered heartbeats"
            )
            assert link.unanswered or self._quiet_until <= link.due, f"{node_id.hex()} is due before `_quiet_until`"
            assert self._checked_at <= link.due, (
                f"{node_id.hex()} is due {self._checked_at - link.due} s before the next check"
            )
        assert len(self._lost) <= self.config.lost_max, len(self._lost)
