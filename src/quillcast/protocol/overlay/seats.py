"""Topics that are rooted at managed scopes: their rendezvous points are members of that scope (docs/scopes.md).

A scope's manager names its seats: peers that may be rendezvous points of its topics. A topic's rendezvous point is the
seat whose nodeId is closest to the topic's id. So seats are to these topics what the ring is to the others. Messages to
them go directly to a seat and never over the ring. Peers with a seat watch each other, as leaf sets do.
"""

from collections.abc import Collection, Iterable, Iterator

from quillcast.core.host import Host
from quillcast.core.messages import Contact, by_distance
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.scopes.hierarchy import TwoRootScopes
from quillcast.protocol.scopes.messages import RootScope

_USER = "seat"
TOPICS_MAX = 1 << 20  # topics with known root scopes; a guess that bounds what a faulty member costs: 100 MB
LEAVING_S = 10.0  # how long a leaving seat may still send messages; a guess: twice `leave_s`
NEVER = float("-inf")
REMEMBERED_S = 60.0  # how long a lost seat is remembered; a guess: longer than any lease


class _Seats:
    """The seats of one scope."""

    def __init__(self, scope: RootScope) -> None:
        self.scope = scope
        self.lost: dict[bytes, tuple[Contact, float]] = {}  # seats that are lost, or that the manager removed
        self.left: dict[bytes, float] = {}  # seats among them that left in good order, and when

    def there(self) -> Iterator[Contact]:
        return (seat for seat in self.scope.seats if seat.node_id not in self.lost)

    def is_back(self, node: bytes, now: float) -> bool:
        """Whether a lost or departed peer that sends a message is back: the manager names it as a seat."""
        named = any(seat.node_id == node for seat in self.scope.seats)
        return named and now - self.left.get(node, NEVER) > LEAVING_S

    def follow(self, scope: RootScope, now: float) -> None:
        """Apply the seats that the manager names now. One that it no longer names may be lost."""
        former, named = self.scope.seats, {seat.node_id for seat in scope.seats}
        self.lost = {
            node: each for node, each in self.lost.items() if node in named or now - each[1] < REMEMBERED_S
        }  # fmt: skip
        for seat in former:
            if seat.node_id not in named and seat.node_id not in self.left:
                self.lost.setdefault(seat.node_id, (seat, now))
        for seat in scope.seats:
            if seat not in former:
                self.lost.pop(seat.node_id, None)
                self.left.pop(seat.node_id, None)
        self.left = {node: at for node, at in self.left.items() if node in named}
        self.scope = scope


