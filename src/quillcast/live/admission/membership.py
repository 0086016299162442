"""Resolves the membership of a node from its arguments, its data folder and the user's folder."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from quillcast.core.errors import LocalError
from quillcast.live.admission.applications import apply
from quillcast.live.admission.authority import Authority
from quillcast.live.admission.joinline import JoinLine
from quillcast.live.admission.keyring import (
    MEMBERS_MAX,
    CertifiedIdentity,
    Keyring,
    admit_here,
    read_authority,
    user_folder,
)
from quillcast.live.transport.hello import Identity

_FAR_NS = 1 << 62  # later contacts do not displace the contact of the join line


class Membership(msgspec.Struct, frozen=True):
    """A node's membership: its identity, where that is stored, and whether the node can admit others."""

    membership: CertifiedIdentity
    keyring: Keyring
    authority: Authority | None


class MembershipResolver:
    """Finds or obtains a node's membership. With `make` it creates the credential of a new network if there is none."""

    def __init__(
        self,
        network: str,
        data: Path | None,
        *,
        credential: Path | None = None,
        join: JoinLine | None = None,
        make: bool = False,
        wall_ns: Callable[[], int],
    ) -> None:
        self.network, self.data, self.credential, self.join, self.make = network, data, credential, join, make
        self.wall_ns = wall_ns
        self.users = Keyring(user_folder(network))
        self.keyring = Keyring(data) if data is not None else self.users

    @property
    def expects_membership(self) -> bool:
        """Whether there will be a membership, as far as that is known in advance."""
        asked = self.make or self.join is not None or self.credential is not None
        return asked or self.keyring.certificate is not None or self.users.certificate is not None

    @property
    def adoptable(self) -> str | None:
        """The fingerprint of the network that a node without membership would be a member of if it started now."""
        return self.keyring.fingerprint or self.users.fingerprint

    async def find(self, timeout_s: float) -> Membership | None:
        """The node's membership, or None in a network without a credential.

        Raises `LocalError` if the arguments contradict the folder's contents or all identities are in use, and
        `Unreachable` if the join line did not work.
        """
        authority = self._authority()
        if self.join is not None:
            await self._join(self.join, timeout_s)
        elif authority is None and self.make and not self.keyring.fingerprint and not self.users.fingerprint:
            authority = self.keyring.make_authority(self.network, self.wall_ns())
        if not self.keyring.fingerprint and self.users.fingerprint:
            self._move_in(authority)
        if not self.keyring.fingerprint:
            return None
        return Membership(self._claim(authority), self.keyring, authority)

    def give_back(self) -> None:
        """Remove a credential that this node created, because it could not start."""
        self.keyring.unmake_authority()

    def _authority(self) -> Authority | None:
        """The network's credential, if this node may use it."""
        if self.credential is not None:
            authority = read_authority(self.credential)
            self.keyring.trust(authority.certificate)
            return authority
        known = self.keyring.authority()
        if known is None:
            users = self.users.authority()
            if users is not None and self.keyring.fingerprint in (None, users.fingerprint):
                known = users
        return known

    async def _join(self, line: JoinLine, timeout_s: float) -> None:
        """Get admitted with a join line, unless this folder already is."""
        known = self.keyring.fingerprint
        if known is not None and known != line.fingerprint:
            raise LocalError(
                f"{self.keyring.folder} belongs to another network (credential {known}, and the line says "
                f"{line.fingerprint}); name another --data folder or --network, or remove that folder to forget it"
            )
        if known is None:
            if not line.token:
                raise LocalError("the join line has no token, and this machine was not admitted before")
            self.keyring.prepare()  # a token works only once
            identities = [Identity.new() for _ in range(1 if self.data is not None else MEMBERS_MAX)]
            admitted = await apply(line, identities, wall_ns=self.wall_ns, timeout_s=timeout_s)
            self.keyring.trust(admitted.authority)
            self.keyring.add(
                (identity.secret, certificate)
                for identity, certificate in zip(identities, admitted.certificates, strict=True)
            )
        self.keyring.note_contacts([line.address], _FAR_NS)

    def _move_in(self, authority: Authority | None) -> None:
        """Give the data folder of an admitted user its own permanent identity."""
        certificate, now_ns = self.users.certificate, self.wall_ns()
        assert certificate is not None
        member = admit_here(authority, self.wall_ns) if authority is not None else self.users.take()
        if member is None:
            raise self._all_in_use(self.users)
        self.keyring.trust(certificate)
        self.keyring.add([member])
        self.keyring.note_contacts(self.users.contacts(), now_ns)

    def _claim(self, authority: Authority | None) -> CertifiedIdentity:
        locked = self.keyring.lock_identity()
        while locked is None and authority is not None:  # another process may lock the identity that this one added
            self.keyring.add([admit_here(authority, self.wall_ns)])
            locked = self.keyring.lock_identity()
        if locked is None:
            raise self._all_in_use(self.keyring)
        return locked

    @staticmethod
    def _all_in_use(keyring: Keyring) -> LocalError:
        return LocalError(
            f"all {keyring.count} identities in {keyring.folder} are in use by running peers; stop one, or join once "
            "more with a new line and a --data folder"
        )
