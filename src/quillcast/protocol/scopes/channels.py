"""Channels between scopes: what they lead to, which bundles they are for, and how a scope passes them on to members.

A channel is an address, an external multicast mechanism, or subchannels with filters (figures 11 to 13). Its
specification is a tree of filters with addresses at its leaves. The sending side gets it from the manager of the
receiving scope, and asks the managers of scopes within that scope for the details.

A distributed sender cannot send by itself (figure 14). It delegates the channel to a member, replicates it over several
members with modulo-n filters, or delegates the subchannels one by one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from quillcast.core.messages import Contact, Number, WireId
from quillcast.protocol.scopes.filters import NO_BUNDLE, PARTS_MAX, Every, Filter, Modulo, parts
from quillcast.protocol.scopes.labels import DEPTH_MAX, ChannelLabel, Depth, Label
from quillcast.protocol.scopes.records import VERSIONS, Record, forwarded, matches, misroutes

KEY_BYTES = 32  # of a multicast group
INVITATION_BYTES = 8  # too long to be guessed over the network


class Party(msgspec.Struct, frozen=True, array_like=True):
    """A participant in the control interface: a peer, or a scope, which is reached through its manager's peer."""

    id: WireId
    contact: Contact
    managed: bool = False
    """Is it a scope?"""
    name: str = ""


# ---- specifications: what a channel leads to


