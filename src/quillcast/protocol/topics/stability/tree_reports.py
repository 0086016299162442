"""Makes the link reports on a tree."""

from collections.abc import Callable, Iterable

from quillcast.core.messages import Contact
from quillcast.protocol.topics.memory.retention import acknowledged_position
from quillcast.protocol.topics.state.link_reports import ChildReport, Move, ParentReport
from quillcast.protocol.topics.state.moves import arrivals, arrived_elsewhere, departures, newcomers
from quillcast.protocol.topics.state.tree import Tree


def child_report(tree: Tree, me: bytes, now: float, *, used_up: bool = False) -> ChildReport:
    """Return the report to the parent."""
    term, frontier = tree.flow.current.term, tree.flow.frontier
    leaf = not (tree.leases.children or tree.waiting or tree.leases.orphaned)
    alone = leaf and not tree.leases.ended  # then nobody has moved here or below
    return ChildReport(
        term,
        acknowledged_position(tree, now),
        max(tree.heard, term),
        tree.flow.held(now),
        () if alone else newcomers(tree.leases, now),
        frontier,
        leaf,
        () if alone else arrivals(tree.leases, me),
        () if alone else departures(tree.leases, me, now),
        used_up,
        tree.reach,
    )


def parent_report(
    tree: Tree, me: bytes, fallbacks: tuple[Contact, ...], now: float,
    above: Callable[[], Iterable[Move]] = tuple, *, held_back: bool,
) -> ParentReport:  # fmt: skip
    """Return the report to the children. `above` gives the arrivals that the parent reports, and this peer's own."""
    flow = tree.flow
    return ParentReport(
        flow.current.term,
        flow.frontier,
        flow.current.stable,
        tree.path_here(me),
        fallbacks,
        flow.held(now),
        held_back,
        (tree.descriptor if tree.root is None else tree.root.noted) if tree.changed else None,
        arrived_elsewhere(tree.leases, above),
    )
