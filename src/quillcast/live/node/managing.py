"""The scopes whose managers a peer runs: started from their files, shown, and changed by the operator."""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from quillcast.core.errors import DiskFailed, LocalError, RemoteError, Unreachable
from quillcast.core.messages import Contact
from quillcast.core.status.scopes import PolicyChange, ScopeReload, ScopeRule, ScopeStatus, TopicPolicy
from quillcast.live.node.managersearch import ManagerSearch, awaited
from quillcast.live.node.scopeaddress import ScopeAddress
from quillcast.live.node.scopeadmission import ScopeAdmission
from quillcast.live.node.scopeexport import ExportedScope
from quillcast.live.node.scopestatus import for_others, scope_status, shown_rule, shown_rules
from quillcast.live.runtime.problems import Problems
from quillcast.live.runtime.pump import Pump
from quillcast.live.scopes.files import changed
from quillcast.live.scopes.rules import Rules
from quillcast.live.scopes.serving import Served, Superscope, check_reload, served
from quillcast.live.scopes.socketline import Surroundings
from quillcast.live.storage.store import Store
from quillcast.live.transport import certificates
from quillcast.live.transport.links import Links
from quillcast.protocol.scopes.channels import KEY_BYTES, Party
from quillcast.protocol.scopes.config import TopicRule
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.operators import SignedChange, opened
from quillcast.protocol.scopes.state import Member, ScopeConfig
from quillcast.protocol.scoping.scoping import Scoping
from quillcast.protocol.security.access import AccessDenied

CHALLENGE_BYTES = 16


class Superscopes:
    """Hears where the managers of the superscopes run of a scope that is managed here (`ManagerSearch`)."""

    def __init__(self, scoping: Scoping, scope: bytes) -> None:
        self.found = partial(scoping.superscope_found, scope)
        self.not_found = partial(scoping.superscope_not_found, scope)


