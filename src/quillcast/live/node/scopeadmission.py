"""Admission to a scope: by the list in its file, by a join line, or by attributes of a certificate."""

import time
from collections.abc import Iterator, Mapping

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.live.admission.joinline import new_token
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.storage.store import Store
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.config import ScopeFile
from quillcast.protocol.security.members import Unadmitted
from quillcast.protocol.security.tokens import check_token, token_hash


class ScopeAdmission:
    """Decides who may be a member of one scope."""

    def __init__(self, scope: ScopeFile, store: Store) -> None:
        """`store` keeps the tokens of join lines, and the members that entered with them."""
        self._scope, self._store = scope, store

    def refusal(self, party: Party, attributes: Mapping[str, str], token: str) -> str:
        """Why a party whose certificate has these attributes, and that presents this token, cannot be a member.

        Empty if it can.
        """
        wanted = self._scope.admission
        listed = party.name if party.managed else party.id.hex()
        if listed in wanted.members or self._is_certified(attributes):
            return ""
        if not wanted.join_line:
            return self._how_else(party)
        try:
            return self._shown(party, token)
        except DiskFailed as problem:
            return f"scope {self._scope.name} cannot read its tokens: {problem}"

    def invite(self, address: str, life_s: float) -> ScopeAddress:
        """Return a join line for one member, which works once. Raises `LocalError` if the scope's file has none."""
        if not self._scope.admission.join_line:
            raise LocalError(
                f"scope {self._scope.name} has no join lines: write join_line = true under [admission] in its file, "
                f"and run: quillcast scope reload {self._scope.name}"
            )
        token = new_token()
        self._store.add_token(self._scope.name, token_hash(token), time.time_ns() + round(life_s * 10**9))
        return ScopeAddress(self._scope.name, address, token)

    def _is_certified(self, attributes: Mapping[str, str]) -> bool:
        """Whether the certificate of the peer that speaks for the party has all required attributes."""
        wanted = self._scope.admission.certificate
        return bool(wanted) and all(attributes.get(name) == value for name, value in wanted.items())

    def _shown(self, party: Party, token: str) -> str:
        if self._store.entered(self._scope.name, party.id):
            return ""
        if not token:
            return self._how_else(party)
        hash_, now_ns = token_hash(token), time.time_ns()
        try:
            check_token(
                self._store.token(self._scope.name, hash_), now_ns, f"quillcast scope invite {self._scope.name}"
            )
        except Unadmitted as problem:
            return f"scope {self._scope.name} does not admit this peer: {problem}"
        self._store.use_token(hash_, party.id, now_ns)
        return ""

    def _how_else(self, party: Party) -> str:
        who = f"scope {party.name}" if party.managed else "this peer"
        return f"scope {self._scope.name} does not admit {who}: {', or '.join(self._ways(party))}"

    def _ways(self, party: Party) -> Iterator[str]:
        added = f"its name {party.name}" if party.managed else f"its nodeId {party.id.hex()}"
        yield f"add {added} to members in the scope's file"
        if self._scope.admission.join_line:
            yield f"enter with a line that `quillcast scope invite {self._scope.name}` prints"
        if wanted := self._scope.admission.certificate:
            told = " and ".join(f"{name} = {value}" for name, value in wanted.items())
            yield f"join the network with a certificate that has {told} (quillcast node --invite --certify)"
