"""Uses of topics, in words that clients share with the control interface: they import nothing else of it."""

import hashlib
from typing import Literal

Doing = Literal["publishes", "subscribes"]
"""What members and clients do in a topic."""
DIGEST_BYTES = 32  # of the secret that a client shows to a peer that serves it directly
SECRETS_MAX = 64  # of a guest: the latest announced and not yet shown; as many as clients wait for at a time
UNREACHABLE_MAX = 64  # peers that a client names as unreachable; a guess, far above those that are asked for one


def digest(secret: bytes) -> bytes:
    """The digest by which a server knows the secret that a client will show."""
    return hashlib.sha256(secret).digest()
