"""Events of publishers that arrive at this peer as a root or source, and answers to who is root."""

from collections.abc import Iterable

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Dropped
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.successors import Successors
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.memory.flow_control import FlowControl, LocalRoom
from quillcast.protocol.topics.memory.retention import acknowledged_position
from quillcast.protocol.topics.messages import Denied
from quillcast.protocol.topics.root.bearers import Bearers
from quillcast.protocol.topics.root.sealing import Sealing
from quillcast.protocol.topics.root_messages import NotRoot, RootIs
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.admitter import Admitter
from quillcast.protocol.topics.state.early import EarlyBlocks
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees


class Intake:
    """Takes publishers' events for the topics rooted here."""

    __slots__ = (
        "bearers", "early", "flow_control", "host", "progress", "ring", "schedule", "sealing", "successors", "terms",
        "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, ring: Overlay, trees: Trees, terms: Terms, progress: Progress,
        flow_control: FlowControl, schedule: Schedule, sealing: Sealing,
    ) -> None:  # fmt: skip
        self.host, self.ring, self.trees, self.terms = host, ring, trees, terms
        self.progress, self.flow_control, self.schedule = progress, flow_control, schedule
        self.sealing, self.successors, self.early = sealing, Successors(), EarlyBlocks(config.window_bytes)
        self.bearers = Bearers(config.admissions_max)

    # ---- admission

    def up(self, sender: Contact, bundle: Bundle) -> None:
        """Admit a publisher's events, or answer who is root."""
        tree = self.trees.by_topic.get(bundle.topic)
        if tree is None or (root := tree.root) is None:
            self._drop(sender, bundle, "not_root", NotRoot(bundle.topic, self.successors.of(bundle.topic)))
            return
        descriptor = tree.descriptor
        if descriptor.settings.admission == "source":  # `by_source`, inlined: this runs for every bundle
            self._drop(sender, bundle, "not_root", RootIs(root.term, descriptor))  # its own peer numbers its events
        elif descriptor.access and not self.bearers.may_publish(tree.topic, descriptor, sender.node_id):
            self._drop(sender, bundle, "denied", Denied(descriptor))
        elif bundle.envelope.session < root.session:
            root.note_asked(sender)  # if it was considered lost meanwhile
            self._drop(sender, bundle, "old_session", RootIs(root.term, descriptor))  # it resends them in this one
        elif self.flow_control.held_back and self._turns_away(tree, bundle):
            self.host.release(sender.node_id, bundle.size)
        elif root.closing:
            self.host.release(sender.node_id, bundle.size)
            root.turn_away(sender, bundle)
        else:
            if not root.admit(sender, bundle):
                self._lacks_places(tree, root)
            self.sealing.admitted(tree, root, sender.node_id, bundle.size)

    def _lacks_places(self, tree: Tree, admitter: Admitter) -> None:
        """A publisher without a place may keep what an earlier root admitted: report that below."""
        if admitter is tree.root:
            self.schedule.note_held_back(tree, held_back=True)

    def _drop(self, sender: Contact, bundle: Bundle, why: str, answer: Message) -> None:
        """Admit nothing of a bundle, and tell the sender why."""
        self.host.release(sender.node_id, bundle.size)
        self.host.trace(Dropped(bundle.topic, bundle.count, why))
        self.host.send(sender, answer)

    def _turns_away(self, tree: Tree, bundle: Bundle) -> bool:
        """Whether there is no room for a bundle of a publisher that is held back. It sends the bundle again later."""
        if tree.flow.topic not in self.flow_control.held_back:
            return False
        unsealed_bytes = sum([size_bytes for _, size_bytes in self.sealing.unsealed.get(bundle.topic, ())])
        if not self.flow_control.turns_away(tree, bundle, unsealed_bytes):
            return False
        self.host.trace(Dropped(bundle.topic, bundle.count, "no_room"))
        return True

    def term(self, topic: bytes) -> Term | None:
        """The term of the topic's root, if that is this peer."""
        tree = self.trees.by_topic.get(topic)
        return tree.root.term if tree is not None and tree.root is not None else None

    def publish_here(self, bundle: Bundle) -> None:
        """Take events of a publisher at this peer, without a link between."""
        tree = self.trees.by_topic.get(bundle.topic)
        if tree is None:
            return  # it sends this again to the topic's next root
        admitter = tree.admitter
        if admitter is None:
            self.host.send(self.host.contact, NotRoot(bundle.topic, self.successors.of(bundle.topic)))
            return
        if admitter.closing and not (self.trees.closing and admitter is tree.root):
            # a leaving root still admits the events of its own publishers
            admitter.turn_away(self.host.contact, bundle)
            return
        if self.flow_control.held_back and self._turns_away(tree, bundle):
            return
        self.flow_control.taken_here(bundle.topic, bundle.size)
        if not admitter.admit(self.host.contact, bundle):
            self._lacks_places(tree, admitter)
        self.sealing.admitted(tree, admitter, self.host.me, bundle.size)

    def holds_back(self, topic: bytes) -> bool:
        """Whether this peer's own publishers must hold back, as the topic's root says, or this peer as root."""
        if topic in self.flow_control.held_back:
            return True
        return topic in self.schedule.held_back and self.term(topic) is None  # a root may hold back others, for places

    def room_for(self, topic: bytes) -> int:
        """Return how many bytes of a topic this peer takes now from its own publishers.

        Zero if a source's events are not kept and have no way out yet (`attached`).
        """
        tree = self.trees.by_topic.get(topic)
        if tree is not None and not tree.flow.keeps and not tree.attached:
            return 0
        return self.flow_control.room_for(topic)

    def attached(self, tree: Tree) -> None:
        """The events of this peer's publishers, if numbered here, have a way out: resume them."""
        if tree.sources.own is not None and not tree.flow.keeps:
            self.host.set_timer(LocalRoom(), 0.0)

    def room_again(self, tree: Tree) -> None:
        """Tell publishers that were held back for lack of room, and those that only asked, that they may send again."""
        if (admitter := tree.admitter) is not None:
            admitter.go_on()
            self.progress.send_receipts(tree, admitter)
        if tree.root is not None:
            told = {admission.contact: None for admission in tree.root.admissions.values()}
            self.tell_publishers(tree, [contact for contact in tree.root.asked if contact not in told])

    # ---- a root that goes

    def forget_term(self, tree: Tree) -> tuple[Contact, ...]:
        """End this peer's term as root. Return the peers that published to it.

        It stays in the tree for as long as others may need what it knows of ended terms.
        """
        root = tree.root
        if root is None:
            return ()
        self.sealing.finish(tree, root)
        tree.end_root()
        if not self.ring.is_closest(tree.topic):
            self.bearers.forget(tree.topic)
        if (root.index or any(past.end for past in tree.flow.past.values())) and not self.trees.leaving:
            self.terms.keep(tree)
        self.schedule.note_held_back(tree, held_back=False)  # the next root decides that
        self.flow_control.relieved()
        self.schedule.wake(tree)
        return root.publishing_peers()

    def reopen(self, tree: Tree, root: Root) -> None:
        """Admit events again: no other peer is closer any more."""
        root.reopen()
        if (admitter := tree.admitter) is not None:
            self.progress.send_receipts(tree, admitter)

    def tell_publishers(self, tree: Tree, publishers: Iterable[Contact]) -> None:
        """Tell these peers, which published here, who is root now, if that is known."""
        for contact in publishers:
            if tree.root is not None:
                tree.root.note_asked(contact)  # it need not ask again, and must also learn of changes
                self.host.send(contact, RootIs(tree.root.term, tree.descriptor, tree.root.held_back))
            else:
                self.host.send(contact, NotRoot(tree.topic, self.successors.of(tree.topic)))

    def all_stable(self, now: float) -> bool:
        """Whether all leases have acknowledged what this peer admitted as root."""
        rooted = [tree for tree in self.trees.by_topic.values() if tree.root is not None]
        return all(acknowledged_position(tree, now) >= tree.root.index for tree in rooted if tree.root is not None)
