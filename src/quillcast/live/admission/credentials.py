"""Credentials of applications: keys that create topics, publish and subscribe.

A peer's identity says which process it is; a credential says for whom it acts. It is a secret file. Access lists
contain its `principal`.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quillcast.core.errors import FAILURES, DiskFailed, LocalError
from quillcast.files import KEY_BYTES_MAX, read_bytes
from quillcast.protocol.scopes.operators import SignedChange, statement
from quillcast.protocol.security.access import Warrant, principal, warrant_statement
from quillcast.protocol.topics.descriptor import Descriptor

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Credentials:
    """An Ed25519 key for `credentials=` of `Node.create`, `publish` and `subscribe`."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self.public_key = key.public_key().public_bytes_raw()
        self.principal = principal(self.public_key)
        """The name for access lists: 32 hexadecimal digits."""

    @classmethod
    def new(cls) -> "Credentials":
        """Create a new one, from the system's random source."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path | str) -> "Credentials":
        """Load one from a file that `save` wrote. Raises `LocalError` that names the file."""
        from cryptography.hazmat.primitives import serialization  # most applications have no credentials
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            key = serialization.load_pem_private_key(read_bytes(Path(path), KEY_BYTES_MAX), None)
        except OSError as problem:
            instead = "; run: quillcast credentials new FILE" if isinstance(problem, FileNotFoundError) else ""
            raise LocalError(f"the credentials {path} cannot be read: {problem.strerror}{instead}") from problem
        except (ValueError, TypeError) as problem:
            raise LocalError(
                f"{path} holds no credentials (an Ed25519 key in PEM format, without a password); "
                "run: quillcast credentials new FILE"
            ) from problem
        if not isinstance(key, Ed25519PrivateKey):
            raise LocalError(f"{path} holds no Ed25519 key")
        return cls(key)

    def save(self, path: Path | str) -> None:
        """Write it to a new file that only the owner can read. Raises `LocalError`, or `DiskFailed`."""
        from quillcast.live.transport.certificates import secret_pem  # likewise

        try:
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(made, "wb") as file:
                    file.write(secret_pem(self._key))
            except OSError:
                Path(path).unlink()  # an incomplete key is useless
                raise
        except OSError as problem:
            text = f"the credentials cannot be written to {path}: {problem.strerror}; name another file"
            kind = DiskFailed if problem.errno in FAILURES else LocalError
            raise kind(text) from problem

    def warrant(self, node: bytes, topic: bytes) -> Warrant:
        """Make the warrant with which a peer acts for this credential in a topic."""
        return Warrant(self.public_key, self._key.sign(warrant_statement(node, topic)))

    def own(self, descriptor: Descriptor) -> Descriptor:
        """Return the descriptor, owned and signed by this credential."""
        unsigned = msgspec.structs.replace(descriptor, owner_key=self.public_key, signature=b"")
        return msgspec.structs.replace(unsigned, signature=self._key.sign(unsigned.statement))

    def change(self, scope: bytes, node: bytes, change: str) -> SignedChange:
        """Sign a change of a running scope, for the peer that passes it on."""
        return SignedChange(change, self.public_key, self._key.sign(statement(scope, node, change)))

    def __repr__(self) -> str:
        return f"Credentials({self.principal[:8]})"
