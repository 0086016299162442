"""This peer as the host of clients: it registers each of them with the managers of its own scopes (figure 7).

In topics that a scope's file leaves open to all, a client begins at once, and the manager hears of it with the next
keep-alive. So clients that come and go quickly cost it nothing. In others it begins when the manager allows it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from quillcast.core.ids import topic_called
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.clients import NUMBER_BYTES, client_id
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.effects import ScopeEffect
from quillcast.protocol.scopes.hierarchy import OVERLAY
from quillcast.protocol.scopes.membership import ScopeMembership
from quillcast.protocol.scopes.messages import Role, does
from quillcast.protocol.scopes.uses import Doing

_DIFFERENT_BYTES = 4  # of the numbers of two processes; a guess: the rest counts the clients of one

Decided = Callable[[str], None]
"""Hears why a client may not do what it wants, in a sentence; empty: it may."""


class WaitingUse(NamedTuple):
    """A use of a topic about which a manager must decide."""

    name: str
    doing: Doing
    use: object
    """Which use: it may end before."""
    decided: Decided
    direct: bool = False
    """Is another peer to serve it? Then a scope's manager says who."""


class HostedClient:
    """A client, and what it does."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.controller: LocalController | None = None
        """Speaks to the managers for it, once it is registered."""
        self.uses: Counter[tuple[str, Doing]] = Counter()
        self.direct: dict[tuple[str, Doing], None] = {}  # what others serve it in
        self.waiting: list[WaitingUse] = []

    def roles(self, root: Callable[[str], bytes] = lambda name: OVERLAY) -> dict[bytes, Role]:
        """Its part in each topic that it uses. `root` names the scope that leads to its owner."""
        names = dict.fromkeys(name for name, _ in self.uses)
        return {topic_called(name): self._role(name, root(name)) for name in names}

    def _role(self, name: str, root: bytes) -> Role:
        publishes, subscribes = (self.uses[name, "publishes"] > 0, self.uses[name, "subscribes"] > 0)
        direct = tuple(doing for each, doing in self.direct if each == name)
        return Role(topic_called(name), root, publishes, subscribes, name, direct=direct)


class ClientHost:
    """The clients of one peer. Its calls return effects to carry out for each of them, by its id."""

    __slots__ = ("clients", "contact", "membership", "numbers")

    def __init__(self, contact: Callable[[], Contact], incarnation: bytes) -> None:
        """`incarnation` is that of this peer's process: other peers may still serve clients of the one before."""
        self.contact = contact
        self.clients: dict[bytes, HostedClient] = {}
        self.membership: ScopeMembership | None = None  # that of this peer
        self.numbers = int.from_bytes(incarnation[:_DIFFERENT_BYTES]) << 8 * (NUMBER_BYTES - _DIFFERENT_BYTES)

    # ---- calls

    def enter(self, name: str) -> bytes:
        """A client connected: its id."""
        self.numbers += 1
        host = self.contact()
        party = Party(client_id(host.node_id, self.numbers), host, name=name)
        self.clients[party.id] = HostedClient(party)
        return party.id

    def leave(self, id_: bytes) -> list[ScopeEffect]:
        """A client is gone."""
        client = self.clients.pop(id_)
        return client.controller.leave() if client.controller is not None else []

    def begin(self, id_: bytes, waiting: WaitingUse, now: float) -> list[ScopeEffect]:
        """A client wants to publish or subscribe: `decided` is called when it may, or may not."""
        client = self.clients[id_]
        client.uses[waiting.name, waiting.doing] += 1
        if waiting.direct:
            client.direct[waiting.name, waiting.doing] = None
        if not self._is_to_be_decided(waiting):
            waiting.decided("")
            return []
        effects = self._register(client, now)
        why = self._verdict(client, waiting)  # its managers may have answered for another use
        if why is None:
            client.waiting.append(waiting)
        else:
            waiting.decided(why)
        return effects

    def end(self, id_: bytes, name: str, doing: Doing, use: object) -> None:
        """A client ended a publisher or a subscription."""
        client = self.clients[id_]
        client.waiting = [each for each in client.waiting if each.use is not use]
        client.uses[name, doing] -= 1
        if not client.uses[name, doing]:
            del client.uses[name, doing]
            client.direct.pop((name, doing), None)

    def controller(self, id_: bytes) -> LocalController | None:
        """The controller that speaks to the managers for a client."""
        client = self.clients.get(id_)
        return client.controller if client is not None else None

    # ---- what managers say, and time

    def follow(self, membership: ScopeMembership | None) -> None:
        """Follow this peer's place in scopes: clients are registered with the managers that it obeys."""
        self.membership = membership
        for client in self.clients.values():
            if client.controller is not None and membership is not None:
                for id_, owner in client.controller.membership.owners.items():
                    if id_ in membership.owners:
                        owner.prove(membership.owners[id_].party, membership.owners[id_].proof)

    def beat(self, now: float) -> Iterator[tuple[bytes, list[ScopeEffect]]]:
        """Register new clients, report changes, and send keep-alives."""
        for client in list(self.clients.values()):
            yield client.party.id, self._register(client, now)
            if client.controller is not None:
                yield client.party.id, client.controller.passed(now)

    def decide(self) -> None:
        """Managers may have answered."""
        for client in list(self.clients.values()):
            waiting, client.waiting = client.waiting, []
            for each in waiting:
                why = self._verdict(client, each)
                if why is None:
                    client.waiting.append(each)
                else:
                    each.decided(why)

    def obstacles(self) -> Iterator[str]:
        """What clients wait for, in sentences."""
        for id_, client in self.clients.items():
            for name in dict.fromkeys(each.name for each in client.waiting):
                yield f"client {client.party.name} waits in topic {name}: {self.obstacle(id_)}"

    def obstacle(self, id_: bytes) -> str:
        """What a client waits for, in a sentence."""
        controller = self.clients[id_].controller
        return controller.membership.awaited() if controller is not None else ""

    def servers(self, id_: bytes, topic: bytes) -> tuple[Contact, ...] | None:
        """The peers that may serve a client directly in a topic, as the manager says. None: in no scope."""
        controller = self.controller(id_)
        if controller is None or self.membership is None:
            return None
        assignment = controller.membership.answer(topic)
        return assignment.servers if assignment is not None else ()

    # ---- within

    def _is_to_be_decided(self, waiting: WaitingUse) -> bool:
        """Does a manager decide about this use?"""
        if self.membership is None:
            return False
        return waiting.direct or any(each.apply(waiting.name, "clients") for each in self.membership.bounds())

    def _verdict(self, client: HostedClient, waiting: WaitingUse) -> str | None:
        """Why a client may not do this; empty: it may. None: no manager has decided yet."""
        if self.membership is None or not self._is_to_be_decided(waiting) or client.controller is None:
            return ""
        membership = client.controller.membership
        for each in (self.membership, membership):
            if each.is_refused:
                return each.obstacle()
        assignment = membership.answer(topic_called(waiting.name))
        if assignment is None:
            return None
        return "" if does(assignment, waiting.doing) else assignment.why

    def _register(self, client: HostedClient, now: float) -> list[ScopeEffect]:
        """Tell the managers what a client does now."""
        effects: list[ScopeEffect] = []
        if client.controller is None and self.membership is not None:
            owners, lease_s = _parties(self.membership), self.membership.lease_s
            client.controller = LocalController(client.party, owners, lease_s)
            effects += client.controller.begin(now)
        if client.controller is None:
            return effects
        known = client.controller.membership.roles
        roles = client.roles(self.membership.asks_for) if self.membership is not None else client.roles()
        for topic in [topic for topic in known if topic not in roles]:
            effects += client.controller.take_part(Role(topic))
        for topic, role in roles.items():
            if known.get(topic) != role:
                effects += client.controller.take_part(role)
        return effects


def _parties(membership: ScopeMembership) -> Iterable[Party]:
    return [owner.party for owner in membership.owners.values()]
