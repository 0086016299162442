"""Who runs the manager of a scope, proven by the scope's key.

Each epoch begins with a statement that the manager signs: this peer runs it. Members and superscopes keep the key of
the first statement. So a manager can continue at another peer with its state, which includes the key, and nobody else
can. A member that reports a higher epoch is believed only if it shows that statement.
"""

import hashlib
from functools import lru_cache

import msgspec

from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.messages import Succession
from quillcast.protocol.security.access import is_signed

_STATEMENT = b"quillcast succession 1\0"


def appointed(scope: Party, epoch: int, secret: bytes) -> Succession | None:
    """The statement of a manager that begins an epoch; None if its host drew no secret for the scope."""
    if not secret:
        return None
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # what clients never need

    seed = hashlib.blake2b(_STATEMENT, key=secret, digest_size=32).digest()
    key = Ed25519PrivateKey.from_private_bytes(seed)
    unsigned = Succession(scope.id, epoch, scope.contact, key.public_key().public_bytes_raw())
    return msgspec.structs.replace(unsigned, signature=key.sign(_statement(unsigned)))


@lru_cache(maxsize=1024)  # it comes with every order
def is_genuine(succession: Succession) -> bool:
    """Did the key that it names sign it?"""
    return is_signed(succession.key, succession.signature, _statement(succession))


def follows(new: Succession | None, known: Succession) -> bool:
    """Does a statement prove that the scope's manager began a later epoch, possibly at another peer?"""
    return (
        new is not None
        and (new.scope, new.key) == (known.scope, known.key)
        and new.epoch > known.epoch
        and is_genuine(new)
    )


def kept(new: Succession | None, known: Succession | None) -> Succession | None:
    """The statement to keep: the first one with a genuine signature, then those that follow it."""
    if known is None:
        return new if new is not None and is_genuine(new) else None
    return new if follows(new, known) else known


def _statement(succession: Succession) -> bytes:
    return _STATEMENT + msgspec.msgpack.encode((succession.scope, succession.epoch, succession.contact))
