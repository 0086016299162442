"""Scopes as structs of `core.status`, from the state of their managers and members."""

from collections import Counter
from pathlib import Path

import msgspec

from quillcast.core.ids import topic_id
from quillcast.core.status.scopes import (
    Membership,
    ScopeChannel,
    ScopeClient,
    ScopeMember,
    ScopeMemory,
    ScopeRule,
    ScopeSender,
    ScopeStatus,
    ScopeTopic,
    SenderRate,
    Superscope,
)
from quillcast.live.node.topicstatus import peer_contact
from quillcast.live.scopes.files import about_all, allowed, let_in
from quillcast.live.scopes.rules import Rules
from quillcast.live.scopes.serving import Served
from quillcast.protocol.scopes.channels import Rate, Subchannels
from quillcast.protocol.scopes.clients import Client
from quillcast.protocol.scopes.config import TopicRule
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.membership import Owner
from quillcast.protocol.scopes.policy import ALL
from quillcast.protocol.scopes.state import Member, Sender
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.scoping.scoping import Scoping

WAITS = "waiting to take part in the scope"
"""How the line begins that says what a peer waits for before it is part of a scope."""


def memberships(scoping: Scoping) -> tuple[Membership, ...]:
    """The scopes that a peer is a member of."""
    if scoping.controller is None:
        return ()
    known = scoping.controller.membership
    return tuple(
        Membership(
            node_id=owner.party.contact.node_id.hex(),
            address=owner.party.contact.address,
            scope=owner.party.name,
            in_ring=not scoping.overlay.outside,
            epoch=owner.stamp[0],
            unresponsive=id_ in known.silent,
            obstacle=known.why_outside(owner),
        )
        for id_, owner in known.owners.items()
    )


def scope_status(manager: ScopeManager, served: Served, now: float) -> ScopeStatus:
    """A scope, as its manager knows it."""
    state, rules = manager.state, served.rules
    hosted = Counter(each.host.label for each in manager.clients.known.values())
    return ScopeStatus(
        node_id=state.scope.contact.node_id.hex(),
        address=state.scope.contact.address,
        name=state.scope.name,
        scope_id=state.scope.id.hex(),
        file=served.file,
        epoch=state.epoch,
        lease_s=manager.config.lease_s,
        members=tuple(_member(manager, each, now, hosted[each.label]) for each in state.members.values()),
        clients=tuple(_client(each, now) for each in manager.clients.known.values()),
        clients_max=manager.config.clients_max or None,
        members_max=manager.config.members_max or None,
        about=tuple(about_all(served.scope)),
        superscopes=tuple(_superscope(manager, owner) for owner in manager.membership.owners.values()),
        senders=tuple(_sender(manager, each) for each in state.senders.values()),
        rules=shown_rules(rules),
        topics=tuple(sorted((_topic(manager, rules, topic) for topic in state.topics), key=lambda each: each.name)),
    )


OTHERS = "who is admitted, clients, and the rights of members are shown to members only"


