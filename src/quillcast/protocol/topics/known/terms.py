"""How a peer in a tree follows its roots: the present term and past ones (docs/delivery.md)."""

from collections.abc import Mapping
from typing import Any

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import HALF_BYTES, SESSION_TERMS, Term
from quillcast.core.errors import Implausible
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.plausible import check_of
from quillcast.protocol.topics.root_messages import StateQuery
from quillcast.protocol.topics.state.effects import LaterTermExists
from quillcast.protocol.topics.state.owing import owe, owe_late
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree


class Terms:
    """What this peer knows about the terms of its topics."""

    __slots__ = ("began_at", "dispatch", "host", "own", "past_terms_s", "rivals", "schedule")

    def __init__(
        self, host: Host, past_terms_s: float, rivals: Mapping[bytes, Descriptor], schedule: Schedule,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        """`rivals` are other owners' descriptors of known topics."""
        self.host, self.past_terms_s, self.rivals = host, past_terms_s, rivals
        self.schedule, self.dispatch = schedule, dispatch
        self.began_at, self.own = host.now(), Term(0, host.me[:HALF_BYTES] + host.incarnation)

    def check(self, said: Any) -> None:
        """Raise `Implausible` if another peer's message or term names a term or version that cannot exist yet."""
        if not self.believes(said):
            raise Implausible(f"a {type(said).__name__} names a term or version that cannot exist yet")

    def believes(self, said: Any) -> bool:
        """Whether all terms and versions that another peer's message or term names can exist."""
        kind: Any = type(said)
        check = check_of(kind)
        if check is None or check(said, self.host.wall_ns):
            return True
        self.host.trace(Mark("implausible"))
        return False

    def has_settings(self, tree: Tree, term: Term) -> bool:
        """Whether this peer knows settings of the session of a root's term, or of a later one.

        A term contains its session's guarantee. So a term without settings would be a change that nobody signed. If the
        name has two owners, the settings of either are enough.
        """
        if term.counter < SESSION_TERMS:
            return True
        rival = self.rivals.get(tree.topic)
        if term.guarantee <= tree.descriptor.guarantee or (rival is not None and term.session <= rival.session):
            return True
        self.host.trace(Mark("session_unknown"))
        return False

    def knows_session(self, tree: Tree, session: int) -> bool:
        """Whether this peer knows settings of this session, or of a later one, of either owner of the name."""
        rival = self.rivals.get(tree.topic)
        return session <= tree.descriptor.session or (rival is not None and session <= rival.session)

    def check_settings(self, tree: Tree, sender: Contact, *said: Term) -> None:
        """Raise `Implausible` if a neighbour's report names a term of a session that is unknown here.

        The neighbour is asked for the settings, and its report counts once they have come.
        """
        for term in said:
            if term != tree.flow.current.term and not self.has_settings(tree, term):
                self.host.send(sender, StateQuery([tree.topic]))
                raise Implausible(f"{sender.address} names a term of a session whose settings are not known")

    def enter(self, tree: Tree, term: Term, start: int, *, here: bool = False) -> None:
        """Begin a term: its events are owed from `start` on to this peer and its subscribers.

        The term is ignored if the settings of its session are unknown. `here`: this peer is the root.
        """
        if not self.has_settings(tree, term):
            return
        is_noted = self.schedule.note_came(tree, self.host.now())
        end = max(tree.arrived_below, tree.inherited.index if tree.inherited.term == tree.term else 0)
        ended = tree.flow.begin(term, start, self.host.now() + self.past_terms_s, end, here=here)
        if ended is not None:
            if is_noted:
                ended.learn_came(ended.end, self.host.now())
            else:
                ended.note_unread()
            for subscription in tree.subscriptions:
                owe(tree, subscription, ended)
        self.schedule.note_came(tree, self.host.now())
        tree.begin_session(term)
        tree.forgive_cuts()
        for subscription in tree.subscriptions:
            subscription.begin(term, start, owed=tree.flow.keeps, fills=not tree.descriptor.settings.by_source)
        tree.forget_reach()
        tree.hear_of(max(tree.heard, term))
        self.schedule.touch(tree)

    def recall(self, tree: Tree, term: Term, end: int, there_ms: int | None = None) -> None:
        """Learn the end of a past term. Subscribers are owed its events, unless all existed before they began.

        The events have existed for at least `there_ms` milliseconds; None: unknown as yet. Of several peers, the one
        that had them first knows best. A term of a former process of this peer was over when this process began.
        """
        flow, now = tree.flow, self.host.now()
        if tree.root is not None and end:
            tree.root.was_used(term)
        news = flow.may_recall(term, end) and flow.open_past().recall(term, end, now + self.past_terms_s)
        past = flow.past.get(term)
        if past is None:
            return
        told = past.there_for(now)
        dated = there_ms is not None and past.learn_came(end, now - there_ms / 1000)
        if term.is_of(self.host.me) and not term.shares_root(self.own):
            dated |= past.learn_came(past.end, self.began_at)
        if news or past.there_for(now) != told:
            self.schedule.touch(tree)  # other neighbours may not know that either
        if news or dated:
            for subscription in tree.subscriptions:
                owe_late(tree, subscription, past)

    def keep(self, tree: Tree, for_s: float | None = None, *, ahead: bool = False) -> None:
        """Stay in the tree, by default as long as others may need what this peer knows about a past term.

        `ahead`: only until the parent has what is here.
        """
        tree.keep_until(self.host.now() + (self.past_terms_s if for_s is None else for_s), ahead=ahead)
        self.schedule.wake(tree)

    def was_used(self, tree: Tree, term: Term) -> None:
        """Note that a peer was in the topic's tree under this term, or published under it."""
        if tree.root is not None:
            tree.root.was_used(term)
        self.heard_of(tree, term)

    def heard_of(self, tree: Tree, term: Term) -> None:
        """Note a term. Terms only grow: a root that hears of a later one than its own begins an even later one."""
        if term > tree.heard:
            self.note(tree, term)
        if tree.root is not None and tree.heard > tree.root.term:
            self.dispatch.order(LaterTermExists(tree.topic))

    def note(self, tree: Tree, *terms: Term) -> None:
        """Note terms that the next root's must exceed, unless the settings of their sessions are unknown."""
        for term in terms:
            if term > tree.heard and self.has_settings(tree, term):
                tree.hear_of(term)
