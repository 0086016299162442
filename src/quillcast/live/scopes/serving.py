"""What a scope file says to the manager that a node runs. What managers cannot keep yet is refused, not ignored."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from quillcast.live.scopes.files import read
from quillcast.live.scopes.rules import Rules
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import ScopeFile, ScopeFileWrong
from quillcast.protocol.scopes.state import ScopeConfig


class Served(NamedTuple):
    """A scope to be managed."""

    name: str
    file: str
    config: ScopeConfig
    rules: Rules
    """To be closed at the end."""


def served(file: Path, tell: Callable[[str], object]) -> Served:
    """The scope that a file describes, for its manager; `tell` hears why a policy was stopped.

    Raises `ScopeFileWrong`, `LocalError` if the file cannot be read, and as `plugins.opened`.
    """
    described = read(file)
    if faults := [described.fault(*each) for each in _not_yet(described.scope)]:
        raise ScopeFileWrong(faults)
    scope, rules = described.scope, Rules(described, tell)
    config = ScopeConfig(rules.policy, refusal=lambda party: _refusal(scope, party))
    return Served(scope.name, described.file, config, rules)


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
