"""A k-ary tree."""

from typing import Annotated, ClassVar

import msgspec

from quillcast.protocol.scopes.policies.links import in_order, present_tree, root_of, shallow, spread
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class KAry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members form a tree, in which each passes a bundle on to at most `fan_out` others.

    All origins share its links. So where several members send, the one at which a bundle begins may also have the link
    to its parent to serve.
    """

    delivery: ClassVar[Delivery] = "tree"
    fan_out: Annotated[int, msgspec.Meta(ge=2, le=1024)] = 4

    def fan_out_max(self, group: Group) -> int:
        return self.fan_out + (len(group.senders) > 1)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        if not group.receivers:
            return ()
        root = root_of(group)
        nodes = [root, *(each for each in group.receivers if each != root)]
        tree = shallow(nodes, present_tree(nodes, present), self.fan_out)
        return in_order(spread(tree.links(), group, root))
