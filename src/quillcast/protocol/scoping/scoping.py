"""A peer's part in scopes: as a member of some, and as the host of managers of others (figures 20 and 21).

What the managers order becomes of a peer:

- **Its way to the ring.** A scope's orders name three members that have a place in the overlay's ring. The others
  reach it through them, so that a scope is one member of each topic's tree.
- **Its place in the trees below.** A channel to another peer is a link of the topic's tree: this peer invites the
  other to be its child (`topics.messages.Invite`), until it is. So leases, reports and recovery work in a scope as they
  do elsewhere, and while no manager answers, trees repair themselves.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import DOWN, Position
from quillcast.core.host import Host, Timer
from quillcast.core.ids import topic_called
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.reliability.agents import Agents, Domain
from quillcast.protocol.scopes.authority import heeds, manager_heeds, speaks_for
from quillcast.protocol.scopes.channels import Address, Multicast, Party
from quillcast.protocol.scopes.clients import SERVERS_MAX
from quillcast.protocol.scopes.config import TopicRule
from quillcast.protocol.scopes.controller import GROUPS_MAX, LEAVES_MAX, LocalController
from quillcast.protocol.scopes.direct import AnswerDue, DirectPatterns, Found
from quillcast.protocol.scopes.effects import Measure, NotEntitled, Save, ScopeEffect, Send, Superseded
from quillcast.protocol.scopes.filters import Customs
from quillcast.protocol.scopes.hierarchy import OVERLAY
from quillcast.protocol.scopes.hosting import ClientHost, Decided, WaitingUse
from quillcast.protocol.scopes.installing import Installing, without_record
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.membership import Owner, readdressed, remembered
from quillcast.protocol.scopes.messages import (
    OTHERS_MAX,
    WHY_MAX,
    Alive,
    Bounds,
    Carrier,
    ChannelRequest,
    Control,
    EndClient,
    Heard,
    Orders,
    Reached,
    Registration,
    RegistrationRefused,
    Role,
    ServeClient,
    ServesClient,
    Succession,
)
from quillcast.protocol.scopes.rate_limits import RatesDue
from quillcast.protocol.scopes.state import ScopeConfig
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.scoping.branches import Branches
from quillcast.protocol.scoping.opening import Opening
from quillcast.protocol.scoping.questions import Questions
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.membership.subscribing import Subscribing
from quillcast.protocol.topics.messages import Invite
from quillcast.protocol.topics.policy.placement import Placement, Stand, may_have_others
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.state.effects import (
    FindParent,
    Invited,
    LeaveIfIdle,
    RoomTowards,
    RootScopesChanged,
)
from quillcast.protocol.topics.tracing import ScopesHere

BEATS = 4  # signs of life per lease; a guess: three may be lost

SaveState = Callable[[bytes], bool]
"""Writes a manager's state to disk before it returns. False: it could not, so that the manager has to end."""

SEATS_EVERY = 8  # beats between two looks at whether lost seats are back; a guess: ten seconds


class Beat(Timer, frozen=True):
    """Give signs of life, and see what became of the orders."""


class RolesDue(Timer, frozen=True):
    """Register for the topics that applications here began to use."""


