"""The line with which an application of another device uses a peer: its address, its identity, and a secret.

`quillcast-client://HOST:PORT/NODEID?secret=SECRET&authority=KEY&network=NAME`. `authority` is the public key of the
network's credential, left out in a network without one; so is the network's name if it is `default`.
"""

import secrets
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from quillcast.core.errors import LocalError
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact
from quillcast.live.transport import addresses

SCHEME = "quillcast-client"
ALL_LINES = "all"
"""In place of a line: all that a peer has given out."""
_EXAMPLE = "quillcast-client://HOST:PORT/NODEID?secret=SECRET"
_SECRET_BYTES = 18  # 24 letters and digits
_KEY_BYTES = 32
CLIENTS_MAX = 1 << 14  # of a line; a guess


def new_secret() -> str:
    """A secret, from the system's random source."""
    return secrets.token_urlsafe(_SECRET_BYTES)


class Invitation:
    """A line that was given out, and the latest `CLIENTS_MAX` clients that connected with it."""

    def __init__(self) -> None:
        self.clients: dict[bytes, None] = {}  # by id; some have left

    def note(self, client: bytes) -> None:
        """A client connected with it."""
        self.clients[client] = None
        if len(self.clients) > CLIENTS_MAX:
            del self.clients[next(iter(self.clients))]


class ClientLine(msgspec.Struct, frozen=True):
    """A peer to use from another device, its network, and the proof that it allows that."""

    contact: Contact
    secret: str
    authority_key: bytes = b""
    network: str = "default"

    @classmethod
    def parse(cls, text: str) -> "ClientLine":
        """Read a line. Raises `LocalError` that says what is wrong with it, and does not repeat the secret."""
        parts = urlsplit(text.strip())
        if parts.scheme != SCHEME or not parts.netloc:
            raise LocalError(
                f"that is not a line for clients; it looks like {_EXAMPLE}; `quillcast node --invite-client` prints one"
            )
        addresses.parse(parts.netloc)
        chosen = dict(parse_qsl(parts.query))
        if unknown := sorted(chosen.keys() - {"secret", "authority", "network"}):
            raise LocalError(f"{unknown[0]!r} is not part of a line for clients; it looks like {_EXAMPLE}")
        if not chosen.get("secret"):
            raise LocalError(f"the line has no secret; copy the whole line: {_EXAMPLE}")
        node, key = _bytes(parts.path.strip("/"), ID_BYTES), _bytes(chosen.get("authority", ""), _KEY_BYTES, 0)
        return cls(Contact(node, parts.netloc), chosen["secret"], key, chosen.get("network", "default"))

    def __str__(self) -> str:
        chosen = f"secret={quote(self.secret)}"
        if self.authority_key:
            chosen += f"&authority={self.authority_key.hex()}"
        if self.network != "default":
            chosen += f"&network={quote(self.network)}"
        return f"{SCHEME}://{self.contact.address}/{self.contact.node_id.hex()}?{chosen}"


def _bytes(text: str, *sizes: int) -> bytes:
    """Bytes in hexadecimal, as many as one of these."""
    try:
        read = bytes.fromhex(text)
    except ValueError:
        read = b"?"
    if len(read) not in sizes:
        raise LocalError(f"{text!r} has not {2 * sizes[0]} hexadecimal digits; copy the whole line: {_EXAMPLE}")
    return read
