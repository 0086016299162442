"""A peer's part in a topic, as structs of `core.status`: its place in the tree, and its subscriptions' progress."""

from collections.abc import Iterator

import msgspec

from quillcast.core.envelope import RELIABLE_TERMS, Term
from quillcast.core.messages import Contact
from quillcast.core.status.base import PeerContact
from quillcast.core.status.topics import PeerLag, SubscriberLag, Topic, TopicSettings, TopicStatus
from quillcast.protocol.forwarding.event_places import readmitted
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import principal
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.memory.retention import reached, total
from quillcast.protocol.topics.query_messages import Reader
from quillcast.protocol.topics.stability import lag
from quillcast.protocol.topics.state.session import SessionState
from quillcast.protocol.topics.state.tree import Tree


def topic_status(peer: Peer, topic: bytes, events_per_s: float) -> TopicStatus:
    """This peer's part in a topic for which it has a tree, publishers or settings."""
    topics = peer.topics
    tree, known = topics.trees.get(topic), topics.publishing.publishers.get(topic, {})
    descriptor = topics.descriptors.get(topic) or next(iter(known.values())).descriptor
    publishers = [publisher for publisher in known.values() if publisher.retained or not publisher.closed]
    part = TopicStatus(
        name=full_name(descriptor),
        topic_id=topic.hex(),
        settings=topic_settings(descriptor, tree),
        role="publisher" if publishers else "replica",
        publishers=sum(publisher.writers_count for publisher in publishers),
        never_stable=sum(publisher.dropped.count for publisher in publishers),
        events_per_s=round(events_per_s, 1),
    )
    return part if tree is None else _placed(part, tree, peer)


def _placed(part: TopicStatus, tree: Tree, peer: Peer) -> TopicStatus:
    """The same with this peer's place in the tree, and its subscriptions as far as known here."""
    end = tree.known_end if part.settings.reliable else 0
    found = lag.readers(tree, peer.host, peer.config.topics.past_terms_s)
    return msgspec.structs.replace(
        part,
        role="root" if tree.root is not None else "forwarder" if tree.leases.children else "leaf",
        parent=None if tree.parent is None else peer_contact(tree.parent),
        children=tuple(peer_contact(child.contact) for child in tree.leases.children.values()),
        subscriptions=len(tree.subscriptions),
        depth=len(tree.path) if tree.attached else None,
        term=term_shown(tree.term),
        frontier=total(tree),
        known_end=total(tree) + max(0, tree.known_end - tree.frontier),
        stable=reached(tree, tree.flow.stable_below),
        events=lag.events(tree),
        readmitted=readmitted(tree.flow),
        buffered_bytes=tree.flow.log.size_bytes,
        lags=tuple(subscriber_lag(part.name, peer.host.me, each, end) for each in found),
        waits_for=tuple(_waited_for(tree, peer)),
        streams=len(tree.flow.others),
        source=tree.sources.own is not None,
    )


def _waited_for(tree: Tree, peer: Peer) -> Iterator[PeerLag]:
    for lease in lag.leases(tree, peer.host):
        if events := lag.unacknowledged(lease, tree.term, tree.frontier):
            yield PeerLag(lease.node.hex(), lease.lost, events, round(lease.behind_s, 3))


def topic_settings(descriptor: Descriptor, tree: Tree | None = None) -> TopicSettings:
    """The owner's settings and the access list of a topic; its root's `tree` knows the session's state exactly."""
    known = SessionState.ACTIVE if descriptor.upcoming is None else SessionState.FLUSHING
    return TopicSettings(
        **msgspec.structs.asdict(descriptor.settings),
        owner=principal(descriptor.owner_key) if descriptor.owner_key else None,
        access=descriptor.access,
        session=descriptor.session,
        session_state=str(tree.root.session_state if tree is not None and tree.root is not None else known),
    )


def described_topic(descriptor: Descriptor) -> Topic:
    """A topic from its descriptor."""
    return Topic(full_name(descriptor), descriptor.topic.hex(), topic_settings(descriptor))


def full_name(descriptor: Descriptor) -> str:
    """The name that applications use for a topic."""
    return f"{descriptor.creator}:{descriptor.name}" if descriptor.creator else descriptor.name


def peer_contact(contact: Contact) -> PeerContact:
    """A contact in human-readable form."""
    return PeerContact(contact.node_id.hex(), contact.address)


def term_shown(term: Term) -> str:
    """A term in human-readable form."""
    session, counter = f"{term.session}:" if term.session else "", term.counter % RELIABLE_TERMS
    return f"{session}{counter}.{term.node[:4].hex()}"


def subscriber_lag(topic: str, node: bytes, reader: Reader, end: int) -> SubscriberLag:
    """How far a subscription of `node` is behind the `end` of its peer's term; 0 if it has all events."""
    return SubscriberLag(
        topic=topic,
        node_id=node.hex(),
        name=reader.name,
        number=reader.number,
        behind_events=max(0, end - reader.taken) + reader.owed + reader.waiting,
        behind_s=round(reader.behind_s, 3),
        stalled_s=round(reader.stalled_s, 3),
        waiting_events=reader.waiting,
        waiting_bytes=reader.waiting_bytes,
    )