class Seats:
    """The scopes above this peer that topics may be rooted at, and which topics are."""

    __slots__ = ("_watched", "host", "keep_alive_s", "neighbours", "scopes", "topics")

    def __init__(self, host: Host, neighbours: Neighbours, keep_alive_s: float) -> None:
        self.host, self.neighbours, self.keep_alive_s = host, neighbours, keep_alive_s
        self.topics: dict[bytes, str] = {}  # their root scopes, by name
        self.scopes: dict[str, _Seats] = {}
        """By name. Read-only for others."""
        self._watched: dict[bytes, Contact] = {}

    # ---- which topics

    def root_scope(self, topic: str) -> str:
        """Return the root scope of a topic of this name; empty: the overlay. Raises `LocalError` if two claim it."""
        claiming = self.claiming(topic)
        if len(claiming) > 1:
            raise TwoRootScopes(topic, *claiming[:2])
        return claiming[0] if claiming else ""

    def claiming(self, topic: str) -> list[str]:
        """Return the scopes that, by their files, are the root scope of a topic of this name."""
        return [name for name, each in self.scopes.items() if each.scope.covers(topic)]

    def refusal(self, topic: str, root: str) -> str:
        """Return a sentence why a topic that others root at this scope has another root scope; empty if it has not."""
        try:
            expected = self.root_scope(topic)
        except TwoRootScopes as two:
            return str(two)
        return str(TwoRootScopes(topic, expected, root)) if expected not in ("", root) else ""

    def note(self, topic: bytes, root: str) -> None:
        """Note that a topic has this root scope."""
        if root:
            self.topics[topic] = root

    def scope(self, key: bytes) -> str:
        """Return the root scope of the topic with this id; empty: the overlay, or the key is not a topic's."""
        return self.topics.get(key, "")

    def takes(self, key: bytes, scope: str) -> bool:
        """Whether a message to a topic rooted at this scope can be routed here: its seats must be known."""
        known = scope in self.scopes and bool(self.scopes[scope].scope.seats)
        return known and self.topics.get(key, scope) == scope and len(self.topics) < TOPICS_MAX

    def is_disputed(self, key: bytes, scope: str) -> bool:
        """Whether this peer is below this scope and another one at which the topic is rooted: the asker is told so."""
        return scope in self.scopes and self.topics.get(key, scope) in self.scopes.keys() - {scope}

    def may_forget(self, topic: bytes) -> bool:
        """Return true: nothing is kept here for other peers."""
        return True

    def forget(self, topic: bytes) -> None:
        """Forget a topic."""
        self.topics.pop(topic, None)

    # ---- seats

    def of(self, key: bytes) -> list[Contact] | None:
        """Return the live seats, closest to the topic first. None: its rendezvous point is on the ring."""
        scope = self.topics.get(key)
        if scope is None:
            return None
        return by_distance(self.scopes[scope].there(), key) if scope in self.scopes else []

    def lately(self, key: bytes, since: float) -> list[tuple[Contact, float | None]] | None:
        """Return the same with seats lost from `since` on, each with the time of its loss."""
        scope = self.scopes.get(self.topics.get(key, ""))
        if scope is None:
            return None if key not in self.topics else []
        found = {contact: at for contact, at in scope.lost.values() if at >= since}
        known = {**dict.fromkeys(scope.there()), **found}
        return [(contact, known[contact]) for contact in by_distance(known, key)]

    def to(self, key: bytes, scope: str, but: Collection[bytes] = ()) -> Contact | None:
        """Return the next hop to a topic rooted at this scope; None if the message has arrived, or has no next hop."""
        self.topics.setdefault(key, scope)
        seats = [seat for seat in self.of(key) or () if seat.node_id not in but]
        return seats[0] if seats and seats[0].node_id != self.host.me else None

    # ---- changes

    def follow(self, roots: Iterable[RootScope]) -> bool:
        """Apply the scopes and seats that managers name. Return whether that changes anything."""
        named = {root.name: root for root in roots}
        if {name: each.scope for name, each in self.scopes.items()} == named:
            return False
        for name, root in named.items():
            self.scopes.setdefault(name, _Seats(root)).follow(root, self.host.now())
        self.scopes = {name: self.scopes[name] for name in named}
        self._watch()
        return True

    def lost(self, node: bytes) -> bool:
        """Note that a neighbour is lost. Return whether it had a seat."""
        having = [each for each in self.scopes.values() if node not in each.lost]
        found = [(each, seat) for each in having for seat in each.scope.seats if seat.node_id == node]
        for each, seat in found:
            each.lost[node] = seat, self.host.now()
        self._watched.pop(node, None)
        return bool(found)

    def left(self, node: bytes) -> bool:
        """Note that a peer leaves. Return whether it had a seat. Its later messages do not mean that it is back."""
        having = self.lost(node)
        for each in self.scopes.values() if having else ():
            if node in each.lost:
                each.lost[node] = each.lost[node][0], NEVER
                each.left[node] = self.host.now()
        return having

    def others(self) -> list[Contact]:
        """Return the other peers with a seat."""
        return list(self._watched.values())

    def heard(self, node: bytes) -> bool:
        """Note that a peer sent a message. Return whether it was lost and has a seat."""
        back = [each for each in self.scopes.values() if node in each.lost and each.is_back(node, self.host.now())]
        for each in back:
            del each.lost[node]
            each.left.pop(node, None)
        return bool(back)

    def look_for_lost(self) -> None:
        """Watch lost seats again that managers still name: the paths to them may be back."""
        self._watch()

    def _watch(self) -> None:
        """Watch the other seats of scopes in which this peer has one, and no other peers."""
        having = (each.scope.seats for each in self.scopes.values())
        beside = (seats for seats in having if any(seat.node_id == self.host.me for seat in seats))
        wanted = {seat.node_id: seat for seats in beside for seat in seats if seat.node_id != self.host.me}
        for node in [node for node in self._watched if node not in wanted]:
            del self._watched[node]
            self.neighbours.unwatch(node, _USER)
        for node, seat in wanted.items():
            if node not in self._watched:
                self._watched[node] = seat
                self.neighbours.watch(seat, _USER, self.keep_alive_s)
