"""Queries for people: a topic's live tree, the lag of its subscriptions, and who holds up an event that is not stable.

A query changes nothing, here or elsewhere. If this peer has no part in the topic's tree, the query is routed to the
topic, and the closest peer answers, either as its root or that there is none. Asking for the root first, as publishers
do, would create one.

If the topic's root scope is a scope, only members of that scope get answers: outside, a topic of that name is a
different one.

Peers answer the asker directly, so a walk takes one hop per level down and one back. The asker names peers that report
that they lack the event, lost peers whose leases are still running, and peers that do not answer at all. A peer that
has the event is not named, even if it was asked because its parent does not know that yet.
"""

from collections.abc import Mapping
from itertools import islice

import msgspec

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.event_places import readmitted
from quillcast.protocol.security.access import Warrant, bearer, is_restricted
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.membership.subscribing import shown_warrant
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.query_messages import Branch, Laggards, Lagging, Survey
from quillcast.protocol.topics.stability import lag
from quillcast.protocol.topics.state.holders import UNKNOWN_PEER, Child, OrphanedLease
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.tracing import WAYS_MAX, Tracing

WARRANTS_MAX = 16  # shown with a question; a guess: one peer serves few principals in a topic


class Walk:
    """The answers of peers to the question who holds up an event."""

    def __init__(self, root: Contact) -> None:
        self.root = root
        self.asked: dict[bytes, Contact] = {root.node_id: root}
        self.answered: dict[bytes, Lagging] = {}

    def note(self, sender: Contact, answer: Lagging) -> None:
        """Enter the answer of a peer."""
        self.answered[sender.node_id] = answer
        self.asked |= {contact.node_id: contact for contact in (sender, *answer.asked)}

    @property
    def behind(self) -> list[Contact]:
        """Return live peers that do not have the event yet."""
        return [self.asked[node] for node, answer in sorted(self.answered.items()) if answer.behind]

    @property
    def orphaned_leases(self) -> dict[bytes, float]:
        """Return lost peers with the remaining seconds of their leases, without peers that answered."""
        known: dict[bytes, float] = {}
        for answer in self.answered.values():
            known |= {node: left_s for node, left_s in answer.orphaned_leases if node not in self.answered}
        return dict(sorted(known.items()))

    @property
    def unresponsive(self) -> list[Contact]:
        """Return peers that did not answer."""
        return [contact for node, contact in sorted(self.asked.items()) if node not in self.answered]

    @property
    def withheld(self) -> bool:
        """Whether a peer withheld names because the topic's list does not name the asker."""
        return any(answer.withheld for answer in self.answered.values())

    @property
    def hold(self) -> Lagging | None:
        """Return the answer of a root that declares nothing stable for a while, whichever peers have the event."""
        return max(self.answered.values(), key=lambda answer: answer.hold_s, default=None) if self.hold_s else None

    @property
    def hold_s(self) -> float:
        """Return for how long the root declares nothing stable."""
        return max((answer.hold_s for answer in self.answered.values()), default=0.0)


