"""One-time tokens, which admit new machines to a network. The issuer of a token stores only its hash."""

import hashlib

import msgspec

from quillcast.protocol.security.members import Unadmitted, spoken

TOKEN_LIFE_S = 900.0  # a guess: time to walk to the next machine
_S = 10**9


class Token(msgspec.Struct, frozen=True):
    """The issuer's record of a token. Times are nanoseconds since 1970 UTC by the issuer's clock; 0 means not yet."""

    until_ns: int
    used_ns: int = 0


def token_hash(token: str) -> bytes:
    """Return the hash that identifies a token."""
    return hashlib.sha256(b"quillcast token 1\0" + token.encode()).digest()


def check_token(token: Token | None, now_ns: int, command: str = "quillcast node --invite") -> None:
    """Raise `Unadmitted` unless a token is known, unused and not expired. `command` prints a line with a new one."""
    if token is None:
        raise Unadmitted(
            "token",
            f"the peer that was asked did not issue its token, or no longer knows it; print a new line: {command}",
        )
    if token.used_ns:
        ago = spoken((now_ns - token.used_ns) / _S)
        raise Unadmitted(
            "token", f"its token was used {ago} ago; each token works only once; print a new line: {command}"
        )
    if now_ns >= token.until_ns:
        ago = spoken((now_ns - token.until_ns) / _S)
        raise Unadmitted("token", f"its token expired {ago} ago; print a new line: {command}")
