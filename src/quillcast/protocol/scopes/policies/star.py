"""A star: one member passes everything on to all others."""

from collections import Counter
from typing import ClassVar

import msgspec

from quillcast.protocol.scopes.policies.links import in_order, links_of, root_of, spread
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel


class Star(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One member passes every bundle on to all others."""

    delivery: ClassVar[Delivery] = "tree"

    def fan_out_max(self, group: Group) -> int:
        return max(1, len(group.receivers) - 1)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        if not group.receivers:
            return ()
        hub = _hub(group, present)
        links = links_of(((hub, each) for each in group.receivers), group.receivers)
        return in_order(spread(links, group, hub))


def _hub(group: Group, present: tuple[WantedChannel, ...]) -> int:
    """The hub that stands, as long as it receives. Where one member alone sends, it is the hub itself."""
    root = root_of(group)
    if group.senders == (root,):
        return root
    links = links_of(((each.source, each.target) for each in present), group.receivers)
    degrees = Counter({each: len(others) for each, others in links.items()})
    hub, degree = degrees.most_common(1)[0]
    return hub if degree > 1 else root
