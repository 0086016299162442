"""The hierarchy of scopes: named sets of jointly managed members, which are peers or scopes (figure 5).

Scopes form a directed acyclic graph. For one topic they form a tree under its root scope, because each member
registers for the topic with one superscope only: the first of its own that is the root scope or lies below it.
"""

import hashlib
from typing import NewType

from quillcast.core.errors import LocalError, quoted
from quillcast.core.ids import ID_BYTES, short

ScopeId = NewType("ScopeId", bytes)
"""A scope's identity, derived from its name."""

OVERLAY = ScopeId(bytes(ID_BYTES))
"""The scope without a manager, in which every peer is: the root scope of topics that name no other."""


def scope_id(name: bytes) -> ScopeId:
    """The leading 128 bits of the hash of the scope's name, so that everybody who can name a scope knows its id."""
    return ScopeId(hashlib.sha256(b"scope\0" + name).digest()[:ID_BYTES])


class ScopeCycle(LocalError):
    """A scope would be a member of itself, directly or through others."""

    def __init__(self, member: str, owner: str) -> None:
        super().__init__(
            f"scope {member} cannot be a member of {owner}: {owner} lies below it; remove one of the memberships "
            "between them"
        )


class TwoRootScopes(LocalError):
    """A topic has one root scope."""

    def __init__(self, topic: str, root: str, other: str) -> None:
        if other:
            super().__init__(
                f"topic {topic} is rooted at {called(root)}, and cannot be rooted at {called(other)} too: use another "
                "topic, or say root = true for it in the file of one scope only"
            )
        else:
            super().__init__(
                f"topic {topic} is rooted at {called(root)}, and only members of that scope can use it: enter "
                f"that scope (--scope {root}@HOST:PORT), or use another topic"
            )


class NoRootScope(LocalError):
    """A topic should be rooted at a scope that is not above this peer, or whose file does not say so."""

    def __init__(self, topic: str, root: str) -> None:
        super().__init__(
            f"topic {topic} cannot be rooted at scope {root}: this peer is in no scope of that name whose file says "
            f"root = true for the topic; write that in the scope's file, and add --scope {root}@HOST:PORT"
        )


def called(scope: str) -> str:
    """A root scope, as people read it."""
    return f"scope {scope}" if scope else "the overlay"


class ManagerElsewhere(LocalError):
    """A peer claims to run a scope's manager, but does not prove that it took over."""

    def __init__(self, name: str, there: str, here: str) -> None:
        super().__init__(
            f"scope {quoted(name)} has a manager at {there}, and the one at {here} does not prove that it took over: "
            "stop that one, or start it with the state of the former one (quillcast scope export)"
        )


class ManagerMoved(LocalError):
    """A scope's manager continues at another peer."""

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