def for_others(status: ScopeStatus, manager: ScopeManager) -> ScopeStatus:
    """The part of a scope's status for peers that are not members, without the members' private data."""
    kept = {topic.hex(): topic for topic in manager.state.topics}
    shown = tuple(each for each in status.topics if not _is_private(manager, kept[each.topic_id], each))
    names = {each.name for each in shown}

    def of(topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(topic for topic in topics if topic in names)

    replace = msgspec.structs.replace
    return replace(
        status,
        file=Path(status.file).name,
        topics=shown,
        withheld=len(status.topics) - len(shown),
        members=tuple(replace(each, topics=of(each.topics), refused=()) for each in status.members),
        clients=(),
        rules=tuple(replace(each, rights=()) for each in status.rules),
        about=(OTHERS,),
        senders=tuple(replace(each, topics=of(each.topics), rates=()) for each in status.senders),
    )


def _is_private(manager: ScopeManager, topic: bytes, shown: ScopeTopic) -> bool:
    return bool(shown.root_scope) or any(role.tree_only for role in manager.members.roles(topic))


def memory_of(scoping: Scoping, scope: bytes) -> ScopeMemory | None:
    """What this peer, as a member, last knew of a scope; None if it is not a member."""
    controller, here = scoping.controller, scoping.host.contact
    if controller is None or (owner := controller.membership.owners.get(scope)) is None:
        return None
    return ScopeMemory(
        node_id=owner.party.contact.node_id.hex(),
        address=owner.party.contact.address,
        name=owner.party.name,
        epoch=owner.stamp[0],
        heard_s=round(scoping.host.now() - controller.membership.heard_at[scope], 3),
        ring=tuple(map(peer_contact, owner.orders.ring if owner.orders is not None else ())),
        told_by=peer_contact(here),
    )


def _superscope(manager: ScopeManager, owner: Owner) -> Superscope:
    return Superscope(
        node_id=owner.party.contact.node_id.hex(),
        address=owner.party.contact.address,
        name=owner.party.name,
        epoch=owner.stamp[0],
        unresponsive=owner.party.id in manager.membership.silent,
        obstacle=manager.membership.obstacles().get(owner.party.name, ""),
    )


def _sender(manager: ScopeManager, sender: Sender) -> ScopeSender:
    party, answer = sender.party, manager.receiver.answers.get(sender.party.id)
    specs = [spec for _, spec in answer.specs if isinstance(spec, Subchannels)] if answer is not None else []
    rates = dict.fromkeys(rate for spec in specs for part in spec.parts for rate in part.rates)
    return ScopeSender(
        node_id=party.id.hex(),
        address=party.contact.address,
        scope=party.name if party.managed else "",
        topics=tuple(sorted(_name(manager, topic) for topic in sender.topics)),
        rates=tuple(_rate(manager, rate) for rate in rates),
    )


def _rate(manager: ScopeManager, rate: Rate) -> SenderRate:
    topic = "" if rate.topic is None else _name(manager, rate.topic)
    return SenderRate(topic, rate.bytes_per_s or None, rate.bundles_per_s or None)


def shown_rules(rules: Rules) -> tuple[ScopeRule, ...]:
    """The rules of a scope, in order of precedence."""
    return tuple(shown_rule(rules, each) for each in (*rules.settings, *rules.of_file))


def shown_rule(rules: Rules, rule: TopicRule) -> ScopeRule:
    """A rule, and where it comes from."""
    is_set = any(rule is each for each in rules.settings)
    recovery = "" if is_set else rule.recovery
    return ScopeRule(
        rule.pattern, rule.policy, rule.parameters, is_set, tuple(let_in(rule)), recovery, tuple(allowed(rule))
    )


def _member(manager: ScopeManager, member: Member, now: float, clients: int) -> ScopeMember:
    return ScopeMember(
        node_id=member.party.id.hex(),
        address=member.party.contact.address,
        label=member.label,
        in_ring=member.label in manager.state.ring,
        heard_s=round(now - manager.members.heard_at.get(member.party.id, now), 3),
        topics=tuple(sorted(_name(manager, topic) for topic in member.roles)),
        scope=member.party.name if member.party.managed else "",
        clients=clients,
        refused=tuple(manager.rights.told.get(member.party.id, ())),
    )


def _client(client: Client, now: float) -> ScopeClient:
    return ScopeClient(
        name=client.party.name,
        host=client.host.party.id.hex(),
        heard_s=round(now - client.heard_at, 3),
        topics=tuple(sorted(role.name for role in client.roles.values())),
        receives=_pattern(client, "subscribes"),
        publishes=_pattern(client, "publishes"),
    )


def _pattern(client: Client, doing: Doing) -> str:
    """How a client publishes or receives; it is the same in all topics."""
    if any(doing in role.direct for role in client.roles.values()):
        return "direct"
    return "proxy" if any(getattr(role, doing) for role in client.roles.values()) else ""


def _topic(manager: ScopeManager, rules: Rules, topic: bytes) -> ScopeTopic:
    kept, roles = manager.state.topics[topic], manager.members.roles(topic)
    rule = rules.rule(kept.name)
    obstacles = [parts[topic].assignment.why for parts in manager.orders.parts.values() if topic in parts]
    obstacles += [
        f"member {member.party.id.hex()[:8]}: {role.unusable}"
        for member in manager.state.members.values()
        if (role := member.roles.get(topic)) is not None and role.unusable
    ]
    return ScopeTopic(
        name=_name(manager, topic),
        topic_id=topic.hex(),
        rule=None if rule is None else shown_rule(rules, rule),
        publishers=sum(role.publishes or role.has_publishers for role in roles),
        subscribers=sum(role.subscribes for role in roles),
        entries=tuple(_id(manager, label) for label in kept.entries),
        channels=tuple(
            ScopeChannel(_id(manager, each.source), _id(manager, target))
            for each in kept.channels
            for target in (_receivers(manager, topic, each.source) if each.target == ALL else [each.target])
        ),
        waits_for=next(filter(None, obstacles), ""),
        change=manager.swaps.story(topic),
        recovery=rules.recovery(kept.name),
        root_scope=manager.scope_name(kept.root),
        stopped=manager.stopped.get(topic, ""),
    )


def _receivers(manager: ScopeManager, topic: bytes, source: int) -> list[int]:
    """The members that a channel to all members leads to."""
    taking = [(label, member.roles.get(topic)) for label, member in manager.state.members.items()]
    return [label for label, role in taking if label != source and role is not None and role.subscribes]


def _name(manager: ScopeManager, topic: bytes) -> str:
    """The topic's name, or its id if no member gave the name."""
    kept = manager.state.topics.get(topic)
    return kept.name if kept is not None and topic_id(kept.name) == topic else topic.hex()


def _id(manager: ScopeManager, label: int) -> str:
    return manager.state.members[label].party.id.hex()
