"""Whether the source of a stream may publish, by the topic's list and the warrants that sources show."""

from collections.abc import Iterable

from quillcast.core.envelope import HALF_BYTES, Term
from quillcast.protocol.security.access import SourceWarrant, bearer, is_restricted
from quillcast.protocol.security.access import could_publish as could_publish_before
from quillcast.protocol.topics.state.sources import Right
from quillcast.protocol.topics.state.tree import Tree


def shown_by_source(warrants: Iterable[SourceWarrant]) -> dict[bytes, SourceWarrant]:
    """Warrants by what terms say of their sources."""
    return {each.node[:HALF_BYTES]: each for each in warrants}


def could_publish(tree: Tree, term: Term, warrant: SourceWarrant | None) -> bool:
    """Could the source of a stream publish by an earlier list, and now cannot?"""
    return right_of(tree, term, warrant) is Right.COULD


def right_of(tree: Tree, term: Term, warrant: SourceWarrant | None) -> Right:
    """Its warrant says on whose behalf a source publishes."""
    descriptor = tree.descriptor
    if not is_restricted(descriptor.access, "publish"):
        return Right.MAY
    who = ""
    if warrant is not None and term.is_of(warrant.node):
        who = bearer(warrant.warrant, warrant.node, tree.topic)
    if who and descriptor.refusal("publish", who) is None:
        return Right.MAY
    return Right.COULD if could_publish_before(descriptor.access, who) else Right.NEVER


def warrants(tree: Tree) -> tuple[SourceWarrant, ...]:
    """What the sources of the streams here have shown, and those that children named who wait to be taken in."""
    shown = [state.warrant for state in tree.sources.states.values() if state.warrant is not None]
    return tuple(dict.fromkeys([*shown, *(each for join, _ in tree.waiting.values() for each in join.warrants)]))
