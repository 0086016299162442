"""The tree as the recovery protocol, as in RMTP: a peer asks its neighbours for what it lacks."""

from collections.abc import Sequence

from quillcast.core.messages import Contact
from quillcast.core.ranges import Range
from quillcast.protocol.reliability.domain import Findings, Silent, StreamId


class AlongTree(Silent):
    """Members ask the peer upstream first, then their other neighbours in the topic's tree."""

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        """Any neighbour may hold it; nobody else is known."""
        return Findings((), neighbours, lacks)
