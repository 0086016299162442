"""Whether the source of a stream may publish, according to the topic's access list and the sources' warrants."""

from collections.abc import Iterable

from quillcast.core.envelope import HALF_BYTES, Term
from quillcast.protocol.security.access import SourceWarrant, bearer, is_restricted
from quillcast.protocol.security.access import could_publish as could_publish_before
from quillcast.protocol.topics.state.sources import Right
from quillcast.protocol.topics.state.tree import Tree


def shown_by_source(warrants: Iterable[SourceWarrant]) -> dict[bytes, SourceWarrant]:
    """Return warrants by the part of the source's nodeId that terms contain."""
    return {each.node[:HALF_BYTES]: each for each in warrants}


def could_publish(tree: Tree, term: Term, warrant: SourceWarrant | None) -> bool:
    """Whether the source of a stream could publish by an earlier list, but may not now."""
    return right_of(tree, term, warrant) is Right.COULD


def right_of(tree: Tree, term: Term, warrant: SourceWarrant | None) -> Right:
    """Return whether a source may publish. Its warrant says on whose behalf it does."""
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
    """Return the warrants of the sources here, and those that children named that wait to be accepted."""
    if not (tree.sources.states or tree.waiting):
        return ()
    shown = [state.warrant for state in tree.sources.states.values() if state.warrant is not None]
    return tuple(dict.fromkeys([*shown, *(each for join, _ in tree.waiting.values() for each in join.warrants)]))
