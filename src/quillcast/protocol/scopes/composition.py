"""What a scope orders its members to do for one topic: the channels of its policy, and those passed on to it.

A function of the scope's state. It chooses entry points and delegates, asks the policy, and makes an order of each
channel. Candidates are the members that came first. The entry point is the nearest of three to the senders. Delegates
are preferably other members, because the entry point has enough work.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import inf
from typing import NamedTuple

import msgspec

from quillcast.core.messages import Contact
from quillcast.core.multicast import parse
from quillcast.protocol.scopes.channels import (
    Ask,
    ChannelOrder,
    Constraint,
    Multicast,
    Rate,
    Spec,
    SpecOf,
    Subchannel,
    Subchannels,
    aside,
    both,
    delegated,
    entered,
    for_topic,
    one_of,
    replicated,
    to_party,
)
from quillcast.protocol.scopes.filters import NO_BUNDLE, Filter, Larger, Modulo, stops
from quillcast.protocol.scopes.hierarchy import OVERLAY
from quillcast.protocol.scopes.labels import DEPTH_MAX, ChannelLabel
from quillcast.protocol.scopes.messages import OTHERS_MAX, SHOWN_MAX, Assignment, Carrier, Circle, Role, does
from quillcast.protocol.scopes.policies import called
from quillcast.protocol.scopes.policies.links import LabelPair, build_tree
from quillcast.protocol.scopes.policy import ALL, Group, NoAnswer, ScopePolicy, WantedChannel, mechanism_of
from quillcast.protocol.scopes.rates import agreed
from quillcast.protocol.scopes.reach import carried, unreached
from quillcast.protocol.scopes.state import RING_MAX, Member, ScopeConfig, ScopeState, Topic
from quillcast.protocol.scopes.swaps import Swap
from quillcast.protocol.scopes.uses import Doing

BETTER = 0.8  # the chosen member stays until another is nearer by a fifth; a guess that outlasts noise
LINKS_MAX = 16  # children of one peer in a tree that stays: as many as a peer takes in (`children_per_topic_max`)
"""Of a link over which nothing is sent unasked."""


class Part(NamedTuple):
    """What a member is ordered to do for one topic."""

    assignment: Assignment
    channels: tuple[ChannelOrder, ...] = ()
    mechanisms: tuple[str, ...] = ()
    """The multicast mechanisms that bundles may come over."""
    around: tuple[Circle, ...] = ()
    """The recovery domains around the scope's in which it is the scope's head."""
    invitations: tuple[bytes, ...] = ()
    """Of a scope: those that its present senders show."""


class ScopeContext(NamedTuple):
    """What is around a scope in one topic."""

    assignment: Assignment
    """The scope's own assignment: in its superscope, in the overlay, or as the root scope, at depth 0."""
    is_top: bool
    """Does the scope take part in the overlay's tree for nobody else?"""
    outgoing: tuple[ChannelOrder, ...]
    """The channels that its superscope ordered of it."""
    answers: SpecOf
    round_trip: Callable[[bytes, bytes], float | None]
    """From a peer that speaks for a member to a party, in seconds."""
    seats: tuple[int, ...] | None = None
    """Of a topic with a rendezvous point in a managed scope: the members that have it and are next, if they have it."""
    why_not: Callable[[Doing], str] = lambda doing: ""
    """Why the scope's members may not publish or subscribe, as scopes above bound that; empty if they may."""
    parent: bytes | None = None
    """The peer outside below which the scope hangs in the overlay's tree, if it is known."""
    circles: tuple[Circle, ...] = ()
    """The recovery domains that the scope's own is in, the nearest first."""


