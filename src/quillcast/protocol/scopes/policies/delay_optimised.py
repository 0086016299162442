"""A tree made from measured round trips."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from quillcast.protocol.scopes.policies.links import HopCost, TreeBuilder, build_tree, in_order, present_tree, spread
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel

_UNMEASURED_S = 0.15  # one way; a guess: as far as the other side of the Earth


class DelayOptimised(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members form a tree of short measured delays, in which each serves at most `fan_out` others.

    All origins share one tree around the member that is nearest to them, unless `per_origin` asks for a tree of its own
    for each. A tree stands until one built anew would have a mean delay that is smaller by the share `gain`.
    """

    delivery: ClassVar[Delivery] = "tree"
    fan_out: Annotated[int, msgspec.Meta(ge=2, le=1024)] = 8
    per_origin: bool = False
    gain: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.2

    def fan_out_max(self, group: Group) -> int:
        return self.fan_out + (len(group.senders) > 1 and not self.per_origin)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        if not group.senders or not group.receivers:
            return ()
        hop = _one_way(round_trips)
        if not self.per_origin:
            root = _centre(group, hop)
            return in_order(spread(self._tree(root, group, present, hop).links(), group, root))
        return in_order(
            channel
            for origin in group.senders
            for own in [[each for each in present if each.origin == origin]]
            for channel in spread(self._tree(origin, group, own, hop).links(), group, origin, origins=[origin])
        )

    def _tree(self, root: int, group: Group, present: Sequence[WantedChannel], hop: HopCost) -> TreeBuilder:
        others = [each for each in group.receivers if each != root]
        nearest = sorted(others, key=lambda each: hop(root, each))
        anew = build_tree([root, *nearest], (), self.fan_out, hop)
        if not present:
            return anew
        nodes = [root, *others]
        stands = build_tree(nodes, present_tree(nodes, present), self.fan_out, hop)
        return anew if _total(anew) < (1 - self.gain) * _total(stands) else stands


def _one_way(round_trips: RoundTrips) -> HopCost:
    """Half of what was measured, by either end."""

    def hop(one: int, other: int) -> float:
        measured = round_trips(one, other)
        if measured is None:
            measured = round_trips(other, one)
        return _UNMEASURED_S if measured is None else measured / 2

    return hop


def _centre(group: Group, hop: HopCost) -> int:
    """The receiver that is nearest to all senders; an earlier one of equals."""
    return min(group.receivers, key=lambda each: sum(hop(sender, each) for sender in group.senders if sender != each))


def _total(tree: TreeBuilder) -> float:
    return sum(tree.delays.values())
