"""What a scope file says to the manager that a node runs. What managers cannot keep yet is refused, not ignored."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from quillcast.live.scopes.files import not_kept, read
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
    if faults := not_kept(described):
        raise ScopeFileWrong(faults)
    scope, rules = described.scope, Rules(described, tell)
    most = scope.limits.members_max or 0
    config = ScopeConfig(rules.policy, refusal=lambda party: _refusal(scope, party), members_max=most)
    return Served(scope.name, described.file, config, rules)


def _refusal(scope: ScopeFile, party: Party) -> str:
    """Why a peer cannot be a member; empty if the file lists it."""
    if party.id.hex() in scope.admission.members:
        return ""
    return (
        f"scope {scope.name} does not admit this peer: add its nodeId {party.id.hex()} to members in the scope's file"
    )
