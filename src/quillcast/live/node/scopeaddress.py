"""How a peer is told of the scope that it is to be a member of."""

import re
from typing import NamedTuple

from quillcast.core.errors import LocalError, quoted
from quillcast.live.transport import addresses

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class ScopeAddress(NamedTuple):
    """A scope, and where the peer listens that runs its manager."""

    name: str
    address: str

    @classmethod
    def parse(cls, text: str) -> "ScopeAddress":
        """Read `NAME@HOST:PORT`. Raises `LocalError`."""
        name, at, address = text.partition("@")
        if not at or not _NAME.fullmatch(name):
            raise LocalError(
                f"{quoted(text)} names no scope: write NAME@HOST:PORT with the scope's name and the address of the "
                "peer that runs its manager (quillcast scope serve prints it)"
            )
        return cls(name, addresses.written(*addresses.parse(address)))
