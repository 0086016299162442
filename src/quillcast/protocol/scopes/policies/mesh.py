"""A mesh."""

from typing import Annotated, ClassVar

import msgspec

from quillcast.protocol.scopes.policies.rings import along, shuffled, steps, taking_part
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class Mesh(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each member passes every bundle on to at most `degree` others, along rings through all members.

    So the mesh holds together as long as fewer than `degree` members are lost at once, in most cases.
    """

    delivery: ClassVar[Delivery] = "redundant"
    degree: Annotated[int, msgspec.Meta(ge=2, le=64, multiple_of=2)] = 4

    def fan_out_max(self, group: Group) -> int:
        return self.degree

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        rings = [shuffled(taking_part(group), number) for number in range(self.degree // 2)]
        ways = [way for ring in rings for way in (ring, ring[::-1])]
        return along(dict.fromkeys(pair for way in ways for pair in steps(way, group)), group)