class Inspection:
    """Sends queries along a topic's tree, and gathers the answers of its peers."""

    __slots__ = (
        "dispatch", "host", "known", "numbers", "past_terms_s", "publishing", "ring", "surveys", "tracing", "trees",
        "walks",
    )  # fmt: skip

    def __init__(
        self, host: Host, past_terms_s: float, ring: Overlay, known: KnownTopics, trees: Mapping[bytes, Tree],
        publishing: Publishing, tracing: Tracing, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.past_terms_s, self.ring, self.known, self.trees = host, past_terms_s, ring, known, trees
        self.publishing, self.tracing, self.dispatch = publishing, tracing, dispatch
        self.surveys: dict[int, dict[bytes, Branch]] = {}
        self.walks: dict[int, Walk] = {}
        self.numbers = 0
        dispatch.on_anonymous(Survey, self._survey)
        dispatch.on_message(Branch, self._branch_told)
        dispatch.on_anonymous(Laggards, self._name_laggards)
        dispatch.on_message(Lagging, self._lagging_told)
        dispatch.on_routed(Survey, self._arrived)

    def survey(self, name: str, trace_s: float = 0.0) -> int:
        """Ask every peer of a topic's tree for its place. Return the number of the survey.

        The answers gather in `surveys[number]`, by peer, until `end_survey`. With `trace_s`, also follow the next
        bundle that starts within that time: the hops that peers report gather in `tracing.hops[number]`.
        """
        self.numbers += 1
        self.surveys[self.numbers] = {}
        if trace_s:
            self.tracing.await_hops(self.numbers)
        descriptor = self.known.describe(name)
        topic, tree = descriptor.topic, self.trees.get(descriptor.topic)
        message = Survey(
            topic, self.host.contact, self.numbers, trace_s=trace_s, warrants=self._warrants(topic),
            root_scope=descriptor.settings.root_scope,
        )  # fmt: skip
        if tree is not None and tree.attached:
            if trace_s:  # shows at least whether its parent is silent
                self._answer(self.host.contact, self._branch(tree, self.numbers))
            self._survey(message)
        else:
            self._to_root(message)
        return self.numbers

    def end_survey(self, number: int) -> None:
        """Discard a survey and its trace: the asker has read the answers."""
        del self.surveys[number]
        self.tracing.forget_hops(number)

    def end_walk(self, number: int) -> None:
        """Discard a walk: the asker has read the answers."""
        del self.walks[number]

    def who_lags(self, publisher: Publisher, sequence: int) -> int:
        """Ask who holds up a publisher's events before `sequence`, beginning at its root, which is known.

        The answers gather in `walks[number]`, until `end_walk`. Return this number.
        """
        assert publisher.root is not None
        self.numbers += 1
        self.walks[self.numbers] = Walk(publisher.root)
        message = Laggards(
            publisher.topic, NO_TERM, 0, self.host.contact, self.numbers, publisher.id, sequence,
            warrants=self._warrants(publisher.topic),
        )  # fmt: skip
        if publisher.root.node_id == self.host.me:
            self._name_laggards(message)
        else:
            self.host.send(publisher.root, message)
        return self.numbers

    def _to_root(self, message: Survey) -> None:
        """Send it to the root if that is known, else to the peer closest to the topic."""
        tree, root = self.trees.get(message.topic), self.publishing.finder.roots.get(message.topic)
        if tree is not None and tree.root is not None:
            self._survey(message)
        elif root is not None and root.node_id != self.host.me:
            self.host.send(root, message)
        elif self.ring.active:
            self.ring.route(message, message.topic)

    def _arrived(self, message: Survey) -> None:
        """Handle a query that arrived by the overlay: this peer is the closest to its topic."""
        tree = self.trees.get(message.topic)
        if (tree is not None and tree.attached) or self.known.hidden(message.topic, message.root_scope):
            self._survey(message)
        else:
            self._answer(message.asker, _no_root(message, self.known.descriptors.get(message.topic)))

    def _branch_told(self, sender: Contact, message: Branch) -> None:
        if message.number in self.surveys:
            self.surveys[message.number][sender.node_id] = message

    def _lagging_told(self, sender: Contact, message: Lagging) -> None:
        if message.number in self.walks:
            self.walks[message.number].note(sender, message)

    def _survey(self, message: Survey) -> None:
        if self.known.hidden(message.topic, message.root_scope):
            self._answer(message.asker, _no_root(message))
            return
        tree = self.trees.get(message.topic)
        if tree is None:
            if not message.down and self.ring.active:
                self.ring.route(message, message.topic)  # the asker took this peer for the root
            return
        if tree.parent is not None and not message.down:
            self.host.send(tree.parent, message)
            return
        if not self._may_see(tree, message):
            if tree.root is not None:
                self._answer(message.asker, self._only_root(tree, message.number))
            return
        if message.trace_s:
            self.tracing.ask(message)
            if not tree.attached:
                return  # it is about to be root, and has no place in the tree yet
        branch = self._branch(tree, message.number)
        self._answer(message.asker, branch)
        for child in branch.children:
            self.host.send(child, msgspec.structs.replace(message, down=True))

    def _warrants(self, topic: bytes) -> tuple[Warrant, ...]:
        """Return the warrants by which this peer subscribes and publishes, if a list limits who subscribes."""
        descriptor, tree = self.known.descriptors.get(topic), self.trees.get(topic)
        if descriptor is None or not is_restricted(descriptor.access, "subscribe"):
            return ()
        warrants = [publisher.warrant for publisher in self.publishing.publishers.get(topic, {}).values()]
        if tree is not None:
            warrants.append(shown_warrant(tree, self.host.me))
        return tuple(dict.fromkeys(warrant for warrant in warrants if warrant is not None))[:WARRANTS_MAX]

    def _may_see(self, tree: Tree, message: Survey | Laggards) -> bool:
        """Whether the topic's list lets the asker subscribe or publish. Only such peers learn who else does."""
        descriptor, node = tree.descriptor, message.asker.node_id
        if node == self.host.me or not is_restricted(descriptor.access, "subscribe"):
            return True
        if node in tree.leases.children or tree.is_below(node):
            return True  # the bundles that they pass on tell them as much
        who = {bearer(warrant, node, tree.topic): None for warrant in message.warrants[:WARRANTS_MAX]}
        rights = ("subscribe", "publish") if is_restricted(descriptor.access, "publish") else ("subscribe",)
        return any(descriptor.refusal(right, one) is None for one in who if one for right in rights)

    def _only_root(self, tree: Tree, number: int) -> Branch:
        """Return that there is a root, and the topic's descriptor. Peers that the list does not name learn no more."""
        return Branch(tree.topic, number, b"", [], 0, tree.term, 0, root=True, descriptor=tree.descriptor)

    def _branch(self, tree: Tree, number: int) -> Branch:
        """Return this peer's place in a tree."""
        is_root, scopes = tree.root is not None, self.tracing.scopes
        return Branch(
            tree.topic,
            number,
            tree.parent.node_id if tree.parent is not None else b"",
            [child.contact for child in tree.leases.children.values()],
            len(tree.subscriptions),
            tree.term,
            tree.frontier,
            root=is_root,
            readers=tuple(lag.readers(tree, self.host, self.past_terms_s)[: lag.READERS_MAX]),
            leases=tuple(lag.leases(tree, self.host)),
            events=lag.events(tree),
            descriptor=tree.descriptor if is_root else None,
            streams=len(tree.flow.others),
            source=tree.sources.own is not None,
            scope=scopes.name(tree.topic),
            changing=scopes.is_changing(tree.topic),
            readmitted=readmitted(tree.flow),
            carriers=scopes.carriers(tree.topic),
            channels=tuple(islice(scopes.channels(tree.topic), WAYS_MAX)),
        )

    def _name_laggards(self, message: Laggards) -> None:
        """Name what holds the position back here, and continue the walk below (docs/delivery.md, *Guarantees*)."""
        tree, now = self.trees.get(message.topic), self.host.now()
        if tree is None:  # this peer no longer needs the topic, and its parent does not know that yet
            self._answer(message.asker, _nothing(message))
            return
        answer = _nothing(message)
        if message.term == NO_TERM:
            if tree.admitter is None:
                return  # it no longer numbers the topic's events, and so asks nobody
            index = tree.admitter.place_of(message.publisher, message.sequence)
            message = msgspec.structs.replace(message, term=tree.admitter.term, index=index, up=True)
        if message.up and tree.root is None:
            if tree.parent is not None:
                self.host.send(tree.parent, message)
            if message.asker.node_id == self.host.me:  # the source itself does not hold it up
                self._answer(message.asker, answer)
            return
        if message.up and tree.root is not None:
            message = msgspec.structs.replace(message, up=False)
            answer = _held_by(tree.root, answer, now)
        if not self._may_see(tree, message):
            self._answer(message.asker, msgspec.structs.replace(answer, withheld=True))
            return
        asked = [child.contact for child in tree.leases.children.values() if _lacks(child, message)]
        if message.term.of_source:
            behind = (tree.flow.front(message.term) or 0) < message.index
        else:
            behind = (tree.term, tree.frontier) < (message.term, message.index)
        behind = behind or any(edge.frontier(message.term) < message.index for edge in tree.subscriptions)
        orphaned = _orphaned_leases(tree, message, now)
        answer = msgspec.structs.replace(answer, behind=behind, orphaned_leases=orphaned, asked=asked)
        self._answer(message.asker, answer)
        for child in asked:
            self.host.send(child, message)

    def _answer(self, to: Contact, message: Branch | Lagging) -> None:
        if to.node_id == self.host.me:
            self.dispatch.message(self.host.contact, message)
        else:
            self.host.send(to, message)


def _no_root(message: Survey, known: Descriptor | None = None) -> Branch:
    """Return that the topic has no root, and what is known of the topic."""
    return Branch(message.topic, message.number, b"", [], 0, NO_TERM, 0, descriptor=known)


def _nothing(message: Laggards) -> Lagging:
    """Return an answer that names nobody."""
    return Lagging(message.topic, message.number, behind=False, orphaned_leases=[], asked=[])


def _held_by(root: Root, answer: Lagging, now: float) -> Lagging:
    """Return the answer with how long this root declares nothing stable, and why."""
    if root.held_until <= now:
        return answer
    return msgspec.structs.replace(
        answer, hold_s=root.held_until - now, former=root.after or NO_TERM, began_s=max(0.0, now - root.began_at),
        paused=root.paused_until > root.hold_until,
    )  # fmt: skip


def _orphaned_leases(tree: Tree, message: Laggards, now: float) -> list[tuple[bytes, float]]:
    """Return lost peers that hold a position back, and how long: former children, and peers a root waits for."""
    gone: dict[bytes, float] = {}
    if tree.root is not None and tree.root.hold_until > now:
        gone = {node: tree.root.hold_until - now for node in tree.root.awaited if node != UNKNOWN_PEER}
    for lease in tree.leases.orphaned.values():
        if _lacks(lease, message):
            gone |= {node: ends - now for node in lease.awaited if (ends := lease.ends_at(node)) > now}
    return list(gone.items())


def _lacks(holder: Child | OrphanedLease, message: Laggards) -> bool:
    """Whether it has not acknowledged a position. A term later than the position's counts as acknowledgement."""
    if message.term.of_source:
        return not holder.sends_only and holder.needed_from(message.term) < message.index
    return (holder.acknowledged_term, holder.acknowledged) < (message.term, message.index)
