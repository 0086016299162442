"""For people: what runs in a scope, asked at any peer of the network.

As with a topic's tree (`protocol.topics.inspection`), a question changes nothing by itself, its answer comes directly
to who asked, and answers gather by number until the asker is done with them.

Members know where their scope's manager runs. For all others a manager's peer tells the peer closest to the scope's id,
again and again (`ScopeAt`), with the statement that the scope's key signed, and that one tells the two next to it. They
believe the first key that they hear of until they have heard nothing for a while: who knows the right key, a member,
does not ask them.
"""

from collections.abc import Callable, Sequence

import msgspec

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.scopes import succession
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import (
    RING_SHOWN,
    AskedOf,
    AskScope,
    FindScope,
    ScopeAt,
    ScopeFound,
    ScopeSays,
)

TOLD_EVERY = 8  # beats of a manager's peer between two `ScopeAt`; a guess: ten seconds
REMEMBERED_S = 30.0  # three of them; a guess
KEPT_BESIDE = 2  # others that remember it, beside the peer closest to the scope's id
REMEMBERED_MAX = 4096  # scopes that one peer remembers for others; a guess


class Question(msgspec.Struct):
    """A question that waits for its answer."""

    scope: bytes
    of: Contact | None = None
    """The peer that was asked. None: whichever is closest to the scope's id."""
    found: ScopeFound | None = None
    says: ScopeSays | None = None
    lost: bool = False
    """Whether the link to that peer broke, or could not be opened."""

    @property
    def answered(self) -> bool:
        """Whether the answer has come, or there is none to wait for."""
        return self.found is not None or self.says is not None or self.lost


