"""Children tables: whom this peer forwards a topic's bundles to (Scribe, section 3.1, membership management)."""

from collections.abc import Mapping

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import QuillcastError
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import Contact
from quillcast.core.trace import ChildAdded, ChildRemoved, Mark
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.membership.links import TreeLinks
from quillcast.protocol.topics.membership.subscribing import denied
from quillcast.protocol.topics.messages import Accepted, Join, Leave, Orphaned, Refused
from quillcast.protocol.topics.state import link_reports
from quillcast.protocol.topics.state.effects import CarryOut, ChildEntered, FindParent, LeaveIfIdle
from quillcast.protocol.topics.state.handlers import Handlers
from quillcast.protocol.topics.state.holders import Child, SourcesChild
from quillcast.protocol.topics.state.known import KnownTopics
from quillcast.protocol.topics.state.placement import Placement
from quillcast.protocol.topics.state.progress import Progress
from quillcast.protocol.topics.state.reports import Reports
from quillcast.protocol.topics.state.ring import Answers
from quillcast.protocol.topics.state.root import UNKNOWN_PEER
from quillcast.protocol.topics.state.source_streams import HALF_BYTES, SourceStreams, Starts, shown_by_source
from quillcast.protocol.topics.state.successors import Successors
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.state.trees import Trees


