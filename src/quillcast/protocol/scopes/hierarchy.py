"""The hierarchy of scopes: named sets of jointly managed members, which are peers or scopes (figure 5).

Scopes form a directed acyclic graph. For one topic they form a tree under its root scope, because each member
registers for the topic with one superscope only: the first of its own that is the root scope or lies below it.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple, NewType

from quillcast.core.errors import LocalError, quoted
from quillcast.core.ids import ID_BYTES, short

ScopeId = NewType("ScopeId", bytes)
"""A scope's identity, derived from its key. It is no position on the ring."""

OVERLAY = ScopeId(bytes(ID_BYTES))
"""The scope without a manager, in which every peer is: the root scope of topics that name no other."""


def scope_id(key: bytes) -> ScopeId:
    """The leading 128 bits of the hash of the scope's public key."""
    return ScopeId(hashlib.sha256(b"scope\0" + key).digest()[:ID_BYTES])


class ScopeCycle(LocalError):
    """A scope would be a member of itself, directly or through others."""

    def __init__(self, member: str, owner: str) -> None:
        super().__init__(
            f"scope {member} cannot be a member of {owner}: {owner} lies below it; remove one of the memberships "
            "between them"
        )


class TwoRootScopes(LocalError):
    """A topic has one root scope."""

    def __init__(self, topic: bytes, root: str, other: str) -> None:
        super().__init__(
            f"topic {short(topic)} has the root scope {root}, and {other} is named as another: correct the topic's "
            "descriptor, or use a second topic"
        )


class TwoManagers(LocalError):
    """Scopes with one name have different keys."""

    def __init__(self, name: str, scope: str, other: str) -> None:
        """`scope` and `other` say which these are."""
        super().__init__(
            f"scope {quoted(name)} has a manager ({scope}), and another one ({other}) claims the name: stop that one, "
            "or rename its scope"
        )


class ManagerElsewhere(LocalError):
    """A peer claims to run a scope's manager, and does not prove that it took over."""

    def __init__(self, name: str, there: str, here: str) -> None:
        super().__init__(
            f"scope {quoted(name)} has a manager at {there}, and the one at {here} does not prove that it took over: "
            "stop that one, or start it with the state of the former one (quillcast scope export)"
        )


class ManagerMoved(LocalError):
    """A scope's manager goes on at another peer."""

    def __init__(self, name: str, address: str) -> None:
        super().__init__(
            f"the manager of scope {quoted(name)} moved to the peer at {address}, and members follow that one: "
            "serve the scope's file there; to have it back, export its state there and start it here with that"
        )


class NoWayToRoot(LocalError):
    """A member's superscopes do not lead to the topic's root scope."""

    def __init__(self, member: str, topic: bytes, root: str) -> None:
        super().__init__(
            f"{member} cannot take part in topic {short(topic)}: none of its superscopes is, or lies below, the root "
            f"scope {root}; make it a member of one that does"
        )


class NamedScope(NamedTuple):
    """A scope that somebody declared."""

    name: str
    key: bytes

    @property
    def id(self) -> ScopeId:
        """The hash of its key."""
        return scope_id(self.key)


class Hierarchy:
    """The scopes that are known, and who is a member of which. A set of files is checked with it before it is used."""

    def __init__(self) -> None:
        self.names: dict[bytes, str] = {OVERLAY: "overlay"}
        self.owners: dict[bytes, dict[ScopeId, None]] = {}  # by member; in the order in which it prefers them
        self.roots: dict[bytes, ScopeId] = {}  # by topic

    def add(self, scope: NamedScope) -> ScopeId:
        """Declare a scope. Raises `TwoManagers` if another one has its name."""
        for known, name in self.names.items():
            if name == scope.name and known != scope.id:
                raise TwoManagers(name, f"scopeId {short(known)}", f"scopeId {short(scope.id)}")
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
            raise TwoRootScopes(topic, self.name(known), self.name(root))

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
