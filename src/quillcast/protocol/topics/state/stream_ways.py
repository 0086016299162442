"""Where the source of a stream is, as neighbours say, and how far the stream is known to have gone."""

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
    """The topic's sources, which are the tree's own from now on."""
    return tree.open_sources()


def is_mine(host: Host, term: Term) -> bool:
    """Is it a stream of this very process, which knows best where it ends?"""
    return term.node == source_term(host, 0).node


def is_alive(tree: Tree, term: Term) -> bool:
    """Is the source here or below?"""
    own = tree.sources.own
    if own is not None and own.term == term:
        return not own.closing
    stream = tree.flow.others.get(term)
    if stream is not None and stream.barred:
        return False  # as far as anybody goes by its word
    return any(is_alive_below(child, term) for child in tree.leases.children.values())


def towards(tree: Tree, term: Term) -> Contact | None:
    """The neighbour to ask for a source; the parent, if no child says that it is below.

    It may have moved there, and nothing come from there yet. So this need not be whom to believe (`direction`).
    """
    near, below = direction(tree, term), below_of(tree, term)
    return near if near in below or not below else below[0]


def may_end(tree: Tree, child: Child, term: Term) -> bool:
    """Is what a child says of the end of a stream the source's own word, as far as this peer can tell?

    The child is the source, or the source was below it so far, or nowhere that this peer knows of.
    """
    stream = tree.flow.others.get(term)
    if stream is None or stream.numbered_here:
        return False
    so_far = is_alive_below(child, term) if stream.via == BESIDE else stream.via in (b"", child.contact.node_id)
    return so_far or term.is_of(child.contact.node_id)


def ends_here(tree: Tree, term: Term) -> bool:
    """Is it this peer, as the root, that gives up what nobody has? The source is gone."""
    return tree.root is not None and not is_alive(tree, term)


def known_end(tree: Tree, term: Term) -> int:
    """How far a stream is known to have gone."""
    state = tree.sources.states[term]
    above = state.above.reach if state.above is not None else 0
    return max(reach(tree, term), state.end or 0, above)


def there(tree: Tree, term: Term) -> int:
    """How far a stream came here, or went as a neighbour says in whose direction its source is.

    What others say of later events is a reason to ask for them, and no more; unless the source is in no direction.
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
    """How far a neighbour knows a stream to have come, which says this of it, and has it up to an index."""
    return max([front, *(index for index, _ in told[-1:])])


def is_root_itself(tree: Tree, term: Term) -> bool:
    """Is the source of a stream the parent, as the topic's root? Then its word counts, with a right or without one."""
    return tree.parent is not None and len(tree.path) == 1 and term.is_of(tree.parent.node_id)


def direction(tree: Tree, term: Term) -> Contact | None:
    """The neighbour whose word on a stream counts, for it leads to the source; the parent, if that is nowhere below.

    Several may say that it is below them. Then the source itself counts most, and next the neighbour from which its
    events come.
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
    """Does a stream come from the parent, or, over channels that lead past the tree, from a source above?"""
    via = tree.flow.others[term].via
    return via == parent.node_id or (via == BESIDE and not below_of(tree, term))


def below_of(tree: Tree, term: Term) -> list[Contact]:
    """The children that say that a source is at them or below."""
    return [child.contact for child in tree.leases.children.values() if is_alive_below(child, term)]


def is_alive_below(child: Child, term: Term) -> bool:
    """Does a child say that a source is at it or below?"""
    report = child.streams.get(term)
    return report is not None and report.alive


def forget_report(child: Child, term: Term) -> bool:
    """Forget what a child reported of a stream; did it report anything?"""
    return isinstance(child, SourcesChild) and child.forget_stream(term)


def reach(tree: Tree, term: Term) -> int:
    """One past the last event that somebody here or below has, or knew of beyond a partition."""
    reports = (child.streams.get(term) for child in tree.leases.children.values())
    known = max(tree.flow.others[term].seen.end, tree.sources.states[term].heard_end)
    return max([known, *(report.reach for report in reports if report is not None)])
