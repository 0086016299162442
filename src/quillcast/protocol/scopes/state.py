"""What a manager keeps on disk: after a crash it is the same manager, with a higher epoch and the same labels."""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import INVITATION_BYTES, KEY_BYTES, Party, Rate
from quillcast.protocol.scopes.config import TopicRule
from quillcast.protocol.scopes.filters import Filter
from quillcast.protocol.scopes.labels import LABEL_MAX
from quillcast.protocol.scopes.membership import Owner
from quillcast.protocol.scopes.messages import (
    ClientRights,
    Role,
    Succession,
    TopicBounds,
)
from quillcast.protocol.scopes.policy import Delivery, ScopePolicy, WantedChannel
from quillcast.protocol.scopes.requests import Asked
from quillcast.protocol.scopes.uses import Doing

SCOPE_LEASE_S = 5.0  # a guess: the time after which peers of the overlay lose a silent neighbour
RING_MAX = 3  # an entry point and two stand-bys (docs/design.md, section 5)
SEATS_MAX = 8  # peers among which topics have their rendezvous points; a guess: a root and its five replicas, and two


AdmissionRefusal = Callable[[Party, Mapping[str, str], str], str]
"""Why a party with these attributes in its certificate, that shows this token of a join line, cannot be a member, in a
sentence; empty if it can."""
MemberRights = Callable[[Party, Mapping[str, str], str, Doing], str]
"""Why a member whose certificate has these attributes may not do this in a topic, in a sentence; empty if it may."""


class LabelsExhausted(LocalError):
    """A scope gave out all labels of its epoch."""


class Entering(NamedTuple):
    """The limit for entering a scope in a topic."""

    filter: Filter | None = None
    """Decides per bundle."""
    bytes_per_s: int = 0
    """0: no limit."""
    bundles_per_s: int = 0
    subscribers_max: int = 0
    """Members that may subscribe; 0: no limit."""
    publishers_max: int = 0
    """Members that may publish; 0: no limit."""


class MayLeave(NamedTuple):
    """The limit for leaving a scope, in a topic or in all together."""

    bytes_per_s: int = 0
    """0: no limit."""
    bundles_per_s: int = 0


class ScopeConfig(NamedTuple):
    """How a scope is managed."""

    policy: Callable[[str], ScopePolicy | None]
    """The forwarding policy of a topic, by its name. None: the scope does not carry it."""
    lease_s: float = SCOPE_LEASE_S
    """A party that is silent for so long is gone; an owner is said to be silent."""
    entry_points: int = 1
    """Members that take bundles into the scope, each a share of them."""
    replicas: int = 1
    """Members to which a channel out of the scope is delegated, each for a share of the bundles."""
    split: bool = False
    """Ask the receiver for subchannels, and delegate them one by one."""
    multicast: bool = False
    """Do senders reach all members at once, where the policy of a topic has an external multicast mechanism?"""
    recovery: Callable[[str], str] = lambda topic: "tree"
    """The recovery protocol of a topic, by its name."""
    entering: Callable[[str], Entering] = lambda topic: Entering()
    """What may enter in a topic, by its name."""
    in_all: Entering = Entering()
    """The rates of all topics together."""
    leaving: Callable[[str], MayLeave] = lambda topic: MayLeave()
    """What may leave in a topic, by its name."""
    out_of_all: MayLeave = MayLeave()
    """What may leave in all topics together."""
    refusal: AdmissionRefusal = lambda party, attributes, token: ""
    """Why a party cannot be a member."""
    rights: MemberRights = lambda party, attributes, topic, doing: ""
    """What members may do in a topic, by its name."""
    attributes: Callable[[Party], Mapping[str, str]] = lambda party: {}
    """What the certificate of the peer says that speaks for a party."""
    members_max: int = 0
    """The most members; 0: no limit. Those that it has already stay, even if they are more."""
    roots: tuple[tuple[str, bool], ...] | None = None
    """Patterns of topics, and whether this is their root scope; the first that fits decides. None: members say it."""
    bounds: tuple[TopicBounds, ...] = ()
    """Where members and clients wait for the manager's word."""
    clients: Callable[[str], ClientRights] = lambda topic: "both"
    """What clients may do in a topic, by its name."""
    clients_max: int = 0
    """The most clients of members; 0: no limit of the scope's file."""


class Member(msgspec.Struct):
    """A member."""

    label: int
    party: Party
    serial: int
    roles: dict[bytes, Role]
    """Its part in each topic, as far as it has a right to it."""
    seats: tuple[Contact, ...] = ()
    """Of a scope: its peers that may be rendezvous points."""
    attributes: dict[str, str] = {}
    """What its certificate said when it registered."""
    refused: dict[bytes, Role] = {}
    """What it registered for with something in it that it has no right to."""

    def register(self, party: Party, serial: int, attributes: Mapping[str, str]) -> None:
        """It registered with this."""
        self.party, self.serial, self.attributes = party, serial, dict(attributes)

    def head(self, topic: bytes) -> Contact | None:
        """The peer that speaks for it in a topic: itself, or the entry point of a scope, if that is known."""
        if not self.party.managed:
            return self.party.contact
        role = self.roles.get(topic)
        return role.head if role is not None else None

    def set_seats(self, seats: tuple[Contact, ...]) -> None:
        """These peers of it may be rendezvous points."""
        self.seats = seats

    def set_roles(self, roles: dict[bytes, Role], refused: dict[bytes, Role]) -> None:
        """It has these roles, and was refused the others."""
        self.roles, self.refused = roles, refused


