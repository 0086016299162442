"""The round trips that members measured: to senders, which choose entry points, and to each other, for policies.

For a member that is a scope, the peer that is its entry point measures, and is measured.
"""

from collections.abc import Container, Iterable, Mapping

NOISE = 0.1  # a round trip that differs less from the one before counts as the same; a guess
PROBES_MAX = 16  # others of a group that a member measures; a guess: all of a small group, and enough of a large one


class RoundTripTable:
    """From peers to parties, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[bytes, dict[bytes, float | None]] = {}  # None: the peer was told to measure it

    def get(self, peer: bytes, to: bytes) -> float | None:
        """The round trip, if it was measured. There is none from a peer to itself."""
        return 0.0 if peer == to else self.seconds.get(peer, {}).get(to)

    def note(self, peer: bytes, to: bytes, seconds: float) -> bool:
        """A peer measured, as it was told to. Returns whether the party is much farther or nearer than was known."""
        known = self.seconds.get(peer, {})
        if to not in known:
            return False
        former, known[to] = known.get(to), seconds
        return former is None or abs(seconds - former) > NOISE * former

    def unmeasured(self, peer: bytes, parties: Iterable[bytes]) -> list[bytes]:
        """Those of these parties that the peer was not told to measure yet; now it is."""
        known = self.seconds.setdefault(peer, {})
        new = [to for to in parties if to not in known and to != peer]
        known.update(dict.fromkeys(new))
        return new

    def unmeasured_among(self, member: int, group: Mapping[int, bytes], first: Iterable[int]) -> list[bytes]:
        """The others of a group that a member must measure now. They count as told.

        These are the `first` ones, and some of those that came before it, spread evenly. A pair is measured once, by
        either of the two. `group` has the parties' ids by label, in the order of arrival.
        """
        me = group[member]
        known = self.seconds.get(me, {})
        earlier = [label for label in group if label < member]
        chosen = dict.fromkeys([*first, *earlier[:: 1 + len(earlier) // (PROBES_MAX + 1)]])
        new = [group[each] for each in chosen if each in group and me not in self.seconds.get(group[each], {})]
        room = PROBES_MAX - sum(id_ in known for id_ in group.values())
        return self.unmeasured(me, [id_ for id_ in new if id_ != me and id_ not in known][: max(0, room)])

    def keep(self, peer: bytes, parties: Container[bytes]) -> list[bytes]:
        """What a peer measured, of which only the ways to these parties are still of use."""
        known = self.seconds.pop(peer, {})
        if kept := {to: seconds for to, seconds in known.items() if to in parties}:
            self.seconds[peer] = kept
        return [*kept]

    def forget_peer(self, peer: bytes) -> None:
        """A peer that measured is gone."""
        self.seconds.pop(peer, None)

    def forget_party(self, party: bytes) -> None:
        """A party is gone."""
        for known in self.seconds.values():
            known.pop(party, None)
