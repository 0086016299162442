"""Who may do what in a topic: its owner's list, and how a peer shows on whose behalf it acts.

A **principal** is the name of a credential: a hash of its public key. An access list has entries `publish:PRINCIPAL`
and `subscribe:PRINCIPAL`; a right that no entry names is everybody's in the network, and the owner has all. The list
stands in the topic's descriptor, which its owner signs.

A **warrant** is a credential's word that a peer acts for it in a topic. It is bound to that peer's nodeId, which links
prove, so nobody who sees it can use it. What later versions add to it (grants that expire and narrow down) goes into
further fields.
"""

import hashlib
from functools import lru_cache
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from quillcast.core.errors import LocalError
from quillcast.core.ids import ID_BYTES

RIGHTS = ("publish", "subscribe")
PRINCIPAL_DIGITS = 2 * ID_BYTES
ENTRIES_MAX = 256  # of a list: it travels with the descriptor; larger circles come with grants

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_WARRANT = b"quillcast warrant 1\0"

Key = Annotated[bytes, msgspec.Meta(max_length=_KEY_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(max_length=_SIGNATURE_BYTES)]


class AccessDenied(LocalError):
    """The topic's access list does not allow this; the text names the rule."""


class Warrant(msgspec.Struct, frozen=True, array_like=True):
    """The credential with this public key says that a peer acts for it in a topic."""

    key: Key
    signature: Signature


def principal(key: bytes) -> str:
    """What a credential is called in access lists: 32 hexadecimal digits."""
    return hashlib.sha256(b"principal\0" + key).digest()[:ID_BYTES].hex()


def warrant_statement(node: bytes, topic: bytes) -> bytes:
    """What a warrant signs."""
    return _WARRANT + node + topic


@lru_cache(maxsize=1024)  # a child shows its warrant with every join
def bearer(warrant: Warrant | None, node: bytes, topic: bytes) -> str:
    """The principal that a peer acts for; nobody, an empty string, without a warrant that is its own."""
    if warrant is None or not is_signed(warrant.key, warrant.signature, warrant_statement(node, topic)):
        return ""
    return principal(warrant.key)


def is_signed(key: bytes, signature: bytes, statement: bytes) -> bool:
    """Did the Ed25519 key sign this?"""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def entry(right: str, who: str) -> str:
    """An entry of an access list. Raises `LocalError` for what is no principal."""
    if len(who) != PRINCIPAL_DIGITS or not set(who) <= set("0123456789abcdef"):
        raise LocalError(f"{who!r} is not a principal, which has {PRINCIPAL_DIGITS} hexadecimal digits")
    return f"{right}:{who}"


def is_restricted(access: tuple[str, ...], right: str) -> bool:
    """Does the list name who has the right, so that others have it not?"""
    return any(one.startswith(f"{right}:") for one in access)


def refusal(name: str, access: tuple[str, ...], owner_key: bytes, right: str, who: str) -> str | None:
    """The rule by which `who` (a principal, or nobody) may not do that in the topic of this name; None: it may."""
    if not access or not is_restricted(access, right):
        return None
    owner = principal(owner_key)
    if who and (who == owner or f"{right}:{who}" in access):
        return None
    named = [one.partition(":")[2] for one in access if one.startswith(f"{right}:")]
    mine = f"the credential {who[:8]}" if who else "a peer without credentials"
    others = ", ".join(one[:8] for one in named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
    return (
        f"topic {name!r} lets nobody {right} but {others} and its owner {owner[:8]}, and not {mine}; "
        "ask the owner for it"
    )
