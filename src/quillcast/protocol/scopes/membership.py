"""A party as a member, or client, of its owners: what it registers, and what they order.

A peer and a scope register alike. For each topic a party registers with one owner, the first that is the topic's root
scope or lies below it. While an owner is silent, its channels stay. Topics that it has not answered wait, and
say for which manager.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from quillcast.core.messages import Contact
from quillcast.protocol.scopes import succession
from quillcast.protocol.scopes.channels import ChannelOrder, Party, for_topic
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.hierarchy import OVERLAY, NoWayToRoot, ScopeCycle
from quillcast.protocol.scopes.messages import (
    Alive,
    Assignment,
    Bounds,
    Carrier,
    Circle,
    Deregistration,
    Heard,
    Orders,
    Registration,
    RegistrationRefused,
    Role,
    RootScope,
    Succession,
    does,
)
from quillcast.protocol.scopes.uses import Doing


class Owner(msgspec.Struct):
    """An owner, as its member knows it."""

    party: Party
    serial: int = 1
    asked: int = 1
    """The serial under which the roles are what they are now, but for their heads."""
    roles: dict[bytes, Role] = {}
    orders: Orders | None = None
    circles: dict[bytes, tuple[Circle, ...]] = {}
    """By topic: the recovery domains that its orders name, its own first and then those around."""
    refused: str = ""
    unmanaged: str = ""
    """That its manager does not run where it was asked, or not yet: this party waits all the same."""
    token: str = ""
    """Of a join line of the scope, to be shown."""
    proof: Succession | None = None
    """Where its manager runs."""
    remembered: Orders | None = None
    """What it ordered before this party was started again (`remembered`)."""

    @property
    def is_found(self) -> bool:
        """Is it known which peer runs its manager? Otherwise its contact is an address at most."""
        return bool(self.party.contact.node_id)

    @property
    def has_answered(self) -> bool:
        """Did it order anything since this party was started?"""
        return self.orders is not None and self.orders is not self.remembered

    def remember(self, orders: Orders) -> None:
        """This is what it ordered before."""
        self.remembered, self.proof = orders, orders.succession

    def find(self, party: Party) -> None:
        """Its manager runs there, says the address that was given. What another peer ordered before counts no more."""
        if self.remembered is not None and self.remembered.owner.contact.node_id != party.contact.node_id:
            self.remembered = self.orders = self.proof = None
        self.party, self.unmanaged = party, ""

    def recall(self) -> None:
        """It is silent: go by what it ordered before."""
        if self.orders is None and self.remembered is not None:
            self.party = self.party if self.is_found else self.remembered.owner
            self.orders, self.unmanaged = self.remembered, ""

    def move(self, party: Party, token: str) -> None:
        """It is there now, and is shown this token."""
        self.party, self.token = party, token

    def prove(self, party: Party, proof: Succession | None) -> None:
        """It is there now, as this shows."""
        self.party, self.proof = party, proof

    @property
    def stamp(self) -> tuple[int, int]:
        """The epoch and number of its orders."""
        return (self.orders.epoch, self.orders.number) if self.orders is not None else (0, 0)

    def assignment(self, topic: bytes) -> Assignment | None:
        """Its member's assignment in a topic, unless it waits itself and does not know for what."""
        answers = self.orders.assignments if self.orders is not None else ()
        return next((each for each in answers if each.topic == topic and (each.depth is not None or each.why)), None)

    def leads_to(self, root: bytes) -> bool:
        """Is it the root scope, or below it?"""
        return root in (self.party.id, OVERLAY) or (self.orders is not None and root in self.orders.above)


