"""The client-host relation (figure 7): applications that take part in a scope through one of its members.

The relation is casual. The client's host, which is the member that it uses as its peer, publishes and subscribes. So a
client has no label and no channels, it never forwards, and nothing waits for it. The manager says in which topics it
may publish and subscribe, and forgets it when its host is gone or has not mentioned it for a lease. Clients are not
saved: hosts register them again with a manager that returns.
"""

import hashlib
from collections.abc import Iterator
from itertools import count, islice

import msgspec

from quillcast.core.ids import ID_BYTES, topic_called
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import (
    Alive,
    Assignment,
    ClientRights,
    Heard,
    Orders,
    Registration,
    RegistrationRefused,
    Role,
)
from quillcast.protocol.scopes.rights import Entitlements
from quillcast.protocol.scopes.state import Member, ScopeConfig, ScopeState

CLIENTS_MAX = 1 << 14  # of a scope, if its file names no bound; a guess: what hosts may cost a manager
NAME_CHARACTERS_MAX = 64
SERVERS_MAX = 4  # peers that are named to serve one client directly; a guess
_PREFIX_BYTES = ID_BYTES // 2
NUMBER_BYTES = ID_BYTES - _PREFIX_BYTES


def client_id(host: bytes, number: int) -> bytes:
    """The id of a host's client: half of it says whose client it is, so that no other host can speak for it."""
    return _prefix(host) + number.to_bytes(NUMBER_BYTES)


def is_client_of(id_: bytes, host: bytes) -> bool:
    """Is this the id of a client of that peer?"""
    return id_[:_PREFIX_BYTES] == _prefix(host)


def _prefix(host: bytes) -> bytes:
    return hashlib.blake2b(host, digest_size=_PREFIX_BYTES, person=b"quillcast client").digest()


class Client(msgspec.Struct):
    """A client, as the manager knows it."""

    party: Party
    host: Member
    heard_at: float
    roles: dict[bytes, Role] = {}
    told: Orders | None = None


class Clients:
    """The clients of one scope's members."""

    def __init__(self, state: ScopeState, config: ScopeConfig, rights: Entitlements) -> None:
        self.state, self.config, self.rights = state, config, rights
        self.known: dict[bytes, Client] = {}
        self.numbers = count(1)

    def follow(self, config: ScopeConfig) -> None:
        """The scope's file says something else now (`decide_again`)."""
        self.config = config

    @property
    def most(self) -> int:
        """The number of clients allowed."""
        return self.config.clients_max or CLIENTS_MAX

    def registered(self, message: Registration, host: Member | None, orders: Orders, now: float) -> Iterator[Send]:
        """A member's client registers: tell its host what it may do. `orders` are the scope's, without assignments.

        A host that is not a member gets no answer. It may be about to become one, and its client registers again.
        """
        party = message.member
        if host is None:
            return
        if why := self._refusal(party):
            self.known.pop(party.id, None)
            yield Send(party, RegistrationRefused(self.state.scope.id, self.state.epoch, why))
            return
        client = self.known.setdefault(party.id, Client(party, host, now))
        client.party, client.host, client.heard_at = party, host, now
        client.roles = {role.topic: role for role in message.roles}
        client.told = self._told(client, orders, message.serial)
        yield Send(party, client.told)

    def decide_again(self, orders: Orders) -> None:
        """The rules have changed: clients hear what they may do now with their next keep-alives."""
        for client in self.known.values():
            if client.told is not None:
                client.told = self._told(client, orders, client.told.serial)

    def _told(self, client: Client, orders: Orders, serial: int) -> Orders:
        assignments = tuple(self._assignment(role, client.host) for role in client.roles.values())
        return msgspec.structs.replace(
            orders, number=next(self.numbers), serial=serial, label=client.host.label, assignments=assignments
        )

    def lives(self, message: Alive, now: float) -> Iterator[Send]:
        """A host sends a client's keep-alive: answer as to a member."""
        client, scope = self.known.get(message.member.id), self.state.scope.id
        told = client.told if client is not None else None
        yield Send(message.member, Heard(scope, self.state.epoch, told.serial if told is not None else 0))
        if client is not None and told is not None:
            client.heard_at = now
            if (message.epoch, message.number) != (told.epoch, told.number):
                yield Send(message.member, told)

    def remove(self, id_: bytes) -> None:
        """A client left."""
        self.known.pop(id_, None)

    def passed(self, since: float) -> None:
        """Forget the clients that were silent since then, and those whose hosts are gone."""
        hosts = {member.party.id for member in self.state.members.values()}
        gone = [id_ for id_, each in self.known.items() if each.heard_at < since or each.host.party.id not in hosts]
        for id_ in gone:
            del self.known[id_]

    def _refusal(self, party: Party) -> str:
        scope = self.state.scope.name
        if len(party.name) > NAME_CHARACTERS_MAX or not party.name.isprintable():
            return f"a client's name has at most {NAME_CHARACTERS_MAX} characters, on one line"
        if party.id not in self.known and len(self.known) >= self.most:
            return (
                f"scope {scope} has {len(self.known)} of at most {self.most} clients: wait until one disconnects, or "
                f"raise clients_max in the scope's file, and run: quillcast scope reload {scope}"
            )
        return ""

    def _assignment(self, role: Role, host: Member) -> Assignment:
        """What a client may do in a topic, and why the rest is refused."""
        if topic_called(role.name) != role.topic:
            return Assignment(role.topic, why="the topic was not named")
        rights, hosts = self.config.clients(role.name), dict(self.rights.refusals(host, role))
        publishes = role.publishes and rights in ("both", "publish")
        subscribes = role.subscribes and rights in ("both", "subscribe")
        refuses = (publishes, subscribes) != (role.publishes, role.subscribes)
        why = _why_not(role.name, self.state.scope.name, rights) if refuses else next(iter(hosts.values()), "")
        return Assignment(
            role.topic, why=why, publishes=publishes and "publishes" not in hosts,
            subscribes=subscribes and "subscribes" not in hosts,
            servers=self._servers(role, host) if role.direct else (),
        )  # fmt: skip

    def _servers(self, role: Role, host: Member) -> tuple[Contact, ...]:
        """The peers that may serve a client directly: entry point and stand-bys, members in the ring, then others.

        Each of them is itself allowed to do what the client wants to do.
        """
        kept = self.state.topics.get(role.topic)
        entries = kept.entries if kept is not None else ()
        labels = dict.fromkeys((*entries, *self.state.ring, *self.state.members))
        members = (self.state.members[label] for label in labels if label in self.state.members)
        others = (each for each in members if each is not host and not each.party.managed)
        able = (each.party.contact for each in others if not any(self.rights.refusals(each, role)))
        return tuple(islice(able, SERVERS_MAX))


def _why_not(topic: str, scope: str, rights: ClientRights) -> str:
    may = {"both": "publish and subscribe", "none": "neither publish nor subscribe"}.get(rights, f"only {rights}")
    return f"clients may {may} in topic {topic}, as the file of scope {scope} says: use a member of the scope instead"
