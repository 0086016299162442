"""Where the source of a stream is, according to neighbours, and how far the stream is known to reach."""

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.forwarding.stream import BESIDE
from quillcast.protocol.topics.state.holders import Child, SourcesChild
from quillcast.protocol.topics.state.source import source_term
from quillcast.protocol.topics.state.sources import Sources
from quillcast.protocol.topics.state.tree import Tree


def sources_of(tree: Tree) -> Sources:
    """Return the topic's sources as the tree's own object, no longer the shared one."""
    return tree.open_sources()


def is_mine(host: Host, term: Term) -> bool:
    """Whether it is a stream of this process, which therefore knows best where it ends."""
    return term.node == source_term(host, 0).node


def is_alive(tree: Tree, term: Term) -> bool:
    """Whether the source is here or below."""
    own = tree.sources.own
    if own is not None and own.term == term:
        return not own.closing
    stream = tree.flow.others.get(term)
    if stream is not None and stream.barred:
        return False  # its reports do not count
    return any(is_alive_below(child, term) for child in tree.leases.children.values())


def towards(tree: Tree, term: Term) -> Contact | None:
    """Return the neighbour to ask for a source: the parent, if no child says that the source is below it.

    The source may have moved there before any event came from there. So this may differ from the neighbour to believe
    (`direction`).
    """
    near, below = direction(tree, term), below_of(tree, term)
    return near if near in below or not below else below[0]


def may_end(tree: Tree, child: Child, term: Term) -> bool:
    """Whether the end of a stream that a child reports comes from the source, as far as this peer can tell.

    The child is the source, or the source was below it so far, or in no known place.
    """
    stream = tree.flow.others.get(term)
    if stream is None or stream.numbered_here:
        return False
    so_far = is_alive_below(child, term) if stream.via == BESIDE else stream.via in (b"", child.contact.node_id)
    return so_far or term.is_of(child.contact.node_id)


def ends_here(tree: Tree, term: Term) -> bool:
    """Whether this peer is the root and the source is gone, so that it gives up what nobody has."""
    return tree.root is not None and not is_alive(tree, term)


def known_end(tree: Tree, term: Term) -> int:
    """Return how far a stream is known to reach."""
    state = tree.sources.states[term]
    above = state.above.reach if state.above is not None else 0
    return max(reach(tree, term), state.end or 0, above)


def there(tree: Tree, term: Term) -> int:
    """Return how far a stream came here, or reaches according to the neighbour in the direction of its source.

    Others' reports of later events are only a reason to ask for them, unless the source is in no known direction.
    """
    own, above, near = tree.sources.own, tree.sources.states[term].above, direction(tree, term)
    child = tree.leases.children.get(near.node_id) if near is not None else None
    if own is not None and own.term == term:
        said = own.index
    elif child is not None:
        said = max(child.streams[term].frontier, child.streams[term].reach)
    elif above is not None:
        said = above.reach
    else:
        return known_end(tree, term)
    return max(tree.flow.others[term].seen.end, said)


def known_to(told: ToldMilestones, front: int) -> int:
    """Return how far a neighbour knows a stream, from the milestones it told and its frontier."""
    return max([front, *(index for index, _ in told[-1:])])


def is_root_itself(tree: Tree, term: Term) -> bool:
    """Whether the source of a stream is the parent and also the root. Its events then count even without a right."""
    return tree.parent is not None and len(tree.path) == 1 and term.is_of(tree.parent.node_id)


def direction(tree: Tree, term: Term) -> Contact | None:
    """Return the neighbour in the direction of the source, whose reports on its stream count: by default the parent.

    If several children say that the source is below them, the source itself comes first, and next the neighbour from
    which its events come.
    """
    stream, parent = tree.flow.others.get(term), tree.parent
    via = stream.via if stream is not None else b""
    below = below_of(tree, term)
    for contact in below:
        if term.is_of(contact.node_id):
            return contact
    if parent is not None and parent.node_id == via:
        return parent
    return next((contact for contact in below if contact.node_id == via), below[0] if below else parent)


def comes_from(tree: Tree, term: Term, parent: Contact) -> bool:
    """Whether a stream comes from the parent, or from a source above over channels that bypass the tree."""
    via = tree.flow.others[term].via
    return via == parent.node_id or (via == BESIDE and not below_of(tree, term))


def below_of(tree: Tree, term: Term) -> list[Contact]:
    """Return the children that say that a source is at them or below."""
    return [child.contact for child in tree.leases.children.values() if is_alive_below(child, term)]


def is_alive_below(child: Child, term: Term) -> bool:
    """Whether a child says that a source is at it or below."""
    report = child.streams.get(term)
    return report is not None and report.alive


def forget_report(child: Child, term: Term) -> bool:
    """Forget what a child reported about a stream. Return whether there was anything."""
    return isinstance(child, SourcesChild) and child.forget_stream(term)


def reach(tree: Tree, term: Term) -> int:
    """Return one past the last event that a peer here or below has, or that is known from beyond a partition."""
    reports = (child.streams.get(term) for child in tree.leases.children.values())
    known = max(tree.flow.others[term].seen.end, tree.sources.states[term].heard_end)
    return max([known, *(report.reach for report in reports if report is not None)])
