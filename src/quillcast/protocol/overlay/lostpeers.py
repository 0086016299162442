"""Remember and probe lost peers, so that a partitioned network becomes one again within seconds.

Every `probe_lost_s`, a round probes a few of them: several of the latest losses, because a partition is the latest loss
of all peers across it, and one of the others. A single answer is enough: this peer then probes all others at once, and
so do the peers that answer.
"""

from collections.abc import Iterator
from typing import NamedTuple

from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.effects import Effects, SearchRing
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.messages import LeafSetProbe

_HEARSAY = 3.0  # keep-alive intervals after a loss in which others may still introduce the dead peer; a guess
_LATEST, _LATEST_PROBED = 8, 3  # latest losses, and how many of them a round probes; a guess


class ProbeLost(Timer, frozen=True):
    """Probe some of the lost peers."""


class Lost(NamedTuple):
    """A peer that is unreachable. If `met`, it was known before and lost at `at`; otherwise it never answered."""

    contact: Contact
    at: float
    met: bool


class LostPeers:
    """Peers that fell silent. A round probes a few of them; when one answers, all others are probed at once."""

    __slots__ = ("_left", "_probed_at", "_timer_set", "config", "host", "latest", "leaf_set", "lifecycle", "peers")

    def __init__(self, host: Host, config: OverlayConfig, lifecycle: Lifecycle, leaf_set: LeafSet) -> None:
        self.host, self.config, self.lifecycle, self.leaf_set = host, config, lifecycle, leaf_set
        self.peers: dict[bytes, Lost] = {}
        """In order of loss, latest last. Read-only for others."""
        self._probed_at: dict[bytes, float] = EMPTY
        self._left: dict[bytes, float] = EMPTY  # when peers left that sent nothing since, the latest last
        self._timer_set = False
        self.latest = float("-inf")  # time of the latest loss

    def remember(self, contact: Contact, *, met: bool = True) -> None:
        """This peer was lost now, unless it has left. One never met may have left long ago or be across a partition."""
        if self.has_left(contact.node_id) or (not met and contact.node_id in self.peers):
            return
        self.forget(contact.node_id)
        if len(self.peers) >= self.config.remembered_max:
            self.forget(next(iter(self.peers)))
        now = self.host.now()
        self.peers[contact.node_id] = Lost(contact, now, met)
        self.latest = now if met else self.latest
        self._set_timer()

    def note_left(self, node_id: bytes) -> None:
        """Note that the peer left in an orderly way: it is not looked for until it sends something again."""
        self.forget(node_id)
        self._left.pop(node_id, None)
        self._left = self._left or {}
        self._left[node_id] = self.host.now()
        if len(self._left) > self.config.remembered_max:
            del self._left[next(iter(self._left))]

    def has_left(self, node_id: bytes) -> bool:
        """Whether this peer left in an orderly way, and has sent nothing since."""
        return node_id in self._left

    def is_gone(self, node_id: bytes) -> bool:
        """Whether this peer was lost or has left."""
        return node_id in self.peers or node_id in self._left

    def spoke(self, node_id: bytes) -> None:
        """Note that a peer sent something, so that it has not left."""
        self._left.pop(node_id, None)

    def forget(self, node_id: bytes) -> bool:
        """Stop probing a peer. True if it was remembered."""
        self._probed_at.pop(node_id, None)
        return self.peers.pop(node_id, None) is not None

    def replaced(self, contact: Contact) -> None:
        """Another peer answers at the address of a lost one, so the lost one is gone for good."""
        for node_id, lost in list(self.peers.items()):
            if lost.contact.address == contact.address:
                self.forget(node_id)

    def lately(self, node_id: bytes) -> bool:
        """Whether this peer was lost or left so recently that others may not know it yet."""
        at = self.peers[node_id].at if node_id in self.peers else self._left.get(node_id)
        return at is not None and self.host.now() - at < _HEARSAY * self.config.keep_alive_s

    def since(self, at: float, *, met: bool = False) -> list[tuple[Contact, float]]:
        """Return the peers lost since a time, each with the time of its loss. If `met`, only peers that were met."""
        return [(lost.contact, lost.at) for lost in self.peers.values() if lost.at > at and (lost.met or not met)]

    def due(self, _: ProbeLost) -> Effects:
        """Probe the peers that were probed longest ago: some of the latest losses, and one of the others."""
        self._timer_set = False
        nodes = sorted(self.peers, key=lambda node: self.peers[node].at)
        older, latest = nodes[:-_LATEST], nodes[-_LATEST:]
        for some, count in ((latest, _LATEST_PROBED), (older, 1)):
            for node in sorted(some, key=self._asked_at)[:count]:
                self._probe(node)
        if self.lifecycle.active and not len(self.leaf_set):
            yield SearchRing()  # other peers on this side may be alone too
        self._set_timer()

    def ask_all(self) -> None:
        """Probe all lost peers now: one came back, so others may too."""
        for node in self.peers:
            self._probe(node)

    def named(self, node_id: bytes) -> None:
        """Another peer names one that is lost here: it may be alive across a partition that has healed."""
        if not self.lately(node_id) and self.host.now() - self._asked_at(node_id) >= self.config.probe_lost_s:
            self._probe(node_id)

    def _asked_at(self, node_id: bytes) -> float:
        return self._probed_at.get(node_id, self.peers[node_id].at)

    def _probe(self, node_id: bytes) -> None:
        self._probed_at = self._probed_at or {}
        self._probed_at[node_id] = self.host.now()
        self.host.send(
            self.peers[node_id].contact, LeafSetProbe(tuple(self.leaf_set), joining=not self.lifecycle.active)
        )

    def _set_timer(self) -> None:
        if self.peers and not self._timer_set:
            self._timer_set = True
            self.host.set_timer(ProbeLost(), self.config.probe_lost_s * (0.75 + self.host.random.random() / 2))

    def __iter__(self) -> Iterator[Contact]:
        """The remembered peers, latest loss last."""
        return (lost.contact for lost in self.peers.values())

    def __contains__(self, node_id: bytes) -> bool:
        return node_id in self.peers

    def __len__(self) -> int:
        return len(self.peers)

    def check(self) -> None:
        """Raise AssertionError if the bound is exceeded or a leaf-set member counts as lost."""
        assert len(self.peers) <= self.config.remembered_max, len(self.peers)
        assert self._probed_at.keys() <= self.peers.keys()
        assert len(self._left) <= self.config.remembered_max, len(self._left)
        assert not self._left.keys() & self.peers.keys(), "a peer that left is looked for"
        assert self._timer_set or not self.peers, "there are lost peers but no timer is set"
        for node_id in self.peers:
            assert node_id not in self.leaf_set, f"{node_id.hex()} is both lost and a member of the leaf set"
