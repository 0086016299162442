"""The rendezvous point's own state: it admits publishers' events in sequence, and declares what is stable.

A root acknowledges events of a publisher that its own term admitted, or that the former root reported to it
(`frontiers`). The floor that a publisher names says where to begin, but not what is stable (`topics.publisher`).
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
    """One term and what its root waits for. The term's stream is empty if sources number the events."""

    __slots__ = (
        "after", "asked", "awaited", "awaited_until", "began_at", "flush_until", "followed", "hold_until",
        "holders", "noted", "outbids", "paused_until", "session_state", "sessions_asked",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, descriptor: Descriptor, term: Term, hold_until: float, *,
        early: EarlyBlocks, holders: int = 1, after: Term | None = NO_TERM, outbids: bool = False,
    ) -> None:  # fmt: skip
        """`holders`: how many peers recorded the term. `after`: the latest earlier term known; None: the topic was new.

        `outbids`: this peer was already root, and heard of a rival's later term.
        """
        super().__init__(host, config, descriptor, term, early)
        self.hold_until = hold_until  # nothing is declared stable before: orphans may still be joining
        self.began_at = host.now()
        self.after, self.outbids = after, outbids
        self.followed: tuple[Term, ...] = ()  # transferred terms in order, the last one to this term
        self.paused_until = 0.0  # ... nor before this, after a pause: another root may have followed
        self.awaited: dict[bytes, int] = EMPTY  # after a transfer: peers to wait for, with all below; move numbers
        self.awaited_until = 0.0  # until then, for those that the former root still waited for
        self.asked: dict[Contact, None] = EMPTY  # peers that asked for the root in order to publish
        self.noted = descriptor  # the settings that most replicas hold
        self.holders = holders  # how many replicas that is, including this peer
        self.session_state = SessionState.CLOSED  # until `root/sessions.py` hears of this term
        self.flush_until: float | None = None
        """The time until which subscribers can acknowledge its events, once its session is to end."""
        self.sessions_asked: dict[bytes, Create] = EMPTY  # by creator: answered in the next session

    def is_of_another_life(self, move: Move) -> bool:
        """Whether the move is that of an awaited peer that restarted after it was named."""
        return of_another_life(self.awaited.get(move.peer, 0), move.number)

    # ---- what the former root left

    def follow(self, followed: tuple[Term, ...]) -> None:
        """Note the former root's term and the terms that it followed: it transferred the topic."""
        self.followed = followed

    def take_frontiers(self, frontiers: dict[bytes, int]) -> None:
        """Take over the publishers' frontiers from the former root."""
        self.frontiers = frontiers

    def wait_for(self, named: dict[bytes, int], until: float, here: Iterable[Move], arrived: Iterable[Move]) -> None:
        """Wait until a time for the peers that the former root named, except for those that have arrived.

        A peer that arrives with a move of another life does not know which peers were below it.
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
        """Stop waiting for peers that arrived below this one by these moves, unless a later move of theirs is known.

        When all peers that the former root named have arrived, only its own hold remains.
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
        """Note that most replicas hold these settings, and how many."""
        self.noted, self.holders = descriptor, holders

    def step(self, what: SessionInput) -> SessionStep:
        """Return what to do next after this was learned about the session."""
        self.session_state, step = SESSION_TABLE[self.session_state, what]
        return step

    def note_session_asked(self, request: Create) -> None:
        """Note a request that is answered in the next session."""
        self.sessions_asked = {**self.sessions_asked, request.creator.node_id: request}

    def take_sessions_asked(self) -> Iterable[Create]:
        """Take out the requests that were to be answered in the next session."""
        asked, self.sessions_asked = self.sessions_asked, EMPTY
        return asked.values()

    def flush(self, until: float) -> None:
        """Begin to end the session. Subscribers have until then to acknowledge the admitted events."""
        self.flush_until = until

    def call_off_session(self) -> None:
        """Continue the session."""
        self.session_state, self.flush_until = SessionState.ACTIVE, None

    # ---- the peers of publishers

    def note_asked(self, contact: Contact) -> None:
        """Note a peer with publishers that asked for the root. It is told of changes even if it publishes nothing."""
        self.asked = self.asked or {}
        self.asked[contact] = None
        if len(self.asked) > self.config.admissions_max:
            del self.asked[next(iter(self.asked))]

    def publishing_peers(self) -> tuple[Contact, ...]:
        """Return the peers that publish here, or have asked for the root."""
        return tuple(self.asked | {admission.contact: None for admission in self.admissions.values()})

    def idle_peers(self) -> list[Contact]:
        """Return the peers that asked for the root but have no known publishers, so that no receipt goes there."""
        publish = {admission.contact for admission in self.admissions.values()} if self.asked else ()
        return [contact for contact in self.asked if contact not in publish]

    def lost(self, node: bytes) -> None:
        """Note that a peer is unreachable. Its publishers are remembered for one lease."""
        self.asked = {contact: None for contact in self.asked if contact.node_id != node} or EMPTY
        for admission in self.admissions.values():
            if admission.contact.node_id == node and admission.gone_at is None:
                admission.lose(self.host.now())

    def housekeep(self, now: float) -> dict[Contact, list[bytes]]:
        """Forget publishers that closed, or whose peers were lost a lease ago. Return silent ones by peer."""
        before = now - self.config.lease_s
        if self.began_at <= before:
            self.frontiers = EMPTY  # later repeats are admitted again; subscribers recognise them by sequence
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
        """Yield the times at which peers were lost whose publishers are only remembered for a lease."""
        for admission in self.admissions.values():
            if admission.gone_at is not None and not admission.runs:
                yield admission.gone_at

    # ---- what is stable

    @property
    def held_until(self) -> float:
        """The time before which nothing is declared stable."""
        return max(self.hold_until, self.paused_until)

    def hold(self, until: float) -> None:
        """Declare nothing stable before a time, whichever peers arrive before it."""
        self.hold_until = max(self.hold_until, until)
        self.awaited_until = max(self.awaited_until, until)

    def pause(self, until: float) -> None:
        """Declare nothing stable before a time, because this process was paused and another root may have followed."""
        self.paused_until = until

    def go_on_after_pause(self) -> None:
        """End the hold after a pause: no other root followed."""
        self.paused_until = 0.0

    def was_used(self, term: Term) -> None:
        """Note that the topic was used under this term. If this root took it for new, unknown leases may exist.

        Nothing is then declared stable until one lease after this term began, when those leases have ended.
        """
        if self.after is None and term not in (NO_TERM, self.term) and not term.of_source:
            self.after = NO_TERM
            self.host.trace(Mark("topic_not_new"))
            self.hold(self.began_at + self.config.lease_s)

    def end_hold(self, now: float) -> None:
        """Stop waiting for unknown peers."""
        self.hold_until, self.paused_until = min(self.hold_until, now), 0.0
        self.awaited = EMPTY

    def forgot(self, node: bytes) -> None:
        """Wait for the unknown peers below an awaited peer instead of for that peer, which has forgotten them."""
        if node in self.awaited:
            del self.awaited[node]
            self.awaited[UNKNOWN_PEER] = 0

    def acknowledge_to(self, index: int, now: float) -> bool:
        """Note that all live leases acknowledged the term below `index`. Return whether the stable position moved."""
        if index <= self.stable or now < self.held_until:
            return False
        self._settle(index)
        return True

    def stable_frontiers(self) -> dict[bytes, int]:
        """Return, per publisher, one past the last event that all leases are known to have acknowledged."""
        acknowledged = {publisher: known.stable for publisher, known in self.admissions.items() if known.stable}
        return self.frontiers | acknowledged


def _by(at: float | None, before: float) -> bool:
    return at is not None and at <= before
