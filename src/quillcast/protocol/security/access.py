"""Permissions in a topic: the owner's access list, and how a peer proves for whom it acts.

A **principal** is the name of a credential: a hash of its public key. An access list has entries `publish:PRINCIPAL`
and `subscribe:PRINCIPAL`. A right that no entry names belongs to everybody in the network. The owner has all rights.
The list is part of the topic's descriptor, which the owner signs. If sources number the events, it also names
principals that could publish by an earlier list, and now cannot (`published:PRINCIPAL` or `published:everybody`):
subscribers must still get what they published then.

A **warrant** is a statement signed by a credential that a peer acts for it in a topic. It is bound to the nodeId of
that peer. Links prove nodeIds, so nobody else can use the warrant. Later versions will add further fields (grants that
expire and narrow down).
"""

import hashlib
from functools import lru_cache
from typing import Annotated

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import WireId

RIGHTS = ("publish", "subscribe")
FORMERLY, EVERYBODY = "published", "everybody"
PRINCIPAL_DIGITS = 2 * ID_BYTES
ENTRIES_MAX = 256  # of a list, because it travels with the descriptor; larger groups will need grants

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
_WARRANT = b"quillcast warrant 1\0"

PublicKey = Annotated[bytes, msgspec.Meta(max_length=_KEY_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(max_length=_SIGNATURE_BYTES)]


class AccessDenied(LocalError):
    """The topic's access list does not allow this credential to do that. The text names the rule."""


class Warrant(msgspec.Struct, frozen=True, array_like=True):
    """States that a peer acts in a topic for the credential with this public key."""

    key: PublicKey
    signature: Signature


class SourceWarrant(msgspec.Struct, frozen=True, array_like=True):
    """A source's warrant, with the nodeId that it is bound to. It is passed on with the stream."""

    node: WireId
    warrant: Warrant


def principal(key: bytes) -> str:
    """Return the name of a credential in access lists: 32 hexadecimal digits."""
    return hashlib.sha256(b"principal\0" + key).digest()[:ID_BYTES].hex()


def key_of(warrant: Warrant | None) -> bytes:
    """Return the credential that a warrant names; empty if there is none."""
    return warrant.key if warrant is not None else b""


def warrant_statement(node: bytes, topic: bytes) -> bytes:
    """Return the statement that a warrant signs."""
    return _WARRANT + node + topic


@lru_cache(maxsize=1024)  # a child presents its warrant with every join
def bearer(warrant: Warrant | None, node: bytes, topic: bytes) -> str:
    """Return the principal that a peer acts for; an empty string without a warrant of its own."""
    if warrant is None or not is_signed(warrant.key, warrant.signature, warrant_statement(node, topic)):
        return ""
    return principal(warrant.key)


def is_signed(key: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether this is a signature of the statement by the Ed25519 key."""
    from cryptography.exceptions import InvalidSignature  # imported late: clients never need it, and it takes long
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def is_principal(who: str) -> bool:
    """Whether this can be the name of a credential."""
    return len(who) == PRINCIPAL_DIGITS and set(who) <= set("0123456789abcdef")


def entry(right: str, who: str) -> str:
    """Return an entry of an access list. Raises `LocalError` for an invalid principal."""
    if not is_principal(who):
        raise LocalError(f"{who!r} is not a principal, which has {PRINCIPAL_DIGITS} hexadecimal digits")
    return f"{right}:{who}"


def is_restricted(access: tuple[str, ...], right: str) -> bool:
    """Whether the list restricts the right to the principals that it names."""
    return bool(access) and any(one.startswith(f"{right}:") for one in access)  # most topics have no list


def could_publish(access: tuple[str, ...], who: str) -> bool:
    """Whether a principal (or an empty string) could publish by an earlier list, as this one says."""
    return f"{FORMERLY}:{EVERYBODY}" in access or (bool(who) and f"{FORMERLY}:{who}" in access)


def noting_former(before: tuple[str, ...], access: tuple[str, ...]) -> tuple[str, ...]:
    """Return a list that follows another, with entries for those that could publish before and cannot now.

    The oldest of these entries are left out if the list has no room for them.
    """
    listed = tuple(one for one in access if not one.startswith(f"{FORMERLY}:"))
    if not is_restricted(listed, "publish"):
        return listed
    could = [one.partition(":")[2] for one in before if one.startswith((f"{FORMERLY}:", "publish:"))]
    if not is_restricted(before, "publish") or EVERYBODY in could:
        could = [EVERYBODY]
    former = [f"{FORMERLY}:{who}" for who in dict.fromkeys(could) if f"publish:{who}" not in listed]
    room = max(0, ENTRIES_MAX - len(listed))
    return (*listed, *former[max(0, len(former) - room) :])


def refusal(name: str, access: tuple[str, ...], owner_key: bytes, right: str, who: str) -> str | None:
    """Return the rule that denies `who` (a principal or an empty string) the right in this topic; None if none does."""
    if not access or not is_restricted(access, right):
        return None
    owner = principal(owner_key)
    if who and (who == owner or f"{right}:{who}" in access):
        return None
    named = [one.partition(":")[2] for one in access if one.startswith(f"{right}:")]
    mine = f"the credential {who[:8]}" if who else "a peer without credentials"
    others = ", ".join([f"{owner[:8]} (its owner)", *(one[:8] for one in named[:4])])
    others += f" and {len(named) - 4} more" if len(named) > 4 else ""
    return f"{mine} may not {right} to topic {name!r}; only these may: {others}. Ask the owner to add you"
