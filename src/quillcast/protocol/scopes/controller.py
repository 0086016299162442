"""The local controller: a peer's side of the control interface (figures 20 and 21).

A peer is a scope of one node. It registers with its owners, asks receivers for the channels that owners order, and
answers with the channels that its host should install. A bundle's record alone decides which of them it takes
(`crossing`); no manager is on its path.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import (
    Address,
    Ask,
    ChannelOrder,
    Constraint,
    Multicast,
    Party,
    Spec,
    leaves,
    superimposed,
)
from quillcast.protocol.scopes.effects import Install, Measure, Remove, ScopeEffect, Send
from quillcast.protocol.scopes.labels import ChannelLabel, MalformedRecord
from quillcast.protocol.scopes.membership import ScopeMembership, owners_of
from quillcast.protocol.scopes.messages import (
    ChannelAnswer,
    ControlMessage,
    Heard,
    Measured,
    MeasureRoundTrips,
    Orders,
    OuterParent,
    RegistrationRefused,
    Role,
)
from quillcast.protocol.scopes.records import Record, decode
from quillcast.protocol.scopes.requests import ChannelWish, Requests

GROUPS_MAX = 64  # multicast groups of other scopes that a peer sends to; a guess: each takes two sockets
LEAVES_MAX = 1024  # addresses that one ordered channel leads to; a guess that bounds what a faulty manager costs


class LocalController:
    """The channels of one peer, as the managers of its scopes order them."""

    def __init__(
        self, me: Party, owners: Iterable[Party], lease_s: float,
        tokens: Mapping[bytes, str] = MappingProxyType({}), before: Mapping[bytes, Orders] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """`tokens` of owners' join lines, and what owners ordered `before` a restart, are by the ids of the owners."""
        self.me = me
        self.membership = ScopeMembership(me, owners_of(owners, tokens, before), lease_s)
        self.requests = Requests(me, {})
        self.channels: tuple[ChannelOrder, ...] = ()
        self.measuring: dict[bytes, dict[tuple[bytes, bytes], Party]] = {}
        """By peer to which the round trip is measured: the owners who want to know, and for which party there."""
        self.misrouted = 0
        self.malformed = 0
        self.groups_refused = 0  # multicast groups of other scopes beyond `GROUPS_MAX`
        self.channels_cut = 0  # ordered channels that lead to more than `LEAVES_MAX` addresses in a topic

    # ---- inputs

    def begin(self, now: float) -> list[ScopeEffect]:
        """Register with the owners."""
        self.membership.begin(now)
        return self._settle()

    def found(self, party: Party) -> list[ScopeEffect]:
        """The manager of an owner runs at this peer."""
        self.membership.found(party)
        return self._settle()

    def take_part(self, *roles: Role) -> list[ScopeEffect]:
        """Publish or subscribe; with neither, stop taking part in the topic."""
        for role in roles:
            self.membership.set_role(role.topic, role if role.takes_part else None)
        return self._settle()

    def received(self, message: ControlMessage, now: float) -> list[ScopeEffect]:
        """A message of an owner or receiver."""
        match message:
            case Orders():
                self.membership.ordered(message, now)
                if any(assignment.records for assignment in message.assignments):
                    return [*self._settle(), *self.membership.acknowledge(message.owner.id)]
            case Heard():
                self.membership.heard(message, now)
            case RegistrationRefused():
                self.membership.refused(message, now)
            case ChannelAnswer():
                self.requests.answered(message)
            case MeasureRoundTrips():
                return self._measure(message)
        return self._settle()

    def measured(self, peer: bytes, seconds: float | None) -> list[ScopeEffect]:
        """The round trip to a peer was measured: tell the owners that asked. None: it cannot be reached."""
        asking = self.measuring.pop(peer, {})
        if seconds is None:
            return []
        return [Send(owner, Measured(id_, self.me.id, to, seconds)) for (id_, to), owner in asking.items()]

    def outer_parent(self, topic: bytes, parent: Contact) -> list[ScopeEffect]:
        """This peer is its scope's entry point for a topic, and has this parent outside."""
        owner = self.membership.ordering(topic)
        return [Send(owner, OuterParent(owner.id, self.me.id, topic, parent))] if owner is not None else []

    def passed(self, now: float, *, behind: bool = False) -> list[ScopeEffect]:
        """Time passed: send keep-alives. Call it several times per lease.

        `behind`: this peer misses bundles that it knew of at the last call, in topics whose channels change.
        """
        self.membership.passed(now)
        self.requests.beat()
        return [*self.membership.beat(behind=behind), *self._settle()]

    def leave(self) -> list[ScopeEffect]:
        """Leave all owners and channels."""
        effects: list[ScopeEffect] = [*self.membership.leave(), *self.requests.want({}), *map(Remove, self.channels)]
        self.channels = ()
        return effects

    def _measure(self, message: MeasureRoundTrips) -> list[ScopeEffect]:
        owner = self.membership.owners.get(message.owner)
        if owner is None:
            return []
        for party in message.to:
            self.measuring.setdefault(party.contact.node_id, {})[message.owner, party.id] = owner.party
        return [Measure(party) for party in message.to]

    # ---- channels

    def _settle(self) -> list[ScopeEffect]:
        wanted = dict[Party, ChannelWish]()
        self.channels_cut = 0
        channels = superimposed(self._without_excess(self._resolved(wanted)))
        effects: list[ScopeEffect] = [*self.requests.want(wanted), *self.requests.settle(), *self.membership.settle()]
        before, after = _by_name(self.channels), _by_name(channels)
        effects += [Install(channel) for name, channel in after.items() if before.get(name) != channel]
        effects += [Remove(channel) for name, channel in before.items() if name not in after]
        self.channels = channels
        return effects

    def _resolved(self, wanted: dict[Party, ChannelWish]) -> Iterator[ChannelOrder]:
        """The ordered channels down to addresses; `wanted` collects which scopes to ask for that, and at which rates.

        These are the order's rates, those of the sending side. The rates of the receiving side come with answers.
        """

        def answers(constraint: Constraint, ask: Ask, topic: bytes) -> Spec | None:
            wanted.setdefault(ask.scope, ChannelWish({}, {}, {})).add(topic, constraint.rates, ask.invitation)
            return self.requests.spec(ask, topic)

        for order in self.membership.channels():
            for constraint in order.constraints:
                concerned = ChannelOrder(order.label, order.spec, (constraint,), order.filter)
                found = leaves(concerned, partial(answers, constraint))
                yield from (leaf for leaf in islice(found, LEAVES_MAX) if isinstance(leaf.spec, Address | Multicast))
                self.channels_cut += next(found, None) is not None

    def _without_excess(self, orders: Iterable[ChannelOrder]) -> Iterator[ChannelOrder]:
        """Leave out multicast groups that other scopes name beyond the bound, as if their datagrams were lost."""
        groups, refused = dict[str, None](), dict[str, None]()
        for order in orders:
            match order.spec:
                case Multicast(mechanism, key) if key and mechanism not in groups and len(groups) == GROUPS_MAX:
                    refused[mechanism] = None
                    continue
                case Multicast(mechanism, key) if key:
                    groups[mechanism] = None
            yield order
        self.groups_refused = len(refused)

    # ---- bundles

    def read(self, data: bytes) -> Record | None:
        """The record of a bundle. None: it is malformed. Then the bundle is to be dropped, and is counted."""
        try:
            return decode(data)
        except MalformedRecord:
            self.malformed += 1
            return None

    def admits(self, topic: bytes, record: Record) -> bool:
        """Is it the record of a bundle that should be here? If not, the bundle is to be dropped, and is counted."""
        is_misrouted = self._names_another(topic, record)
        self.misrouted += is_misrouted
        return not is_misrouted

    def _names_another(self, topic: bytes, record: Record) -> bool:
        """Is the bundle elsewhere by its record: at another member of a scope of this peer, or of one above?

        The peer knows its own labels, and those of the scopes around it where channels begin here.
        """
        places = self.membership.places(topic) if record.pairs else []
        pairs = ((record.at(depth), label) for depth, label in places)
        if places and all(pair is None or pair.current != label for pair, label in pairs):
            return True
        return any(channel.misroutes(topic, record) for channel in self.channels)


OrderKey = tuple[ChannelLabel, Spec, object]


def _by_name(channels: Iterable[ChannelOrder]) -> dict[OrderKey, ChannelOrder]:
    return {(channel.label, channel.spec, channel.filter): channel for channel in channels}
