"""Which members bundles reach over the present channels, whatever the policy."""

from collections.abc import Iterable, Sequence

from quillcast.protocol.scopes.filters import Filter
from quillcast.protocol.scopes.policy import ALL, Delivery, Group, WantedChannel


def carried(group: Group, channels: Iterable[WantedChannel], entry: Sequence[int]) -> tuple[int, ...]:
    """Return the senders whose bundles start on channels: the entry point, and those with channels of their own."""
    own = {each.source for each in channels if each.origin in (None, each.source)}
    return tuple(each for each in group.senders if each in own or each in entry)


def unreached(
    delivery: Delivery, group: Group, channels: Sequence[WantedChannel], origins: Iterable[int]
) -> frozenset[int]:
    """Return the receivers that the channels do not reach from all these origins.

    If filters divide the bundles, each share has to reach a receiver, unless the policy may leave gaps.
    """
    divided = [each.filter for each in channels if each.filter is not None and delivery != "lossy"]
    shares: list[Filter | None] = [*dict.fromkeys(divided)] or [None]
    receivers, by_origin = frozenset(group.receivers), dict[int | None, list[WantedChannel]]()
    for each in channels:
        by_origin.setdefault(each.origin, []).append(each)
    left = frozenset[int]()
    for origin in origins:
        concerned = [*by_origin.get(None, ()), *by_origin.get(origin, ())]
        for share in shares:
            left |= receivers.difference(_reached(receivers, concerned, origin, share))
    return left


def _reached(
    receivers: frozenset[int], channels: Iterable[WantedChannel], origin: int, share: Filter | None
) -> dict[int, None]:
    """The members that get a share of what originates at one."""
    below = dict[int, list[int]]()
    for source, target, _, filter_ in channels:
        if share is None or filter_ in (None, share):
            below.setdefault(source, []).extend(receivers if target == ALL else [target])
    reached, waiting = {origin: None}, [origin]
    for at in waiting:
        for other in below.get(at, ()):
            if other not in reached:
                reached[other] = None
                waiting.append(other)
    return reached
