"""The direct patterns of the local architecture (figure 21): clients whose data does not pass their host.

A client asks its host, the local controller. If the scope's manager allows it, the host asks another peer to serve it.
In a scope the manager names that peer; elsewhere it is one that is near in the topic's tree. The client then connects
to that peer, and shows a secret whose digest the host has passed on. From then on data does not need the host.

The server treats a direct client as a client of its own: it publishes and subscribes for it, and nothing waits for it.
It lets a client do what the client's host has announced, and nothing else.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable
from itertools import islice

from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.clients import SERVERS_MAX, is_client_of
from quillcast.protocol.scopes.messages import EndClient, ServeClient, ServesClient
from quillcast.protocol.scopes.uses import SECRETS_MAX, Doing, digest

GUESTS_MAX = 1024  # direct clients that a peer serves; a guess, as for other clients
RIGHTS_MAX = 1 << 16  # of all guests together: what each does in each topic; a guess
GUEST_RIGHTS_MAX = 1 << 12  # of one guest: it may use many topics quickly, and servers do not hear of their ends
PROMISE_S = 30.0  # for a client to come after it was announced; a guess
ANSWER_S = 2.0  # for a peer to answer; a guess
TOLD_MAX = 1 << 14  # clients whose servers are known, the oldest are forgotten; a guess

Found = Callable[[Contact | None, str], None]
"""Hears which peer serves a client; or None, and why none does, in a sentence."""


class AnswerDue(Timer, frozen=True):
    """Ask another peer, if this one has not answered."""

    number: int
    asked: int


class Guest:
    """A client of another peer that is served here directly."""

    def __init__(self, id_: bytes, name: str) -> None:
        self.id, self.name = id_, name
        self.rights: dict[tuple[str, Doing], None] = {}
        self.secrets: dict[bytes, None] = {}  # digests of the secrets that it may show
        self.promised_at = 0.0
        self.connections = 0

    def may(self, topic: str, doing: Doing) -> bool:
        """Has its host announced this?"""
        return (topic, doing) in self.rights


class Guests:
    """The direct clients of a peer, as their server."""

    __slots__ = ("_ended", "known", "leaving", "rights_count")

    def __init__(self) -> None:
        self.known: dict[bytes, Guest] = {}
        self._ended: Callable[[Guest], None] = lambda guest: None
        self.rights_count = 0
        self.leaving = False  # no further clients are accepted

    def tell(self, ended: Callable[[Guest], None]) -> None:
        """Register the listener that is told whose connections to close."""
        self._ended = ended

    def close(self) -> None:
        """Accept no further clients."""
        self.leaving = True

    def promise(self, host: Contact, message: ServeClient, now: float) -> str:
        """A client will come, or may do one more thing. Returns why not, in a sentence; empty: it may come."""
        if not is_client_of(message.client, host.node_id):
            return "a peer can speak only for its own clients"
        if self.leaving:
            return "it leaves the network"
        self._forget(now - PROMISE_S)
        guest = self.known.get(message.client)
        if guest is None and len(self.known) >= GUESTS_MAX:
            return f"it serves {GUESTS_MAX} clients of other peers already"
        if self.rights_count >= RIGHTS_MAX:
            return f"its clients of other peers use {RIGHTS_MAX} topics already"
        if guest is not None and len(guest.rights) >= GUEST_RIGHTS_MAX:
            return f"client {message.name} has used {GUEST_RIGHTS_MAX} topics here since it connected"
        guest = self.known.setdefault(message.client, guest or Guest(message.client, message.name))
        if not guest.may(message.topic, message.doing):
            guest.rights[message.topic, message.doing] = None
            self.rights_count += 1
        guest.secrets[message.digest] = None
        if len(guest.secrets) > SECRETS_MAX:
            del guest.secrets[next(iter(guest.secrets))]
        guest.promised_at = now
        return ""

    def enter(self, id_: bytes, secret: bytes) -> Guest | None:
        """A client has connected and shows a secret: which client it is. None: no host announced it."""
        guest = self.known.get(id_)
        if guest is None or digest(secret) not in guest.secrets:
            return None
        guest.secrets.clear()
        guest.connections += 1
        return guest

    def end(self, host: Contact, message: EndClient) -> None:
        """The host of a client says that it may do nothing further."""
        guest = self.known.get(message.client) if is_client_of(message.client, host.node_id) else None
        if guest is not None:
            self._remove(guest)
            self._ended(guest)

    def leave(self, guest: Guest) -> None:
        """A client has disconnected."""
        guest.connections -= 1
        if not guest.connections and not guest.secrets and self.known.get(guest.id) is guest:  # else it is expected
            self._remove(guest)

    def _forget(self, since: float) -> None:
        """Forget clients that were announced before and have not come, and secrets that none will show."""
        for guest in [each for each in self.known.values() if each.promised_at < since]:
            guest.secrets.clear()
            if not guest.connections:
                self._remove(guest)

    def _remove(self, guest: Guest) -> None:
        del self.known[guest.id]
        self.rights_count -= len(guest.rights)


class ServerSearch:
    """A use of a topic that needs a server."""

    def __init__(self, wish: ServeClient, servers: Iterable[Contact], found: Found) -> None:
        self.wish, self.found = wish, found
        self.left = deque(servers)
        self.asked: list[Contact] = []
        self.whys: list[str] = []


class DirectPatterns:
    """One peer's part in the direct patterns: as the controller of its clients, and as the server of others'."""

    __slots__ = ("_numbers", "guests", "host", "searches", "told")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.guests = Guests()
        self.searches: dict[int, ServerSearch] = {}
        self.told: dict[bytes, dict[Contact, None]] = {}  # the peers that were asked to serve each client
        self._numbers = 0

    # ---- as the controller

    def seek(
        self, client: bytes, name: str, secret_digest: bytes, topic: str, doing: Doing, servers: Iterable[Contact],
        unreachable: Container[bytes], found: Found,
    ) -> None:  # fmt: skip
        """Find a peer that serves a client in a topic, among these, the preferred one first.

        `unreachable` are nodeIds that the client cannot reach.
        """
        self._numbers += 1
        wish = ServeClient(self._numbers, client, name, secret_digest, topic, doing)
        others = dict.fromkeys(each for each in servers if each.node_id != self.host.me)
        within_reach = (each for each in others if each.node_id not in unreachable)
        self.searches[self._numbers] = search = ServerSearch(wish, islice(within_reach, SERVERS_MAX), found)
        search.whys += [f"the client cannot reach {each.address}" for each in others if each.node_id in unreachable]
        self._ask_next(search)

    def client_left(self, client: bytes) -> None:
        """A client is gone: no peer needs to serve it."""
        for number in [number for number, search in self.searches.items() if search.wish.client == client]:
            del self.searches[number]

    def end(self, client: bytes) -> None:
        """A client may do nothing further: tell the peers that may serve it."""
        self.client_left(client)
        for server in self.told.pop(client, {}):
            self.host.send(server, EndClient(client))

    def served(self, sender: Contact, message: ServesClient) -> None:
        """A peer answered."""
        search = self.searches.get(message.number)
        if search is None or search.asked[-1].node_id != sender.node_id:
            return
        if message.why:
            search.whys.append(f"{sender.address}: {message.why}")
            self._ask_next(search)
        else:
            del self.searches[message.number]
            search.found(search.asked[-1], "")

    def overdue(self, timer: AnswerDue) -> None:
        """A peer has not answered in time."""
        search = self.searches.get(timer.number)
        if search is not None and len(search.asked) == timer.asked:
            search.whys.append(f"{search.asked[-1].address} did not answer within {ANSWER_S:g} s")
            self._ask_next(search)

    def link_lost(self, contact: Contact) -> None:
        """A peer cannot be reached: ask others at once."""
        for search in [each for each in self.searches.values() if each.asked[-1].node_id == contact.node_id]:
            if search.wish.number in self.searches:  # otherwise an application that heard of another ended its client
                search.whys.append(f"{contact.address} cannot be reached")
                self._ask_next(search)

    def _ask_next(self, search: ServerSearch) -> None:
        wish = search.wish
        if not search.left:
            del self.searches[wish.number]
            search.found(None, self._why_none(search))
            return
        server = search.left.popleft()
        search.asked.append(server)
        self.told.setdefault(wish.client, {})[server] = None
        if len(self.told) > TOLD_MAX:
            del self.told[next(iter(self.told))]
        self.host.send(server, wish)
        self.host.set_timer(AnswerDue(wish.number, len(search.asked)), ANSWER_S)

    def _why_none(self, search: ServerSearch) -> str:
        here, wish = self.host.contact.address, search.wish
        verb = "publish to" if wish.doing == "publishes" else "receive"
        option = "publish" if wish.doing == "publishes" else "receive"
        why = "; ".join(search.whys) or f"the peer at {here} knows no other peer that could serve it"
        return f"client {wish.name} cannot {verb} {wish.topic!r} directly: {why}; connect without {option}='direct'"

    # ---- as the server

    def serve(self, sender: Contact, message: ServeClient) -> None:
        """Another peer asks this one to serve a client of its own."""
        why = self.guests.promise(sender, message, self.host.now())
        self.host.send(sender, ServesClient(message.number, why))

    def ends(self, sender: Contact, message: EndClient) -> None:
        """Another peer says that a client of its own may do nothing further."""
        self.guests.end(sender, message)
