"""This peer as a source: its streams in the topics whose publishing peers number the events."""

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.messages import Contact
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root.sealing import Seal, Sealing
from quillcast.protocol.topics.state.effects import FindParent, LeaveIfIdle
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.trees import Trees


class OwnStreams:
    """One stream per topic, with a place in its tree: from the first publisher until the last is gone."""

    __slots__ = ("crowded", "dispatch", "sealing", "source_streams", "trees")

    def __init__(self, trees: Trees, source_streams: SourceStreams, sealing: Sealing, dispatch: Dispatch) -> None:
        self.trees, self.source_streams, self.sealing, self.dispatch = trees, source_streams, sealing, dispatch
        self.crowded: dict[bytes, None] = {}  # topics in which there is no room for this peer as one more source

    def open(self, publisher: Publisher) -> Term | None:
        """Return the stream of this publisher's events. None: it waits for one of the topic's streams to end."""
        tree = self.trees.open(publisher.descriptor)
        if tree.sources.own is None and not tree.descriptor.streams_go_on:
            return None  # the next session's root is about to number the events
        source = self.source_streams.open(tree, publisher.warrant)
        if source is None:
            self.crowded[publisher.topic] = None
            return None
        return source.term

    def take_place(self, topic: bytes) -> None:
        """Find a parent, unless there is one or will be: the stream leaves here through the topic's tree."""
        tree = self.trees.by_topic[topic]
        if not tree.attached and not tree.joining:
            self.dispatch.order(FindParent(tree.topic))

    def note_admitted(self, topic: bytes) -> None:
        """Note that events of this peer were admitted: it does not wait for another stream to end."""
        self.crowded.pop(topic, None)

    def is_beside(self, topic: bytes, other: Contact) -> bool:
        """Whether this peer is a neighbour in the tree of a topic whose source this peer is."""
        tree = self.trees.by_topic.get(topic)
        if tree is None or tree.sources.own is None:
            return False
        return any(contact.node_id == other.node_id for contact in tree.neighbours())

    def withdraw(self, topic: bytes) -> bool:
        """A neighbour has no room for this peer's stream. It waits from now on, unless another peer has some of it."""
        if not self.source_streams.withdraw(self.trees.by_topic[topic]):
            return False
        self.crowded[topic] = None
        return True

    def leave_place(self, topic: bytes) -> None:
        """Leave the place in the tree, unless something else needs it."""
        self.dispatch.order(LeaveIfIdle(topic))

    def settings_learned(self, tree: Tree) -> None:
        """End this peer's stream if the next session has another guarantee, or a root that numbers the events.

        Nothing more is admitted once that session is about to begin. If it is called off, another stream also begins.
        What was admitted in this turn leaves first. A peer that leaves is about to end its stream anyway.
        """
        own, descriptor = tree.sources.own, tree.descriptor
        if own is None:
            return
        begun, goes_on = descriptor.settings.streams != own.descriptor.settings.streams, descriptor.streams_go_on
        if not own.closing and (begun or not (goes_on or self.trees.closing)):
            self.sealing.finish(tree, own)
            self.source_streams.finish(tree)
        if begun or (goes_on and own.closing):
            self.source_streams.close(tree)

    def goes_on(self, topic: bytes) -> bool:
        """Whether this peer numbers the events of its publishers."""
        tree = self.trees.by_topic.get(topic)
        return tree is not None and tree.sources.own is not None and not tree.sources.own.closing

    def end(self, topic: bytes) -> None:
        """End the stream with the topic's last publisher here, after sending what was admitted in this turn."""
        self.crowded.pop(topic, None)
        tree = self.trees.by_topic.get(topic)
        if tree is not None and tree.sources.own is not None:
            self.sealing.finish(tree, tree.sources.own)
            self.source_streams.close(tree)

    def close(self, tree: Tree) -> None:
        """Send what this leaving peer admitted in this turn as a root or source, and end its stream."""
        self.sealing.seal(Seal(tree.topic))
        self.source_streams.close(tree)
