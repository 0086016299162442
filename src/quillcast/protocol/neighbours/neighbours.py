"""One failure detector per neighbour, shared by the overlay, every tree and every group (docs/design.md, decision 4).

A neighbour that said nothing for its interval is asked; silence is asked again, sooner and a few times, then suspected,
then lost. Between two peers that watch each other the one that asked last asks next, so a quiet link costs one question
and one answer per interval. One interval holds for all links of a peer, the smallest that any use of any link asks for:
what a link costs does not depend on how much it carries, and whoever is next to a root in the ring misses it as soon as
its children do. One timer sweeps all links; those nearly due are asked in the same sweep.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from quillcast.core.host import Host, Timer
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark, Recovered, Suspected
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.neighbours.messages import Heartbeat, HeartbeatAnswer
from quillcast.protocol.neighbours.roundtrip import RoundTrip

_EARLY = 0.4  # a link due within this share of its interval is asked with those that are due; a guess
_YIELD = 1.5  # who was asked waits this much longer, so that the other one goes on asking; above 1 + _EARLY
_TICK_S = 0.001  # times nearer than this are the same: clocks and sums of floats are no better
_NEVER = float("inf")


class NeighbourListener(Protocol):
    """Who is told about neighbours."""

    def lost(self, contact: Contact) -> None:
        """The neighbour is silent for good, as far as this peer can tell. Every watch of it has ended."""
        ...

    def recovered(self, contact: Contact) -> None:
        """A lost neighbour spoke; watch it again if it matters still."""
        ...


class Marks(Protocol):
    """What heartbeats carry for a link's streams of changes."""

    def mark(self, node_id: bytes) -> tuple[int, bytes]:
        """Change number and digest of what this peer said on the link to `node_id`."""
        ...

    def compare(self, sender: Contact, change: int, digest: bytes) -> None:
        """The other side's mark arrived."""
        ...


class SilenceCheckDue(Timer, frozen=True):
    """Timer: look at every link, some are due."""

    at: float


TIMERS: tuple[type[Timer], ...] = (SilenceCheckDue,)
"""What this layer tells itself later."""


class Link:
    """What is known of one neighbour's liveness. `questions` counts those that went unanswered since it was `heard`.

    `due` is no later than when it is to be asked (again), as far as nothing is heard until then; from `look_at` on, a
    sweep that comes by looks closer.
    """

    __slots__ = (
        "asked", "broken", "compared", "contact", "due", "early_s", "every_s", "heard", "look_at", "questions",
        "repeated", "slow", "suspected", "told_s", "users", "wait_s",
    )  # fmt: skip

    def __init__(self, contact: Contact, now: float) -> None:
        self.contact = contact
        self.users: tuple[tuple[float, str], ...] = ()
        self.follow(_NEVER)
        self.heard = self.compared = self.due = self.look_at = now
        self.asked = 0.0
        self.questions = 0
        self.suspected = self.broken = False
        self.repeated = False  # was the last question one that had been asked before and not been answered?
        self.slow = False  # was that so of the exchange before, too?
        self.told_s: float | None = None  # the round trip as others told it

    def use(self, user: str, every_s: float | None) -> list[float]:
        """A user asks for this interval, or with None for no more; what it asked for until now."""
        former = [other_s for other_s, other in self.users if other == user]
        users = [(other_s, other) for other_s, other in self.users if other != user]
        if every_s is not None:
            users.append((every_s, user))
        self.users = tuple(users)
        return former

    def follow(self, every_s: float) -> None:
        """Take the peer's interval, if anybody uses the link."""
        self.every_s = self.wait_s = every_s if self.users else _NEVER
        self.early_s = _EARLY * every_s if self.users else _TICK_S