class Questions:
    """Asks where managers run, asks them, and remembers for others where managers run."""

    __slots__ = ("answer", "asked", "host", "overlay", "remembered", "told")

    def __init__(self, host: Host, overlay: Pastry, dispatch: Dispatch) -> None:
        self.host, self.overlay = host, overlay
        self.asked: dict[int, Question] = {}
        self.remembered: dict[bytes, tuple[ScopeAt, float]] = {}
        """Managers by the ids of their scopes, and until when."""
        self.told: dict[bytes, int] = {}
        """The epochs of managers here of which others were told."""
        self.answer: Callable[[Contact, AskScope], None] = self._has_no_answer
        dispatch.on_routed(ScopeAt, self._keep)
        dispatch.on_anonymous(ScopeAt, self._told)
        dispatch.on_routed(FindScope, self._find)
        dispatch.on_message(FindScope, self._pass_on)
        dispatch.on_message(ScopeFound, self._found)
        dispatch.on_message(AskScope, self._came)
        dispatch.on_message(ScopeSays, self._said)

    # ---- asking

    def find(self, scope: bytes, through: Sequence[Contact] = ()) -> int:
        """Ask where a scope's manager runs: the number of the question in `asked`, until `end`.

        A peer that is no part of the network yet asks `through` others, which pass the question on.
        """
        number = self._begin(Question(scope))
        question = FindScope(scope, self.host.contact, number)
        if self.overlay.active:
            self.overlay.route(question, scope)
        else:
            for contact in through:
                self.host.send(contact, question)
        return number

    def remembers(self, scope: bytes) -> ScopeAt | None:
        """Where a scope's manager ran lately: for others, or as this peer found out. The closest peer may know more."""
        self._forget(self.host.now())
        return self.remembered[scope][0] if scope in self.remembered else None

    def ask(self, of: Contact, scope: bytes, what: AskedOf, body: bytes = b"") -> int:
        """Ask another peer about a scope, likewise."""
        number = self._begin(Question(scope, of))
        self.host.send(of, AskScope(scope, number, what, body))
        return number

    def end(self, number: int) -> None:
        """The asker has seen the answer, or waits no longer."""
        del self.asked[number]

    def _begin(self, asked: Question) -> int:
        number = self.host.random.randrange(NUMBER_MAX)  # nobody else can answer, for nobody can guess it
        self.asked[number] = asked
        return number

    def _found(self, _: Contact, message: ScopeFound) -> None:
        asked, at = self.asked.get(message.number), message.at
        if asked is None or asked.of is not None or asked.answered:
            return
        if at is not None and not self._is_of(at, asked.scope):
            self.host.trace(Mark("scope_impostor"))
            return
        asked.found = message
        if at is not None:
            self._remember(at)

    def _is_of(self, at: ScopeAt, scope: bytes) -> bool:
        """Whether the key of this scope signed that, as far as this peer knows it."""
        known, new = self.remembers(scope), at.succession
        return new.scope == scope and succession.is_genuine(new) and (known is None or known.succession.key == new.key)

    def _said(self, sender: Contact, message: ScopeSays) -> None:
        asked = self.asked.get(message.number)
        if asked is not None and asked.of is not None and asked.of.node_id == sender.node_id and not asked.answered:
            asked.says = message

    def link_lost(self, contact: Contact) -> None:
        """A link broke, or could not be opened: who was asked over it does not answer any more."""
        for asked in self.asked.values():
            if asked.of is not None and asked.of.node_id == contact.node_id and not asked.answered:
                asked.lost = True

    # ---- answering

    def answer_by(self, answer: Callable[[Contact, AskScope], None]) -> None:
        """This answers questions that come here, now or later (`reply`)."""
        self.answer = answer

    def reply(self, to: Contact, number: int, body: bytes, why: str = "") -> None:
        """Answer a question."""
        says = ScopeSays(number, body, why)
        if to.node_id == self.host.me:
            self._said(to, says)
        else:
            self.host.send(to, says)

    def _came(self, sender: Contact, message: AskScope) -> None:
        self.answer(sender, message)

    def _has_no_answer(self, sender: Contact, message: AskScope) -> None:
        """Nobody answers questions at this peer."""
        self.reply(sender, message.number, b"", f"the peer at {self.host.contact.address} does not answer questions")

    # ---- where managers run

    def tell(self, scope: bytes, manager: ScopeManager, beat: int) -> None:
        """Tell the peer closest to the scope's id that its manager runs here, at first and now and then."""
        proof = manager.succession
        if proof is None or not self.overlay.active:
            return
        if self.told.get(scope) != proof.epoch or beat % TOLD_EVERY == 0:
            self.told[scope] = proof.epoch
            self.overlay.route(ScopeAt(proof, manager.ring()[:RING_SHOWN]), scope)

    def _keep(self, message: ScopeAt) -> None:
        """This peer is the closest to the scope's id: the next ones remember it, too, as the closest may fail."""
        if not self._remember(message):
            return
        for contact in self.overlay.closest(message.succession.scope, 1 + KEPT_BESIDE):
            if contact.node_id != self.host.me:
                self.host.send(contact, message)

    def _told(self, message: ScopeAt) -> None:
        self._remember(message)

    def _remember(self, message: ScopeAt) -> bool:
        new, now = message.succession, self.host.now()
        self._forget(now)
        known = self.remembered.get(new.scope)
        if known is None and (len(self.remembered) >= REMEMBERED_MAX or not succession.is_genuine(new)):
            self.host.trace(Mark("scope_not_remembered"))
            return False
        if known is not None and new != known[0].succession and not succession.follows(new, known[0].succession):
            self.host.trace(Mark("scope_impostor"))
            return False
        self.remembered.pop(new.scope, None)
        self.remembered[new.scope] = message, now + REMEMBERED_S
        return True

    def _forget(self, now: float) -> None:
        """Forget managers of which nothing was heard for long: they stand first."""
        while self.remembered and next(iter(self.remembered.values()))[1] <= now:
            del self.remembered[next(iter(self.remembered))]

    def _pass_on(self, sender: Contact, message: FindScope) -> None:
        if self.overlay.active:
            self.overlay.route(FindScope(message.scope, sender, message.number), message.scope)

    def _find(self, message: FindScope) -> None:
        found = ScopeFound(message.number, self.remembers(message.scope))
        if message.asker.node_id == self.host.me:
            self._found(message.asker, found)
        else:
            self.host.send(message.asker, found)
