"""Scopes as lines of text, and where their managers run."""

from collections.abc import Iterator, Mapping
from typing import Any

from quillcast.cli.asking import answered, ask_each, ask_peer, peers_here
from quillcast.cli.tables import counted, table
from quillcast.core.errors import LocalError, UnknownTopic, Unreachable
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.scopes import (
    PolicyChange,
    ScopeClient,
    ScopeMember,
    ScopeRule,
    ScopeSender,
    ScopeStatus,
    ScopeTopic,
    SenderRate,
    Superscope,
)


def manager_of(name: str, network: str) -> str:
    """NodeId of the peer of this machine that runs a scope's manager. Raises `LocalError`, or `Unreachable`."""
    answers = ask_each(network, peers_here(network), "status", NodeStatus)
    told = (status for _, status in answers if status is not None)
    if found := next((status.node_id for status in told if name in status.manages), None):
        return found
    statuses = answered(answers)  # one that is silent may run it
    for place in (place for status in statuses for place in status.memberships):
        if place.scope == name:
            raise Unreachable(
                f"the manager of scope {name} runs at {place.address}, and no peer of this user on this machine "
                "answers for it; run this command on that machine, as the user who runs the manager"
            )
    known = ", ".join(sorted({each for status in statuses for each in status.manages}))
    remedy = f"there are managers of: {known}" if known else "start it with: quillcast scope serve FILE --data FOLDER"
    raise LocalError(f"no peer of this machine runs the manager of a scope {name!r}; {remedy}")


def ask_manager(name: str, network: str) -> ScopeStatus:
    """A scope, as its manager on this machine knows it. Raises as `manager_of`."""
    statuses = ask_peer(network, manager_of(name, network), "scopes", tuple[ScopeStatus, ...])
    for status in statuses:
        if status.name == name:
            return status
    raise Unreachable(f"the manager of scope {name} has just ended")


def topic_of(status: ScopeStatus, topic: str) -> ScopeTopic:
    """A topic in a scope. Raises `UnknownTopic`."""
    for each in status.topics:
        if each.name == topic:
            return each
    known = ", ".join(each.name for each in status.topics) or "none"
    raise UnknownTopic(f"no member of scope {status.name} takes part in topic {topic!r}; topics there: {known}")


def show(status: ScopeStatus) -> Iterator[str]:
    """A scope on the whole."""
    waiting = sum(bool(topic.waits_for) for topic in status.topics)
    most = f" of at most {status.members_max}" if status.members_max else ""
    yield f"scope {status.name}, epoch {status.epoch}"
    yield f"  manager at peer {status.node_id[:8]}, {status.address}; file {status.file}"
    yield (
        f"  {counted(len(status.members), 'member')}{most}; {counted(len(status.clients), 'client')}"
        + (f" of at most {status.clients_max}" if status.clients_max else "")
        + f"; {counted(len(status.topics), 'topic')}"
        + (f", of which {waiting} wait" if waiting else "")
    )
    yield from (f"  {sentence}" for sentence in status.about)
    for scope in status.superscopes:
        yield f"  member of {scope.name}, whose manager is at {scope.address}{_state_of(scope)}"
    yield from rules(status.rules)
    if status.senders:
        yield from table("senders", ["sender", "address", "topics", "agreed rates"], map(_sender, status.senders))


def _sender(sender: ScopeSender) -> list[str]:
    called = f"scope {sender.scope}" if sender.scope else sender.node_id[:8]
    return [called, sender.address, ", ".join(sender.topics), "; ".join(map(_rate, sender.rates)) or "no limit"]


def _rate(rate: SenderRate) -> str:
    limits = [(rate.bytes_per_s, "bytes/s"), (rate.bundles_per_s, "bundles/s")]
    most = " and ".join(f"{most:,} {unit}" for most, unit in limits if most is not None)
    return f"{rate.topic or 'in all'}: {most}"


def _state_of(scope: Superscope) -> str:
    if scope.obstacle:
        return f": {scope.obstacle}"
    if scope.unresponsive:
        return ": it does not respond, and channels stay as they are"
    return f", epoch {scope.epoch}" if scope.epoch else ": it has not answered yet"


def rules(shown: tuple[ScopeRule, ...]) -> Iterator[str]:
    """Rules in the order in which they decide."""
    rows = [[rule.pattern, policy(rule), rule.recovery or "-", "set" if rule.is_set else "file"] for rule in shown]
    yield from table("rules", ["topics", "policy", "recovery", "from"], rows)
    yield from (f"  {rule.pattern}: {sentence}" for rule in shown for sentence in (*rule.rights, *rule.lets_in))


