"""A scope as the owner of members: who they are, their roles, and whether they live."""

from collections.abc import Iterable

from quillcast.core.errors import LocalError
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.hierarchy import ManagerElsewhere, ScopeCycle, scope_id
from quillcast.protocol.scopes.messages import Registration, Role, Succession
from quillcast.protocol.scopes.rights import Entitlements
from quillcast.protocol.scopes.state import Member, ScopeConfig, ScopeState
from quillcast.protocol.scopes.succession import follows, kept


class Members:
    """The members of one scope."""

    def __init__(self, state: ScopeState, config: ScopeConfig, rights: Entitlements) -> None:
        self.state, self.config, self.rights = state, config, rights
        self.labels = {member.party.id: member.label for member in state.members.values()}
        self.heard_at: dict[bytes, float] = {}
        self.unheard: dict[bytes, None] = {}  # members that may not know yet of this epoch
        self.users: dict[bytes, dict[int, None]] = {}  # by topic: the members with a role in it, or refused one
        for member in state.members.values():
            self._note_user(member, (*member.roles, *member.refused))

    def follow(self, config: ScopeConfig) -> None:
        """The scope's file says something else now."""
        self.config = config

    def begin(self, now: float) -> None:
        """All leases start again."""
        self.heard_at, self.unheard = dict.fromkeys(self.labels, now), dict.fromkeys(self.labels)

    def find(self, id_: bytes) -> Member | None:
        """A member by its party's id."""
        label = self.labels.get(id_)
        return self.state.members[label] if label is not None else None

    def runs_at(self, id_: bytes, peer: Contact) -> bool:
        """Is this a member that is a peer, or a scope that the peer manages?"""
        member = self.find(id_)
        return member is not None and member.party.contact.node_id == peer.node_id

    def enter(self, message: Registration, above: Iterable[bytes], now: float) -> tuple[Member, tuple[bytes, ...]]:
        """Register a party: the member, and the topics in which its roles changed.

        Raises `LocalError` if it cannot be a member.
        """
        party = message.member
        if party.managed:
            self._check_scope(party, above)
            self._check_place(party, message.succession)
        attributes, seats = self.config.attributes(party), message.seats if party.managed else ()
        if why := self.config.refusal(party, attributes, message.token):
            raise LocalError(why)
        member = self.find(party.id)
        is_new = member is None
        if member is None:
            self._check_room()
            member = self._new(message)
        if (proof := kept(message.succession, self.state.proofs.get(party.id))) is not None and party.managed:
            self.state.keep_proof(party.id, proof)
        self.heard_at[party.id] = now
        known = member.party == party and not is_new
        old, asked = {**member.roles, **member.refused}, {role.topic: role for role in message.roles}
        said = message.serial, attributes, seats, asked  # after a restart it counts from the beginning again
        if known and said == (member.serial, member.attributes, member.seats, old):
            return member, ()
        member.register(party, message.serial, attributes)
        member.set_seats(seats)
        changed = self.rights.judge(member, asked)
        self._note_user(member, changed)
        return member, changed if known else tuple(old | asked)

    def _new(self, message: Registration) -> Member:
        member = self.state.add_member(message.member)
        self.labels[message.member.id] = member.label
        return member

    def _check_room(self) -> None:
        count = len(self.state.members)
        if (most := self.config.members_max) and count >= most:
            raise LocalError(
                f"scope {self.state.scope.name} is full, with {count} of at most {most} members: wait until one "
                "leaves, or raise members_max in the scope's file, and run: quillcast scope reload "
                f"{self.state.scope.name}"
            )

    def _check_scope(self, party: Party, above: Iterable[bytes]) -> None:
        if party.id in (self.state.scope.id, *above):
            raise ScopeCycle(party.name, self.state.scope.name)
        if party.id != scope_id(party.name.encode()):
            name = self.state.scope.name
            raise LocalError(f"scope {name} does not admit scope {party.name}: its id is not the hash of its name")

    def _check_place(self, party: Party, shown: Succession | None) -> None:
        """Does a scope's manager run where it did, or prove that it took over?"""
        member, proof = self.find(party.id), self.state.proofs.get(party.id)
        known = proof.contact if proof is not None else member.party.contact if member is not None else party.contact
        if known.node_id != party.contact.node_id:
            moved = proof is not None and follows(shown, proof)
            if not (moved and shown is not None and shown.contact.node_id == party.contact.node_id):
                raise ManagerElsewhere(party.name, known.address, party.contact.address)

    def disproof(self, id_: bytes, shown: Succession | None) -> Succession | None:
        """The proof that a scope's manager began a later epoch than the one that is shown; None: there is none."""
        proof = self.state.proofs.get(id_)
        is_old = proof is not None and shown is not None and shown.key == proof.key and shown.epoch < proof.epoch
        return proof if is_old else None

    def lives(self, id_: bytes, now: float) -> Member | None:
        """A keep-alive came; None: the party is not a member."""
        member = self.find(id_)
        if member is not None:
            self.heard_at[id_] = now
            self.unheard.pop(id_, None)
        return member

    def remove(self, id_: bytes) -> Member | None:
        """End a membership, and return the member."""
        label = self.labels.pop(id_, None)
        self.heard_at.pop(id_, None)
        self.unheard.pop(id_, None)
        self.rights.forget(id_)
        if label is None:
            return None
        member = self.state.remove_member(label)
        for topic in dict.fromkeys((*member.roles, *member.refused)):
            self._forget_user(topic, label)
        return member

    def silent(self, since: float) -> list[bytes]:
        """The members that have been silent since then."""
        return [id_ for id_, at in self.heard_at.items() if at < since]

    def judge_again(self, member: Member) -> tuple[bytes, ...]:
        """The rules may have changed: the topics in which a member has other roles now."""
        changed = self.rights.judge_again(member)
        self._note_user(member, changed)
        return changed

    def using(self, topic: bytes) -> list[Member]:
        """The members with a role in a topic, or refused one, in the order of arrival."""
        return [self.state.members[label] for label in sorted(self.users.get(topic, ()))]

    def _note_user(self, member: Member, topics: Iterable[bytes]) -> None:
        for topic in topics:
            if topic in member.roles or topic in member.refused:
                self.users.setdefault(topic, {})[member.label] = None
            else:
                self._forget_user(topic, member.label)

    def _forget_user(self, topic: bytes, label: int) -> None:
        if topic in self.users:
            self.users[topic].pop(label, None)
            if not self.users[topic]:
                del self.users[topic]

    def roles(self, topic: bytes) -> list[Role]:
        """The members' roles in a topic."""
        return [role for each in self.using(topic) if (role := each.roles.get(topic)) is not None]

    def at_other_root(self, topic: bytes, root: bytes) -> list[Member]:
        """Members that name another root scope for the topic."""
        using = self.using(topic)
        return [each for each in using if (role := each.roles.get(topic)) is not None and role.root != root]

    def check(self) -> None:
        """Raise AssertionError unless the tables agree with the members."""
        members = self.state.members
        assert self.labels == {member.party.id: label for label, member in members.items()}
        users = {(topic, label) for label, each in members.items() for topic in (*each.roles, *each.refused)}
        assert users == {(topic, label) for topic, labels in self.users.items() for label in labels}
