"""The channels of a tree: to children, to the parent if events go up, and to other peers as scopes order."""

from collections.abc import Iterable

from quillcast.core.bundle import Bundle
from quillcast.core.interning import EMPTY
from quillcast.protocol.forwarding.channels import BundleFilter, Channel, nothing_enters
from quillcast.protocol.forwarding.ordered import NO_ORDERS, Ordered
from quillcast.protocol.forwarding.policy import ChannelSpec
from quillcast.protocol.topics.state.holders import Child
from quillcast.protocol.topics.state.tree import Tree


def install(tree: Tree, wanted: Iterable[ChannelSpec], ordered: Ordered = NO_ORDERS) -> None:
    """Open and close channels to children so that exactly the wanted ones are open.

    Raises `ValueError` if one leads to a peer that is not a child, because that never asked for the topic. Channels
    that scopes ordered may lead to such peers. If they lead to children, they decide what passes the tree links.
    """
    specs = {spec.to.node_id: spec for spec in wanted}
    if others := specs.keys() - tree.leases.children.keys():
        raise ValueError(f"the forwarding policy wants channels to {sorted(others)}, which are not children here")
    open_ = {*tree.flow.channels}
    for node, child in tree.leases.children.items():
        spec, is_open = specs.get(node), child.channel in open_
        if spec is not None:
            enters = _filter_to(tree, node, ordered.to_child(node, spec.filter))
            sink = ordered.sink_to(node, child.channel.sink)
            child.channel.lead(sink, nothing_enters if child.barred else enters)
        if spec is not None and not is_open:
            tree.flow.open(child.channel)
        elif spec is None and is_open:
            tree.flow.close(child.channel)
    _install_up(tree, ordered)
    if tree.beside or ordered.ways:
        _install_beside(tree, ordered)
    tree.leave_room()


def _install_up(tree: Tree, ordered: Ordered) -> None:
    """Let what scopes order pass the link to the parent, if events go up."""
    if tree.sources.up is None or tree.parent is None:
        return
    up, node = tree.sources.up, tree.parent.node_id

    def enters(bundle: Bundle) -> Bundle | None:
        if not bundle.envelope.term.of_source:
            return None  # a root's events come from above
        inner = ordered.to_parent(node, tree.path)  # the parent may now be inside or outside a scope
        return bundle if inner is None else inner(bundle)

    up.lead(ordered.sink_to(node, up.sink), tree.sources.filter_to(node, tree.flow, enters))


def _install_beside(tree: Tree, ordered: Ordered) -> None:
    """Keep channels to peers that are not children. They begin with the next bundle; earlier ones are repaired."""
    above = tree.parent.node_id if tree.sources.up is not None and tree.parent is not None else b""
    wanted = {node: way for node, way in ordered.ways.items() if node not in tree.leases.children and node != above}
    for node in [node for node in tree.beside if node not in wanted]:
        tree.flow.close(tree.take_beside(node))
    for node, way in wanted.items():
        if node not in tree.beside:
            tree.lead_beside(node, Channel(way.sink, tree.flow.log.end))
            tree.flow.open(tree.beside[node])
        tree.beside[node].lead(way.sink, _without_its_own(node, way.enters) if tree.by_source else way.enters)


def _filter_to(tree: Tree, node: bytes, wanted: BundleFilter | None) -> BundleFilter | None:
    """Return what a channel to a child lets through."""
    if not tree.by_source:
        return wanted
    enters = tree.sources.filter_to(node, tree.flow, wanted)

    def unless_numbered_there(bundle: Bundle) -> Bundle | None:
        term = bundle.envelope.term
        child = tree.leases.children.get(node) if term.is_of(node) else None
        report = child.streams.get(term) if child is not None else None
        return enters(bundle) if report is None or not report.alive else None

    return unless_numbered_there


def _without_its_own(node: bytes, enters: BundleFilter) -> BundleFilter:
    """Filter a source's own stream from a channel that bypasses the tree. After a restart the source asks for it."""

    def others(bundle: Bundle) -> Bundle | None:
        term = bundle.envelope.term
        return None if term.of_source and term.is_of(node) else enters(bundle)

    return others


def way_to(tree: Tree, node: bytes) -> Channel | None:
    """Return the channel to a child, to the parent if events go up, or to a peer as a scope's manager ordered."""
    child = tree.leases.children.get(node)
    if child is not None:
        return child.channel
    is_parent = tree.parent is not None and tree.parent.node_id == node
    return tree.sources.up if is_parent and tree.sources.up is not None else tree.beside.get(node)


def take_out(tree: Tree, node: bytes) -> Child | None:
    """Take a child out of the children table. If a scope's channel leads to it, that continues where it was."""
    child = tree.leases.take_out(node)
    if child is not None and tree.beside is not EMPTY and child.channel in tree.flow.channels:
        tree.lead_beside(node, child.channel)
    elif child is not None:
        tree.flow.close(child.channel)
    return child