class ScopeMembership:
    """One party and its owners, in the order in which it prefers them."""

    def __init__(self, me: Party, owners: dict[bytes, Owner], lease_s: float) -> None:
        self.me, self.owners, self.lease_s = me, owners, lease_s
        self.proof: Succession | None = None  # of a scope: the proof that its manager runs here
        self.roles = {topic: role for owner in owners.values() for topic, role in owner.roles.items()}
        self.heard_at: dict[bytes, float] = {}
        self.silent: dict[bytes, None] = {}
        self.unregistered: dict[bytes, None] = {}  # owners that must be told of the roles
        self.doubted: dict[bytes, None] = {}  # owners that may have given other orders since: there was silence
        self.seats: tuple[Contact, ...] = ()  # of this party, as a scope

    def begin(self, now: float) -> None:
        """Register with all owners."""
        self.heard_at = dict.fromkeys(self.owners, now)
        self.unregistered = dict.fromkeys(self.owners)

    def returned(self) -> None:
        """This party was silent for a lease: owners may have given its place to others. Ask them with a new number."""
        for id_ in self.owners:
            self._doubt(id_)

    def _doubt(self, id_: bytes) -> None:
        self.owners[id_].serial += 1
        self.unregistered[id_] = self.doubted[id_] = None

    def doubtful(self) -> dict[bytes, None]:
        """The topics in which orders may be old."""
        doubted = [owner for owner in map(self.owners.__getitem__, self.doubted) if not owner.refused]
        told = [(owner, each.topic) for owner in doubted if owner.orders for each in owner.orders.assignments]
        return {topic: None for owner, topic in told if self._orders_in(owner, topic)}

    def prove(self, proof: Succession | None) -> None:
        """Keep the proof that the manager of this scope runs here."""
        self.proof = proof

    def found(self, party: Party) -> None:
        """The manager of an owner runs at this peer: register there."""
        owner = self.owners[party.id]
        if not owner.has_answered:
            owner.find(party)
            self.unregistered[party.id] = None

    def not_found(self, id_: bytes, why: str, *, for_good: bool = False) -> None:
        """The manager of an owner was not found, for this reason; `for_good`: it will not be."""
        owner = self.owners[id_]
        if owner.orders is None:
            why = f"scope {owner.party.name}: {why}"
            owner.refused, owner.unmanaged = (why, "") if for_good else ("", why)

    def set_role(self, topic: bytes, role: Role | None) -> None:
        """Take this part in a topic from now on; None: take no part."""
        if role is None:
            self.roles.pop(topic, None)
        else:
            self.roles[topic] = role
        self._assign(topic)

    def offer(self, seats: tuple[Contact, ...]) -> None:
        """These peers of this scope may be rendezvous points of topics that are rooted above it."""
        if seats != self.seats:
            self.seats = seats
            for id_, owner in self.owners.items():
                owner.serial += 1
                self.unregistered[id_] = None

    def _assign(self, topic: bytes) -> None:
        role, chosen = self.roles.get(topic), self._owner(topic)
        for id_, owner in self.owners.items():
            wanted = role if owner is chosen else None
            if owner.roles.get(topic) != wanted:
                former = owner.roles.get(topic)
                owner.roles = {**owner.roles, topic: wanted} if wanted else _without(owner.roles, topic)
                owner.serial += 1
                if _headless(former) != _headless(wanted):
                    owner.asked = owner.serial
                self.unregistered[id_] = None

    def _owner(self, topic: bytes) -> Owner | None:
        """The owner with which it registers for a topic."""
        role = self.roles.get(topic)
        leading = (owner for owner in self.owners.values() if role is not None and owner.leads_to(role.root))
        return next((owner for owner in leading if not owner.refused), None)

    def is_top(self, topic: bytes) -> bool:
        """Does it take part in the topic in the overlay itself, because no scope is above it?"""
        role = self.roles.get(topic)
        return role is not None and role.root == OVERLAY and not self.owners

    def assignment(self, topic: bytes) -> Assignment:
        """This party's place in a topic, or what it waits for."""
        if self.is_top(topic):
            return Assignment(topic, depth=1, ring=0)
        owner = self._owner(topic)
        assignment = owner.assignment(topic) if owner is not None else None
        return assignment or Assignment(topic, why=self._why(topic, owner))

    def _why(self, topic: bytes, chosen: Owner | None) -> str:
        for owner in [chosen] if chosen is not None else self.owners.values():
            if owner.party.id in self.silent:
                return f"scope {owner.party.name} is silent; the registration waits for its manager"
            if owner.refused and chosen is None:
                return owner.refused
            if owner is chosen or owner.orders is None:
                return f"the registration waits for an answer from scope {owner.party.name}"
        role = self.roles.get(topic)
        return str(NoWayToRoot(self.me.name, topic, role.root.hex()[:8])) if role is not None else ""

    def label(self, topic: bytes) -> int | None:
        """The label that this party has in the topic."""
        owner = self._owner(topic)
        return owner.orders.label if owner is not None and owner.orders is not None else None

    def above(self) -> dict[bytes, None]:
        """The scopes that this party lies below."""
        found = dict[bytes, None]()
        for owner in self.owners.values():
            if not owner.refused:
                found[owner.party.id] = None
                found |= dict.fromkeys(owner.orders.above if owner.orders is not None else ())
        return found

    @property
    def is_refused(self) -> bool:
        """Did every owner refuse this party?"""
        return bool(self.owners) and all(owner.refused for owner in self.owners.values())

    @property
    def is_waiting(self) -> bool:
        """May the owner that it prefers still answer? Those that refuse it or are silent are passed over for others."""
        owners = {id_: owner for id_, owner in self.owners.items() if not owner.refused}
        for id_, owner in owners.items():
            if owner.orders is not None:
                return False
            if id_ not in self.silent and not owner.unmanaged:
                return True
        return bool(owners)

    def obstacle(self) -> str:
        """Why an owner does not accept this party as a member, in a sentence; empty if all do."""
        refused = [why for owner in self.owners.values() if (why := owner.refused or owner.unmanaged)]
        return refused[0] if refused else next(filter(None, map(self.why_outside, self.owners.values())), "")

    def why_outside(self, owner: Owner) -> str:
        """Why this party takes no part in the scope of an owner, in a sentence; empty if it does."""
        if why := owner.refused or owner.unmanaged:
            return why
        if owner.orders is None:
            return self.awaited()
        if self.me.managed or self.ring():
            return ""
        name = owner.party.name
        return f"scope {name} waits for its superscope's manager, and its members with it: quillcast scope show {name}"

    def obstacles(self) -> dict[str, str]:
        """By the names of owners that do not accept this party as a member: why not, in a sentence."""
        told = {each.party.name: each.refused or each.unmanaged for each in self.owners.values()}
        return {name: why.removeprefix(f"scope {name}: ") for name, why in told.items() if why}

    def admitted(self) -> list[str]:
        """The names of the owners that accept this party as a member."""
        return [each.party.name for each in self.owners.values() if each.has_answered and not each.refused]

    def awaited(self) -> str:
        """Whose answer this party waits for, in a sentence."""
        silent = [self.owners[id_].party.name for id_ in self.silent]
        if silent:
            return f"scope {', '.join(silent)} is silent; the registration waits for its manager"
        unanswered = [owner.party.name for owner in self.owners.values() if owner.orders is None]
        names = ", ".join(unanswered or [owner.party.name for owner in self.owners.values()])
        return f"the registration waits for an answer from scope {names}"

    def ring(self) -> tuple[Contact, ...]:
        """The peers through which this party reaches the overlay's ring, from its first owner that knows any.

        None as long as an owner that it prefers may still answer.
        """
        orders = self._leading_to_ring()
        return orders.ring if orders is not None else ()

    def invites(self) -> bool:
        """Will a manager have other members invite this party, who reaches the ring through peers of a scope above?

        Those peers are to hear nothing of it. While the manager is silent, nobody invites it.
        """
        orders = self._leading_to_ring()
        return orders is not None and orders.ring_above and orders.owner.id not in self.silent

    def _leading_to_ring(self) -> Orders | None:
        return None if self.is_waiting else next((orders for orders in self._obeyed() if orders.ring), None)

    def roots(self) -> tuple[RootScope, ...]:
        """The scopes at which topics may be rooted, the nearest first."""
        known = {root.scope: root for orders in reversed([*self._obeyed()]) for root in reversed(orders.roots)}
        return tuple(reversed(known.values()))

    def invited_by(self, invitation: bytes, topic: bytes) -> bool:
        """Does an invitation prove that an owner wants its sender as this party's parent in a topic?

        Only an entry point has a parent outside, and it has none inside. Other invitations follow old orders.
        """
        for orders in self._obeyed():
            if invitation and invitation in (orders.invitation, orders.entrance):
                rank = next((each.rank for each in orders.assignments if each.topic == topic), None)
                return (rank == 0) == (invitation == orders.entrance)
        return False

    def lets_send(self, invitation: bytes) -> bool:
        """Does an invitation prove that an owner, of which this party is a member, wants its sender to send here?"""
        return any(invitation in orders.invitations for orders in self._obeyed())

    def bounds(self) -> tuple[Bounds, ...]:
        """The bounds of scopes above."""
        return tuple(dict.fromkeys(each for orders in self._obeyed() for each in orders.bounds))

    def why_not(self, name: str, topic: bytes, doing: Doing) -> str | None:
        """Why this party may not begin to do this in a topic, in a sentence. Empty: it may. None: there is no bound."""
        if not any(each.apply(name, doing) for each in self.bounds()):
            return None
        answer = self.answer(topic)
        if answer is not None and does(answer, doing):
            return ""
        refused = dict(answer.refusals).get(doing) if answer is not None else None
        return refused or (answer.why if answer is not None else "") or self.awaited()

    def refusals(self, topic: bytes) -> tuple[tuple[Doing, str], ...]:
        """What this party registered for in a topic without a right to it, and why."""
        answer = self.answer(topic)
        return answer.refusals if answer is not None else ()

    def refused_in(self) -> list[bytes]:
        """The topics in which this party has no right to something that it registered for."""
        told = (each.topic for orders in self._obeyed() for each in orders.assignments if each.refusals)
        return [topic for topic in dict.fromkeys(told) if self.refusals(topic)]

    def answer(self, topic: bytes) -> Assignment | None:
        """This party's place in a topic, as an owner answered its present roles. None: no answer yet."""
        owner = self._owner(topic)
        if owner is None or owner.orders is None or not owner.asked <= owner.orders.serial <= owner.serial:
            return None
        return next((each for each in owner.orders.assignments if each.topic == topic), None)

    def channels(self) -> Iterator[ChannelOrder]:
        """What all owners order."""
        if len(self.owners) == 1:
            return (channel for orders in self._obeyed() for channel in orders.channels)
        return (part for owner in self._obeyed_owners() for part in self._channels_of(owner))

    def _channels_of(self, owner: Owner) -> Iterator[ChannelOrder]:
        for channel in owner.orders.channels if owner.orders is not None else ():
            concerned = tuple(each for each in channel.constraints if self._orders_in(owner, each.topic))
            if concerned:
                yield msgspec.structs.replace(channel, constraints=concerned)

    def groups(self) -> dict[str, bytes]:
        """The multicast mechanisms to take part in, with their keys."""
        return {group.mechanism: group.key for orders in self._obeyed() for group in orders.groups}

    def comes_by(self, mechanism: str, topic: bytes) -> bool:
        """Do bundles of a topic come over this multicast mechanism? Those of other owners are for other members."""
        owner = self._owner(topic)
        orders = owner.orders if owner is not None else None
        return orders is not None and any(group.mechanism == mechanism for group in orders.groups)

    def ordered_assignments(self) -> dict[bytes, Assignment]:
        """This party's places by its owners' orders, also in topics in which it takes no part for itself."""
        return {each.topic: each for _, each in self._ordered()}

    def ordered_labels(self) -> dict[bytes, int]:
        """By topic: the label that this party has in that place."""
        return {each.topic: orders.label for orders, each in self._ordered()}

    def places(self, topic: bytes) -> list[tuple[int, int]]:
        """The depths and labels that this party has in a topic. A scope that it turned away from gives it none."""
        told = ((orders.label, each) for orders, each in self._ordered() if each.topic == topic)
        return [(each.depth, label) for label, each in told if each.depth is not None]

    def ordering(self, topic: bytes) -> Party | None:
        """The owner that decides this party's place in a topic."""
        return next((orders.owner for orders, each in self._ordered() if each.topic == topic), None)

    def carriers(self, topic: bytes) -> tuple[Carrier, ...]:
        """The owner that says so, and the scopes around it, with their policies in the topic."""
        return next((each.carriers for _, each in self._ordered() if each.topic == topic), ())

    def domains(self) -> dict[bytes, tuple[Circle, ...]]:
        """By topic: the recovery domains in which this party has an agent, its owner's first and then outer ones."""
        told = ((owner, each) for owner in self._obeyed_owners() for each in owner.circles.items())
        return {topic: circles for owner, (topic, circles) in told if self._orders_in(owner, topic)}

    def circles(self, topic: bytes) -> tuple[Circle, ...]:
        """The recovery domains in which this party has an agent for a topic."""
        owner = self._owner(topic)
        return owner.circles.get(topic, ()) if owner is not None else ()

    def recorded(self) -> dict[bytes, Assignment]:
        """The same, in the topics whose bundles have records."""
        return {topic: each for topic, each in self.ordered_assignments().items() if each.records}

    def asks_for(self, topic: str) -> bytes:
        """The root scope that a party for which this one speaks must name to register with the same owner.

        The owner's own id, which leads to it even before it has answered; or the overlay, which leads to the first.
        """
        root = next((root.scope for root in self.roots() if root.covers(topic)), OVERLAY)
        leading = [id_ for id_, owner in self.owners.items() if owner.leads_to(root) and not owner.refused]
        return OVERLAY if leading[:1] in ([], [*self.owners][:1]) else leading[0]

    def _obeyed(self) -> Iterator[Orders]:
        return (owner.orders for owner in self._obeyed_owners() if owner.orders is not None)

    def _obeyed_owners(self) -> Iterator[Owner]:
        return (owner for owner in self.owners.values() if owner.orders is not None and not owner.refused)

    def _ordered(self) -> Iterator[tuple[Orders, Assignment]]:
        for owner in self._obeyed_owners():
            assert owner.orders is not None
            for each in owner.orders.assignments:
                if self._orders_in(owner, each.topic):
                    yield owner.orders, each

    def _orders_in(self, owner: Owner, topic: bytes) -> bool:
        """Is this the owner to obey in a topic? A former owner's orders may still name the topic."""
        return len(self.owners) == 1 or self._owner(topic) in (None, owner)

    # ---- what owners say

    def is_owner(self, id_: bytes, sender: Contact, proof: Succession | None = None) -> bool:
        """Does a peer speak for an owner: the one that runs its manager, or that proves that it took over?"""
        owner = self.owners.get(id_)
        if owner is None or owner.party.contact.node_id == sender.node_id:
            return owner is not None
        moved = owner.proof is not None and succession.follows(proof, owner.proof)
        return moved and proof is not None and proof.contact.node_id == sender.node_id

    def disproof(self, message: Orders | Heard, sender: Contact) -> Succession | None:
        """The proof that an owner's manager runs elsewhere, or under a later epoch; None: it does not."""
        id_, proof = (message.owner.id, message.succession) if isinstance(message, Orders) else (message.owner, None)
        owner = self.owners.get(id_)
        if owner is None or owner.proof is None:
            return None
        return owner.proof if message.epoch < owner.proof.epoch or not self.is_owner(id_, sender, proof) else None

    def ordered(self, orders: Orders, now: float) -> tuple[bytes, ...]:
        """An owner's orders came: the topics in which something changes. An old manager's orders are not obeyed."""
        owner = self.owners.get(orders.owner.id)
        if owner is None or (orders.epoch, orders.number) <= owner.stamp:
            return ()
        self._hear(owner, now, orders.serial)
        if orders.owner.id in self.doubted:  # it does not know the new number, perhaps since its restart
            self.unregistered[orders.owner.id] = None
        old, owner.orders, owner.circles = owner.orders, orders, dict(_domains(orders))
        was_refused = bool(owner.refused)
        owner.party, owner.refused, owner.unmanaged = orders.owner, "", ""
        owner.proof = succession.kept(orders.succession, owner.proof)
        if self.me.id in (orders.owner.id, *orders.above):
            owner.refused = str(ScopeCycle(self.me.name, orders.owner.name))
        if owner.refused or was_refused or old is None or old.above != orders.above:
            for topic in self.roles:
                self._assign(topic)
            return tuple(self.roles)
        return _changed(old, orders)

    def heard(self, message: Heard, now: float) -> None:
        """An owner lives."""
        owner = self.owners.get(message.owner)
        if owner is not None and message.epoch >= owner.stamp[0]:
            self._hear(owner, now, message.serial)
            if message.serial != owner.serial:
                self.unregistered[message.owner] = None

    def refused(self, message: RegistrationRefused, now: float) -> tuple[bytes, ...]:
        """An owner refuses this party: the topics in which its place changes."""
        owner = self.owners.get(message.owner)
        if owner is None or message.epoch < owner.stamp[0]:
            return ()
        self._hear(owner, now)
        if not message.epoch:
            owner.unmanaged = f"scope {owner.party.name}: {message.why}"
            return ()
        owner.refused, owner.unmanaged = message.why, ""
        for topic in self.roles:
            self._assign(topic)
        self.unregistered.pop(message.owner, None)
        self.doubted.pop(message.owner, None)
        return tuple(self.roles)

    def _hear(self, owner: Owner, now: float, serial: int = 0) -> None:
        self.heard_at[owner.party.id] = now
        self.silent.pop(owner.party.id, None)
        if serial == owner.serial:
            self.doubted.pop(owner.party.id, None)

    # ---- what it says

    def settle(self) -> Iterator[Send]:
        """Tell owners of changes."""
        told, self.unregistered = self.unregistered, {}
        for id_ in told:
            owner = self.owners[id_]
            if not owner.is_found:
                continue  # it is told when it is
            roles, token = tuple(owner.roles.values()), "" if owner.has_answered else owner.token
            message = Registration(id_, self.me, owner.serial, roles, token, self.proof, self.seats)
            yield Send(owner.party, message)

    def passed(self, now: float) -> tuple[bytes, ...]:
        """Time passed: the topics that wait for an owner that has just become silent.

        This party may have been cut off, and not the owner: then its orders are as old as if it had been silent itself.
        """
        newly = [id_ for id_, at in self.heard_at.items() if now - at > self.lease_s and id_ not in self.silent]
        self.silent |= dict.fromkeys(newly)
        for id_ in newly:
            self.owners[id_].recall()
            self._doubt(id_)
        for topic in self.roles if newly else ():
            self._assign(topic)
        return tuple(self.roles) if newly else ()

    def beat(self, *, behind: bool = False) -> Iterator[Send]:
        """Send keep-alives to all owners, and repeat what was not answered. `behind`: see `Alive`."""
        for id_, owner in self.owners.items():
            if not owner.has_answered or owner.refused:
                self.unregistered[id_] = None
            else:
                yield self._alive(owner, behind=behind)

    def acknowledge(self, id_: bytes) -> Iterator[Send]:
        """An owner waits for this party to have its orders: send a keep-alive at once."""
        owner = self.owners.get(id_)
        if owner is not None and owner.orders is not None and not owner.refused:
            yield self._alive(owner, behind=True)

    def _alive(self, owner: Owner, *, behind: bool) -> Send:
        return Send(owner.party, Alive(owner.party.id, self.me, *owner.stamp, behind=behind))

    def leave(self) -> Iterator[Send]:
        """Leave all owners."""
        found = ((id_, owner) for id_, owner in self.owners.items() if owner.is_found)
        return (Send(owner.party, Deregistration(id_, self.me.id)) for id_, owner in found)


