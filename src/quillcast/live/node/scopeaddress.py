"""The argument that tells a peer which scope to join."""

import re
from typing import NamedTuple

from quillcast.core.errors import LocalError, quoted
from quillcast.live.transport import addresses

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class ScopeAddress(NamedTuple):
    """A scope, and the address of the peer that runs its manager."""

    name: str
    address: str = ""
    """Empty if the network must be asked."""
    token: str = ""
    """Makes it a join line, which admits one member, once."""

    @classmethod
    def parse(cls, text: str) -> "ScopeAddress":
        """Read `NAME`, `NAME@HOST:PORT`, or a join line, which ends in `?token=TOKEN`. Raises `LocalError`."""
        name, at, rest = text.strip().partition("@")
        address, _, token = rest.partition("?token=")
        if not _NAME.fullmatch(name):
            raise LocalError(
                f"{quoted(text)} is not a scope: write NAME, or NAME@HOST:PORT with the address of the peer that runs "
                "its manager (quillcast scope serve prints it)"
            )
        if not at:
            return cls(name)
        return cls(name, addresses.written(*addresses.parse(address)), token)

    def __str__(self) -> str:
        return f"{self.name}@{self.address}" + (f"?token={self.token}" if self.token else "")
