"""A ring."""

from typing import ClassVar

import msgspec

from quillcast.protocol.scopes.policies.rings import along, steps, taking_part
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class Ring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bundles go around both ways, so that all members get them even if one is lost."""

    delivery: ClassVar[Delivery] = "redundant"

    def fan_out_max(self, group: Group) -> int:
        return 2

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        ring = taking_part(group)
        return along(dict.fromkeys([*steps(ring, group), *steps(ring[::-1], group)]), group)
