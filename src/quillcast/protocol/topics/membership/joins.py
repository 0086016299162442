"""How this peer adopts children (Scribe, section 3.1, membership management). Their table is in `children.py`."""

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import HALF_BYTES
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.event_places import gone_before
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.security.access import key_of
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.subscribing import denied
from quillcast.protocol.topics.messages import Accepted, Join, Orphaned, Refused
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import FindParent
from quillcast.protocol.topics.state.holders import SourcesChild
from quillcast.protocol.topics.state.link_reports import Move, same_life
from quillcast.protocol.topics.state.overlay import Answers
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_rights import shown_by_source, warrants
from quillcast.protocol.topics.streams.source_streams import SourceStreams, Starts
from quillcast.protocol.topics.trees import Trees

SENT_ON_S = 10.0  # how long a newcomer that comes back is not sent to the entry point again; a guess


class Joins:
    """Answers the Joins that end at this peer."""

    __slots__ = (
        "answers", "children", "dispatch", "host", "placement", "progress", "sent_on", "source_streams", "terms",
        "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, trees: Trees, terms: Terms, placement: Placement, source_streams: SourceStreams,
        progress: Progress, children: ChildrenTables, answers: Answers, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.terms, self.placement = host, trees, terms, placement
        self.source_streams, self.progress, self.children = source_streams, progress, children
        self.answers, self.dispatch = answers, dispatch
        self.sent_on: dict[tuple[bytes, bytes], float] = {}  # topics and newcomers sent to the entry point, and when

    def adopt(self, join: Join, *, direct: bool = False) -> None:
        """Enter the child in the children table; a new forwarder joins the tree too (Scribe, membership management).

        `direct`: the Join came straight from the child, and so in order. One over the overlay may be old.
        """
        descriptor = join.descriptor or self.trees.known.descriptors.get(join.topic)
        if descriptor is None:
            self.host.send(join.child, Refused(join.topic, "describe"))
            return
        if not self._may_join(self.trees.known.descriptors.get(join.topic, descriptor), join):
            return
        child = join.child.node_id
        if why := self.children.crowded(join.topic, child):
            self.host.send(join.child, Refused(join.topic, "unusable", rule=why))
            return
        tree = self.trees.open(descriptor)
        if tree.barred:
            above = (tree.parent,) if tree.parent is not None else ()
            self.host.send(join.child, Refused(join.topic, "full", above))
            return
        if tree.is_below(child):
            self.host.send(join.child, Refused(join.topic, "loop"))
            return
        if others := self.placement.refer(tree, join.child, join.unresponsive):
            self.host.trace(Mark("shed"))
            self.host.send(join.child, Refused(join.topic, "full", others))
            return
        if join.have is not None:
            self.terms.was_used(tree, join.have.term)
        former = tree.leases.children.get(child)
        if former is not None and join.sends_only and not (direct or former.sends_only):
            self.children.remove(tree, child, "moved", lease=True)
        if tree.begins or (tree.attached and join.sends_only):
            self._accept(tree, join)
        else:
            tree.await_parent(join, self.host.now())
            if not tree.joining:
                self.dispatch.order(FindParent(tree.topic))

    def send_on(self, join: Join, entry: Contact) -> bool:
        """Send a newcomer to the topic's own entry point. False: it was there already, and came back."""
        now, who = self.host.now(), (join.topic, join.child.node_id)
        self.sent_on = {each: at for each, at in self.sent_on.items() if now - at < SENT_ON_S}
        if who in self.sent_on:
            return False
        self.sent_on[who] = now
        self.host.send(join.child, Refused(join.topic, "full", (entry,)))
        return True

    def _may_join(self, descriptor: Descriptor, join: Join) -> bool:
        """Whether the topic's list lets this child subscribe, if it wants to. If not, tell it the rule."""
        rule = denied(descriptor, join.child.node_id, join.warrant)
        by_source = descriptor.settings.by_source or bool(join.streams)  # else the child gets the events anyway
        only_sends = join.sends_only and by_source
        if rule is None or only_sends or self._took_over_from(join):
            return True
        self.host.trace(Mark("join_denied"))
        self.host.send(join.child, Refused(join.topic, "denied", rule=rule, key=key_of(join.warrant)))
        return False

    def _took_over_from(self, join: Join) -> bool:
        """Whether the child transferred the topic to this root. Then it had all events, and its children come too.

        The other peers that the root waits for may have lost their right since they joined.
        """
        tree, child = self.trees.by_topic.get(join.topic), join.child.node_id
        root = tree.root if tree is not None else None
        return root is not None and child in root.awaited and any(term.is_of(child) for term in root.followed[-1:])

    def accept_waiting(self, tree: Tree, gone: tuple[Gone, ...] | None) -> None:
        """This peer has a parent or is root: accept the peers that waited for this, and continue the children."""
        self.dismiss_mistaken(tree)
        self.placement.install(tree)
        for join in tree.aged_joins(self.host.now()):
            tree.answer(join.child.node_id)
            if tree.is_below(join.child.node_id):
                self.host.send(join.child, Refused(tree.topic, "loop"))
            elif self._may_join(tree.descriptor, join):  # the list may have come with the parent's answer
                self._accept(tree, join, gone)
        for child in tree.leases.children.values():
            tree.flow.serve(child.channel)

    def dismiss_mistaken(self, tree: Tree) -> None:
        """Have children join again that joined before it was known that sources number the topic's events."""
        for node, child in list(tree.leases.children.items()):
            if tree.by_source and not isinstance(child, SourcesChild):
                self.host.send(child.contact, Orphaned([tree.topic]))
                self.children.remove(tree, node, "refused", lease=True)

    def _accept(self, tree: Tree, join: Join, gone: tuple[Gone, ...] | None = None) -> None:
        """Accept a child. `gone`: what is no longer kept, if this peer cannot find that out by itself."""
        contact = join.child
        if tree.parent is not None and not tree.leases.children:
            self._be_no_leaf(tree, join)
        if join.is_new or _is_of_another_life(tree, join):
            self.children.forgot(tree, join)
        self.source_streams.learn_ends(tree, join.ended, contact)
        start = _start_for(tree, join)
        starts = self._starts_for(tree, join)
        self._send_accepted(tree, join, start, starts, gone)
        child = self.children.enter(tree, contact, start, starts, join)
        for (term, *_), told in zip(join.streams, join.milestones, strict=False):
            self.source_streams.dates.learn_milestones(tree, term, told, near=False)
            self.source_streams.dates.note_told(tree, term, told, contact)
        self.children.heard_from(tree, child)
        handlers = self.trees.handlers.get(tree.topic)
        if handlers is not None:
            for bundle in handlers.subscribe_handler(join):
                self.host.carry(contact, bundle)
        tree.flow.serve(child.channel)
        if tree.root is not None and child.sends_only:
            move = Move(contact.node_id, child.number)
            tree.root.heard_from((move,))  # it speaks for no leases; others are waited for until they report

    def _be_no_leaf(self, tree: Tree, join: Join) -> None:
        """Report the first child to the parent before the child hears of this peer, which may die at any time."""
        tree.await_parent(join, self.host.now())
        self.progress.hurry(tree)

    def _starts_for(self, tree: Tree, join: Join) -> Starts:
        """Return from where on the child gets the sources' streams. Streams that it names are known from now on."""
        if not (tree.by_source or join.streams):
            return ()
        shown = shown_by_source(join.warrants)
        for term, _, stable in join.streams:
            start, warrant = 0 if tree.subscriptions else stable, shown.get(term.node[:HALF_BYTES])
            self.source_streams.learn(tree, term, start, warrant, join.child, held=stable > 0)
        self.dismiss_mistaken(tree)
        has, new = {term: frontier for term, frontier, _ in join.streams}, join.have is None
        starts = self.source_streams.starts(tree, has, new=new, earliest=join.earliest)
        return [start for start in starts if start[0] in has] if join.sends_only else starts

    def _send_accepted(self, tree: Tree, join: Join, start: int, starts: Starts, gone: tuple[Gone, ...] | None) -> None:
        descriptor = None if join.digest == tree.descriptor.digest else tree.descriptor
        path = tree.path_here(self.host.me)
        fallbacks = self.placement.stand_ins(tree)
        begins = {term: begin for term, begin, _ in starts}
        gone = (gone or gone_before(tree.flow, start, begins)) if join.earliest else None
        ends = tree.flow.past.aged(tree.flow.past.ends(), self.host.now())
        past = tuple(each for each in ends if not each[0].of_source)
        sends_only = join.sends_only and (tree.by_source or bool(join.streams))  # else it gets the events anyway
        ended = () if sends_only else self.source_streams.ended(tree)  # another parent may report them as news
        accepted = Accepted(
            tree.topic, tree.term, start, path, fallbacks, descriptor, past, gone, tree.newest, tuple(starts),
            sends_only, ended, warrants(tree), tree.descriptor.version,
            self.source_streams.dates.milestones_known(tree, starts), self.progress.moves.of(tree.topic),
            _number_of(tree, join),
        )  # fmt: skip
        self.answers.tell(join.child, accepted, again=join.again)


def _is_of_another_life(tree: Tree, join: Join) -> bool:
    """Whether the child was restarted since it last came here, or was named. It may have been elsewhere meanwhile."""
    move, former = Move(join.child.node_id, join.number), tree.leases.children.get(join.child.node_id)
    if not join.number:
        return False
    was_child = former is not None and former.number > 0 and not same_life(former.number, move.number)
    awaited = tree.root is not None and tree.root.is_of_another_life(move)
    return was_child or awaited or any(lease.is_of_another_life(move) for lease in tree.leases.orphaned.values())


def _number_of(tree: Tree, join: Join) -> int:
    """Return the number of the move by which the child will be in the table: an old Join may follow a later one."""
    node, sends_only = join.child.node_id, join.sends_only and (tree.by_source or bool(join.streams))
    former = (None if sends_only else tree.leases.orphaned.get(node)) or tree.leases.children.get(node)
    number = former.move.number if former is not None and former.move is not None else 0
    return max(number, join.number) if same_life(number, join.number) else join.number or number


def _start_for(tree: Tree, join: Join) -> int:
    """Return the index of the present term from which on a child must be served."""
    have = join.have
    if have is None:
        return tree.flow.earliest if join.earliest else tree.newest
    if have.term == tree.term:
        return tree.flow.kept_before(tree.term, have.frontier) if join.earliest else have.frontier
    return 0  # it was here under an earlier root: it needs all events of this one