class Composition:
    """One topic in one scope, as of now."""

    def __init__(
        self, state: ScopeState, config: ScopeConfig, topic: bytes, around: ScopeContext, users: Iterable[Member],
        policy: ScopePolicy | None, swap: Swap | None = None,
    ) -> None:  # fmt: skip
        """`users` have roles in the topic. `policy` is in force. It may be about to change, or have just: `swap`."""
        self.state, self.config, self.topic, self.around = state, config, topic, around
        self.kept: Topic = state.topics[topic]
        self.none = Role(topic)  # of members that do nothing in it for themselves
        self.policy, self.swap = policy, swap
        self.asks_round_trips = False  # does the policy use those between members?
        self.unanswered: NoAnswer | None = None  # why the policy in use does not say which channels it wants
        self.senders = [sender for sender in state.senders.values() if topic in sender.topics]
        self.entering = config.entering(self.kept.name)
        using = [each for each in users if self._uses(each)]
        self.using = {each.label: each for each in using}
        self.publishing, self.subscribing = map(dict.fromkeys, self._admit())
        taking = [each for each in using if self._takes_part(each)]
        self.members = {each.label: each for each in taking}
        self.remaining = {} if self.members else self._remaining()
        self.members |= self.remaining
        if around.is_top:  # the overlay reaches its entry point, even if nobody subscribes there
            self.members |= {label: state.members[label] for label in state.ring}
        for label in (around.seats or ())[:1]:  # all bundles begin there
            if not state.members[label].party.managed:
                self.members[label] = state.members[label]
        self.departing = self._departing()
        self.members |= {label: state.members[label] for label in self.departing}

    def _remaining(self) -> dict[int, Member]:
        """The members through which bundles of other scopes pass, though none takes part any longer."""
        acting = (*self._entered, *self.kept.delegates) if self.around.assignment.forwards else ()
        members = (self.state.members[label] for label in acting if label in self.state.members)
        return {each.label: each for each in members if self._may_forward(each)}

    def _departing(self) -> dict[int, None]:
        """The members that no longer take part, but still forward bundles in transit."""
        ends, known = _ends(self._all_channels()) if self.kept.records else (), self.state.members
        members = [known[label] for label in ends if label in known and label not in self.members]
        return {each.label: None for each in members if self._may_forward(each)}

    def _may_forward(self, member: Member) -> bool:
        """May it forward though it takes no part? A scope says itself that it does: it may have turned to another."""
        return self.topic in member.roles if member.party.managed else self.topic not in member.refused

    @property
    def _entered(self) -> tuple[int, ...]:
        """The entry points at which bundles enter, without the stand-bys."""
        return self.kept.entries[: self.config.entry_points]

    @property
    def _to_enter(self) -> tuple[int, ...]:
        """The entry points of the next channels: without those that no longer take part."""
        return tuple(each for each in self.kept.entries if each not in self.departing)[: self.config.entry_points]

    @property
    def _delegated(self) -> tuple[int, ...]:
        """The delegates, and those before them that still send out of the scope."""
        return (*self.kept.delegates, *self.kept.former_delegates)

    def _all_channels(self) -> tuple[WantedChannel, ...]:
        """The channels of all versions."""
        return (*self.kept.channels, *(self.swap.channels if self.swap is not None else ()))

    def _admit(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The members that may publish and subscribe. They are remembered where their number is limited."""
        using, kept, entering = self.using.values(), self.kept, self.entering
        to_publish = [each.label for each in using if self._role(each).has_publishers]
        publishing = _admitted(kept.publishing, to_publish, entering.publishers_max)
        subscribing = _admitted(kept.subscribing, self._doing(using, "subscribes"), entering.subscribers_max)
        kept.publishing = publishing if entering.publishers_max else ()
        kept.subscribing = subscribing if entering.subscribers_max else ()
        return publishing, subscribing

    def _uses(self, member: Member) -> bool:
        role = member.roles.get(self.topic)
        return role is not None and role.root == self.kept.root

    def _doing(self, members: Iterable[Member], doing: Doing) -> list[int]:
        return [each.label for each in members if does(self._role(each), doing)]

    def _takes_part(self, member: Member) -> bool:
        """Does it send or receive over channels? A member that only has publishers sends to the topic's root."""
        role = self._role(member)
        if role.subscribes:
            return member.label in self.subscribing and not self.around.why_not("subscribes")
        return role.publishes

    def _labels(self, doing: Doing) -> list[int]:
        if self.remaining:
            return [*self.remaining] if doing == "subscribes" else []
        labels = self._doing(self.members.values(), doing)
        return [label for label in labels if label in self.subscribing] if doing == "subscribes" else labels

    def _role(self, member: Member) -> Role:
        return member.roles.get(self.topic, self.none)

    def composed(self) -> dict[int, Part]:
        """Choose again who does what, and order it."""
        if self._obstacle() is None and self._staying():
            self._choose()
        else:
            self.kept.clear()
            if self.swap is not None:
                self.swap.carry_by(())
        return self._parts()

    def _staying(self) -> tuple[int, ...]:
        return tuple(label for label in self.members if label not in self.departing)

    # ---- who does what

    def _choose(self) -> None:
        """Choose entry points and delegates, and ask the policy for channels."""
        able = self.state.ring if self.around.is_top else ()
        able = able or self._able()
        askers = [sender.party.id for sender in self.senders]
        askers += [self.around.parent] if self.around.parent is not None else []
        acting = self._entered
        seats = tuple(label for label in self.around.seats or () if label in self.members)
        chosen = seats if self._begins_here() else self._nearest(able, askers, acting)
        entries = tuple(chosen[: max(RING_MAX, self.config.entry_points)])
        former = tuple(label for label in self._delegated if label in self.departing)
        entered = tuple(dict.fromkeys((*self._still_entered(), *entries)))
        self.kept.choose(entered, self._delegates(able, entries[:1]), former)
        if self.policy is not None:
            self._carry_on(self.policy)
        if self.swap is not None:
            self.swap.carry_by(*self._channels_of(self.swap))
        self._let_go()
        self.kept.leave_by(tuple(dict.fromkeys((*self._delegated, *self._upwards()))))
        links = self.kept.links
        self._choose_links()
        self._bridge(links)

    def _able(self) -> tuple[int, ...]:
        """Those that receive the topic anyway, and those that enter or send it and still take part."""
        receiving, acting = self._labels("subscribes"), (*self._entered, *self.kept.delegates)
        still = [label for label in acting if label in self._staying() and label in _ends(self.kept.channels)]
        return tuple(dict.fromkeys((*receiving, *still))) if receiving else self._staying()

    def _still_entered(self) -> tuple[int, ...]:
        """The entry points, if one of them no longer takes part, until the channels of others are in use."""
        left = _ends(self.kept.channels).keys() & self.departing.keys()
        if self._begins_here() or left.isdisjoint(self._entered):
            return ()
        return tuple(label for label in self._entered if label in self.members)

    def _delegates(self, able: Sequence[int], first: Sequence[int]) -> tuple[int, ...]:
        """Delegates keep their shares. New ones take the shares of those that ended; the entry point is chosen last."""
        others = sorted(able, key=lambda label: (label not in self.kept.delegates, label in first))
        chosen = others[: self.config.replicas] if self.around.outgoing else []
        new = iter(sorted(label for label in chosen if label not in self.kept.delegates))
        shares = [label if label in chosen else next(new, None) for label in self.kept.delegates]
        return (*(label for label in shares if label is not None), *new)

    def _let_go(self) -> None:
        """Have members that no longer take part end what they do, if no channel needs them any longer."""
        ends, kept = _ends(self._all_channels()), self.kept
        self.members = {
            label: each for label, each in self.members.items() if label in ends or label not in self.departing
        }
        entries = tuple(label for label in kept.entries if label in self.members)
        kept.choose(entries, kept.delegates, tuple(label for label in kept.former_delegates if label in self.members))

    def _bridge(self, former: Sequence[LabelPair]) -> None:
        """Until channels lead to members that came, or lost the one above them, links carry everything there.

        While the policy gives no answer, they do so wherever its channels do not lead.
        """
        links, bridges = self.kept.links, self.kept.bridges
        if self.policy is not None and self.unanswered is not None:
            lost = unreached(self.policy.delivery, self._group(), self.kept.channels, self._carried())
            both_ways = (pair for link in links for pair in (link, link[::-1]))
            self.kept.bridge(tuple(pair for pair in both_ways if pair[1] in lost))
            return
        self.kept.bridge(())
        if former and self.kept.records:
            parents = {target: source for source, target in former}
            staying = ((source, target) for source, target in links if target not in self.departing)
            alone = {target for source, target in staying if parents.get(target) not in self.state.members}
            new = [link for link in links if link[1] in alone and link not in former]
            carrying = tuple(WantedChannel(*link, None) for link in dict.fromkeys((*bridges, *new)))
            surplus = _without(self._between_members(carrying), self.kept.channels)
            self.kept.carry_by(self.kept.wanted, (*self.kept.surplus, *surplus))

    def _carried(self) -> tuple[int, ...]:
        """The members at which bundles begin their way on channels. Those of others take the links of the tree."""
        return carried(self._group(), self.kept.channels, self.kept.entries[:1])

    def _begins_here(self) -> bool:
        """Is the rendezvous point of a topic rooted at a managed scope at, or in, a member that takes part?"""
        return any(label in self.members for label in (self.around.seats or ())[:1])

    def _carry_on(self, policy: ScopePolicy) -> None:
        """Carry the topic by the channels that the policy wants now.

        New ones are added at once, which harms no bundle. Channels that it no longer wants stay until others have
        replaced them (`swaps`), if any of them leads to a member that still receives.
        """
        wanted, self.unanswered = self._wanted(policy, self.kept.wanted)
        receivers = frozenset((ALL, *self._group().receivers, *self._delegated, *self._upwards()))
        former = _without(self._between_members(self.kept.channels), wanted)
        are_missed = self.kept.records and any(each.target in receivers for each in former)
        self.kept.carry_by(wanted, former if are_missed else ())

    def _channels_of(self, swap: Swap) -> tuple[tuple[WantedChannel, ...], NoAnswer | None]:
        """The channels of a change: those to come as the policy wants them, or former ones, none of which goes yet.

        And why the policy that is to come does not say which it wants, if it does not.
        """
        if swap.begins_later:
            return (self.kept.wanted, None) if swap.renews else self._wanted(swap.other, swap.channels)
        present = self._between_members(swap.channels)
        wanted = () if swap.renews else self._wanted(swap.other, present)[0]
        return (*present, *_without(wanted, present)), None

    def _wanted(
        self, policy: ScopePolicy, present: tuple[WantedChannel, ...]
    ) -> tuple[tuple[WantedChannel, ...], NoAnswer | None]:
        """What a policy wants. If it gives no answer: what stands between those that still take part, and why."""
        group, present = self._group(), self._between_members(present)
        try:
            return self._between_members(policy.channels(group, present, self._round_trip)), None
        except NoAnswer as why:
            left = frozenset((*group.members, ALL, None))
            return tuple(each for each in present if left.issuperset(each[:3])), why.with_traceback(None)

    def _nearest(self, labels: Iterable[int], to: list[bytes], chosen: tuple[int, ...]) -> list[int]:
        """The members nearest to any of these parties.

        The present choice stays until another is much nearer, and until it has been measured itself.
        """

        def key(label: int) -> tuple[float, bool]:
            trips = [trip for id_ in to if (trip := self._way(self.state.members[label], id_)) is not None]
            if label in chosen:
                return min(trips, default=0.0) * BETTER, False
            return min(trips, default=inf), True

        return sorted(labels, key=key)

    def _between_members(self, channels: tuple[WantedChannel, ...]) -> tuple[WantedChannel, ...]:
        targets = self.members.keys() | {ALL}
        return tuple(each for each in channels if each.source in self.members and each.target in targets)

    def _round_trip(self, source: int, target: int) -> float | None:
        self.asks_round_trips = True
        known = self.state.members
        if source not in known or target not in known:
            return None  # a policy that answers later may ask about one that is gone
        head = known[target].head(self.topic)
        return self._way(known[source], head.node_id) if head is not None else None

    def _way(self, member: Member, to: bytes) -> float | None:
        head = member.head(self.topic)
        return self.around.round_trip(head.node_id, to) if head is not None else None

    def _group(self) -> Group:
        """The members, as the policy sees them. One that passes bundles out of the scope must receive them all."""
        publishing = self._labels("publishes")
        comes_in = self.senders or self._begins_at_entry
        entries = self._to_enter if comes_in and not self._incoming else ()
        return Group(
            self._staying(),
            tuple(sorted({*publishing, *entries})),
            tuple(sorted({*self._labels("subscribes"), *self.kept.delegates, *self._upwards(self._to_enter)})),
        )

    # ---- orders

    def _parts(self) -> dict[int, Part]:
        """By label: what each member is ordered to do."""
        why = self._obstacle()
        if why is not None:
            waiting = dict.fromkeys([*self.members, *self.using])
            return {label: Part(Assignment(self.topic, why=why)) for label in waiting}
        depth = (self.around.assignment.depth or 0) + 1
        channels, inside = dict[int, list[ChannelOrder]](), [*self._inside(depth)]
        for label, order in (*inside, *self._passed_on()):
            channels.setdefault(label, []).append(order)
        invitations = self._invitations(order for _, order in inside)
        at_once, forwarding = self._mechanisms(), self._forwarding()
        parts = {
            label: Part(
                self._assignment(label, depth, forwards=label in forwarding),
                tuple(channels.get(label, ())),
                at_once if not self._is_scope(label) else (),
                self._around() if label in self.kept.entries[:1] else (),
                tuple(invitations.get(label, ())),
            )
            for label in self.members
        }
        for label, member in self.using.items():
            permitted = self._permitted(parts[label].assignment if label in parts else Assignment(self.topic), member)
            if permitted.depth is None and (permitted.publishes or permitted.subscribes):
                permitted = msgspec.structs.replace(permitted, depth=depth)
            parts[label] = parts.get(label, Part(permitted))._replace(assignment=permitted)
        return parts

    def _permitted(self, assignment: Assignment, member: Member) -> Assignment:
        """What the member may begin, or what it waits for."""
        role = self._role(member)
        publishes = self._why_not(member, "publishes") if role.has_publishers else None
        subscribes = self._why_not(member, "subscribes") if role.subscribes else None
        return msgspec.structs.replace(
            assignment, publishes=publishes == "", subscribes=subscribes == "", why=publishes or subscribes or ""
        )

    def _why_not(self, member: Member, doing: Doing) -> str:
        is_publisher = doing == "publishes"
        admitted = self.publishing if is_publisher else self.subscribing
        if member.label in admitted:
            return self.around.why_not(doing)
        what = "publishers" if is_publisher else "subscribers"
        most = self.entering.publishers_max if is_publisher else self.entering.subscribers_max
        return (
            f"topic {self.kept.name} has {len(admitted)} of at most {most} {what} in scope {self.state.scope.name}: "
            f"wait until one ends, or raise {what}_max in the scope's file"
        )

    def _obstacle(self) -> str | None:
        """Why the scope cannot carry the topic; empty if even its superscope does not know."""
        assignment, name = self.around.assignment, self.state.scope.name
        if self.policy is None:
            return f"scope {name} does not carry topic {self.kept.name}; its manager's file has no rule for it"
        if why := self._unkeepable():
            return why
        if assignment.depth is None:
            return assignment.why
        if assignment.depth >= DEPTH_MAX:
            return (
                f"scope {name} lies {assignment.depth} levels below the topic's root scope; its "
                "members would be too deep"
            )
        return None

    def _unkeepable(self) -> str:
        """Why the scope cannot carry the topic as its file says; empty if it can."""
        rule = f"the rule for topic {self.kept.name} in the file of scope {self.state.scope.name}"
        filter_, members = self.entering.filter, [*self.members.values()]
        if filter_ is not None and stops(filter_) and any(self._role(each).reliable for each in members):
            return (
                f"{rule} has a filter, but subscribers of a reliable topic must get every event: create the topic with "
                "delivery = best_effort, or remove the filter"
            )
        if self._is_guarded and any(self._role(each).tree_only for each in members):
            return f"{rule} has a filter or rates, but the topic has a list of subscribers: remove one or the other"
        return ""

    @property
    def _is_guarded(self) -> bool:
        """Is there a limit on what enters or leaves?"""
        return self.entering.filter is not None or bool(self._rates() or self.leaving())

    def _rates(self) -> list[Rate]:
        """The limits of all senders together."""
        return [rate for rate in self._most() if rate.limits]

    def _most(self) -> tuple[Rate, Rate]:
        """The limits for entering, in the topic and in all topics."""
        scope, one, all_ = self.state.scope.id, self.entering, self.config.in_all
        return (
            Rate(scope, self.topic, one.bytes_per_s, one.bundles_per_s),
            Rate(scope, None, all_.bytes_per_s, all_.bundles_per_s),
        )

    def leaving(self) -> tuple[Rate, ...]:
        """The scope's limits as a sender: in the topic, and in all topics."""
        scope, one, all_ = self.state.scope.id, self.config.leaving(self.kept.name), self.config.out_of_all
        rates = (Rate(scope, self.topic, *one, leaves=True), Rate(scope, None, *all_, leaves=True))
        return tuple(rate for rate in rates if rate.limits)

    def _leaving_each(self) -> tuple[Rate, ...]:
        """The same for each member that sends out of the scope, in this topic or in any."""
        n = max(1, len(self.kept.exits))
        return tuple(rate.share(n if rate.topic is not None else self._exit_count) for rate in self.leaving())

    def _leaving_upwards(self) -> tuple[Rate, ...]:
        """The entry point's limits for sending up the overlay's tree, for this scope and those above."""
        above = self.around.assignment.leaving
        shared = (rate.share(self._exit_count) if rate.topic is None else rate for rate in above)
        return (*shared, *(self._leaving_each() if self._upwards() else ()))

    @property
    def _exit_count(self) -> int:
        """Of how many members that send out of the scope, in any topic, each has a share of what leaves in all."""
        return max(1, len(self.state.exits()))

    def _upwards(self, entries: Sequence[int] | None = None) -> tuple[int, ...]:
        """The member that sends what others publish up the overlay's tree: the first entry point, now or of these."""
        sends = self.around.assignment.ring == 0 and self._labels("publishes")
        return tuple(self.kept.entries if entries is None else entries)[:1] if sends else ()

    def _assignment(self, label: int, depth: int, *, forwards: bool) -> Assignment:
        rank = self.kept.entries.index(label) if label in self.kept.entries else None
        ring = rank if self.around.is_top else self.around.assignment.ring if rank == 0 else None
        recovery = self.config.recovery(self.kept.name)
        begins = rank == 0 and self._begins_here()
        assignment = Assignment(
            self.topic, depth, rank, ring, records=self.kept.records, recovery=recovery, begins=begins,
            entry=self._entry(), forwards=forwards, carriers=self._carriers(),
        )  # fmt: skip
        if not self._is_border(label):
            return assignment
        lets_in = both(self.around.assignment.filter, self.entering.filter)
        leaving = self._leaving_upwards() if ring == 0 else ()
        return msgspec.structs.replace(assignment, filter=lets_in, rates=self._border_rates(label), leaving=leaving)

    def _carriers(self) -> tuple[Carrier, ...]:
        """This scope and those around it, with their policies."""
        policy = called(self.policy)[:SHOWN_MAX] if self.policy is not None else ""
        return (Carrier(self.state.scope.name, policy), *self.around.assignment.carriers)

    def _forwarding(self) -> frozenset[int]:
        """The members that have to receive what others send, to pass it on over channels or out of the scope.

        A member scope learns by this that it is to forward until others do, should no member of its own take part.
        """
        channels = [each for each in self._all_channels() if self.kept.records]
        entered = [label for label in self._entered if self._is_scope(label) or self._is_passed_to]
        relays = frozenset(each.source for each in channels) & {*entered, *(each.target for each in channels)}
        leaving = [label for label in self.departing if label in self.members and self._is_scope(label)]
        through = (*self._entered, *self._delegated) if self.around.assignment.forwards else ()
        group = self._group()
        only = [label for label in group.receivers if label not in self.subscribing]
        outwards = [label for label in (*only, *self._delegated) if any(each != label for each in group.senders)]
        return relays.union(outwards, leaving, through)

    def _around(self) -> tuple[Circle, ...]:
        """The domains in which the entry point speaks for this one."""
        circles, head = self.around.circles, self.state.head(self.topic)
        return tuple(msgspec.structs.replace(each, others=_following(head, each.others)) for each in circles)

    def _entry(self) -> Contact | None:
        """The entry point, if Joins reach another peer first."""
        first, ring = self.kept.entries[:1], self.state.ring[:1]
        at = self.state.members[first[0]].party if first and self.around.is_top and ring and first != ring else None
        return at.contact if at is not None and not at.managed else None

    def _is_border(self, label: int) -> bool:
        """Does the member receive bundles that no sender was asked to send over a channel?"""
        return self._has_tree and self.around.assignment.ring is not None and label in self.kept.entries

    def _border_rates(self, label: int) -> tuple[Rate, ...]:
        """The limits that a member keeps because nobody outside does: the entry point, not the stand-bys."""
        acting = self._is_border(label) and label == self.kept.entries[0]
        return (*self.around.assignment.rates, *self._rates()) if acting else ()

    def _choose_links(self) -> None:
        """Choose the links of the topic's tree: the channels of a plain tree, or else a tree that stays as it is.

        A member that moves in a tree delays what is stable there. So a change of the policy moves no member: from then
        on, bundles take channels with records, even those of a plain tree. A scope within others does as the one above.
        """
        single = [each for each in self.kept.channels if each.target != ALL]
        to_all = len(single) < len(self.kept.channels)
        channels = {each[:2]: None for each in single if each.origin in (None, *self.kept.entries[:1])}
        if self._is_tree_only():
            ways = self._spanning(()) if to_all else _shortest(channels, self.kept.entries[:1])
            self.kept.link(self._whole(tuple(ways)), records=False)
            return
        records = self.kept.records or self.around.assignment.records or not self._is_plain()
        if records and self._has_tree:
            links = self._spanning(self.kept.links or _shortest(channels, self.kept.entries[:1]))
        else:
            links = self._spanning(self.kept.links) if to_all else tuple(channels)
        self.kept.link(self._whole(links), records=records)

    def _whole(self, links: tuple[LabelPair, ...]) -> tuple[LabelPair, ...]:
        """Links that lead to all receivers, also to those that a policy without an answer does not know of."""
        if self.unanswered is None:
            return links
        present = tuple(dict.fromkeys((*links, *self.kept.links)))
        return self._spanning(present, max((LINKS_MAX, *Counter(source for source, _ in links).values())))

    def _spanning(self, present: Sequence[LabelPair], children_max: int = LINKS_MAX) -> tuple[LabelPair, ...]:
        """Links of a tree from the entry point to all receivers, which keeps the present ones."""
        departing = (label for label in self.departing if label in self.members)
        nodes = dict.fromkeys([*self.kept.entries[:1], *self._group().receivers, *departing])
        parents = build_tree([*nodes], present, children_max).parents if len(nodes) > 1 else {}
        return tuple((source, target) for target, source in parents.items())

    @property
    def _has_tree(self) -> bool:
        """Do members have places in the topic's tree? The overlay makes one, and so does a rendezvous point."""
        return self.kept.root == OVERLAY or self.around.seats is not None

    @property
    def _is_root(self) -> bool:
        return self.kept.root == self.state.scope.id and self._has_tree

    def _is_tree_only(self) -> bool:
        if self._has_tree and not self.around.is_top and not self._is_root:
            return not self.around.assignment.records
        return any(self._role(each).tree_only for each in self.members.values())

    def _is_plain(self) -> bool:
        """Do the links of the topic's tree suffice? Bundles that travel through scopes within scopes need more."""
        if self.policy is None or self.policy.delivery != "tree" or self.swap is not None:
            return False
        composed = self._has_tree and any(each.party.managed for each in self.members.values())
        return not composed and not self._is_guarded and self._are_one_tree(self.kept.channels)

    def _are_one_tree(self, channels: tuple[WantedChannel, ...]) -> bool:
        """Do the channels of all origins use the same links? Members that only send use those that connect them."""
        receivers = self._group().receivers
        links = {frozenset(each[:2]) for each in channels if each.source in receivers}
        return len(links) < max(1, len(receivers)) and all(each.filter is None for each in channels)

    def _inside(self, depth: int) -> Iterator[tuple[int, ChannelOrder]]:
        """The policy's channels, and links beside them, over which members can request what they miss.

        Members that stay only until no bundle needs them any longer get everything over their links.
        """
        links, mechanism = dict.fromkeys(self.kept.links), self._mechanism(self.policy)
        bridges = frozenset(self.kept.bridges)
        for each in self.kept.channels:
            beside = self._has_tree and each[:2] not in links
            if each[:2] not in bridges:
                links.pop(each[:2], None)
            rates = self._border_rates(each.source)
            constraint = Constraint(self.topic, depth, each.origin, beside, self.kept.version, rates=rates)
            yield from self._orders(each, constraint, mechanism)
        for source, target in dict.fromkeys((*links, *self.kept.bridges)):
            is_bridge = (source, target) in bridges
            everything = is_bridge or target in self.departing
            link = WantedChannel(source, target, None, None if everything else _left_to_links(mechanism))
            for origin in self._carried() if is_bridge else (None,):
                begins = not self._begins_before(source)
                constraint = Constraint(self.topic, depth, origin, version=self.kept.version, begins=begins)
                yield self._order(link, constraint)
        if self.swap is not None:
            mechanism = self._mechanism(self.swap.other)
            left = _left_to_links(mechanism)
            tree = [WantedChannel(*link, None, left) for link in self.kept.links if mechanism]
            tree += [WantedChannel(*link, None) for link in self.kept.links if all(map(self._begins_before, link))]
            for each in (*self.swap.channels, *tree):
                begins = self._begins_before(each.source)
                constraint = Constraint(self.topic, depth, each.origin, True, self.swap.version, begins)
                yield from self._orders(each, constraint, mechanism)

    def _begins_before(self, label: int) -> bool:
        """Do bundles that enter at a member take the former channels, as none of the present ones begins there?"""
        return label in self.departing and all(each.source != label for each in self.kept.channels)

    def _mechanisms(self) -> tuple[str, ...]:
        """The multicast mechanisms over which bundles come here."""
        policies = [self.policy, self.swap.other if self.swap is not None else None]
        return tuple(dict.fromkeys(filter(None, (*map(self._mechanism, policies), self._incoming))))

    def _mechanism(self, policy: ScopePolicy | None, *, incoming: bool = False) -> str:
        """The multicast mechanism of a policy, as that of this scope; empty if it uses none.

        What comes in has a group, and so a key, of its own: senders must not read what members send to each other.
        """
        mechanism, scope = mechanism_of(policy) if policy is not None else "", self.state.scope.id.hex()
        return str(parse(mechanism)._replace(of=scope[-16:] if incoming else scope[:16])) if mechanism else ""

    @property
    def _is_passed_to(self) -> bool:
        """Do other scopes pass bundles on to this one's entry points?"""
        return not self.around.is_top and self.kept.root != self.state.scope.id and not self._begins_here()

    @property
    def _begins_at_entry(self) -> bool:
        """Do bundles begin at the entry point that no other scope sends: from the overlay, or numbered there?"""
        return self.around.assignment.ring == 0 or self._begins_here() or self._is_root

    @cached_property
    def _incoming(self) -> str:
        """The multicast mechanism over which senders reach all members at once; empty: entry points pass bundles on.

        They do if bundles enter by the overlay, too, or begin here, or if some of the members are scopes.
        """
        if not (self.config.multicast and self.senders):
            return ""
        if self._begins_at_entry or any(map(self._is_scope, self.members)):
            return ""
        return self._mechanism(self.policy, incoming=True)

    def _orders(
        self, wanted: WantedChannel, constraint: Constraint, mechanism: str
    ) -> Iterator[tuple[int, ChannelOrder]]:
        """A channel of the policy. One to all reaches peers at once; scopes among the members get one each."""
        if wanted.target != ALL:
            yield self._order(wanted, constraint)
            return
        one_by_one = [label for label in self._group().receivers if label != wanted.source]
        if not self._is_scope(wanted.source):
            at_once = not all(map(self._is_scope, one_by_one))
            one_by_one = [label for label in one_by_one if self._is_scope(label)]
            if at_once:
                label = ChannelLabel((wanted.source,), ())
                here = (constraint._replace(beside=True),)
                yield wanted.source, ChannelOrder(label, Multicast(mechanism), here, wanted.filter)
        for target in one_by_one:
            yield self._order(wanted._replace(target=target), constraint)

    def _is_scope(self, label: int) -> bool:
        return self.members[label].party.managed

    def _order(self, wanted: WantedChannel, constraint: Constraint) -> tuple[int, ChannelOrder]:
        label = ChannelLabel((wanted.source,), (wanted.target,))
        spec = self._spec(wanted.target, self.state.members[wanted.source].party.id)
        return wanted.source, ChannelOrder(label, spec, (constraint,), wanted.filter)

    def _passed_on(self) -> Iterator[tuple[int, ChannelOrder]]:
        """The superscope's channels, at the members to which they are delegated (figure 14)."""
        delegates = self.kept.delegates
        for order in self.around.outgoing if delegates else ():
            concerned = one_of(len(self._delegated), for_topic(order, self.topic), self._leaving_each())
            spec = self._answered(concerned)
            whole = msgspec.structs.replace(concerned, spec=spec or order.spec)
            for member in self.kept.former_delegates:
                yield member, delegated(aside(whole), member)
            if spec is None or spec.at_once:
                yield from replicated(whole, delegates)
            else:
                for at, part in enumerate(spec.parts):
                    member = delegates[at % len(delegates)]
                    yield member, delegated(entered(concerned, part, beside=at > 0), member)

    def _answered(self, order: ChannelOrder) -> Subchannels | None:
        """The subchannels to be delegated one by one, none before they are known; None: members ask for them."""
        if not self.config.split or not isinstance(order.spec, Ask):
            return None
        spec = self.around.answers(order.spec, self.topic)
        if spec is None:
            return Subchannels()
        if not isinstance(spec, Subchannels):
            return None
        return spec.shared(len(self.kept.delegates), beside=len(self.kept.former_delegates))

    def _spec(self, label: int, by: bytes, *, enters: bool = False) -> Spec:
        """The specification of a channel to a member, for another party."""
        party = self.state.members[label].party
        by = by if party.managed else b""
        return to_party(party, self.state.invitation(party.id, enters=enters, by=by))

    def _invitations(self, orders: Iterable[ChannelOrder]) -> dict[int, dict[bytes, None]]:
        """By member that is a scope: the invitations in channels that lead there from inside, or from senders."""
        specs = [(order.label.target[0], order.spec) for order in orders if order.label.target]
        entries = [(label, sender.party.id) for label in self._entered for sender in self.senders]
        specs += [(label, self._spec(label, by, enters=True)) for label, by in entries]
        found = dict[int, dict[bytes, None]]()
        for label, spec in specs:
            if isinstance(spec, Ask):
                found.setdefault(label, {})[spec.invitation] = None
        return found

    def _agreed(self, sender: bytes) -> tuple[Rate, ...]:
        """The limits of a sender."""
        (in_topic, in_all), all_ = self._most(), self.state.senders.values()
        rates = (agreed(in_topic, sender, self.senders), agreed(in_all, sender, all_))
        return tuple(rate for rate in rates if rate.limits)

    def specification(self, sender: bytes) -> Spec:
        """The answer to this sender, which asks for a channel into this scope."""
        entries = self._entered[: 1 if self._incoming else None]
        n, rates, filter_ = len(entries), self._agreed(sender), self.entering.filter
        filters = (both(filter_, Modulo(n, (k,)) if n > 1 else None) for k in range(n))
        parts = tuple(
            Subchannel(label, self._spec(label, sender, enters=True), each, rates)
            for label, each in zip(entries, filters, strict=True)
        )
        if self._incoming and entries:
            group = Multicast(self._incoming, self.state.key(self._incoming))
            parts += (Subchannel(entries[0], group, filter_, rates),)
        return Subchannels(parts)


def _admitted(admitted: tuple[int, ...], wanting: list[int], most: int) -> tuple[int, ...]:
    """Apply a limit (0: none): current users first, then newcomers in order of arrival."""
    still = dict.fromkeys(wanting)
    kept = dict.fromkeys(label for label in admitted if label in still)
    room = max(0, most - len(kept)) if most else len(wanting)
    return (*kept, *[label for label in still if label not in kept][:room])


def _ends(channels: Iterable[WantedChannel]) -> dict[int, None]:
    """The members at the two ends of channels."""
    return dict.fromkeys(label for each in channels for label in each[:2] if label != ALL)


def _without(channels: Iterable[WantedChannel], known: Iterable[WantedChannel]) -> tuple[WantedChannel, ...]:
    """The channels that are not among the known ones."""
    among = frozenset(known)
    return tuple(each for each in channels if each not in among)


def _following(head: Contact | None, circle: tuple[Contact, ...]) -> tuple[Contact, ...]:
    """The next ones after a head in a circle, in which its scope's own heads come first.

    The manager of the scope that is the entry point knows better.
    """
    if head is None or head not in circle:
        return circle[:OTHERS_MAX]
    at = circle.index(head)
    return (*circle[at + 1 :], *circle[:at])[:OTHERS_MAX]


def _left_to_links(mechanism: str) -> Filter:
    """What links of the tree carry without a request beside a multicast mechanism, or beside other channels."""
    return Larger(parse(mechanism).bundle_bytes_max) if mechanism else NO_BUNDLE


def _shortest(channels: Iterable[LabelPair], entry: tuple[int, ...]) -> list[LabelPair]:
    """The shortest paths from the entry point."""
    below = dict[int, list[int]]()
    for source, target in channels:
        below.setdefault(source, []).append(target)
    around, reached, ways = [*entry], dict.fromkeys(entry), list[LabelPair]()
    for at in around:
        for other in below.get(at, ()):
            if other not in reached:
                reached[other] = None
                ways.append((at, other))
                around.append(other)
    return ways
