"""The end of a lease whose holder could not keep up, until it does."""

from quillcast.protocol.forwarding.log import Budget

CATCH_UP_S = 1.0  # a receiver that is behind by less than this has caught up; a guess: several reports
ROOM_PARTS = 4  # it may be further behind where one of so many parts of the budget is free; a guess


class Cut:
    """A lease was ended because its holder could not keep up. Over when the holder catches up.

    It has caught up when it reaches what was in the log at some time soon after that time. If it takes longer, what it
    is behind by must leave room in the buffers: it moves on as fast as others, but has much by repairs, for instance.
    Whoever cannot keep up has them full.
    """

    __slots__ = ("at", "mark", "within_s")

    def __init__(self, mark: int, at: float, within_s: float = CATCH_UP_S) -> None:
        self.mark, self.at, self.within_s = mark, at, within_s

    def is_over(self, position: int, frontier: int, now: float, budget: Budget) -> bool:
        """Given the holder's position, the frontier of the term here, and the buffers: has it caught up?"""
        if position < self.mark:
            return False
        if position >= frontier or now - self.at <= self.within_s:
            return True
        if budget.used_bytes * ROOM_PARTS <= budget.limit_bytes * (ROOM_PARTS - 1):
            return True
        self.mark, self.at = frontier, now
        return False
