"""Changes of a running scope from other machines: signed by an operator that the scope's file names.

What is signed names the scope, the peer that passes it on and the manager's present challenge. So nobody else can pass
it on, and nobody twice: a change that was accepted ends the challenge.
"""

from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec

from quillcast.protocol.security.access import AccessDenied, PublicKey, Signature, is_signed, principal

ORDER_MAX = 64 << 10  # bytes of a change; the control socket carries no more
_STATEMENT = b"quillcast change of a scope 1\0"


class WantedChange(msgspec.Struct, frozen=True):
    """A wanted change: a question of the control socket, without the scope's name."""

    ask: Literal["set_policy", "unset_policy", "invite_to_scope"]
    arguments: dict[str, Any]
    challenge: str
    """What the manager showed last (`ScopeStatus.challenge`)."""


class SignedChange(msgspec.Struct, frozen=True):
    """A change, and who wants it."""

    change: Annotated[str, msgspec.Meta(max_length=ORDER_MAX)]
    """A `WantedChange` as JSON, as it was signed."""
    key: PublicKey
    signature: Signature


def statement(scope: bytes, node: bytes, change: str) -> bytes:
    """What an operator signs for the peer with this nodeId to pass on."""
    return _STATEMENT + scope + node + change.encode()


def opened(
    signed: SignedChange, name: str, scope: bytes, node: bytes, operators: Collection[str], challenge: str
) -> WantedChange:
    """The change that a peer passes on. Raises `AccessDenied` unless an operator signed it for now."""
    who = principal(signed.key)
    if who not in operators:
        raise AccessDenied(
            f"scope {name} takes no changes from the credentials {who}: add them to operators in the scope's file, and "
            f"run: quillcast scope reload {name}"
        )
    if not is_signed(signed.key, signed.signature, statement(scope, node, signed.change)):
        raise AccessDenied(f"scope {name}: this change was not signed for the peer that passes it on")
    change = msgspec.json.decode(signed.change, type=WantedChange)
    if change.challenge != challenge:
        raise AccessDenied(
            f"scope {name} was changed, or its manager started, after this change was signed: run the command again"
        )
    return change
