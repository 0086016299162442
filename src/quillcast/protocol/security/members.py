"""Certified peers: how a nodeId is bound to a key, and what a certificate must say (docs/design.md, sections 3 and 7).

With a network credential, the nodeId is a hash of the peer's key and a nonce that the issuer drew after it saw the key.
So nobody can choose a place on the ring. Without a network credential, the nonce is empty.
"""

import hashlib
from base64 import b32encode

import msgspec

from quillcast.core.errors import RemoteError
from quillcast.core.ids import ID_BYTES, NodeId, short

NONCE_BYTES = 16
KEY_BYTES = 32
FINGERPRINT_LETTERS = 32  # 160 bits, 5 per letter
CLOCK_SKEW_MAX_S = 3600.0  # a guess: detects wrong time zones, but tolerates clocks that drift without synchronisation

_FINGERPRINT_BYTES = 5 * FINGERPRINT_LETTERS // 8
_S = 10**9


class Unadmitted(RemoteError):
    """The peer is not a member of this network, as far as this peer can tell. `why` is one word for counters."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


class CertifiedPeer(msgspec.Struct, frozen=True):
    """The content of a certificate whose signature was checked. Times are nanoseconds since 1970 UTC."""

    public_key: bytes
    nonce: bytes
    from_ns: int
    until_ns: int

    @property
    def node_id(self) -> NodeId:
        """Return the nodeId, with the nonce of the issuer."""
        return member_id(self.public_key, self.nonce)


def member_id(public_key: bytes, nonce: bytes = b"") -> NodeId:
    """Return the leading 128 bits of the SHA-256 of the peer's public key and the issuer's nonce."""
    return NodeId(hashlib.sha256(public_key + nonce).digest()[:ID_BYTES])


def fingerprint(authority_key: bytes) -> str:
    """Return the fingerprint that people compare: 160 bits of the public key's SHA-256, as 32 letters."""
    return b32encode(hashlib.sha256(authority_key).digest()[:_FINGERPRINT_BYTES]).decode().lower()


def check_claim(member: CertifiedPeer, claimed_key: bytes, claimed_nonce: bytes) -> None:
    """Raise `Unadmitted` unless the stated identity is exactly the one that its certificate names."""
    claimed = member_id(claimed_key, claimed_nonce)
    if claimed != member.node_id or claimed_key != member.public_key:
        raise Unadmitted(
            "identity", f"it claims to be the peer {short(claimed)}, and its certificate is of {short(member.node_id)}"
        )


def check_lifetime(member: CertifiedPeer, now_ns: int) -> None:
    """Raise `Unadmitted` unless the certificate is valid now."""
    if now_ns < member.from_ns:
        ahead = spoken((member.from_ns - now_ns) / _S)
        raise Unadmitted("clock", f"its certificate begins {ahead} from now by this machine's clock; set the clock")
    if now_ns >= member.until_ns:
        ago = spoken((now_ns - member.until_ns) / _S)
        raise Unadmitted("expired", f"its certificate ended {ago} ago by this machine's clock; it has to join again")


def check_clocks(mine_ns: int, theirs_ns: int) -> None:
    """Raise `Unadmitted` if two clocks differ so much that certificates and tokens cannot be checked."""
    ahead_s = (theirs_ns - mine_ns) / _S
    if abs(ahead_s) > CLOCK_SKEW_MAX_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        raise Unadmitted(
            "clock", f"its clock is {spoken(abs(ahead_s))} {way} this machine's; set the one that is wrong"
        )


def spoken(seconds: float) -> str:
    """Return a length of time for people, in its largest unit."""
    for name, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 0.95 * size:
            count = round(seconds / size)
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{max(0, round(seconds))} s"