class Address(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A peer."""

    peer: Contact
    invitation: Annotated[bytes, Meta(max_length=INVITATION_BYTES)] = b""
    """It shows the peer that its scope's manager wants it to be a child of the peer that sends this."""


class Multicast(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """An external multicast mechanism, such as an IP multicast address: it reaches all members at once."""

    mechanism: str
    key: Annotated[bytes, Meta(max_length=KEY_BYTES)] = b""
    """The key of the group, for senders that are no members of it."""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A scope whose manager knows the details."""

    scope: Party
    invitation: Annotated[bytes, Meta(max_length=INVITATION_BYTES)] = b""
    """It shows that manager that an owner of its scope wants the party that asks to send there."""


class Rate(msgspec.Struct, frozen=True, array_like=True):
    """The most that may enter or leave a scope over all channels of one sender that name this rate."""

    scope: WireId
    topic: WireId | None = None
    """The topic that it is for; None: all together."""
    bytes_per_s: Number = 0
    """0: no limit."""
    bundles_per_s: Number = 0
    leaves: bool = False
    """Is it for what leaves the scope, rather than for what enters it?"""

    @property
    def limits(self) -> bool:
        """Does it limit anything?"""
        return bool(self.bytes_per_s or self.bundles_per_s)

    def share(self, n: int) -> "Rate":
        """The rate of each of n senders."""
        bytes_, bundles = (most and max(1, most // n) for most in (self.bytes_per_s, self.bundles_per_s))
        return Rate(self.scope, self.topic, bytes_, bundles, self.leaves)


class Subchannel(msgspec.Struct, frozen=True, array_like=True):
    """One of several entrances of a scope: the member that it enters through, and which bundles take it."""

    label: Label
    spec: "Spec"
    filter: Filter | None = None
    rates: tuple[Rate, ...] = ()
    """What the sender has to keep to."""


class Subchannels(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The entrances of a scope. Their filters together decide, per bundle, which of them it takes."""

    parts: tuple[Subchannel, ...] = ()

    @property
    def at_once(self) -> bool:
        """Do all bundles take each part, because one of them reaches all members?"""
        return any(isinstance(each.spec, Multicast) for each in self.parts)

    def shared(self, n: int, beside: int = 0) -> "Subchannels":
        """The same for n senders that divide the parts, or else the bundles, at their shares of the rates.

        Those `beside` them send over all parts.
        """
        n = max(1, (n if self.at_once else min(n, len(self.parts))) + beside)
        replace = msgspec.structs.replace
        return Subchannels(tuple(replace(each, rates=tuple(r.share(n) for r in each.rates)) for each in self.parts))


Spec: TypeAlias = Address | Multicast | Ask | Subchannels
SpecOf: TypeAlias = Callable[[Ask, bytes], Spec | None]
"""What the manager of a scope answered for a topic; None: nothing yet."""


def to_party(party: Party, invitation: bytes = b"") -> Spec:
    """The specification of a channel to a peer. A scope's manager gives that of the scope's channels."""
    return Ask(party, invitation) if party.managed else Address(party.contact, invitation)


# ---- channels


class Constraint(NamedTuple):
    """The bundles that a channel is for (T:R in the paper), and the depth of its two ends in that topic."""

    topic: WireId
    depth: Depth
    origin: Label | None
    """The member at which the bundle locally originated; None: any."""
    beside: bool = False
    """Does it lead past the topic's tree? Otherwise, it is a link of the tree, too."""
    version: Annotated[int, Meta(ge=0, le=VERSIONS - 1)] = 0
    """Of the policy that wants it: bundles on their way keep to channels of one version."""
    begins: bool = True
    """Do bundles begin their way on it? Not yet, or no more, while the policy changes (`swaps`)."""
    rates: tuple[Rate, ...] = ()
    """What the peer at its source has to keep to."""


class ChannelOrder(msgspec.Struct, frozen=True, array_like=True):
    """Keep a channel: a scope's order to the member at its source.

    `label` is complete as far as it has been delegated and specified. Graphs of several topics are superimposed: there
    is one channel for all topics that have label, specification and filter in common (figure 10).
    """

    label: ChannelLabel
    spec: Spec
    constraints: tuple[Constraint, ...]
    filter: Filter | None = None

    def route(self, topic: bytes, record: Record) -> Record | None:
        """The record of a bundle that takes this channel; None: it is not for this channel."""
        for each in self.constraints:
            if each.topic == topic and matches(
                record, self.label, each.depth, each.origin, each.version, begins=each.begins
            ):
                return forwarded(record, self.label, each.depth, each.version)
        return None

    def misroutes(self, topic: bytes, record: Record) -> bool:
        """Is a bundle that should be at this channel's source elsewhere, according to its record?"""
        return any(each.topic == topic and misroutes(record, self.label, each.depth) for each in self.constraints)


def both(first: Filter | None, second: Filter | None) -> Filter | None:
    """The bundles that pass two filters: none if they are too many together, as a faulty manager may have them."""
    if first is None or second is None:
        return first or second
    return Every((first, second)) if parts(first) + parts(second) < PARTS_MAX else NO_BUNDLE


def superimposed(orders: Iterable[ChannelOrder]) -> tuple[ChannelOrder, ...]:
    """One channel for all that differ only in their constraints, in order of appearance."""
    merged = dict[tuple[ChannelLabel, Spec, Filter | None], dict[Constraint, None]]()
    for order in orders:
        merged.setdefault((order.label, order.spec, order.filter), {}).update(dict.fromkeys(order.constraints))
    return tuple(
        ChannelOrder(label, spec, tuple(constraints), filter_) for (label, spec, filter_), constraints in merged.items()
    )


def for_topic(order: ChannelOrder, topic: bytes) -> ChannelOrder:
    """The part of a channel that concerns one topic."""
    return msgspec.structs.replace(order, constraints=tuple(each for each in order.constraints if each.topic == topic))


# ---- how a distributed scope passes a channel on (figure 14)


def delegated(order: ChannelOrder, member: int) -> ChannelOrder:
    """The channel, kept by a member on behalf of its scope: P-Q becomes P:B-Q."""
    label = ChannelLabel((*order.label.source, member), order.label.target)
    return msgspec.structs.replace(order, label=label)


def replicated(order: ChannelOrder, members: Sequence[int]) -> Iterator[tuple[int, ChannelOrder]]:
    """The channel at each of n members, with filters that let each n-th bundle pass; at a single one, without.

    That of the first one is a link of the topic's tree, if the channel is; the others are beside it.
    """
    n = len(members)
    for k, member in enumerate(members):
        share = Modulo(n, (k,)) if n > 1 else None
        part = aside(delegated(order, member)) if k else delegated(order, member)
        yield member, msgspec.structs.replace(part, filter=both(order.filter, share))


def one_of(n: int, order: ChannelOrder, rates: tuple[Rate, ...]) -> ChannelOrder:
    """The channel, as one of n members keeps it: at its share of the channel's rates, and at these."""
    shares = [each._replace(rates=(*(rate.share(n) for rate in each.rates), *rates)) for each in order.constraints]
    return msgspec.structs.replace(order, constraints=tuple(shares))


def aside(order: ChannelOrder) -> ChannelOrder:
    """The channel beside the topic's tree."""
    return msgspec.structs.replace(order, constraints=tuple(each._replace(beside=True) for each in order.constraints))


def leaves(order: ChannelOrder, answers: SpecOf) -> Iterator[ChannelOrder]:
    """The subchannels of a channel for one topic as far as they are known, down to addresses or scopes to be asked.

    Subchannels that lead deeper than a record goes are yielded as they are, so that a caller can bound the search.
    """
    topic, depth, *_ = order.constraints[0]
    match order.spec:
        case Ask() as ask:
            spec = answers(ask, topic)
            if spec is None or isinstance(spec, Ask):
                yield order
            else:
                yield from leaves(msgspec.structs.replace(order, spec=spec), answers)
        case Subchannels() if depth + len(order.label.target) > DEPTH_MAX:
            yield order
        case Subchannels(entrances):
            for at, part in enumerate(entrances):
                yield from leaves(entered(order, part, beside=at > 0), answers)
        case Address() | Multicast():
            yield order


def entered(order: ChannelOrder, part: Subchannel, *, beside: bool = False) -> ChannelOrder:
    """One of the subchannels of a channel; `beside`: it is no link of the topic's tree."""
    label = ChannelLabel(order.label.source, (*order.label.target, part.label))
    constraints = tuple(each._replace(rates=each.rates + part.rates) for each in order.constraints)
    entering = ChannelOrder(label, part.spec, constraints, both(order.filter, part.filter))
    return aside(entering) if beside else entering
