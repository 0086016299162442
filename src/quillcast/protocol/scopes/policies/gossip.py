"""Gossip."""

from typing import Annotated, ClassVar

import msgspec

from quillcast.protocol.scopes.filters import Modulo
from quillcast.protocol.scopes.policies.rings import along, drawn, shuffled, steps, taking_part
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class Gossip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each member passes a bundle on to `fan_out` of the `view` members that it knows, to others for each bundle.

    A hash of the labels decides whom it knows. A bundle misses about one member in e^fan_out; recovery fills the rest.
    """

    delivery: ClassVar[Delivery] = "lossy"
    fan_out: Annotated[int, msgspec.Meta(ge=2, le=64)] = 4
    view: Annotated[int, msgspec.Meta(ge=1, le=256)] = 12

    def __post_init__(self) -> None:
        if self.fan_out > self.view:
            raise ValueError(f"fan_out = {self.fan_out} is larger than view = {self.view}; choose a larger view")

    def fan_out_max(self, group: Group) -> int:
        return self.view

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        kept: dict[tuple[int, int], set[int]] = {}
        for number in range(self.view):
            for source, target in steps(shuffled(taking_part(group), number), group):
                kept.setdefault((source, target), set()).update(self._serials(source, number))
        return along({pair: Modulo(self.view, tuple(sorted(serials))) for pair, serials in kept.items()}, group)

    def _serials(self, source: int, number: int) -> list[int]:
        """When a member uses its way along a ring: for each bundle, it uses `fan_out` of them."""
        first = number + drawn(source, self.view)
        return [(first + step) % self.view for step in range(self.fan_out)]