class ChildrenTables:
    """A peer as the parent of its children, in all topics."""

    def __init__(
        self, host: Host, config: TopicConfig, neighbours: Neighbours, streams: Streams, known: KnownTopics,
        trees: Trees, terms: Terms, placement: Placement, reports: Reports, source_streams: SourceStreams,
        progress: Progress, answers: Answers, handlers: Mapping[bytes, Handlers], successors: Successors,
        dispatch: Dispatch, carry_out: CarryOut,
    ) -> None:  # fmt: skip
        self.host, self.config, self.streams, self.known, self.trees = host, config, streams, known, trees
        self.terms, self.placement, self.reports, self.progress, self.answers = (
            terms, placement, reports, progress, answers
        )  # fmt: skip
        self.source_streams = source_streams
        self.handlers, self.successors, self.carry_out = handlers, successors, carry_out
        self.links = TreeLinks(neighbours, "child", config.tree_heartbeat_s)
        self.unheard: dict[tuple[bytes, bytes], float] = {}  # topic and child that said nothing since it was entered
        dispatch.on_message(Leave, self.left)

    # ---- taking in

    def adopt(self, join: Join, *, direct: bool = False) -> None:
        """Enter the child in the children table; a new forwarder joins the tree too (Scribe, membership management).

        `direct`: the Join came straight from the child, and so in order. One over the overlay may be an old one.
        """
        descriptor = join.descriptor or self.known.descriptors.get(join.topic)
        if descriptor is None:
            self.host.send(join.child, Refused(join.topic, "describe"))
            return
        if not self._may_join(self.known.descriptors.get(join.topic, descriptor), join):
            return
        tree = self.trees.open(descriptor)
        child = join.child.node_id
        if child in tree.path or tree.parent == join.child:
            self.host.send(join.child, Refused(join.topic, "loop"))
            return
        if others := self.placement.refer(tree, join.child):
            self.host.trace(Mark("shed"))
            self.host.send(join.child, Refused(join.topic, "full", others))
            return
        if join.have is not None:
            self.terms.heard_of(tree, join.have.term)
        former = tree.children.get(child)
        if former is not None and join.sends_only and not (direct or former.sends_only):
            self.remove(tree, child, "moved", lease=True)
        if tree.attached and (tree.served or join.sends_only):
            self._accept(tree, join)
        else:
            tree.await_parent(join)
            if not tree.joining:
                self.carry_out(FindParent(tree))

    def _may_join(self, descriptor: Descriptor, join: Join) -> bool:
        """Does the topic's list let this child subscribe, if it wants to? Else it is told by which rule not."""
        rule = denied(descriptor, join.child.node_id, join.warrant)
        if rule is None or join.sends_only or self._took_over_from(join):
            return True
        self.host.trace(Mark("join_denied"))
        self.host.send(join.child, Refused(join.topic, "denied", rule=rule))
        return False

    def _took_over_from(self, join: Join) -> bool:
        """Did the child hand the topic over to this root? It had all there is, and hands its children over too."""
        tree = self.trees.by_topic.get(join.topic)
        return tree is not None and tree.root is not None and join.child.node_id in tree.root.awaited

    def refers(self, tree: Tree, newcomer: Contact) -> bool:
        """Is a newcomer to join somebody else, rather than this peer?"""
        return bool(self.placement.refer(tree, newcomer))

    def accept_waiting(self, tree: Tree, gone: tuple[Gone, ...]) -> None:
        """This peer has a parent or is root: whom it took in meanwhile begins, and the others go on."""
        self._dismiss_mistaken(tree)
        self.placement.install(tree)
        for join in list(tree.waiting.values()):
            del tree.waiting[join.child.node_id]
            if join.child.node_id in tree.path:
                self.host.send(join.child, Refused(tree.topic, "loop"))
            elif self._may_join(tree.descriptor, join):  # the list may have come with the parent's answer
                self._accept(tree, join, gone)
        tree.waiting = tree.waiting or EMPTY
        for child in tree.children.values():
            tree.flow.serve(child.channel)

    def _dismiss_mistaken(self, tree: Tree) -> None:
        """Children that joined before it was known that sources number the topic's events join anew."""
        for node, child in list(tree.children.items()):
            if tree.descriptor.settings.by_source and not isinstance(child, SourcesChild):
                self.host.send(child.contact, Orphaned([tree.topic]))
                self.remove(tree, node, "refused", lease=True)

    def _accept(self, tree: Tree, join: Join, gone: tuple[Gone, ...] = ()) -> None:
        """`gone` is what is known to be kept no more, where that is not for this peer to find out."""
        contact = join.child
        if tree.parent is not None and not tree.children:
            self._be_no_leaf(tree, tree.parent, join)
        if join.have is None:
            self._forgot(tree, contact)
        self.source_streams.learn_ends(tree, join.ended, contact)
        start = _start_for(tree, join)
        starts = self._starts_for(tree, join)
        self._send_accepted(tree, join, start, starts, gone)
        child = self.enter(tree, contact, start, starts, join)
        if join.moved:  # as long as a former parent may take to leave, and name it to those above
            child.named_until = self.host.now() + 2 * self.config.leave_s
        self.heard_from(tree, child)
        handlers = self.handlers.get(tree.topic)
        if handlers is not None:
            for bundle in handlers.subscribe_handler(join):
                self.host.carry(contact, bundle)
        tree.flow.serve(child.channel)
        if tree.root is not None:
            tree.root.heard_from((contact.node_id,))  # of this term it has nothing, and covers nothing yet
        self.reports.touch(tree)

    def _forgot(self, tree: Tree, contact: Contact) -> None:
        """A peer that was restarted joins anew: leases go on of those below it, of whom it knows nothing any more."""
        node = contact.node_id
        former = tree.children.get(node)
        if former is not None and former.spoken and not link_reports.is_leaf(self.streams, node, tree.topic):
            tree.orphan_lease(former, self.host.now() + self.config.lease_s, (UNKNOWN_PEER,))
        tree.forgot(node)
        if tree.root is not None:
            tree.root.forgot(node)

    def _be_no_leaf(self, tree: Tree, parent: Contact, join: Join) -> None:
        """The parent hears of the first child before that hears of this peer, which may die at any time."""
        tree.await_parent(join)
        self.progress.tell(tree)
        self.streams.hurry(parent.node_id)

    def _starts_for(self, tree: Tree, join: Join) -> Starts:
        """From where on the child is owed the streams of sources; those that it names are known from now on."""
        if not tree.descriptor.settings.by_source:
            return ()
        shown = shown_by_source(join.warrants)
        for term, _, stable in join.streams:
            start, warrant = 0 if tree.subscriptions else stable, shown.get(term.node[:HALF_BYTES])
            self.source_streams.learn(tree, term, start, warrant)
        has, new = {term: frontier for term, frontier, _ in join.streams}, join.have is None
        starts = self.source_streams.starts(tree, has, new=new, earliest=join.earliest and new)
        return [start for start in starts if start[0] in has] if join.sends_only else starts

    def _send_accepted(self, tree: Tree, join: Join, start: int, starts: Starts, gone: tuple[Gone, ...]) -> None:
        descriptor = None if join.digest == tree.descriptor.digest else tree.descriptor
        path = tree.path_here(self.host.me)
        fallbacks = self.placement.stand_ins(tree)
        gone = (gone or tree.flow.gone(start)) if join.earliest and join.have is None else ()
        past = tuple((term, end) for term, end in tree.flow.past_ends() if not term.of_source)
        ended = () if join.sends_only else self.source_streams.ended(tree)  # another parent may tell of them as news
        accepted = Accepted(
            tree.topic, tree.term, start, path, fallbacks, descriptor, past, gone, tree.frontier, tuple(starts),
            join.sends_only, ended, self.source_streams.warrants(tree), tree.descriptor.version,
        )  # fmt: skip
        self.answers.tell(join.child, accepted, again=join.again)

    def enter(self, tree: Tree, contact: Contact, start: int, starts: Starts = (), join: Join | None = None) -> Child:
        """Enter a child in the children table, to be served from an index of the present term on.

        And from one of each stream of a source, unless it only publishes.
        """
        contact = interned(contact)
        node = contact.node_id
        tree.serve_from(start)
        cursor = tree.flow.first_over(start)
        if tree.descriptor.settings.by_source:
            sends_only = join is not None and join.sends_only
            child: Child = SourcesChild(self.host, contact, cursor, tree.term, start, sends_only=sends_only)
        else:
            child = Child(self.host, contact, cursor, tree.term, start)
        self.source_streams.joined(tree, child, starts, [term for term, *_ in join.streams] if join is not None else ())
        former = tree.children.get(node)  # its Join may come twice
        lease = (None if child.sends_only else tree.came_back(node)) or former
        tree.enter(child)
        self.placement.install(tree)
        if lease is not None and lease.acknowledged_term == tree.term:
            child.acknowledged = min(start, lease.acknowledged)  # what it has itself says nothing of those below it
        report = link_reports.told(self.streams, node, tree.topic)
        if isinstance(report, link_reports.ChildReport):
            child.take_up(report)
        self.await_word(tree, child)
        tree.waiting.pop(node, None)
        tree.waiting = tree.waiting or EMPTY
        self.progress.tell_child(tree, contact)
        if former is None:
            self.links.add(contact)
            self.host.trace(ChildAdded(tree.topic, node, len(tree.children)))
        if tree.descriptor.settings.by_source:
            self.carry_out(ChildEntered(tree, contact))
        return child

    def await_word(self, tree: Tree, child: Child) -> None:
        """The child has yet to say a word as one; who never does is none."""
        self.unheard[tree.topic, child.contact.node_id] = self.host.now()

    def heard_from(self, tree: Tree, child: Child) -> None:
        """A child speaks for itself and for those that came below it: they are not waited for as departed any more."""
        if child.sends_only:
            return
        nodes = tuple(node for node in child.speaks_for if node not in child.outdated)
        if nodes:
            ended = tree.heard_from(nodes)
            if tree.root is not None:
                tree.root.heard_from(nodes)
            if ended or child.named_until:
                self.reports.touch(tree)

    # ---- letting go

    def remove(self, tree: Tree, node: bytes, why: str, *, lease: bool, whose: tuple[bytes, ...] = ()) -> None:
        """Take a child out of the table; where a lease goes on, its last report still holds stability back.

        `whose` lease it is: its own if it says nothing else.
        """
        child = tree.take_out(node)
        tree.waiting.pop(node, None)
        if child is None:
            return
        awaited = [other for other in whose or (node,) if other != self.host.me]
        if lease and awaited and not child.is_cut and not child.sends_only:
            leaf = not whose and link_reports.is_leaf(self.streams, node, tree.topic)
            tree.orphan_lease(child, self.host.now() + self.config.lease_s, awaited, leaf=leaf)
        self.placement.install(tree)
        self.streams.drop(child.contact, tree.topic)
        self.source_streams.parted(tree, child.contact)
        self.links.remove(node)
        self.host.trace(ChildRemoved(tree.topic, node, why))
        self.reports.touch(tree)

    def left(self, sender: Contact, message: Leave) -> None:
        """A child says that it is none any more."""
        tree = self.trees.by_topic.get(message.topic)
        if tree is None:
            return
        why, child = "moved" if message.moved else "left", tree.children.get(sender.node_id)
        self.remove(tree, sender.node_id, why, lease=message.moved, whose=message.leases)
        if child is not None and (message.leases or not message.moved):  # where it names others', its own is over
            self._ended(tree, child)
        self.carry_out(LeaveIfIdle(tree))

    def _ended(self, tree: Tree, child: Child) -> None:
        """A child left in good order: nobody waits any more for a lease that it had below another parent.

        That parent may leave after it and still name it: it is remembered, and named to those above, until then.
        """
        node = child.contact.node_id
        tree.heard_from((node,))
        if child.named_until > self.host.now():
            tree.note_ended(node, child.named_until)
        if tree.root is not None:
            tree.root.heard_from((node,))
        self.reports.touch(tree)

    def dismiss(self, tree: Tree) -> None:
        """This peer leaves: its children turn to its own parent, and those that wait for it ask again."""
        for join in tree.waiting.values():
            self.host.send(join.child, Refused(tree.topic, "leaving"))
        tree.waiting = EMPTY
        above = tree.parent or tree.next_parent or self.successors.of(tree.topic)
        for node in list(tree.children):
            instead = (above,) if above is not None and above.node_id != node else ()
            self.host.send(tree.children[node].contact, Orphaned([tree.topic], instead))

    def fail(self, tree: Tree, error: QuillcastError) -> None:
        """The topic cannot be had through this peer."""
        is_denied = isinstance(error, AccessDenied)
        why, rule = ("denied", str(error)) if is_denied else ("unknown", "")
        for join in tree.waiting.values():
            self.host.send(join.child, Refused(tree.topic, why, rule=rule))
        for node in list(tree.children) if is_denied else ():  # they have the right, and join without this peer
            self.host.send(tree.children[node].contact, Orphaned([tree.topic]))
            self.remove(tree, node, "refused", lease=True)
        tree.waiting = EMPTY

    def housekeep(self, now: float, *, paused: bool) -> None:
        """A child that never reports was accepted by another peer meanwhile, and its Leave was lost."""
        for (topic, node), entered_at in list(self.unheard.items()):
            tree = self.trees.by_topic.get(topic)
            child = tree.children.get(node) if tree is not None else None
            if tree is None or child is None or topic in self.streams.told(node):
                del self.unheard[topic, node]
            elif paused:
                self.unheard[topic, node] = now
            elif now - entered_at > 2 * self.config.join_timeout_max_s:
                self.host.trace(Mark("child_never_spoke"))
                self.host.send(child.contact, Orphaned([topic]))
                self.remove(tree, node, "expired", lease=True)
                self.carry_out(LeaveIfIdle(tree))
        self.unheard = self.unheard or {}  # one that was emptied keeps the memory of all that it ever held


def _start_for(tree: Tree, join: Join) -> int:
    """From which index on a child is owed the present term."""
    have = join.have
    if have is None:
        return tree.flow.earliest if join.earliest else tree.frontier
    if have.term == tree.term:
        return have.frontier
    return 0  # it was here under an earlier root: this one's events are owed from the first
