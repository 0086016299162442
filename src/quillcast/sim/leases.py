"""When which subscribers had a live lease, observed from outside: the promises of docs/delivery.md hold for these.

A lease runs for `lease_s` after the last report from a subscriber. Peers' own knowledge of leases is under test, so it
is not used: here a lease ends only if subscriber and publisher really could not reach each other for that long. It
exists again once they were connected for long enough to find each other.
"""

from collections.abc import Iterator, Mapping

from quillcast.protocol.config import Config
from quillcast.sim.applications import Reader
from quillcast.sim.reach import Reach, Span

MEET_S = 5.0  # docs/delivery.md, *Guarantees*: rivals learn of each other within 5 s of connectivity
JOINED_S = 2 * MEET_S  # ... and their trees are merged; a guess: as long again


def bound_s(config: Config) -> float:
    """The longest time until an event is delivered or reported lost, from its writing or from the last fault.

    Trees merge first. Then missing events are found or given up: after a lease in which no link report offered them
    (which may begin when another lease has ended), when their term is discarded, or when all peers have refused them.
    """
    topics = config.topics
    return JOINED_S + max(2 * topics.lease_s, topics.past_terms_s) + topics.give_up_s


class Leases:
    """Answers questions about leases in one run."""

    def __init__(self, reach: Reach, config: Config, topics_by_name: Mapping[str, bytes]) -> None:
        self.reach, self.config, self.topics_by_name = reach, config, topics_by_name
        topics = config.topics
        self.slack_s = 2 * topics.tree_heartbeat_s  # a lease is counted from the last report, not from the fault

    def ended(self, reader: Reader, machine: int, written: float) -> str:
        """Why the reader had no lease with the part of the network that `machine` was in; empty if it had one.

        That part includes the machines that could reach it while the reader could not, because the machine itself may
        have been dead for a while.
        """
        assert reader.started_at is not None
        mine, lease_s = reader.host.machine.number, self.config.topics.lease_s
        for span in self._spans(mine, machine):
            if span.end + JOINED_S < reader.started_at or written >= span.end + JOINED_S:
                continue
            when = f"from {span.start:.1f} to {span.end:.1f} s"
            # A paused process blames no peer for the time of its pause, so it notices a lost parent later.
            later_s = MEET_S if self.reach.process_paused(mine, span) else 0.0
            if span.length_s + later_s >= lease_s - self.slack_s:
                return f"it was out of reach of peer {machine} {when}"
            if span.start < reader.started_at:
                return f"its subscription began while it was out of reach of peer {machine}, {when}, or soon after"
        return self._ended_beside_a_rival(self.topics_by_name[reader.topic], written)

    def just_met(self, reader: Reader, machine: int, at: float) -> bool:
        """Whether the reader was out of reach of a machine's part of the network until trees can just have merged."""
        spans = self._spans(reader.host.machine.number, machine)
        return any(span.start < at <= span.end + JOINED_S for span in spans)

    def out_of_reach_of_some(self, machine: int, at: float) -> bool:
        """Whether a cut or a pause kept another peer from reaching a machine at a time, or until shortly before."""
        others = (each.number for each in self.reach.world.machines if each.number != machine)
        spans = (span for other in others for span in self.reach.apart(other, machine, MEET_S))
        return any(span.start < at <= span.end + JOINED_S for span in spans)

    def _ended_beside_a_rival(self, topic: bytes, written: float) -> str:
        """How leases may have ended because the peer closest to the topic reached none of its replicas directly.

        Then another peer may have become root, and nothing is promised while the two cannot reach each other for longer
        than a lease (docs/delivery.md, *Roots that move*).
        """
        for span in self.reach.without_replicas(topic, self.config.topics.replicas, MEET_S):
            if span.length_s >= self.config.topics.lease_s - self.slack_s and written < span.end + JOINED_S:
                return f"the peer closest to the topic reached no replica from {span.start:.1f} to {span.end:.1f} s"
        return ""

    def _spans(self, mine: int, machine: int) -> Iterator[Span]:
        for span in self.reach.apart(mine, machine, MEET_S):
            yield span
            side = [other for other in self.reach.group(machine, span.start) if other != mine]
            yield from self.reach.cut_off(mine, side, MEET_S)

    def slow(self, reader: Reader, at: float, until: float) -> bool:
        """Whether the reader was slow at some time in this span, or shortly before."""
        return any(start < until and at < end + self.config.topics.patience_s for start, end in reader.slow)
