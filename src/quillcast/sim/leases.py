"""Which subscribers had a live lease when: what docs/delivery.md makes its promises to, told from outside.

A lease goes on for `lease_s` after the last word from a subscriber. What a peer knows of leases is the mechanism under
test; here a lease has ended only if subscriber and publisher were truly out of each other's reach for that long, and is
there again once they were together for long enough to find each other.
"""

from collections.abc import Iterator

from quillcast.protocol.config import Config
from quillcast.sim.applications import Reader
from quillcast.sim.reach import Reach, Span

MEET_S = 5.0  # docs/delivery.md, *Guarantees*: rivals learn of each other within 5 s of connectivity
JOINED_S = 2 * MEET_S  # ... and their trees are one; a guess: as long again


def bound_s(config: Config) -> float:
    """No subscriber is silent for longer than this about an event, counted from its writing or from the last fault.

    Trees find together again; then whatever lacks is found, or given up: after a lease in which nobody claimed it
    (which may begin when another lease has ended), when its term is let go, or when all have refused it.
    """
    topics = config.topics
    return JOINED_S + max(2 * topics.lease_s, topics.past_terms_s) + topics.give_up_s


class Leases:
    """What may be said about leases of one run."""

    def __init__(self, reach: Reach, config: Config) -> None:
        self.reach, self.config = reach, config
        topics = config.topics
        self.slack_s = 2 * topics.tree_heartbeat_s  # a lease is counted from the last word, not from the fault

    def ended(self, reader: Reader, machine: int, written: float) -> str:
        """Why the reader had no lease with the part of the network where `machine` was; empty if it had one.

        That part is the machine, or those that were together with it while it was apart from the reader: the machine
        itself may have been dead for a while.
        """
        assert reader.started_at is not None
        mine, lease_s = reader.host.machine.number, self.config.topics.lease_s
        for span in self._spans(mine, machine):
            if span.end + JOINED_S < reader.started_at or written >= span.end + JOINED_S:
                continue
            when = f"from {span.start:.1f} to {span.end:.1f} s"
            # Who stood still accuses nobody of what passed meanwhile: it misses a lost parent that much later.
            later_s = MEET_S if self.reach.process_paused(mine, span) else 0.0
            if span.length_s + later_s >= lease_s - self.slack_s:
                return f"it was out of reach of peer {machine} {when}"
            if span.start < reader.started_at:
                return f"its subscription began while it was out of reach of peer {machine}, {when}, or soon after"
        return ""

    def _spans(self, mine: int, machine: int) -> Iterator[Span]:
        for span in self.reach.apart(mine, machine, MEET_S):
            yield span
            side = [other for other in self.reach.group(machine, span.start) if other != mine]
            yield from self.reach.cut_off(mine, side, MEET_S)

    def slow(self, reader: Reader, at: float, until: float) -> bool:
        """Did the reader take its events too slowly at some time between these, or shortly before?"""
        return any(start < until and at < end + self.config.topics.patience_s for start, end in reader.slow)
