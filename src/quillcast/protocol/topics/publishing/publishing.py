"""A peer's publishers: their roots, their receipts, and their requests to remote roots."""

from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM
from quillcast.core.errors import LocalError, QuillcastError
from quillcast.core.host import RESERVED_EIGHTHS, Host, Timer
from quillcast.core.ids import publisher_id
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.security.access import AccessDenied, Warrant, bearer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, unknown_topic
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.memory.flow_control import LocalRoom
from quillcast.protocol.topics.messages import Denied
from quillcast.protocol.topics.publishing.changes import SettingsChanges
from quillcast.protocol.topics.publishing.own_streams import OwnStreams
from quillcast.protocol.topics.publishing.publisher import NOBODY, Publisher, PublisherListener, Uplink
from quillcast.protocol.topics.publishing.root_finder import RootFinder
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root_messages import Closed, NotRoot, Receipts, RootIs, StillOpen
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree


class SayClosed(Timer, frozen=True):
    """Tell the roots which publishers closed in this turn."""


class Publishing:
    """All publishers of one peer, by topic."""

    def __init__(
        self, host: Host, config: TopicConfig, known: KnownTopics, intake: Intake, finder: RootFinder,
        own_streams: OwnStreams, changes: SettingsChanges, schedule: Schedule, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.known, self.intake = host, config, known, intake
        self.finder, self.own_streams, self.changes = finder, own_streams, changes
        self.schedule, self.dispatch = schedule, dispatch
        self.publishers, self._uplink = changes.publishers, Uplink(self._carry, self.room_to, self._wake)
        self.closed: dict[Contact, list[tuple[bytes, bytes]]] = {}  # topics and publishers that the roots still know
        self.count = 0
        self.due: dict[bytes, None] = {}  # topics with events in transit or no root; only these are checked
        known.spare(self.publishers)
        schedule.serve(self.publishers)
        dispatch.on_alarm(LocalRoom, self._local_room)
        dispatch.on_message(Receipts, self.receipts)
        dispatch.on_message(RootIs, self._root_is)
        dispatch.on_message(NotRoot, self._not_root)
        dispatch.on_message(Denied, self._told_denied)
        dispatch.on_message(StillOpen, self._still_open)
        dispatch.on_alarm(SayClosed, self.say_closed)

    def open(
        self, name: str, listener: PublisherListener, warrant: Warrant | None = None, id_: bytes = b"", first: int = 0
    ) -> Publisher:
        """Open a publisher of a topic. `warrant` says on whose behalf it publishes.

        It has this PublisherId, or, if none is given, a new one. Its events before `first` were published through
        another peer. An orphan with this PublisherId continues.
        """
        descriptor = self.known.describe(name)
        topic = descriptor.topic
        publisher = self.publishers.get(topic, {}).get(id_)
        if publisher is not None and publisher.is_orphaned:
            publisher.reopen(first, listener, warrant)
        else:
            publisher = Publisher(
                self.host, self.config, descriptor, id_ or self.new_id(), listener, self._uplink, warrant
            )  # fmt: skip
            publisher.continue_at(first)
            self.publishers.setdefault(topic, {})[publisher.id] = publisher
        self._wake(topic)
        self.schedule.begin()
        if self._waits(publisher):
            return publisher
        term = self.intake.term(topic)
        if term is not None:
            self._watch(topic, self.host.contact)
            self._tell(publisher, self.host.contact, term, held_back=self.intake.holds_back(topic))
        elif topic in self.finder.roots and not descriptor.access and warrant is None:
            held_back = any(each.held_back for each in self.publishers[topic].values())
            publisher.root_is(self.finder.roots[topic], NO_TERM, held_back=held_back)
        else:
            self._find(topic)
        return publisher

    def _waits(self, publisher: Publisher) -> bool:
        """Whether it must wait until a scope lets it publish."""
        return bool(self.known.permissions.why_not(publisher.descriptor, "publishes"))

    def bound(self, topic: bytes) -> str:
        """Return the bound for which publishers of a topic wait here, in a sentence; empty if they do not."""
        publisher = next(iter(self.publishers.get(topic, {}).values()), None)
        if publisher is None:
            return ""
        if topic in self.own_streams.crowded:
            name = publisher.descriptor.name
            bounds = "streams_max, or streams.map_bytes_max for all topics of two peers"
            return f"topic {name} has as many sources as it may have ({bounds}): wait until one ends"
        return self.known.permissions.why_not(publisher.descriptor, "publishes")

    def topics(self) -> dict[bytes, Descriptor]:
        """Return the topics with publishers that are open, or have events to send.

        A source passes its events on until they are stable: other peers may get them later than the first that does.
        """
        return {
            topic: each.descriptor
            for topic, publishers in self.publishers.items()
            for each in publishers.values()
            if not each.closed or each.admitted < each.next or (each.unfinished and each.term.of_source)
        }

    def bounds_changed(self) -> None:
        """Scopes limit other topics than before: publishers that have begun continue."""
        for topic in self.finder.roots:
            self.known.permissions.begin(topic, "publishes")

    def permitted(self) -> None:
        """Begin publishers that a scope now permits, or end those that it refuses."""
        for topic, publishers in list(self.publishers.items()):
            waiting = [each for each in publishers.values() if each.root is None and not each.closed]
            if waiting and topic not in self.finder.asked_at and topic not in self.own_streams.crowded:
                self._find(topic)
                for publisher in waiting:
                    publisher.listener.progressed()

    def refuse(self, topic: bytes, why: str) -> None:
        """A scope does not let this peer publish: end its publishers of the topic, begun or not."""
        for publisher in list(self.publishers.get(topic, {}).values()):
            if publisher.listener is not NOBODY:
                self._fail(publisher, AccessDenied(why))

    def new_id(self) -> bytes:
        """Return a PublisherId that no other publisher of this peer has or had."""
        self.count += 1
        return publisher_id(self.host.me, self.host.incarnation, self.count)

    def close(self, publisher: Publisher) -> None:
        """Close a publisher. It stays until its published events are stable."""
        publisher.close()
        self._wake(publisher.topic)
        self._drop_if_done(publisher)

    def orphan(self, publisher: Publisher) -> None:
        """Close a publisher whose application is gone. It continues if the application returns while it is kept."""
        publisher.orphan()
        self.close(publisher)

    def _drop_if_done(self, publisher: Publisher) -> None:
        topic = publisher.topic
        if not publisher.unfinished and publisher.id in self.publishers.get(topic, {}):
            if publisher.next and publisher.root is not None and not publisher.said_closed:
                self._closed(publisher.root, topic, publisher.id)
                publisher.note_closed_at_root()
            if not self._lingers(publisher):
                self._remove(publisher)

    def _lingers(self, publisher: Publisher) -> bool:
        """Whether it is the last of its topic. It stays for a lease, to tell a new root how far terms went."""
        alone = len(self.publishers[publisher.topic]) == 1 and self.finder.is_last_to_know(publisher.topic)
        return alone and self.host.now() - publisher.progress_at < self.config.lease_s

    def _closed(self, root: Contact, topic: bytes, publisher: bytes) -> None:
        if not self.closed:
            self.host.set_timer(SayClosed(), 0.0)
        self.closed.setdefault(root, []).append((topic, publisher))

    def say_closed(self) -> None:
        """Tell roots which publishers closed, so that they forget them."""
        closed, self.closed = self.closed, {}
        for root, publishers in closed.items():
            if root.node_id == self.host.me:
                self.dispatch.message(root, Closed(publishers))
            else:
                self.host.send(root, Closed(publishers))

    def not_here(self, publishers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return those of these publishers, each with its topic, that this process does not have."""
        return [(topic, id_) for topic, id_ in publishers if id_ not in self.publishers.get(topic, {})]

    def _still_open(self, root: Contact, message: StillOpen) -> None:
        """Answer a root that asks about silent publishers."""
        if closed := self.not_here(message.publishers):
            self.host.send(root, Closed(closed))
        for topic, version in message.versions:
            self._learn_version(topic, version)

    def _remove(self, publisher: Publisher) -> None:
        """Remove the publisher. After a topic's last one nothing is kept of the topic."""
        topic = publisher.topic
        self.publishers.get(topic, {}).pop(publisher.id, None)
        if not self.publishers.get(topic):
            self.publishers.pop(topic, None)
            self.finder.end(topic)
            self.own_streams.end(topic)
            self.known.follow_no_more(topic)
            self.known.done_with(topic)

    @property
    def unadmitted(self) -> int:
        """Return how many events of this peer's publishers have no position yet."""
        return sum(p.next - p.admitted for group in self.publishers.values() for p in group.values())

    @property
    def unstable(self) -> int:
        """Return how many events of this peer's publishers are not known to be stable, and may become so."""
        return sum(p.unsettled for group in self.publishers.values() for p in group.values() if p.reliable)

    # ---- roots

    def _carry(self, publisher: Publisher, bundle: Bundle) -> None:
        root = publisher.root
        assert root is not None
        if root.node_id != self.host.me:
            self.host.carry(root, bundle)
        else:
            self.intake.publish_here(bundle)

    def room_to(self, root: Contact, topic: bytes, held_back: bool) -> int:
        """Return how many bytes of a topic its root takes now.

        Publishers leave a part of a link's credit free. Bundles down the trees to that peer, and repairs for it, use
        that part, even if the peer's buffers are full of what publishers sent. What a publisher that is `held_back`
        sends again counts as a repair.
        """
        if root.node_id == self.host.me:
            return self.intake.room_for(topic)
        if held_back:
            return self.host.room(root)
        waits = self.known.descriptors[topic].settings.slow == "wait"
        return self.host.room(root, RESERVED_EIGHTHS[waits])

    def _find(self, topic: bytes) -> None:
        publishers = self.publishers.get(topic, {}).values()
        if not any(map(self._waits, publishers)):
            self.finder.ask(topic, publishers)

    def root_here(self, tree: Tree) -> None:
        """This peer became the topic's root: send to it."""
        assert tree.root is not None
        if tree.topic not in self.finder.asked_at and self.finder.is_last_to_know(tree.topic):
            self.finder.note_untold(tree.topic)
            self._wake(tree.topic)
        self._root_known(self.host.contact, tree.root.term, tree.descriptor, held_back=False)

    def settings_learned(self, descriptor: Descriptor, *, lists: bool) -> None:
        """Stop numbering the topic's events if a root numbers them, because an owner or a later session wants it.

        Also stop if that session is about to begin: the root learns that publishers here wait for it. `lists`: another
        list says who may publish. If this peer numbers the events, it must apply that list itself.
        """
        publishers = self.publishers.get(descriptor.topic, {}).values()
        if any(each.term.of_source for each in publishers) and not self.own_streams.goes_on(descriptor.topic):
            self._look_again(descriptor.topic)
        elif lists and descriptor.settings.by_source:
            self._go_by_list(list(publishers))

    def _go_by_list(self, publishers: list[Publisher]) -> None:
        """End publishers that the list does not name. The others show their rights first: all share a stream."""
        rules = [(publisher, self._denied(publisher)) for publisher in publishers]
        for publisher, rule in rules:
            if rule is None and publisher.term.of_source:
                self.own_streams.open(publisher)
        for publisher, rule in rules:
            if rule is not None:
                self._fail(publisher, AccessDenied(rule))

    def _root_is(self, root: Contact, message: RootIs) -> None:
        """Accept this from a peer asked for the root, or already known as root. From others only settings are news."""
        topic = message.descriptor.topic
        if topic in self.finder.asked_at or self._is_root(topic, root):
            self._root_known(root, message.term, message.descriptor, held_back=message.held_back)
        else:
            self.known.learn(message.descriptor)
            self.changes.root_found(self.known.descriptors[topic])

    def _is_root(self, topic: bytes, other: Contact) -> bool:
        """Whether publishers here send to this peer, or did until it fell silent."""
        node = other.node_id
        return any(
            (publisher.root is not None and publisher.root.node_id == node) or publisher.term.is_of(node)
            for publisher in self.publishers.get(topic, {}).values()
        )

    def _root_known(self, root: Contact, term: Any, descriptor: Descriptor, *, held_back: bool) -> None:
        topic = descriptor.topic
        self.known.learn(descriptor)
        self.changes.root_found(self.known.descriptors[topic])
        publishers = list(self.publishers.get(topic, {}).values())
        if any(term < publisher.term for publisher in publishers if not publisher.term.of_source):
            return  # a former root; it was paused, or this peer was
        if publishers:
            self.known.follow(topic, term)
        self.finder.answered(topic)
        if any(map(self._waits, publishers)):
            return  # it looks for the root again when it no longer has to wait
        known = self.known.descriptors[topic]
        if known.settings.by_source and not known.streams_go_on:
            for publisher in publishers:
                publisher.adapt(self._current(descriptor))
            self.finder.ask_later(topic)  # unless the root says before that the next session has begun
            return
        if not known.settings.by_source:
            self._watch(topic, root)
        for publisher in publishers:
            publisher.adapt(self._current(descriptor))
            if publisher.begins(descriptor):
                publisher.begin_session()
            self._tell(publisher, root, term, held_back=held_back)

    def _current(self, told: Descriptor) -> Descriptor:
        """Return the descriptor that this root applies: its own owner's, if the topic has two (docs/credentials.md)."""
        known = self.known.descriptors[told.topic]
        return told if told.rivals(known) and told.genuine else known

    def _tell(self, publisher: Publisher, root: Contact, term: Any, *, held_back: bool) -> None:
        """Let a publisher send to this root, unless the topic's list denies it."""
        rule = self._denied(publisher) if publisher.unfinished else None
        if rule is None:
            if publisher.descriptor.settings.by_source:
                self._number_here(publisher)
            else:
                publisher.root_is(root, term, held_back=held_back)
            publisher.listener.progressed()
        else:
            self._fail(publisher, AccessDenied(rule))

    def _number_here(self, publisher: Publisher) -> None:
        """Number the topic's events here: this peer is a source, with a place in the tree."""
        term = self.own_streams.open(publisher)
        if term is not None:
            self._watch(publisher.topic, self.host.contact)
            publisher.root_is(self.host.contact, term, held_back=self.intake.holds_back(publisher.topic))
            self.own_streams.take_place(publisher.topic)

    def _denied(self, publisher: Publisher) -> str | None:
        descriptor = publisher.descriptor
        if not descriptor.access:
            return None
        return descriptor.refusal("publish", bearer(publisher.warrant, self.host.me, publisher.topic))

    def _fail(self, publisher: Publisher, error: QuillcastError) -> None:
        """End a publisher that the topic accepts nothing from: discard what it kept."""
        if isinstance(error, AccessDenied):
            self._bequeath(publisher)
        self._remove(publisher)
        publisher.listener.failed(error)

    def _bequeath(self, publisher: Publisher) -> None:
        """A publisher loses its right. Tell later roots up to where terms had admitted what it discards.

        A closed publisher takes its place, because the last one of the topic may be the only one that knows.
        """
        topic = publisher.topic
        for term, came in publisher.places_kept().items():
            self.finder.note_dropped(topic, term, came, now=publisher.term)
            self.finder.note_untold(topic)  # the present root may follow the one that knew
        if not self.finder.is_last_to_know(topic):
            return
        heir = Publisher(self.host, self.config, publisher.descriptor, self.new_id(), NOBODY, self._uplink)
        heir.succeed(publisher)
        self.publishers[topic][heir.id] = heir
        self._wake(topic)

    def _refused(self, descriptor: Descriptor) -> None:
        """Nothing was admitted: end publishers that may not publish; the others show their warrants again later."""
        topic = descriptor.topic
        self.known.learn(descriptor)
        for publisher in list(self.publishers.get(topic, {}).values()):
            publisher.adapt(self._current(descriptor))
            publisher.root_lost()
            if publisher.unfinished and (rule := self._denied(publisher)) is not None:
                self._fail(publisher, AccessDenied(rule))
        self._forget_root(topic)
        self.finder.ask_later(topic)

    def _watch(self, topic: bytes, root: Contact) -> None:
        """Keep a root's address for as long as there are publishers."""
        if topic in self.publishers and self.finder.roots.get(topic) != root:
            self._wake(topic)
            self.finder.watch(topic, root)

    def _forget_root(self, topic: bytes) -> None:
        if topic in self.publishers:
            self._wake(topic)
        self.finder.forget(topic)

    def lost(self, node: bytes) -> None:
        """A neighbour is gone: find another root for the topics that it was root of."""
        for topic in self.finder.rooted_at(node):
            self.host.trace(Mark("publisher_lost_root"))
            self._look_again(topic)

    def link_up(self, contact: Contact) -> None:
        """If the link to a root broke, it may be another process now, which knows neither publishers nor settings."""
        for topic in self.finder.link_up(contact):
            self._find(topic)

    def _look_again(self, topic: bytes) -> None:
        self._forget_root(topic)
        for publisher in self.publishers.get(topic, {}).values():
            publisher.root_lost()
        if topic in self.publishers:
            self._find(topic)

    # ---- answers

    def receipts(self, root: Contact, message: Receipts) -> None:
        """Handle a root's receipts. From other peers they are ignored: publishers would discard events nobody has."""
        topic, term, publishers = message.topic, message.term, self.publishers.get(message.topic)
        if publishers is None:
            return
        is_root = root == self.finder.roots.get(topic) or self._is_root(topic, root)
        if not (is_root and term.is_of(root.node_id)):
            self._learn_version(topic, message.version)
            return
        if message.settled:
            self.finder.note_stable(topic, term, message.settled)
        if self.own_streams.crowded and any(admitted for _, admitted, _, _ in message.marks):
            self.own_streams.note_admitted(topic)
        behind = False
        for id_, admitted, stable, lacks in message.marks:
            publisher = publishers.get(id_)
            if publisher is not None:
                behind |= publisher.descriptor.version < message.version
                publisher.receipt(
                    term, admitted, stable, lacks,
                    partitioned=message.partitioned, held_back=message.held_back, index=message.index,
                )  # fmt: skip
                if publisher.closed:
                    self._drop_if_done(publisher)
        if behind:
            self._learn_version(topic, message.version)

    def _learn_version(self, topic: bytes, version: int) -> None:
        """The root has this version of a topic's settings: ask for it, if publishers here use an earlier one."""
        behind = any(each.descriptor.version < version for each in self.publishers.get(topic, {}).values())
        if behind and topic not in self.finder.asked_at:
            self._find(topic)

    def _not_root(self, sender: Contact, message: NotRoot) -> None:
        topic = message.topic
        if message.why:
            if topic in self.finder.asked_at or self.changes.asks(topic):
                self._wrong(topic, LocalError(message.why))
            return
        if message.unknown and self.changes.unknown(topic):
            return
        if message.unknown and topic not in self.finder.asked_at:
            return
        if message.unknown:
            for publisher in list(self.publishers.get(topic, {}).values()):
                self._fail(publisher, unknown_topic(publisher.descriptor.name))
            return
        known = self.finder.roots.get(topic)
        if known is not None and known.node_id != sender.node_id:
            return  # old news
        if known is None and not self.finder.may_ask(topic, self.host.now()):
            return  # the former root answers this to each bundle that it received
        self._look_again(topic)

    def _wrong(self, topic: bytes, error: LocalError) -> None:
        """The topic cannot be used like this: tell its publishers here, and those about to create it."""
        self.changes.refused(topic, error)
        for publisher in list(self.publishers.get(topic, {}).values()):
            self._fail(publisher, error)

    def root_anew(self) -> None:
        """Apply the first orders of the scopes: nothing was published yet."""
        for topic, publishers in list(self.publishers.items()):
            for publisher in list(publishers.values()):
                try:
                    publisher.adapt(self.known.rooted(publisher.descriptor))
                except LocalError as two:
                    self._wrong(topic, two)

    def _told_denied(self, sender: Contact, message: Denied) -> None:
        topic = message.descriptor.topic
        beside = self.own_streams.is_beside(topic, sender)
        if message.full and beside:
            self._find_no_place(topic)
        elif not message.full and (beside or self.finder.roots.get(topic) == sender):
            self._refused(message.descriptor)

    def _find_no_place(self, topic: bytes) -> None:
        """The topic has as many sources as it may have: this peer's publishers wait, and try again after a while."""
        if not self.own_streams.withdraw(topic):
            return
        for publisher in self.publishers.get(topic, {}).values():
            publisher.root_lost()
            publisher.listener.progressed()
        self._forget_root(topic)
        self.finder.ask_later(topic)
        self.own_streams.leave_place(topic)

    # ---- time and room

    def _local_room(self) -> None:
        self.room(self.host.contact)

    def room(self, contact: Contact) -> None:
        """Continue publishers whose root has credit again, or room, if this peer is the root (`room_to`)."""
        if contact.node_id not in self.finder.watched:
            return
        topics, served = list(self.finder.watched[contact.node_id]), []
        for topic in topics:
            held_back = any(publisher.held_back for publisher in self.publishers[topic].values())
            if self.room_to(contact, topic, held_back) <= 0:
                continue
            served.append(topic)
            for publisher in self.publishers[topic].values():
                publisher.push()
                publisher.listener.progressed()
        if 0 < len(served) < len(topics):
            self.finder.had_turn(contact.node_id, served)

    def housekeep(self, now: float, *, paused: bool = False) -> None:
        """Look again for roots that are silent about events they were sent."""
        for topic in list(self.due):
            self._check_topic(topic, now)
            rests = (topic in self.finder.roots and topic not in self.finder.untold) or topic not in self.publishers
            if rests and not any(publisher.is_due for publisher in self.publishers.get(topic, {}).values()):
                self.due.pop(topic, None)

    def _wake(self, topic: bytes) -> None:
        self.due[topic] = None

    def check(self) -> None:
        """Raise AssertionError if events wait in a topic that is not checked, or a root is kept for no publisher."""
        self.finder.check()
        assert self.finder.roots.keys() <= self.publishers.keys()
        for topic, group in self.publishers.items():
            waits = topic not in self.finder.roots or any(publisher.is_due for publisher in group.values())
            assert topic in self.due or not waits, "time passes by publishers that wait for it"
            for publisher in group.values():
                publisher.check()

    def _check_topic(self, topic: bytes, now: float) -> None:
        publishers = self.publishers.get(topic, {})
        for publisher in list(publishers.values()):
            for term, came in publisher.trim(now).items():
                self.finder.note_dropped(topic, term, came, now=publisher.term)
            publisher.remind(now)
            self._drop_if_done(publisher)
        if topic not in self.publishers:
            return
        if topic not in self.finder.roots:
            if self.finder.may_ask(topic, now):
                self._find(topic)
        elif topic in self.finder.untold and self.finder.may_ask(topic, now):
            self._find(topic)
        elif any(publisher.overdue(now) for publisher in publishers.values()):
            self.host.trace(Mark("receipt_overdue"))
            for publisher in publishers.values():
                publisher.resend()
            if self.finder.may_ask(topic, now):
                self._find(topic)
