"""A chain."""

from itertools import pairwise
from typing import ClassVar

import msgspec

from quillcast.protocol.scopes.policies.links import in_order, links_of, spread
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class Chain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members form a line in the order in which they came; bundles travel along it both ways from where they begin."""

    delivery: ClassVar[Delivery] = "tree"

    def fan_out_max(self, group: Group) -> int:
        return 2

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        if not group.receivers:
            return ()
        links = links_of(pairwise(group.receivers), group.receivers)
        return in_order(spread(links, group, group.receivers[0]))