def members(status: ScopeStatus) -> Iterator[str]:
    """Who is in a scope."""
    columns = ["member", "address", "label", "ring", "heard", "clients", "topics"]
    yield from table("members", columns, map(_member, status.members))
    yield from (f"  refused: {why}" for member in status.members for why in member.refused)
    if status.clients:
        yield from table(
            "clients", ["client", "member", "heard", "receives", "publishes", "topics"], map(_client, status.clients)
        )


def _client(client: ScopeClient) -> list[str]:
    patterns = [client.receives or "-", client.publishes or "-"]
    return [client.name, client.host[:8], f"{client.heard_s:.1f} s ago", *patterns, ", ".join(client.topics) or "-"]


def _member(member: ScopeMember) -> list[str]:
    return [
        _called(member) + (" (client)" if member.relation == "client" else ""),
        member.address,
        str(member.label),
        "yes" if member.in_ring else "-",
        f"{member.heard_s:.1f} s ago",
        str(member.clients or "-"),
        ", ".join(member.topics) or "-",
    ]


def _called(member: ScopeMember) -> str:
    return f"scope {member.scope}" if member.scope else member.node_id[:8]


def topics(status: ScopeStatus) -> Iterator[str]:
    """What a scope carries, and how."""
    columns = ["topic", "policy", "recovery", "publishers", "subscribers", "entry point", "stand-bys", "channels"]
    names = {member.node_id: _called(member) for member in status.members}
    yield from table("topics", columns, (_topic(topic, names) for topic in status.topics))
    yield from (f"  {topic.name} {_rooted(topic, status, names)}" for topic in status.topics if topic.root_scope)
    yield from (f"  {topic.name} waits: {topic.waits_for}" for topic in status.topics if topic.waits_for)
    yield from (f"  {topic.name}: {topic.change}" for topic in status.topics if topic.change)
    yield from (f"  {rule.pattern}: {sentence}" for rule in status.rules for sentence in rule.rights)


def _rooted(topic: ScopeTopic, status: ScopeStatus, names: Mapping[str, str]) -> str:
    here = names.get(topic.entries[0]) if topic.root_scope == status.name and topic.entries else None
    return f"is rooted at {topic.root_scope}" + (f", with its rendezvous point at {here}" if here else "")


def _topic(topic: ScopeTopic, names: Mapping[str, str]) -> list[str]:
    first, *others = [names.get(node, node[:8]) for node in topic.entries] or ["-"]
    return [
        topic.name,
        "-" if topic.rule is None else policy(topic.rule),
        "-" if topic.rule is None else topic.recovery,
        str(topic.publishers),
        str(topic.subscribers),
        first,
        ", ".join(others) or "-",
        str(len(topic.channels)),
    ]


def tree(status: ScopeStatus, topic: ScopeTopic) -> Iterator[str]:
    """The channels of a topic that the manager ordered, from the entry point on."""
    addresses = {member.node_id: member.address for member in status.members}
    names = {member.node_id: _called(member) for member in status.members}
    ranks = dict(zip(topic.entries, ["entry point", *["stand-by"] * len(topic.entries)], strict=False))
    below: dict[str, list[str]] = {}
    for channel in topic.channels:
        below.setdefault(channel.source, []).append(channel.target)
    targets = {channel.target for channel in topic.channels}
    drawn: dict[str, None] = {}

    def branch(node: str, first: str, rest: str) -> Iterator[str]:
        repeated = node in drawn
        drawn[node] = None
        parts = [ranks[node]] if node in ranks else []
        parts += ["drawn above"] if repeated else []
        yield f"{first}{names.get(node, node[:8])} {addresses.get(node, '')}  {', '.join(parts)}".rstrip()
        children = [] if repeated else below.get(node, [])
        for child in children:
            last = child == children[-1]
            yield from branch(child, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))

    yield f"{topic.name} in scope {status.name}: {'no policy' if topic.rule is None else policy(topic.rule)}"
    if topic.waits_for:
        yield f"it waits: {topic.waits_for}"
    entry = topic.entries[:1]
    for node in dict.fromkeys([*entry, *(source for source in below if source not in targets), *below]):
        if node not in drawn:
            yield from branch(node, "", "")


def change(changed: PolicyChange) -> Iterator[str]:
    """What a change of a policy changed."""
    for topic in changed.topics:
        yield f"{topic.name}: {policy(topic.before)} -> {policy(topic.after)}"
    if not changed.topics:
        yield f"scope {changed.scope}: no topic in use is affected"
    yield from rules(changed.rules)


def policy(rule: ScopeRule) -> str:
    """A policy with its parameters."""
    return f"{rule.policy}({_parameters(rule.parameters)})" if rule.parameters else rule.policy


def _parameters(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in parameters.items())
