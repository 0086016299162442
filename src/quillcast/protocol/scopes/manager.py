"""The scope manager: administers one scope (QuickSilver, *The Anatomy of a Scope*).

It is a deterministic state machine. Its host feeds it messages and the time, and carries out the effects that it
returns. `Save` comes first whenever something changed that must survive a crash. So the manager never orders anything
that it would not know after a crash.

Each input changes the state and marks topics. `_settle` then composes the marked topics again, compares each member's
orders with what it was told, and sends what is new to owners, members and senders.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.ids import topic_id
from quillcast.core.messages import Contact, by_distance
from quillcast.protocol.scopes.channels import Ask, Party, Rate
from quillcast.protocol.scopes.clients import Clients, is_client_of
from quillcast.protocol.scopes.composition import Composition, Part, ScopeContext
from quillcast.protocol.scopes.config import TopicRule
from quillcast.protocol.scopes.effects import NotEntitled, Save, ScopeEffect, Send, Superseded
from quillcast.protocol.scopes.hierarchy import OVERLAY, ManagerMoved, NoRootScope, TwoRootScopes
from quillcast.protocol.scopes.measuring import Measuring
from quillcast.protocol.scopes.members import Members
from quillcast.protocol.scopes.membership import ScopeMembership, owners_of
from quillcast.protocol.scopes.messages import (
    Alive,
    Assignment,
    Bounds,
    ChannelAnswer,
    ChannelRequest,
    ControlMessage,
    Deregistration,
    Heard,
    Measured,
    MeasureRoundTrips,
    Orders,
    OuterParent,
    Registration,
    RegistrationRefused,
    Role,
    RootScope,
    Succession,
    does,
)
from quillcast.protocol.scopes.orders import Common, OrderBook
from quillcast.protocol.scopes.policy import ALL, PolicyStopped, of_topic
from quillcast.protocol.scopes.receiver import Receiver
from quillcast.protocol.scopes.requests import ChannelWish, Requests
from quillcast.protocol.scopes.rights import Entitlements
from quillcast.protocol.scopes.state import RING_MAX, Member, ScopeConfig, ScopeState, Topic
from quillcast.protocol.scopes.succession import appointed, is_genuine
from quillcast.protocol.scopes.swaps import Swaps
from quillcast.protocol.scopes.uses import Doing

_decoder = msgspec.msgpack.Decoder(ScopeState)


class ScopeManager:
    """The manager of one scope. One process may run several."""

    def __init__(self, state: ScopeState, config: ScopeConfig) -> None:
        self.state, self.config = state, config
        self.succession: Succession | None = None
        self.membership = ScopeMembership(state.scope, state.owners, config.lease_s)
        self.requests = Requests(state.scope, state.asked)
        self.rights = Entitlements(config)
        self.members = Members(state, config, self.rights)
        self.receiver = Receiver(state)
        self.clients = Clients(state, config, self.rights)
        self.measuring = Measuring(state, config.lease_s, self.members, self.receiver)
        self.known_roots: tuple[RootScope, ...] = ()
        self.former_owners: tuple[Party, ...] = ()  # of which the scope's file no longer makes it a member
        self.left_until = 0.0  # when they are told no longer
        self.orders = OrderBook(state)
        self.behind: dict[int, None] = {}  # members that missed bundles at their last keep-alive, where channels change
        self.swaps = Swaps(config.lease_s, lambda topic: state.topics[topic].version, self._name_of)
        self.swaps.restore(state.topics)
        self.stopped: dict[bytes, str] = {}  # why the policies of topics were stopped
        self.now = 0.0
        self.topics: dict[bytes, None] = dict.fromkeys(state.topics)  # to be composed
        self.changed = True
        self.superseded = False

    @classmethod
    def new(
        cls, scope: Party, owners: Iterable[Party], config: ScopeConfig,
        tokens: Mapping[bytes, str] = MappingProxyType({}),
    ) -> "ScopeManager":  # fmt: skip
        """The manager of a new scope, which will be a member of these, the preferred one first.

        `tokens` of the owners' join lines are by the owners' ids.
        """
        return cls(ScopeState(scope, owners_of(owners, tokens)), config)

    @classmethod
    def restored(
        cls, saved: bytes, config: ScopeConfig, *, scope: Party | None = None, owners: Iterable[Party] | None = None,
        tokens: Mapping[bytes, str] = MappingProxyType({}),
    ) -> "ScopeManager":  # fmt: skip
        """The same manager after a crash; at another place or with other owners, if these are given.

        Raises `ManagerMoved` if it continues at another peer.
        """
        state = _decoder.decode(saved)
        state.begin_epoch()
        state.start_at(scope)
        if state.moved_to is not None and state.moved_to.node_id != state.scope.contact.node_id:
            raise ManagerMoved(state.scope.name, state.moved_to.address)
        state.stay()
        former = state.set_owners(owners_of(owners, tokens)) if owners is not None else ()
        manager = cls(state, config)
        manager.former_owners = tuple(owner.party for owner in former)
        return manager

    @staticmethod
    def known_owners(saved: bytes) -> dict[bytes, Party]:
        """The owners that a manager had, by their ids."""
        return {id_: owner.party for id_, owner in _decoder.decode(saved).owners.items()}

    def saved(self) -> bytes:
        """The state for `restored`. Owners that were not found yet are not in it."""
        found = {id_: owner for id_, owner in self.state.owners.items() if owner.is_found}
        return msgspec.msgpack.encode(msgspec.structs.replace(self.state, owners=found))

    # ---- inputs

    def begin(self, now: float) -> list[ScopeEffect]:
        """Start: register with the owners, and send all members their orders. Leases start again."""
        self.now = now
        self.measuring.begin(now)
        self.succession = appointed(self.state.scope, self.state.epoch, self.state.secret)
        self.membership.prove(self.succession)
        self.orders.prove(self.succession)
        self.members.begin(now)
        self.receiver.begin(now)
        self.membership.begin(now)
        self._judge_again()
        for topic in self.topics:
            self._cascade(topic)
        self.left_until = now + self.config.lease_s
        return self._effects([*self._leave_former(), *self._tell_refusals()])

    def _leave_former(self) -> Iterator[Send]:
        """Leave the scopes of which this one was a member. After a lease they know by its silence."""
        if self.now < self.left_until:
            yield from (Send(owner, Deregistration(owner.id, self.state.scope.id)) for owner in self.former_owners)

    def _judge_again(self) -> None:
        """The scope's file may give members other rights than before."""
        for member in self.state.members.values():
            self._roles_changed(self.members.judge_again(member))
            self._mark(member.refused)

    def found(self, party: Party) -> list[ScopeEffect]:
        """The manager of a superscope that was not reached before runs there: register."""
        self.membership.found(party)
        self.changed = True
        return self._effects(())

    def received(self, message: ControlMessage, now: float) -> list[ScopeEffect]:
        """A message of a member, client, sender, owner or receiver."""
        self.now = now
        return [] if self.superseded else self._effects(self._take(message, now))

    def passed(self, now: float) -> list[ScopeEffect]:
        """Time passed: send keep-alives, and remove silent parties. Call it several times per lease."""
        self.now = now
        return [] if self.superseded else self._effects(self._passed(now))

    def set_policies(self, settings: tuple[TopicRule, ...]) -> list[ScopeEffect]:
        """The operator set these policies, and `config.policy` follows them: keep them, and change topics."""
        self.state.set_policies(settings)
        self.changed = True
        return self.policies_changed()

    def reconfigure(self, config: ScopeConfig) -> list[ScopeEffect]:
        """The scope's file says something else from now on: members, clients and senders hear what that changes."""
        if self.superseded:
            return []
        self.config = config
        for part in (self.rights, self.members, self.clients):
            part.follow(config)
        dismissed = [*self._dismiss()]
        self._judge_again()
        self.clients.decide_again(self._common_orders())
        self.orders.owe(self.state.members)
        self.swaps.retry()
        self._mark(self.state.topics)
        return self._effects([*dismissed, *self._tell_refusals()])

    def _dismiss(self) -> Iterator[Send]:
        """Remove the members that are no longer admitted."""
        for member in [*self.state.members.values()]:
            if why := self.config.refusal(member.party, member.attributes, ""):
                yield Send(member.party, RegistrationRefused(self.state.scope.id, self.state.epoch, why))
                self._remove(member.party.id, "")

    def policies_changed(self) -> list[ScopeEffect]:
        """`config.policy` gives other answers from now on: topics change in two phases (`swaps`)."""
        self.swaps.retry()
        self._mark(self.state.topics)
        return self._effects(())

    def policy_answered(self, topic: bytes) -> list[ScopeEffect]:
        """The policy of a topic says now which channels it wants, or was stopped."""
        if self.superseded or topic not in self.state.topics:
            return []
        self._mark([topic])
        return self._effects(())

    def assignment(self, topic: bytes) -> Assignment:
        """The scope's place in a topic: its depth, or what it waits for."""
        kept = self.state.topics[topic]
        if kept.root != self.state.scope.id:
            return self.membership.assignment(topic)
        if self.config.roots is not None and not self._own_root().covers(kept.name):
            return Assignment(topic, why=str(NoRootScope(kept.name, self.state.scope.name)))
        return Assignment(topic, depth=0)

    def _own_root(self) -> RootScope:
        return RootScope(self.state.scope.id, self.state.scope.name, self.config.roots or (), self.state.seats())

    def roots(self) -> tuple[RootScope, ...]:
        """The scopes at which members' topics may be rooted: this one, if its rules say so, and those above."""
        own = self._own_root()
        return (*([own] if any(is_root for _, is_root in own.rules) else ()), *self.membership.roots())

    def seats(self, topic: bytes) -> tuple[int, ...] | None:
        """The members that are, or contain, the rendezvous point of a topic and the next closest peers.

        Empty if the rendezvous point is in none of them. None: there are no seats, as in the overlay.
        """
        kept = self.state.topics[topic]
        root = next((root for root in self.known_roots if root.scope == kept.root), None)
        if root is None:
            return None
        at = {seat: label for label, each in self.state.members.items() for seat in (each.party.contact, *each.seats)}
        labels = [at.get(seat) for seat in by_distance(root.seats, topic)]
        return tuple(dict.fromkeys(label for label in labels if label is not None)) if labels[:1] != [None] else ()

    def bounds(self) -> tuple[Bounds, ...]:
        """The bounds of this scope, and of those above it."""
        own = Bounds(self.config.bounds)
        return (*([own] if any(rule.wait for rule in own.rules) else ()), *self._limits_above())

    def _limits_above(self) -> Iterator[Bounds]:
        """The bounds of scopes above. This scope alone decides about members' clients."""
        for each in self.membership.bounds():
            rules = tuple(msgspec.structs.replace(rule, clients=False) for rule in each.rules)
            yield Bounds(rules)

    def ring(self) -> tuple[Contact, ...]:
        """The members with a place in the overlay's ring: those of the scopes above, then this one's if they are few.

        None as long as the superscope that it prefers may still answer.
        """
        if self.membership.is_waiting:
            return ()
        own = (self.state.members[label].party.contact for label in self.state.ring)
        return tuple(dict.fromkeys((*self.membership.ring(), *own)))[:RING_MAX]

    # ---- messages

    def _take(self, message: ControlMessage, now: float) -> Iterable[ScopeEffect]:
        match message:
            case Registration(member=party) | Alive(member=party) if is_client_of(party.id, party.contact.node_id):
                return self._of_client(message, now)
            case Registration():
                return self._register(message, now)
            case Alive():
                return self._alive(message, now)
            case Deregistration(member=member):
                self.clients.remove(member)
                self._remove(member, "")
            case ChannelRequest():
                return self._asked(message, now)
            case MeasureRoundTrips() | Measured() | OuterParent():
                return self._measure(message, now)
            case ChannelAnswer():
                self._mark(dict(message.specs) if self.requests.answered(message) else ())
            case Orders() | RegistrationRefused():
                self._heed(message, now)
                return self._asked_early(now)
            case Heard():
                self.membership.heard(message, now)
            case Succession():
                return self._succeeded(message)
        return ()

    def _measure(self, message: MeasureRoundTrips | Measured | OuterParent, now: float) -> Iterable[ScopeEffect]:
        match message:
            case MeasureRoundTrips():
                return self.measuring.ordered(message)
            case Measured():
                self._mark(self.measuring.heard(message))
                return self.measuring.pass_on(message, self.membership.owners)
            case OuterParent():
                self._mark(self.measuring.outer_parent(message, now))
                return ()

    def _mark(self, topics: Iterable[bytes]) -> None:
        """Something changed in these topics: compose them again."""
        marked = dict.fromkeys(topics)
        self.topics |= marked
        self.changed = self.changed or bool(marked)

    # ---- with owners

    def _heed(self, message: Orders | RegistrationRefused, now: float) -> None:
        above = self.membership.above(), self.ring(), self.membership.bounds()
        if isinstance(message, Orders):
            self._mark(self.membership.ordered(message, now))
        else:
            self._mark(self.membership.refused(message, now))
        if (self.membership.above(), self.ring(), self.membership.bounds()) != above:
            self.orders.owe(self.state.members)
            self.changed = True

    def _cascade(self, topic: bytes) -> None:
        """Register with a superscope for what the members want, unless this is the topic's root scope."""
        kept = self.state.topics.get(topic)
        if kept is None or kept.root == self.state.scope.id:
            self.membership.set_role(topic, None)
            return
        roles = [role for role in self.members.roles(topic) if role.root == kept.root]
        publishes, subscribes = any(role.publishes for role in roles), any(role.subscribes for role in roles)
        tree_only, reliable = any(role.tree_only for role in roles), any(role.reliable for role in roles)
        counted = any(each.apply(kept.name, "publishes") for each in self.membership.bounds())
        has_publishers = counted and any(role.has_publishers for role in roles)
        head = self._head(topic)
        role = Role(topic, kept.root, publishes, subscribes, kept.name, tree_only, reliable, has_publishers, head=head)
        self.membership.set_role(topic, role if roles or self._remains(topic) else None)

    def _remains(self, topic: bytes) -> bool:
        """Does the scope forward for others in a topic in which no member takes part?"""
        return topic in self.state.topics and bool(self._composition(topic).remaining)

    def _release(self, topic: bytes) -> None:
        """End the scope's part in a topic if no member has a role in it, or forwards for others."""
        if not self.members.roles(topic) and not self._remains(topic):
            self._forget(topic)
            self._cascade(topic)

    def _forget(self, topic: bytes) -> None:
        self.state.topics.pop(topic, None)
        self.measuring.forget_topic(topic)
        self.swaps.forget(topic)
        self.stopped.pop(topic, None)

    # ---- with members and clients

    def _register(self, message: Registration, now: float) -> Iterator[ScopeEffect]:
        try:
            member, topics = self.members.enter(message, self.membership.above(), now)
        except LocalError as refusal:
            yield Send(message.member, RegistrationRefused(self.state.scope.id, self.state.epoch, str(refusal)))
            return
        self.orders.owe([member.label])
        self._choose_ring()
        self._roles_changed(topics)
        yield from self._tell_refusals([member])

    def _tell_refusals(self, members: Iterable[Member] | None = None) -> Iterator[NotEntitled]:
        """Tell the operator what members register for without a right to it, once for each reason."""
        for member in self.state.members.values() if members is None else members:
            for role in member.refused.values():
                for _, why in self.rights.refusals(member, role):
                    if self.rights.tell(member, why):
                        yield NotEntitled(why)

    def _of_client(self, message: Registration | Alive, now: float) -> Iterable[ScopeEffect]:
        """A member mentions a client of its own: say what that client may do."""
        if isinstance(message, Alive):
            return self.clients.lives(message, now)
        host = self.members.find(message.member.contact.node_id)
        return self.clients.registered(message, host, self._common_orders(), now)

    def _common_orders(self) -> Orders:
        """Orders to a client, without what concerns this client only."""
        return Orders(
            self.state.scope, self.state.epoch, 0, 0, 1, tuple(self.membership.above()), bounds=self.bounds(),
            succession=self.succession,
        )  # fmt: skip

    def _roles_changed(self, topics: Iterable[bytes]) -> None:
        """Members' roles in these topics changed. A topic has the root scope that its first member names."""
        for topic in topics:
            roles, kept = self.members.roles(topic), self.state.topics.get(topic)
            if not roles and not self._remains(topic):
                self._forget(topic)
            elif roles and (kept is None or kept.root not in [role.root for role in roles]):
                self.state.topics[topic] = Topic(roles[0].root, _name(topic, roles))
            self._cascade(topic)
        self._mark(topics)
        self.changed = True

    def _succeeded(self, message: Succession) -> Iterator[ScopeEffect]:
        """A party proves that the manager began a later epoch than this one: elsewhere, or this state is old."""
        own = self.succession
        if own is None or (message.scope, message.key) != (own.scope, own.key) or message.rank <= own.rank:
            return
        if is_genuine(message):
            self.superseded = self.changed = True
            self.state.move_to(message.contact, message.epoch)
            yield Superseded(message.epoch, message.contact)

    def _alive(self, message: Alive, now: float) -> Iterator[ScopeEffect]:
        """A keep-alive. Whatever epoch a member names, only a signed statement ends this manager."""
        member = self.members.lives(message.member.id, now)
        serial = member.serial if member is not None else 0
        yield Send(message.member, Heard(self.state.scope.id, self.state.epoch, serial))
        if member is not None:
            self.behind.pop(member.label, None)
            if message.behind:
                self.behind[member.label] = None
            if message.epoch == self.state.epoch:
                self.swaps.heard(member.label, message.number, self.now, behind=message.behind)
            yield from self.orders.repeat(member.label, (message.epoch, message.number))

    def _remove(self, id_: bytes, why: str) -> None:
        """A member is gone; `why` if it did not leave in good order."""
        member = self.members.remove(id_)
        if member is not None:
            self._mark(self.swaps.gone(member.label, why and f"{_called(member)} {why}"))
            self.measuring.forget_member(id_)
            self._mark(self.orders.parts.get(member.label, ()))  # also where it only forwarded bundles in transit
            self.orders.remove(member.label)
            self.behind.pop(member.label, None)
            self._change_keys()
            self._choose_ring()
            self._roles_changed(member.roles)

    def _choose_ring(self) -> None:
        """Members came or went: choose which have a place in the overlay's ring."""
        if self.state.choose_ring():
            self.orders.owe(self.state.members)
            self._mark(self.state.topics)
            self.changed = True

    # ---- with senders

    def _asked(self, message: ChannelRequest, now: float) -> Iterable[ScopeEffect]:
        if not message.topics:
            if self.receiver.is_known(message.sender) or self.lets_send(message):
                self._forget_sender(message.sender.id)
            return ()
        if not self.lets_send(message):
            self.receiver.keep_early(message)
            return ()
        former = self.receiver.rates()
        topics = self.receiver.asked(message, now)
        self._mark(topics)
        self._mark(self._shared_anew(former))
        return () if topics else self.receiver.repeat(message.sender.id)

    def lets_send(self, message: ChannelRequest) -> bool:
        """Did an owner of this scope invite the sender?"""
        return any(map(self.membership.lets_send, message.invitations))

    def _asked_early(self, now: float) -> Iterable[ScopeEffect]:
        """An owner's orders came: they may be those by which some requests, which came first, are invited."""
        early = self.receiver.take_early(self.lets_send)
        return [effect for message in early for effect in self._asked(message, now)]

    def _change_keys(self) -> None:
        """Give members and senders new keys of multicast groups, which those that left do not have."""
        self.state.change_keys()
        self.orders.owe_keys()
        if self.config.multicast:
            self._mark(topic for sender in self.state.senders.values() for topic in sender.topics)

    def _forget_sender(self, id_: bytes) -> None:
        former = self.receiver.rates()
        self.measuring.round_trips.forget_party(id_)
        topics = self.receiver.forget(id_)
        self._mark(topics)
        if topics and self.config.multicast:
            self._change_keys()
        self._mark(self._shared_anew(former))

    def _shared_anew(self, former: Mapping[bytes, tuple[Rate, ...]]) -> Iterable[bytes]:
        """The topics in which senders' rates change, after others came or went, or asked for another rate."""
        limited = any(self.config.in_all[1:3]) and self.receiver.rates() != former
        return self.state.topics if limited else ()

    # ---- with time

    def _passed(self, now: float) -> Iterator[ScopeEffect]:
        unheard = [self.members.labels[id_] for id_ in self.members.unheard]
        self.orders.owe(unheard)  # they may have missed that this epoch began, perhaps at another peer
        since = now - self.config.lease_s
        for id_ in self.members.silent(since):
            self._remove(id_, "fell silent")
        self.clients.passed(since)
        for id_ in self.receiver.silent(since):
            self._forget_sender(id_)
        self._mark(self.membership.passed(now))
        self._mark(self.measuring.passed(now))
        self.requests.beat()
        yield from self.measuring.measure_again(now)
        yield from self.membership.beat(behind=bool(self.behind))
        yield from self._leave_former()

    # ---- what follows

    def _effects(self, first: Iterable[ScopeEffect]) -> list[ScopeEffect]:
        effects = [*first, *self._settle()]
        if self.changed:
            self.changed = False
            effects.insert(0, Save())
        return effects

    def _settle(self) -> Iterator[ScopeEffect]:
        self._go_on()
        self._look_at_roots()
        topics = self._compose_all()
        for topic in topics:
            self._tell_head(topic)
            yield from self.measuring.measure(topic)
        yield from self.requests.want(self._scopes_to_ask())
        yield from self.requests.settle()
        yield from self.membership.settle()
        above, has_ring_above = tuple(self.membership.above()), bool(self.membership.ring())
        common = Common(above, self.ring(), self.known_roots, self.bounds(), has_ring_above)
        yield from self.orders.settle(common)
        for topic in self.swaps.running:
            self.swaps.told(topic, self.orders.numbers_in(topic))
        yield from self.receiver.settle(topics, lambda topic, of: self._composition(topic).specification(of))

    def _look_at_roots(self) -> None:
        """Look for topics with other root scopes or rendezvous points, and tell members and owners."""
        self.membership.offer(self.state.seats(RING_MAX))
        roots = self.roots()
        if roots != self.known_roots:
            concerned = {root.scope for root in (*roots, *self.known_roots)}
            self.known_roots = roots
            self.orders.owe(self.state.members)
            self._mark(topic for topic, kept in self.state.topics.items() if kept.root in concerned)

    def _go_on(self) -> None:
        """Changes of channels enter their next phase."""
        for topic, begun in self.swaps.passed(self.now):
            if begun is not None:
                former = self.state.topics[topic].switch(begun.version, begun.channels)
                self.swaps.running[topic].carry_by(former)
            self._mark([topic])

    def _name_of(self, label: int) -> str:
        return _called(self.state.members[label]) if label in self.state.members else f"member {label}"

    def _compose_all(self) -> dict[bytes, None]:
        """Compose the topics in which something changed, and all if other members now share what may leave in all."""
        composed = dict[bytes, None]()
        while self.topics:
            topics, self.topics = self.topics, {}
            exits = len(self.state.exits())
            for topic in topics:
                self._compose(topic)
            composed |= topics
            if any(self.config.out_of_all) and len(self.state.exits()) != exits:
                self._mark(self.state.topics)
        return composed

    def _compose(self, topic: bytes) -> None:
        parts = dict[int, Part]()
        between_members = False
        self._release(topic)
        if (kept := self.state.topics.get(topic)) is not None:
            policy = self.config.policy(kept.name)
            self.swaps.want(topic, policy and of_topic(policy, topic), self.now)
            composition = self._composition(topic)
            parts = composition.composed()
            between_members = composition.asks_round_trips
            self._note_stopped(topic, composition)
            if kept.surplus and self.swaps.renew(topic, kept.wanted, self.now):
                self._mark([topic])
            kept.go_by(*self.swaps.saved(topic))
            for member in self.members.at_other_root(topic, kept.root):
                root, other = (self.scope_name(id_) for id_ in (kept.root, member.roles[topic].root))
                two = TwoRootScopes(kept.name or topic.hex()[:8], root, other)
                parts[member.label] = Part(Assignment(topic, why=str(two)))
        self.measuring.asks(topic, between_members=between_members)
        above = self.membership.refusals(topic)
        for member in self.members.using(topic):
            if refusals := tuple(self._refusals(member, topic, above)):
                part = parts.get(member.label, Part(Assignment(topic, why=refusals[0][1])))
                assignment = msgspec.structs.replace(part.assignment, refusals=refusals)
                parts[member.label] = part._replace(assignment=assignment)
        self.changed = self.orders.update(topic, parts) or self.changed

    def _note_stopped(self, topic: bytes, composition: Composition) -> None:
        """Why a topic's policy was stopped, and what to do. Nothing changes to a policy that was stopped."""
        self.stopped.pop(topic, None)
        if isinstance(composition.unanswered, PolicyStopped):
            self.stopped[topic] = (
                f"{composition.unanswered}; the last good channels stay, and members that they do not lead to are "
                "served along the topic's tree; to continue, set a policy (quillcast scope policy set)"
            )
        if self.swaps.ends_unanswered(topic):
            self._mark([topic])

    def _refusals(
        self, member: Member, topic: bytes, above: tuple[tuple[Doing, str], ...]
    ) -> Iterator[tuple[Doing, str]]:
        """What a member registered for, but this scope or one above it does not allow."""
        if (refused := member.refused.get(topic)) is not None:
            yield from self.rights.refusals(member, refused)
        if (role := member.roles.get(topic)) is not None:
            for doing, why in above:
                if does(role, doing) or (doing == "publishes" and role.has_publishers):
                    yield doing, why

    def _tell_head(self, topic: bytes) -> None:
        """Tell the superscope which peer speaks for this scope among its members, if that changed."""
        role, head = self.membership.roles.get(topic), self._head(topic)
        if role is not None and role.head != head:
            self.membership.set_role(topic, msgspec.structs.replace(role, head=head))
            self.changed = True

    def _head(self, topic: bytes) -> Contact | None:
        """The peer that speaks for this scope in the domain around it, if there is one."""
        return self.state.head(topic) if self.membership.circles(topic) else None

    def scope_name(self, id_: bytes) -> str:
        """The name of a root scope; empty: the overlay."""
        known = {OVERLAY: "", self.state.scope.id: self.state.scope.name}
        known |= {root.scope: root.name for root in self.known_roots}
        return known.get(id_, id_.hex()[:8])

    def _composition(self, topic: bytes) -> Composition:
        ordered = self.membership.channels()
        outgoing = [order for order in ordered if any(topic == each.topic for each in order.constraints)]
        around = ScopeContext(
            self.assignment(topic),
            self.membership.is_top(topic),
            tuple(outgoing),
            self.requests.spec,
            self.measuring.round_trips.get,
            self.seats(topic),
            lambda doing: self.membership.why_not(self.state.topics[topic].name, topic, doing) or "",
            self.measuring.parent(topic),
            self.membership.circles(topic),
        )
        policy, swap = self.swaps.in_force.get(topic), self.swaps.running.get(topic)
        return Composition(self.state, self.config, topic, around, self.members.using(topic), policy, swap)

    def _scopes_to_ask(self) -> dict[Party, ChannelWish]:
        """The scopes whose subchannels are delegated one by one, and for which channels."""
        wanted = dict[Party, ChannelWish]()
        for order in self.membership.channels() if self.config.split else ():
            if isinstance(order.spec, Ask):
                asking = wanted.setdefault(order.spec.scope, ChannelWish({}, {}, {}))
                for topic, *_, rates in order.constraints:
                    own = self._composition(topic).leaving() if topic in self.state.topics else ()
                    asking.add(topic, (*rates, *own), order.spec.invitation)
        return wanted

    # ---- consistency

    def check(self) -> None:
        """Raise AssertionError unless the parts of the manager agree."""
        state = self.state
        self.members.check()
        assert all(label < state.next_label for label in state.members)
        assert self.orders.parts.keys() == state.members.keys()
        self.orders.check()
        for topic, kept in state.topics.items():
            roots = [role.root for role in self.members.roles(topic)]
            assert kept.root in roots or self._remains(topic), topic.hex()
            ends = {end for channel in kept.channels for end in (channel.source, channel.target)} - {ALL}
            assert {*kept.entries, *kept.delegates, *ends} <= state.members.keys(), topic.hex()


def _called(member: Member) -> str:
    return member.party.name or member.party.id.hex()[:8]


def _name(topic: bytes, roles: Iterable[Role]) -> str:
    """The topic's name, if a member said it and it is the right one."""
    return next((role.name for role in roles if role.name and topic_id(role.name) == topic), "")
