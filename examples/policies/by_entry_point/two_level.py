"""A policy and a filter for scopes, in a package of their own."""

from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec

from quillcast.core.envelope import Envelope
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class TwoLevel(msgspec.Struct, frozen=True):
    """The member where a bundle enters the scope sends it to `helpers` receivers, which divide the others among them.

    A receiver's label selects its helper, so members keep their helper as long as the helpers stay the same.
    """

    delivery: ClassVar[Delivery] = "tree"
    helpers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3

    def fan_out_max(self, group: Group) -> int:
        """The most channels for bundles of one origin from one member: labels may all select the same helper."""
        return max(self.helpers, len(group.receivers) - 1)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        """The wanted channels, regardless of present channels and measurements."""
        wanted = []
        for origin in group.senders:
            others = [each for each in group.receivers if each != origin]
            helpers, rest = others[: self.helpers], others[self.helpers :]
            wanted += [WantedChannel(origin, helper, origin) for helper in helpers]
            wanted += [WantedChannel(helpers[each % len(helpers)], each, origin) for each in rest]
        return tuple(wanted)


def first_of(n: int) -> Callable[[Envelope], bool | str]:
    """A filter that lets every n-th bundle enter, with the tag `first`."""

    def decide(envelope: Envelope) -> bool | str:
        return "first" if envelope.serial % n == 0 else False

    return decide
