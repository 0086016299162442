"""Lost peers are remembered and probed at slowing intervals, so that a network that was split becomes one again."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quillcast.core.host import Timer
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.messages import LeafSetProbe

if TYPE_CHECKING:
    from quillcast.protocol.overlay.pastry import Pastry

_HEARSAY = 3.0  # for so many keep-alive intervals after a loss others may still introduce the dead; a guess


class ProbeLost(Timer, frozen=True):
    """Timer: probe one of the lost peers."""

    number: int


class LostPeers:
    """Peers that fell silent. One at a time is probed; the first that answers is reason to ask all others at once."""

    def __init__(self, pastry: "Pastry") -> None:
        self.pastry, self.host, self.config = pastry, pastry.host, pastry.config
        self._peers: dict[bytes, tuple[Contact, float]] = {}  # with the time of the loss; the next to probe first
        self._interval_s = 0.0
        self._timer_number = 0

    def remember(self, contact: Contact) -> None:
        """This peer was lost just now."""
        self._peers.pop(contact.node_id, None)
        if len(self._peers) >= self.config.remembered_max:
            del self._peers[next(iter(self._peers))]
        self._peers[contact.node_id] = (contact, self.host.now())
        self._soon()

    def forget(self, node_id: bytes) -> bool:
        """The peer spoke, or left in good order; True if it was remembered."""
        return self._peers.pop(node_id, None) is not None

    def lately(self, node_id: bytes) -> bool:
        """Was this peer lost so lately that others may not know it yet?"""
        lost = self._peers.get(node_id)
        return lost is not None and self.host.now() - lost[1] < _HEARSAY * self.config.keep_alive_s

    def since(self, at: float) -> Iterator[tuple[Contact, float]]:
        """Those lost since a time, each with the time of its loss."""
        return ((contact, lost_at) for contact, lost_at in self._peers.values() if lost_at > at)

    def due(self, timer: ProbeLost) -> None:
        """Probe one, and wait longer until the next."""
        if timer.number != self._timer_number or not self._peers:
            return
        node_id = next(iter(self._peers))
        lost = self._peers[node_id] = self._peers.pop(node_id)
        self._probe(lost[0])
        self._interval_s = min(2 * self._interval_s, self.config.remember_max_s)
        self._set_timer()

    def ask_all(self) -> None:
        """One came back, so others may: probe them all now."""
        for contact, _ in self._peers.values():
            self._probe(contact)
        if self._peers:
            self._soon()

    def _probe(self, contact: Contact) -> None:
        self.host.send(contact, LeafSetProbe(tuple(self.pastry.leaf_set)))

    def _soon(self) -> None:
        self._interval_s = self.config.remember_first_s
        self._set_timer()

    def _set_timer(self) -> None:
        self._timer_number += 1
        self.host.set_timer(ProbeLost(self._timer_number), self._interval_s * (0.75 + self.host.random.random() / 2))

    def __iter__(self) -> Iterator[Contact]:
        """Those remembered, the next to probe first."""
        return (contact for contact, _ in self._peers.values())

    def __contains__(self, node_id: bytes) -> bool:
        return node_id in self._peers

    def __len__(self) -> int:
        return len(self._peers)

    def check(self) -> None:
        """Raise AssertionError if the bound is broken or a leaf-set member counts as lost."""
        assert len(self._peers) <= self.config.remembered_max, len(self._peers)
        for node_id in self._peers:
            assert node_id not in self.pastry.leaf_set, f"{node_id.hex()} is lost and a member of the leaf set"
