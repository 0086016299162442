"""How topics are used, in words that clients share with the control interface: they import nothing else of it."""

from typing import Literal

Doing = Literal["publishes", "subscribes"]
"""What members and clients do in a topic."""
DIGEST_BYTES = 32  # of the secret that a client shows to a peer that serves it directly
UNREACHABLE_MAX = 64  # peers that a client names as out of its reach; a guess, far above those that are asked for one