class Basis(msgspec.Struct, frozen=True):
    """The policy behind present channels, for a manager that returns."""

    policy: str
    """A text that is another one for another policy."""
    delivery: Delivery = "tree"
    mechanism: str = ""


class Change(msgspec.Struct, frozen=True):
    """A change of a topic's channels in progress (`swaps`)."""

    switched: bool
    """Do bundles begin on the new channels? Then these are the old ones; otherwise, these are the new ones."""
    of: Basis
    version: int
    channels: tuple[WantedChannel, ...]


class Topic(msgspec.Struct):
    """How a scope carries a topic. A choice stays as long as it is usable."""

    root: bytes
    name: str = ""
    entries: tuple[int, ...] = ()
    """The entry point, its stand-bys."""
    delegates: tuple[int, ...] = ()
    former_delegates: tuple[int, ...] = ()
    """Delegates that no longer take part. They send out of the scope until others have replaced their channels."""
    exits: tuple[int, ...] = ()
    """The members that send out of the scope."""
    channels: tuple[WantedChannel, ...] = ()
    version: int = 0
    """A bundle that begins its way on them keeps to channels of this version."""
    surplus: tuple[WantedChannel, ...] = ()
    """Those of the channels that the policy wants no more: they stay until no bundle needs them (`swaps`)."""
    links: tuple[tuple[int, int], ...] = ()
    """Who is to be whose child in the topic's tree."""
    records: bool = False
    """Do bundles take channels with records?"""
    of: Basis | None = None
    """The policy that is in force."""
    change: Change | None = None
    publishing: tuple[int, ...] = ()
    """The members that publish where that is bounded, in the order in which they began."""
    subscribing: tuple[int, ...] = ()
    """The same for those that subscribe."""
    bridges: tuple[tuple[int, int], ...] = ()
    """The links, up or down, that carry everything: the policy gives no answer, and its channels do not lead there."""

    def choose(self, entries: tuple[int, ...], delegates: tuple[int, ...], former: tuple[int, ...]) -> None:
        """Make these members its entry points, delegates and former delegates."""
        self.entries, self.delegates, self.former_delegates = entries, delegates, former

    def carry_by(self, channels: tuple[WantedChannel, ...], surplus: tuple[WantedChannel, ...] = ()) -> None:
        """Carry it by these channels, and for a while by the surplus ones, which the policy no longer wants."""
        self.channels, self.surplus = (*channels, *surplus), surplus

    @property
    def wanted(self) -> tuple[WantedChannel, ...]:
        """The channels that the policy wants."""
        return self.channels[: len(self.channels) - len(self.surplus)]

    def leave_by(self, exits: tuple[int, ...]) -> None:
        """These members send it out of the scope."""
        self.exits = exits

    def link(self, links: tuple[tuple[int, int], ...], *, records: bool) -> None:
        """Set the links of its tree, and whether bundles take channels with records."""
        self.links, self.records = links, records

    def bridge(self, links: tuple[tuple[int, int], ...]) -> None:
        """These of its links, up or down, carry everything."""
        self.bridges = links

    def clear(self) -> None:
        """No member carries it any longer."""
        self.entries = self.delegates = self.former_delegates = self.exits = ()
        self.channels = self.surplus = self.links = self.bridges = ()

    def go_by(self, of: Basis | None, change: Change | None) -> None:
        """Set the policy in force, and the change in progress."""
        self.of, self.change = of, change

    def switch(self, version: int, channels: tuple[WantedChannel, ...]) -> tuple[WantedChannel, ...]:
        """Bundles begin on the channels of another version. Returns the former channels."""
        former, self.version = self.channels, version
        self.carry_by(channels)
        return former


class Sender(msgspec.Struct):
    """A party that asked for channels into the scope."""

    party: Party
    serial: int
    topics: tuple[bytes, ...]
    rates: tuple[Rate, ...] = ()
    """The most that it will send."""