class Neighbours:
    """Who of this peer's neighbours lives."""

    def __init__(self, host: Host, config: NeighbourConfig, streams: Marks | None = None) -> None:
        """Without `streams` heartbeats carry no marks."""
        self.host, self.config, self.streams = host, config, streams
        self.listeners: list[NeighbourListener] = []
        self._links: dict[bytes, Link] = {}
        self._lost: dict[bytes, None] = {}
        self._round_trips: dict[bytes, RoundTrip] = {}
        self._asked: dict[bytes, Link] = {}  # those of the links that have not answered
        self._wanted: dict[float, int] = {}  # intervals that users of links asked for, and how many did
        self._every_s = _NEVER  # the smallest of these
        self._quiet_until = _NEVER  # none of the others is due before this
        self._checked_at = _NEVER

    # What users of the detector call

    def watch(self, contact: Contact, user: str, every_s: float) -> None:
        """Tell the listeners when the peer falls silent.

        A heartbeat asks it whenever it said nothing for `every_s` seconds, or for less: the smallest interval that
        any user of any link asks for holds for all. The watch ends with `unwatch` or when the peer is lost.
        """
        link = self._link(contact)
        self._want([every_s], link.use(user, every_s))
        link.follow(self._every_s)
        self._lost.pop(contact.node_id, None)
        self._arm(self._plan(link))

    def unwatch(self, node_id: bytes, user: str) -> None:
        """`user` needs the peer no more; the link may close when nobody does."""
        link = self._links.get(node_id)
        former = link.use(user, None) if link is not None else None
        if link is None or not former:
            return
        self._want([], former)
        if not link.users:
            self._drop(link)
            self.release(node_id)

    def release(self, node_id: bytes) -> None:
        """Let the link to a peer close, unless somebody watches it."""
        if node_id not in self._links:
            self.host.disconnect(NodeId(node_id))

    def probe(self, contact: Contact, told_s: float | None = None) -> None:
        """Ask the peer for a sign of life now, watched or not. If none comes, the listeners hear that it is lost.

        Of a peer that is lost already they have heard. `told_s` is as for `timeout`.
        """
        if contact.node_id in self._lost:
            return
        link = self._link(contact)
        link.told_s = told_s
        if not link.questions:
            self._ask_now(link)

    def suspected(self, node_id: bytes) -> bool:
        """Was the peer silent for too long, or lost and not heard since?"""
        link = self._links.get(node_id)
        return link.suspected if link is not None else node_id in self._lost

    @property
    def doubting(self) -> bool:
        """Is there any neighbour that has not answered yet? Only such a one can be suspected and not lost."""
        return bool(self._asked)

    def round_trip(self, node_id: bytes) -> float | None:
        """Smoothed round trip in seconds, None if never measured here."""
        known = self._round_trips.get(node_id)
        return None if known is None else known.smoothed_s

    def timeout(self, node_id: bytes, told_s: float | None = None) -> float:
        """Seconds within which an answer from the peer is to be expected (RFC 6298).

        `told_s` is the round trip as others told it, for a peer that this one has not measured.
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
        """An answer took so long: also other layers' questions teach the time-out."""
        known = self._round_trips.get(node_id)
        if known is not None:
            known.add(round_trip_s)
            return
        if len(self._round_trips) >= self.config.round_trips_max:
            del self._round_trips[next(iter(self._round_trips))]
        self._round_trips[node_id] = RoundTrip(round_trip_s)

    # What the peer hands in

    def heard(self, contact: Contact) -> None:
        """A message or bundle came from this peer."""
        link = self._links.get(contact.node_id)
        if link is not None:
            link.heard = self.host.now()
        elif self._lost and contact.node_id in self._lost:
            self._recover(contact)

    def link_lost(self, contact: Contact) -> None:
        """The host's link broke: ask at once; if it breaks again before an answer, the peer is lost."""
        link = self._links.get(contact.node_id)
        if link is None:
            return
        if link.broken:
            self._bury(link)
            return
        link.broken = True
        if not link.questions:
            self._ask_now(link)

    def died(self, contact: Contact) -> None:
        """The host knows that the peer has ended: it is lost, and nobody asks it."""
        link = self._links.get(contact.node_id)
        if link is not None:
            self._bury(link)

    def link_up(self, contact: Contact) -> None:
        """The host's link stands: whoever is in doubt is asked over it."""
        link = self._links.get(contact.node_id)
        if link is not None and link.questions:
            link.questions = 0
            self._ask_now(link)

    def receive(self, sender: Contact, message: Message) -> None:
        if type(message) is Heartbeat:
            change, digest = self._mark(sender.node_id)
            self.host.send(sender, HeartbeatAnswer(message.sent_at, change, digest))
            self._compare(sender, message.change, message.digest, _YIELD)
        elif type(message) is HeartbeatAnswer:
            link = self._compare(sender, message.change, message.digest, 1.0)
            if (
                link is not None and self._links.get(sender.node_id) is link
            ):  # what it compared may have ended the watch
                self._believe(link, message.sent_at)

    def timer(self, timer: SilenceCheckDue) -> None:
        if timer.at != self._checked_at:
            return  # an earlier one was set since
        self._checked_at = _NEVER
        if self.host.now() - timer.at > self.config.pause_s:
            self._process_paused()
        self._check_silence()

    # How it goes about it

    def _link(self, contact: Contact) -> Link:
        link = self._links.get(contact.node_id)
        if link is None:
            link = self._links[contact.node_id] = Link(contact, self.host.now())
        link.contact = contact
        return link

    def _want(self, asked_for: Iterable[float], no_more: Iterable[float]) -> None:
        """Users ask for these intervals, and for those no more: all links follow the smallest."""
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
        """Note and say when to ask this neighbour (again), if nothing is heard until then."""
        if link.questions:
            patience = self.timeout(link.contact.node_id, link.told_s) * (1 + link.questions) / 2
            link.due = due = link.asked + min(patience, self.config.timeout_max_s)
            link.look_at = due - _TICK_S
            return due
        due = link.heard + link.wait_s
        if self.streams is not None and due > link.compared + self.config.digest_every_s:
            due = min(due, link.compared + max(link.every_s, self.config.digest_every_s))
        if due < self._quiet_until:
            self._quiet_until = due
        link.due, link.look_at = due, due - link.early_s
        return due

    def _check_silence(self) -> None:
        """Look at the neighbours that were asked, and at all others if any of these is due as well."""
        now = self.host.now()
        for link in list(self._asked.values()):
            if link.look_at <= now:
                self._look(link, now)
        if self._quiet_until <= now + _TICK_S:
            self._ask_round(now)
        self._arm(min([self._quiet_until, *[link.due for link in self._asked.values()]]))

    def _ask_round(self, now: float) -> None:
        """Ask those that are due, and with them those nearly due; if any still is, for most were heard meanwhile."""
        quiet = [link for link in self._links.values() if not link.questions]
        seeming = [link for link in quiet if link.due <= now + _TICK_S]
        if any(self._plan(link) <= now + _TICK_S for link in seeming):
            for link in quiet:
                if link.look_at <= now:
                    self._look(link, now)
        self._quiet_until = min((link.due for link in quiet if not link.questions), default=_NEVER)

    def _look(self, link: Link, now: float) -> None:
        """Ask this neighbour if it is due, or give it up."""
        if link.questions and link.heard > link.asked:
            self._believe(link, None)
        self._plan(link)
        if link.look_at > now:
            return
        if link.questions >= self.config.tries_max:
            self._bury(link)
        else:
            self._ask(link, now)
            self._plan(link)

    def _arm(self, at: float) -> None:
        """SilenceCheckDue at that time, unless a sweep comes before it."""
        if at < self._checked_at:
            self._checked_at = at
            self.host.set_timer(SilenceCheckDue(at), max(at - self.host.now(), _TICK_S))

    def _ask(self, link: Link, now: float) -> None:
        link.asked = now
        if link.questions >= self.config.suspect_after and not link.suspected:
            link.suspected = True
            self.host.trace(Suspected(link.contact.node_id, now - link.heard))
        if not link.questions:
            link.slow = link.repeated
        link.repeated = link.questions > 0
        link.questions += 1
        contact = link.contact
        self._asked[contact.node_id] = link
        change, digest = self._mark(contact.node_id)
        self.host.send(contact, Heartbeat(now, change, digest))

    def _ask_now(self, link: Link) -> None:
        self._ask(link, self.host.now())
        self._arm(self._plan(link))

    def _believe(self, link: Link, sent_at: float | None) -> None:
        """The neighbour spoke, maybe in answer to the question of that time: whatever was doubted about it is over.

        How long an answer to a repeated question took says how long the neighbour stood still, and not how far it is
        (Karn's rule); unless that happens twice in a row.
        """
        if sent_at == link.asked and link.repeated <= link.slow:
            self.answered(link.contact.node_id, self.host.now() - link.asked)
        if link.suspected:
            self.host.trace(Recovered(link.contact.node_id))
        doubted = link.questions > 1
        link.questions, link.suspected, link.broken = 0, False, False
        self._asked.pop(link.contact.node_id, None)
        if link.users and doubted:
            self._ask_now(link)  # how long an answer takes, now that it answers again
        elif link.users:
            self._arm(self._plan(link))
        else:
            self._drop(link)

    def _drop(self, link: Link) -> None:
        del self._links[link.contact.node_id]
        self._asked.pop(link.contact.node_id, None)
        link.due = link.look_at = _NEVER
        if link.users:
            self._want([], [every_s for every_s, _ in link.users])

    def _bury(self, link: Link) -> None:
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
        for listener in self.listeners:
            listener.lost(link.contact)

    def _recover(self, contact: Contact) -> None:
        del self._lost[contact.node_id]
        self.host.trace(Recovered(contact.node_id))
        for listener in self.listeners:
            listener.recovered(contact)

    def _process_paused(self) -> None:
        """This process was paused and its neighbours' words may wait: accuse nobody before a new question."""
        self.host.trace(Mark("process_paused"))
        now = self.host.now()
        for link in self._links.values():
            link.questions = 0
            self._ask(link, now)
            self._plan(link)

    def _mark(self, node_id: bytes) -> tuple[int, bytes]:
        return (0, b"") if self.streams is None else self.streams.mark(node_id)

    def _compare(self, sender: Contact, change: int, digest: bytes, share: float) -> Link | None:
        """Note the exchange of marks; `share` of the interval passes until this side asks."""
        link = self._links.get(sender.node_id)
        if link is not None:
            link.compared = self.host.now()
            link.wait_s = link.every_s * share
            if not link.questions:
                self._plan(link)
        if self.streams is not None:
            self.streams.compare(sender, change, digest)
        return link

    def check(self) -> None:
        """Raise AssertionError if a link is of no use, was asked too often, or is due and no sweep is set."""
        wanted = [every_s for link in self._links.values() for every_s, _ in link.users]
        assert self._wanted == Counter(wanted), (self._wanted, wanted)
        assert self._every_s == min(wanted, default=_NEVER), (self._every_s, wanted)
        for node_id, link in self._links.items():
            assert link.contact.node_id == node_id, link.contact
            assert link.users or link.questions, f"{node_id.hex()} is kept for nobody"
            assert link.questions <= self.config.tries_max, f"{node_id.hex()} was asked {link.questions} times"
            assert node_id not in self._lost, f"{node_id.hex()} is watched and lost"
            assert (node_id in self._asked) == (link.questions > 0), f"{node_id.hex()} was asked {link.questions} times"
            assert link.questions or self._quiet_until <= link.due, f"{node_id.hex()} is due sooner than believed"
            assert self._checked_at <= link.due, (
                f"{node_id.hex()} is due {self._checked_at - link.due} s before a sweep"
            )
        assert len(self._lost) <= self.config.lost_max, len(self._lost)
