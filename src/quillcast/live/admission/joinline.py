"""The join line, which one machine prints for another: where to join, which network to trust, and a one-time token.

`quillcast://HOST:PORT/FINGERPRINT?token=TOKEN&network=NAME`. The network's name is omitted if it is `default`. The
token is optional on a machine that was admitted before.
"""

import secrets
from base64 import b32encode
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from quillcast.core.errors import LocalError
from quillcast.live.transport import addresses
from quillcast.protocol.security.members import FINGERPRINT_LETTERS

SCHEME = "quillcast"
DEFAULT_NETWORK = "default"
_EXAMPLE = "quillcast://HOST:PORT/FINGERPRINT?token=TOKEN"


_TOKEN_BYTES = 15  # 24 letters and digits


def new_token() -> str:
    """A new one-time token, from the system's random source."""
    return b32encode(secrets.token_bytes(_TOKEN_BYTES)).decode().lower()


class JoinLine(msgspec.Struct, frozen=True):
    """A contact of a network, the fingerprint of the network's credential, and a token."""

    address: str
    fingerprint: str
    token: str = ""
    network: str = DEFAULT_NETWORK

    @classmethod
    def parse(cls, text: str) -> "JoinLine":
        """Read a line. Raises `LocalError` that explains the mistake without repeating the token."""
        parts = urlsplit(text.strip())
        if parts.scheme != SCHEME or not parts.netloc:
            raise LocalError(f"that is not a join line; it looks like {_EXAMPLE}")
        addresses.parse(parts.netloc)
        fingerprint = parts.path.strip("/").lower()
        if len(fingerprint) != FINGERPRINT_LETTERS or not fingerprint.isalnum():
            raise LocalError(
                f"{fingerprint!r} is not a fingerprint, which has {FINGERPRINT_LETTERS} letters and digits; "
                f"copy the whole line: {_EXAMPLE}"
            )
        chosen = dict(parse_qsl(parts.query))
        if unknown := sorted(chosen.keys() - {"token", "network"}):
            raise LocalError(f"{unknown[0]!r} is not part of a join line; it looks like {_EXAMPLE}")
        return cls(parts.netloc, fingerprint, chosen.get("token", ""), chosen.get("network", DEFAULT_NETWORK))

    def __str__(self) -> str:
        chosen = [f"token={quote(self.token)}"] if self.token else []
        if self.network != DEFAULT_NETWORK:
            chosen.append(f"network={quote(self.network)}")
        return f"{SCHEME}://{self.address}/{self.fingerprint}" + (f"?{'&'.join(chosen)}" if chosen else "")
