"""Topics that are rooted at managed scopes: their rendezvous points are members of that scope (docs/scopes.md).

A scope's manager names its seats: peers among which its topics have their rendezvous points, each at the one whose
nodeId is closest to the topic's id. So the seats are to these topics what the ring is to the others. Messages to them
go straight to a seat and never over the ring. Those who have a seat watch each other, as leaf sets do.
"""

from collections.abc import Collection, Iterable, Iterator

from quillcast.core.host import Host
from quillcast.core.messages import Contact, by_distance
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.scopes.hierarchy import TwoRootScopes
from quillcast.protocol.scopes.messages import RootScope

_USER = "seat"
TOPICS_MAX = 1 << 20  # with root scopes that a peer knows of; a guess that bounds what a faulty member costs: 100 MB
LEAVING_S = 10.0  # for which one that leaves may still speak; a guess: twice `leave_s`
NEVER = float("-inf")
REMEMBERED_S = 60.0  # a seat that was lost; a guess: longer than any lease


class _Seats:
    """The seats of one scope."""

    def __init__(self, scope: RootScope) -> None:
        self.scope = scope
        self.lost: dict[bytes, tuple[Contact, float]] = {}  # those that are lost, or that the manager took away
        self.left: dict[bytes, float] = {}  # those of them that left in good order, and when

    def there(self) -> Iterator[Contact]:
        return (seat for seat in self.scope.seats if seat.node_id not in self.lost)

    def is_back(self, node: bytes, now: float) -> bool:
        """Is one that is lost or has left a seat that the manager names, if it speaks now?"""
        named = any(seat.node_id == node for seat in self.scope.seats)
        return named and now - self.left.get(node, NEVER) > LEAVING_S

    def follow(self, scope: RootScope, now: float) -> None:
        """The manager names these now. One that it names no more may be lost."""
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

    def __init__(self, host: Host, neighbours: Neighbours, keep_alive_s: float) -> None:
        self.host, self.neighbours, self.keep_alive_s = host, neighbours, keep_alive_s
        self.topics: dict[bytes, str] = {}  # their root scopes, by name
        self.scopes: dict[str, _Seats] = {}
        """By name. Read-only for others."""
        self._watched: dict[bytes, Contact] = {}

    # ---- which topics

    def root_scope(self, topic: str) -> str:
        """The scope that a topic of this name is rooted at; empty: the overlay. Raises `LocalError` if two claim it."""
        claiming = self.claiming(topic)
        if len(claiming) > 1:
            raise TwoRootScopes(topic, *claiming[:2])
        return claiming[0] if claiming else ""

    def claiming(self, topic: str) -> list[str]:
        """The scopes that are the root scope of a topic of this name, as their files say."""
        return [name for name, each in self.scopes.items() if each.scope.covers(topic)]

    def refusal(self, topic: str, root: str) -> str:
        """Why a topic that others root at this scope is to have another one, in a sentence; empty if it is not."""
        try:
            expected = self.root_scope(topic)
        except TwoRootScopes as two:
            return str(two)
        return str(TwoRootScopes(topic, expected, root)) if expected not in ("", root) else ""

    def note(self, topic: bytes, root: str) -> None:
        """A topic has this root scope."""
        if root:
            self.topics[topic] = root

    def scope(self, key: bytes) -> str:
        """The root scope of the topic with this id; empty: the overlay, or the key is none of a topic."""
        return self.topics.get(key, "")

    def takes(self, key: bytes, scope: str) -> bool:
        """Can a message to a topic that is rooted at this scope be routed here? Who has a seat there must be known."""
        known = scope in self.scopes and bool(self.scopes[scope].scope.seats)
        return known and self.topics.get(key, scope) == scope and len(self.topics) < TOPICS_MAX

    def may_forget(self, topic: bytes) -> bool:
        """Nothing is kept here for other peers."""
        return True

    def forget(self, topic: bytes) -> None:
        """The topic is forgotten."""
        self.topics.pop(topic, None)

    # ---- who has a seat

    def of(self, key: bytes) -> list[Contact] | None:
        """Those with a seat who are not lost, closest to the topic first. None: its rendezvous point is on the ring."""
        scope = self.topics.get(key)
        if scope is None:
            return None
        return by_distance(self.scopes[scope].there(), key) if scope in self.scopes else []

    def lately(self, key: bytes, since: float) -> list[tuple[Contact, float | None]] | None:
        """The same with those that were lost from `since` on, each with the time of its loss."""
        scope = self.scopes.get(self.topics.get(key, ""))
        if scope is None:
            return None if key not in self.topics else []
        found = {contact: at for contact, at in scope.lost.values() if at >= since}
        known = {**dict.fromkeys(scope.there()), **found}
        return [(contact, known[contact]) for contact in by_distance(known, key)]

    def to(self, key: bytes, scope: str, but: Collection[bytes] = ()) -> Contact | None:
        """The next hop of a message to a topic rooted at this scope; None if it has arrived, or cannot go on."""
        self.topics.setdefault(key, scope)
        seats = [seat for seat in self.of(key) or () if seat.node_id not in but]
        return seats[0] if seats and seats[0].node_id != self.host.me else None

    # ---- what changes

    def follow(self, roots: Iterable[RootScope]) -> bool:
        """Managers name these scopes and seats: does that change anything?"""
        named = {root.name: root for root in roots}
        if {name: each.scope for name, each in self.scopes.items()} == named:
            return False
        for name, root in named.items():
            self.scopes.setdefault(name, _Seats(root)).follow(root, self.host.now())
        self.scopes = {name: self.scopes[name] for name in named}
        self._watch()
        return True

    def lost(self, node: bytes) -> bool:
        """A neighbour is lost: had it a seat?"""
        having = [each for each in self.scopes.values() if node not in each.lost]
        found = [(each, seat) for each in having for seat in each.scope.seats if seat.node_id == node]
        for each, seat in found:
            each.lost[node] = seat, self.host.now()
        self._watched.pop(node, None)
        return bool(found)

    def left(self, node: bytes) -> bool:
        """A peer leaves: had it a seat? What it still says does not mean that it is back, and it is not lost either."""
        having = self.lost(node)
        for each in self.scopes.values() if having else ():
            if node in each.lost:
                each.lost[node] = each.lost[node][0], NEVER
                each.left[node] = self.host.now()
        return having

    def others(self) -> list[Contact]:
        """Those who have a seat beside this peer."""
        return list(self._watched.values())

    def heard(self, node: bytes) -> bool:
        """A peer spoke: was it lost, and has a seat?"""
        back = [each for each in self.scopes.values() if node in each.lost and each.is_back(node, self.host.now())]
        for each in back:
            del each.lost[node]
            each.left.pop(node, None)
        return bool(back)

    def look_for_lost(self) -> None:
        """Watch those again that managers name, and that are lost here: the ways to them may be back."""
        self._watch()

    def _watch(self) -> None:
        """Those who have a seat beside this peer are to be watched, and no others."""
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