class Managing:
    """The managers of scopes in one peer."""

    def __init__(
        self, pump: Pump, scoping: Scoping, store: Store | None, problems: Problems, token_life_s: float,
        surroundings: Surroundings,
    ) -> None:  # fmt: skip
        """`store` keeps the managers' states."""
        self._surroundings, self._problems, self._tell = surroundings, problems, problems.append
        self._pump, self._scoping, self._store = pump, scoping, store
        self._token_life_s = token_life_s
        self._challenges: dict[str, str] = {}
        self._served: dict[str, Served] = {}
        self._admissions: dict[str, ScopeAdmission] = {}
        self._reloading = asyncio.Lock()
        self._searches: list[ManagerSearch] = []
        scoping.tell(self._ended, self._obstructed, self._tell)

    def is_new(self, name: str) -> bool:
        """Whether the data folder has no state of a manager of this scope."""
        return self._store is not None and self._store.scope(name) is None

    async def manage(
        self, scope: Served, contact: Contact, links: Links, exported: ExportedScope | None = None
    ) -> None:
        """Run the manager of a scope; if the data folder has its state, it continues as the same manager.

        `exported` is its state at another peer. Raises `LocalError` without a data folder, because members would ignore
        a manager that has forgotten them. While the manager of a superscope does not answer, this one manages its
        members, says what it waits for, and registers later.
        """
        name = scope.scope.name
        if (store := self._store) is None:
            raise LocalError(f"the manager of scope {name} needs a folder for its state: data=, or --data")
        if exported is not None:
            _take_over(store, name, exported)
        config = self._admit_by(scope, store, links)
        saved = store.scope(name)
        party = Party(scope_id(name.encode()), contact, managed=True, name=name)
        known = ScopeManager.known_owners(saved) if saved else {}
        owners = [await self._superscope(each, contact, links, known) for each in scope.superscopes]
        unreached = [owner.id for owner in owners if not owner.contact.node_id]
        tokens: dict[bytes, str] = {scope_id(each.name.encode()): each.token for each in scope.superscopes}
        if saved:
            manager = ScopeManager.restored(saved, config, scope=party, owners=owners, tokens=tokens)
        else:
            manager = ScopeManager.new(party, owners, config, tokens)
        manager.state.draw_secret(secrets.token_bytes(KEY_BYTES))
        for problem in await asyncio.to_thread(scope.rules.restore, manager.state.settings):
            self._tell(problem)
        scope.rules.serve(self._surroundings, partial(self._scoping.policy_answered, party.id))
        self._served[name] = scope
        self._challenges[name] = secrets.token_hex(CHALLENGE_BYTES)
        self._pump.call(self._scoping.manage, manager, partial(self._keep, store, name))
        search = ManagerSearch(links, self._pump, Superscopes(self._scoping, party.id))
        search.begin(_at(each) for each in scope.superscopes if scope_id(each.name.encode()) in unreached)
        self._searches.append(search)

    def _admit_by(self, scope: Served, store: Store, links: Links) -> ScopeConfig:
        admission = self._admissions[scope.scope.name] = ScopeAdmission(scope.scope, store)
        return scope.config._replace(
            refusal=admission.refusal, attributes=lambda party: _attributes(links, party.contact.node_id)
        )

    async def reload(self, name: str, links: Links) -> ScopeReload:
        """Go by the file of a scope that is managed here as it is now. If that is wrong, everything stays as it is.

        Raises `ScopeFileWrong` with the line, another `LocalError` if the file cannot be read, and `DiskFailed`.
        """
        async with self._reloading:
            self.rules(name)
            scope = await asyncio.to_thread(served, Path(self._served[name].file), self._tell)  # may start processes
            try:
                self.rules(name)  # the manager may have ended meanwhile
                former = self._served[name]
                check_reload(scope, former, (each for each in self._served.values() if each is not former))
            except LocalError:
                scope.rules.close()
                raise
            return self._reloaded(former, scope, links)

    def _reloaded(self, former: Served, scope: Served, links: Links) -> ScopeReload:
        name, store = scope.scope.name, self._store
        assert store is not None, "a manager has a data folder"
        manager, _ = self._scoping.managers[scope_id(name.encode())]
        members = [*manager.state.members.values()]

        def change() -> bool:
            scope.rules.succeed(former.rules)
            self._served[name] = scope
            config = self._admit_by(scope, store, links)
            return self._pump.call(self._scoping.reconfigure, manager.state.scope.id, config)

        topics = self._topics_changed(name, change)
        topics = tuple(each for each in topics if _policy(each.before) != _policy(each.after))
        gone = [member for member in members if member.label not in manager.state.members]
        return ScopeReload(name, scope.file, *changed(former.scope, scope.scope), topics, tuple(map(_called, gone)))

    async def _superscope(
        self, scope: Superscope, contact: Contact, links: Links, known: Mapping[bytes, Party]
    ) -> Party:
        """Return the party of a superscope; without a nodeId if its manager does not answer, unless it is `known`.

        Raises `LocalError` for a superscope without an address whose manager does not run at this peer.
        """
        id_ = scope_id(scope.name.encode())
        if not scope.address and id_ not in self._scoping.managers:
            raise LocalError(
                f"{scope.place}: this peer does not run the manager of superscope {scope.name}: write "
                f"{scope.name}@HOST:PORT with the address of the peer that does, or serve the file of {scope.name} too"
            )
        try:
            manager = await links.greet(scope.address) if scope.address else contact
        except Unreachable as problem:
            if isinstance(problem.__cause__, RemoteError):  # waiting is no use: a peer of another network, for example
                raise LocalError(f"{scope.place}: superscope {scope.name} is not there: {problem}") from problem
            return known.get(id_) or awaited(_at(scope))
        return Party(id_, manager, managed=True, name=scope.name)

    def statuses(self) -> tuple[ScopeStatus, ...]:
        """The scopes that are managed here."""
        return tuple(self._status(manager) for manager, _ in self._scoping.managers.values())

    def _status(self, manager: ScopeManager) -> ScopeStatus:
        name = manager.state.scope.name
        status = scope_status(manager, self._served[name], self._scoping.host.now())
        return msgspec.structs.replace(status, challenge=self._challenges[name])

    def sees_all(self, asker: Contact, scope: bytes) -> bool:
        """Whether a peer is this peer, or a member of a scope that is managed here. Raises `LocalError`."""
        members = self._manager(scope).state.members.values()
        return asker.node_id in {self._scoping.host.me, *(member.party.contact.node_id for member in members)}

    def challenge(self, scope: bytes) -> str:
        """What an operator must sign now to change a scope that is managed here. Raises `LocalError`."""
        return self._challenges[self._manager(scope).state.scope.name]

    def shown(self, scope: bytes, *, whole: bool) -> ScopeStatus:
        """A scope that is managed here: whole, or as peers that are not members see it. Raises `LocalError`."""
        manager = self._manager(scope)
        status = self._status(manager)
        return status if whole else for_others(status, manager)

    async def changed_by(self, asker: Contact, scope: bytes, signed: SignedChange) -> PolicyChange | str:
        """Carry out a change that an operator signed and this peer passed on. Raises `LocalError` and `DiskFailed`."""
        name = self._manager(scope).state.scope.name
        try:
            change = opened(
                signed, name, scope, asker.node_id, self._served[name].scope.operators, self._challenges[name]
            )
        except AccessDenied:
            self._tell(f"scope {name}: refused a change that peer {asker.node_id.hex()[:8]} at {asker.address} sent")
            raise
        self._challenges[name] = secrets.token_hex(CHALLENGE_BYTES)
        try:
            match change.ask:
                case "set_policy":
                    return await self.set_policy(name, topic_rule(**change.arguments))
                case "unset_policy":
                    return self.unset_policy(name, **change.arguments)
                case "invite_to_scope":
                    address = self._scoping.host.contact.address
                    return str(self.invite(name, address, **change.arguments))
        except (TypeError, msgspec.ValidationError) as problem:
            raise LocalError(f"scope {name}: this change is not understood ({problem})") from problem

    def _manager(self, scope: bytes) -> ScopeManager:
        if scope not in self._scoping.managers or self._scoping.managers[scope][0].state.scope.name not in self._served:
            raise LocalError(f"the peer at {self._scoping.host.contact.address} does not run the manager of this scope")
        return self._scoping.managers[scope][0]

    def rules(self, name: str) -> Rules:
        """The rules of a scope that is managed here. Raises `LocalError`."""
        if name not in self._served or scope_id(name.encode()) not in self._scoping.managers:
            known = ", ".join(manager.state.scope.name for manager, _ in self._scoping.managers.values()) or "none"
            raise LocalError(f"this peer does not run the manager of a scope {name!r}; it runs those of: {known}")
        return self._served[name].rules

    def invite(self, name: str, address: str) -> ScopeAddress:
        """Return a join line of a scope managed here. Raises `LocalError` if there is no such scope or no join line."""
        self.rules(name)
        return self._admissions[name].invite(address, self._token_life_s)

    async def set_policy(self, name: str, rule: TopicRule) -> PolicyChange:
        """Apply this rule in a scope from now on, also after a restart. Raises `LocalError` and `DiskFailed`."""
        opened = await asyncio.to_thread(self.rules(name).opened, rule)  # it may start a process
        return self._changed(name, rule.pattern, lambda rules: rules.set(opened))

    def unset_policy(self, name: str, pattern: str) -> PolicyChange:
        """Return to the rule of the scope's file. Raises `LocalError` and `DiskFailed`."""
        return self._changed(name, pattern, lambda rules: rules.unset(pattern))

    def close(self) -> None:
        """End the processes of the policies, and the searches for superscopes."""
        for search in self._searches:
            search.close()
        for scope in self._served.values():
            scope.rules.close()

    def _changed(self, name: str, pattern: str, change: Callable[[Rules], None]) -> PolicyChange:
        rules = self.rules(name)

        def set_policies() -> bool:
            change(rules)
            return self._pump.call(self._scoping.set_policies, scope_id(name.encode()), rules.settings)

        topics = self._topics_changed(name, set_policies)
        return PolicyChange(name, pattern, shown_rules(rules), topics)

    def _topics_changed(self, name: str, change: Callable[[], bool]) -> tuple[TopicPolicy, ...]:
        """Change the rules of a scope: the topics in use to which another one applies. Raises `DiskFailed`."""
        manager, _ = self._scoping.managers[scope_id(name.encode())]
        topics = [kept.name for kept in manager.state.topics.values()]
        before = self._shown_rules(name, topics)
        if not change():
            raise DiskFailed(f"the manager of scope {name} could not save the change, and has ended; see its problems")
        self._challenges[name] = secrets.token_hex(CHALLENGE_BYTES)  # operators elsewhere saw the old state
        after = self._shown_rules(name, topics)
        return tuple(TopicPolicy(each, before[each], after[each]) for each in topics if before[each] != after[each])

    def _shown_rules(self, name: str, topics: Iterable[str]) -> dict[str, ScopeRule | None]:
        rules = self._served[name].rules
        return {each: None if (rule := rules.rule(each)) is None else shown_rule(rules, rule) for each in topics}

    def _ended(self, scope: bytes, epoch: int, at: Contact) -> None:
        name = next((name for name in self._served if scope_id(name.encode()) == scope), "")
        why = f"it runs at the peer at {at.address} since epoch {epoch}"
        if at.node_id == self._scoping.host.me:
            why = (
                f"its state is old: other peers know epoch {epoch}; restore the latest data folder, or start it again "
                "to continue with this one"
            )
        self._tell(f"the manager of scope {name} ends: {why}")

    def _obstructed(self, scope: bytes, owner: str, why: str) -> None:
        name = next((name for name in self._served if scope_id(name.encode()) == scope), "")
        if why:
            self._problems.append(f"scope {name} is not a member of scope {owner}: {why}")
        else:
            self._problems.tell_only(f"scope {name} is a member of scope {owner}")

    def _keep(self, store: Store, name: str, state: bytes) -> bool:
        try:
            store.keep_scope(name, state)
        except DiskFailed as problem:
            self._tell(f"the manager of scope {name} ends, and its members continue without it: {problem}")
            return False
        return True


