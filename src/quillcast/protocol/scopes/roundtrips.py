"""The round trips that members measured: to senders, which choose entry points, and to each other, for policies."""

from collections.abc import Iterable, Mapping

NOISE = 0.1  # a round trip that differs less from the one before counts as the same; a guess
PROBES_MAX = 16  # others of a group that a member measures; a guess: all of a small group, and enough of a large one


class RoundTripTable:
    """From members to parties, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[int, dict[bytes, float | None]] = {}  # None: the member was told to measure it

    def get(self, member: int, to: bytes) -> float | None:
        """The round trip, if it was measured."""
        return self.seconds.get(member, {}).get(to)

    def note(self, member: int, to: bytes, seconds: float) -> bool:
        """A member measured. Returns whether the party is much farther or nearer than was known."""
        known = self.seconds.setdefault(member, {})
        former, known[to] = known.get(to), seconds
        return former is None or abs(seconds - former) > NOISE * former

    def unmeasured(self, member: int, parties: Iterable[bytes]) -> list[bytes]:
        """Those of these parties that the member was not told to measure yet; now it is."""
        known = self.seconds.setdefault(member, {})
        new = [to for to in parties if to not in known]
        known.update(dict.fromkeys(new))
        return new

    def unmeasured_among(self, member: int, group: Mapping[int, bytes], first: Iterable[int]) -> list[bytes]:
        """The others of a group that a member must measure now. They count as told.

        These are the `first` ones, and some of those that came before it, spread evenly. A pair is measured once, by
        either of the two. `group` has the parties' ids by label, in the order of arrival.
        """
        known, me = self.seconds.get(member, {}), group[member]
        earlier = [label for label in group if label < member]
        chosen = dict.fromkeys([*first, *earlier[:: 1 + len(earlier) // (PROBES_MAX + 1)]])
        new = [group[each] for each in chosen if each in group and me not in self.seconds.get(each, {})]
        room = PROBES_MAX - sum(id_ in known for id_ in group.values())
        return self.unmeasured(member, [id_ for id_ in new if id_ != me and id_ not in known][: max(0, room)])

    def forget_member(self, member: int) -> None:
        """A member is gone."""
        self.seconds.pop(member, None)

    def forget_party(self, party: bytes) -> None:
        """A party is gone."""
        for known in self.seconds.values():
            known.pop(party, None)
