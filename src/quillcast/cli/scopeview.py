"""Query the managers of scopes, and show scopes as lines of text."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from quillcast.cli.asking import answered, ask_each, ask_one, peers_here
from quillcast.cli.tables import counted, table
from quillcast.core.errors import LocalError, UnknownTopic, Unreachable
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.scopes import (
    PolicyChange,
    ScopeClient,
    ScopeMember,
    ScopeMemory,
    ScopeReload,
    ScopeRule,
    ScopeSender,
    ScopeStatus,
    ScopeTopic,
    ScopeView,
    SenderRate,
    Superscope,
)
from quillcast.live.discovery.questions import (
    ChangeScopeQuestion,
    InviteToScopeQuestion,
    ReloadScopeQuestion,
    ScopeQuestion,
    ScopesQuestion,
    SetPolicyQuestion,
    StatusQuestion,
    UnsetPolicyQuestion,
)
from quillcast.live.discovery.registry import Entry

if TYPE_CHECKING:
    from quillcast.live.admission.credentials import Credentials

REMOTE_S = 15.0  # for a peer here to find and ask the manager, or members; longer than that takes
WITHHELD = "not shown to peers outside of the scope: {} more"
Change = SetPolicyQuestion | UnsetPolicyQuestion | InviteToScopeQuestion
"""What changes a scope: a question to the peer of its manager."""
_ASKS: Mapping[type[Change], Literal["set_policy", "unset_policy", "invite_to_scope"]] = {
    SetPolicyQuestion: "set_policy", UnsetPolicyQuestion: "unset_policy", InviteToScopeQuestion: "invite_to_scope",
}  # fmt: skip
T = TypeVar("T")


class ManagerSilent(Unreachable):
    """A scope's manager did not answer; `memory` is what a member last knew."""

    def __init__(self, text: str, memory: ScopeMemory | None) -> None:
        super().__init__(text)
        self.memory = memory


class Found(NamedTuple):
    """The peers of this machine that can be asked about a scope, the best first."""

    entries: list[Entry]
    manages: bool
    """Whether the first one runs the manager."""
    here: str
    """The scopes whose managers run on this machine, for people."""


def find(name: str, network: str) -> Found:
    """Find the peers here to ask about a scope: its manager's peer, otherwise members before others."""
    answers = ask_each(network, peers_here(network), StatusQuestion(), NodeStatus)
    answered(answers)
    told = [(entry, status) for entry, status in answers if status is not None]
    managing = [entry for entry, status in told if name in status.manages]
    members = [entry for entry, status in told if any(each.scope == name for each in status.memberships)]
    here = ", ".join(sorted({each for _, status in told for each in status.manages}))
    return Found(managing or list(dict.fromkeys([*members, *(entry for entry, _ in told)])), bool(managing), here)


def ask_manager(name: str, network: str) -> ScopeStatus:
    """Ask a scope's manager, wherever it runs. Raises `LocalError` for an unknown scope, `ManagerSilent`."""
    found = find(name, network)
    if found.manages:
        statuses = ask_one(network, found.entries, ScopesQuestion(), tuple[ScopeStatus, ...])
        for status in statuses:
            if status.name == name:
                return status
        raise Unreachable(f"the manager of scope {name} has just ended")
    view = ask_one(network, found.entries, ScopeQuestion(name), ScopeView, timeout_s=REMOTE_S)
    if view.unknown:
        remedy = (
            f"there are managers of: {found.here}"
            if found.here
            else "start its manager with: quillcast scope serve FILE --data FOLDER"
        )
        raise LocalError(f"{view.problem}; {remedy}")
    if view.status is None:
        raise ManagerSilent(view.problem, view.memory)
    return view.status


def do(wanted: Change, network: str, credentials: "Credentials | None", kind: type[T]) -> T:
    """Have a scope's manager do something: one on this machine, or elsewhere with an operator's credentials."""
    name = wanted.scope
    found = find(name, network)
    if found.manages:
        return ask_one(network, found.entries, wanted, kind)
    status = ask_manager(name, network)
    if credentials is None:
        raise LocalError(
            f"the manager of scope {name} runs at {status.address}, and not here as this user: give --as FILE with the "
            "credentials of an operator that the scope's file names, or run this command there"
        )
    from quillcast.protocol.scopes.hierarchy import scope_id
    from quillcast.protocol.scopes.operators import WantedChange

    arguments = msgspec.structs.asdict(wanted)
    del arguments["scope"]
    change = msgspec.json.encode(WantedChange(_ASKS[type(wanted)], arguments, status.challenge)).decode()
    entry = found.entries[0]
    signed = credentials.change(scope_id(name.encode()), bytes.fromhex(entry.node_id), change)
    return ask_one(network, [entry], ChangeScopeQuestion(name, signed), kind, timeout_s=REMOTE_S, first_only=True)


