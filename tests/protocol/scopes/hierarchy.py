"""The hierarchy of scopes as a whole: an oracle for what managers and members find out by messages."""

from collections.abc import Iterator
from typing import NamedTuple

from quillcast.core.ids import short
from quillcast.protocol.scopes.hierarchy import (
    OVERLAY,
    NoWayToRoot,
    ScopeCycle,
    ScopeId,
    TwoRootScopes,
    scope_id,
)


class NamedScope(NamedTuple):
    """A scope that somebody declared."""

    name: str

    @property
    def id(self) -> ScopeId:
        """The hash of its name."""
        return scope_id(self.name.encode())


class Hierarchy:
    """All scopes and their members, as nobody knows them in a network: what managers agree on is compared with it."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {OVERLAY: "overlay"}
        self.owners: dict[bytes, dict[ScopeId, None]] = {}  # by member; in the order in which it prefers them
        self.roots: dict[bytes, ScopeId] = {}  # by topic

    def add(self, scope: NamedScope) -> ScopeId:
        """Declare a scope."""
        self.names[scope.id] = scope.name
        return scope.id

    def join(self, member: bytes, owner: ScopeId) -> None:
        """Make a peer or scope a member of a scope. Raises `ScopeCycle`."""
        if owner == member or member in self.above(owner):
            raise ScopeCycle(self.name(member), self.name(owner))
        self.owners.setdefault(member, {})[owner] = None

    def leave(self, member: bytes, owner: ScopeId) -> None:
        """End a membership."""
        self.owners.get(member, {}).pop(owner, None)

    def set_root(self, topic: bytes, root: ScopeId) -> None:
        """Name a topic's root scope. Raises `TwoRootScopes` if it has another."""
        known = self.roots.setdefault(topic, root)
        if known != root:
            raise TwoRootScopes(topic.hex()[:8], self.name(known), self.name(root))

    def root(self, topic: bytes) -> ScopeId:
        """The topic's root scope."""
        return self.roots.get(topic, OVERLAY)

    def name(self, member: bytes) -> str:
        """A scope's name; the beginning of its id for a peer."""
        return self.names.get(member, short(member))

    def above(self, member: bytes) -> dict[ScopeId, None]:
        """The scopes in whose span a member lies, the nearest first; without the overlay."""
        found = dict[ScopeId, None]()
        level = [member]
        while level:
            owners = {owner: None for each in level for owner in self.owners.get(each, ())}
            level = [owner for owner in owners if owner not in found]
            found |= owners
        return found

    def owner(self, member: bytes, topic: bytes) -> ScopeId:
        """The superscope with which a member registers for a topic. Raises `NoWayToRoot`."""
        root = self.root(topic)
        for owner in self.owners.get(member, ()):
            if root in (owner, OVERLAY) or root in self.above(owner):
                return owner
        if root == OVERLAY:
            return OVERLAY
        raise NoWayToRoot(self.name(member), topic, self.name(root))

    def path(self, member: bytes, topic: bytes) -> Iterator[bytes]:
        """A member and the superscopes through which it takes part in a topic, up to below the root scope."""
        while member != self.root(topic):
            yield member
            member = self.owner(member, topic)

    def span(self, scope: ScopeId) -> list[bytes]:
        """The peers at the bottom of the hierarchy below a scope."""
        return sorted(member for member in self.owners if member not in self.names and scope in self.above(member))
