"""A policy and a filter for scopes, from outside of quillcast."""

from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec

from quillcast.core.envelope import Envelope
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class TwoLevel(msgspec.Struct, frozen=True):
    """The member at which a bundle begins sends it to `helpers` receivers, and they share the others.

    Members keep their helper as long as the helpers stay the same: a receiver's label decides.
    """

    delivery: ClassVar[Delivery] = "tree"
    helpers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3

    def fan_out_max(self, group: Group) -> int:
        """The most channels for bundles of one origin from one member: labels may fall together."""
        return max(self.helpers, len(group.receivers) - 1)

    def channels(
        self, group: Group, standing: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        """The channels that it wants; what stands and what was measured does not matter to it."""
        wanted = []
        for origin in group.senders:
            others = [each for each in group.receivers if each != origin]
            helpers, rest = others[: self.helpers], others[self.helpers :]
            wanted += [WantedChannel(origin, helper, origin) for helper in helpers]
            wanted += [WantedChannel(helpers[each % len(helpers)], each, origin) for each in rest]
        return tuple(wanted)


def first_of(n: int) -> Callable[[Envelope], bool | str]:
    """A filter: every n-th bundle enters, with the tag `first`."""

    def decide(envelope: Envelope) -> bool | str:
        return "first" if envelope.serial % n == 0 else False

    return decide
