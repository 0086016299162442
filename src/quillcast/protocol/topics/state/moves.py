"""The peers that moved from one parent to another below a peer, for its link reports."""

from collections.abc import Callable, Iterable
from itertools import islice

from quillcast.protocol.topics.messages import NEWCOMERS_MAX
from quillcast.protocol.topics.state.holders import SINCE
from quillcast.protocol.topics.state.leases import Leases
from quillcast.protocol.topics.state.link_reports import Move


def newcomers(leases: Leases, now: float) -> tuple[bytes, ...]:
    """Return peers that came below this one lately from another parent, and have reported or left since.

    Only those that do not count their parents.
    """
    nodes: dict[bytes, None] = {node: None for node, ended in leases.ended.items() if ended.move is None}
    for child in leases.children.values():
        if child.spoken == SINCE and child.named_until > now and not child.number:
            nodes[child.contact.node_id] = None
        nodes |= dict.fromkeys(child.word.newcomers)
    return tuple(nodes)[-NEWCOMERS_MAX:] if nodes else ()


def arrivals(leases: Leases, me: bytes) -> tuple[Move, ...]:
    """Return the moves of such peers that count their parents, for peers above that may be waiting for them."""
    return tuple([move for move in _included(leases) if move.up_to != me])[-NEWCOMERS_MAX:]


def departures(leases: Leases, me: bytes, now: float) -> tuple[Move, ...]:
    """Return peers whose leases continue here or below, because they moved and are not known to have arrived."""
    if not (leases.orphaned or leases.children):
        return ()
    named = [lease for lease in leases.orphaned.values() if lease.named_from <= now < lease.until]
    moves = [move for lease in named for move in lease.awaited.values() if move is not None]
    moves += [move for child in leases.children.values() for move in child.others.departures]
    waiting = [move for move in moves if move.up_to != me]
    return tuple(m for m in waiting if not any(here.follows(m) for here in _included(leases)))[-NEWCOMERS_MAX:]


def arrived_elsewhere(leases: Leases, above: Callable[[], Iterable[Move]]) -> tuple[Move, ...]:
    """Return the arrivals that children wait for, as reported by other children, or by the parent or here (`above`)."""
    awaited = [move for child in leases.children.values() for move in child.others.departures]
    if not awaited:
        return ()
    here = [*_included(leases), *above()]
    found = (Move(each.peer, each.number) for each in here if any(each.follows(move) for move in awaited))
    return tuple(islice(found, NEWCOMERS_MAX))


def _included(leases: Leases) -> list[Move]:
    """Return the moves that children's reports include, and those of peers that have left since."""
    moves = [move for child in leases.children.values() for move in child.arrived]
    return (
        [*moves, *[ended.move for ended in leases.ended.values() if ended.move is not None]] if leases.ended else moves
    )