def topic_rule(
    pattern: str, policy: str, parameters: Mapping[str, Any] | None = None, *, sha256: str = ""
) -> TopicRule:
    """Make a rule that an operator sets. Raises `LocalError` if no scope file could contain it."""
    given = {"pattern": pattern, "policy": policy, "parameters": parameters or {}, "sha256": sha256}
    try:
        return msgspec.convert(given, TopicRule)
    except msgspec.ValidationError as problem:
        raise LocalError(f"this policy cannot be set: {problem}") from problem


def _take_over(store: Store, name: str, exported: ExportedScope) -> None:
    if exported.name != name:
        raise LocalError(f"that is the state of scope {exported.name}, and the file describes scope {name}")
    if store.scope(name) is not None:
        raise LocalError(
            f"the data folder already has the state of scope {name}: leave out the exported state, or use another "
            "folder"
        )
    store.keep_scope(name, exported.state)
    store.keep_tokens(name, exported.tokens)


def _at(scope: Superscope) -> ScopeAddress:
    return ScopeAddress(scope.name, scope.address, scope.token)


def _policy(rule: ScopeRule | None) -> tuple[str, dict[str, Any]] | None:
    return (rule.policy, rule.parameters) if rule is not None else None


def _called(member: Member) -> str:
    return member.party.name if member.party.managed else member.party.id.hex()


def _attributes(links: Links, node: bytes) -> Mapping[str, str]:
    certificate = links.certificate(node)
    return {} if certificate is None else certificates.attributes(certificate)
