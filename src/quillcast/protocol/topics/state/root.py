"""The rendezvous point's own state: admits publishers' events in sequence, gives positions, says what is stable.

What a root says of a publisher's events it says of those that its term admitted, or of those of which the root before
told it (`frontiers`). The floor that a publisher names says where to begin, and nothing of what is stable
(`topics.publisher`).
"""

from collections.abc import Iterable, Iterator

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.root_messages import Create
from quillcast.protocol.topics.state.admitter import Admitter
from quillcast.protocol.topics.state.early import EarlyBlocks
from quillcast.protocol.topics.state.holders import UNKNOWN_PEER
from quillcast.protocol.topics.state.link_reports import Move, of_another_life, reaches
from quillcast.protocol.topics.state.session import SESSION_TABLE, SessionInput, SessionState, SessionStep


class Root(Admitter):
    """One term: the stream of a root, or an empty one where sources number the events; and what the root waits for."""

    __slots__ = (
        "after", "asked", "awaited", "awaited_until", "began_at", "flush_until", "followed", "hold_until",
        "holders", "noted", "outbids", "paused_until", "session_state", "sessions_asked",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, descriptor: Descriptor, term: Term, hold_until: float, *,
        early: EarlyBlocks, holders: int = 1, after: Term | None = NO_TERM, outbids: bool = False,
    ) -> None:  # fmt: skip
        """`holders`: so many noted the term. `after` is the latest that was heard of then; None: the topic was new.

        `outbids`: this peer was root already, and heard of a rival's later term.
        """
        super().__init__(host, config, descriptor, term, early)
        self.hold_until = hold_until  # nothing is called stable before: orphans may be on their way here
        self.began_at = host.now()
        self.after, self.outbids = after, outbids
        self.followed: tuple[Term, ...] = ()  # terms that were transferred, each to the next, the last to this
        self.paused_until = 0.0  # ... or this process was paused, and another root may have followed
        self.awaited: dict[bytes, int] = EMPTY  # peers to wait for after a transfer, with all below; their numbers
        self.awaited_until = 0.0  # ... but for those that the root before waited for itself
        self.asked: dict[Contact, None] = EMPTY  # peers that asked for the root, to publish when they have something
        self.noted = descriptor  # what most of those who keep the topic's state hold
        self.holders = holders  # ... and how many they are, this one among them
        self.session_state = SessionState.CLOSED  # until `root/sessions.py` hears of this term
        self.flush_until: float | None = None
        """Subscribers have until then for what it admitted, once its session is to end."""
        self.sessions_asked: dict[bytes, Create] = EMPTY  # by creator: to be answered in the next session

    def is_of_another_life(self, move: Move) -> bool:
        """Is one of those awaited who was restarted since it was named, before it moved so?"""
        return of_another_life(self.awaited.get(move.peer, 0), move.number)

    # ---- what the root before left

    def follow(self, followed: tuple[Term, ...]) -> None:
        """The root before transferred the topic: its term, and those that it followed."""
        self.followed = followed

    def take_frontiers(self, frontiers: dict[bytes, int]) -> None:
        """Where publishers stood with the root before."""
        self.frontiers = frontiers

    def wait_for(self, named: dict[bytes, int], until: float, here: Iterable[Move], arrived: Iterable[Move]) -> None:
        """Wait for those below that it named, until a time, but not for those that are here by now.

        By a move of another life, one says that it does not know who was below it.
        """
        self.awaited = named
        for move in arrived:
            if self.is_of_another_life(move):
                self.forgot(move.peer)
        self.awaited_until = max(self.awaited_until, until)
        self.heard_from(here)
        if not self.awaited:
            self.hold_until = self.awaited_until

    def heard_from(self, moves: Iterable[Move]) -> None:
        """Peers are below this one by these moves. Nobody waits any more for those that it knew no later moves of.

        Once all have come that the root before named, its own hold is what remains.
        """
        if not self.awaited:
            return
        for move in moves:
            if self.is_of_another_life(move):
                self.forgot(move.peer)
            elif reaches(move.number, self.awaited.get(move.peer, 0)):
                self.awaited.pop(move.peer, None)
        if not self.awaited:
            self.hold_until = self.awaited_until

    # ---- settings and sessions

    def note_settings(self, descriptor: Descriptor, holders: int) -> None:
        """So many of those who keep the topic's state hold these settings, which is most of them."""
        self.noted, self.holders = descriptor, holders

    def step(self, what: SessionInput) -> SessionStep:
        """Something was learned about the session: what to do next."""
        self.session_state, step = SESSION_TABLE[self.session_state, what]
        return step

    def note_session_asked(self, request: Create) -> None:
        """Somebody is to be answered in the next session."""
        self.sessions_asked = {**self.sessions_asked, request.creator.node_id: request}

    def take_sessions_asked(self) -> Iterable[Create]:
        """Those that were to be answered in the next session."""
        asked, self.sessions_asked = self.sessions_asked, EMPTY
        return asked.values()

    def flush(self, until: float) -> None:
        """Subscribers have until then for what was admitted: the session is to end."""
        self.flush_until = until

    def call_off_session(self) -> None:
        """The session goes on."""
        self.session_state, self.flush_until = SessionState.ACTIVE, None

    # ---- the peers of publishers

    def note_asked(self, contact: Contact) -> None:
        """A peer with publishers asks for the root. It wants to know what changes, even if it publishes nothing."""
        self.asked = self.asked or {}
        self.asked[contact] = None
        if len(self.asked) > self.config.admissions_max:
            del self.asked[next(iter(self.asked))]

    def publishing_peers(self) -> tuple[Contact, ...]:
        """The peers that publish here, or have asked where to."""
        return tuple(self.asked | {admission.contact: None for admission in self.admissions.values()})

    def idle_peers(self) -> list[Contact]:
        """The peers that asked for the root, and of whose publishers it knows nothing: no receipt goes there."""
        publish = {admission.contact for admission in self.admissions.values()} if self.asked else ()
        return [contact for contact in self.asked if contact not in publish]

    def lost(self, node: bytes) -> None:
        """A peer is out of reach: its publishers are remembered for a lease's time."""
        self.asked = {contact: None for contact in self.asked if contact.node_id != node} or EMPTY
        for admission in self.admissions.values():
            if admission.contact.node_id == node and admission.gone_at is None:
                admission.lose(self.host.now())

    def housekeep(self, now: float) -> dict[Contact, list[bytes]]:
        """Forget publishers that closed, or whose peers were lost a lease ago. Returns silent ones by their peers."""
        before = now - self.config.lease_s
        if self.began_at <= before:
            self.frontiers = EMPTY  # events of later ones are admitted again; subscribers recognise repeats by sequence
        silent: dict[Contact, list[bytes]] = {}
        for publisher, admission in list(self.admissions.items()):
            if admission.active:
                admission.rest(now)
            elif not admission.runs and (admission.closed or _by(admission.gone_at, before)):
                self.forget(publisher)
            elif admission.idle_since <= before:
                silent.setdefault(admission.contact, []).append(publisher)
        return silent

    def gone(self) -> Iterator[float]:
        """Since when peers are lost whose publishers are remembered for their leases only."""
        for admission in self.admissions.values():
            if admission.gone_at is not None and not admission.runs:
                yield admission.gone_at

    # ---- what is stable

    @property
    def held_until(self) -> float:
        """Nothing is called stable before this time."""
        return max(self.hold_until, self.paused_until)

    def hold(self, until: float) -> None:
        """Declare nothing stable before a time, whichever peers arrive until then."""
        self.hold_until = max(self.hold_until, until)
        self.awaited_until = max(self.awaited_until, until)

    def pause(self, until: float) -> None:
        """This process was paused, and another root may have followed: declare nothing stable before a time."""
        self.paused_until = until

    def go_on_after_pause(self) -> None:
        """No other root followed."""
        self.paused_until = 0.0

    def was_used(self, term: Term) -> None:
        """The topic was used under this term. If it was taken for new, it was not, and there may be leases elsewhere.

        Then nothing is called stable before these would have ended had this root known when its term began.
        """
        if self.after is None and term not in (NO_TERM, self.term) and not term.of_source:
            self.after = NO_TERM
            self.host.trace(Mark("topic_not_new"))
            self.hold(self.began_at + self.config.lease_s)

    def end_hold(self, now: float) -> None:
        """Stop waiting for peers that this root does not know."""
        self.hold_until, self.paused_until = min(self.hold_until, now), 0.0
        self.awaited = EMPTY

    def forgot(self, node: bytes) -> None:
        """A peer that is waited for knows nothing of those that were below it: they are waited for instead."""
        if node in self.awaited:
            del self.awaited[node]
            self.awaited[UNKNOWN_PEER] = 0

    def acknowledge_to(self, index: int, now: float) -> bool:
        """All live leases have acknowledged the term below `index`. True if the stable position moved."""
        if index <= self.stable or now < self.held_until:
            return False
        self._settle(index)
        return True

    def stable_frontiers(self) -> dict[bytes, int]:
        """Per publisher, one past the last admitted event that all leases are known to have acknowledged."""
        acknowledged = {publisher: known.stable for publisher, known in self.admissions.items() if known.stable}
        return self.frontiers | acknowledged


def _by(at: float | None, before: float) -> bool:
    return at is not None and at <= before
