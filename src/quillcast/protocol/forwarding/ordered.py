"""The channels that a peer is ordered to keep besides the topic's tree, as managers of scopes do."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from quillcast.core.bundle import Bundle
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.channels import BundleFilter, PeerSink, Sink


class Way(NamedTuple):
    """An ordered channel: where it leads to, and what enters it."""

    sink: PeerSink
    enters: BundleFilter
    enters_link: BundleFilter
    """The same where it is a link of the tree, too: a child or parent may have nothing else to rely on."""


class Ordered(NamedTuple):
    """The channels of one topic, by the peers to which they lead."""

    ways: Mapping[bytes, Way]
    others: BundleFilter | None = None
    """What a bundle turns into on a link of the tree to anybody else."""
    within: BundleFilter | None = None
    """The same on a link to a parent to whom channels lead as well, though none from here."""
    heads: frozenset[bytes] | None = None
    """On the path to such a parent is one of these; None: all peers are such."""
    outwards: Callable[[Contact], PeerSink] | None = None
    """The end of a link to anybody else, if what leaves there keeps to rates."""

    def sink_to(self, node: bytes, present: Sink) -> Sink:
        """The end of a link of the tree. A scope may have ordered that it keeps to rates."""
        way = self.ways.get(node)
        if way is not None:
            return way.sink
        if self.outwards is not None and present.contact is not None:
            return self.outwards(present.contact)
        return present.plain()

    def to_child(self, node: bytes, wanted: BundleFilter | None) -> BundleFilter | None:
        """The filter of a link to a child, where the tree's own policy wants this one."""
        way = self.ways.get(node)
        own = way.enters_link if way is not None else self.others
        if wanted is None or own is None:
            return own or wanted
        return _chained(wanted, own)

    def to_parent(self, node: bytes, path: Sequence[bytes]) -> BundleFilter | None:
        """The filter of the link to the parent, which has this path from the root."""
        way = self.ways.get(node)
        if way is not None:
            return way.enters_link
        is_within = self.heads is None or not self.heads.isdisjoint(path)
        return self.within if is_within else self.others


class ChannelDecision(NamedTuple):
    """What the ordered channels to a peer do with a bundle, for display."""

    channel: str = ""
    """The label of the channel that decided. Empty: no scope ordered one."""
    filter: str = ""
    """Its filter, in words."""
    why: str = ""
    """Why the bundle does not take it."""


def _chained(first: BundleFilter, second: BundleFilter) -> BundleFilter:
    def enters(bundle: Bundle) -> Bundle | None:
        entering = first(bundle)
        return second(entering) if entering is not None else None

    return enters


NO_ORDERS = Ordered({})
