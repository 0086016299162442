"""What is kept of a topic at a peer, for whom, and what may be discarded."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from quillcast.core.envelope import Term
from quillcast.core.messages import NUMBER_MAX
from quillcast.protocol.forwarding.stream import Stream
from quillcast.protocol.topics.state.cut import CATCH_UP_S, ROOM_PARTS, Cut
from quillcast.protocol.topics.state.holders import Child, LeaseHolder, OrphanedLease
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree


def acknowledged_position(tree: Tree, now: float, term: Term | None = None) -> int:
    """The index of a live term (the current one) below which all leases here and below are served.

    Where nothing is kept, nobody is waited for: what was lost on the way does not come any more.
    """
    flow = tree.flow
    frontier = flow.frontier if term is None else flow.front(term) or 0
    needed = flow.current.term if term is None else term
    if not flow.is_reliable(needed):
        return frontier
    return min([frontier, *[each.needed_from(needed) for each in holders(tree, now) if not each.is_cut]])


def holders(tree: Tree, now: float) -> list[LeaseHolder]:
    """The leases that are owed the topic's events here: local subscribers, and those below.

    A subscriber that asked for no guarantee has none.
    """
    own: list[LeaseHolder] = [each for each in tree.subscriptions if each.wish.delivery != "best_effort"]
    return [*own, *tree.leases.live(now)] if tree.leases.children or tree.leases.orphaned else own


def end_lease(tree: Tree, holder: LeaseHolder, now: float, catch_up_s: float = CATCH_UP_S) -> None:
    """It cannot keep up: hold back nothing for it any more, until it does."""
    if isinstance(holder, OrphanedLease):
        tree.leases.end(holder)
    elif isinstance(holder, Child | Subscription):
        holder.cut_off(Cut(total(tree), now, catch_up_s))


def total(tree: Tree) -> int:
    """Events that came here without a gap, in all live streams together and in those of sources that are over."""
    return tree.frontier + tree.sources.over + sum(tree.flow.front(term) or 0 for term in tree.flow.others)


def reached(tree: Tree, position: Callable[[Term], int | None]) -> int:
    """Of these events, those that somebody has that is at a position in each live stream."""
    return total(tree) - sum(
        max(0, (tree.flow.front(term) or 0) - (position(term) or 0)) for term in tree.flow.live_terms()
    )


def catch_up(tree: Tree, holder: Subscription | Child, now: float) -> None:
    """Somebody has come further: if its lease was ended, does it keep up again?"""
    cut = holder.cut
    if cut is None:
        return
    position, misses_some = reached(tree, holder.needed_from), _misses_some(tree, holder)
    if cut.is_over(position, total(tree), now, misses_some=misses_some):
        holder.cut_off(None)
        if isinstance(holder, Child):
            tree.leases.heard_from(holder.speaks_for)


def _misses_some(tree: Tree, holder: Subscription | Child) -> bool:
    """Is a child behind only by events that it misses, and is there room here for as long as these take?

    All that is here was sent to it. Who cannot keep up has some of it waiting.
    """
    log = tree.flow.log
    was_sent_all = isinstance(holder, Child) and holder.channel.cursor >= log.end
    return was_sent_all and log.budget.used_bytes * ROOM_PARTS <= log.budget.limit_bytes * (ROOM_PARTS - 1)


def trim(tree: Tree, now: float, some: Iterable[Term] | None = None) -> int:
    """Let go of what nobody needs of all or some live terms; how many bytes that was.

    The one rule for a peer within its budget.

    It is the least of the stable position as the root issued it and of what everybody here still needs: children,
    local subscribers and orphaned leases, cut or not.
    """
    flow = tree.flow
    if not flow.others:
        stream, oldest = flow.current, flow.log.oldest(flow.current.term)
        return 0 if oldest is None or oldest.last > stream.stable else _trim(tree, stream, now)
    streams = flow.live_streams() if some is None else [flow.others[term] for term in some]
    first = {bundle.envelope.term: bundle for bundle in reversed(flow.log.bundles())}
    stable = [each for each in streams if each.term in first and first[each.term].last <= each.stable]
    return sum([_trim(tree, stream, now) for stream in stable])


def _trim(tree: Tree, stream: Stream, now: float) -> int:
    term = stream.term
    needs = [holder.needed_from(term) for holder in holders(tree, now)]
    return tree.flow.release(min([stream.stable, tree.flow.front(term) or 0, *needs]), term=term)


def shed(tree: Tree, now: float, goal_bytes: int, term: Term) -> int:
    """Discard copies of a live term that no lease here needs, down to a goal, because the budget is used up.

    A root's or source's are the originals, so it keeps what is not stable.
    """
    needs = [position for position, holder in kept_for(tree, now, term) if not holder.is_cut]
    below, stream = min([tree.flow.front(term) or 0, *needs]), tree.flow.live(term)
    if stream is not None and (keeps_originals(tree) or term in tree.sources.mine):
        below = min(below, stream.stable)
    elif term in tree.flow.others:
        below = min(below, _kept_above(tree, term))
    return tree.flow.release(below, goal_bytes, term=term)


def keeps_originals(tree: Tree) -> bool:
    """Is this peer the root of the present term, or did that root transfer it, so that others rely on this one?"""
    return tree.root is not None or tree.inherited.term == tree.term


def _kept_above(tree: Tree, term: Term) -> int:
    """How far the parent has a source's stream: what comes to it from here is kept until then."""
    parent = tree.parent.node_id if tree.parent is not None else b""
    above = tree.sources.states[term].above
    if parent and tree.flow.others[term].via == parent:
        return NUMBER_MAX
    return above.frontier if above is not None else 0


def kept_for(tree: Tree, now: float, term: Term) -> Iterator[tuple[int, LeaseHolder]]:
    """The leases that need what is kept here of a live term when there is no room, and from which index on."""
    for holder in holders(tree, now):
        position = holder.kept_from(term, at_root=keeps_originals(tree))
        if position is not None:
            yield position, holder


def last_holder(tree: Tree, now: float) -> LeaseHolder | None:
    """The lease that needs the most of what is kept here, stalled ones first; None if none is behind."""
    at_root, whole = keeps_originals(tree), total(tree)
    behind = [
        (not holder.is_stalled(now), position, holder)
        for holder in holders(tree, now)
        if holder.kept_from(tree.term, at_root=at_root) is not None
        and (position := reached(tree, partial(holder.kept_from, at_root=at_root))) < whole
        and not holder.is_cut
    ]
    return min(behind, key=lambda need: need[:2])[2] if behind else None
