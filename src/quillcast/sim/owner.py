"""Credentials of simulated programs: of a topic's owner, and of a machine's publishers and subscribers."""

import hashlib

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from quillcast.protocol.security.access import Warrant, entry, principal, warrant_statement
from quillcast.protocol.topics.descriptor import Descriptor


class Credentials:
    """A key pair for a machine's programs, the same in every run."""

    def __init__(self, name: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
        self.public_key = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @classmethod
    def of(cls, machine: int) -> "Credentials":
        """The credentials of the programs on a machine."""
        return cls(f"machine {machine}")

    @property
    def principal(self) -> str:
        """The name in access lists."""
        return principal(self.public_key)

    def may(self, right: str) -> str:
        """The entry in an access list that gives this principal a right."""
        return entry(right, self.principal)

    def warrant(self, node: bytes, topic: bytes) -> Warrant:
        """A warrant that a peer acts for this principal in a topic."""
        return Warrant(self.public_key, self._key.sign(warrant_statement(node, topic)))

    def own(self, descriptor: Descriptor, access: tuple[str, ...]) -> Descriptor:
        """The descriptor with an access list, owned and signed by this credential."""
        unsigned = msgspec.structs.replace(descriptor, owner_key=self.public_key, access=access, signature=b"")
        return msgspec.structs.replace(unsigned, signature=self._key.sign(unsigned.statement))
