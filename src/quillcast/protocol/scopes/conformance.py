"""What a forwarding policy must do, checked: for the built-in ones, and for those of other packages.

`check` has a policy decide for groups that result from many histories of joins, leaves and changed roles, small ones
first. It follows bundles over the channels that the policy wants, and raises `Nonconforming` for the first broken rule:

- no channel leads to or from a non-member, or from a member to itself, or begins for a non-member's bundles;
- only a policy that names a multicast mechanism has channels to all receivers at once;
- there is one channel at most for each source, target and origin;
- no member has more channels for one origin than `fan_out_max` says;
- bundles reach all receivers, as the class of the policy says (`Delivery`);
- the answer is the same when asked again, also by another instance, whatever the order of the present channels;
- once its channels are installed, the policy wants no others until the group changes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, pairwise
from math import lcm
from random import Random
from typing import NamedTuple, get_args

from quillcast.core.envelope import DOWN, Envelope
from quillcast.core.errors import LocalError, Malformed
from quillcast.core.multicast import parse
from quillcast.protocol.scopes.filters import Customs, Either, EnvelopeFilter, Every, Except, Filter, Modulo, compiled
from quillcast.protocol.scopes.policy import (
    ALL,
    Delivery,
    Group,
    RoundTrips,
    ScopePolicy,
    WantedChannel,
    mechanism_of,
)

SIZES = (1, 2, 3, 4, 6, 9, 14, 30)
"""The largest group of each kind of history."""
_HISTORIES = 4  # of each size
_STEPS = 20  # of each history
_SERIALS_MAX = 16  # bundles that are followed from each sender
_TOPIC = bytes(16)


class Nonconforming(LocalError):
    """A policy broke a rule; the text says which one, and in which group."""


class Conformance(NamedTuple):
    """What `check` saw of a policy that keeps the rules."""

    delivery: Delivery
    groups: int
    fan_out: int
    """The most channels of one member for one origin."""
    channels: int
    """How many it wanted, over all groups."""
    changed: int
    """How many it installed or removed, over all changes of one member."""


class _Checked(NamedTuple):
    """A group of a history, and its round trips."""

    group: Group
    round_trips: RoundTrips
    small_change: bool
    """Does it differ from the one before in one member at most?"""
    swapped: bool
    """Do the channels of another policy stand, a chain?"""


def check(
    policy: ScopePolicy,
    twin: ScopePolicy | None = None,
    *,
    customs: Customs | None = None,
    sizes: Iterable[int] = SIZES,
) -> Conformance:
    """Check a policy, as the module says. Raises `Nonconforming`.

    Args:
        policy: the policy, with its parameters.
        twin: another instance, which has to give the same answers; best from another process.
        customs: the filters of other packages that the policy uses.
        sizes: the largest group of each kind of history.
    """
    if policy.delivery not in get_args(Delivery):
        raise Nonconforming(f"delivery is {policy.delivery!r}; choose one of {', '.join(get_args(Delivery))}")
    report = Conformance(policy.delivery, 0, 0, 0, 0)
    for size in sizes:
        for number in range(_HISTORIES):
            present: tuple[WantedChannel, ...] = ()
            for step in _history(Random(f"{size} {number}"), size):
                if step.swapped:
                    present = tuple(WantedChannel(*pair, None) for pair in pairwise(step.group.members))
                try:
                    wanted = _ask(policy, twin, step, present)
                    _check_delivery(policy.delivery, step.group, wanted, customs or {})
                except Nonconforming as broken:
                    raise Nonconforming(f"{broken} ({_told(step.group)})") from None
                changes = len(set(wanted) ^ set(present)) if step.small_change else 0
                report = Conformance(
                    policy.delivery,
                    report.groups + 1,
                    max(report.fan_out, fan_out(wanted)),
                    report.channels + len(wanted),
                    report.changed + changes,
                )
                present = wanted
    return report


def check_channels(group: Group, channels: Iterable[WantedChannel], fan_out_max: int, mechanism: str = "") -> None:
    """Check an answer for what can be seen without following bundles. Raises `Nonconforming`."""
    members = frozenset(group.members)
    known = set[tuple[int, int, int | None]]()
    used = _FanOut()
    for channel in channels:
        source, target, origin, _ = channel
        if target == ALL:
            check_mechanism(mechanism)
        to = source if target == ALL else target
        if outsider := {source, to, source if origin is None else origin} - members:
            raise Nonconforming(f"{_named(channel)} names {min(outsider)}, which is not a member")
        if source == target:
            raise Nonconforming(f"{_named(channel)} leads from a member to itself")
        if channel[:3] in known:
            raise Nonconforming(f"{_named(channel)} is wanted twice; combine the filters")
        known.add(channel[:3])
        if (count := used.add(source, origin)) > fan_out_max:
            raise Nonconforming(
                f"{_named(channel)} is number {count} of its source for one origin; fan_out_max says {fan_out_max}"
            )


def check_mechanism(mechanism: str) -> None:
    """Check what a policy names as its multicast mechanism. Raises `Nonconforming`."""
    try:
        parse(mechanism)
    except Malformed as wrong:
        raise Nonconforming(f"it has a channel to all at once, but {wrong}") from None


def fan_out(channels: Iterable[WantedChannel]) -> int:
    """The most channels of one member for one origin."""
    used = _FanOut()
    return max((used.add(each.source, each.origin) for each in channels), default=0)


class _FanOut:
    """Counts the channels of members for each origin, whatever their order."""

    def __init__(self) -> None:
        self._any = Counter[int]()
        self._own = Counter[tuple[int, int]]()
        self._own_most = Counter[int]()

    def add(self, source: int, origin: int | None) -> int:
        """Count a channel; returns the most that its source has for one origin now."""
        if origin is None:
            self._any[source] += 1
        else:
            self._own[source, origin] += 1
            self._own_most[source] = max(self._own_most[source], self._own[source, origin])
        return self._any[source] + self._own_most[source]


def _ask(
    policy: ScopePolicy, twin: ScopePolicy | None, step: _Checked, present: tuple[WantedChannel, ...]
) -> tuple[WantedChannel, ...]:
    """The answer for a group, if it is the same whenever it should be."""
    group, round_trips = step[:2]
    wanted = policy.channels(group, present, round_trips)
    _check_kind(wanted)
    check_channels(group, wanted, policy.fan_out_max(group), mechanism_of(policy))
    again = Group(*((*labels,) for labels in group)), tuple([each._replace() for each in present])
    for other in (policy, twin or policy):
        if other.channels(*again, round_trips) != wanted:
            raise Nonconforming("it gives another answer when asked again")
    if policy.channels(group, present[::-1], round_trips) != wanted:
        raise Nonconforming("it gives another answer when the same channels exist in another order")
    if policy.channels(group, wanted, round_trips) != wanted:
        raise Nonconforming("it wants other channels once its channels exist, although nothing else changed")
    return wanted


def _check_kind(wanted: object) -> None:
    if not isinstance(wanted, tuple) or not all(isinstance(each, WantedChannel) for each in wanted):
        raise Nonconforming("it does not answer with a tuple of WantedChannel")


def _check_delivery(delivery: Delivery, group: Group, channels: tuple[WantedChannel, ...], customs: Customs) -> None:
    """Follow bundles from each sender to all receivers. Raises `Nonconforming`."""
    decide = {each: compiled(each, customs) for each in dict.fromkeys(each.filter for each in channels) if each}
    serials = range(min(_SERIALS_MAX, lcm(*(n for each in decide for n in _moduli(each)))) if decide else 1)
    outgoing: dict[int, list[WantedChannel]] = {}
    for channel in channels:
        outgoing.setdefault(channel.source, []).append(channel)
    for origin in group.senders:
        copies = [_copies(group, outgoing, decide, origin, serial) for serial in serials]
        for receiver in group.receivers:
            counts = [each[receiver] for each in copies]
            if receiver != origin and (broken := _broken(delivery, counts)):
                raise Nonconforming(f"member {receiver} gets {broken} of {origin}")
        if delivery == "tree" and (again := max(max(each.values(), default=0) for each in copies)) > 1:
            raise Nonconforming(f"a member gets {again} copies of a bundle of {origin}")
        if delivery == "tree" and any(each[origin] for each in copies):
            raise Nonconforming(f"a bundle of {origin} comes back to it")


def _broken(delivery: Delivery, counts: list[int]) -> str:
    """What is wrong with what a receiver gets from a sender; empty if nothing is. `counts`: copies of each bundle."""
    if delivery == "lossy":
        return "" if any(counts) else f"none of {len(counts)} bundles"
    return "" if all(counts) else "no copy of a bundle"


def _copies(
    group: Group,
    outgoing: Mapping[int, list[WantedChannel]],
    decide: Mapping[Filter, EnvelopeFilter],
    origin: int,
    serial: int,
) -> Counter[int]:
    """How many copies of a bundle each member gets. Members pass on the first one."""
    copies = Counter[int]()
    around = [(origin, Envelope(_TOPIC, DOWN, serial=serial))]
    for at, envelope in around:
        for _, target, wanted, filter_ in outgoing.get(at, ()):
            if wanted not in (None, origin):
                continue
            entering = envelope if filter_ is None else decide[filter_](envelope)
            if entering is None:
                continue
            for reached in _reached(group, at, target):
                copies[reached] += 1
                if copies[reached] == 1 and reached != origin:
                    around.append((reached, entering))
    return copies


def _reached(group: Group, source: int, target: int) -> tuple[int, ...]:
    return tuple(each for each in group.receivers if each != source) if target == ALL else (target,)


def _moduli(filter_: Filter) -> Iterator[int]:
    match filter_:
        case Modulo(n):
            yield n
        case Every(filters) | Either(filters):
            for each in filters:
                yield from _moduli(each)
        case Except(inner):
            yield from _moduli(inner)
        case _:
            yield _SERIALS_MAX


def _history(dice: Random, size_max: int) -> Iterator[_Checked]:
    """Groups that each result from the one before, mostly by small changes."""
    labels = iter(dice.sample(range(1, 10 * size_max * _STEPS), 9 * size_max * _STEPS))
    members: dict[int, str] = {}
    near = dice.random()
    for _ in range(size_max + _STEPS):
        small = dice.random() < 0.9
        if small:
            _change(dice, members, labels, size_max)
        else:  # many at once: most are replaced, and round trips differ
            near = dice.random()
            members = {label: role for label, role in members.items() if dice.random() < 0.2}
            for label in islice(labels, dice.randint(0, size_max - len(members))):
                members[label] = dice.choice(_ROLES)
        yield _Checked(_group(members), _round_trips(near), small, not small and dice.random() < 0.5)


_ROLES = ("sr", "r", "r", "s", "")


def _change(dice: Random, members: dict[int, str], labels: Iterator[int], size_max: int) -> None:
    """One member comes, leaves, or changes what it does."""
    chosen = dice.choice(list(members)) if members else None
    what = dice.random()
    if chosen is None or (what < 0.5 and len(members) < size_max):
        members[next(labels)] = dice.choice(_ROLES)
    elif what < 0.75:
        del members[chosen]
    else:
        members[chosen] = dice.choice(_ROLES)


def _group(members: Mapping[int, str]) -> Group:
    def doing(role: str) -> tuple[int, ...]:
        return tuple(label for label, roles in members.items() if role in roles)

    return Group(tuple(members), doing("s"), doing("r"))


def _round_trips(near: float) -> RoundTrips:
    def round_trip(one: int, other: int) -> float | None:
        drawn = (one * other * 2_654_435_761 + (one + other) * 40_503 + int(near * 65_536)) % 65_521 / 65_521
        return None if drawn < 0.1 else drawn * 0.3

    return round_trip


def _named(channel: WantedChannel) -> str:
    origin = "any member" if channel.origin is None else channel.origin
    target = "all" if channel.target == ALL else channel.target
    return f"the channel from {channel.source} to {target} for bundles of {origin}"


def _told(group: Group) -> str:
    """A group, as text."""
    return "; ".join(f"{what} {', '.join(map(str, labels)) or '-'}" for what, labels in group._asdict().items())
