"""Stripes (SplitStream: Castro et al., 2003)."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Annotated, ClassVar

import msgspec

from quillcast.protocol.scopes.filters import Modulo
from quillcast.protocol.scopes.policies.links import (
    LabelPair,
    Links,
    in_order,
    links_of,
    present_tree,
    shallow,
    spread,
)
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel

_FORWARDERS = 2  # how many other forwarders of its stripe each forwarder serves


class Stripes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Each member forwards one of `stripes` parts of the bundles and only receives the others: all share the work."""

    delivery: ClassVar[Delivery] = "tree"
    stripes: Annotated[int, msgspec.Meta(ge=2, le=64)] = 4

    def fan_out_max(self, group: Group) -> int:
        forwarders = self._forwarders(group)
        leaves = max((_leaves_max(len(each), len(group.receivers)) for each in forwarders), default=0)
        return 1 + _FORWARDERS + leaves + max(0, len(forwarders) - 1)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        forwarders = self._forwarders(group)
        count = len(forwarders)
        parts: dict[tuple[int, int, int | None], list[int]] = {}
        for stripe, inner in enumerate(forwarders):
            stood = [each for each in present if _carries(each, count, stripe)]
            for each in spread(_tree(inner, group, stood), group, inner[0]):
                parts.setdefault(each[:3], []).append(stripe)
        return in_order(
            WantedChannel(*ends, Modulo(count, tuple(stripes)) if count > 1 else None)
            for ends, stripes in parts.items()
        )

    def _forwarders(self, group: Group) -> list[list[int]]:
        """The members that forward each stripe, chosen by their labels, about as many for each."""
        count = min(self.stripes, len(group.receivers))
        chosen: list[list[int]] = [[] for _ in range(count)]
        for label in sorted(group.receivers):
            chosen[label % count].append(label)
        while chosen and len(most := max(chosen, key=len)) > 2 * len(fewest := min(chosen, key=len)) + 1:
            fewest.append(most.pop())
        return chosen


def _carries(channel: WantedChannel, count: int, stripe: int) -> bool:
    filter_ = channel.filter
    return isinstance(filter_, Modulo) and filter_.n == count and stripe in filter_.k


def _tree(inner: list[int], group: Group, present: list[WantedChannel]) -> Links:
    """The links of a stripe's tree: its forwarders form a tree, and each of the others is a leaf of it."""
    leaves = [each for each in group.receivers if each not in inner]
    stood = present_tree(inner, present)
    outer = frozenset(leaves)
    tree = shallow(inner, [each for each in stood if outer.isdisjoint(each)], _FORWARDERS)
    links = chain(tree.parents.items(), _leaf_links(inner, leaves, stood))
    return links_of(links, group.receivers)


def _leaf_links(inner: list[int], leaves: list[int], present: Sequence[LabelPair]) -> Iterator[tuple[int, int]]:
    """A link for each leaf: the one that stands, as long as the forwarder has not too many."""
    stood = links_of(present, [*inner, *leaves])
    room = dict.fromkeys(inner, _leaves_max(len(inner), len(inner) + len(leaves)))
    left = list[int]()
    for leaf in leaves:
        kept = next((each for each in stood[leaf] if room.get(each)), None)
        if kept is None:
            left.append(leaf)
        else:
            room[kept] -= 1
            yield leaf, kept
    for leaf in left:
        most = max(inner, key=room.__getitem__)
        room[most] -= 1
        yield leaf, most


def _leaves_max(forwarders: int, receivers: int) -> int:
    """One more leaf for each forwarder than would do, so that not each change moves leaves."""
    return -(-(receivers - forwarders) // forwarders) + 1