class ScopeState(msgspec.Struct):
    """All that a manager must remember of a scope."""

    scope: Party
    owners: dict[bytes, Owner]
    epoch: int = 1
    next_label: int = 1
    members: dict[int, Member] = {}
    ring: tuple[int, ...] = ()
    """The members with a place in the overlay's ring."""
    topics: dict[bytes, Topic] = {}
    senders: dict[bytes, Sender] = {}
    asked: dict[bytes, Asked] = {}
    settings: tuple[TopicRule, ...] = ()
    """The policies that were set while the scope was in use, the latest first."""
    secret: bytes = b""
    """What the keys of multicast groups and of the scope are made of. The manager's host draws it."""
    proofs: dict[bytes, Succession] = {}
    """By scope that is or was a member: where its manager runs."""
    moved_to: Contact | None = None
    """The peer that runs the manager since a later epoch."""
    generation: int = 0
    """Of these keys: members that left do not have the next ones."""

    def key(self, mechanism: str) -> bytes:
        """The key of a multicast group now."""
        assert self.secret, "the manager's host has to draw a secret"
        what = f"quillcast multicast {self.generation} {mechanism}"
        return hashlib.blake2b(what.encode(), key=self.secret, digest_size=KEY_BYTES).digest()

    def invitation(self, member: bytes, *, enters: bool = False, by: bytes = b"") -> bytes:
        """The proof that a member's manager wants an invitation (from outside, if it `enters`). It stays the same.

        A member that is a scope is invited `by` one party, for as long as that has a channel to it.
        """
        what = b"entrance" if enters else b"invitation"
        return hashlib.blake2b(what + member + by, key=self.secret, digest_size=INVITATION_BYTES).digest()

    def set_owners(self, owners: Mapping[bytes, Owner]) -> list[Owner]:
        """Be a member of these scopes, the preferred one first, and of no others. Known owners keep their state.

        Returns the former owners.
        """
        known, self.owners = self.owners, dict(owners)
        for id_, owner in owners.items():
            if id_ in known:
                self.owners[id_] = known[id_]
                known[id_].move(owner.party, owner.token)
        return [owner for id_, owner in known.items() if id_ not in owners]

    def start_at(self, scope: Party | None) -> None:
        """The manager starts again: where it was, or as this party."""
        self.scope = scope or self.scope

    def stay(self) -> None:
        """The manager runs here, and nowhere else."""
        self.moved_to = None

    def move_to(self, contact: Contact, epoch: int) -> None:
        """A peer runs the manager since a later epoch."""
        self.moved_to = contact
        if contact.node_id == self.scope.contact.node_id:
            self.epoch = epoch  # if it is started again with this state, it is obeyed

    def draw_secret(self, secret: bytes) -> None:
        """Derive keys from this, unless the manager had a secret before."""
        self.secret = self.secret or secret

    def change_keys(self) -> None:
        """A member left, and must not get the next keys."""
        self.generation += 1

    def set_policies(self, settings: tuple[TopicRule, ...]) -> None:
        """The operator set these policies."""
        self.settings = settings

    def add_member(self, party: Party) -> Member:
        """A member with a label of its own."""
        label = self.assign_label()
        member = self.members[label] = Member(label, party, 0, {})
        return member

    def remove_member(self, label: int) -> Member:
        """Remove a member, and return it."""
        return self.members.pop(label)

    def keep_proof(self, scope: bytes, proof: Succession) -> None:
        """The manager of a scope that is a member runs there."""
        self.proofs[scope] = proof

    def keep_sender(self, sender: Sender) -> None:
        """A party asked for channels into the scope."""
        self.senders[sender.party.id] = sender

    def forget_sender(self, id_: bytes) -> Sender | None:
        """A sender is gone. Return what it said last, if it said anything."""
        return self.senders.pop(id_, None)

    def assign_label(self) -> int:
        """A label that no member had in this epoch."""
        if self.next_label > LABEL_MAX:
            raise LabelsExhausted(
                f"scope {self.scope.name} gave out all {LABEL_MAX} labels of this epoch; restart its manager, which "
                "begins another epoch"
            )
        self.next_label += 1
        return self.next_label - 1

    def head(self, topic: bytes) -> Contact | None:
        """The peer that is the scope's entry point for a topic, in whatever scope below."""
        kept = self.topics.get(topic)
        member = self.members.get(kept.entries[0]) if kept is not None and kept.entries else None
        return member.head(topic) if member is not None else None

    def exits(self) -> dict[int, None]:
        """The members that send out of the scope, in any topic."""
        return {label: None for topic in self.topics.values() for label in topic.exits}

    def choose_ring(self) -> bool:
        """See that three peers have a place in the ring; those that have one keep it. True if this changed anything."""
        peers = [each.label for each in self.members.values() if not each.party.managed]
        kept = [label for label in self.ring if label in peers]
        chosen = (*kept, *(label for label in peers if label not in kept))[:RING_MAX]
        changed, self.ring = chosen != self.ring, chosen
        return changed

    def seats(self, most: int = SEATS_MAX) -> tuple[Contact, ...]:
        """The peers that may be rendezvous points: the members that came first, then those of scopes among them."""
        members = self.members.values()
        peers = [each.party.contact for each in members if not each.party.managed]
        return tuple(dict.fromkeys([*peers, *(seat for each in members for seat in each.seats)]))[:most]

    def begin_epoch(self) -> None:
        """Be the manager again: labels of members that are gone may be given out again."""
        self.epoch += 1
        self.next_label = max(self.members, default=0) + 1
