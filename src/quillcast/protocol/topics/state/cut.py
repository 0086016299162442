"""The cut of a lease whose holder cannot keep up, until it does."""

CATCH_UP_S = 1.0  # a receiver that is behind by less than this has caught up; a guess: several reports
ROOM_PARTS = 4  # a peer may be further behind if a fourth of the budget is free; a guess


class Cut:
    """A cut lease. The cut is over when the holder catches up.

    The holder has caught up when it reaches what was in the log at some time, soon after that time.
    """

    __slots__ = ("at", "mark", "within_s")

    def __init__(self, mark: int, at: float, within_s: float = CATCH_UP_S) -> None:
        self.mark, self.at, self.within_s = mark, at, within_s

    def is_over(self, position: int, frontier: int, now: float, *, misses_some: bool = False) -> bool:
        """Whether the holder has caught up, given its position and the frontier of the term here.

        It may take longer if it only waits for repairs (`misses_some`): it still advances as fast as others.
        """
        if position < self.mark:
            return False
        if position >= frontier or now - self.at <= self.within_s or misses_some:
            return True
        self.mark, self.at = frontier, now
        return False