def _without(roles: dict[bytes, Role], topic: bytes) -> dict[bytes, Role]:
    return {each: role for each, role in roles.items() if each != topic}


def _changed(old: Orders, new: Orders) -> tuple[bytes, ...]:
    before, after = _by_topic(old), _by_topic(new)
    return tuple(topic for topic in before | after if before.get(topic) != after.get(topic))


def _headless(role: Role | None) -> Role | None:
    """A role without the head of the domain, by which no owner decides anything."""
    return msgspec.structs.replace(role, head=None) if role is not None else None


def _domains(orders: Orders) -> Iterator[tuple[bytes, tuple[Circle, ...]]]:
    """The recovery domains of each topic, from the owner's outwards."""
    own, around = dict[str, tuple[Circle, ...]](), dict[bytes, list[Circle]]()
    for each in orders.around:
        for topic in each.topics:
            around.setdefault(topic, []).append(each.circle)
    for assignment in orders.assignments:
        topic, recovery = assignment.topic, assignment.recovery
        if recovery not in own:  # shared, because there may be many topics
            own[recovery] = (Circle(orders.owner.id, recovery, orders.others),) if recovery else ()
        yield topic, (*own[recovery], *around[topic]) if topic in around else own[recovery]


def _by_topic(orders: Orders) -> dict[bytes, list[Assignment | ChannelOrder | tuple[Circle, ...]]]:
    found = dict[bytes, list[Assignment | ChannelOrder | tuple[Circle, ...]]]()
    for assignment in orders.assignments:
        found.setdefault(assignment.topic, []).append(assignment)
    for topic, circles in _domains(orders):
        found[topic].append(circles)
    for channel in orders.channels:
        for topic in dict.fromkeys(each.topic for each in channel.constraints):
            found.setdefault(topic, []).append(for_topic(channel, topic))
    return found


