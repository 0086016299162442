"""A chain."""

from itertools import pairwise
from typing import ClassVar

import msgspec

from quillcast.protocol.scopes.policies.links import in_order, links_of, spread
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class Chain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members pass bundles on in the order in which they came, from where a bundle begins both ways."""

    delivery: ClassVar[Delivery] = "tree"

    def fan_out_max(self, group: Group) -> int:
        return 2

    def channels(
        self, group: Group, standing: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        if not group.receivers:
            return ()
        links = links_of(pairwise(group.receivers), group.receivers)
        return in_order(spread(links, group, group.receivers[0]))
