"""The round trips that members measured, which choose entry points and delegates."""

from collections.abc import Iterable


class RoundTripTable:
    """From members to parties, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[int, dict[bytes, float | None]] = {}  # None: the member was told to measure it

    def get(self, member: int, to: bytes) -> float | None:
        """The round trip, if it was measured."""
        return self.seconds.get(member, {}).get(to)

    def note(self, member: int, to: bytes, seconds: float) -> None:
        """A member measured."""
        self.seconds.setdefault(member, {})[to] = seconds

    def unmeasured(self, member: int, parties: Iterable[bytes]) -> list[bytes]:
        """Those parties that the member was not told to measure yet; now it is."""
        known = self.seconds.setdefault(member, {})
        new = [to for to in parties if to not in known]
        known.update(dict.fromkeys(new))
        return new

    def forget_member(self, member: int) -> None:
        """A member is gone."""
        self.seconds.pop(member, None)

    def forget_party(self, party: bytes) -> None:
        """A party is gone."""
        for known in self.seconds.values():
            known.pop(party, None)
