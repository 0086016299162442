"""A policy in one file: a star around the member that is nearest to all others."""

from typing import ClassVar

import msgspec

from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class AroundHub(msgspec.Struct, frozen=True):
    """The receiver with the shortest round trips passes every bundle on to all others."""

    delivery: ClassVar[Delivery] = "tree"
    far_s: float = 0.3  # used for round trips that nobody has measured

    def fan_out_max(self, group: Group) -> int:
        """The most channels for bundles of one origin from one member."""
        return max(1, len(group.receivers) - 1)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        """The wanted channels."""
        if not group.receivers:
            return ()

        def distance(member: int) -> float:
            measured = [round_trips(member, each) for each in group.members if each != member]
            return sum(self.far_s if each is None else each for each in measured)

        hub = min(group.receivers, key=distance)
        return tuple(
            channel
            for origin in group.senders
            for channel in (
                *([WantedChannel(origin, hub, origin)] if origin != hub else []),
                *(WantedChannel(hub, each, origin) for each in group.receivers if each not in (hub, origin)),
            )
        )
