"""Rings of members: each passes bundles on to the next, so that a change of the group changes few channels."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from quillcast.protocol.scopes.filters import Filter
from quillcast.protocol.scopes.policies.links import in_order
from quillcast.protocol.scopes.policy import Group, WantedChannel


def taking_part(group: Group) -> list[int]:
    """Those that send or receive, in the order in which they came; empty if there is nobody to send to."""
    takers = frozenset((*group.senders, *group.receivers))
    return [each for each in group.members if each in takers] if group.senders and group.receivers else []


def shuffled(members: Iterable[int], number: int) -> list[int]:
    """The members in an order drawn from a hash: the same everywhere, and another one for each number."""
    return sorted(members, key=lambda label: (drawn(label, number), label))


def drawn(label: int, number: int) -> int:
    """A number below 2**64."""
    return int.from_bytes(hashlib.blake2b(b"%d,%d" % (number, label), digest_size=8).digest(), "little")


def steps(ring: Sequence[int], group: Group) -> Iterator[tuple[int, int]]:
    """Each member of a ring with the receiver that comes next."""
    receivers = frozenset(group.receivers)
    following = next((each for each in ring if each in receivers), None)
    for each in reversed(ring):
        if following is not None and following != each:
            yield each, following
        if each in receivers:
            following = each


def along(pairs: Mapping[tuple[int, int], Filter | None], group: Group) -> tuple[WantedChannel, ...]:
    """The channels of these pairs: a member passes on what it receives, from any origin, or else its own."""
    receivers = frozenset(group.receivers)
    return in_order(
        WantedChannel(source, target, None if source in receivers else source, filter_)
        for (source, target), filter_ in pairs.items()
    )
