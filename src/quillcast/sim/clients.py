"""Simulated programs that are clients: they use the peer of their machine as their own (figure 7: client-host)."""

from collections.abc import Callable

from quillcast.protocol.scopes.uses import Doing
from quillcast.sim.applications import peer_of
from quillcast.sim.host import SimHost


class SimClient:
    """An application that publishes or subscribes through a peer, as soon as the scope's manager lets it."""

    def __init__(self, host: SimHost, topic: str, doing: Doing, begin: Callable[[], None]) -> None:
        self.host, self.topic, self.doing, self._begin = host, topic, doing, begin
        self.begun = self.gone = False
        self.refusal = ""
        scoping = peer_of(host).scoping
        self.id = scoping.hosting.enter(f"client {scoping.hosting.numbers + 1}")
        scoping.client_begins(self.id, topic, doing, self, self._decided)

    def _decided(self, why_not: str) -> None:
        self.refusal = why_not
        if not why_not:
            self.begun = True
            self._begin()

    def leave(self) -> None:
        """Disconnect."""
        if not self.gone:
            self.gone, scoping = True, peer_of(self.host).scoping
            scoping.hosting.end(self.id, self.topic, self.doing, self)
            scoping.client_left(self.id)

    @property
    def waits(self) -> str:
        """What it waits for, or why it was refused, in a sentence; empty if neither."""
        if self.begun or self.gone:
            return ""
        return self.refusal or peer_of(self.host).scoping.hosting.obstacle(self.id)