def owners_of(
    parties: Iterable[Party], tokens: Mapping[bytes, str] = MappingProxyType({}),
    before: Mapping[bytes, Orders] = MappingProxyType({}),
) -> dict[bytes, Owner]:  # fmt: skip
    """Owners that have not been heard of yet: `tokens` of their join lines, and what they ordered `before`, by ids."""
    owners = {party.id: Owner(party, token=tokens.get(party.id, "")) for party in parties}
    for id_, orders in before.items():
        owners[id_].remember(orders)
    return owners


def remembered(orders: Orders) -> Orders:
    """What a member may go by after a restart, while its manager is silent.

    It knows the way to the ring, the rules of the scope, and the manager's statement. It has no part in topics, for
    those of others have changed without it. Any other orders of the manager are later ones.
    """
    return msgspec.structs.replace(
        orders, number=0, serial=0, assignments=(), channels=(), groups=(), others=(), around=(), entrance=b""
    )


def readdressed(orders: Orders, me: Contact) -> Orders:
    """Orders to a member that has another address since."""

    def now(contacts: Iterable[Contact]) -> tuple[Contact, ...]:
        return tuple(me if each.node_id == me.node_id else each for each in contacts)

    roots = (msgspec.structs.replace(root, seats=now(root.seats)) for root in orders.roots)
    return msgspec.structs.replace(orders, ring=now(orders.ring), roots=tuple(roots))