def reload(name: str, network: str) -> ScopeReload:
    """Have a scope's manager on this machine read its file again. Raises `LocalError` if it runs elsewhere."""
    found = find(name, network)
    if not found.manages:
        raise LocalError(
            f"the manager of scope {name} runs at {ask_manager(name, network).address}, and not here as this user: run "
            "this command there, beside the scope's file"
        )
    return ask_one(network, found.entries[:1], ReloadScopeQuestion(name), ScopeReload, timeout_s=REMOTE_S)


def memory(known: ScopeMemory) -> Iterator[str]:
    """Describe what a member last knew about a scope."""
    yield (
        f"scope {known.name}, epoch {known.epoch}, as its member {known.told_by.node_id[:8]} at "
        f"{known.told_by.address} last knew it, {known.heard_s:.1f} s ago"
    )
    yield f"  manager at peer {known.node_id[:8]}, {known.address}"
    ring = ", ".join(f"{each.node_id[:8]} ({each.address})" for each in known.ring)
    yield f"  members in the ring: {ring or 'none'}"


def topic_of(status: ScopeStatus, topic: str) -> ScopeTopic:
    """A topic in a scope. Raises `UnknownTopic`."""
    for each in status.topics:
        if each.name == topic:
            return each
    known = ", ".join(each.name for each in status.topics) or "none"
    more = f"; {WITHHELD.format(status.withheld)}" if status.withheld else ""
    raise UnknownTopic(f"no member of scope {status.name} takes part in topic {topic!r}; topics there: {known}{more}")


def show(status: ScopeStatus) -> Iterator[str]:
    """Describe a scope as a whole."""
    waiting = sum(bool(topic.waits_for) for topic in status.topics)
    clients = sum(each.clients for each in status.members)
    most = f" of at most {status.members_max}" if status.members_max else ""
    yield f"scope {status.name}, epoch {status.epoch}"
    yield f"  manager at peer {status.node_id[:8]}, {status.address}; file {status.file}"
    yield (
        f"  {counted(len(status.members), 'member')}{most}; {counted(clients, 'client')}"
        + (f" of at most {status.clients_max}" if status.clients_max else "")
        + f"; {counted(len(status.topics), 'topic')}"
        + (f", of which {waiting} wait" if waiting else "")
        + (f"; {WITHHELD.format(status.withheld)}" if status.withheld else "")
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
    """List rules in the order in which they apply."""
    rows = [[rule.pattern, policy(rule), rule.recovery or "-", "set" if rule.is_set else "file"] for rule in shown]
    yield from table("rules", ["topics", "policy", "recovery", "from"], rows)
    yield from (f"  {rule.pattern}: {sentence}" for rule in shown for sentence in (*rule.rights, *rule.lets_in))


def members(status: ScopeStatus) -> Iterator[str]:
    """List the members of a scope."""
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
        _called(member),
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
    """List the topics of a scope, and how it carries them."""
    columns = ["topic", "policy", "recovery", "publishers", "subscribers", "entry point", "stand-bys", "channels"]
    names = {member.node_id: _called(member) for member in status.members}
    yield from table("topics", columns, (_topic(topic, names) for topic in status.topics))
    if status.withheld:
        yield f"  {WITHHELD.format(status.withheld)}"
    yield from (f"  {topic.name} {_rooted(topic, status, names)}" for topic in status.topics if topic.root_scope)
    yield from (f"  {topic.name} waits: {topic.waits_for}" for topic in status.topics if topic.waits_for)
    yield from (f"  {topic.name}: {topic.change}" for topic in status.topics if topic.change)
    yield from (f"  {topic.name}: {topic.stopped}" for topic in status.topics if topic.stopped)
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
    if topic.stopped:
        yield topic.stopped
    entry = topic.entries[:1]
    for node in dict.fromkeys([*entry, *(source for source in below if source not in targets), *below]):
        if node not in drawn:
            yield from branch(node, "", "")


def change(changed: PolicyChange) -> Iterator[str]:
    """Describe the effects of a policy change."""
    for topic in changed.topics:
        yield f"{topic.name}: {_carried(topic.before)} -> {_carried(topic.after)}"
    if not changed.topics:
        yield f"scope {changed.scope}: no topic in use is affected"
    yield from rules(changed.rules)


def reloaded(changed: ScopeReload) -> Iterator[str]:
    """Describe what a scope's file changed."""
    yield f"scope {changed.scope} goes by {changed.file} as it is now"
    yield from (f"  no longer: {sentence}" for sentence in changed.before)
    yield from (f"  now: {sentence}" for sentence in changed.now)
    yield from (f"  no longer a member: {member}" for member in changed.dismissed)
    for topic in changed.topics:
        yield f"  topic in use: {topic.name}: {_carried(topic.before)} -> {_carried(topic.after)}"
    if not (changed.before or changed.now or changed.dismissed or changed.topics):
        yield "  nothing differs"


def _carried(rule: ScopeRule | None) -> str:
    return policy(rule) if rule is not None else "not carried"


def policy(rule: ScopeRule) -> str:
    """A policy with its parameters."""
    return f"{rule.policy}({_parameters(rule.parameters)})" if rule.parameters else rule.policy


def _parameters(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in parameters.items())
