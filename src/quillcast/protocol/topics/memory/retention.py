"""What a peer keeps of a topic, for which leases, and what it may discard."""

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
    """Return the index of a live term (by default the current one) below which all leases here and below are served.

    Leases do not count if the term is best-effort: lost events do not come again.
    """
    flow = tree.flow
    frontier = flow.frontier if term is None else flow.front(term) or 0
    needed = flow.current.term if term is None else term
    if not flow.is_reliable(needed):
        return frontier
    return min([frontier, *[each.needed_from(needed) for each in holders(tree, now) if not each.is_cut]])


def holders(tree: Tree, now: float) -> list[LeaseHolder]:
    """Return the lease holders here: local subscribers and those below.

    A subscriber that asked for best-effort delivery has no lease.
    """
    own: list[LeaseHolder] = [each for each in tree.subscriptions if each.wish.delivery != "best_effort"]
    return [*own, *tree.leases.live(now)] if tree.leases.children or tree.leases.orphaned else own


def end_lease(tree: Tree, holder: LeaseHolder, now: float, catch_up_s: float = CATCH_UP_S) -> None:
    """End the lease of a holder that cannot keep up: hold back nothing for it until it does."""
    if isinstance(holder, OrphanedLease):
        tree.leases.end(holder)
    elif isinstance(holder, Child | Subscription):
        holder.cut_off(Cut(total(tree), now, catch_up_s))


def total(tree: Tree) -> int:
    """Return the number of events that came here without a gap, in all live streams and in sources' ended streams."""
    return tree.frontier + tree.sources.over + sum(tree.flow.front(term) or 0 for term in tree.flow.others)


def reached(tree: Tree, position: Callable[[Term], int | None]) -> int:
    """Return how many of these events a holder has that is at a position in each live stream."""
    return total(tree) - sum(
        max(0, (tree.flow.front(term) or 0) - (position(term) or 0)) for term in tree.flow.live_terms()
    )


def catch_up(tree: Tree, holder: Subscription | Child, now: float) -> None:
    """Restore the cut lease of a holder that has advanced, if it keeps up again."""
    cut = holder.cut
    if cut is None:
        return
    position, misses_some = reached(tree, holder.needed_from), _misses_some(tree, holder)
    if cut.is_over(position, total(tree), now, misses_some=misses_some):
        holder.cut_off(None)
        if isinstance(holder, Child):
            tree.leases.heard_from(holder.speaks_for)


def _misses_some(tree: Tree, holder: Subscription | Child) -> bool:
    """Whether a child is behind only by missing events, and there is room here until it has them.

    Everything here was sent to it. For a child that cannot keep up, some events would still be waiting.
    """
    log = tree.flow.log
    was_sent_all = isinstance(holder, Child) and holder.channel.cursor >= log.end
    return was_sent_all and log.budget.used_bytes * ROOM_PARTS <= log.budget.limit_bytes * (ROOM_PARTS - 1)


def trim(tree: Tree, now: float, some: Iterable[Term] | None = None) -> int:
    """Discard what nobody needs of all or some live terms. Return how many bytes that was.

    This is the only rule for a peer within its budget. It discards up to the lowest of the root's stable position and
    what children, local subscribers and orphaned leases here still need, cut or not.
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

    A root or source has the originals, so it keeps what is not stable.
    """
    needs = [position for position, holder in kept_for(tree, now, term) if not holder.is_cut]
    below, stream = min([tree.flow.front(term) or 0, *needs]), tree.flow.live(term)
    if stream is not None and (keeps_originals(tree) or term in tree.sources.mine):
        below = min(below, stream.stable)
    elif term in tree.flow.others:
        below = min(below, _kept_above(tree, term))
    return tree.flow.release(below, goal_bytes, term=term)


def keeps_originals(tree: Tree) -> bool:
    """Whether this peer is the root of the present term, or that root transferred the term to it."""
    return tree.root is not None or tree.inherited.term == tree.term


def _kept_above(tree: Tree, term: Term) -> int:
    """Return how far the parent has a source's stream: what it gets from here is kept until it has it."""
    parent = tree.parent.node_id if tree.parent is not None else b""
    above = tree.sources.states[term].above
    if parent and tree.flow.others[term].via == parent:
        return NUMBER_MAX
    return above.frontier if above is not None else 0


def kept_for(tree: Tree, now: float, term: Term) -> Iterator[tuple[int, LeaseHolder]]:
    """Yield the leases that need what is kept here of a live term when memory is short, and from which index."""
    for holder in holders(tree, now):
        position = holder.kept_from(term, at_root=keeps_originals(tree))
        if position is not None:
            yield position, holder


def last_holder(tree: Tree, now: float) -> LeaseHolder | None:
    """Return the lease that needs the most of what is kept here, stalled ones first; None if none is behind."""
    at_root, whole = keeps_originals(tree), total(tree)
    behind = [
        (not holder.is_stalled(now), position, holder)
        for holder in holders(tree, now)
        if holder.kept_from(tree.term, at_root=at_root) is not None
        and (position := reached(tree, partial(holder.kept_from, at_root=at_root))) < whole
        and not holder.is_cut
    ]
    return min(behind, key=lambda need: need[:2])[2] if behind else None
