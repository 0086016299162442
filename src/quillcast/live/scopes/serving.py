"""What a scope file says to the manager that a node runs. What managers cannot keep yet is refused, not ignored."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from quillcast.core.errors import LocalError
from quillcast.live.scopes.confined import ConfinedPolicy, LastGood
from quillcast.live.scopes.files import read
from quillcast.live.scopes.plugins import opened
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import Described, ScopeFile, ScopeFileWrong, TopicRule
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.state import ScopeConfig


class Served(NamedTuple):
    """A scope to be managed."""

    name: str
    config: ScopeConfig
    confined: tuple[ConfinedPolicy, ...]
    """Policies in processes of their own, to be closed at the end."""


def served(file: Path, tell: Callable[[str], object]) -> Served:
    """The scope that a file describes, for its manager; `tell` hears why a policy was stopped.

    Raises `ScopeFileWrong`, `LocalError` if the file cannot be read, and as `plugins.opened`.
    """
    described = read(file)
    if faults := [described.fault(*each) for each in _not_yet(described.scope)]:
        raise ScopeFileWrong(faults)
    confined: list[ConfinedPolicy] = []
    try:
        policies = [_policy(described, at, rule, confined, tell) for at, rule in enumerate(described.scope.topics)]
    except LocalError:
        for policy in confined:
            policy.close()
        raise
    scope = described.scope

    def policy_of(topic: str) -> ScopePolicy | None:
        rule = scope.rule(topic)
        return None if rule is None else policies[scope.topics.index(rule)]

    return Served(scope.name, ScopeConfig(policy_of, refusal=lambda party: _refusal(scope, party)), tuple(confined))


def _policy(
    described: Described, at: int, rule: TopicRule, confined: list[ConfinedPolicy], tell: Callable[[str], object]
) -> ScopePolicy:
    policy = opened(rule.policy, rule.parameters, sha256=rule.sha256, folder=Path(described.file).parent)
    if isinstance(policy, ConfinedPolicy):
        confined.append(policy)
    return LastGood(policy, tell) if isinstance(policy, ConfinedPolicy) else policy


def _refusal(scope: ScopeFile, party: Party) -> str:
    """Why a peer cannot be a member; empty if the file lists it."""
    if party.id.hex() in scope.admission.members:
        return ""
    return (
        f"scope {scope.name} does not admit this peer: add its nodeId {party.id.hex()} to members in the scope's file"
    )


def _not_yet(scope: ScopeFile) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What a file may say and managers do not keep yet."""
    later = "managers do not keep that yet; remove it"
    admission = scope.admission
    if scope.superscopes:
        yield ("superscopes",), f"the scope would be a member of {', '.join(scope.superscopes)}: {later}"
    if admission.join_line or admission.certificate:
        yield (
            ("admission",),
            f"members are admitted by nodeId only: list them under members, and remove the rest; {later}",
        )
    for member in admission.members:
        if len(member) != 32:
            yield ("admission", "members"), f"member {member} is a scope: {later}"
    if scope.limits != type(scope.limits)():
        yield ("limits",), f"the scope has limits: {later}"
    for at, rule in enumerate(scope.topics):
        bounds = (rule.bytes_per_s, rule.bundles_per_s, rule.publishers_max, rule.subscribers_max)
        if rule.root or rule.filter is not None or any(bound is not None for bound in bounds):
            yield ("topics", at, "pattern"), f"the rule for {rule.pattern} has a root, a filter or bounds: {later}"