class Scoping:
    """The scopes of one peer."""

    __slots__ = (
        "agents", "beat_at", "beat_s", "beats", "bounds", "branches", "contacts", "controller", "direct", "dispatch",
        "domains", "excess", "groups", "had_place", "has_own_topics", "host", "hosting", "installing",
        "known_ends", "managers", "obstacles", "obstructed", "opening", "overlay", "permissions", "placement",
        "publishing", "questions", "refused", "subscribing", "superseded", "table", "trees", "withdrawing",
    )  # fmt: skip

    def __init__(
        self, host: Host, overlay: Pastry, subscribing: Subscribing, publishing: Publishing,
        placement: Placement, table: ForwardingTable, agents: Agents, customs: Customs, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        """`customs` are filters of others."""
        self.host, self.overlay, self.trees = host, overlay, subscribing.trees.by_topic
        self.subscribing, self.publishing, self.permissions = subscribing, publishing, subscribing.known.permissions
        self.permissions.ask(self._refusal)
        self.bounds: tuple[Bounds, ...] = ()  # of which topics scopes bound publishers and subscribers
        self.placement, self.installing, self.dispatch = placement, Installing(host, customs), dispatch
        self.groups: dict[str, bytes] = EMPTY  # multicast mechanisms that this peer takes part in, and their keys
        self.excess: dict[str, int] = EMPTY  # by mark: how much orders lead to beyond bounds, as was told last
        self.known_ends: dict[bytes, Position] = EMPTY  # of topics whose policy changes, at the last sign of life
        self.table, self.agents = table, agents
        table.pass_recorded(self._recorded)
        self.managers: dict[bytes, tuple[ScopeManager, SaveState]] = {}
        self.superseded: Callable[[bytes, int, Contact], None] = _unheard
        """Hears that a manager began a later epoch at another peer."""
        self.obstructed: Callable[[bytes, str, str], None] = _unheard
        """Hears why a scope that is managed here is no member of another one, once for each reason; empty: it is."""
        self.obstacles: dict[bytes, dict[str, str]] = {}  # by scope and superscope: what was told of that last
        self.refused: Callable[[str], object] = _unheard
        """Hears what a member of a scope that is managed here registered for without a right to it."""
        self.controller: LocalController | None = None
        self.domains: dict[bytes, tuple[Domain, ...]] = EMPTY
        self.branches = Branches(host, overlay, self.trees, placement, dispatch)
        self.beat_s = 0.0
        self.beats, self.beat_at = 0, 0.0
        self.had_place = False
        self.has_own_topics = False  # those that name this peer as their creator
        self.contacts: tuple[Contact, ...] = ()  # peers that may lead to the ring
        self.withdrawing = False  # it is about to leave, and registers for no topics any more
        self.hosting = ClientHost(lambda: host.contact, host.incarnation)  # applications whose peer this one is
        self.opening = Opening(host, dispatch)
        self.direct = DirectPatterns(host)  # applications that are served past their own peer
        self.questions = Questions(host, overlay, dispatch)  # of people about running scopes
        dispatch.on_message(Control, self._received)
        dispatch.on_message(Invite, self._invited)
        dispatch.on_message(Reached, self._reached)
        dispatch.on_message(ServeClient, self.direct.serve)
        dispatch.on_message(ServesClient, self.direct.served)
        dispatch.on_message(EndClient, self.direct.ends)
        dispatch.on_timer(AnswerDue, self.direct.overdue)
        dispatch.on_timer(Beat, self._beat)
        dispatch.on_timer(RatesDue, self._rates_due)
        dispatch.on_timer(RolesDue, self._roles_due)

    # ---- calls

    def join(
        self, owners: Iterable[Party], lease_s: float, *, had_place: bool = False,
        tokens: Mapping[bytes, str] = MappingProxyType({}), before: Mapping[bytes, Orders] = MappingProxyType({}),
        contacts: Iterable[Contact] = (),
    ) -> None:  # fmt: skip
        """Become a member of these scopes, the preferred one first, and take part in the network as they order.

        `had_place`: this peer may have had a place in the ring before it was restarted. By the ids of the scopes:
        `tokens` of join lines, and what was ordered `before` (`remembered`), to go by if a manager stays silent. An
        owner without a nodeId waits until it is `found`. `contacts` may lead to the ring.
        """
        self.had_place, self.contacts = had_place, tuple(contacts)
        self.overlay.stay_outside()
        me = self.host.contact
        known = {id_: readdressed(orders, me) for id_, orders in before.items()}
        self.controller = LocalController(Party(me.node_id, me), owners, lease_s, tokens=tokens, before=known)
        self._carry_out(self.host.me, self.controller.begin(self.host.now()))
        self._set_beat(lease_s)

    def found(self, party: Party) -> None:
        """Note where the manager of one of this peer's scopes runs."""
        if self.controller is not None:
            self._carry_out(self.host.me, self.controller.found(party))

    def not_found(self, scope: bytes, why: str, *, for_good: bool = False) -> None:
        """Note why the manager of a scope was not found. `for_good`: the search is over."""
        if self.controller is not None:
            self.controller.membership.not_found(scope, why, for_good=for_good)

    def superscope_found(self, scope: bytes, party: Party) -> None:
        """The manager of a superscope of a scope that is managed here runs there."""
        if scope in self.managers:
            self._carry_out(scope, self.managers[scope][0].found(party))

    def superscope_not_found(self, scope: bytes, owner: bytes, why: str, *, for_good: bool = False) -> None:
        """It was not found yet, for this reason; `for_good`: it will not be."""
        if scope in self.managers:
            manager, _ = self.managers[scope]
            manager.membership.not_found(owner, why, for_good=for_good)
            self._tell_obstacles(manager)

    def manage(self, manager: ScopeManager, save: SaveState) -> None:
        """Be the host of a scope's manager."""
        scope = manager.state.scope.id
        self.managers[scope] = manager, save
        self._carry_out(scope, manager.begin(self.host.now()))
        self._set_beat(manager.config.lease_s)

    def tell(
        self, superseded: Callable[[bytes, int, Contact], None], obstructed: Callable[[bytes, str, str], None],
        refused: Callable[[str], object],
    ) -> None:  # fmt: skip
        """Set who hears what becomes of managers here (see the attributes)."""
        self.superseded, self.obstructed, self.refused = superseded, obstructed, refused

    def set_policies(self, scope: bytes, settings: tuple[TopicRule, ...]) -> bool:
        """Have a scope that is managed here go by policies of its operator. Returns False if its manager has ended."""
        if scope in self.managers:
            self._carry_out(scope, self.managers[scope][0].set_policies(settings))
        return scope in self.managers

    def reconfigure(self, scope: bytes, config: ScopeConfig) -> bool:
        """The file of a scope that is managed here says something else now. False: its manager has ended."""
        if scope in self.managers:
            self._carry_out(scope, self.managers[scope][0].reconfigure(config))
        return scope in self.managers

    def policies_changed(self, scope: bytes) -> None:
        """Have the manager of a scope go by the policies that its configuration has now."""
        if scope in self.managers:
            self._carry_out(scope, self.managers[scope][0].policies_changed())

    def policy_answered(self, scope: bytes, topic: bytes) -> None:
        """Have the manager go on with a topic whose policy was asked, and has answered or was stopped."""
        if scope in self.managers:
            self._carry_out(scope, self.managers[scope][0].policy_answered(topic))

    @property
    def is_refused(self) -> bool:
        """Whether one of the scopes that this peer is to be a member of does not admit it."""
        return any(each.refused for each in self._owners())

    @property
    def is_unmanaged(self) -> bool:
        """Whether the manager of one of this peer's scopes did not run where it was asked."""
        return any(each.unmanaged and each.is_found for each in self._owners())

    def _owners(self) -> Iterable[Owner]:
        return self.controller.membership.owners.values() if self.controller is not None else ()

    def manager_of(self, scope: bytes) -> Contact | None:
        """The peer that runs a scope's manager, if this one knows it: as a member, or as a manager."""
        if scope in self.managers:
            return self.host.contact
        memberships = [manager.membership for manager, _ in self.managers.values()]
        memberships += [self.controller.membership] if self.controller is not None else []
        if (owner := next((each.owners[scope] for each in memberships if scope in each.owners), None)) is not None:
            return owner.party.contact if owner.is_found else None
        members = (manager.members.find(scope) for manager, _ in self.managers.values())
        return next((member.party.contact for member in members if member is not None), None)

    def remembered(self) -> list[Orders]:
        """The orders of each scope that this peer is a member of, to follow after a restart until managers answer."""
        known = ((owner.orders, owner.refused) for owner in self._owners())
        return [remembered(orders) for orders, refused in known if orders is not None and not refused]

    def name(self, topic: bytes) -> str:
        """The scope in which this peer takes part in a topic, or else its first scope; empty if it has none."""
        ordering = self.controller.membership.ordering(topic) if self.controller is not None else None
        if ordering is not None:
            return ordering.name
        return next((owner.party.name for owner in self._owners() if not owner.refused), "")

    def shown(self) -> ScopesHere:
        """What people are shown of this peer's scopes."""
        installing = self.installing
        return ScopesHere(self.name, installing.explain, installing.is_changing, self._carriers, installing.shown)

    def _carriers(self, topic: bytes) -> tuple[Carrier, ...]:
        return self.controller.membership.carriers(topic) if self.controller is not None else ()

    def obstacle(self) -> str:
        """Why this peer is not a member of all its scopes, in a sentence; empty if it is, or has none."""
        return self.controller.membership.obstacle() if self.controller is not None else ""

    # ---- clients

    def client_left(self, id_: bytes) -> None:
        """Forget a client that is gone."""
        self.direct.client_left(id_)
        self._carry_out(id_, self.hosting.leave(id_))

    def client_begins(self, id_: bytes, name: str, doing: Doing, use: object, decided: Decided) -> None:
        """A client wants to publish or subscribe (`ClientHost.begin`)."""
        self._carry_out(id_, self.hosting.begin(id_, WaitingUse(name, doing, use, decided), self.host.now()))

    def client_directs(
        self, id_: bytes, name: str, doing: Doing, use: object, digest: bytes, unreachable: Container[bytes],
        decided: Decided, found: Found,
    ) -> None:  # fmt: skip
        """A client wants to publish or subscribe past this peer, by one that it has not found `unreachable`.

        `decided` hears whether it may. Then `found` hears who serves it, when it shows the secret with this digest.
        """
        client = self.hosting.clients[id_].party.name

        def seek(why_not: str) -> None:
            decided(why_not)
            if not why_not:
                servers = self._servers(id_, topic_called(name), doing)
                self.direct.seek(id_, client, digest, name, doing, servers, unreachable, found)

        waiting = WaitingUse(name, doing, use, seek, direct=True)
        self._carry_out(id_, self.hosting.begin(id_, waiting, self.host.now()))

    def _servers(self, id_: bytes, topic: bytes, doing: Doing) -> Iterable[Contact]:
        """Who may serve a client directly, the preferred one first.

        A manager names them. Outside of scopes they are the parent in the topic's tree, and those closest to its root;
        for publishers the other way round.
        """
        if (named := self.hosting.servers(id_, topic)) is not None:
            return named
        tree, closest = self.trees.get(topic), self.overlay.closest(topic, SERVERS_MAX + 1)
        parent = [tree.parent] if tree is not None and tree.parent is not None else []
        return [*closest, *parent] if doing == "publishes" else [*parent, *closest]

    def withdraw(self) -> bool:
        """Stop taking part in topics. Returns True once no bundles of others pass here, or no manager answers."""
        if self.controller is None or not any(tree.forwards for tree in self.trees.values()):
            return True
        if not self.withdrawing:
            self.withdrawing = True
            self._tell_roles(self.controller)
        return bool(self.controller.membership.silent)

    def leave(self) -> None:
        """Leave the scopes. Managers end with this process, and come back as the same ones."""
        self.direct.guests.close()
        if self.controller is not None:
            self._carry_out(self.host.me, self.controller.leave())
            self.controller = None
            self.hosting.follow(None)
            self.hosting.decide()
            self._install(None)

    # ---- inputs

    def link_lost(self, contact: Contact) -> None:
        """Take note that a link broke or could not be opened."""
        self.direct.link_lost(contact)
        self.questions.link_lost(contact)
        self._carry_out(self.host.me, self.opening.answered(contact))

    def _reached(self, sender: Contact, _: Reached) -> None:
        self._carry_out(self.host.me, self.opening.answered(sender))

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """Take the answer to a measurement that this or another layer requested."""
        if self.controller is not None:
            self._carry_out(self.host.me, self.controller.measured(contact.node_id, proximity))

    def datagram(self, group: Contact, bundle: Bundle) -> Bundle | None:
        """Give a bundle of a multicast mechanism its record at this member. Returns None if it ends here.

        No credit bounds what comes that way, so nothing is kept that has to wait: a bundle of a term or session that is
        not known yet, or for which there is no room. Like any other that was lost, it is asked for later.
        """
        entering, flow = None, self.table.flows.get(bundle.topic)
        is_live = flow is not None and flow.live(bundle.envelope.term) is not None
        if is_live and bundle.envelope.kind is DOWN and self.controller is not None:
            entering = self.installing.came_to_all(self.controller, group.address, bundle)
        if self.table.budget.used_bytes + bundle.size > self.table.budget.limit_bytes:
            self.host.trace(Mark("datagram_without_room"))
            return None
        return entering

    def _received(self, sender: Contact, control: Control) -> None:
        now = self.host.now()
        if not speaks_for(sender, control.message):
            self.host.trace(Mark("scope_impostor"))
            return
        if (disproof := self._disproof(sender, control)) is not None:
            self.host.send(sender, Control(disproof.scope, disproof))
            return
        if control.to in self.managers:
            (manager, _), message = self.managers[control.to], control.message
            if isinstance(message, ChannelRequest) and message.topics and not manager.lets_send(message):
                self.host.trace(Mark("uninvited_sender"))
            if manager_heeds(manager, sender, message):
                self._carry_out(control.to, manager.received(message, now))
                self._tell_obstacles(manager)
        elif control.to == self.host.me and (member := self.controller) and heeds(member, sender, control.message):
            effects = member.received(control.message, now)
            acknowledged = [each for each in effects if isinstance(each, Send) and isinstance(each.message, Alive)]
            self._carry_out(control.to, (each for each in effects if each not in acknowledged))
            self._follow(member)
            if acknowledged:
                self._carry_out(control.to, self.opening.acknowledge(acknowledged))
        elif (client := self.hosting.controller(control.to)) and heeds(client, sender, control.message):
            self._carry_out(control.to, client.received(control.message, now))
            self.hosting.decide()
        elif isinstance(control.message, Registration) and control.to not in (self.host.me, *self.hosting.clients):
            party = control.message.member
            self.host.send(sender, Control(party.id, RegistrationRefused(control.to, 0, self._not_managed())))

    def _tell_obstacles(self, manager: ScopeManager) -> None:
        """Tell once why a scope that is managed here is no member of others, and that it is one at last."""
        scope, membership = manager.state.scope.id, manager.membership
        told, now = self.obstacles.setdefault(scope, {}), membership.obstacles()
        over = dict.fromkeys((name for name in membership.admitted() if name in told), "")
        for owner, why in (now | over).items():
            if told.get(owner, "") != why:
                told[owner] = why
                self.obstructed(scope, owner, why)

    def _not_managed(self) -> str:
        here = ", ".join(manager.state.scope.name for manager, _ in self.managers.values()) or "none"
        address = self.host.contact.address
        return f"the peer at {address} does not run its manager; it runs those of: {here}"

    def _invited(self, sender: Contact, message: Invite) -> None:
        """Be the child of another peer, if a manager of this peer's scopes wants that."""
        membership = self.controller.membership if self.controller is not None else None
        topics = [topic for topic in message.topics if membership and membership.invited_by(message.invitation, topic)]
        if topics:
            self.dispatch.order(Invited(tuple(topics), sender))
        else:
            self.host.trace(Mark("uninvited"))

    def _disproof(self, sender: Contact, control: Control) -> Succession | None:
        """Return what proves to a former manager that another one has replaced it."""
        if isinstance(control.message, Registration) and control.to in self.managers:
            members = self.managers[control.to][0].members
            return members.disproof(control.message.member.id, control.message.succession)
        if not isinstance(control.message, Orders | Heard):
            return None
        party = self.managers[control.to][0] if control.to in self.managers else self.controller
        party = self.hosting.controller(control.to) or party
        return party.membership.disproof(control.message, sender) if party is not None else None

    def _beat(self, timer: Beat) -> None:
        now = self.host.now()
        self.beats += 1
        former, self.beat_at = self.beat_at, now
        for scope, (manager, _) in list(self.managers.items()):
            self._carry_out(scope, manager.passed(now))
            self.questions.tell(scope, manager, self.beats)
        if self.controller is not None:
            if now - former > self.controller.membership.lease_s:
                self.controller.membership.returned()
            self._tell_roles(self.controller)
            self._carry_out(self.host.me, self.controller.passed(now, behind=self._is_behind()))
            self._follow(self.controller)
            for client, effects in self.hosting.beat(now):
                self._carry_out(client, effects)
            self.branches.climb(self.controller, self.beats)
            self.branches.give_way(self.controller, self.beats)
            for topic, parent in self.branches.new_parents(self.controller, self.beats):
                self._carry_out(self.host.me, self.controller.outer_parent(topic, parent))
            if self.beats % SEATS_EVERY == 0:
                self.overlay.seats.look_for_lost()
        if self.managers or self.controller is not None:
            self.host.set_timer(timer, self.beat_s)

    def _roles_due(self, timer: RolesDue) -> None:
        if self.controller is not None:
            self._tell_roles(self.controller)

    def _rates_due(self, timer: RatesDue) -> None:
        for contact in self.installing.rate_limits.due(timer):
            self.dispatch.order(RoomTowards(contact))

    def _set_beat(self, lease_s: float) -> None:
        beat_s = lease_s / BEATS
        if not self.beat_s:
            self.host.set_timer(Beat(), beat_s)
            self.beat_at = self.host.now()
        self.beat_s = min(beat_s, self.beat_s or beat_s)

    def _tell_roles(self, controller: LocalController) -> None:
        """Register for the topics that this peer subscribes to, or is a source of, or whose publishers are bounded."""
        subscribed, published = ({}, {}) if self.withdrawing else (self.subscribing.topics(), self._published())
        bounded = {topic: each for topic, each in published.items() if self._is_bounded(each)}
        self.permissions.forget(subscribed, bounded)
        known = controller.membership.roles
        roots = {"": OVERLAY} | {root.name: root.scope for root in controller.membership.roots()}
        changed = [Role(topic) for topic in known if topic not in subscribed and topic not in published]
        for topic, descriptor in (published | subscribed).items():
            if (root := roots.get(descriptor.settings.root_scope)) is None:
                continue  # this peer lies below another scope than when the topic was used first
            tree_only, reliable = not may_have_others(descriptor), descriptor.settings.reliable
            is_source = topic in published and descriptor.settings.by_source
            if topic in bounded:
                is_source = is_source and not self.permissions.why_not(descriptor, "publishes")
            role = Role(
                topic, root, publishes=is_source, subscribes=topic in subscribed, name=descriptor.name,
                tree_only=tree_only, reliable=reliable, has_publishers=topic in bounded,
                unusable=self.installing.unusable.get(topic, "")[:WHY_MAX],
            )  # fmt: skip
            if known.get(topic) != role:
                changed.append(role)
        if changed:
            self._carry_out(self.host.me, controller.take_part(*changed))

    def _published(self) -> dict[bytes, Descriptor]:
        """The topics with publishers here that a scope counts, or whose events this peer numbers."""
        published = self.publishing.topics().items()
        return {topic: each for topic, each in published if each.settings.by_source or self._is_bounded(each)}

    def _is_bounded(self, descriptor: Descriptor) -> bool:
        named = not descriptor.creator
        return named and any(each.apply(descriptor.name, "publishes") for each in self.bounds)

    def _refusal(self, name: str, topic: bytes, doing: Doing) -> str | None:
        """Why applications here may not begin to do this in a topic (`Permissions`)."""
        return self.controller.membership.why_not(name, topic, doing) if self.controller is not None else None

    def used(self, descriptor: Descriptor) -> None:
        """An application begins to use a topic: register at once if it has to wait for that.

        This peer is the root of topics that name it as their creator, and only peers in the ring are roots of any.
        """
        if self.controller is None:
            return
        if descriptor.creator == self.host.me.hex():
            self.has_own_topics = True
            self._find_way(self.controller)
        if self.subscribing.unpermitted or self.publishing.bound(descriptor.topic):
            self._tell_roles(self.controller)
        elif self.overlay.is_invited:
            self.host.set_timer(RolesDue(), 0.0)  # once for all topics that are used in this turn

    # ---- what managers order

    def _follow(self, controller: LocalController) -> None:
        changed = self._follow_bounds(controller)
        if self.overlay.seats.follow(controller.membership.roots()):
            self.dispatch.order(RootScopesChanged())
        self._find_way(controller)
        self._install(controller)
        self.hosting.follow(controller.membership)
        self.hosting.decide()
        if changed or self.bounds:
            self._heed_refusals(controller)
            self.subscribing.permitted()
            self.publishing.permitted()
        if not self.overlay.lifecycle.left:
            self.branches.enter(controller)
            self.branches.invite(controller, self.beats)

    def _heed_refusals(self, controller: LocalController) -> None:
        """Give applications here the error for what this peer may not do (any longer)."""
        if topics := controller.membership.refused_in():
            for topic in topics:
                for doing, why in controller.membership.refusals(topic):
                    using: Publishing | Subscribing = self.publishing if doing == "publishes" else self.subscribing
                    using.refuse(topic, why)
            self._tell_roles(controller)

    def _follow_bounds(self, controller: LocalController) -> bool:
        """Apply the bounds of scopes. Returns whether they changed."""
        bounds, former = controller.membership.bounds(), self.bounds
        if bounds == former:
            return False
        self.bounds = bounds
        self.publishing.bounds_changed()
        self.subscribing.bounds_changed()
        self._tell_roles(controller)
        return True

    def _find_way(self, controller: LocalController) -> None:
        """Have a place in the ring, or reach it through those that have."""
        if not (ring := controller.membership.ring()):
            return
        self.overlay.stand_by(ring, invited=controller.membership.invites())
        others = tuple(contact for contact in ring if contact.node_id != self.host.me)
        if not self.overlay.outside:
            return  # a member that has a place keeps it
        if self.has_own_topics or len(others) < len(ring):
            self.host.trace(Mark("ring_place_taken"))
            owners = controller.membership.owners.values()
            managers = (owner.party.contact for owner in owners if owner.is_found)
            self.overlay.join([*others, *managers, *self.contacts])
        elif self.overlay.entries != others:
            self.overlay.enter(others, had_place=self.had_place)

    def _install(self, controller: LocalController | None) -> None:
        """Install the channels that are ordered now."""
        groups = _sent_to(controller) | controller.membership.groups() if controller is not None else {}
        if groups != self.groups:
            self.groups = groups
            self.host.multicast(groups)
        self._tell_excess(controller)
        self._take_part(controller)
        topics = self.installing.follow(controller)
        self.table.guard(self.installing.borders)
        self.placement.order(self.installing.topics, self._members(controller), _entry_points(controller))
        self.opening.follow(each for members in self.placement.members.values() for each in members)
        self._enter(controller)
        for topic in topics:
            if topic in self.trees:
                self.placement.install(self.trees[topic])
        self._forward(controller)

    def _tell_excess(self, controller: LocalController | None) -> None:
        """Tell when managers have this peer send to more groups or addresses than it does, and when they are more."""
        groups, cut = (controller.groups_refused, controller.channels_cut) if controller is not None else (0, 0)
        excess = {"groups_refused": groups, "channels_cut": cut}
        for mark, why in (("groups_refused", _many_groups(groups)), ("channels_cut", _long_channels(cut))):
            if excess[mark] > self.excess.get(mark, 0):
                self.host.trace(Mark(mark))
                self.refused(why)
        self.excess = excess

    def _forward(self, controller: LocalController | None) -> None:
        """Receive the events of topics that this peer is to pass on, even if nobody here subscribes (any more)."""
        assignments = controller.membership.recorded() if controller is not None else {}
        ordered = {topic: None for topic, assignment in assignments.items() if assignment.forwards}
        for tree in list(self.trees.values()):
            forwards = tree.topic in ordered and may_have_others(tree.descriptor)
            if tree.forwards != forwards:
                tree.set_forwards(forwards)
                self.dispatch.order(FindParent(tree.topic) if forwards else LeaveIfIdle(tree.topic))

    def _enter(self, controller: LocalController | None) -> None:
        """Report to those above as the entry point of a scope, where this peer is."""
        former = self.placement.enter(_entered(controller))
        for topic in self.placement.entered:
            if topic not in former and topic in self.trees:
                self.subscribing.schedule.touch(self.trees[topic])

    def _take_part(self, controller: LocalController | None) -> None:
        """Have an agent in each recovery domain that managers order."""
        ordered = controller.membership.domains() if controller is not None else {}
        domains = {
            topic: tuple(Domain(each.scope, each.recovery, each.others) for each in circles)
            for topic, circles in ordered.items()
            if circles
        }
        self.placement.stand(_stands(controller, domains))
        if domains != self.domains:
            self.domains = domains
            self.placement.know(_fellows(domains))
            self.agents.follow(domains)

    def _members(self, controller: LocalController | None) -> dict[bytes, dict[Contact, int]]:
        """By topic: the members to which channels from here lead, and in which domain they are with this peer.

        A channel that lies so many levels above this peer leads to a member of the domain so far around its own.
        """
        members: dict[bytes, dict[Contact, int]] = {}
        assignments = controller.membership.ordered_assignments() if controller is not None else {}
        for channel in controller.channels if controller is not None else ():
            match channel.spec:
                case Address(contact) if contact.node_id != self.host.me:
                    for topic, depth, *_ in channel.constraints:
                        here, others = assignments.get(topic), members.setdefault(topic, {})
                        level = max(0, (here.depth or 0) - depth) if here is not None else 0
                        others[contact] = min(level, others.get(contact, level))
        return members

    def _is_behind(self) -> bool:
        """Whether events are missing, in topics whose policy changes, that were known at the last sign of life."""
        former, trees = self.known_ends, [self.trees[each] for each in self.installing.changing if each in self.trees]
        self.known_ends = {tree.topic: Position(tree.term, tree.known_end) for tree in trees}
        here = (Position(tree.term, tree.frontier) for tree in trees)
        return any(position < former.get(tree.topic, position) for tree, position in zip(trees, here, strict=True))

    def _recorded(self, bundle: Bundle) -> Bundle | None:
        """Return a bundle with a routing record as it is at this member, or None if it does not belong here."""
        if self.controller is None:
            return without_record(bundle)
        return self.installing.arrived(self.controller, bundle)

    # ---- effects

    def _carry_out(self, party: bytes, effects: Iterable[ScopeEffect]) -> None:
        for effect in effects:
            match effect:
                case Save():
                    manager, save = self.managers[party]
                    if not save(manager.saved()):
                        del self.managers[party]
                        return  # nothing follows that it would not know of afterwards
                case Send(to, message):
                    self.host.send(to.contact, Control(to.id, message))
                case Measure(to):
                    self.host.measure(to.contact)
                case NotEntitled(why):
                    self.refused(why)
                case Superseded(epoch, at):
                    self.host.trace(Mark("manager_superseded"))
                    del self.managers[party]
                    self.superseded(party, epoch, at)
                    return

    def check(self) -> None:
        """Raise AssertionError unless the managers here are consistent."""
        for manager, _ in self.managers.values():
            manager.check()


def _many_groups(count: int) -> str:
    return (
        f"other scopes name {GROUPS_MAX + count} multicast groups for this peer to send to, more than {GROUPS_MAX}: it "
        "sends to the entry points of the rest alone, and their members ask for what they miss; set `multicast = true` "
        "in fewer of the scopes that receive"
    )


def _unheard(*what: object) -> None:
    """Nobody has asked to hear of this."""


def _long_channels(count: int) -> str:
    return (
        f"{count} of the channels ordered of this peer lead to more than {LEAVES_MAX} addresses: it sends to the first "
        f"{LEAVES_MAX} of each, and others ask for what they miss; set a lower `entry_points` in the files of the "
        "scopes that receive"
    )


def _sent_to(controller: LocalController) -> dict[str, bytes]:
    """The multicast mechanisms by which channels lead into other scopes, and their keys."""
    specs = [channel.spec for channel in controller.channels]
    return {spec.mechanism: spec.key for spec in specs if isinstance(spec, Multicast) and spec.key}


def _entry_points(controller: LocalController | None) -> dict[bytes, Contact]:
    """By topic: the scope's entry point, where that is another than the one that Joins reach first."""
    assignments = controller.membership.ordered_assignments() if controller is not None else {}
    return {topic: assignment.entry for topic, assignment in assignments.items() if assignment.entry is not None}


def _entered(controller: LocalController | None) -> dict[bytes, None]:
    """The topics in which a member is the entry point of its scope."""
    assignments = controller.membership.ordered_assignments() if controller is not None else {}
    return {topic: None for topic, assignment in assignments.items() if assignment.rank == 0}


def _fellows(domains: Mapping[bytes, Sequence[Domain]]) -> dict[bytes, frozenset[bytes]]:
    """By topic: all others in this peer's innermost domain. Of a large one it was not told of all."""
    innermost = {topic: nested[0].others for topic, nested in domains.items() if len(nested[0].others) < OTHERS_MAX}
    fellows = {others: frozenset(each.node_id for each in others) for others in innermost.values()}
    return {topic: fellows[others] for topic, others in innermost.items()}


def _stands(controller: LocalController | None, domains: Mapping[bytes, Sequence[Domain]]) -> dict[bytes, Stand]:
    """How this peer stands in domains of topics in which it is the head of its scope within another one.

    The peer upstream is in the outermost of them, unless this one is the entry point of all.
    """
    assignments = controller.membership.ordered_assignments() if controller is not None else {}
    return {
        topic: Stand(len(nested), len(nested) - (assignments[topic].ring != 0))
        for topic, nested in domains.items()
        if len(nested) > 1
    }
